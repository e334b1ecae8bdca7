//! Two threads share one device. Each has its own queue pair, and both write to one region.
//! `cargo run -p bareverbs --features vfio-user --example two_threads -- SOCKET`, with `bareverbs serve --link eth` at the socket.

use bareverbs::prelude::*;
use bareverbs::prm::time::Duration;
use bareverbs::vfio_user::{VfioUserConfig, VfioUserHal};
use std::{error::Error, path::Path, sync::Arc, thread};

type Handle = Arc<Device<VfioUserHal>>;
const TIMEOUT: Duration = Duration::from_secs(10);

/// The work of one thread. The types make sure that only one thread uses a queue at a time.
fn count(domain: &ProtectionDomain<Handle>, cell: RemoteSlice, rounds: u64) -> Result<(), Box<dyn Error>> {
    let device = domain.device();
    let mut queue = CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 16 })?;
    let mut queue_pair = QueuePairBuilder::new(domain, &queue, &queue).build()?.connect_to_itself()?;
    for round in 1..=rounds {
        queue_pair
            .post_send(&WorkRequest::write_inline(round, &round.to_le_bytes(), cell).signalled(true))?;
        queue.wait_one(device.hal().now() + TIMEOUT)?.into_result()?;
    }
    Ok(())
}

/// Returns the last number that each thread wrote.
pub fn run(socket: &Path, rounds: u64) -> Result<[u64; 2], Box<dyn Error>> {
    let hal = VfioUserHal::connect(socket, VfioUserConfig::default())?;
    let device = Arc::new(Device::open(hal, DeviceConfig::default())?);
    device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, 1]), device.port()?.mac))?;
    let domain = ProtectionDomain::allocate(device)?;
    let region = MemoryRegion::allocate(&domain, 64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    let cells = [region.remote(0).part(0, 8)?, region.remote(0).part(8, 8)?];
    thread::scope(|scope| {
        let domain = &domain;
        let threads = cells
            .map(|cell| scope.spawn(move || count(domain, cell, rounds).map_err(|error| error.to_string())));
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok([region.load_u64(0)?, region.load_u64(8)?])
}

#[allow(dead_code, reason = "the test that includes this file calls `run`")]
fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args_os().nth(1).ok_or("usage: two_threads SOCKET")?;
    println!("the threads have counted to {:?}", run(Path::new(&socket), 1000)?);
    Ok(())
}

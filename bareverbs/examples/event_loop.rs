//! An event loop: a device writes to itself, and the program sleeps until the completion interrupt.
//! `cargo run -p bareverbs --features vfio-user --example event_loop -- SOCKET`, with `bareverbs serve --link eth` at the socket.

use bareverbs::CompletionChannel;
use bareverbs::prelude::*;
use bareverbs::vfio_user::{VfioUserConfig, VfioUserHal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{error::Error, path::Path, sync::Arc};

/// Posts `rounds` WRITEs, each after the previous one has completed.
pub fn run(socket: &Path, rounds: u64) -> Result<(), Box<dyn Error>> {
    let hal = VfioUserHal::connect(socket, VfioUserConfig::default())?;
    let device = Arc::new(Device::open(hal, DeviceConfig::default())?);
    device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, 1]), device.port()?.mac))?;
    let domain = ProtectionDomain::allocate(device.clone())?;
    let region = MemoryRegion::allocate(&domain, 64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    let mut channel = CompletionChannel::create(device.clone(), 0, 16)?;
    let mut queue = CompletionQueue::builder(device.clone()).channel(&channel).create()?;
    let mut queue_pair = QueuePairBuilder::new(&domain, &queue, &queue).build()?.connect_to_itself()?;
    let interrupt = device.hal().vector_fd(0).ok_or("the device has no interrupt vector")?;
    let (write, mut done) = (|id| WorkRequest::write_inline(id, &[1; 8], region.remote(0)), 0);
    queue_pair.post_send(&write(1))?;
    while done < rounds {
        queue.handle_and_arm(&mut channel, |completion| {
            done = completion.into_result()?.wr_id;
            queue_pair.post_send(&write(done + 1)).map_err(Box::<dyn Error>::from)
        })?;
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&interrupt, PollFlags::IN)], Some(&limit))? == 0 {
            return Err("no interrupt for ten seconds".into());
        }
    }
    Ok(())
}

#[allow(dead_code, reason = "the test that includes this file calls `run`")]
fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args_os().nth(1).ok_or("usage: event_loop SOCKET")?;
    run(Path::new(&socket), 1000)
}

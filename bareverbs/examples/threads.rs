//! A server and its clients in real time, each a thread with its own NIC: for programs with threads and clocks of their
//! own.
//! `cargo run -p bareverbs --features real-time --example threads`

use bareverbs::prelude::*;
use bareverbs::prm::time::Duration;
use bareverbs::real_time::{Fabric, FabricPort, RealTimeHal};
use bareverbs::sim::net::SubnetConfig;
use bareverbs::sim::{LinkLayer, MemoryConfig, Nic, NicConfig};
use std::error::Error;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// How long a thread waits for another.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Number of increments per client.
const ROUNDS: u64 = 100;

type Handle = Rc<Device<RealTimeHal<Nic, FabricPort>>>;

/// A client's call, which takes the place of a TCP message: its endpoint, and where to send the answer.
struct Call {
    endpoint: RemoteEndpoint,
    answer: Sender<(RemoteEndpoint, RemoteSlice)>,
}

/// What one thread owns. Threads share none of it.
struct Host {
    device: Handle,
    domain: ProtectionDomain<Handle>,
    region: MemoryRegion<Handle>,
    completions: CompletionQueue<Handle>,
}

// ANCHOR: plug
/// Plugs a NIC into the switch and creates its resources.
fn plug(fabric: &Fabric, number: u8) -> Result<Host, Box<dyn Error>> {
    let mac = MacAddress([2, 0, 0, 0, 0, number]);
    // No waker is needed: a waiting thread polls for frames itself.
    let port = fabric.plug(LinkLayer::Ethernet, Box::new(|| ()))?;
    let hal = RealTimeHal::new(Nic::new(NicConfig::new(mac)), port, MemoryConfig::default(), number.into());
    let device = Rc::new(Device::open(hal, DeviceConfig::default())?);
    device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, number]), mac))?;
    let domain = ProtectionDomain::allocate(device.clone())?;
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC;
    let region = MemoryRegion::allocate(&domain, 64, access)?;
    let completions = CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 64 })?;
    Ok(Host { device, domain, region, completions })
}
// ANCHOR_END: plug

impl Host {
    fn queue_pair(&self) -> Result<PreparedQueuePair<Handle>, Box<dyn Error>> {
        Ok(QueuePairBuilder::new(&self.domain, &self.completions, &self.completions).build()?)
    }

    fn deadline(&self) -> Time {
        self.device.hal().now() + TIMEOUT
    }
}

/// Increments the server's count `ROUNDS` times.
fn count_up(fabric: &Fabric, number: u8, calls: &Sender<Call>) -> Result<(), Box<dyn Error>> {
    let mut host = plug(fabric, number)?;
    let prepared = host.queue_pair()?;
    let (answer, answered) = channel();
    calls.send(Call { endpoint: prepared.endpoint(0)?, answer })?;
    let (server, count) = answered.recv()?;
    let mut queue_pair = prepared.connect(&server, ConnectOptions::default())?;
    for round in 0..ROUNDS {
        let before = [host.region.slice(0, 8)?];
        queue_pair.post_send(&WorkRequest::fetch_add(round, &before, count, 1).signalled(true))?;
        let deadline = host.deadline();
        host.completions.wait_one(deadline)?.into_result()?;
    }
    Ok(())
}

/// Answers calls until every client is done. Returns the final count.
fn serve(fabric: &Fabric, calls: &Receiver<Call>, clients: u64) -> Result<u64, Box<dyn Error>> {
    let host = plug(fabric, 1)?;
    let (deadline, mut connections) = (host.deadline(), Vec::new());
    while host.region.load_u64(0)? < clients * ROUNDS {
        if let Ok(Call { endpoint, answer }) = calls.try_recv() {
            let prepared = host.queue_pair()?;
            let own = prepared.endpoint(0)?;
            connections.push(prepared.connect(&endpoint, ConnectOptions::default())?);
            answer.send((own, host.region.remote(0).part(0, 8)?))?;
        }
        // The NIC serves the clients' requests while its thread waits.
        let hal = host.device.hal();
        hal.relax(hal.now() + Duration::from_millis(1));
        if hal.now() > deadline {
            return Err(format!("the count is {} after {TIMEOUT}", host.region.load_u64(0)?).into());
        }
    }
    Ok(host.region.load_u64(0)?)
}

/// Runs a server and `clients` clients. Returns the final count.
pub fn run(clients: u8) -> Result<u64, String> {
    // Errors leave their thread as text, because devices and their errors are not `Send`.
    let fabric = Fabric::new(SubnetConfig::default()).map_err(|error| error.to_string())?;
    let (calls, called) = channel();
    let fabric = &fabric;
    thread::scope(|scope| {
        let server =
            scope.spawn(move || serve(fabric, &called, clients.into()).map_err(|error| error.to_string()));
        let counting: Vec<_> = (0..clients)
            .map(|client| {
                let calls = calls.clone();
                scope.spawn(move || count_up(fabric, client + 2, &calls).map_err(|error| error.to_string()))
            })
            .collect();
        let joined = |_| "a thread panicked".to_owned();
        counting.into_iter().try_for_each(|client| client.join().map_err(joined)?)?;
        server.join().map_err(joined)?
    })
}

#[allow(dead_code, reason = "the test that includes this file calls `run`")]
fn main() -> Result<(), String> {
    println!("three clients have counted to {}", run(3)?);
    Ok(())
}

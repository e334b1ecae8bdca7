//! The shortest complete program: two hosts, a cable, one RDMA WRITE.
//!
//! `cargo run -p bareverbs --features sim --example first_write`
//!
//! Apart from `host` and `World`, this is the code that runs on hardware: only the `Hal` differs.

use bareverbs::prelude::*;
use bareverbs::prm::time::Duration;
use bareverbs::sim::{MemoryConfig, Nic, NicConfig, NodeId, Preset, SimHal, SimWorld};
use std::error::Error;
use std::rc::Rc;

type Handle = Rc<Device<SimHal>>;

/// A host that does not know its peer yet.
struct Host {
    queue_pair: PreparedQueuePair<Handle>,
    completions: CompletionQueue<Handle>,
    region: MemoryRegion<Handle>,
}

/// Writes into the other host's memory and returns a report.
pub fn write() -> Result<String, Box<dyn Error>> {
    let world = SimWorld::new(1);
    let nodes = [1, 2].map(|number| node(&world, number));
    world.connect(nodes[0], nodes[1], Preset::STROM_100G.link)?;
    let (mut left, right) = (host(world.hal(nodes[0]), 1)?, host(world.hal(nodes[1]), 2)?);

    // ANCHOR: connect
    // Real programs exchange endpoints over TCP or a file.
    let (to_left, to_right) = (left.queue_pair.endpoint(0)?, right.queue_pair.endpoint(0)?);
    let mut sender = left.queue_pair.connect(&to_right, ConnectOptions::default())?;
    let _receiver = right.queue_pair.connect(&to_left, ConnectOptions::default())?;
    // ANCHOR_END: connect

    // ANCHOR: write
    left.region.copy_in(0, b"hello, remote memory")?;
    let data = [left.region.slice(0, 20)?];
    sender.post_send(&WorkRequest::write(7, &data, right.region.remote(64)).signalled(true))?;
    let completion = left.completions.wait_one(world.now() + Duration::from_secs(1))?.into_result()?;
    // ANCHOR_END: write

    let mut bytes = [0; 20];
    right.region.copy_out(64, &mut bytes)?;
    Ok(format!(
        "work request {}: {:?}\nthe other host reads {:?} at {} (sim)",
        completion.wr_id,
        completion.status,
        String::from_utf8_lossy(&bytes),
        world.now()
    ))
}

#[allow(dead_code, reason = "the test that includes this file calls `write`")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", write()?);
    Ok(())
}

fn node(world: &SimWorld, number: u8) -> NodeId {
    let nic = Nic::new(NicConfig::new(mac(number)));
    world.add_node(&format!("host {number}"), nic, Preset::STROM_100G.node, MemoryConfig::default())
}

fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

// ANCHOR: host
fn host(hal: SimHal, number: u8) -> Result<Host, Box<dyn Error>> {
    let device = Rc::new(Device::open(hal, DeviceConfig::default())?);
    device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, number]), mac(number)))?;
    let domain = ProtectionDomain::allocate(device.clone())?;
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let region = MemoryRegion::allocate(&domain, 4096, access)?;
    let completions = CompletionQueue::create(device, CompletionQueueConfig { entries: 16 })?;
    let queue_pair = QueuePairBuilder::new(&domain, &completions, &completions).build()?;
    Ok(Host { queue_pair, completions, region })
}
// ANCHOR_END: host

//! One RDMA WRITE between two PCI functions of this machine, between two served devices, or from one device to itself:
//! the whole path from a `Hal` to a completion.
//!
//! `cargo run --release -p bareverbs-hal --example vfio_write -- 0000:3b:00.0 0000:3b:00.1`
//!
//! The functions must be bound to vfio-pci (`bareverbs vfio bind BDF`) and their ports joined by a cable or a switch.
//! With one function the device sends to itself and needs no cable. Without such hardware, run `bareverbs serve --link
//! eth --socket /tmp/nic0 --wire /tmp/w0 --wire-to /tmp/w1` and a second server with `/tmp/nic1`, `/tmp/w1`, `/tmp/w0`
//! and `--seed 2`, and pass the sockets instead of the addresses. See docs/hardware.md.

use bareverbs_core::hal::Hal;
use bareverbs_core::{
    AccessFlags, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig, GidEntry,
    MemoryRegion, PreparedQueuePair, ProtectionDomain, QueuePairBuilder, WorkRequest,
};
use bareverbs_hal::vfio::{VfioConfig, VfioHal};
use bareverbs_hal::vfio_user::{VfioUserConfig, VfioUserHal};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Duration;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;
type Handle<H> = Arc<Device<H>>;

/// An end that does not know its peer yet.
struct End<H: Hal> {
    queue_pair: PreparedQueuePair<Handle<H>>,
    completions: CompletionQueue<Handle<H>>,
    region: MemoryRegion<Handle<H>>,
}

fn main() -> Outcome<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if !matches!(names.len(), 1 | 2) {
        return Err("one or two PCI addresses, or sockets of bareverbs serve".into());
    }
    if names[0].contains('/') {
        return write(&names, |path| Ok(VfioUserHal::connect(Path::new(path), VfioUserConfig::default())?));
    }
    // ANCHOR: open
    write(&names, |address| {
        let hal = VfioHal::open(address.parse()?, VfioConfig::default())?;
        hal.warnings().iter().for_each(|warning| eprintln!("warning: {warning}"));
        eprintln!("{address} by {}; {}", hal.iommu(), hal.memory());
        Ok(hal)
    })
    // ANCHOR_END: open
}

/// The part that is the same for every HAL: writes from the first of one or two devices to the last.
fn write<H: Hal>(names: &[String], open: impl Fn(&str) -> Outcome<H>) -> Outcome<()> {
    // ANCHOR: device
    let mut devices = Vec::new();
    for (name, number) in names.iter().zip(1..) {
        let device = Arc::new(Device::open(open(name)?, DeviceConfig::default())?);
        let mac = device.port()?.mac;
        device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, number]), mac))?;
        devices.push(device);
    }
    // ANCHOR_END: device
    let (Some(first), Some(last)) = (devices.first(), devices.last()) else { return Ok(()) };
    write_between(end(first.clone())?, end(last.clone())?)
}

fn write_between<H: Hal>(mut left: End<H>, right: End<H>) -> Outcome<()> {
    let (to_left, to_right) = (left.queue_pair.endpoint(0)?, right.queue_pair.endpoint(0)?);
    let mut sender = left.queue_pair.connect(&to_right, ConnectOptions::default())?;
    let _receiver = right.queue_pair.connect(&to_left, ConnectOptions::default())?;

    left.region.copy_in(0, b"hello, remote memory")?;
    let data = [left.region.slice(0, 20)?];
    sender.post_send(&WorkRequest::write(7, &data, right.region.remote(64)))?;
    let deadline = left.completions.device().hal().now() + Duration::from_secs(5);
    let completion = left.completions.wait_one(deadline)?;
    let mut bytes = [0; 20];
    right.region.copy_out(64, &mut bytes)?;
    println!("work request {}: {:?}", completion.wr_id, completion.status);
    println!("the other end reads {:?}", String::from_utf8_lossy(&bytes));
    Ok(())
}

fn end<H: Hal>(device: Handle<H>) -> Outcome<End<H>> {
    let domain = ProtectionDomain::allocate(device.clone())?;
    let region = MemoryRegion::allocate(&domain, 4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    let completions = CompletionQueue::create(device, CompletionQueueConfig { entries: 16 })?;
    let queue_pair = QueuePairBuilder::new(&domain, &completions, &completions).build()?;
    Ok(End { queue_pair, completions, region })
}

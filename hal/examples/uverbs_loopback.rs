//! RDMA WRITE, READ and SEND from a device that the kernel owns to itself: two queue pairs that are connected to each other.
//!
//! `cargo run --release -p bareverbs-hal --features uverbs --example uverbs_loopback -- mlx5_0`
//!
//! The device is one of `ibv_devices` (mlx5, with RoCE), and may be in use by others. Without one, `bareverbs run --devx --
//! target/release/examples/uverbs_loopback mlx5_0` runs it on a simulated device.

use bareverbs_core::hal::Hal as _;
use bareverbs_core::{
    AccessFlags, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig, MemoryRegion,
    PreparedQueuePair, ProtectionDomain, QueuePair, QueuePairBuilder, ReceiveRequest, WorkRequest,
};
use bareverbs_hal::uverbs::{UverbsConfig, UverbsHal};
use bareverbs_prm::time::Duration;
use std::error::Error;
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;
type Handle = Arc<Device<UverbsHal>>;

/// The first bytes of the region, which each operation moves to another place.
const HELLO: &[u8; 20] = b"hello, remote memory";
const WRITTEN: usize = 64;
const READ: usize = 128;
const SENT: usize = 192;

/// Two queue pairs of one device, with one completion queue and one region. They are destroyed in this order: a protection domain that
/// is in use cannot be.
struct Loopback {
    left: QueuePair<Handle>,
    right: QueuePair<Handle>,
    completions: CompletionQueue<Handle>,
    region: MemoryRegion<Handle>,
    _domain: ProtectionDomain<Handle>,
}

fn main() -> Outcome<()> {
    let name = std::env::args().nth(1).ok_or("the name of a device, such as mlx5_0")?;
    for line in run(&name)? {
        println!("{line}");
    }
    Ok(())
}

/// Moves bytes in all three ways, and returns a line for each.
fn run(name: &str) -> Outcome<Vec<String>> {
    let device = Device::open(UverbsHal::open(name, UverbsConfig::default())?, DeviceConfig::default())?;
    let gid = device.adopt_gids()?.next().ok_or("the port has no RoCE address")?.0;
    let device = Arc::new(device);
    let lines = Loopback::new(&device, u8::try_from(gid)?)?.move_bytes()?;
    let device = Arc::into_inner(device).ok_or("an object outlives its user")?;
    device.close().map_err(|error| error.to_string())?;
    Ok(lines)
}

fn prepare(
    domain: &ProtectionDomain<Handle>,
    completions: &CompletionQueue<Handle>,
) -> Outcome<PreparedQueuePair<Handle>> {
    let rights = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    Ok(QueuePairBuilder::new(domain, completions, completions).access(rights).build()?)
}

impl Loopback {
    fn new(device: &Handle, gid: u8) -> Outcome<Self> {
        let domain = ProtectionDomain::allocate(device.clone())?;
        let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let region = MemoryRegion::allocate(&domain, 4096, rights)?;
        let completions = CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 16 })?;
        let (left, right) = (prepare(&domain, &completions)?, prepare(&domain, &completions)?);
        let (to_left, to_right) = (left.endpoint(gid)?, right.endpoint(gid)?);
        let options = ConnectOptions { gid_index: gid, ..ConnectOptions::default() };
        let left = left.connect(&to_right, options)?;
        let right = right.connect(&to_left, options)?;
        Ok(Self { left, right, completions, region, _domain: domain })
    }

    fn move_bytes(&mut self) -> Outcome<Vec<String>> {
        self.region.copy_in(0, HELLO)?;
        let hello = [self.region.slice(0, HELLO.len())?];
        let mut lines = Vec::new();
        self.left.post_send(&WorkRequest::write(1, &hello, self.region.remote(WRITTEN as u64)))?;
        lines.push(self.finish("WRITE", WRITTEN, 1)?);
        let into = [self.region.slice(READ, HELLO.len())?];
        self.left.post_send(&WorkRequest::read(2, &into, self.region.remote(WRITTEN as u64)))?;
        lines.push(self.finish("READ", READ, 1)?);
        let into = [self.region.slice(SENT, HELLO.len())?];
        self.right.post_receive(&ReceiveRequest::new(3, &into))?;
        self.left.post_send(&WorkRequest::send(4, &hello))?;
        lines.push(self.finish("SEND", SENT, 2)?);
        Ok(lines)
    }

    /// Waits for `count` completions, which must be good, and checks where the bytes have arrived.
    fn finish(&mut self, what: &str, offset: usize, count: usize) -> Outcome<String> {
        for _ in 0..count {
            let deadline = self.completions.device().hal().now() + Duration::from_secs(5);
            self.completions.wait_one(deadline)?.into_result()?;
        }
        let mut bytes = [0; HELLO.len()];
        self.region.copy_out(offset, &mut bytes)?;
        if &bytes == HELLO {
            Ok(format!("{what}: 20 bytes"))
        } else {
            Err(format!("{what}: other bytes").into())
        }
    }
}

//! Two simulated hosts, each with a driver, and a connection between them.

use bareverbs_core::completion_queue::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::gid::GidEntry;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::PathMtu;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::nic::{Nic, NicConfig};
use bareverbs_sim::run::{Preset, StallReason};
use std::rc::Rc;

pub type Handle = Rc<Device<SimHal>>;

/// Configuration of a pair.
#[derive(Debug, Clone, Copy)]
pub struct PairConfig {
    pub seed: u64,
    pub preset: Preset,
    pub memory: MemoryConfig,
    /// Bytes of the region that each side exposes.
    pub region: usize,
    pub sends: u32,
    /// Whether the devices refuse set reserved bits.
    pub strict: bool,
    pub connect: ConnectOptions,
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            preset: Preset::STROM_100G,
            memory: MemoryConfig::default(),
            region: 1 << 16,
            sends: 64,
            strict: true,
            connect: ConnectOptions {
                path_mtu: PathMtu::Mtu4096,
                ack_timeout: 4,
                ..ConnectOptions::default()
            },
        }
    }
}

/// One host. Fields drop in declaration order: users before what they use.
pub struct Host {
    pub qp: QueuePair<Handle>,
    pub cq: CompletionQueue<Handle>,
    pub region: MemoryRegion<Handle>,
    pub domain: ProtectionDomain<Handle>,
    pub device: Handle,
}

/// A host whose queue pair is not connected yet.
struct Unconnected {
    qp: PreparedQueuePair<Handle>,
    cq: CompletionQueue<Handle>,
    region: MemoryRegion<Handle>,
    domain: ProtectionDomain<Handle>,
    device: Handle,
}

/// Two connected hosts in a world.
pub struct Pair {
    pub a: Host,
    pub b: Host,
    pub world: SimWorld,
}

fn address(number: u8) -> (Gid, MacAddress) {
    (Gid::from_ipv4([10, 0, 0, number]), MacAddress([2, 0, 0, 0, 0, number]))
}

fn open(world: &SimWorld, hal: SimHal, number: u8, config: &PairConfig) -> Unconnected {
    let device =
        Rc::new(Device::open(hal, DeviceConfig::default()).unwrap_or_else(|error| panic!("{error}")));
    let (gid, mac) = address(number);
    device.set_gid(0, GidEntry::roce_v2(gid, mac)).unwrap();
    let domain = ProtectionDomain::allocate(device.clone()).unwrap();
    let all = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let region = MemoryRegion::allocate(&domain, config.region, all).unwrap();
    let entries = config.sends * 2;
    let cq = CompletionQueue::create(device.clone(), CompletionQueueConfig { entries }).unwrap();
    let qp = QueuePairBuilder::new(&domain, &cq, &cq).send_queue(config.sends).build().unwrap();
    assert_eq!(world.now(), device.hal().now());
    Unconnected { qp, cq, region, domain, device }
}

impl Pair {
    pub fn new(config: PairConfig) -> Self {
        let world = SimWorld::new(config.seed);
        let nodes = [("a", 1), ("b", 2)].map(|(name, number)| {
            let nic = Nic::new(NicConfig { strict: config.strict, ..NicConfig::new(address(number).1) });
            world.add_node(name, nic, config.preset.node, config.memory)
        });
        world.connect(nodes[0], nodes[1], config.preset.link).unwrap();
        let a = open(&world, world.hal(nodes[0]), 1, &config);
        let b = open(&world, world.hal(nodes[1]), 2, &config);
        let (to_a, to_b) = (a.qp.endpoint(0).unwrap(), b.qp.endpoint(0).unwrap());
        let join = |side: Unconnected, peer| {
            let Unconnected { qp, cq, region, domain, device } = side;
            let qp = qp.connect(&peer, config.connect).unwrap_or_else(|error| panic!("{error}"));
            Host { qp, cq, region, domain, device }
        };
        Self { a: join(a, to_b), b: join(b, to_a), world }
    }

    /// Runs the world until `a` has a completion.
    #[track_caller]
    pub fn wait(&mut self) -> WorkCompletion {
        wait(&self.world, &mut self.a)
    }
}

/// Runs the world until `host` has a completion.
#[track_caller]
pub fn wait(world: &SimWorld, host: &mut Host) -> WorkCompletion {
    let deadline = world.now() + Duration::from_secs(5);
    match try_wait(world, host, deadline) {
        Ok(Some(completion)) => completion,
        Ok(None) => panic!("{}", world.with(|world| world.stalled(StallReason::Deadline))),
        Err(error) => panic!("{error}"),
    }
}

/// Runs the world until `host` has a completion, or until `deadline`.
pub fn try_wait(world: &SimWorld, host: &mut Host, deadline: Time) -> Result<Option<WorkCompletion>, String> {
    loop {
        let completion = host.cq.poll_one().map_err(|error| error.to_string())?;
        if completion.is_some() || world.now() >= deadline {
            return Ok(completion);
        }
        host.device.hal().relax(deadline);
    }
}

impl Host {
    /// Bytes of the region.
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.region.copy_out(offset, &mut bytes).unwrap();
        bytes
    }
}

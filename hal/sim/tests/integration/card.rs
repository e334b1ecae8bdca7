//! A DPU: the host and the Arm cores are two functions of one card, each with its own driver. The Arm side accesses the
//! host's memory only by DMA work requests, through an alias that the host's secret authorizes. Also covers everything
//! that can go wrong with that.

use bareverbs_core::command::CommandFailure;
use bareverbs_core::dma_queue::{CopyError, DmaQueueError};
use bareverbs_core::gid::GidEntry;
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::remote_vhca_region::AliasError;
use bareverbs_core::shared_region::ShareError;
use bareverbs_core::{
    AccessFlags, AccessKey, CompletionQueue, CompletionQueueConfig, Device, DeviceConfig, DmaCopy, DmaQueue,
    DmaQueueConfig, IndirectRegion, MemoryRegion, RemoteVhcaRegion, SharedRegion, WorkCompletion,
    WorkCompletionOpcode, WorkCompletionStatus,
};
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_prm::ids::{Gid, MacAddress, MkeyIndex, VhcaId};
use bareverbs_prm::numbering::CqeSyndrome;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::net::{LinkConfig, SwitchConfig};
use bareverbs_sim::nic::{CardFunction, Nic, NicConfig, syndrome};
use bareverbs_sim::run::{CardError, DmaCost, Latency, NodeId};
use std::rc::Rc;

const HOST: u8 = 1;
const ARM: u8 = 2;
const REGION: usize = 4 << 20;

type Handle = Rc<Device<SimHal<Nic>>>;

fn mac(number: u8) -> MacAddress {
    MacAddress([0x02, 0xc9, 0, 0, 0, number])
}

/// A function and its open driver.
struct Node {
    id: NodeId,
    device: Handle,
    domain: ProtectionDomain<Handle>,
}

impl Node {
    fn open(world: &SimWorld<Nic>, id: NodeId, number: u8) -> Self {
        let device = Device::open(world.hal(id), DeviceConfig::default()).unwrap_or_else(|e| panic!("{e}"));
        device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, number]), mac(number))).unwrap();
        let device = Rc::new(device);
        let domain = ProtectionDomain::allocate(device.clone()).unwrap();
        Self { id, device, domain }
    }

    fn completion_queue(&self, entries: u32) -> CompletionQueue<Handle> {
        CompletionQueue::create(self.device.clone(), CompletionQueueConfig { entries }).unwrap()
    }

    fn memory(&self, length: usize) -> MemoryRegion<Handle> {
        MemoryRegion::allocate(&self.domain, length, AccessFlags::LOCAL_WRITE).unwrap()
    }
}

fn secret() -> AccessKey {
    AccessKey::new(core::array::from_fn(|i| (i as u8).wrapping_mul(37) ^ 0x5a)).unwrap()
}

fn config(number: u8) -> NicConfig {
    let vhca_id = VhcaId::from_low_bits(number.into());
    NicConfig { card: Some(CardFunction::bluefield3(vhca_id)), ..NicConfig::new(mac(number)) }
}

fn add(world: &SimWorld<Nic>, config: NicConfig, memory: MemoryConfig) -> NodeId {
    world.add_node(&format!("{:?}", config.card), Nic::new(config), Latency::default(), memory)
}

/// A card whose functions share a port through its embedded switch.
fn world(cost: DmaCost, memory: MemoryConfig, host: NicConfig) -> (SimWorld<Nic>, [NodeId; 2]) {
    let world = SimWorld::new(14);
    let nodes = [host, config(ARM)].map(|config| {
        add(&world, NicConfig { strict: memory == MemoryConfig::unforgiving(), ..config }, memory)
    });
    let switch = world.with(|world| world.add_switch("inside the card", SwitchConfig::default()));
    nodes.iter().for_each(|&node| _ = world.connect(node, switch, LinkConfig::gigabits(200)).unwrap());
    world.with(|world| world.join_card(&nodes, cost)).unwrap();
    (world, nodes)
}

/// A host that shares a region, and an Arm side with an alias of it and a DMA queue.
struct Card {
    world: SimWorld<Nic>,
    host: Node,
    region: MemoryRegion<Handle>,
    queue: DmaQueue<Handle>,
    completions: CompletionQueue<Handle>,
    alias: RemoteVhcaRegion<Handle>,
    local: MemoryRegion<Handle>,
    arm: Node,
}

impl Card {
    fn new(cost: DmaCost) -> Self {
        Self::with_memory(cost, MemoryConfig::default())
    }

    fn with_memory(cost: DmaCost, memory: MemoryConfig) -> Self {
        let (world, nodes) = world(cost, memory, config(HOST));
        let [host, arm] = [(nodes[0], HOST), (nodes[1], ARM)].map(|(id, n)| Node::open(&world, id, n));
        let region = host.memory(REGION);
        let shared = SharedRegion::share(&region, secret()).unwrap_or_else(|error| panic!("{error}"));
        let alias = RemoteVhcaRegion::open(&arm.domain, &shared).unwrap_or_else(|error| panic!("{error}"));
        let completions = arm.completion_queue(256);
        let queue = DmaQueue::create(&arm.domain, &completions, DmaQueueConfig::default())
            .unwrap_or_else(|error| panic!("{error}"));
        let local = arm.memory(REGION);
        Self { world, host, region, queue, completions, alias, local, arm }
    }

    /// Copies `length` bytes at `offset` from the host to the same offset on the Arm side.
    fn read(&self, id: u64, offset: usize, length: usize) -> DmaCopy {
        let from = self.alias.slice(offset as u64, length as u32).unwrap();
        DmaCopy::new(id, from, self.local.slice(offset, length).unwrap())
    }

    fn write(&self, id: u64, offset: usize, length: usize) -> DmaCopy {
        let to = self.alias.slice(offset as u64, length as u32).unwrap();
        DmaCopy::new(id, self.local.slice(offset, length).unwrap(), to)
    }

    fn wait(&mut self) -> WorkCompletion {
        self.completions
            .wait_one(self.world.now() + Duration::from_millis(10))
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn now(&self) -> Time {
        self.world.now()
    }

    #[track_caller]
    fn expect_taken_back(&mut self, id: u64) {
        let completion = self.wait();
        assert_eq!((completion.wr_id, completion.opcode), (id, WorkCompletionOpcode::DmaCopy));
        assert_eq!(completion.status, WorkCompletionStatus::Failed(CqeSyndrome::LocalProtection));
        let text = completion.into_result().unwrap_err().to_string();
        assert!(text.contains("once its owner drops the region or resets"), "{text}");
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn bytes(region: &MemoryRegion<Handle>, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    region.copy_out(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_arm_side_reads_and_writes_the_host_without_its_processor() {
    let mut card = Card::new(DmaCost::BLUEFIELD);
    for (round, length) in [1, 64, 4096, 65_537, 2 << 20].into_iter().enumerate() {
        let id = 2 * round as u64;
        card.region.copy_in(round, &pattern(length)).unwrap();
        let copy = card.read(id, round, length);
        card.queue.post(&copy).unwrap();
        let done = card.wait().into_result().unwrap();
        assert_eq!(
            (done.wr_id, done.opcode, done.qpn),
            (id, WorkCompletionOpcode::DmaCopy, card.queue.qpn())
        );
        assert_eq!(bytes(&card.local, round, length), pattern(length), "{length} bytes read");

        let inverted: Vec<u8> = pattern(length).iter().map(|byte| !byte).collect();
        card.local.copy_in(round, &inverted).unwrap();
        let copy = card.write(id + 1, round, length);
        card.queue.post(&copy).unwrap();
        assert_eq!(card.wait().into_result().unwrap().wr_id, id + 1);
        assert_eq!(bytes(&card.region, round, length), inverted, "{length} bytes written");
    }
    assert_eq!(card.queue.outstanding(), 0);
    let counters = card.world.with(|world| world.device(card.arm.id).counters());
    assert_eq!((counters.dma_requests, counters.frames_sent, counters.contradictions()), (10, 0, 0));
}

/// Unforgiving memory exposes missing barriers, and strict devices check reserved bits.
#[test]
fn copies_work_in_unforgiving_memory() {
    let mut card = Card::with_memory(DmaCost::BLUEFIELD, MemoryConfig::unforgiving());
    card.region.copy_in(0, &pattern(4096)).unwrap();
    // A work request on the host would publish its stores; here the passage of time does.
    card.world.run_until(card.now() + Duration::from_micros(1));
    for id in 0..200 {
        let copy = card.read(id, 0, 4096);
        card.queue.post(&copy).unwrap();
        assert_eq!(card.wait().into_result().unwrap().wr_id, id);
        assert_eq!(bytes(&card.local, 0, 4096), pattern(4096));
    }
}

/// A single copy is bound by latency and size; many at a time are bound by operation rate or bandwidth, whichever is
/// lower.
#[test]
fn copies_take_as_long_as_the_engine_says() {
    let cost = DmaCost::BLUEFIELD;
    let mut card = Card::new(cost);
    for length in [64, 4096, 1 << 20] {
        let copy = card.read(0, 0, length);
        let before = card.now();
        card.queue.post(&copy).unwrap();
        card.wait().into_result().unwrap();
        assert_eq!(card.now() - before, cost.alone(length as u64), "{length} bytes alone");
    }
    for (length, each) in [(64, 97), (65_536, 2_615)] {
        let copies: Vec<_> = (0..64).map(|id| card.read(id, 0, length)).collect();
        let before = card.now();
        assert_eq!(card.queue.post_all(&copies).unwrap(), 64);
        for id in 0..64 {
            assert_eq!(card.wait().into_result().unwrap().wr_id, id);
        }
        let nanos = (card.now() - before).saturating_sub(cost.alone(length as u64)).as_picos() / 63_000;
        assert_eq!(nanos, each, "64 copies of {length} bytes");
    }
}

#[test]
fn a_wrong_secret_a_wrong_function_and_a_wrong_key_give_no_alias() {
    let card = Card::new(DmaCost::FREE);
    let shared = SharedRegion::share(&card.region, secret()).unwrap();
    let open = |shared: SharedRegion| match RemoteVhcaRegion::open(&card.arm.domain, &shared) {
        Err(AliasError::Refused { error, .. }) => match error.failure {
            CommandFailure::Refused { syndrome, .. } => syndrome,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let other_secret = AccessKey::new(core::array::from_fn(|i| i as u8)).unwrap();
    let wrong = SharedRegion { access_key: other_secret, ..shared };
    assert_eq!(open(wrong), syndrome::ALIAS_ACCESS_KEY.syndrome);
    let wrong = SharedRegion { vhca_id: VhcaId::from_low_bits(99), ..shared };
    assert_eq!(open(wrong), syndrome::ALIAS_TARGET.syndrome);
    let wrong = SharedRegion { key: MkeyIndex::from_low_bits(0x4321), ..shared };
    assert_eq!(open(wrong), syndrome::ALIAS_TARGET.syndrome);
    // The secret was replaced: the old one authorizes no new alias, and existing aliases stay valid.
    SharedRegion::share(&card.region, other_secret).unwrap();
    assert_eq!(open(shared), syndrome::ALIAS_ACCESS_KEY.syndrome);
    assert!(card.alias.is_usable().unwrap());
}

/// A ConnectX-7 reports the capability but refuses the command for keys of keys, with syndrome 0x172DF6 (UCX pull request
/// 10980). The error must say so. A BlueField-3 shares them.
#[test]
fn a_region_that_the_device_refuses_to_share_is_a_typed_error() {
    for follows in [false, true] {
        let function = CardFunction { shares_indirect_keys: follows, ..config(HOST).card.unwrap() };
        let (world, [host, arm]) =
            world(DmaCost::FREE, MemoryConfig::default(), NicConfig { card: Some(function), ..config(HOST) });
        let host = Node::open(&world, host, HOST);
        let region = host.memory(4096);
        let joined = [region.slice(2048, 1024).unwrap(), region.slice(0, 512).unwrap()];
        let access = AccessFlags::LOCAL_WRITE;
        let joined = IndirectRegion::create(&host.domain, &joined, access).unwrap();
        match SharedRegion::share_indirect(&joined, secret()) {
            Ok(shared) if follows => {
                let arm = Node::open(&world, arm, ARM);
                let alias = RemoteVhcaRegion::open(&arm.domain, &shared).unwrap();
                assert_eq!((alias.is_usable(), shared.length), (Ok(true), 1536));
            }
            Err(ShareError::NotShareable(error)) if !follows => {
                let is_that = matches!(error.failure, CommandFailure::Refused { syndrome: 0x17_2df6, .. });
                let text = ShareError::NotShareable(error).to_string();
                assert!(is_that && text.contains("0x00172df6"), "{text}");
            }
            other => panic!("{other:?}, and keys of keys are shared: {follows}"),
        }
        // A region of pages is shared by both.
        SharedRegion::share(&region, secret()).unwrap();
    }
}

#[test]
fn a_device_that_shares_nothing_is_a_typed_error() {
    let alone = SimWorld::new(1);
    let id = add(&alone, NicConfig::new(mac(3)), MemoryConfig::default());
    let node = Node::open(&alone, id, 3);
    let region = node.memory(4096);
    let refused = SharedRegion::share(&region, secret()).unwrap_err();
    assert_eq!(refused, ShareError::NotOffered { allowed: 0, supported: 0 });
    let completions = node.completion_queue(16);
    let refused = DmaQueue::create(&node.domain, &completions, DmaQueueConfig::default()).unwrap_err();
    assert_eq!(refused, DmaQueueError::NotOffered);
}

#[test]
fn a_region_that_the_host_drops_in_the_middle_ends_its_copies_with_an_error() {
    let mut card = Card::new(DmaCost::BLUEFIELD);
    let copies = [card.read(1, 0, 4096), card.read(2, 0, 4096)];
    assert_eq!(card.queue.post_all(&copies).unwrap(), 2);
    let other = card.host.memory(4096);
    drop(core::mem::replace(&mut card.region, other));
    card.expect_taken_back(1);
    let flushed = card.wait();
    assert_eq!(flushed.status, WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed));
    assert_eq!(bytes(&card.local, 0, 4096), [0; 4096], "no byte of what came later");
    assert!(!card.alias.is_usable().unwrap());
    // A new queue and a new region on the same host work.
    card.region.copy_in(0, &pattern(64)).unwrap();
    let shared = SharedRegion::share(&card.region, secret()).unwrap();
    card.alias = RemoteVhcaRegion::open(&card.arm.domain, &shared).unwrap();
    card.queue = DmaQueue::create(&card.arm.domain, &card.completions, DmaQueueConfig::default()).unwrap();
    let copy = card.read(3, 0, 64);
    card.queue.post(&copy).unwrap();
    assert_eq!(card.wait().into_result().unwrap().wr_id, 3);
    assert_eq!(bytes(&card.local, 0, 64), pattern(64));
}

#[test]
fn a_host_that_resets_in_the_middle_ends_the_copies_of_the_arm_side() {
    let mut card = Card::new(DmaCost::BLUEFIELD);
    card.local.copy_in(0, &[7; 64]).unwrap();
    let copy = card.write(5, 0, 64);
    card.queue.post(&copy).unwrap();
    card.world.with(|world| world.with_device(card.host.id, |nic, _, now| nic.reset(now)));
    card.expect_taken_back(5);
    assert!(!card.alias.is_usable().unwrap());
    assert_eq!(bytes(&card.region, 0, 64), [0; 64], "nothing was written to a host that reset");
}

#[test]
fn copies_are_checked_before_they_are_posted() {
    let mut card = Card::new(DmaCost::FREE);
    let (from, to) = (card.alias.slice(0, 64).unwrap(), card.local.slice(0, 65).unwrap());
    let unequal = card.queue.post(&DmaCopy::new(0, from, to));
    assert_eq!(unequal, Err(CopyError::Unequal { source: 64, destination: 65 }));
    let long = (2 << 20) + 1;
    let copy = card.read(0, 0, long);
    let refused = card.queue.post(&copy);
    assert_eq!(refused, Err(CopyError::Length { length: long as u32, limit: 2 << 20 }));
    let outside = card.alias.slice(REGION as u64 - 3, 4).unwrap_err();
    assert_eq!((outside.offset, outside.length, outside.region), (REGION as u64 - 3, 4, REGION as u64));
    assert_eq!(card.queue.outstanding(), 0);
    // A full queue accepts what it has room for.
    let copies = vec![card.read(0, 0, 8); 100];
    assert_eq!(card.queue.post_all(&copies).unwrap(), 64);
}

/// The second copy reads what the first one wrote, because it starts after the first has finished. Without a fence
/// their latencies overlap.
#[test]
fn a_fence_orders_copies() {
    let cost = DmaCost::BLUEFIELD;
    let mut card = Card::new(cost);
    card.local.copy_in(0, &[9; 1 << 20]).unwrap();
    let back = card.local.slice(2 << 20, 64).unwrap();
    let tail = card.alias.slice((1 << 20) - 64, 64).unwrap();
    let mut time_of = |second: DmaCopy| {
        let copies = [card.write(1, 0, 1 << 20), second];
        let began = card.now();
        assert_eq!(card.queue.post_all(&copies).unwrap(), 2);
        assert_eq!([(); 2].map(|()| card.wait().into_result().unwrap().wr_id), [1, 2]);
        assert_eq!(bytes(&card.local, 2 << 20, 64), [9; 64]);
        card.now() - began
    };
    let copy = DmaCopy::new(2, tail, back);
    assert_eq!(time_of(copy.fence()), cost.alone(1 << 20) + cost.alone(64));
    assert_eq!(time_of(copy), cost.alone(1 << 20) + cost.per_operation + cost.transfer(64));
}

#[test]
fn a_card_refuses_equal_functions_and_nodes_without_one() {
    let world = SimWorld::new(3);
    let first = add(&world, config(HOST), MemoryConfig::default());
    let twin = NicConfig { card: config(HOST).card, ..NicConfig::new(mac(9)) };
    let twin = add(&world, twin, MemoryConfig::default());
    let alone = add(&world, NicConfig::new(mac(8)), MemoryConfig::default());
    let join = |nodes: &[NodeId]| world.with(|world| world.join_card(nodes, DmaCost::FREE));
    assert_eq!(join(&[first, alone]), Err(CardError::NoFunction(alone)));
    assert_eq!(join(&[first, twin]), Err(CardError::SameId(VhcaId::from_low_bits(HOST.into()))));
    assert_eq!(join(&[first]), Ok(()));
    assert_eq!(join(&[first]), Err(CardError::JoinedAlready(first)));
}

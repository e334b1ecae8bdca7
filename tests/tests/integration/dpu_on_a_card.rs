//! A DPU as it really is: the host and the Arm cores are two functions of one card. The host shares its
//! tables, and the server on the Arm cores looks keys up in them by DMA work requests under aliases. The
//! kernels read the tables in no other way.

use bareverbs_core::queue_pair::{ConnectOptions, PreparedQueuePair, QueuePairBuilder};
use bareverbs_core::{AccessFlags, AccessKey, CompletionQueue, MemoryRegion, RemoteVhcaRegion, SharedRegion};
use bareverbs_hal_sim::{MemoryConfig, SimWorld};
use bareverbs_offload::budget::{Limits, MAX_READ};
use bareverbs_offload::card::{CardDma, RepairError};
use bareverbs_offload::client::slots::SlotLayout;
use bareverbs_offload::client::{ClientConfig, Ended, KvClient, LookupResult, Way};
use bareverbs_offload::cost::KernelCost;
use bareverbs_offload::dpu::{DpuServer, memory_size};
use bareverbs_offload::endpoint::{Endpoint, Outcome, Part, PostError, Work};
use bareverbs_offload::grant::{Grant, HostRegion};
use bareverbs_offload::host_dma::{DmaEnd, DmaFault, HostDma};
use bareverbs_offload::kernel::{CompiledIn, Kernel, Opcode};
use bareverbs_offload::kernels::kv_layout::{Line, chain_of};
use bareverbs_offload::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use bareverbs_offload::runtime::{Allowance, ConnectionId, ResponseWindow, Runtime};
use bareverbs_offload::status::Status;
use bareverbs_offload::table::{TableConfig, TableDescriptor, TablePolicy, TableWriter};
use bareverbs_offload::verbs::{INLINE, RegionTable, VerbsEndpoint};
use bareverbs_offload::wire::{RegionHandle, ReplyTo, Request};
use bareverbs_prm::ids::VhcaId;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::net::{LinkConfig, SwitchConfig};
use bareverbs_sim::nic::{CardFunction, Nic, NicConfig};
use bareverbs_sim::run::{DmaCost, Latency, NodeId};
use bareverbs_tests::node::{Handle, Node, NodeOptions, mac};
use std::rc::Rc;

const HOST: u8 = 1;
const ARM: u8 = 2;
pub(super) const TENANTS: usize = 2;
pub(super) const DEPTH: u32 = 32;
const WINDOW: usize = 8;
const SLOTS: usize = TENANTS * WINDOW;
const MAX_VALUE: u32 = 20_000;

type Server = DpuServer<CompiledIn<KvLookup>, SLOTS, TENANTS, WINDOW>;
type TenantsDma = CardDma<Handle, TENANTS, SLOTS>;
pub(super) type Region = Rc<MemoryRegion<Handle>>;

/// The host's side of a tenant: its table, and a client that asks the DPU for its values.
struct Tenant {
    client: KvClient<WINDOW>,
    endpoint: VerbsEndpoint<Handle, 1>,
    table: Option<Region>,
    config: ClientConfig,
    /// Requests of an attack in flight.
    under_way: usize,
}

/// Fields are dropped in this order: users before what they use.
struct Scene {
    tenants: Vec<Tenant>,
    server: Server,
    server_endpoint: VerbsEndpoint<Handle, TENANTS>,
    dma: TenantsDma,
    ids: Vec<ConnectionId>,
    host: Node,
    arm: Node,
    world: SimWorld<Nic>,
    scratch: Vec<u8>,
    buffer: Vec<u8>,
}

fn value(tenant: usize, row: usize) -> Vec<u8> {
    let length = [64, 1, 4_096, 20_000][row % 4];
    (0..length).map(|i| (i * 31 + row * 7 + tenant * 101 + 1) as u8).collect()
}

fn key(row: usize) -> Vec<u8> {
    format!("key {row}").into_bytes()
}

pub(super) fn secret(tenant: usize) -> AccessKey {
    AccessKey::new(core::array::from_fn(|i| (i * 37 + tenant * 11) as u8 ^ 0x5a)).expect("not constant")
}

/// A table of 16 rows in memory of the host.
fn table(host: &Node, tenant: usize) -> (Region, TableDescriptor) {
    let region = Rc::new(host.memory(1 << 18, AccessFlags::LOCAL_WRITE));
    let config =
        TableConfig { buckets: 8, overflow_lines: 16, seed: [3; 16], policy: TablePolicy::default() };
    let memory = RegionTable::new(region.clone(), host.device.clone());
    let mut writer = TableWriter::create(memory, &config).expect("fits");
    for row in 0..16 {
        writer.insert(Time::ZERO, &key(row), &value(tenant, row)).expect("room");
    }
    (region, *writer.descriptor())
}

/// A world with one card of two functions, on the switch inside it.
pub(super) fn card(options: NodeOptions, cost: DmaCost) -> (SimWorld<Nic>, [Node; 2]) {
    let world = SimWorld::new(14);
    let switch = world.with(|world| world.add_switch("inside the card", SwitchConfig::default()));
    let ids: [NodeId; 2] = [HOST, ARM].map(|number| {
        let card = Some(CardFunction::bluefield3(VhcaId::from_low_bits(number.into())));
        let config = NicConfig { strict: options.unforgiving, card, ..NicConfig::new(mac(number)) };
        let memory = if options.unforgiving { MemoryConfig::unforgiving() } else { MemoryConfig::default() };
        let name = if number == HOST { "host" } else { "arm" };
        let node = world.add_node(name, Nic::new(config), Latency::default(), memory);
        world.connect(node, switch, LinkConfig::gigabits(200)).expect("a free port");
        node
    });
    world.with(|world| world.join_card(&ids, cost)).expect("two functions");
    let nodes = [(ids[0], HOST), (ids[1], ARM)].map(|(id, number)| Node::open(&world, id, number, options));
    (world, nodes)
}

pub(super) fn prepare(node: &Node, completions: &CompletionQueue<Handle>) -> PreparedQueuePair<Handle> {
    QueuePairBuilder::new(&node.domain, completions, completions)
        .send_queue(DEPTH)
        .receive_queue(DEPTH)
        .max_inline(INLINE)
        .build()
        .expect("a queue pair")
}

impl Scene {
    fn new(options: NodeOptions) -> Self {
        let (world, [host, arm]) = card(options, DmaCost::BLUEFIELD);
        let memory = arm.memory(memory_size(TENANTS * WINDOW, SLOTS), AccessFlags::LOCAL_WRITE);
        let mut dma = TenantsDma::create(&arm.domain, arm.completion_queue(SLOTS as u32), &memory, 0)
            .expect("a BlueField");
        let completions = arm.completion_queue(4 * DEPTH);
        let mut runtime = Runtime::new(Limits::default(), KernelCost::FREE);
        let (mut far_ends, mut tenants, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for tenant in 0..TENANTS {
            let (region, descriptor) = table(&host, tenant);
            let shared = SharedRegion::share(&region, secret(tenant)).expect("a BlueField");
            let alias = RemoteVhcaRegion::open(&arm.domain, &shared).expect("the right secret");
            let within = dma.add(alias).expect("room");
            let stride = ClientConfig::stride(MAX_VALUE);
            let slots =
                host.memory(stride as usize * WINDOW, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
            let (address, rkey) = (slots.address(), slots.rkey().value());
            let window = ResponseWindow { address, length: slots.len() as u64, rkey };
            let id = runtime.connect(window, WINDOW as u16).expect("room");
            let grant = Grant::within(within, region.address(), region.len() as u64).expect("no wrap");
            let handle = runtime.grant(id, grant).expect("room");
            let near_completions = host.completion_queue(2 * DEPTH);
            let (near, far) = (prepare(&host, &near_completions), prepare(&arm, &completions));
            let (to_arm, to_host) = (far.endpoint(0).expect("an address"), near.endpoint(0).expect("one"));
            let near = near.connect(&to_arm, ConnectOptions::DEFAULT).expect("connects");
            far_ends.push(far.connect(&to_host, ConnectOptions::DEFAULT).expect("connects"));
            let config = ClientConfig {
                way: Way::KernelDpu(handle),
                table: descriptor,
                layout: SlotLayout { address, rkey, stride, max_response: MAX_VALUE },
                credits: WINDOW as u32,
                timeout: Duration::from_secs(1),
                limits: Limits::default(),
            };
            let endpoint = VerbsEndpoint::new([near], near_completions, slots, DEPTH);
            tenants.push(Tenant {
                client: KvClient::new(config),
                endpoint,
                table: Some(region),
                config,
                under_way: 0,
            });
            ids.push(id);
        }
        let far_ends = far_ends.try_into().expect("as many as tenants");
        let mut server_endpoint = VerbsEndpoint::new(far_ends, completions, memory, DEPTH);
        let mut server = DpuServer::new(runtime);
        for (index, &id) in ids.iter().enumerate() {
            server.serve(&mut server_endpoint, index, id).expect("receives fit");
        }
        let buffer = vec![0; tenants[0].client.buffer_size()];
        let scratch = vec![0; MAX_READ as usize];
        Self { tenants, server, server_endpoint, dma, ids, host, arm, world, scratch, buffer }
    }

    fn start(&mut self, tenant: usize, row: usize) -> u64 {
        let now = self.world.now();
        let Tenant { client, endpoint, .. } = &mut self.tenants[tenant];
        client.start(now, endpoint, &key(row)).expect("a slot")
    }

    /// Lets the server do what it can at this moment, and advances the world.
    fn turn(&mut self) {
        let now = self.world.now();
        if self.server.poll(now, &mut self.server_endpoint, &mut self.dma, &mut self.scratch) {
            return;
        }
        let due = self.world.with(|world| world.next_event());
        let due = [due, self.server.poll_timeout(&self.dma)].into_iter().flatten().min();
        self.world.run_until(due.expect("somebody has something to do"));
    }

    #[track_caller]
    fn finish(&mut self, tenant: usize) -> (LookupResult, Vec<u8>) {
        for _ in 0..100_000 {
            let now = self.world.now();
            let Tenant { client, endpoint, .. } = &mut self.tenants[tenant];
            if let Some(result) = client.poll(now, endpoint, &mut self.buffer) {
                let length = if result.ended == Ended::Found { result.length as usize } else { 0 };
                return (result, self.buffer[..length].to_vec());
            }
            self.turn();
        }
        panic!("the lookup never ended");
    }

    #[track_caller]
    fn check(&mut self, tenant: usize, row: usize) {
        self.start(tenant, row);
        let (result, found) = self.finish(tenant);
        assert_eq!(result.ended, Ended::Found, "tenant {tenant}, row {row}");
        assert!(found == value(tenant, row), "tenant {tenant}, row {row}: {} bytes", found.len());
    }

    fn dma_requests(&self) -> u64 {
        self.world.with(|world| world.device(self.arm.id).counters().dma_requests)
    }
}

#[test]
fn lookups_read_the_host_by_dma_work_requests_and_nothing_else() {
    for unforgiving in [false, true] {
        let mut scene = Scene::new(NodeOptions { unforgiving, ..NodeOptions::default() });
        // Stores of the host become visible with time, because no work request of it follows them.
        scene.world.run_until(scene.world.now() + Duration::from_micros(10));
        let mut hops = 0;
        for row in 0..16 {
            for tenant in 0..TENANTS {
                scene.start(tenant, row);
                let (result, found) = scene.finish(tenant);
                assert!(result.ended == Ended::Found && found == value(tenant, row), "{result:?}");
                hops += u64::from(result.hops);
            }
        }
        assert_eq!(scene.dma_requests(), hops, "one work request per element, and no others");
        assert_eq!(scene.world.with(|world| world.device(scene.host.id).counters().dma_requests), 0);
        let counters = scene.world.with(|world| world.device(scene.arm.id).counters());
        assert_eq!(counters.contradictions(), 0);
    }
}

#[test]
fn a_window_of_lookups_is_answered() {
    let mut scene = Scene::new(NodeOptions::default());
    let asked: Vec<u64> = (0..WINDOW).map(|row| scene.start(0, row)).collect();
    for _ in 0..WINDOW {
        let (result, found) = scene.finish(0);
        let row = asked.iter().position(|id| *id == result.request_id).expect("asked once");
        assert!(result.ended == Ended::Found && found == value(0, row));
    }
}

/// The host revokes one of two tables while both are being read. Readers of that table get an error. Readers
/// of the other one get its value, although the queue broke in between. No byte read from the revoked table
/// reaches anybody.
#[test]
fn a_revoked_table_ends_its_own_lookups_only() {
    let mut scene = Scene::new(NodeOptions::default());
    for tenant in 0..TENANTS {
        scene.check(tenant, 2);
    }
    let before = scene.dma_requests();
    let asked = [scene.start(0, 2), scene.start(1, 2)];
    while scene.dma_requests() < before + 2 {
        scene.turn();
    }
    assert!(Rc::into_inner(scene.tenants[0].table.take().expect("still there")).is_some(), "dropped");
    while !scene.dma.is_broken() {
        scene.turn();
    }
    scene.server.poll(scene.world.now(), &mut scene.server_endpoint, &mut scene.dma, &mut scene.scratch);
    assert!(!scene.dma.has_room());
    scene.dma.repair(&scene.arm.domain).expect("all has been polled");
    let (result, _) = scene.finish(0);
    assert_eq!((result.request_id, result.ended), (asked[0], Ended::Status(Status::TakenBack)));
    let (result, found) = scene.finish(1);
    assert_eq!((result.request_id, result.ended), (asked[1], Ended::Found));
    assert!(found == value(1, 2));
    // From now on the region is refused before it can break anything.
    let requests = scene.dma_requests();
    scene.start(0, 3);
    assert_eq!(scene.finish(0).0.ended, Ended::Status(Status::TakenBack));
    assert_eq!(scene.dma_requests(), requests);
    scene.check(1, 3);
    assert!(!scene.dma.is_broken());
    // The host shares another table in place of the old one.
    let (region, _) = table(&scene.host, 1);
    let shared = SharedRegion::share(&region, secret(5)).expect("a BlueField");
    let alias = RemoteVhcaRegion::open(&scene.arm.domain, &shared).expect("the right secret");
    scene.dma.replace(HostRegion(0), alias).expect("there is such a place");
    let into = Part { offset: 0, length: 64 };
    scene.dma.submit_read(77, HostRegion(0), region.address(), into).expect("shared again");
    scene.dma.flush();
    scene.world.run_until(scene.world.now() + Duration::from_micros(10));
    let done = scene.dma.poll(&mut scene.server_endpoint).expect("has ended");
    assert_eq!((done.tag, done.end), (77, DmaEnd::Done));
}

#[test]
fn a_host_reset_ends_all_reads_and_the_dma_door_continues() {
    let mut scene = Scene::new(NodeOptions::default());
    let into = Part { offset: 0, length: 64 };
    let addresses: Vec<u64> =
        scene.tenants.iter().map(|t| t.table.as_ref().expect("still there").address()).collect();
    for (index, address) in addresses.iter().enumerate() {
        scene.dma.submit_read(index as u64, HostRegion(index as u16), *address, into).expect("room");
    }
    scene.dma.flush();
    scene.world.with(|world| world.with_device(scene.host.id, |nic, _, now| nic.reset(now)));
    assert_eq!(scene.dma.repair(&scene.arm.domain), Ok(()), "the reset has not been noticed yet");
    scene.world.run_until(scene.world.now() + Duration::from_micros(10));
    let ends: Vec<DmaEnd> =
        std::iter::from_fn(|| scene.dma.poll(&mut scene.server_endpoint)).map(|done| done.end).collect();
    assert_eq!(ends, [DmaEnd::Fault(DmaFault::TakenBack), DmaEnd::Flushed]);
    assert!(scene.dma.is_broken());
    assert_eq!(scene.dma.repair(&scene.arm.domain), Ok(()));
    assert_eq!(scene.dma.submit_read(5, HostRegion(0), addresses[0], into), Err(PostError::Broken));
}

#[test]
fn the_dma_door_checks_ranges_and_writes_as_well_as_reads() {
    let mut scene = Scene::new(NodeOptions::default());
    let table = scene.tenants[0].table.clone().expect("still there");
    let (address, length) = (table.address(), table.len() as u64);
    let part = |offset, length| Part { offset, length };
    let mut read = |region, address, into| scene.dma.submit_read(1, HostRegion(region), address, into);
    let refused = Err(PostError::BadRequest);
    assert_eq!(read(9, address, part(0, 64)), refused, "no such region");
    assert_eq!(read(0, address - 1, part(0, 64)), refused, "before it");
    assert_eq!(read(0, address + length - 63, part(0, 64)), refused, "behind it");
    assert_eq!(read(0, address, part(memory_size(TENANTS * WINDOW, SLOTS), 1)), refused, "our own memory");
    for tag in 0..SLOTS as u64 {
        read(0, address, part(0, 64)).unwrap_or_else(|error| panic!("{tag}: {error}"));
    }
    assert_eq!(read(0, address, part(0, 64)), Err(PostError::Full));
    scene.dma.flush();
    scene.world.run_until(scene.world.now() + Duration::from_micros(10));
    let ended = std::iter::from_fn(|| scene.dma.poll(&mut scene.server_endpoint)).count();
    assert_eq!(ended, SLOTS);
    scene.server_endpoint.region().copy_in(0, b"from the Arm side").expect("inside");
    scene.dma.submit_write(3, HostRegion(0), address + length - 17, part(0, 17)).expect("room");
    scene.dma.flush();
    assert_eq!(scene.dma.repair(&scene.arm.domain), Ok::<(), RepairError>(()), "nothing is broken");
    scene.world.run_until(scene.world.now() + Duration::from_micros(10));
    assert_eq!(scene.dma.poll(&mut scene.server_endpoint).map(|done| done.end), Some(DmaEnd::Done));
    let mut bytes = [0; 17];
    table.copy_out(table.len() - 17, &mut bytes).expect("inside");
    assert_eq!(&bytes, b"from the Arm side");
}

/// What the first tenant does to the others.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Attack {
    Nothing,
    /// Lookups of the longest value, as many as it has credits for.
    LongValues,
    /// The same, as many as its queue takes.
    ForgedCredits,
    /// Walks of 64 elements: lines that lead to themselves.
    LongChains,
    /// The same lookup over and over, without a receive for any answer.
    NoReceives,
    UnknownKernel,
    BadParameters,
    RegionOfAnother,
    ReplyOutside,
    Noise,
}

const ATTACKS: [Attack; 9] = [
    Attack::LongValues,
    Attack::ForgedCredits,
    Attack::LongChains,
    Attack::NoReceives,
    Attack::UnknownKernel,
    Attack::BadParameters,
    Attack::RegionOfAnother,
    Attack::ReplyOutside,
    Attack::Noise,
];

/// Half of what the DMA engine of a BlueField can do, and two million requests per second.
const HALF: Allowance = Allowance {
    per_request: Duration::from_nanos(500),
    per_dma: Duration::from_nanos(190),
    per_byte: Duration::from_picos(77),
    burst: Duration::from_micros(1),
};

impl Attack {
    fn prepare(self, scene: &mut Scene) {
        let Tenant { endpoint, table, config, .. } = &mut scene.tenants[0];
        if self != Self::NoReceives {
            for _ in 0..DEPTH {
                endpoint.post_receive(0, 0, Part { offset: 0, length: 0 }).expect("room");
            }
        }
        if self == Self::LongChains {
            let table = table.as_ref().expect("still there");
            let descriptor = config.table;
            for bucket in 0..u64::from(descriptor.buckets) {
                let offset = descriptor.lines + bucket * 64;
                let line = Line { next: offset, ..Line::default() };
                table
                    .copy_in(offset as usize, &line.encode(chain_of(bucket as u32, descriptor.buckets)))
                    .expect("inside");
            }
        }
    }

    /// Posts as many requests as it has credits for. A request without an answer is over when it has arrived.
    fn go_on(self, scene: &mut Scene) {
        if self == Self::Nothing {
            return;
        }
        let Tenant { config, endpoint, under_way, .. } = &mut scene.tenants[0];
        let unanswered = matches!(self, Self::NoReceives | Self::ReplyOutside | Self::Noise);
        while let Some(completion) = endpoint.poll() {
            let received = matches!(completion.outcome, Outcome::Received { .. });
            if received {
                endpoint.post_receive(0, 0, Part { offset: 0, length: 0 }).expect("room");
            }
            *under_way -= usize::from(received != unanswered);
        }
        let mut parameters = [0; MAX_PARAMETERS];
        let mut message = [0; 512];
        let bytes = self.request(config, &mut parameters, &mut message);
        while endpoint.has_room(0) && (*under_way < WINDOW || self == Self::ForgedCredits) {
            endpoint.post(0, 1, Work::Send(bytes)).expect("there is room");
            *under_way += 1;
        }
    }

    fn request<'m>(
        self,
        config: &ClientConfig,
        parameters: &mut [u8; MAX_PARAMETERS],
        message: &'m mut [u8; 512],
    ) -> &'m [u8] {
        let Way::KernelDpu(region) = config.way else { unreachable!() };
        let SlotLayout { address, rkey, max_response, .. } = config.layout;
        let key = key(if matches!(self, Self::LongValues | Self::ForgedCredits) { 3 } else { 0 });
        let lookup = config.table.lookup(&key);
        let mut request = Request {
            opcode: KvLookup::OPCODE,
            request_id: 7,
            reply: ReplyTo { address, rkey, max_response, slot: 0 },
            deadline: Duration::ZERO,
            hop_limit: 0,
            region,
            parameters: lookup.encode(parameters).expect("fits"),
            payload: &[],
        };
        match self {
            Self::UnknownKernel => request.opcode = Opcode(1),
            Self::BadParameters => request.parameters = &[0xff; MAX_PARAMETERS],
            Self::RegionOfAnother => request.region = RegionHandle(region.0 + 1),
            Self::ReplyOutside => request.reply.address -= 64,
            _ => {}
        }
        let bytes = request.encode_message(message).expect("fits").len();
        if self == Self::Noise {
            message[..bytes].fill(0xa5);
        }
        &message[..bytes]
    }
}

/// The 99th percentile of 200 lookups of the second tenant, one after the other, during an attack of the
/// first. Every value is checked.
fn p99_beside(attack: Attack, allowance: Allowance) -> Duration {
    let mut scene = Scene::new(NodeOptions::default());
    for id in scene.ids.clone() {
        scene.server.runtime().limit(id, allowance).expect("connected");
    }
    attack.prepare(&mut scene);
    let mut times = Vec::new();
    for _ in 0..200 {
        let began = scene.world.now();
        scene.start(1, 0);
        loop {
            attack.go_on(&mut scene);
            let now = scene.world.now();
            let Tenant { client, endpoint, .. } = &mut scene.tenants[1];
            let Some(result) = client.poll(now, endpoint, &mut scene.buffer) else {
                scene.turn();
                continue;
            };
            assert_eq!(result.ended, Ended::Found, "beside {attack:?}");
            assert!(scene.buffer[..result.length as usize] == value(1, 0), "beside {attack:?}");
            times.push(now - began);
            break;
        }
    }
    times.sort_unstable();
    times[197]
}

/// What a tenant can do, and how it affects the other one: the limits keep the effect small.
#[test]
fn no_attack_of_a_tenant_makes_another_wait_twice_as_long() {
    let alone = p99_beside(Attack::Nothing, HALF);
    let felt = ATTACKS.map(|attack| (attack, p99_beside(attack, HALF)));
    let slow = |(_, p99): &(Attack, Duration)| *p99 > alone.saturating_mul(2);
    assert!(!felt.iter().any(slow), "alone {alone}, beside {felt:?}");
    let unlimited = [Attack::LongValues].map(|attack| (attack, p99_beside(attack, Allowance::UNLIMITED)));
    assert!(unlimited.iter().all(slow), "without limits {unlimited:?}, with them {felt:?}, alone {alone}");
    println!("alone {alone}, beside {felt:?}, without limits {unlimited:?}");
}

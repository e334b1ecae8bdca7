//! Streams to the cores of a DPU: two tenants stream to the Arm cores of a card at once, which write into the memory that
//! the host shares by DMA work requests.

use super::dpu_on_a_card::{DEPTH, Region, TENANTS, card, prepare, secret};
use bareverbs_core::queue_pair::ConnectOptions;
use bareverbs_core::{AccessFlags, RemoteVhcaRegion, SharedRegion};
use bareverbs_hal_sim::SimWorld;
use bareverbs_offload::budget::{Limits, MAX_READ};
use bareverbs_offload::card::CardDma;
use bareverbs_offload::client::slots::SlotLayout;
use bareverbs_offload::client::{Call, CallResult, Ended, KernelClient, KernelClientConfig, KernelPlace};
use bareverbs_offload::cost::KernelCost;
use bareverbs_offload::dpu::{DpuServer, memory_size, stream_memory_size};
use bareverbs_offload::endpoint::{Endpoint, Part};
use bareverbs_offload::grant::Grant;
use bareverbs_offload::host_dma::HostDma;
use bareverbs_offload::kernel::{CompiledIn, Kernel, Opcode};
use bareverbs_offload::kernels::BuiltInKernels;
use bareverbs_offload::kernels::aggregate::{Aggregate, Totals};
use bareverbs_offload::kernels::field::{ByteOrder, Field, Predicate};
use bareverbs_offload::kernels::scan::ScanQuery;
use bareverbs_offload::runtime::{ResponseWindow, Runtime};
use bareverbs_offload::status::Status;
use bareverbs_offload::streams::hyper_log_log::{Sketch, ValueCounter};
use bareverbs_offload::streams::open_stream::{COUNT, PARTITIONS, REGISTERS, SHUFFLE, ShuffleParameters};
use bareverbs_offload::verbs::VerbsEndpoint;
use bareverbs_offload::wire::RegionHandle;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::fault::RandomFaults;
use bareverbs_sim::nic::Nic;
use bareverbs_sim::run::DmaCost;
use bareverbs_tests::node::{Handle, Node, NodeOptions};
use std::rc::Rc;
use zerocopy::IntoBytes;

const WINDOW: usize = 8;
const SLOTS: usize = TENANTS * WINDOW;
/// Values of a stream, and bytes of a shared region.
const VALUES: usize = 24_000;
const BYTES: usize = 8 * VALUES;
const STRIDE: usize = SlotLayout::min_stride(REGISTERS as u32).next_multiple_of(64) as usize;
/// Where a client keeps its stream.
const STREAM: usize = STRIDE * WINDOW;

type Server = DpuServer<CompiledIn<BuiltInKernels>, SLOTS, TENANTS, WINDOW, TENANTS>;

struct Tenant {
    client: KernelClient<WINDOW>,
    endpoint: VerbsEndpoint<Handle, 1>,
    handle: RegionHandle,
    /// The memory of the host into which it streams.
    region: Option<Region>,
    counter: ValueCounter<REGISTERS>,
    /// The stream that is being sent, and how many of its bytes are.
    call: u64,
    sent: usize,
    ended: Option<(CallResult, Vec<u8>)>,
}

/// Fields are dropped in this order: users before what they use.
struct Scene {
    tenants: Vec<Tenant>,
    server: Server,
    server_endpoint: VerbsEndpoint<Handle, TENANTS>,
    dma: CardDma<Handle, TENANTS, 16>,
    host: Node,
    arm: Node,
    world: SimWorld<Nic>,
    scratch: Vec<u8>,
}

impl Scene {
    fn new(loss: f64) -> Self {
        let (world, [host, arm]) = card(NodeOptions::default(), DmaCost::BLUEFIELD);
        let memory = memory_size(TENANTS * WINDOW, SLOTS) + stream_memory_size(TENANTS);
        let memory = arm.memory(memory, AccessFlags::LOCAL_WRITE);
        let mut dma =
            CardDma::create(&arm.domain, arm.completion_queue(16), &memory, 0).expect("a BlueField");
        let completions = arm.completion_queue(4 * DEPTH);
        let mut runtime = Runtime::new(Limits::default(), KernelCost::FREE);
        let (mut far_ends, mut tenants, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for tenant in 0..TENANTS {
            let region = Rc::new(host.memory(BYTES, AccessFlags::LOCAL_WRITE));
            let shared = SharedRegion::share(&region, secret(tenant)).expect("a BlueField");
            let alias = RemoteVhcaRegion::open(&arm.domain, &shared).expect("the right secret");
            let within = dma.add(alias).expect("room");
            let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
            let own = host.memory(STREAM + BYTES, access);
            let (address, rkey) = (own.address(), own.rkey().value());
            let window = ResponseWindow { address, length: STREAM as u64, rkey };
            let id = runtime.connect(window, 2).expect("room");
            let grant = Grant::within(within, region.address(), BYTES as u64).expect("no wrap").writable();
            let handle = runtime.grant(id, grant).expect("room");
            let near_completions = host.completion_queue(2 * DEPTH);
            let (near, far) = (prepare(&host, &near_completions), prepare(&arm, &completions));
            let (to_arm, to_host) = (far.endpoint(0).expect("an address"), near.endpoint(0).expect("one"));
            let options = ConnectOptions { ack_timeout: 8, ..ConnectOptions::DEFAULT };
            let near = near.connect(&to_arm, options).expect("connects");
            far_ends.push(far.connect(&to_host, options).expect("connects"));
            let client = KernelClient::new(KernelClientConfig {
                place: KernelPlace::Cores,
                layout: SlotLayout { address, rkey, stride: STRIDE as u64, max_response: REGISTERS as u32 },
                credits: WINDOW as u32,
                timeout: Duration::from_secs(1),
                limits: Limits::default(),
            });
            tenants.push(Tenant {
                client,
                endpoint: VerbsEndpoint::new([near], near_completions, own, DEPTH),
                handle,
                region: Some(region),
                counter: ValueCounter::new(),
                call: 0,
                sent: 0,
                ended: None,
            });
            ids.push(id);
        }
        let far_ends = far_ends.try_into().expect("as many as tenants");
        let mut server_endpoint = VerbsEndpoint::new(far_ends, completions, memory, DEPTH);
        let mut server = Server::new(runtime);
        for (index, &id) in ids.iter().enumerate() {
            server.serve(&mut server_endpoint, index, id).expect("receives fit");
        }
        world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(loss)));
        let scratch = vec![0; MAX_READ as usize];
        Self { tenants, server, server_endpoint, dma, host, arm, world, scratch }
    }

    fn begin(&mut self, tenant: usize, opcode: Opcode, parameters: &[u8], payload: &[u8]) {
        let now = self.world.now();
        let Tenant { client, endpoint, handle, call, sent, ended, counter, .. } = &mut self.tenants[tenant];
        endpoint.copy_in(STREAM, payload).expect("inside");
        let start = Call { opcode, region: *handle, parameters, payload: &[] };
        (*call, *sent, *ended) = (client.start(now, endpoint, &start).expect("a slot"), 0, None);
        *counter = ValueCounter::new();
    }

    /// Sends what can be sent of `length` bytes, takes an answer, and lets the server do what it can now. Advances the
    /// world if nobody could do anything.
    fn turn(&mut self, length: usize) {
        let now = self.world.now();
        let mut active = false;
        for Tenant { client, endpoint, counter, call, sent, ended, .. } in &mut self.tenants {
            if ended.is_none() && *sent < length {
                let from = Part { offset: STREAM + *sent, length: (length - *sent) as u32 };
                // A stream that has ended is told by the poll.
                let more = client.send_stream_through(endpoint, *call, from, counter).unwrap_or(0);
                *sent += more as usize;
                active |= more > 0;
            }
            let mut buffer = vec![0; client.buffer_size()];
            if let Some(result) = client.poll(now, endpoint, &mut buffer) {
                buffer.truncate(if result.ended == Ended::Found { result.length as usize } else { 0 });
                *ended = Some((result, buffer));
                active = true;
            }
        }
        active |= self.server.poll(now, &mut self.server_endpoint, &mut self.dma, &mut self.scratch);
        if self.dma.is_broken() && self.dma.repair(&self.arm.domain).is_ok() {
            return;
        }
        if !active {
            let due = self.world.with(|world| world.next_event());
            let due = [due, self.server.poll_timeout(&self.dma)].into_iter().flatten().min();
            self.world.run_until(due.expect("somebody has something to do"));
        }
    }

    #[track_caller]
    fn finish(&mut self, length: usize) -> Vec<(CallResult, Vec<u8>)> {
        for _ in 0..1_000_000 {
            if self.tenants.iter().all(|tenant| tenant.ended.is_some()) {
                return self.tenants.iter_mut().filter_map(|tenant| tenant.ended.take()).collect();
            }
            self.turn(length);
        }
        panic!("sent {:?} of {length} bytes", self.tenants.iter().map(|t| t.sent).collect::<Vec<_>>());
    }

    /// Frames that left one function and did not arrive at the other, once all have had the time.
    fn frames_lost(&self) -> u64 {
        self.world.run_until(self.world.now() + Duration::from_micros(50));
        let counters =
            [self.host.id, self.arm.id].map(|id| self.world.with(|world| world.device(id).counters()));
        let [sent, received] = [
            counters.iter().map(|counters| counters.frames_sent).sum::<u64>(),
            counters.iter().map(|counters| counters.frames_received).sum(),
        ];
        sent - received
    }

    fn region(&self, tenant: usize) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        let region = self.tenants[tenant].region.as_ref().expect("still there");
        region.copy_out(0, &mut bytes).expect("inside");
        bytes
    }
}

fn values(tenant: usize) -> Vec<u64> {
    (0..VALUES as u64)
        .map(|n| (n ^ (tenant as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
        .collect()
}

fn bytes_of(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The parameters of a shuffle, and what the region has after it.
fn shuffled(values: &[u64]) -> (ShuffleParameters, Vec<u8>) {
    let of =
        |partition| values.iter().copied().filter(move |value| *value as usize % PARTITIONS == partition);
    let lengths = core::array::from_fn(|partition| 8 * of(partition).count() as u64);
    let expected: Vec<u64> = (0..PARTITIONS).flat_map(of).collect();
    (ShuffleParameters::without_gaps(lengths), bytes_of(&expected))
}

#[test]
fn two_tenants_stream_into_the_memory_of_the_host_also_over_a_lossy_network() {
    for loss in [0.0, 0.01] {
        let mut scene = Scene::new(loss);
        let streams = [values(0), values(1)];
        let (parameters, expected) = shuffled(&streams[0]);
        scene.begin(0, SHUFFLE, parameters.as_bytes(), &bytes_of(&streams[0]));
        scene.begin(1, COUNT, &(BYTES as u64).to_be_bytes(), &bytes_of(&streams[1]));
        let ended = scene.finish(BYTES);
        assert_eq!([ended[0].0.ended, ended[1].0.ended], [Ended::Found; 2], "{loss} lost");
        assert_eq!(scene.frames_lost() > 0, loss > 0.0, "{} frames were lost", scene.frames_lost());
        assert!(scene.region(0) == expected && scene.region(1) == bytes_of(&streams[1]), "{loss} lost");
        let sketch = Sketch::<REGISTERS>::from_registers(&ended[1].1).expect("registers");
        assert_eq!(scene.tenants[1].counter.sketch(), &sketch, "as the sender saw it leave");
        let wrong = scene.world.with(|world| world.device(scene.host.id).counters().contradictions());
        assert_eq!(wrong, 0);
        let requests = scene.world.with(|world| world.device(scene.arm.id).counters().dma_requests);
        // A write for each piece of the one, and for 16 values of the other.
        assert!(requests >= (BYTES / 440 + BYTES / 128) as u64, "{requests} DMA work requests");
        // What was streamed is there for the kernels.
        let query = ScanQuery {
            start: 0,
            records: VALUES as u32,
            stride: 8,
            order: ByteOrder::LittleEndian,
            compared: Field::word(0),
            predicate: Predicate::Always,
            operand: 0,
            column: Field::word(0),
        };
        for tenant in 0..TENANTS {
            scene.begin(tenant, Aggregate::OPCODE, &query.encode(), &[]);
        }
        for (tenant, (_, answer)) in scene.finish(0).into_iter().enumerate() {
            let sum = streams[tenant].iter().map(|value| u128::from(*value)).sum();
            assert_eq!(Totals::parse(&answer).map(|totals| totals.sum), Some(sum), "tenant {tenant}");
        }
    }
}

/// The host takes the region of one tenant back in the middle of both streams, which breaks the queue of DMA work
/// requests.
#[test]
fn a_stream_whose_memory_is_taken_back_ends_and_the_other_goes_on() {
    let mut scene = Scene::new(0.0);
    for tenant in 0..TENANTS {
        scene.begin(tenant, COUNT, &(BYTES as u64).to_be_bytes(), &bytes_of(&values(tenant)));
    }
    while scene.tenants.iter().any(|tenant| tenant.sent < BYTES / 3) {
        scene.turn(BYTES);
    }
    assert!(Rc::into_inner(scene.tenants[0].region.take().expect("still there")).is_some(), "dropped");
    let ended = scene.finish(BYTES);
    assert_eq!(ended[0].0.ended, Ended::Status(Status::TakenBack));
    assert_eq!(ended[1].0.ended, Ended::Found);
    assert!(scene.region(1) == bytes_of(&values(1)));
    assert_eq!(scene.server.counters().streams, 2);
}

//! Streams of several tenants to the cores of one DPU, over a scripted network and a scripted memory.

mod trouble;

use crate::budget::{Limits, MAX_READ};
use crate::client::slots::SlotLayout;
use crate::client::{Call, CallResult, Ended, KernelClient, KernelClientConfig, KernelPlace, StartError};
use crate::cost::KernelCost;
use crate::dpu::{DpuServer, memory_size, stream_memory_size};
use crate::endpoint::{Completion, Endpoint, Outcome, Part, PostError, Work};
use crate::grant::{Grant, HostRegion};
use crate::host_dma::{DmaEnd, DmaFault, HostDma, HostDmaDone};
use crate::kernel::{CompiledIn, Opcode};
use crate::kernels::BuiltInKernels;
use crate::runtime::{Allowance, ConnectionId, ResponseWindow, Runtime};
use crate::status::Status;
use crate::streams::hyper_log_log::{Sketch, ValueCounter};
use crate::streams::open_stream::{COUNT, PARTITIONS, REGISTERS, SHUFFLE, ShuffleParameters};
use crate::streams::piece::MAX_PIECE;
use crate::wire::RegionHandle;
use bareverbs_prm::time::{Duration, Time};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use zerocopy::IntoBytes as _;

const TENANTS: usize = 2;
const RECEIVES: usize = 6;
const SLOTS: usize = 4;
/// Calls of a client at a time.
const CALLS: usize = 5;
const HOST: u64 = 0x4000_0000;
/// Bytes of a tenant's region in the memory of the host.
const REGION: usize = 64 * 1024;
const STRIDE: u64 = SlotLayout::min_stride(REGISTERS as u32);
/// Where a client keeps its stream.
const STREAM: usize = STRIDE as usize * CALLS;
const WINDOW: u64 = 0x9_0000;
const TIMEOUT: Duration = Duration::from_millis(5);

type Server = DpuServer<CompiledIn<BuiltInKernels>, SLOTS, TENANTS, RECEIVES, TENANTS>;

/// One end of the wire between a tenant and the server.
#[derive(Default)]
struct End {
    memory: Vec<u8>,
    receives: VecDeque<(u64, Part)>,
    completions: VecDeque<Completion>,
}

impl End {
    /// Consumes a receive; flow control must have left one.
    fn take(&mut self, connection: usize, bytes: &[u8], immediate: Option<u32>) {
        let (id, into) = self.receives.pop_front().expect("receiver not ready: flow control failed");
        if immediate.is_none() {
            self.memory[into.offset..][..bytes.len()].copy_from_slice(bytes);
        }
        let outcome = Outcome::Received { length: bytes.len() as u32, immediate };
        self.completions.push_back(Completion { connection, id, outcome });
    }
}

#[derive(Clone)]
struct Near {
    own: Rc<RefCell<End>>,
    far: Far,
    connection: usize,
}

/// The server's end: its memory and completions are those of the first tenant's wire.
#[derive(Clone)]
struct Far {
    wires: [Rc<RefCell<End>>; TENANTS],
    clients: [Rc<RefCell<End>>; TENANTS],
}

impl Endpoint for Near {
    fn post(&mut self, connection: usize, id: u64, work: Work<'_>) -> Result<(), PostError> {
        assert_eq!(connection, 0);
        let Work::Send(bytes) = work else { panic!("a client of cores does not post {work:?}") };
        self.far.arrive(self.connection, bytes);
        self.own.borrow_mut().completions.push_back(Completion { connection: 0, id, outcome: Outcome::Done });
        Ok(())
    }
    fn has_room(&self, _: usize) -> bool {
        true
    }
    fn post_receive(&mut self, _: usize, id: u64, into: Part) -> Result<(), PostError> {
        self.own.borrow_mut().receives.push_back((id, into));
        Ok(())
    }
    fn poll(&mut self) -> Option<Completion> {
        self.own.borrow_mut().completions.pop_front()
    }
    fn refresh(&self) {}
    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PostError> {
        self.own.borrow_mut().memory[offset..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), PostError> {
        let own = self.own.borrow();
        let bytes = own.memory.get(offset..offset + buffer.len()).ok_or(PostError::BadRequest)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl Far {
    fn arrive(&self, connection: usize, bytes: &[u8]) {
        let (id, into) =
            self.wires[connection].borrow_mut().receives.pop_front().expect("receiver not ready");
        let mut first = self.wires[0].borrow_mut();
        first.memory[into.offset..][..bytes.len()].copy_from_slice(bytes);
        let outcome = Outcome::Received { length: bytes.len() as u32, immediate: None };
        first.completions.push_back(Completion { connection, id, outcome });
    }
}

impl Endpoint for Far {
    fn post(&mut self, connection: usize, id: u64, work: Work<'_>) -> Result<(), PostError> {
        let (bytes, to, immediate) = match work {
            Work::WriteImmediate { from, to, immediate } => {
                let first = self.wires[0].borrow();
                (first.memory[from.offset..][..from.length as usize].to_vec(), to, immediate)
            }
            Work::WriteBytesImmediate { bytes, to, immediate } => (bytes.to_vec(), to, immediate),
            other => panic!("a DPU does not post {other:?}"),
        };
        let mut client = self.clients[connection].borrow_mut();
        let at = (to.address - WINDOW) as usize;
        client.memory[at..][..bytes.len()].copy_from_slice(&bytes);
        client.take(0, &[], Some(immediate));
        let done = Completion { connection, id, outcome: Outcome::Done };
        self.wires[0].borrow_mut().completions.push_back(done);
        Ok(())
    }
    fn has_room(&self, _: usize) -> bool {
        true
    }
    fn post_receive(&mut self, connection: usize, id: u64, into: Part) -> Result<(), PostError> {
        self.wires[connection].borrow_mut().receives.push_back((id, into));
        Ok(())
    }
    fn poll(&mut self) -> Option<Completion> {
        self.wires[0].borrow_mut().completions.pop_front()
    }
    fn refresh(&self) {}
    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PostError> {
        self.wires[0].borrow_mut().memory[offset..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), PostError> {
        buffer.copy_from_slice(&self.wires[0].borrow().memory[offset..][..buffer.len()]);
        Ok(())
    }
}

/// The memory of the host, which ends writes in another order than it was asked.
#[derive(Default)]
struct Host {
    memory: Vec<u8>,
    asked: Vec<(u64, u64, Vec<u8>)>,
    /// Writes that may end; the others are held back.
    may_end: Option<usize>,
    /// How the next writes end instead of being done.
    ends: VecDeque<DmaEnd>,
    refuses: Option<PostError>,
    turn: usize,
    writes: usize,
    /// The most that were outstanding at a time.
    most: usize,
}

struct HostDoor<'h>(&'h mut Host, Far);

impl HostDma for HostDoor<'_> {
    fn has_room(&self) -> bool {
        self.0.asked.len() < 12
    }
    fn submit_read(&mut self, _: u64, _: HostRegion, _: u64, _: Part) -> Result<(), PostError> {
        Err(PostError::BadRequest)
    }
    fn submit_write(&mut self, tag: u64, _: HostRegion, address: u64, from: Part) -> Result<(), PostError> {
        if let Some(refusal) = self.0.refuses {
            return Err(refusal);
        }
        let mut bytes = vec![0; from.length as usize];
        self.1.copy_out(from.offset, &mut bytes)?;
        self.0.asked.push((tag, address, bytes));
        self.0.most = self.0.most.max(self.0.asked.len());
        Ok(())
    }
    fn poll(&mut self, _: &mut impl Endpoint) -> Option<HostDmaDone> {
        let host = &mut *self.0;
        if host.asked.is_empty() || host.may_end == Some(0) {
            return None;
        }
        host.may_end = host.may_end.map(|writes| writes - 1);
        host.turn += 1;
        let (tag, address, bytes) = host.asked.swap_remove(host.turn * 7 % host.asked.len());
        let end = host.ends.pop_front().unwrap_or(DmaEnd::Done);
        if end == DmaEnd::Done {
            let at = (address - HOST) as usize;
            host.memory[at..][..bytes.len()].copy_from_slice(&bytes);
            host.writes += 1;
        }
        Some(HostDmaDone { tag, end })
    }
}

struct Tenant {
    client: KernelClient<CALLS>,
    near: Near,
    id: ConnectionId,
    region: RegionHandle,
    /// Of the stream that is being sent.
    counter: ValueCounter<REGISTERS>,
}

struct Scene {
    tenants: Vec<Tenant>,
    server: Box<Server>,
    far: Far,
    host: Host,
    now: Time,
}

impl Scene {
    fn new() -> Self {
        let client = || End { memory: vec![0; STREAM + REGION], ..End::default() };
        let memory = memory_size(TENANTS * RECEIVES, SLOTS) + stream_memory_size(TENANTS);
        let wire = || End { memory: vec![0; memory], ..End::default() };
        let end = |end| Rc::new(RefCell::new(end));
        let (wires, clients) = ([end(wire()), end(wire())], [end(client()), end(client())]);
        let mut far = Far { wires, clients };
        let mut server = Box::new(Server::new(Runtime::new(Limits::default(), KernelCost::FREE)));
        let tenants = (0..TENANTS)
            .map(|connection| {
                let window = ResponseWindow { address: WINDOW, length: STRIDE * CALLS as u64, rkey: 1 };
                let id = server.runtime().connect(window, 2).expect("room");
                let grant = Grant::new(HOST + (connection * REGION) as u64, REGION as u64);
                let grant = grant.expect("no wrap").writable();
                let region = server.runtime().grant(id, grant).expect("room");
                server.serve(&mut far, connection, id).expect("receives fit");
                let client = KernelClient::new(KernelClientConfig {
                    place: KernelPlace::Cores,
                    layout: SlotLayout {
                        address: WINDOW,
                        rkey: 1,
                        stride: STRIDE,
                        max_response: REGISTERS as u32,
                    },
                    credits: RECEIVES as u32,
                    timeout: TIMEOUT,
                    limits: Limits::default(),
                });
                let near = Near { own: far.clients[connection].clone(), far: far.clone(), connection };
                Tenant { client, near, id, region, counter: ValueCounter::new() }
            })
            .collect();
        let host = Host { memory: vec![0; TENANTS * REGION], ..Host::default() };
        Self { tenants, server, far, host, now: Time::ZERO }
    }

    /// Begins a stream, whose bytes the tenant has in its memory.
    fn open(&mut self, tenant: usize, opcode: Opcode, parameters: &[u8], bytes: &[u8]) -> u64 {
        let Tenant { client, near, region, counter, .. } = &mut self.tenants[tenant];
        near.copy_in(STREAM, bytes).expect("inside");
        *counter = ValueCounter::new();
        let call = Call { opcode, region: *region, parameters, payload: &[] };
        client.start(self.now, near, &call).expect("a slot")
    }

    /// Sends as much of a stream of `length` bytes as it can, from `sent` on.
    fn send(&mut self, tenant: usize, call: u64, sent: usize, length: usize) -> Result<usize, StartError> {
        let Tenant { client, near, counter, .. } = &mut self.tenants[tenant];
        let from = Part { offset: STREAM + sent, length: (length - sent) as u32 };
        client.send_stream_through(near, call, from, counter).map(|sent| sent as usize)
    }

    fn serve(&mut self) -> bool {
        let mut door = HostDoor(&mut self.host, self.far.clone());
        self.server.poll(self.now, &mut self.far, &mut door, &mut vec![0; MAX_READ as usize])
    }

    fn poll(&mut self, tenant: usize) -> Option<(CallResult, Vec<u8>)> {
        let Tenant { client, near, .. } = &mut self.tenants[tenant];
        let mut buffer = vec![0; client.buffer_size()];
        let result = client.poll(self.now, near, &mut buffer)?;
        buffer.truncate(if result.ended == Ended::Found { result.length as usize } else { 0 });
        Some((result, buffer))
    }

    /// When somebody has to be polled next.
    fn due(&mut self) -> Option<Time> {
        let door = HostDoor(&mut self.host, self.far.clone());
        let server = self.server.poll_timeout(&door);
        let clients = self.tenants.iter().filter_map(|tenant| tenant.client.poll_timeout()).min();
        [server, clients].into_iter().flatten().min()
    }

    /// Sends a stream to its end, which may be a bad one.
    #[track_caller]
    fn stream(
        &mut self,
        tenant: usize,
        opcode: Opcode,
        parameters: &[u8],
        bytes: &[u8],
    ) -> (CallResult, Vec<u8>) {
        let call = self.open(tenant, opcode, parameters, bytes);
        self.go_on(tenant, call, 0, bytes.len())
    }

    #[track_caller]
    fn go_on(&mut self, tenant: usize, call: u64, mut sent: usize, length: usize) -> (CallResult, Vec<u8>) {
        for _ in 0..10_000 {
            let before = sent;
            // A stream that has ended is told by the poll.
            sent += self.send(tenant, call, sent, length).unwrap_or(0);
            let active = self.serve();
            if let Some(ended) = self.poll(tenant) {
                assert_eq!(ended.0.request_id, call);
                return ended;
            }
            if !active && sent == before {
                self.now = self.due().unwrap_or(self.now).max(self.now);
            }
        }
        panic!("the stream never ended; {sent} of {length} bytes were sent");
    }

    fn region(&self, tenant: usize) -> &[u8] {
        &self.host.memory[tenant * REGION..][..REGION]
    }
}

/// Values of a stream.
fn values(seed: u64, count: usize) -> Vec<u64> {
    (0..count as u64).map(|n| (n ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).collect()
}

fn bytes_of(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn of_partition(values: &[u64], partition: usize) -> impl Iterator<Item = u64> + Clone {
    values.iter().copied().filter(move |value| *value as usize % PARTITIONS == partition)
}

/// Partitions without a gap.
fn shuffled(values: &[u64]) -> ShuffleParameters {
    let lengths = core::array::from_fn(|partition| 8 * of_partition(values, partition).count() as u64);
    ShuffleParameters::without_gaps(lengths)
}

fn in_partitions(values: &[u64]) -> Vec<u8> {
    let all: Vec<u64> = (0..PARTITIONS).flat_map(|partition| of_partition(values, partition)).collect();
    bytes_of(&all)
}

#[test]
fn streams_of_two_tenants_go_to_their_own_regions_whole() {
    let mut scene = Scene::new();
    let (first, second) = (values(1, 7_000), values(2, 6_001));
    let calls = [
        scene.open(0, SHUFFLE, shuffled(&first).as_bytes(), &bytes_of(&first)),
        scene.open(1, COUNT, &(8 * 6_001_u64).to_be_bytes(), &bytes_of(&second)),
    ];
    let lengths = [8 * 7_000, 8 * 6_001];
    let (mut sent, mut ended) = ([0; 2], [None, None]);
    while ended.iter().any(Option::is_none) {
        for tenant in 0..TENANTS {
            if sent[tenant] < lengths[tenant] {
                sent[tenant] +=
                    scene.send(tenant, calls[tenant], sent[tenant], lengths[tenant]).expect("open");
            }
            scene.serve();
            ended[tenant] = ended[tenant].take().or_else(|| scene.poll(tenant));
        }
    }
    let [Some((shuffle, counts)), Some((count, registers))] = ended else { unreachable!() };
    assert_eq!([shuffle.ended, count.ended], [Ended::Found; 2]);
    assert_eq!(scene.region(0)[..8 * 7_000], in_partitions(&first));
    assert_eq!(scene.region(1)[..8 * 6_001], bytes_of(&second));
    assert!(scene.region(0)[8 * 7_000..].iter().chain(&scene.region(1)[8 * 6_001..]).all(|byte| *byte == 0));
    let expected: Vec<u8> = (0..PARTITIONS)
        .flat_map(|partition| (of_partition(&first, partition).count() as u64).to_be_bytes())
        .collect();
    assert_eq!(counts, expected);
    // What the sender saw pass is what the server counted.
    let sketch = Sketch::<REGISTERS>::from_registers(&registers).expect("registers");
    assert_eq!(scene.tenants[1].counter.sketch(), &sketch);
    let error = sketch.estimate() / 6_001.0 - 1.0;
    assert!(error.abs() < 3.0 * 1.04 / 32.0, "{error}");
    assert!(scene.host.most > 4, "several writes at a time: {}", scene.host.most);
    assert!(scene.server.is_idle() && scene.server.counters().streams == 2);
}

/// As many bytes of a stream as can be under way while no write ends.
#[test]
fn a_stream_without_room_makes_its_client_wait_and_nobody_else() {
    // The kernel holds 8 writes of a piece, or 8 of 128 bytes and what is not full; 4 more pieces wait.
    for (opcode, most) in [(COUNT, 12), (SHUFFLE, 7)] {
        let mut scene = Scene::new();
        // All values are of one partition, whose writes are of 128 bytes.
        let values = vec![16; 4_000];
        let parameters = if opcode == COUNT {
            (8 * 4_000_u64).to_be_bytes().to_vec()
        } else {
            shuffled(&values).as_bytes().to_vec()
        };
        let bytes = bytes_of(&values);
        let call = scene.open(0, opcode, &parameters, &bytes);
        scene.host.may_end = Some(0);
        let mut sent = 0;
        for _ in 0..100 {
            sent += scene.send(0, call, sent, bytes.len()).expect("open");
            scene.serve();
            assert!(scene.poll(0).is_none());
        }
        assert_eq!(scene.host.writes, 0);
        assert!(sent > 2 * MAX_PIECE && sent <= most * MAX_PIECE, "{sent} bytes under way");
        assert!(scene.host.most <= 8, "{} writes", scene.host.most);
        // Another tenant streams meanwhile: every write that ends is one of its own.
        scene.host.may_end = None;
        let held = std::mem::take(&mut scene.host.asked);
        let others = self::values(3, 2_000);
        let parameters = (8 * 2_000_u64).to_be_bytes();
        let (result, _) = scene.stream(1, COUNT, &parameters, &bytes_of(&others));
        assert_eq!((result.ended, scene.region(0)[0]), (Ended::Found, 0));
        assert_eq!(scene.region(1)[..16_000], bytes_of(&others));
        scene.host.asked = held;
        let (result, _) = scene.go_on(0, call, sent, bytes.len());
        assert_eq!(result.ended, Ended::Found);
        assert_eq!(scene.region(0)[..bytes.len()], bytes);
    }
}

#[test]
fn a_stream_waits_for_the_allowance_of_its_tenant() {
    let mut scene = Scene::new();
    // 16,000 bytes take 8 ms, which is longer than the client waits for one answer.
    let per_byte = Duration::from_nanos(500);
    let allowance = Allowance { per_byte, burst: Duration::from_micros(300), ..Allowance::UNLIMITED };
    let id = scene.tenants[0].id;
    scene.server.runtime().limit(id, allowance).expect("connected");
    let values = values(5, 2_000);
    let parameters = (16_000_u64).to_be_bytes();
    let (result, _) = scene.stream(0, COUNT, &parameters, &bytes_of(&values));
    assert_eq!(result.ended, Ended::Found);
    assert_eq!(scene.region(0)[..16_000], bytes_of(&values));
    let took = scene.now.since(Time::ZERO).as_nanos();
    assert!((7_300_000..8_300_000).contains(&took), "{took} ns");
    // The other tenant has no limit.
    let begun = scene.now;
    let (result, _) = scene.stream(1, COUNT, &parameters, &bytes_of(&values));
    assert_eq!((result.ended, scene.now), (Ended::Found, begun));
}

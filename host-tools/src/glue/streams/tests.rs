//! Streams from a driver into the NIC of another host, over a network that loses frames.

use crate::glue::{NicKernels, NicRuntime};
use bareverbs::device::{Device, DeviceConfig};
use bareverbs::gid::GidEntry;
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::budget::Limits;
use bareverbs::offload::client::slots::SlotLayout;
use bareverbs::offload::client::{Call, CallResult, Ended, KernelClient, KernelClientConfig, KernelPlace};
use bareverbs::offload::cost::KernelCost;
use bareverbs::offload::endpoint::{Endpoint as _, Part};
use bareverbs::offload::grant::Grant;
use bareverbs::offload::kernel::{Opcode, Status};
use bareverbs::offload::kernels::BuiltInKernels;
use bareverbs::offload::runtime::ResponseWindow;
use bareverbs::offload::streams::hyper_log_log::Sketch;
use bareverbs::offload::streams::open_stream::{COUNT, PARTITIONS, REGISTERS, SHUFFLE, ShuffleParameters};
use bareverbs::offload::verbs::{INLINE, VerbsEndpoint};
use bareverbs::offload::wire::RegionHandle;
use bareverbs::prm::ids::{Gid, MacAddress};
use bareverbs::prm::numbering::PathMtu;
use bareverbs::prm::time::Duration;
use bareverbs::protection_domain::ProtectionDomain;
use bareverbs::queue_pair::{ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder};
use bareverbs::sim::net::SwitchConfig;
use bareverbs::sim::net::fault::RandomFaults;
use bareverbs::sim::nic::{Nic, NicConfig};
use bareverbs::sim::run::preset::Preset;
use bareverbs::sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::hal::Hal as _;
use std::rc::Rc;
use zerocopy::IntoBytes as _;

type Handle = Rc<Device<SimHal<Nic>>>;

const DEPTH: u32 = 16;
/// Bytes of a stream.
const BYTES: usize = 24 * 1024;
const STRIDE: u64 = SlotLayout::min_stride(REGISTERS as u32).next_multiple_of(64);

/// A client whose streams go to memory of a server.
struct Scene {
    world: SimWorld<Nic>,
    client: KernelClient<1>,
    endpoint: VerbsEndpoint<Handle, 1>,
    region: RegionHandle,
    kernels: NicKernels<BuiltInKernels>,
    device: Handle,
    memory: MemoryRegion<Handle>,
    _served: (QueuePair<Handle>, CompletionQueue<Handle>),
}

fn prepared(
    domain: &ProtectionDomain<Handle>,
    completions: &CompletionQueue<Handle>,
) -> PreparedQueuePair<Handle> {
    let builder = QueuePairBuilder::new(domain, completions, completions);
    builder.send_queue(DEPTH).receive_queue(DEPTH).max_inline(INLINE).build().expect("a queue pair")
}

impl Scene {
    fn new(loss: f64) -> Self {
        let world = SimWorld::new(7);
        let runtime = NicRuntime::new(Limits::default(), KernelCost::FREE);
        let kernels = NicKernels::<BuiltInKernels>::new(runtime);
        let switch = world.with(|world| world.add_switch("switch", SwitchConfig::default()));
        let open = |number: u8| {
            let mac = MacAddress([2, 0, 0, 0, 0, number]);
            let mut nic = Nic::new(NicConfig { strom: true, strict: true, ..NicConfig::new(mac) });
            nic.set_extension(Box::new(kernels.clone()));
            let node = world.add_node(
                &format!("host {number}"),
                nic,
                Preset::STROM_10G.node,
                MemoryConfig::default(),
            );
            world.connect(node, switch, Preset::STROM_10G.link).expect("a port");
            let device: Handle =
                Rc::new(Device::open(world.hal(node), DeviceConfig::default()).expect("a device"));
            device
                .set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, number]), mac))
                .expect("an address");
            let domain = ProtectionDomain::allocate(device.clone()).expect("a domain");
            let completions = CompletionQueueConfig { entries: 2 * DEPTH };
            let completions = CompletionQueue::create(device.clone(), completions).expect("a queue");
            (device, domain, completions)
        };
        let (near, far) = (open(1), open(2));
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let own = MemoryRegion::allocate(&near.1, STRIDE as usize + BYTES, access).expect("memory");
        let memory = MemoryRegion::allocate(&far.1, BYTES, access).expect("memory");
        let pairs = (prepared(&near.1, &near.2), prepared(&far.1, &far.2));
        let ends = (pairs.0.endpoint(0).expect("an end"), pairs.1.endpoint(0).expect("an end"));
        let options =
            ConnectOptions { path_mtu: PathMtu::Mtu1024, ack_timeout: 8, ..ConnectOptions::default() };
        let queue_pair = pairs.0.connect(&ends.1, options).expect("connects");
        let served = pairs.1.connect(&ends.0, options).expect("connects");
        let window = ResponseWindow { address: own.address(), length: STRIDE, rkey: own.rkey().value() };
        let grant = Grant::new(memory.address(), BYTES as u64).expect("no wrap").writable();
        let region = kernels.admit(served.qpn(), window, grant).expect("room");
        let layout = SlotLayout {
            address: own.address(),
            rkey: own.rkey().value(),
            stride: STRIDE,
            max_response: REGISTERS as u32,
        };
        let client = KernelClient::new(KernelClientConfig {
            place: KernelPlace::Nic,
            layout,
            credits: 4,
            timeout: Duration::from_secs(1),
            limits: Limits::default(),
        });
        let endpoint = VerbsEndpoint::new([queue_pair], near.2, own, DEPTH);
        world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(loss)));
        Self { world, client, endpoint, region, kernels, device: far.0, memory, _served: (served, far.2) }
    }

    /// Opens a stream and sends it in messages of `piece` bytes. Returns its status and the answer.
    fn stream(
        &mut self,
        opcode: Opcode,
        parameters: &[u8],
        bytes: &[u8],
        piece: usize,
    ) -> (CallResult, Vec<u8>) {
        let call = Call { opcode, region: self.region, parameters, payload: &[] };
        let id = self.client.start(self.world.now(), &mut self.endpoint, &call).expect("begins");
        self.endpoint.copy_in(STRIDE as usize, bytes).expect("it has room");
        let mut answer = vec![0; self.client.buffer_size()];
        let mut sent = 0;
        loop {
            while sent < bytes.len() && self.endpoint.has_room(0) {
                let length = piece.min(bytes.len() - sent);
                let from = Part { offset: STRIDE as usize + sent, length: length as u32 };
                let taken = self.client.send_stream(&mut self.endpoint, id, from).expect("it is open");
                assert_eq!(taken as usize, length, "there is room");
                sent += length;
            }
            if let Some(result) = self.client.poll(self.world.now(), &mut self.endpoint, &mut answer) {
                answer.truncate(if result.ended == Ended::Found { result.length as usize } else { 0 });
                return (result, answer);
            }
            self.pass(Duration::from_micros(5));
        }
    }

    fn pass(&self, time: Duration) {
        self.device.hal().relax(self.world.now() + time);
    }

    fn memory(&self) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        self.memory.copy_out(0, &mut bytes).expect("inside");
        bytes
    }
}

fn values() -> Vec<u64> {
    (0..BYTES as u64 / 8).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).collect()
}

fn bytes_of(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn a_stream_is_partitioned_in_the_nic_of_the_server() {
    let values = values();
    let of = |partition: usize| {
        values.iter().copied().filter(move |value| *value as usize % PARTITIONS == partition)
    };
    let lengths = std::array::from_fn(|partition| 8 * of(partition).count() as u64);
    let parameters = ShuffleParameters::without_gaps(lengths);
    for (loss, piece) in [(0.0, BYTES), (0.0, 1000), (0.02, 5000)] {
        let mut scene = Scene::new(loss);
        let (result, answer) = scene.stream(SHUFFLE, parameters.as_bytes(), &bytes_of(&values), piece);
        assert_eq!((result.ended, answer.len()), (Ended::Found, 8 * PARTITIONS), "pieces of {piece}");
        let expected: Vec<u64> = (0..PARTITIONS).flat_map(of).collect();
        assert_eq!(scene.memory(), bytes_of(&expected), "pieces of {piece}, {loss} lost");
        let counts: Vec<u64> = (0..PARTITIONS).map(|partition| of(partition).count() as u64).collect();
        let told = answer.chunks_exact(8).map(|count| u64::from_be_bytes(count.try_into().expect("8 bytes")));
        assert_eq!(told.collect::<Vec<_>>(), counts);
        assert_eq!(scene.kernels.strangers(), 0);
    }
}

#[test]
fn streams_of_two_calls_are_counted_in_the_nic_and_merged() {
    let mut scene = Scene::new(0.01);
    let values = values();
    let (first, second) = values.split_at(values.len() / 2);
    let mut all = Sketch::<REGISTERS>::new();
    for half in [first, second] {
        let bytes = bytes_of(half);
        let (result, answer) = scene.stream(COUNT, &(bytes.len() as u64).to_be_bytes(), &bytes, 4096);
        assert_eq!(result.ended, Ended::Found);
        assert_eq!(scene.memory()[..bytes.len()], bytes, "the stream is written unchanged");
        all.merge(&Sketch::from_registers(&answer).expect("registers"));
    }
    let error = all.estimate() / values.len() as f64 - 1.0;
    assert!(error.abs() < 3.0 * 1.04 / 32.0, "{error}");
}

#[test]
fn a_stream_that_goes_wrong_ends_with_its_status_and_the_next_one_works() {
    let mut scene = Scene::new(0.0);
    let bytes = bytes_of(&values());
    let ended = |(result, answer): (CallResult, Vec<u8>)| {
        assert!(answer.is_empty());
        result.ended
    };
    let too_long = (BYTES as u64 + 8).to_be_bytes();
    assert_eq!(ended(scene.stream(COUNT, &too_long, &bytes, 8192)), Ended::Status(Status::OutOfBounds));
    let strangers = scene.kernels.strangers();
    assert!(strangers > 0, "data after the refusal is counted, but not written");
    assert_eq!(scene.memory(), vec![0; BYTES]);
    let too_short = 4096_u64.to_be_bytes();
    assert_eq!(ended(scene.stream(COUNT, &too_short, &bytes, 3000)), Ended::Status(Status::BadParameters));
    let right = (BYTES as u64).to_be_bytes();
    assert_eq!(scene.stream(COUNT, &right, &bytes, BYTES).0.ended, Ended::Found);
    assert_eq!(scene.memory(), bytes);
}

/// The first half is written; the grant is revoked before the second.
#[test]
fn a_stream_writes_nothing_after_its_grant_was_revoked() {
    let mut scene = Scene::new(0.0);
    let bytes = bytes_of(&values());
    let half = bytes.len() / 2;
    let call =
        Call { opcode: COUNT, region: scene.region, parameters: &(BYTES as u64).to_be_bytes(), payload: &[] };
    let id = scene.client.start(scene.world.now(), &mut scene.endpoint, &call).expect("begins");
    scene.endpoint.copy_in(STRIDE as usize, &bytes).expect("it has room");
    let send = |scene: &mut Scene, at: usize| {
        let from = Part { offset: STRIDE as usize + at, length: half as u32 };
        let sent = scene.client.send_stream(&mut scene.endpoint, id, from).expect("it is open");
        assert_eq!(sent as usize, half, "there is room");
    };
    send(&mut scene, 0);
    let arrived = (0..10_000).any(|_| {
        scene.pass(Duration::from_micros(5));
        scene.memory()[..half] == bytes[..half]
    });
    assert!(arrived, "the first half is written");
    {
        let inner = &mut *scene.kernels.0.borrow_mut();
        let connection = *inner.callers.values().next().expect("the client");
        inner.runtime.revoke(connection, scene.region);
    }
    send(&mut scene, half);
    let mut answer = vec![0; scene.client.buffer_size()];
    let result = loop {
        if let Some(result) = scene.client.poll(scene.world.now(), &mut scene.endpoint, &mut answer) {
            break result;
        }
        scene.pass(Duration::from_micros(5));
    };
    assert_eq!(result.ended, Ended::Status(Status::Revoked));
    assert_eq!(scene.memory(), [&bytes[..half], &vec![0; half]].concat());
}

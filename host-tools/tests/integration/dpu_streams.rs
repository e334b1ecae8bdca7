//! Streams to a running `bareverbs dpu serve`. The command has no client for them, so the tenant is code.

use crate::support::dpu_service::{CONFIG, DpuService, OWNER};
use bareverbs::hal::Hal as _;
use bareverbs::offload::budget::Limits;
use bareverbs::offload::client::slots::SlotLayout;
use bareverbs::offload::client::{Call, Ended, KernelClient, KernelClientConfig, KernelPlace};
use bareverbs::offload::endpoint::{Completion, Endpoint as _, Outcome, Part, Remote, Work};
use bareverbs::offload::kernel::Opcode;
use bareverbs::offload::streams::hyper_log_log::Sketch;
use bareverbs::offload::streams::open_stream::{COUNT, PARTITIONS, REGISTERS, SHUFFLE, ShuffleParameters};
use bareverbs::offload::verbs::{INLINE, VerbsEndpoint};
use bareverbs::offload::wire::RegionHandle;
use bareverbs::prm::ids::Gid;
use bareverbs::prm::time::Duration as Span;
use bareverbs::vfio_user::{VfioUserConfig, VfioUserHal};
use bareverbs::{
    AccessFlags, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig, GidEntry,
    MemoryRegion, ProtectionDomain, QueuePairBuilder,
};
use bareverbs_exchange::{Credentials, Introduction, Session, SharedKey};
use serde_json::Value;
use std::rc::Rc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes as _;

type Handle = Rc<Device<VfioUserHal>>;

/// Calls and pieces on their way at a time.
const WINDOW: usize = 4;
const DEPTH: u32 = 64;
/// Values of a stream: each different one comes four times.
const VALUES: usize = 2_000;
const BYTES: usize = 8 * VALUES;
const STRIDE: usize = SlotLayout::min_stride(REGISTERS as u32) as usize;
/// Where a tenant keeps its stream.
const STREAM: usize = STRIDE * WINDOW;
/// How long each wait may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A connection of the tenant "owner", with room for answers and a stream.
struct Connection {
    endpoint: VerbsEndpoint<Handle, 1>,
    /// What the service said of itself.
    offer: Value,
    /// First address and key of the table, if it may be READ.
    table: Option<Remote>,
    slots: SlotLayout,
    device: Handle,
    /// Its end is the end of the connection.
    _session: Session,
}

fn open(service: &DpuService) -> Handle {
    let socket = service.directory.path().join("other");
    let hal = VfioUserHal::connect(&socket, VfioUserConfig::default()).expect("a served device");
    let device = Rc::new(Device::open(hal, DeviceConfig::default()).expect("opens"));
    let mac = device.port().expect("a port").mac;
    // The service has none but its link-local address, so it takes a peer with one.
    let gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    device.set_gid(0, GidEntry::roce_v2(gid, mac)).expect("a row");
    device
}

impl Connection {
    fn new(service: &DpuService, device: &Handle, kind: &str) -> Self {
        let domain = ProtectionDomain::allocate(device.clone()).expect("a domain");
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let memory = MemoryRegion::allocate(&domain, STREAM + BYTES, access).expect("memory");
        let config = CompletionQueueConfig { entries: 2 * DEPTH };
        let completions = CompletionQueue::create(device.clone(), config).expect("a completion queue");
        let prepared = QueuePairBuilder::new(&domain, &completions, &completions)
            .send_queue(DEPTH)
            .receive_queue(DEPTH)
            .max_inline(INLINE)
            .build()
            .expect("a queue pair");
        let introduction = Introduction::new("bareverbs dpu 1", prepared.endpoint(0).expect("an address"));
        let data = serde_json::json!({ "wish": kind }).to_string().into_bytes();
        let own = Introduction { data, ..introduction.offering(memory.remote(0)) };
        let credentials = Credentials { name: "owner".into(), key: SharedKey::new([0x0f; 32]) };
        let mut session =
            Session::connect_as(service.address(), &own, &credentials, LIMIT).expect("the right key");
        let offer = serde_json::from_slice(&session.peer().data).expect("JSON");
        let table = session.peer().slices.first();
        let table = table.map(|slice| Remote { address: slice.address, rkey: slice.rkey.value() });
        let options = ConnectOptions { path_mtu: session.path_mtu(), ..ConnectOptions::default() };
        let connected = prepared.connect(&session.peer().endpoint, options).expect("connects");
        session.ready(LIMIT).expect("the service is ready, too");
        let (address, rkey) = (memory.address(), memory.rkey().value());
        let slots = SlotLayout { address, rkey, stride: STRIDE as u64, max_response: REGISTERS as u32 };
        let endpoint = VerbsEndpoint::new([connected], completions, memory, DEPTH);
        Self { endpoint, offer, table, slots, device: device.clone(), _session: session }
    }

    fn offered(&self, name: &str) -> u64 {
        self.offer[name].as_u64().unwrap_or_else(|| panic!("{name} in {}", self.offer))
    }

    /// Lets the simulated devices work, but no longer than [`LIMIT`] for `what`.
    fn rest(&self, began: Instant, what: &str) {
        assert!(began.elapsed() < LIMIT, "{what} takes more than {LIMIT:?}");
        let hal = self.device.hal();
        hal.relax(hal.now() + Span::from_micros(50));
    }

    fn client(&self) -> KernelClient<WINDOW> {
        let time = Span::from_micros(self.offered("time_us"));
        KernelClient::new(KernelClientConfig {
            place: KernelPlace::Cores,
            layout: self.slots,
            credits: self.offered("credits") as u32,
            timeout: Span::from_secs(30),
            limits: Limits { time, ..Limits::default() },
        })
    }

    /// Sends a stream and returns the answer to its call.
    fn stream(
        &mut self,
        client: &mut KernelClient<WINDOW>,
        (opcode, parameters): (Opcode, &[u8]),
        payload: &[u8],
    ) -> Vec<u8> {
        let region = RegionHandle(self.offered("region") as u32);
        self.endpoint.copy_in(STREAM, payload).expect("inside");
        let start = Call { opcode, region, parameters, payload: &[] };
        let call = client.start(self.device.hal().now(), &mut self.endpoint, &start).expect("a slot");
        let mut answer = vec![0; client.buffer_size()];
        let (began, mut sent) = (Instant::now(), 0);
        loop {
            let from = Part { offset: STREAM + sent, length: (payload.len() - sent) as u32 };
            // A stream that has ended is told by the poll.
            sent += client.send_stream(&mut self.endpoint, call, from).unwrap_or(0) as usize;
            if let Some(result) = client.poll(self.device.hal().now(), &mut self.endpoint, &mut answer) {
                assert_eq!((result.request_id, result.ended), (call, Ended::Found), "{sent} bytes were sent");
                assert_eq!(sent, payload.len());
                answer.truncate(result.length as usize);
                return answer;
            }
            self.rest(began, "the answer to a stream");
        }
    }

    /// Reads the beginning of the table.
    fn read(&mut self) -> Vec<u8> {
        let from = self.table.expect("the owner may READ the table");
        let into = Part { offset: STREAM, length: BYTES as u32 };
        self.endpoint.post(0, 7, Work::Read { into, from }).expect("room");
        let began = Instant::now();
        let completion = loop {
            match self.endpoint.poll() {
                Some(completion) => break completion,
                None => self.rest(began, "a READ"),
            }
        };
        assert_eq!(completion, Completion { connection: 0, id: 7, outcome: Outcome::Done });
        let mut bytes = vec![0; BYTES];
        self.endpoint.copy_out(STREAM, &mut bytes).expect("inside");
        bytes
    }
}

fn values() -> Vec<u64> {
    (0..VALUES as u64).map(|n| (n / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).collect()
}

fn bytes_of(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The parameters of a shuffle, and what the region has after it.
fn shuffled(values: &[u64]) -> (ShuffleParameters, Vec<u8>) {
    let of =
        |partition| values.iter().copied().filter(move |value| *value as usize % PARTITIONS == partition);
    let lengths = std::array::from_fn(|partition| 8 * of(partition).count() as u64);
    let expected: Vec<u64> = (0..PARTITIONS).flat_map(of).collect();
    (ShuffleParameters::without_gaps(lengths), bytes_of(&expected))
}

/// One stream is counted and the next one shuffled; READs see what each has left.
#[test]
fn streams_are_counted_and_shuffled_by_a_running_service() {
    let config = format!("{CONFIG}{OWNER}");
    let service = DpuService::start_with(&["--link", "eth"], &config, &["--demo-table", "500"]);
    let device = open(&service);
    let mut streams = Connection::new(&service, &device, "lookup");
    let mut reads = Connection::new(&service, &device, "read");
    let mut client = streams.client();
    let values = values();
    let payload = bytes_of(&values);
    let length = (BYTES as u64).to_be_bytes();
    let registers = streams.stream(&mut client, (COUNT, &length), &payload);
    let mut sketch = Sketch::<REGISTERS>::new();
    values.iter().for_each(|value| sketch.add(*value));
    assert_eq!(Sketch::from_registers(&registers), Some(sketch));
    assert!(reads.read() == payload, "the stream is where it was written");
    let (parameters, expected) = shuffled(&values);
    streams.stream(&mut client, (SHUFFLE, parameters.as_bytes()), &payload);
    assert!(expected != payload && reads.read() == expected, "each value is in its partition");
}

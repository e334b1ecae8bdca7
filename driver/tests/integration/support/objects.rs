//! A device with objects, and a reader of what was posted.

use super::FakeHal;
use bareverbs_core::{
    AccessFlags, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig, GidEntry,
    MemoryRegion, PreparedQueuePair, ProtectionDomain, QueuePair, QueuePairBuilder, RemoteEndpoint, Service,
    SharedReceiveQueue, SharedReceiveQueueConfig, Ud, queue_pair,
};
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::numbering::{CqeOpcode, CqeSyndrome};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Duration;
use bareverbs_prm::wqe::SharedReceiveSegment;
use std::rc::Rc;
use zerocopy::{FromBytes, IntoBytes};

pub type Handle = Rc<Device<FakeHal>>;

/// A connected queue pair with all that it needs.
pub struct Rig<S: Service = queue_pair::Rc> {
    pub hal: FakeHal,
    pub device: Handle,
    pub domain: ProtectionDomain<Handle>,
    pub region: MemoryRegion<Handle>,
    pub send: CompletionQueue<Handle>,
    pub receive: CompletionQueue<Handle>,
    pub pair: QueuePair<Handle, S>,
}

/// What distinguishes rigs.
#[derive(Clone, Copy)]
pub struct Shape {
    pub sends: u32,
    pub receives: u32,
    pub slices: u32,
    pub inline: u32,
    pub entries: u32,
    pub blue_flame: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { sends: 8, receives: 8, slices: 1, inline: 28, entries: 16, blue_flame: true }
    }
}

pub fn device(hal: &FakeHal) -> Handle {
    let config = DeviceConfig { command_timeout: Duration::from_millis(10), ..DeviceConfig::default() };
    let device = Device::open(hal.clone(), config).expect("the device opens");
    let entry = GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 1]));
    device.set_gid(0, entry).expect("the address is set");
    Rc::new(device)
}

pub fn peer() -> RemoteEndpoint {
    RemoteEndpoint {
        qpn: Qpn::from_low_bits(0x99),
        psn: Psn::new(0x1234),
        gid: Gid::from_ipv4([10, 0, 0, 2]),
        mac: MacAddress([2, 0, 0, 0, 0, 2]),
        version: None,
        lid: 0,
    }
}

pub fn rights() -> AccessFlags {
    AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE
}

impl Rig {
    pub fn new(shape: Shape) -> Self {
        Self::with(shape, |prepared| prepared.connect(&peer(), ConnectOptions::default()).unwrap())
    }
}

impl Rig<Ud> {
    pub fn datagram(shape: Shape) -> Self {
        Self::with(shape, |prepared| prepared.ready_to_send().unwrap())
    }
}

impl<S: Service> Rig<S> {
    pub fn with(
        shape: Shape,
        connect: impl FnOnce(PreparedQueuePair<Handle, S>) -> QueuePair<Handle, S>,
    ) -> Self {
        let hal = FakeHal::new();
        let device = device(&hal);
        let domain = ProtectionDomain::allocate(device.clone()).unwrap();
        let region = MemoryRegion::allocate(&domain, 65536, rights()).unwrap();
        let queue = || {
            CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: shape.entries }).unwrap()
        };
        let (send, receive) = (queue(), queue());
        let prepared = QueuePairBuilder::new(&domain, &send, &receive)
            .service::<S>()
            .send_queue(shape.sends)
            .receive_queue(shape.receives)
            .max_send_sge(shape.slices)
            .max_receive_sge(shape.slices)
            .max_inline(shape.inline)
            .blue_flame(shape.blue_flame)
            .build()
            .unwrap();
        let pair = connect(prepared);
        Self { hal, device, domain, region, send, receive, pair }
    }

    /// A shared receive queue of `receives`, and a queue pair that receives from it into `receive`.
    pub fn share(&self, receives: u32) -> (SharedReceiveQueue<Handle>, QueuePair<Handle>) {
        let config = SharedReceiveQueueConfig { receives, slices: 1 };
        let queue = SharedReceiveQueue::create(&self.domain, config).unwrap();
        let pair = QueuePairBuilder::new(&self.domain, &self.send, &self.receive)
            .shared_receive_queue(&queue)
            .build()
            .unwrap()
            .connect(&peer(), ConnectOptions::default())
            .unwrap();
        (queue, pair)
    }

    /// Another queue pair with as many `sends` and no receives, on the same completion queues.
    pub fn another(&self, sends: u32) -> QueuePair<Handle> {
        QueuePairBuilder::new(&self.domain, &self.send, &self.receive)
            .send_queue(sends)
            .receive_queue(0)
            .build()
            .unwrap()
            .connect(&peer(), ConnectOptions::default())
            .unwrap()
    }

    /// The `user_index` that the device knows a queue pair by.
    pub fn user_index(&self, pair: &QueuePair<Handle>) -> u32 {
        self.hal.firmware().pairs[&pair.qpn().value()].context.user_index()
    }

    /// The entry of a shared receive queue, and the one that it names.
    pub fn shared_bytes(&self, queue: &SharedReceiveQueue<Handle>, entry: u16) -> (Vec<u8>, u16) {
        let firmware = self.hal.firmware();
        let pool = &firmware.pools[&queue.number().value()];
        let stride = 1usize << pool.context.wq().log_wq_stride();
        let bytes = self.hal.world.memory.read(pool.base + u64::from(entry) * stride as u64, stride);
        let link = SharedReceiveSegment::ref_from_prefix(&bytes).map(|(link, _)| link.next_wqe_index());
        let next = link.unwrap();
        (bytes, next)
    }

    fn context(&self) -> (u64, bareverbs_prm::context::QueuePairContext) {
        let firmware = self.hal.firmware();
        let pair = &firmware.pairs[&self.pair.qpn().value()];
        (pair.base, pair.context)
    }

    /// `length` bytes of the send ring from basic block `counter` on, wrapping around.
    pub fn send_bytes(&self, counter: u32, length: usize) -> Vec<u8> {
        let (base, context) = self.context();
        let start = base + ((1u64 << context.log_rq_size()) << (context.log_rq_stride() + 4));
        let size = 64u64 << context.log_sq_size();
        let at = |i: usize| start + (counter as u64 * 64 + i as u64) % size;
        (0..length).map(|i| self.hal.world.memory.read(at(i), 1)[0]).collect()
    }

    /// The receive entry of `counter`.
    pub fn receive_bytes(&self, counter: u32) -> Vec<u8> {
        let (base, context) = self.context();
        let stride = 16usize << context.log_rq_stride();
        let slot = counter & ((1 << context.log_rq_size()) - 1);
        self.hal.world.memory.read(base + slot as u64 * stride as u64, stride)
    }

    /// The doorbell record: receives and sends posted.
    pub fn record(&self) -> (u32, u32) {
        let (_, context) = self.context();
        let bytes = self.hal.world.memory.read(context.dbr_addr(), 8);
        let be32 = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        (be32(0), be32(4))
    }

    /// A completion entry of this queue pair.
    pub fn entry(&self, opcode: CqeOpcode, counter: u16) -> CompletionEntry {
        let (_, context) = self.context();
        let mut entry = CompletionEntry::new();
        entry.set_user_index(context.user_index()).set_qpn(self.pair.qpn());
        entry.set_opcode(opcode).set_wqe_counter(counter);
        entry
    }

    /// An error entry of this queue pair.
    pub fn error(&self, opcode: CqeOpcode, counter: u16, syndrome: CqeSyndrome) -> CompletionEntry {
        let mut entry = ErrorEntry::read_from_bytes(self.entry(opcode, counter).as_bytes()).unwrap();
        entry.set_syndrome(syndrome).set_vendor_syndrome(0x88);
        CompletionEntry::read_from_bytes(entry.as_bytes()).unwrap()
    }

    pub fn complete_send(&self, entry: CompletionEntry) {
        self.hal.firmware().complete(&self.hal.world.memory, self.send.number().value(), entry);
    }

    pub fn complete_receive(&self, entry: CompletionEntry) {
        self.hal.firmware().complete(&self.hal.world.memory, self.receive.number().value(), entry);
    }
}

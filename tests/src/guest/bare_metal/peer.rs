//! The other end of the wire: a simulated NIC in real time, the driver on it, a table, and the kernels of a
//! DPU whose own memory holds the table.

use anyhow::{Context, Result};
use bareverbs_bare_metal::exchange::{Answer, Offer, WayName, Window};
use bareverbs_bare_metal::lookup::WINDOW;
use bareverbs_bare_metal::rows;
use bareverbs_core::hal::Hal;
use bareverbs_core::{
    AccessFlags, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig, GidEntry,
    MemoryRegion, PreparedQueuePair, ProtectionDomain, QueuePair, QueuePairBuilder,
};
use bareverbs_hal_sim::MemoryConfig;
use bareverbs_hal_sim::real_time::RealTimeHal;
use bareverbs_offload::budget::Limits;
use bareverbs_offload::cost::KernelCost;
use bareverbs_offload::dpu::{self, DpuServer};
use bareverbs_offload::endpoint::{Endpoint, Part, PostError};
use bareverbs_offload::grant::{Grant, HostRegion};
use bareverbs_offload::host_dma::{DmaEnd, DmaFault, HostDma, HostDmaDone};
use bareverbs_offload::kernel::CompiledIn;
use bareverbs_offload::kernels::BuiltInKernels;
use bareverbs_offload::kernels::kv_layout::MAX_OBJECT;
use bareverbs_offload::runtime::{ResponseWindow, Runtime};
use bareverbs_offload::table::{TableConfig, TableDescriptor, TablePolicy, TableWriter};
use bareverbs_offload::verbs::{INLINE, RegionTable, VerbsEndpoint};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::real_time::UnixDatagramIo;
use bareverbs_sim::nic::{Nic, NicConfig};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

type PeerBus = RealTimeHal<Nic, UnixDatagramIo>;
type PeerDevice = Rc<Device<PeerBus>>;
type Table = Rc<MemoryRegion<PeerDevice>>;
type Kernels = DpuServer<CompiledIn<BuiltInKernels>, WINDOW, 1, RECEIVES>;

const MAC: MacAddress = MacAddress([0x02, 0x02, 0xc9, 0x05, 0x00, 0x02]);
const GID: Gid = Gid::from_ipv4([10, 0, 0, 2]);
const TABLE_BYTES: usize = 256 << 10;
const RECEIVES: usize = WINDOW;
const DEPTH: u32 = 16;
/// How long one step may sleep.
const REST: Duration = Duration::from_micros(500);
/// Time limit of an invocation. It is generous because an emulated machine on a busy host may pause for long.
const KERNEL_TIME: Duration = Duration::from_secs(5);

/// The side with the table. The fields are in the order in which they have to be dropped.
pub(super) struct Peer {
    served: Vec<Served>,
    table: Table,
    descriptor: TableDescriptor,
    domain: ProtectionDomain<PeerDevice>,
    device: PeerDevice,
    scratch: Vec<u8>,
}

/// A connection.
enum Served {
    Kernels(Box<Kernels>, VerbsEndpoint<PeerDevice, 1>, OwnMemory),
    Memory { _queue_pair: QueuePair<PeerDevice>, _completions: CompletionQueue<PeerDevice> },
}

impl Peer {
    /// Opens a NIC on a wire and fills the table.
    pub(super) fn open(own: &Path, other: &Path) -> Result<Self> {
        let wire = UnixDatagramIo::bind(own, other).context("the wire to the image's NIC")?;
        let model = Nic::new(NicConfig { strict: true, ..NicConfig::new(MAC) });
        let bus = RealTimeHal::new(model, wire, MemoryConfig::default(), 1);
        let device = Rc::new(Device::open(bus, DeviceConfig::default())?);
        device.set_gid(0, GidEntry::roce_v2(GID, MAC))?;
        let domain = ProtectionDomain::allocate(Rc::clone(&device))?;
        let table = Rc::new(MemoryRegion::allocate(&domain, TABLE_BYTES, AccessFlags::REMOTE_READ)?);
        let descriptor = fill(&table, &device)?;
        Ok(Self {
            served: Vec::new(),
            table,
            descriptor,
            domain,
            device,
            scratch: vec![0; MAX_OBJECT as usize],
        })
    }

    /// Connects to what an image offers and returns our end of the connection.
    pub(super) fn answer(&mut self, offer: &Offer) -> Result<Answer> {
        let (prepared, completions) = self.queue_pair()?;
        let endpoint = prepared.endpoint(0)?;
        let options = ConnectOptions { ack_timeout: 16, ..ConnectOptions::default() };
        let queue_pair = prepared.connect(&offer.endpoint, options)?;
        let region = match offer.way {
            WayName::KernelDpu => self.serve_kernels(offer, queue_pair, completions)?,
            WayName::Read => {
                self.served.push(Served::Memory { _queue_pair: queue_pair, _completions: completions });
                0
            }
        };
        let table = &self.table;
        let memory =
            Window { address: table.address(), length: table.len() as u64, rkey: table.rkey().value() };
        Ok(Answer { endpoint, region, table: self.descriptor, memory })
    }

    fn queue_pair(&self) -> Result<(PreparedQueuePair<PeerDevice>, CompletionQueue<PeerDevice>)> {
        let entries = CompletionQueueConfig { entries: 4 * DEPTH };
        let completions = CompletionQueue::create(Rc::clone(&self.device), entries)?;
        let prepared = QueuePairBuilder::new(&self.domain, &completions, &completions)
            .send_queue(DEPTH)
            .receive_queue(DEPTH)
            .max_inline(INLINE)
            .build()?;
        Ok((prepared, completions))
    }

    fn serve_kernels(
        &mut self,
        offer: &Offer,
        queue_pair: QueuePair<PeerDevice>,
        completions: CompletionQueue<PeerDevice>,
    ) -> Result<u32> {
        let bytes = dpu::memory_size(RECEIVES, WINDOW);
        let memory = MemoryRegion::allocate(&self.domain, bytes, AccessFlags::LOCAL_WRITE)?;
        let mut endpoint = VerbsEndpoint::new([queue_pair], completions, memory, DEPTH);
        let cost = KernelCost::FREE;
        let mut runtime = Runtime::new(Limits { time: KERNEL_TIME, ..Limits::default() }, cost);
        let Window { address, length, rkey } = offer.slots;
        let id = runtime.connect(ResponseWindow { address, length, rkey }, WINDOW as u16)?;
        let region = runtime.grant(id, Grant::new(self.table.address(), self.table.len() as u64)?)?;
        let mut kernels = DpuServer::new(runtime);
        kernels.serve(&mut endpoint, 0, id)?;
        let dma = OwnMemory { table: Rc::clone(&self.table), asked: VecDeque::new() };
        self.served.push(Served::Kernels(Box::new(kernels), endpoint, dma));
        Ok(region.0)
    }

    /// Lets the NIC and the kernels work for a moment.
    pub(super) fn step(&mut self) -> Result<()> {
        let bus = self.device.hal();
        let mut active = false;
        for served in &mut self.served {
            if let Served::Kernels(kernels, endpoint, dma) = served {
                active |= kernels.poll(bus.now(), endpoint, dma, &mut self.scratch);
            }
        }
        bus.relax(if active { bus.now() } else { bus.now() + REST });
        bus.take_failure().map_or(Ok(()), |error| Err(error).context("the wire to the image's NIC broke"))
    }
}

fn fill(table: &Table, device: &PeerDevice) -> Result<TableDescriptor> {
    let config = TableConfig {
        buckets: rows::ROWS / 2,
        overflow_lines: rows::ROWS / 2,
        seed: *b"no allocator at ",
        policy: TablePolicy::default(),
    };
    let mut writer = TableWriter::create(RegionTable::new(Rc::clone(table), Rc::clone(device)), &config)?;
    for row in 0..rows::ROWS {
        writer.insert(Time::ZERO, rows::key(row).as_bytes(), &rows::value(row))?;
    }
    Ok(*writer.descriptor())
}

/// The DPU's access to the table, which lies in its own memory. A read is therefore complete when the kernel
/// first asks for its result.
struct OwnMemory {
    table: Table,
    asked: VecDeque<(u64, u64, Part)>,
}

impl OwnMemory {
    fn copy(&self, address: u64, memory: &mut impl Endpoint, into: Part) -> Option<()> {
        let offset = usize::try_from(address.checked_sub(self.table.address())?).ok()?;
        let mut bytes = vec![0; into.length as usize];
        self.table.copy_out(offset, &mut bytes).ok()?;
        memory.copy_in(into.offset, &bytes).ok()
    }
}

impl HostDma for OwnMemory {
    fn has_room(&self) -> bool {
        self.asked.len() < WINDOW
    }

    fn submit_read(&mut self, tag: u64, _: HostRegion, address: u64, into: Part) -> Result<(), PostError> {
        self.asked.push_back((tag, address, into));
        Ok(())
    }

    fn submit_write(&mut self, _: u64, _: HostRegion, _: u64, _: Part) -> Result<(), PostError> {
        Err(PostError::BadRequest)
    }

    fn poll(&mut self, memory: &mut impl Endpoint) -> Option<HostDmaDone> {
        let (tag, address, into) = self.asked.pop_front()?;
        let copied = self.copy(address, memory, into);
        Some(HostDmaDone { tag, end: copied.map_or(DmaEnd::Fault(DmaFault::Memory), |()| DmaEnd::Done) })
    }
}

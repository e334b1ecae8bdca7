//! The participants: simulated hosts with their drivers, clients, and the server on the DPU.

use bareverbs::device::Device;
use bareverbs::memory_region::MemoryRegion;
use bareverbs::offload::card::CardDma;
use bareverbs::offload::client::KvClient;
use bareverbs::offload::client::deployer::Deployer;
use bareverbs::offload::dpu::DpuServer;
use bareverbs::offload::kernel::CompiledIn;
use bareverbs::offload::kernels::BuiltInKernels;
use bareverbs::offload::own_memory::OwnMemory;
use bareverbs::offload::program::WithPrograms;
use bareverbs::offload::table::TableWriter;
use bareverbs::offload::verbs::{RegionTable, VerbsEndpoint};
use bareverbs::protection_domain::ProtectionDomain;
use bareverbs::sim::nic::Nic;
use bareverbs::sim::run::NodeId;
use bareverbs::sim::run::preset::Preset;
use bareverbs::sim::{MemoryConfig, SimHal};
use std::rc::Rc;

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct SceneConfig {
    /// Seed of all random choices.
    pub seed: u64,
    /// Fraction of frames to lose.
    pub loss: f64,
    /// Latencies.
    pub preset: Preset,
    /// Behaviour of the hosts' memory.
    pub memory: MemoryConfig,
    /// Whether a capture also contains records of devices and hosts.
    pub records: bool,
    /// Number of changes that a writer makes to the table while it is read.
    pub changes: u64,
}

/// Lookups that a client may have in flight.
pub(super) const WINDOW: usize = 8;
/// Connections of the DPU: for the kernel, for the program, and for deployment.
pub(super) const DPU_CONNECTIONS: usize = 3;
/// Invocations on the DPU at a time: two windows of lookups, and a deployment request.
pub(super) const DPU_SLOTS: usize = 2 * WINDOW + 1;
/// Versions of programs that fit on the DPU.
pub(super) const PLACES: usize = 4;

/// Receive buffers of the DPU: one for each lookup in flight.
pub(super) const RECEIVES: usize = WINDOW;

pub(crate) type Handle = Rc<Device<SimHal<Nic>>>;
pub(super) type Server =
    DpuServer<WithPrograms<BuiltInKernels, PLACES>, DPU_SLOTS, DPU_CONNECTIONS, RECEIVES>;
/// A server on a core of the server's host, for one client.
pub(super) type CoreServer = DpuServer<CompiledIn<BuiltInKernels>, WINDOW, 1, RECEIVES>;
/// Its access to the table, which lies in its own memory.
pub(super) type OwnTable = OwnMemory<RegionTable<Rc<MemoryRegion<Handle>>, Handle>, WINDOW>;
/// The DPU's access to the one region that its host shares.
pub(super) type TableDma = CardDma<Handle, 1, DPU_SLOTS>;
pub(super) type Writer = TableWriter<RegionTable<Rc<MemoryRegion<Handle>>, Handle>>;

/// A simulated host with its driver.
pub(crate) struct Host {
    pub(crate) node: NodeId,
    pub(crate) device: Handle,
    pub(crate) domain: ProtectionDomain<Handle>,
}

pub(super) type DpuEndpoint = VerbsEndpoint<Handle, DPU_CONNECTIONS>;

/// The operator who deploys programs, with its own queue pair, completion queue and memory.
pub(super) struct Operator {
    pub(super) deployer: Deployer,
    pub(super) endpoint: VerbsEndpoint<Handle, 1>,
}

/// A client with its own queue pair, completion queue and memory.
pub(super) struct LookupClient {
    pub(super) client: KvClient<WINDOW>,
    pub(super) endpoint: VerbsEndpoint<Handle, 1>,
}

//! The connections of the DPU: one for its kernel, one for the deployed program, one for the operator who
//! deploys it.

use super::hosts::{
    DPU_CONNECTIONS, DPU_SLOTS, DpuEndpoint, Handle, Host, LookupClient, Operator, PLACES, RECEIVES,
    SceneConfig, Server, TableDma, WINDOW,
};
use super::wiring::{
    DEPTH, TIMEOUT, UnconnectedPair, Wiring, completions, connect, kernel_cost, limits, prepared,
    response_slots, unconnected_pair, window,
};
use anyhow::{Context as _, anyhow};
use bareverbs::CompletionQueue;
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::client::Way;
use bareverbs::offload::client::deployer::{Deployer, DeployerConfig};
use bareverbs::offload::dpu::{self, DpuServer};
use bareverbs::offload::grant::Grant;
use bareverbs::offload::kernel::Opcode;
use bareverbs::offload::kernels::BuiltInKernels;
use bareverbs::offload::program::{Fuel, WithPrograms};
use bareverbs::offload::runtime::{ConnectionId, Runtime};
use bareverbs::offload::verbs::VerbsEndpoint;
use bareverbs::offload::wire::RegionHandle;
use bareverbs::queue_pair::QueuePair;

/// The op-code of the deployed program.
pub(super) const PROGRAM: Opcode = Opcode(u64::from_be_bytes(*b"KVLOOKPR"));
/// Enough fuel for the checksum of the longest value, and for a walk of as many elements as a request allows.
const FUEL: Fuel = Fuel { step: 8 * 1024, invocation: 64 * 1024 };

/// The DPU, and everybody who is connected to it.
pub(super) struct DpuParts {
    pub(super) kernel: LookupClient,
    pub(super) program: LookupClient,
    pub(super) operator: Operator,
    pub(super) server: Server,
    pub(super) endpoint: DpuEndpoint,
    pub(super) dma: TableDma,
}

/// Connections under construction.
struct Connecting<'a> {
    client: &'a Host,
    dpu: &'a Host,
    completions: CompletionQueue<Handle>,
    runtime: Runtime<WithPrograms<BuiltInKernels, PLACES>, DPU_SLOTS, DPU_CONNECTIONS>,
    /// The DPU's ends, in the order of their numbers.
    far: Vec<(QueuePair<Handle>, ConnectionId)>,
}

impl Wiring {
    pub(super) fn ask_dpu(
        &self,
        client: &Host,
        dpu: &Host,
        config: &SceneConfig,
    ) -> anyhow::Result<DpuParts> {
        let memory = dpu::memory_size(DPU_CONNECTIONS * RECEIVES, DPU_SLOTS);
        let memory = MemoryRegion::allocate(&dpu.domain, memory, AccessFlags::LOCAL_WRITE)
            .context("allocating memory of the DPU")?;
        let (dma, shared) = self.dma(dpu, &memory)?;
        let table = self.grant_within(shared)?;
        let cost = kernel_cost(config.preset.dpu_kernel);
        let mut connecting = Connecting {
            client,
            dpu,
            completions: completions(dpu, 2 * DEPTH * DPU_CONNECTIONS as u32)?,
            runtime: Runtime::with(WithPrograms::new(FUEL), limits(), cost),
            far: Vec::new(),
        };
        let kernel = connecting.lookup_client(self, table, Way::KernelDpu)?;
        let program =
            connecting.lookup_client(self, table, |region| Way::Program { opcode: PROGRAM, region })?;
        let operator = connecting.operator()?;
        let (server, endpoint) = connecting.serve(memory)?;
        Ok(DpuParts { kernel, program, operator, server, endpoint, dma })
    }
}

impl Connecting<'_> {
    /// Connects `near`, whose answers go to `slots`. It may run `share` invocations at a time.
    fn join(
        &mut self,
        near: UnconnectedPair,
        slots: &MemoryRegion<Handle>,
        share: usize,
    ) -> anyhow::Result<(QueuePair<Handle>, CompletionQueue<Handle>, ConnectionId)> {
        let (queue_pair, far) = connect(near.queue_pair, prepared(self.dpu, &self.completions)?)?;
        let id = self.runtime.connect(window(slots), share as u16).context("admitting the client")?;
        self.far.push((far, id));
        Ok((queue_pair, near.completions, id))
    }

    fn lookup_client(
        &mut self,
        wiring: &Wiring,
        table: Grant,
        way: impl FnOnce(RegionHandle) -> Way,
    ) -> anyhow::Result<LookupClient> {
        let slots = wiring.slots(self.client)?;
        let (queue_pair, completions, id) = self.join(unconnected_pair(self.client)?, &slots, WINDOW)?;
        let region = self.runtime.grant(id, table).context("granting the table")?;
        Ok(wiring.lookup_client(way(region), queue_pair, completions, slots))
    }

    fn operator(&mut self) -> anyhow::Result<Operator> {
        let slots = response_slots(self.client, DeployerConfig::MEMORY)?;
        let (queue_pair, completions, id) = self.join(unconnected_pair(self.client)?, &slots, 1)?;
        self.runtime.allow_deployment(id, true).context("allowing the operator to deploy")?;
        let config = DeployerConfig {
            address: slots.address(),
            rkey: slots.rkey().value(),
            credits: RECEIVES as u32,
            timeout: TIMEOUT,
        };
        let endpoint = VerbsEndpoint::new([queue_pair], completions, slots, DEPTH);
        Ok(Operator { deployer: Deployer::new(config), endpoint })
    }

    fn serve(self, memory: MemoryRegion<Handle>) -> anyhow::Result<(Server, DpuEndpoint)> {
        let (queue_pairs, ids): (Vec<_>, Vec<_>) = self.far.into_iter().unzip();
        let queue_pairs = queue_pairs.try_into().map_err(|_| anyhow!("the DPU has three connections"))?;
        let mut endpoint = VerbsEndpoint::new(queue_pairs, self.completions, memory, DEPTH);
        let mut server = DpuServer::new(self.runtime);
        for (index, id) in ids.into_iter().enumerate() {
            server.serve(&mut endpoint, index, id).context("posting receives of the DPU")?;
        }
        Ok((server, endpoint))
    }
}

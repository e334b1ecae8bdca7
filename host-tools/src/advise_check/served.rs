//! Servers of the ways, and the clients that ask them.

use super::table::SHORT;
use crate::demo::hosts::{Handle, Host};
use crate::demo::wiring::{
    Connected, DEPTH, TIMEOUT, completions, connect, join, kernel_cost, prepared, response_slots,
    unconnected_pair, window,
};
use anyhow::{Context as _, anyhow};
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::budget::Limits;
use bareverbs::offload::client::slots::SlotLayout;
use bareverbs::offload::client::{ClientConfig, KvClient, Way};
use bareverbs::offload::dpu::{self, DpuServer};
use bareverbs::offload::grant::Grant;
use bareverbs::offload::host_dma::HostDma;
use bareverbs::offload::kernel::CompiledIn;
use bareverbs::offload::kernels::BuiltInKernels;
use bareverbs::offload::kernels::kv_layout::MAX_OBJECT;
use bareverbs::offload::runtime::{ResponseWindow, Runtime};
use bareverbs::offload::table::TableDescriptor;
use bareverbs::offload::verbs::VerbsEndpoint;
use bareverbs::offload::wire::RegionHandle;
use bareverbs::prm::time::{Duration, Time};
use bareverbs::sim::run;

/// Lookups that the others may have in flight at a server: a client posts two receives for each, and a queue has 64.
pub const OTHERS: usize = 30;
/// Invocations of a server at a time. One keeps its slot until its answer is acknowledged, when its client may already
/// have sent the next.
pub const SLOTS: usize = 2 * OTHERS + 2;
/// Clients of a server: the one that is measured, and the others.
const CLIENTS: usize = 2;

/// Enough for a long walk that begins again many times, behind a long queue.
pub fn limits() -> Limits {
    Limits { hops: 2_048, bytes: u32::MAX, retries: 64, time: Duration::from_millis(100) }
}

/// A client with its own queue pair, completion queue and memory.
pub struct WayClient<const N: usize> {
    pub client: KvClient<N>,
    pub endpoint: VerbsEndpoint<Handle, 1>,
}

/// What a client knows, apart from its way.
#[derive(Clone, Copy)]
pub struct LookupTarget {
    pub table: TableDescriptor,
    pub max_value: u32,
}

impl LookupTarget {
    /// The same for clients that look up short values.
    pub fn of_others(self) -> Self {
        Self { max_value: SHORT as u32, ..self }
    }

    /// Memory for the answers to `N` requests.
    pub fn slots<const N: usize>(&self, client: &Host) -> anyhow::Result<MemoryRegion<Handle>> {
        response_slots(client, ClientConfig::stride(self.max_value) as usize * N)
    }

    pub fn asker<const N: usize>(
        &self,
        way: Way,
        near: Connected,
        slots: MemoryRegion<Handle>,
    ) -> WayClient<N> {
        let layout = SlotLayout {
            address: slots.address(),
            rkey: slots.rkey().value(),
            stride: ClientConfig::stride(self.max_value),
            max_response: self.max_value,
        };
        let (table, credits) = (self.table, N as u32);
        let config = ClientConfig { way, table, layout, credits, timeout: TIMEOUT, limits: limits() };
        let (queue_pair, completions) = near;
        WayClient {
            client: KvClient::new(config),
            endpoint: VerbsEndpoint::new([queue_pair], completions, slots, DEPTH),
        }
    }

    /// A client whose server needs to know the far queue pair and where answers go; it says by which way it serves.
    pub fn joined<const N: usize>(
        &self,
        [client, server]: [&Host; 2],
        admit: impl FnOnce(&Connected, ResponseWindow) -> anyhow::Result<Way>,
    ) -> anyhow::Result<(WayClient<N>, Connected)> {
        let slots = self.slots::<N>(client)?;
        let (near, far) = join(unconnected_pair(client)?, unconnected_pair(server)?)?;
        let way = admit(&far, window(&slots))?;
        Ok((self.asker(way, near, slots), far))
    }
}

type LookupServer = DpuServer<CompiledIn<BuiltInKernels>, SLOTS, CLIENTS, OTHERS>;

/// A core that serves lookups, with its connections and its access to the table.
pub struct CoreService<M> {
    server: LookupServer,
    endpoint: VerbsEndpoint<Handle, CLIENTS>,
    dma: M,
    scratch: Vec<u8>,
}

/// The client that is measured, and the others.
pub type Clients = (WayClient<1>, WayClient<OTHERS>);

impl<M: HostDma> CoreService<M> {
    /// Does everything that can be done now; returns whether anything was.
    pub fn poll(&mut self, now: Time) -> bool {
        let mut active = false;
        // What ends at once enables the next step.
        while self.server.poll(now, &mut self.endpoint, &mut self.dma, &mut self.scratch) {
            active = true;
        }
        active
    }

    /// When to poll again if nothing arrives before.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.server.poll_timeout(&self.dma)
    }
}

/// A server under construction.
pub struct CoreSetup<'a> {
    pub asked: LookupTarget,
    pub server: &'a Host,
    pub clients: [&'a Host; CLIENTS],
    pub cost: run::KernelCost,
}

impl CoreSetup<'_> {
    /// Memory for requests and for staging.
    pub fn memory(&self) -> anyhow::Result<MemoryRegion<Handle>> {
        let length = dpu::memory_size(CLIENTS * OTHERS, SLOTS);
        MemoryRegion::allocate(&self.server.domain, length, AccessFlags::LOCAL_WRITE)
            .context("allocating memory of a server")
    }

    /// Connects both clients. `dma` reaches the table as `grant`.
    pub fn connected<M: HostDma>(
        self,
        memory: MemoryRegion<Handle>,
        dma: M,
        grant: Grant,
    ) -> anyhow::Result<(CoreService<M>, Clients)> {
        let [probing, others] = self.clients;
        let far_completions = completions(self.server, 2 * DEPTH * CLIENTS as u32)?;
        let mut runtime = Runtime::new(limits(), kernel_cost(self.cost));
        let (mut far, mut ids) = (Vec::new(), Vec::new());
        let mut joined = |client: &Host, slots: &MemoryRegion<Handle>, share: usize| {
            let near = unconnected_pair(client)?;
            let (queue_pair, end) = connect(near.queue_pair, prepared(self.server, &far_completions)?)?;
            let id = runtime.connect(window(slots), share as u16).context("admitting a client")?;
            let region: RegionHandle = runtime.grant(id, grant).context("granting the table")?;
            far.push(end);
            ids.push(id);
            anyhow::Ok((Way::KernelDpu(region), (queue_pair, near.completions)))
        };
        let slots = self.asked.slots::<1>(probing)?;
        let (way, near) = joined(probing, &slots, 2)?;
        let probe = self.asked.asker(way, near, slots);
        let asked = self.asked.of_others();
        let slots = asked.slots::<OTHERS>(others)?;
        let (way, near) = joined(others, &slots, 2 * OTHERS)?;
        let crowd = asked.asker(way, near, slots);
        let far = far.try_into().map_err(|_| anyhow!("a server has {CLIENTS} clients"))?;
        let mut endpoint = VerbsEndpoint::new(far, far_completions, memory, DEPTH);
        let mut server = DpuServer::new(runtime);
        for (index, id) in ids.into_iter().enumerate() {
            server.serve(&mut endpoint, index, id).context("posting receives of a server")?;
        }
        let scratch = vec![0; MAX_OBJECT as usize];
        Ok((CoreService { server, endpoint, dma, scratch }, (probe, crowd)))
    }
}

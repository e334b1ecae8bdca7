//! The way through a core of the server: it takes requests as the DPU does, and reads the table in place.

use super::hosts::{CoreServer, Handle, Host, LookupClient, OwnTable, RECEIVES, SceneConfig, WINDOW};
use super::wiring::{
    DEPTH, Wiring, completions, connect, kernel_cost, limits, prepared, unconnected_pair, window,
};
use anyhow::Context as _;
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::client::Way;
use bareverbs::offload::dpu::{self, DpuServer};
use bareverbs::offload::kernels::kv_layout::MAX_OBJECT;
use bareverbs::offload::own_memory::OwnMemory;
use bareverbs::offload::runtime::{ReaderProgress, Runtime};
use bareverbs::offload::verbs::{RegionTable, VerbsEndpoint};
use bareverbs::prm::time::Time;
use std::rc::Rc;

/// Turns at one moment: as many as a window of lookups can need.
const TURNS: usize = 4 * WINDOW;

/// The core with its connection and its access to the table.
pub(super) struct Core {
    server: CoreServer,
    endpoint: VerbsEndpoint<Handle, 1>,
    dma: OwnTable,
    scratch: Vec<u8>,
}

impl Core {
    /// Does everything that can be done now; returns whether anything was.
    pub(super) fn poll(&mut self, now: Time) -> bool {
        // An access to its own memory completes as soon as it is requested, so one turn enables the next.
        let turns = (0..TURNS)
            .take_while(|_| self.server.poll(now, &mut self.endpoint, &mut self.dma, &mut self.scratch));
        turns.count() > 0
    }

    /// The progress of its invocations.
    pub(super) fn progress(&mut self) -> ReaderProgress {
        self.server.runtime().progress()
    }

    /// When to poll again if nothing arrives before.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.server.poll_timeout(&self.dma)
    }
}

impl Wiring {
    /// Connects the client to a core of the server, whose table lies in `region`.
    pub(super) fn ask_cpu(
        &self,
        client: &Host,
        server: &Host,
        region: Rc<MemoryRegion<Handle>>,
        config: &SceneConfig,
    ) -> anyhow::Result<(LookupClient, Core)> {
        let memory = MemoryRegion::allocate(
            &server.domain,
            dpu::memory_size(RECEIVES, WINDOW),
            AccessFlags::LOCAL_WRITE,
        )
        .context("allocating memory of the server's core")?;
        let slots = self.slots(client)?;
        let near = unconnected_pair(client)?;
        let far_completions = completions(server, 2 * DEPTH)?;
        let (queue_pair, far) = connect(near.queue_pair, prepared(server, &far_completions)?)?;
        let mut runtime = Runtime::new(limits(), kernel_cost(config.preset.cpu_kernel));
        let id = runtime.connect(window(&slots), WINDOW as u16).context("admitting the client")?;
        let granted = runtime.grant(id, self.own_grant()?).context("granting the table")?;
        let mut endpoint = VerbsEndpoint::new([far], far_completions, memory, DEPTH);
        let mut server_core = DpuServer::new(runtime);
        server_core.serve(&mut endpoint, 0, id).context("posting receives of the server's core")?;
        let dma = OwnMemory::new(RegionTable::new(region, server.device.clone()));
        let core = Core { server: server_core, endpoint, dma, scratch: vec![0; MAX_OBJECT as usize] };
        Ok((self.lookup_client(Way::KernelDpu(granted), queue_pair, near.completions, slots), core))
    }
}

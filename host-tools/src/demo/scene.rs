//! The scene: a client, a server and a DPU on one switch, each with its own driver; the table in the memory
//! of the server; and the connections for lookups. Server and DPU are two functions of one card: the DPU
//! reads the table by DMA work requests, under an alias of the memory key that the server shares.
//!
//! ```text
//! client ──┬── switch ──┬── server: table in memory, kernels in its NIC ┐
//!          └────────────┴── DPU: kernels on its cores ── DMA engine ────┴ one card
//! ```

use super::advice::{MeasuredAdvice, way_of};
use super::changes::{Changes, READERS, WriterReport};
use super::cpu_wiring::Core;
use super::data::Row;
use super::hosts::{DpuEndpoint, Host, LookupClient, Operator, SceneConfig, Server, TableDma, Writer};
use super::swaps::Swaps;
use super::way_name::WayName;
use super::wiring::{Connected, Wiring, host, kernel_cost, limits, publish};
use crate::glue::{NicKernels, NicRuntime};
use anyhow::{Context as _, anyhow};
use bareverbs::offload::client::LookupResult;
use bareverbs::offload::kernels::BuiltInKernels;
use bareverbs::offload::kernels::kv_layout::MAX_OBJECT;
use bareverbs::offload::runtime::ReaderProgress;
use bareverbs::offload::table::TableError;
use bareverbs::prm::time::{Duration, Time};
use bareverbs::sim::SimWorld;
use bareverbs::sim::net::SwitchConfig;
use bareverbs::sim::net::fault::RandomFaults;
use bareverbs::sim::nic::Nic;
use bareverbs::sim::run::StallReason;
use std::io::Write;

/// Indices of the hosts.
const CLIENT: usize = 0;
const DPU: usize = 2;

/// The result of a lookup, and its simulated time.
pub struct LookedUp {
    /// How the lookup ended.
    pub result: LookupResult,
    /// The value, if it was found.
    pub value: Vec<u8>,
    /// Simulated nanoseconds from the start to the end.
    pub nanos: u64,
}

/// All participants. Fields are dropped in this order: users before what they use.
pub struct Scene {
    clients: [LookupClient; 5],
    advice: MeasuredAdvice,
    core: Core,
    operator: Operator,
    swaps: Swaps,
    dpu: Server,
    dpu_endpoint: DpuEndpoint,
    dma: TableDma,
    table: Writer,
    changes: Changes,
    kernels: NicKernels<BuiltInKernels>,
    _served: Vec<Connected>,
    hosts: [Host; 3],
    world: SimWorld<Nic>,
    scratch: Vec<u8>,
    buffer: Vec<u8>,
    /// The span of the DPU's current invocation in the recording.
    invocation: Option<u64>,
}

impl Scene {
    /// Boots three hosts, fills the table and connects everybody.
    pub fn build(
        config: &SceneConfig,
        rows: &[Row],
        capture: Option<Box<dyn Write>>,
    ) -> anyhow::Result<Self> {
        let world = SimWorld::new(config.seed);
        let kernels = NicKernels::new(NicRuntime::new(limits(), kernel_cost(config.preset.nic_kernel)));
        let switch = world.with(|world| {
            // The presets contain the whole latency between two hosts, so the switch adds only
            // store-and-forward time.
            world.add_switch("switch", SwitchConfig { latency: Duration::ZERO, ..SwitchConfig::default() })
        });
        let hosts = ["client", "server", "dpu"].into_iter().zip(1..);
        let hosts: anyhow::Result<Vec<Host>> =
            hosts.map(|(name, number)| host(&world, config, switch, name, number, &kernels)).collect();
        let [client, server, dpu]: [Host; 3] =
            hosts?.try_into().map_err(|_| anyhow!("there are three hosts"))?;
        world
            .with(|world| world.join_card(&[server.node, dpu.node], config.preset.dpu_dma))
            .context("making server and DPU one card")?;
        let (mut writer, table, region) = publish(&world, &server, rows, config.changes)?;
        let changes = Changes::new(rows, config.changes, &mut writer)?;
        world.with(|world| {
            world.set_random_faults_everywhere(RandomFaults::loss(config.loss));
            match capture {
                Some(out) if config.records => world.start_recording(out),
                Some(out) => world.start_capture(out),
                None => {}
            }
        });
        let mut parts = Wiring { table, served: Vec::new() };
        let on_dpu = parts.ask_dpu(&client, &dpu, config)?;
        let nic_way = parts.ask_nic(&client, &server, &kernels)?;
        let read_way = parts.ask_by_read(&client, &server)?;
        let (cpu_way, core) = parts.ask_cpu(&client, &server, region, config)?;
        let buffer = vec![0; on_dpu.kernel.client.buffer_size()];
        let mut scene = Self {
            clients: [on_dpu.kernel, nic_way, read_way, on_dpu.program, cpu_way],
            advice: MeasuredAdvice::new(config.preset),
            core,
            operator: on_dpu.operator,
            swaps: Swaps::new()?,
            dpu: on_dpu.server,
            dpu_endpoint: on_dpu.endpoint,
            dma: on_dpu.dma,
            table: writer,
            changes,
            kernels,
            _served: parts.served,
            hosts: [client, server, dpu],
            world,
            scratch: vec![0; MAX_OBJECT as usize],
            buffer,
            invocation: None,
        };
        scene.deploy()?;
        Ok(scene)
    }

    /// Looks `key` up and waits, in simulated time, until the lookup has ended.
    pub fn lookup(&mut self, way: WayName, key: &[u8]) -> anyhow::Result<LookedUp> {
        if way != WayName::Advised {
            return self.lookup_by(way, key);
        }
        let (choice, lookup) = self.advice.choose();
        let found = self.lookup_by(way_of(choice), key)?;
        self.advice.learn(choice, lookup, &found.result, Duration::from_nanos(found.nanos));
        Ok(found)
    }

    /// The same for a way with its own connection.
    fn lookup_by(&mut self, way: WayName, key: &[u8]) -> anyhow::Result<LookedUp> {
        let begin = self.world.now();
        let span = self.begin_span(CLIENT, &format!("lookup: {way}"));
        self.start(way, key)?;
        let result = self.finish(way)?;
        self.end_span(CLIENT, span);
        let value = self.buffer.get(..result.length as usize).unwrap_or_default().to_vec();
        Ok(LookedUp { result, value, nanos: self.world.now().since(begin).as_nanos() })
    }

    /// Deploys the lookup program and waits, in simulated time, until it is active.
    fn deploy(&mut self) -> anyhow::Result<()> {
        self.swap(1);
        loop {
            let now = self.world.now();
            let active = self.serve(now);
            self.swaps.go_on(now, &mut self.operator)?;
            if self.swaps_left() == 0 {
                return Ok(());
            }
            if !active {
                self.wait(None)?;
            }
        }
    }

    /// From now on replaces the program this many times, during other work.
    pub const fn swap(&mut self, times: u64) {
        self.swaps.want(times);
    }

    /// How many replacements of the program remain.
    pub const fn swaps_left(&self) -> u64 {
        self.swaps.left()
    }

    fn start(&mut self, way: WayName, key: &[u8]) -> anyhow::Result<u64> {
        self.changes.asks(key);
        let client = &mut self.clients[way as usize];
        client.client.start(self.world.now(), &mut client.endpoint, key).map_err(|error| anyhow!(error))
    }

    /// Waits until a lookup ends. Its value is then in the buffer.
    fn finish(&mut self, way: WayName) -> anyhow::Result<LookupResult> {
        loop {
            let now = self.world.now();
            let active = self.serve(now);
            self.swaps.go_on(now, &mut self.operator)?;
            self.change(now)?;
            let client = &mut self.clients[way as usize];
            if let Some(result) = client.client.poll(now, &mut client.endpoint, &mut self.buffer) {
                return Ok(result);
            }
            if !active {
                self.wait(Some(way))?;
            }
        }
    }

    /// Lets the writer make its next change.
    fn change(&mut self, now: Time) -> anyhow::Result<()> {
        let progress = self.progress();
        self.changes.go_on(now, &mut self.table, progress)
    }

    fn progress(&mut self) -> [ReaderProgress; READERS] {
        [self.dpu.runtime().progress(), self.kernels.progress(), self.core.progress()]
    }

    /// How many changes of the table remain.
    pub const fn changes_left(&self) -> u64 {
        self.changes.left()
    }

    /// What the writer did.
    pub fn writer_report(&self) -> Option<WriterReport> {
        self.changes.report(&self.table)
    }

    /// Whether a row had this value at any time since its lookup began. Only one lookup runs at a time.
    pub fn had(&self, row: &Row, value: &[u8]) -> bool {
        self.changes.had(row, value)
    }

    /// Changes the value of a key in the table.
    pub fn update(&mut self, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        let progress = self.progress();
        self.changes.announce(&mut self.table, progress);
        self.table.update(self.world.now(), key, value).map(drop)
    }

    /// The kernels in the server's NIC, with their counters.
    pub fn kernels(&self) -> &NicKernels<BuiltInKernels> {
        &self.kernels
    }

    fn serve(&mut self, now: Time) -> bool {
        let accepted = self.dpu.runtime().counters().accepted;
        let replies = self.dpu.counters().replies;
        let core = self.core.poll(now);
        let active = self.dpu.poll(now, &mut self.dpu_endpoint, &mut self.dma, &mut self.scratch);
        if active && !self.swaps.under_way() {
            self.show_invocations(accepted, replies);
        }
        active || core
    }

    /// Records spans for what the DPU began and ended since it had accepted `accepted` requests and sent
    /// `replies`. Only one lookup runs at a time.
    fn show_invocations(&mut self, accepted: u64, replies: u64) {
        if self.dpu.runtime().counters().accepted > accepted {
            self.invocation = Some(self.begin_span(DPU, "kernel: lookup"));
        }
        if self.dpu.counters().replies > replies
            && let Some(span) = self.invocation.take()
        {
            self.end_span(DPU, span);
        }
    }

    fn begin_span(&self, host: usize, name: &str) -> u64 {
        let node = self.hosts[host].node;
        self.world.with(|world| world.begin_span(node, name))
    }

    fn end_span(&self, host: usize, span: u64) {
        let node = self.hosts[host].node;
        self.world.with(|world| world.end_span(node, span));
    }

    /// Advances to the next moment at which anything can happen.
    fn wait(&self, way: Option<WayName>) -> anyhow::Result<()> {
        let due = self.world.with(|world| world.next_event());
        let server = self.dpu.poll_timeout(&self.dma);
        let client = way.and_then(|way| self.clients[way as usize].client.poll_timeout());
        let operator = self.operator.deployer.poll_timeout();
        let core = self.core.poll_timeout();
        match [due, server, core, client, operator].into_iter().flatten().min() {
            Some(due) => {
                self.world.run_until(due);
                Ok(())
            }
            None => Err(anyhow!(self.world.with(|world| world.stalled(StallReason::Idle)))),
        }
    }

    /// The digest of everything on the wire.
    pub fn digest(&self) -> u64 {
        self.world.digest()
    }

    /// Ends the capture; returns its number of frames.
    pub fn finish_capture(&self) -> anyhow::Result<u64> {
        self.world.with(|world| world.finish_capture()).map_err(|error| anyhow!(error))
    }
}

#[cfg(test)]
mod tests;

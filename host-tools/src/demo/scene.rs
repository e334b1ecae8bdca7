//! The scene: a client, a server and a DPU on one switch, each with a driver of its own; the table in the memory of the server; and the
//! connections over which it is asked. Server and DPU are two functions of one card: the DPU reads the table by DMA work requests, under
//! an alias of the memory key that the server shares.
//!
//! ```text
//! client ──┬── switch ──┬── server: table in memory, kernels in its NIC ┐
//!          └────────────┴── DPU: kernels on its cores ── DMA engine ────┴ one card
//! ```

use super::advice::{MeasuredAdvice, way_of};
use super::changes::{Changes, READERS, WriterReport};
use super::cpu_wiring::Core;
use super::data::Row;
use super::hosts::{Asker, DpuEndpoint, Host, Operator, SceneConfig, Server, TableDoor, Writer};
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

/// Which of the hosts is which.
const CLIENT: usize = 0;
const DPU: usize = 2;

/// What was found, and in which simulated time.
pub struct LookedUp {
    /// How the lookup ended.
    pub result: LookupResult,
    /// The value, if it was found.
    pub value: Vec<u8>,
    /// Simulated nanoseconds from the start to the end.
    pub nanos: u64,
}

/// Everything that takes part. Fields are dropped in this order: users before what they use.
pub struct Scene {
    askers: [Asker; 5],
    advice: MeasuredAdvice,
    core: Core,
    operator: Operator,
    swaps: Swaps,
    dpu: Server,
    dpu_endpoint: DpuEndpoint,
    dma: TableDoor,
    table: Writer,
    changes: Changes,
    kernels: NicKernels<BuiltInKernels>,
    _served: Vec<Connected>,
    hosts: [Host; 3],
    world: SimWorld<Nic>,
    scratch: Vec<u8>,
    buffer: Vec<u8>,
    /// The span of the DPU's kernel that a recording shows at present.
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
            // The presets hold the whole way between two hosts: the switch adds nothing but storing and forwarding.
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
            askers: [on_dpu.kernel, nic_way, read_way, on_dpu.program, cpu_way],
            advice: MeasuredAdvice::new(config.preset),
            core,
            operator: on_dpu.operator,
            swaps: Swaps::new()?,
            dpu: on_dpu.server,
            dpu_endpoint: on_dpu.endpoint,
            dma: on_dpu.door,
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

    /// Looks `key` up and waits, in simulated time, until that has ended.
    pub fn lookup(&mut self, way: WayName, key: &[u8]) -> anyhow::Result<LookedUp> {
        if way != WayName::Advised {
            return self.lookup_by(way, key);
        }
        let (choice, question) = self.advice.choose();
        let found = self.lookup_by(way_of(choice), key)?;
        self.advice.learn(choice, question, &found.result, Duration::from_nanos(found.nanos));
        Ok(found)
    }

    /// The same on a way with a connection of its own.
    fn lookup_by(&mut self, way: WayName, key: &[u8]) -> anyhow::Result<LookedUp> {
        let begin = self.world.now();
        let span = self.begin_span(CLIENT, &format!("lookup: {way}"));
        self.start(way, key)?;
        let result = self.finish(way)?;
        self.end_span(CLIENT, span);
        let value = self.buffer.get(..result.length as usize).unwrap_or_default().to_vec();
        Ok(LookedUp { result, value, nanos: self.world.now().since(begin).as_nanos() })
    }

    /// Deploys the lookup, and waits, in simulated time, until that is done.
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

    /// From now on the program is replaced so often, whatever else is under way.
    pub const fn swap(&mut self, times: u64) {
        self.swaps.want(times);
    }

    /// How often the program has yet to be replaced.
    pub const fn swaps_left(&self) -> u64 {
        self.swaps.left()
    }

    fn start(&mut self, way: WayName, key: &[u8]) -> anyhow::Result<u64> {
        self.changes.asks(key);
        let asker = &mut self.askers[way as usize];
        asker.client.start(self.world.now(), &mut asker.endpoint, key).map_err(|error| anyhow!(error))
    }

    /// Waits until a lookup ends; its value is in the buffer then.
    fn finish(&mut self, way: WayName) -> anyhow::Result<LookupResult> {
        loop {
            let now = self.world.now();
            let active = self.serve(now);
            self.swaps.go_on(now, &mut self.operator)?;
            self.change(now)?;
            let asker = &mut self.askers[way as usize];
            if let Some(result) = asker.client.poll(now, &mut asker.endpoint, &mut self.buffer) {
                return Ok(result);
            }
            if !active {
                self.wait(Some(way))?;
            }
        }
    }

    /// The writer does its part.
    fn change(&mut self, now: Time) -> anyhow::Result<()> {
        let progress = self.progress();
        self.changes.go_on(now, &mut self.table, progress)
    }

    fn progress(&mut self) -> [ReaderProgress; READERS] {
        [self.dpu.runtime().progress(), self.kernels.progress(), self.core.progress()]
    }

    /// How many changes of the table have yet to be made.
    pub const fn changes_left(&self) -> u64 {
        self.changes.left()
    }

    /// What the writer did.
    pub fn writer_report(&self) -> Option<WriterReport> {
        self.changes.report(&self.table)
    }

    /// Whether a row had this value at any time since its lookup began. One lookup is under way at a time.
    pub fn had(&self, row: &Row, value: &[u8]) -> bool {
        self.changes.had(row, value)
    }

    /// Gives a key of the table another value.
    pub fn update(&mut self, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        let progress = self.progress();
        self.changes.announce(&mut self.table, progress);
        self.table.update(self.world.now(), key, value).map(drop)
    }

    /// What the kernels in the NIC of the server counted.
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

    /// Shows in a recording what the DPU began and ended since it had `accepted` requests and sent `replies`. One lookup is under way at a time.
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

    /// Goes on to the next moment when anything can happen.
    fn wait(&self, way: Option<WayName>) -> anyhow::Result<()> {
        let due = self.world.with(|world| world.next_event());
        let server = self.dpu.poll_timeout(&self.dma);
        let client = way.and_then(|way| self.askers[way as usize].client.poll_timeout());
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

    /// The digest of all that happened on the wire.
    pub fn digest(&self) -> u64 {
        self.world.digest()
    }

    /// Ends the capture; returns its frames.
    pub fn finish_capture(&self) -> anyhow::Result<u64> {
        self.world.with(|world| world.finish_capture()).map_err(|error| anyhow!(error))
    }
}

#[cfg(test)]
mod tests;

//! A client, the others, a server and its DPU on one switch; the table in the server's memory; a writer that changes it
//! store by store; and a client for each way.
//!
//! The presets are latencies between two hosts, so only the server's cable costs time: the switch and the other cables do
//! not.

use super::served::{Clients, CoreService, CoreSetup, LookupTarget, OTHERS, WayClient, limits};
use super::table::{Chain, Store};
use crate::advise::model::AdvisedWay;
use crate::demo::hosts::{Handle, Host, SceneConfig};
use crate::demo::wiring::{Connected, access_key, completions, host, kernel_cost};
use crate::glue::{NicKernels, NicRuntime};
use anyhow::{Context as _, anyhow, bail};
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::card::CardDma;
use bareverbs::offload::client::{Ended, LookupResult, StartError, Way};
use bareverbs::offload::grant::{Grant, HostRegion};
use bareverbs::offload::kernels::BuiltInKernels;
use bareverbs::offload::own_memory::OwnMemory;
use bareverbs::offload::table::TableMemory as _;
use bareverbs::offload::verbs::RegionTable;
use bareverbs::prm::time::{Duration, Time};
use bareverbs::sim::net::SwitchConfig;
use bareverbs::sim::net::link::LinkConfig;
use bareverbs::sim::nic::Nic;
use bareverbs::sim::run::{Preset, StallReason};
use bareverbs::sim::{MemoryConfig, SimWorld};
use bareverbs::{RemoteVhcaRegion, SharedRegion};
use rand_core::RngCore;
use std::rc::Rc;

type Memory = Rc<MemoryRegion<Handle>>;
type CardTable = CardDma<Handle, 1, { super::served::SLOTS }>;
type TableInPlace = OwnMemory<RegionTable<Memory, Handle>, { super::served::SLOTS }>;

/// What is under way besides the lookup that is measured.
#[derive(Debug, Clone, Copy)]
pub struct PointTraffic {
    /// Time between two lookups of others, on the average.
    pub others: Option<Duration>,
    /// Time between two updates of the line that is read last, on the average.
    pub updates: Option<Duration>,
    /// That line.
    pub hops: u32,
}

/// All participants. Fields are dropped in this order: users before what they use.
pub struct CheckScene {
    probes: [WayClient<1>; 4],
    crowds: [Option<WayClient<OTHERS>>; 4],
    dpu: CoreService<CardTable>,
    core: CoreService<TableInPlace>,
    chain: Chain,
    memory: RegionTable<Memory, Handle>,
    /// How long a store of the writer takes.
    store: Duration,
    next: NextEvents,
    random: Box<dyn RngCore>,
    buffer: Vec<u8>,
    /// Bytes of the value that is measured.
    bytes: u32,
    _served: Vec<Connected>,
    _hosts: [Host; 4],
    world: SimWorld<Nic>,
}

/// What happens next.
#[derive(Default)]
struct NextEvents {
    other: Option<Time>,
    /// Lookups of others that have no slot yet.
    backlog: u32,
    update: Option<Time>,
    store: Option<(Time, Store)>,
}

/// The parameters of a scene.
#[derive(Debug, Clone, Copy)]
pub struct ColumnPlan<'a> {
    pub seed: u64,
    pub preset: Preset,
    /// Numbers of elements before a value that are read.
    pub hops: &'a [u32],
    /// Bytes of those values.
    pub bytes: u32,
}

impl CheckScene {
    pub fn build(plan: &ColumnPlan<'_>) -> anyhow::Result<Self> {
        let ColumnPlan { seed, preset, hops, bytes } = *plan;
        let lines = hops.iter().copied().max().unwrap_or(1) as usize;
        let mut chain = Chain::new(lines, hops, bytes as usize)?;
        let world = SimWorld::new(seed);
        let kernels = NicKernels::new(NicRuntime::new(limits(), kernel_cost(preset.nic_kernel)));
        let hosts = hosts(&world, plan, &kernels)?;
        let [client, others, server, dpu] = &hosts;
        world
            .with(|world| world.join_card(&[server.node, dpu.node], preset.dpu_dma))
            .context("making server and DPU one card")?;
        let (memory, shared) = publish(&world, server, chain.bytes())?;
        let parts = ConnectionParts {
            asked: LookupTarget { table: chain.descriptor(), max_value: bytes },
            clients: [client, others],
            memory: &memory,
            preset,
        };
        let (dpu, dpu_clients) = parts.dpu(dpu, &shared)?;
        let (core, core_clients) = parts.core(server)?;
        let (nic_clients, nic_ends) = parts.nic(server, &kernels)?;
        let (reader, reader_end) = parts.reader(server)?;
        let buffer = vec![0; reader.client.buffer_size()];
        let mut served = nic_ends;
        served.push(reader_end);
        Ok(Self {
            probes: [reader, dpu_clients.0, nic_clients.0, core_clients.0],
            crowds: [None, Some(dpu_clients.1), Some(nic_clients.1), Some(core_clients.1)],
            dpu,
            core,
            chain,
            memory: RegionTable::new(memory, server.device.clone()),
            store: preset.cpu_kernel.per_dma,
            next: NextEvents::default(),
            random: Box::new(world.with(|world| world.seed().stream("traffic of the check"))),
            buffer,
            bytes,
            _served: served,
            _hosts: hosts,
            world,
        })
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// Begins the traffic of a point.
    pub fn begin(&mut self, traffic: &PointTraffic) {
        let now = self.now();
        self.next.other = traffic.others.map(|mean| now + self.drawn(mean));
        self.next.update = traffic.updates.map(|mean| now + self.drawn(mean));
    }

    /// Ends it, and waits until nothing is under way.
    pub fn end(&mut self, way: AdvisedWay, traffic: &PointTraffic) -> anyhow::Result<()> {
        (self.next.other, self.next.update, self.next.backlog) = (None, None, 0);
        self.run(way, traffic, self.now() + REST)
    }

    /// A time whose mean is `mean`, exponentially distributed.
    fn drawn(&mut self, mean: Duration) -> Duration {
        let share = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        Duration::from_picos((-(1.0 - share).ln() * mean.as_picos() as f64) as u64)
    }

    /// Lets the traffic run for a while.
    pub fn run(&mut self, way: AdvisedWay, traffic: &PointTraffic, until: Time) -> anyhow::Result<()> {
        self.world.with(|world| world.wake_at(until));
        while self.now() < until {
            if !self.turn(way, traffic)? {
                self.wait(way, Some(until))?;
            }
        }
        Ok(())
    }

    /// Looks up the value after `traffic.hops` lines, and returns how long that took.
    pub fn lookup(&mut self, way: AdvisedWay, traffic: &PointTraffic) -> anyhow::Result<Duration> {
        let pause = self.drawn(PAUSE);
        self.run(way, traffic, self.now() + pause)?;
        let begin = self.now();
        let key = self.chain.key(traffic.hops)?.to_vec();
        let probe = &mut self.probes[way as usize];
        probe.client.start(begin, &mut probe.endpoint, &key).map_err(|error| anyhow!(error))?;
        loop {
            let active = self.turn(way, traffic)?;
            let now = self.now();
            let probe = &mut self.probes[way as usize];
            if let Some(result) = probe.client.poll(now, &mut probe.endpoint, &mut self.buffer) {
                self.check(&result, traffic.hops).with_context(|| format!("a lookup by {}", way.name()))?;
                return Ok(now.since(begin));
            }
            if !active {
                self.wait(way, None)?;
            }
        }
    }

    /// Whether a lookup found what is there, by the way that the point says.
    fn check(&self, result: &LookupResult, hops: u32) -> anyhow::Result<()> {
        let LookupResult { ended, length, retries, hops: read, .. } = *result;
        if ended != Ended::Found || length != self.bytes {
            bail!("the value of {} bytes after {hops} lines: {ended:?}, {length} bytes", self.bytes);
        }
        if retries == 0 && u32::from(read) != hops + 1 {
            bail!("a value after {hops} lines took {read} reads");
        }
        Ok(())
    }

    /// Does everything that can be done now; returns whether anything was.
    fn turn(&mut self, way: AdvisedWay, traffic: &PointTraffic) -> anyhow::Result<bool> {
        let now = self.now();
        self.write(now, traffic)?;
        self.ask(now, way, traffic)?;
        let dpu = self.dpu.poll(now);
        Ok(self.core.poll(now) || dpu)
    }

    /// Carries out the writer's next store, or begins the next update.
    fn write(&mut self, now: Time, traffic: &PointTraffic) -> anyhow::Result<()> {
        if let Some((_, store)) = self.next.store.take_if(|(at, _)| *at <= now) {
            self.memory.write(store.offset, &store.bytes).context("writing the table")?;
            self.next.store = self.chain.next_store().map(|store| (now + self.store, store));
        }
        if let (Some(mean), None) = (traffic.updates, &self.next.store)
            && self.next.update.is_some_and(|at| at <= now)
        {
            self.chain.update(now, traffic.hops)?;
            self.next.store = self.chain.next_store().map(|store| (now + self.store, store));
            self.next.update = Some(now + self.drawn(mean));
        }
        Ok(())
    }

    /// Starts the lookups of others that are due, and takes their answers.
    fn ask(&mut self, now: Time, way: AdvisedWay, traffic: &PointTraffic) -> anyhow::Result<()> {
        if let (Some(mean), Some(at)) = (traffic.others, self.next.other.filter(|at| *at <= now)) {
            self.next.backlog += 1;
            self.next.other = Some(at + self.drawn(mean));
        }
        let Some(crowd) = &mut self.crowds[way as usize] else { return Ok(()) };
        while let Some(result) = crowd.client.poll(now, &mut crowd.endpoint, &mut self.buffer) {
            if result.ended != Ended::Found {
                bail!("a lookup of others by {} ended with {:?}", way.name(), result.ended);
            }
        }
        while self.next.backlog > 0 {
            match crowd.client.start(now, &mut crowd.endpoint, self.chain.others()) {
                Ok(_) => self.next.backlog -= 1,
                Err(StartError::NoSlot(_)) => break,
                Err(error) => bail!("a lookup of others by {}: {error}", way.name()),
            }
        }
        Ok(())
    }

    /// Advances to the next moment at which anything can happen.
    fn wait(&self, way: AdvisedWay, until: Option<Time>) -> anyhow::Result<()> {
        let due = self.world.with(|world| world.next_event());
        let store = self.next.store.as_ref().map(|(at, _)| *at);
        let update = self.next.update.filter(|_| store.is_none());
        let probe = self.probes[way as usize].client.poll_timeout();
        let crowd = self.crowds[way as usize].as_ref().and_then(|crowd| crowd.client.poll_timeout());
        let served = [self.dpu.poll_timeout(), self.core.poll_timeout()];
        let all = [due, store, update, self.next.other, probe, crowd, until].into_iter().chain(served);
        match all.flatten().min() {
            Some(due) => {
                self.world.run_until(due);
                Ok(())
            }
            None => Err(anyhow!(self.world.with(|world| world.stalled(StallReason::Idle)))),
        }
    }
}

/// Time between two lookups that are measured, on the average.
const PAUSE: Duration = Duration::from_micros(5);
/// Long enough for what is under way when the traffic ends.
const REST: Duration = Duration::from_millis(1);

/// A cable that costs no time.
const FREE: LinkConfig = LinkConfig { bits_per_second: u64::MAX / 16, propagation: Duration::ZERO };

fn hosts(
    world: &SimWorld<Nic>,
    plan: &ColumnPlan<'_>,
    kernels: &NicKernels<BuiltInKernels>,
) -> anyhow::Result<[Host; 4]> {
    let switch = world.with(|world| {
        world.add_switch("switch", SwitchConfig { latency: Duration::ZERO, ..SwitchConfig::default() })
    });
    let config = |link| SceneConfig {
        seed: plan.seed,
        loss: 0.0,
        preset: Preset { link, ..plan.preset },
        memory: MemoryConfig::default(),
        records: false,
        changes: 0,
    };
    let (free, cable) = (config(FREE), config(plan.preset.link));
    let named = [("client", &free), ("others", &free), ("server", &cable), ("dpu", &cable)];
    let hosts = named.into_iter().zip(1..);
    let hosts = hosts.map(|((name, config), number)| host(world, config, switch, name, number, kernels));
    let hosts: Vec<Host> = hosts.collect::<anyhow::Result<_>>()?;
    hosts.try_into().map_err(|_| anyhow!("there are four hosts"))
}

/// Copies the table into memory of the server, and shares it with the DPU.
fn publish(world: &SimWorld<Nic>, server: &Host, bytes: &[u8]) -> anyhow::Result<(Memory, SharedRegion)> {
    let region = MemoryRegion::allocate(&server.domain, bytes.len(), AccessFlags::REMOTE_READ)
        .context("allocating memory for the table")?;
    region.copy_in(0, bytes).context("copying the table")?;
    let shared =
        SharedRegion::share(&region, access_key(world)?).context("sharing the table with the DPU")?;
    Ok((Rc::new(region), shared))
}

/// What the connections are made of.
struct ConnectionParts<'a> {
    asked: LookupTarget,
    clients: [&'a Host; 2],
    memory: &'a Memory,
    preset: Preset,
}

impl ConnectionParts<'_> {
    fn length(&self) -> u64 {
        self.memory.len() as u64
    }

    fn grant(&self) -> anyhow::Result<Grant> {
        Grant::new(self.memory.address(), self.length()).context("granting the table")
    }

    fn dpu(&self, dpu: &Host, shared: &SharedRegion) -> anyhow::Result<(CoreService<CardTable>, Clients)> {
        let serving =
            CoreSetup { asked: self.asked, server: dpu, clients: self.clients, cost: self.preset.dpu_kernel };
        let memory = serving.memory()?;
        let entries = completions(dpu, super::served::SLOTS as u32)?;
        let mut dma = CardDma::create(&dpu.domain, entries, &memory, 0)
            .context("creating a queue for DMA work requests")?;
        let alias = RemoteVhcaRegion::open(&dpu.domain, shared).context("making an alias of the table")?;
        let region = dma.add(alias).map_err(|_| anyhow!("the DMA channel has no room for the table"))?;
        let grant =
            Grant::within(region, self.memory.address(), self.length()).context("granting the table")?;
        serving.connected(memory, dma, grant)
    }

    fn core(&self, server: &Host) -> anyhow::Result<(CoreService<TableInPlace>, Clients)> {
        let serving =
            CoreSetup { asked: self.asked, server, clients: self.clients, cost: self.preset.cpu_kernel };
        let memory = serving.memory()?;
        let grant = Grant::within(HostRegion(0), 0, self.length()).context("granting the table")?;
        let dma = OwnMemory::new(RegionTable::new(Rc::clone(self.memory), server.device.clone()));
        serving.connected(memory, dma, grant)
    }

    fn nic(
        &self,
        server: &Host,
        kernels: &NicKernels<BuiltInKernels>,
    ) -> anyhow::Result<(Clients, Vec<Connected>)> {
        let [client, others] = self.clients;
        let grant = self.grant()?;
        let admit = |far: &Connected, window| {
            let region = kernels.admit(far.0.qpn(), window, grant).context("admitting a client")?;
            Ok(Way::KernelNic(region))
        };
        let (probe, one) = self.asked.joined([client, server], admit)?;
        let (crowd, other) = self.asked.of_others().joined([others, server], admit)?;
        Ok(((probe, crowd), vec![one, other]))
    }

    fn reader(&self, server: &Host) -> anyhow::Result<(WayClient<1>, Connected)> {
        let (rkey, region) = (self.memory.rkey().value(), self.grant()?);
        self.asked.joined([self.clients[0], server], |_, _| Ok(Way::Read { rkey, region }))
    }
}

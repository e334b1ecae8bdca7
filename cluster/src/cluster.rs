//! The cluster: its hosts and switches, what is scheduled, and the loop that runs it.

use crate::executor::Executor;
use crate::failure::{Failure, FailureCause, Report};
use crate::host::{Disk, Host, TaskResult, mac};
use crate::state::{Board, Boot, HostState, Port, State};
use bareverbs_hal_sim::{MemoryConfig, SimWorld};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::net::SwitchConfig;
use bareverbs_sim::nic::{Nic, NicConfig};
use bareverbs_sim::run::{Preset, SwitchId};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How a cluster is built.
#[derive(Debug, Clone, Copy)]
pub struct ClusterConfig {
    /// Ports of each host. Ports of the same number are one network; networks do not meet.
    pub ports: usize,
    /// Switches of each network, joined in a row. Hosts are spread over them in turn.
    pub switches: usize,
    /// Delays of NICs and links.
    pub preset: Preset,
    /// Memory of each host, for each port.
    pub memory: MemoryConfig,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self { ports: 1, switches: 1, preset: Preset::STROM_100G, memory: MemoryConfig::default() }
    }
}

/// How long firmware takes to start. Opening a device waits for it, and the whole cluster with it. After a crash it is what tells a driver at
/// once that its device was reset.
const FIRMWARE: Duration = Duration::from_micros(1);

type Action = Box<dyn FnOnce(&SimCluster)>;
type Invariant = Rc<dyn Fn(&SimCluster) -> Result<(), String>>;

/// Simulated hosts on switches, and what happens to them. Clones are the same cluster.
///
/// ```
/// use bareverbs_cluster::SimCluster;
/// use bareverbs_prm::time::Duration;
///
/// let cluster = SimCluster::new(7, 3);
/// for index in 0..cluster.hosts() {
///     cluster.boot(index, |host| async move {
///         host.sleep(Duration::from_micros(50)).await;
///         host.disk().append("log", b"up;");
///         Ok(())
///     });
/// }
/// cluster.schedule(Duration::from_micros(20), |cluster| cluster.crash(2));
/// cluster.schedule(Duration::from_micros(40), |cluster| cluster.restart(2));
/// cluster.always("a log only grows", |cluster| match cluster.disk(0).len("log") {
///     0 | 3 => Ok(()),
///     bytes => Err(format!("{bytes} bytes")),
/// });
/// let report = cluster.run(Duration::from_secs(1)).unwrap();
/// assert_eq!(report.at.as_nanos(), 90_000, "the third host began anew after 40 µs");
/// ```
#[derive(Clone)]
pub struct SimCluster {
    pub(crate) state: Rc<State>,
    plan: Rc<Plan>,
}

/// What the test wants of a run.
#[derive(Default)]
struct Plan {
    actions: RefCell<BTreeMap<(Time, u64), Action>>,
    scheduled: Cell<u64>,
    invariants: RefCell<Vec<(String, Invariant)>>,
    steps: Cell<u64>,
}

impl SimCluster {
    /// `hosts` with one port each, all on one switch.
    ///
    /// # Panics
    /// There are more hosts than addresses, 65,000.
    pub fn new(seed: u64, hosts: usize) -> Self {
        Self::with_config(seed, hosts, ClusterConfig::default())
    }

    /// Hosts and networks as `config` says.
    ///
    /// # Panics
    /// As [`Self::new`], or there are no switches, or more ports than 200.
    pub fn with_config(seed: u64, hosts: usize, config: ClusterConfig) -> Self {
        assert!(hosts <= 65_000 && config.ports <= 200 && config.switches > 0, "{hosts} hosts, {config:?}");
        let world = SimWorld::new(seed);
        let networks: Vec<_> = (0..config.ports).map(|port| add_network(&world, port, &config)).collect();
        let hosts = (0..hosts)
            .map(|index| {
                let ports = networks.iter().enumerate().map(|(port, switches)| {
                    add_port(&world, index, port, switches[index % switches.len()], &config)
                });
                HostState { ports: ports.collect(), is_up: true, ..HostState::default() }
            })
            .collect();
        let (executor, board) = (Executor::default(), RefCell::new(Board::default()));
        let state = State { world, seed, executor, hosts: RefCell::new(hosts), board };
        Self { state: Rc::new(state), plan: Rc::default() }
    }

    /// Hosts that there are.
    pub fn hosts(&self) -> usize {
        self.state.hosts.borrow().len()
    }

    /// The world: counters, capture, single frames, and everything else that a cluster has no word for.
    pub fn world(&self) -> &SimWorld {
        &self.state.world
    }

    /// The disk of a host, whether it is up or not: for invariants.
    pub fn disk(&self, host: usize) -> Disk {
        Disk::new(self.state.host(host, |host| host.disk.clone()))
    }

    /// Whether a host is up.
    pub fn is_up(&self, host: usize) -> bool {
        self.state.host(host, |host| host.is_up)
    }

    /// The present, in virtual time.
    pub fn now(&self) -> Time {
        self.state.world.now()
    }

    /// Starts `task` on a host, now and at each restart. A [run](Self::run) ends when all tasks that were started so have ended; one that
    /// a crash ended is not waited for, until the host restarts.
    pub fn boot<F: Future<Output = TaskResult> + 'static>(
        &self,
        host: usize,
        task: impl Fn(Host) -> F + 'static,
    ) {
        self.add_task(host, boot_of(task), true);
    }

    /// As [`Self::boot`], for a task that serves others: no run waits for its end.
    pub fn serve<F: Future<Output = TaskResult> + 'static>(
        &self,
        host: usize,
        task: impl Fn(Host) -> F + 'static,
    ) {
        self.add_task(host, boot_of(task), false);
    }

    fn add_task(&self, index: usize, boot: Boot, required: bool) {
        let boots = self.state.host(index, |host| {
            host.tasks.push((boot.clone(), required));
            host.is_up.then_some(host.boots)
        });
        if let Some(boots) = boots {
            self.start(index, boots, &boot, required);
        }
    }

    pub(crate) fn start(&self, index: usize, boots: u32, boot: &Boot, required: bool) {
        let task = boot(self.state.clone(), index, boots);
        self.state.executor.spawn(index, required, task);
    }

    /// Does something `after` so much virtual time from now.
    pub fn schedule(&self, after: Duration, action: impl FnOnce(&SimCluster) + 'static) {
        let (time, number) = (self.now() + after, self.plan.scheduled.get());
        self.plan.scheduled.set(number + 1);
        self.state.world.with(|world| world.wake_at(time));
        self.plan.actions.borrow_mut().insert((time, number), Box::new(action));
    }

    /// Checks `holds` after every event. What it compares is usually a model that the tasks write to, in an `Rc<RefCell<…>>`.
    pub fn always(&self, name: &str, holds: impl Fn(&SimCluster) -> Result<(), String> + 'static) {
        self.plan.invariants.borrow_mut().push((name.to_owned(), Rc::new(holds)));
    }

    /// Runs until all tasks that were started with [`Self::boot`] have ended.
    ///
    /// # Errors
    /// They have not after `limit` of virtual time, one ended with an error, or an invariant did not hold.
    pub fn run(&self, limit: Duration) -> Result<Report, Box<Failure>> {
        let end = self.now() + limit;
        self.advance(end, true)?;
        let hosts = self.state.executor.unfinished();
        if hosts.is_empty() {
            return Ok(self.report());
        }
        let world = self.state.world.with(|world| world.stalled(bareverbs_sim::run::StallReason::Deadline));
        Err(self.fail(FailureCause::Unfinished { hosts, world: Box::new(world) }))
    }

    /// Runs for `span` of virtual time, whatever has ended.
    ///
    /// # Errors
    /// A task ended with an error, or an invariant did not hold.
    pub fn run_for(&self, span: Duration) -> Result<Report, Box<Failure>> {
        self.advance(self.now() + span, false)?;
        Ok(self.report())
    }

    fn advance(&self, end: Time, until_done: bool) -> Result<(), Box<Failure>> {
        let world = &self.state.world;
        world.with(|world| world.wake_at(end));
        loop {
            self.settle()?;
            self.check()?;
            if self.now() >= end || until_done && self.is_done() {
                return Ok(());
            }
            world.step();
            self.plan.steps.set(self.plan.steps.get() + 1);
            let has_fired = |node, vector| {
                world.with(|world| world.pending_interrupts(node).any(|(fired, _)| fired == vector))
            };
            self.state.executor.wake_due(self.now(), has_fired);
        }
    }

    fn is_done(&self) -> bool {
        self.state.executor.unfinished().is_empty() && self.plan.actions.borrow().is_empty()
    }

    /// Does what is due, and polls tasks until all of them wait.
    fn settle(&self) -> Result<(), Box<Failure>> {
        loop {
            let due = {
                let mut actions = self.plan.actions.borrow_mut();
                let first = actions.first_entry().filter(|first| first.key().0 <= self.now());
                first.map(|first| first.remove())
            };
            if let Some(action) = due {
                action(self);
                continue;
            }
            let Some((id, host)) = self.state.executor.next_ready() else { return Ok(()) };
            let is_paused = self.state.host(host, |state| {
                if state.is_paused {
                    state.set_aside.push(id);
                }
                state.is_paused
            });
            if is_paused {
                continue;
            }
            if let Some(ended) = self.state.executor.poll(id) {
                let host = ended.host;
                ended
                    .result
                    .map_err(|error| self.fail(FailureCause::Task { host, error: error.to_string() }))?;
            }
        }
    }

    fn check(&self) -> Result<(), Box<Failure>> {
        let count = self.plan.invariants.borrow().len();
        for index in 0..count {
            let (name, holds) = self.plan.invariants.borrow()[index].clone();
            holds(self).map_err(|text| self.fail(FailureCause::Invariant { name, text }))?;
        }
        Ok(())
    }

    fn report(&self) -> Report {
        Report { at: self.now(), steps: self.plan.steps.get(), digest: self.state.world.digest() }
    }

    fn fail(&self, cause: FailureCause) -> Box<Failure> {
        let rounds = self.state.hosts.borrow().iter().filter_map(|host| host.last_round.clone()).collect();
        Box::new(Failure { cause, at: self.now(), seed: self.state.seed, rounds })
    }
}

impl Drop for Plan {
    /// Actions may hold the cluster, which holds them.
    fn drop(&mut self) {
        self.actions.get_mut().clear();
    }
}

fn boot_of<F: Future<Output = TaskResult> + 'static>(task: impl Fn(Host) -> F + 'static) -> Boot {
    Rc::new(move |state, index, boot| Box::pin(task(Host::new(state, index, boot))))
}

fn add_network(world: &SimWorld, port: usize, config: &ClusterConfig) -> Vec<SwitchId> {
    let switches: Vec<_> = (0..config.switches)
        .map(|number| {
            let name = format!("switch {number} of network {port}");
            world.with(|world| world.add_switch(&name, SwitchConfig::default()))
        })
        .collect();
    for pair in switches.windows(2) {
        world.connect(pair[0], pair[1], config.preset.link).expect("a row of switches has no loop");
    }
    switches
}

fn add_port(world: &SimWorld, host: usize, port: usize, switch: SwitchId, config: &ClusterConfig) -> Port {
    let config_of_nic = NicConfig { firmware_ready_after: FIRMWARE, ..NicConfig::new(mac(host, port)) };
    let nic = Nic::new(config_of_nic);
    let name = if config.ports == 1 { format!("host {host}") } else { format!("host {host} port {port}") };
    let node = world.add_node(&name, nic, config.preset.node, config.memory);
    let link =
        world.connect(node, switch, config.preset.link).expect("a new port, with an address of its own");
    Port { node, link, switch }
}

impl fmt::Debug for SimCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, seed) = (self.hosts(), self.state.seed);
        f.debug_struct("SimCluster").field("hosts", &hosts).field("seed", &seed).finish_non_exhaustive()
    }
}

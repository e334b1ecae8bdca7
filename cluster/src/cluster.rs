//! The cluster: hosts, switches, scheduled actions, and the loop that runs it all.

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

/// Configuration of a cluster.
///
/// ```
/// use bareverbs_cluster::{ClusterConfig, SimCluster};
///
/// // Two networks, each of two switches with a cable between them.
/// let config = ClusterConfig { ports: 2, switches: 2, ..ClusterConfig::default() };
/// let cluster = SimCluster::with_config(7, 4, config);
/// assert_eq!(cluster.hosts(), 4);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ClusterConfig {
    /// Ports per host. Ports with the same index form one network; the networks are not connected to each other.
    pub ports: usize,
    /// Switches per network, connected in a chain. Hosts are assigned to them round-robin.
    pub switches: usize,
    /// Latencies of NICs and links.
    pub preset: Preset,
    /// Memory of each port of each host.
    pub memory: MemoryConfig,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self { ports: 1, switches: 1, preset: Preset::STROM_100G, memory: MemoryConfig::default() }
    }
}

/// Startup time of the firmware. Opening a device waits for it, and the whole cluster waits with it. After a crash,
/// this delay lets a driver notice immediately that its device was reset.
const FIRMWARE: Duration = Duration::from_micros(1);

type Action = Box<dyn FnOnce(&SimCluster)>;
type Invariant = Rc<dyn Fn(&SimCluster) -> Result<(), String>>;

/// A cluster of simulated hosts and switches, and its schedule. Clones refer to the same cluster.
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
    schedule: Rc<Schedule>,
}

/// Scheduled actions and invariants of a run.
#[derive(Default)]
struct Schedule {
    actions: RefCell<BTreeMap<(Time, u64), Action>>,
    scheduled: Cell<u64>,
    invariants: RefCell<Vec<(String, Invariant)>>,
    steps: Cell<u64>,
}

impl SimCluster {
    /// A cluster of `hosts` hosts with one port each, on one switch.
    ///
    /// # Panics
    /// `hosts` exceeds 65,000, the number of addresses.
    pub fn new(seed: u64, hosts: usize) -> Self {
        Self::with_config(seed, hosts, ClusterConfig::default())
    }

    /// A cluster built according to `config`.
    ///
    /// # Panics
    /// Like [`Self::new`]; also if `config` has no switch or more than 200 ports.
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
        Self { state: Rc::new(state), schedule: Rc::default() }
    }

    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.state.hosts.borrow().len()
    }

    /// The simulated world below: counters, captures, single frames, and everything else without a method here.
    pub fn world(&self) -> &SimWorld {
        &self.state.world
    }

    /// The disk of a host, whether the host is up or down. Meant for invariants.
    pub fn disk(&self, host: usize) -> Disk {
        Disk::new(self.state.host(host, |host| host.disk.clone()))
    }

    /// Whether a host is up.
    pub fn is_up(&self, host: usize) -> bool {
        self.state.host(host, |host| host.is_up)
    }

    /// Current virtual time.
    pub fn now(&self) -> Time {
        self.state.world.now()
    }

    /// Starts `task` on a host, now and after every restart. A [run](Self::run) ends when all tasks started this way
    /// have ended. It does not wait for a task that a crash killed, until the host restarts.
    pub fn boot<F: Future<Output = TaskResult> + 'static>(
        &self,
        host: usize,
        task: impl Fn(Host) -> F + 'static,
    ) {
        self.add_task(host, boot_of(task), true);
    }

    /// Like [`Self::boot`], for a server task: no run waits for it to end.
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

    /// Runs `action` after `after` of virtual time.
    pub fn schedule(&self, after: Duration, action: impl FnOnce(&SimCluster) + 'static) {
        let (time, number) = (self.now() + after, self.schedule.scheduled.get());
        self.schedule.scheduled.set(number + 1);
        self.state.world.with(|world| world.wake_at(time));
        self.schedule.actions.borrow_mut().insert((time, number), Box::new(action));
    }

    /// Checks the invariant `holds` after every event. It usually compares against a model that the tasks update
    /// through an `Rc<RefCell<…>>`.
    pub fn always(&self, name: &str, holds: impl Fn(&SimCluster) -> Result<(), String> + 'static) {
        self.schedule.invariants.borrow_mut().push((name.to_owned(), Rc::new(holds)));
    }

    /// Runs until all tasks started with [`Self::boot`] have ended.
    ///
    /// # Errors
    /// Some task is still running after `limit` of virtual time, a task returned an error, or an invariant was
    /// violated.
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

    /// Runs for `span` of virtual time, regardless of which tasks have ended.
    ///
    /// # Errors
    /// A task returned an error, or an invariant was violated.
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
            self.schedule.steps.set(self.schedule.steps.get() + 1);
            let has_fired = |node, vector| {
                world.with(|world| world.pending_interrupts(node).any(|(fired, _)| fired == vector))
            };
            self.state.executor.wake_due(self.now(), has_fired);
        }
    }

    fn is_done(&self) -> bool {
        self.state.executor.unfinished().is_empty() && self.schedule.actions.borrow().is_empty()
    }

    /// Runs everything that is due, and polls tasks until all of them wait.
    fn settle(&self) -> Result<(), Box<Failure>> {
        loop {
            let due = {
                let mut actions = self.schedule.actions.borrow_mut();
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
        let count = self.schedule.invariants.borrow().len();
        for index in 0..count {
            let (name, holds) = self.schedule.invariants.borrow()[index].clone();
            holds(self).map_err(|text| self.fail(FailureCause::Invariant { name, text }))?;
        }
        Ok(())
    }

    fn report(&self) -> Report {
        Report { at: self.now(), steps: self.schedule.steps.get(), digest: self.state.world.digest() }
    }

    fn fail(&self, cause: FailureCause) -> Box<Failure> {
        let rounds = self.state.hosts.borrow().iter().filter_map(|host| host.last_round.clone()).collect();
        Box::new(Failure { cause, at: self.now(), seed: self.state.seed, rounds })
    }
}

impl Drop for Schedule {
    /// Breaks the reference cycle: scheduled actions may hold the cluster.
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

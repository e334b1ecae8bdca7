//! The device: registers, tables, queues, and operations on all of them.
//!
//! **What it may not do.** It handles no input: `router` does that, and `firmware` executes commands. Both work on this
//! state.

mod card;
mod counter_sets;
mod observed;
mod parts;
mod performance_agent;
mod subnet_agent;

pub(in crate::nic) use parts::DeviceParts;

use super::config::NicConfig;
use super::contexts::Slab;
use super::counters::{CongestionTally, Counters};
use super::extension::RpcEngine;
use super::firmware_state::{ClearedCounters, Firmware};
use super::flow_control::FlowControl;
use super::memory::HostMemory;
use super::multicast::Groups;
use super::page_list::PageBudget;
use super::port::Port;
use super::port_link::LinkHistory;
use super::queue_counters::{self, CounterSets};
use super::queue_pair::{FinishedFrame, QueuePair};
use super::schedule::TurnSchedule;
use super::shared_parts::SharedParts;
use super::shared_receive;
use super::syndrome::Refusal;
use super::trace::{CommandRecord, CommandTrace};
use super::user_memory::{FIRST_UMEM, UserMemory};
use super::{ethernet, pci, registers};
use crate::wire::management::PortState;
use crate::wire::management::performance::PerformanceAgent;
use bareverbs_prm::doorbell::UAR_PAGE_SIZE;
use bareverbs_prm::eqe::{PageRequestEvent, PortEvent};
use bareverbs_prm::numbering::{CommandOpcode, EventType, PortChange};
use bareverbs_prm::time::Time;
use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;

/// First number of a user context: zero is the driver.
const FIRST_UCTX: u32 = 1;

/// A simulated mlx5 device.
///
/// ```
/// use bareverbs_prm::doorbell::init_segment::INITIALIZING;
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_prm::time::{Duration, Time};
/// use bareverbs_sim::nic::{Nic, NicConfig};
/// use bareverbs_sim::run::Device;
///
/// let mut nic = Nic::new(NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1])));
/// let mut is_initializing = |now| nic.handle_mmio_read(now, INITIALIZING as u64) >> 31 == 1;
/// assert!(is_initializing(Time::ZERO));
/// assert!(!is_initializing(Time::ZERO + Duration::from_millis(1)));
/// ```
pub struct Nic {
    pub(super) config: NicConfig,
    pub(super) registers: registers::Registers,
    pub(super) pci: pci::ConfigSpace,
    pub(super) firmware: Firmware,
    /// What queues may use.
    pub(super) shared: SharedParts,
    pub(super) uars: Slab<()>,
    pub(super) user_contexts: Slab<()>,
    pub(super) user_memory: Slab<Arc<UserMemory>>,
    /// Budget for the page lists of queues and user memory objects.
    pub(super) pages: PageBudget,
    pub(super) queue_pairs: Slab<QueuePair>,
    pub(super) counter_sets: CounterSets,
    pub(super) xrc_domains: Slab<()>,
    pub(super) groups: Groups,
    /// The queue pair whose frame is currently being looped back.
    pub(super) looping: Option<bareverbs_prm::ids::Qpn>,
    pub(super) flow: FlowControl,
    pub(super) ethernet: ethernet::EthernetObjects,
    pub(super) schedule: TurnSchedule,
    /// How often the link went down.
    pub(super) times_down: u64,
    /// How often a reset made a link that was up train anew.
    trainings: u64,
    /// Counters of the port at the time when they were last cleared.
    pub(super) cleared: ClearedCounters,
    pub(super) last_refusal: Option<(CommandOpcode, Refusal)>,
    pub(super) trace: CommandTrace,
    /// The link changed and software has not been notified yet: events need host memory, which
    /// [`Self::set_link_up`] cannot access.
    pub(super) link_changed: bool,
    /// Counter values set through an InfiniBand port's performance agent.
    pub(super) performance: PerformanceAgent,
    /// Complete frames that wait for the wire: datagrams, and responses of the port's agents.
    pub(super) outbox: VecDeque<FinishedFrame>,
}

impl Nic {
    /// A device that has just been powered on.
    pub fn new(config: NicConfig) -> Self {
        let bar_size = u64::from(config.bar_pages) * UAR_PAGE_SIZE as u64;
        Self {
            registers: registers::Registers::new(&config, Time::ZERO),
            pci: pci::ConfigSpace::new(&config, bar_size),
            firmware: Firmware::new(&config),
            shared: SharedParts::new(&config),
            uars: Slab::new(registers::FIRST_UAR, 24),
            user_contexts: Slab::new(FIRST_UCTX, 16),
            user_memory: Slab::new(FIRST_UMEM, 24),
            pages: PageBudget::default(),
            queue_pairs: Slab::new(config.queue_pair_numbers.first(), 24),
            counter_sets: queue_counters::counter_sets(),
            xrc_domains: Slab::new(shared_receive::FIRST_XRCD, 24),
            groups: Groups::default(),
            looping: None,
            flow: FlowControl::new(&config),
            ethernet: ethernet::EthernetObjects::new(),
            schedule: TurnSchedule::new(config.queue_pair_numbers.first()),
            times_down: 0,
            trainings: 0,
            cleared: ClearedCounters::default(),
            last_refusal: None,
            trace: CommandTrace::default(),
            link_changed: false,
            performance: PerformanceAgent::default(),
            outbox: VecDeque::new(),
            config,
        }
    }

    /// Configuration of the device.
    pub const fn config(&self) -> &NicConfig {
        &self.config
    }

    /// Function-level or bus reset: drops all objects, pages and registers. Counters, the link and the RPC engine stay.
    pub fn reset(&mut self, now: Time) {
        let config = self.config;
        let link_up = self.shared.port.link.is_plugged();
        self.trainings += u64::from(self.shared.port.is_up());
        self.forget_objects();
        self.registers = registers::Registers::new(&config, now);
        self.firmware = Firmware::new(&config);
        self.pci = pci::ConfigSpace::new(&config, self.bar_size());
        self.shared.port = Port::new(&config);
        self.flow.reset(&config);
        self.shared.port.link.set_plugged(link_up);
        self.last_refusal = None;
        self.link_changed = false;
    }

    /// Drops everything that INIT_HCA and later commands created.
    pub(super) fn forget_objects(&mut self) {
        self.queue_pairs.clear();
        self.shared.shared_receives.clear();
        self.groups = Groups::default();
        self.xrc_domains.clear();
        self.counter_sets.clear();
        self.shared.completions.clear();
        self.shared.events.queues.clear();
        self.shared.events.interrupts.clear();
        self.shared.mkeys.clear();
        if let Some(card) = &mut self.shared.optional.card {
            card.forget();
        }
        self.user_memory.clear();
        self.user_contexts.clear();
        self.uars.clear();
        self.shared.domains.clear();
        self.ethernet.clear();
        self.schedule = TurnSchedule::new(self.config.queue_pair_numbers.first());
        // A paused port stays paused after a reset.
        if let Some(until) = self.flow.poll_timeout() {
            self.schedule.wake_at(until);
        }
        self.outbox.clear();
        self.flow.forget_frame();
        self.shared.mkeys.budget().begin_turn();
    }

    /// Starts without a cable. This does not count as a link that went down.
    pub const fn begin_without_cable(&mut self) {
        self.shared.port.link.set_plugged(false);
    }

    /// Plugs in or pulls the cable. Software is notified with the next input.
    pub fn set_link_up(&mut self, up: bool) {
        self.link_changed |= up != self.shared.port.link.is_plugged();
        self.times_down += u64::from(self.shared.port.is_up() && !up);
        self.shared.port.link.set_plugged(up);
        self.shared.port.initialize();
    }

    /// The link of the port, as the far end of the cable sees it.
    pub const fn link(&self) -> LinkHistory {
        LinkHistory { is_up: self.shared.port.is_up(), drops: self.times_down, trainings: self.trainings }
    }

    /// Installs an engine for StRoM's opcodes. It is only used if [`NicConfig::strom`] is set.
    pub fn set_extension(&mut self, engine: Box<dyn RpcEngine>) {
        self.shared.optional.engine = Some(engine);
    }

    /// The next MSI-X vector to send.
    pub fn poll_interrupt(&mut self) -> Option<u16> {
        self.shared.events.interrupts.poll()
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        Counters {
            completions: self.shared.completions.log.written,
            completions_compressed: self.shared.completions.log.compressed,
            completion_overruns: self.shared.completions.log.overruns,
            completions_without_queue: self.shared.completions.log.without_queue,
            events_lost: self.shared.events.lost,
            interrupts: self.shared.events.interrupts.raised,
            ..self.shared.counters
        }
    }

    /// The last refused command, and the reason.
    pub const fn last_refusal(&self) -> Option<(CommandOpcode, Refusal)> {
        self.last_refusal
    }

    /// Unknown commands that were issued, with their counts, in opcode order.
    pub fn unknown_commands(&self) -> impl Iterator<Item = (CommandOpcode, u64)> + '_ {
        self.firmware.unknown.iter().map(|(&opcode, &count)| (CommandOpcode::from_raw(opcode), count))
    }

    /// The congestion counters since the last clearing.
    pub(crate) fn congestion_counters(&mut self, clear: bool) -> CongestionTally {
        if clear { core::mem::take(&mut self.shared.congestion) } else { self.shared.congestion }
    }

    /// Counts a frame that leaves the port.
    #[inline]
    pub(super) fn count_sent(&mut self, frame: &[u8]) {
        self.ethernet.traffic.count_sent(&mut self.shared.counters, frame);
    }

    /// Counts a frame that was received by a queue of the port.
    #[inline]
    pub(super) fn count_received(&mut self, frame: &[u8]) {
        self.ethernet.traffic.count_received(&mut self.shared.counters, frame);
    }

    /// Numbers of live objects: protection domains, memory keys, completion queues, queue pairs, event queues, UARs.
    pub fn live_objects(&self) -> [usize; 6] {
        [
            self.shared.domains.len(),
            self.shared.mkeys.len(),
            self.shared.completions.queues.len(),
            self.queue_pairs.len(),
            self.shared.events.queues.len(),
            self.uars.len(),
        ]
    }

    /// Size of BAR0 in bytes.
    pub const fn bar_size(&self) -> u64 {
        self.config.bar_pages as u64 * UAR_PAGE_SIZE as u64
    }

    /// Starts or stops recording commands. A reset does not change this.
    pub fn trace_commands(&mut self, on: bool) {
        self.trace.set_on(on);
    }

    /// The oldest command record not yet fetched.
    pub fn poll_command(&mut self) -> Option<CommandRecord> {
        self.trace.pop()
    }

    /// Requests `count` more pages by an event or, if negative, offers that many back. Real firmware does this when its
    /// tables grow or shrink; a driver must respond with MANAGE_PAGES at any time.
    pub fn request_pages<M: HostMemory>(&mut self, memory: &mut M, count: i32) {
        self.firmware.pages.want(count.max(0).unsigned_abs());
        let mut data = PageRequestEvent::new();
        data.set_num_pages(count as u32);
        self.shared.events.post(memory, EventType::PageRequest, 0, &data);
    }

    /// Number of host pages that the device holds.
    pub const fn held_pages(&self) -> usize {
        self.firmware.pages.held()
    }

    /// Whether commands and mailboxes are signed.
    pub(super) fn checksums(&self) -> bool {
        self.firmware.capabilities.checksums()
    }

    /// The follow-up to every input: queue pairs of broken completion queues enter the error state, link
    /// changes are reported, and moderated events get their deadlines.
    #[inline]
    pub(super) fn settle<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        if self.link_changed || !self.shared.completions.is_settled() {
            self.settle_changes(now, memory);
        }
    }

    #[inline(never)]
    fn settle_changes<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        if core::mem::take(&mut self.link_changed) {
            self.tell_link(memory);
        }
        self.shared.completions.flush(memory, &mut self.shared.events);
        while let Some(cqn) = self.shared.completions.log.newly_broken.pop() {
            self.break_users(now, memory, cqn);
            self.ethernet.stop_users(cqn);
            self.shared.completions.flush(memory, &mut self.shared.events);
        }
        self.count_failures();
        self.shared.completions.settle(now);
    }

    fn tell_link<M: HostMemory>(&mut self, memory: &mut M) {
        let change = match self.shared.port.state() {
            PortState::Active => PortChange::Active,
            PortState::Down => PortChange::Down,
            PortState::Initialize | PortState::Armed => PortChange::Initialized,
        };
        self.tell_port(memory, change);
    }

    pub(super) fn tell_port<M: HostMemory + ?Sized>(&mut self, memory: &mut M, change: PortChange) {
        let mut data = PortEvent::new();
        data.set_port(1);
        self.shared.events.post(memory, EventType::PortChange, change.raw(), &data);
    }
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [domains, keys, completion_queues, queue_pairs, event_queues, uars] = self.live_objects();
        f.debug_struct("Nic")
            .field("mac", &self.shared.port.mac())
            .field("state", &self.firmware.state)
            .field("domains", &domains)
            .field("keys", &keys)
            .field("completion_queues", &completion_queues)
            .field("queue_pairs", &queue_pairs)
            .field("event_queues", &event_queues)
            .field("uars", &uars)
            .finish_non_exhaustive()
    }
}

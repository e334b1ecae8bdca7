//! The device model: an mlx5 network adapter as a pure state machine with five inputs and three outputs.
//!
//! **What this is.** [`Nic`] is PCI configuration space, BAR0, the firmware behind its command queue, memory keys, work
//! and completion and event queues, and a port. Inputs: [`Nic::handle_mmio_read`], [`Nic::handle_mmio_write`],
//! [`Nic::handle_config_write`], [`Nic::handle_frame`], [`Nic::handle_timeout`]. Outputs: [`Nic::poll_transmit`],
//! [`Nic::poll_interrupt`] and what is written to [`HostMemory`]; [`Nic::poll_timeout`] says when to come back.
//!
//! **What it may not do.** It knows no delay: what an input causes has happened when the call returns, but for what waits
//! for the wire. It believes nothing: whatever a driver, a peer or memory says is checked, and a DMA access that faults
//! becomes a delivery status, an error completion or an event, never a panic.
//!
//! **Where to read first.** [`bar`](self) for what registers do, `firmware` for commands, `queue_pair` for what a queue pair does with
//! its inputs, `receive` and `transmit` for how frames reach queue pairs and leave them, `ethernet` for packets that are not
//! RDMA's.
//!
//! Frames between two queue pairs of one device do not leave it: they are handed back inside [`Nic::poll_transmit`].

mod bar;
mod buffer;
mod bus;
mod completion;
mod config;
mod contexts;
mod counters;
mod cqe;
mod datagrams;
mod ethernet;
mod event;
mod extension;
mod features;
pub mod firmware;
mod interrupt;
mod memory;
mod mkey;
mod multicast;
mod pci;
mod port;
mod queue_counters;
mod queue_pair;
mod queue_pairs;
mod receive;
mod receive_queue;
mod schedule;
mod send_queue;
mod send_ring;
mod shared_receive;
mod strict;
mod subnet_agent;
mod trace;
mod transmit;
mod user_memory;
pub mod wqe;

#[cfg(test)]
mod tests;

pub use config::{CONNECTX5, Limits, LinkLayer, NicConfig, PortSpeed, Subnet};
pub use counters::Counters;
pub use extension::{RpcEngine, RpcReply};
pub use firmware::syndrome::Refusal;
pub use memory::{DmaFault, HostMemory};
pub use mkey::HostRange;
pub use pci::VENDOR_ID;
pub use queue_pair::{Transmit, TransmitClass};
pub use trace::CommandRecord;

use crate::wire::management::PortState;
use bareverbs_prm::eqe::PortEvent;
use bareverbs_prm::numbering::{CommandOpcode, EventType, PortChange};
use bareverbs_prm::time::Time;
use contexts::Slab;
use core::fmt;
use firmware::Firmware;
use mkey::MkeyTable;
use port::Port;
use queue_pair::QueuePair;
use schedule::TurnSchedule;
use std::collections::VecDeque;
use std::sync::Arc;

/// First protection domain number.
const FIRST_PD: u32 = 1;

/// A simulated mlx5 device.
pub struct Nic {
    config: NicConfig,
    registers: bar::Registers,
    pci: pci::ConfigSpace,
    firmware: Firmware,
    domains: Slab<()>,
    uars: Slab<()>,
    user_memory: Slab<Arc<user_memory::UserMemory>>,
    mkeys: MkeyTable,
    events: event::EventQueues,
    completions: completion::CompletionQueues,
    queue_pairs: Slab<QueuePair>,
    congestion: counters::CongestionTally,
    counter_sets: queue_counters::CounterSets,
    xrc_domains: Slab<()>,
    shared_receives: Slab<shared_receive::SharedReceiveQueue>,
    groups: multicast::Groups,
    /// The queue pair whose frame comes back to this device at the moment.
    looping: Option<bareverbs_prm::ids::Qpn>,
    port: Port,
    ethernet: ethernet::EthernetObjects,
    schedule: TurnSchedule,
    engine: Option<Box<dyn RpcEngine>>,
    counters: Counters,
    /// Times that the link went down.
    times_down: u64,
    /// Counters of the port, as they were when they were cleared.
    cleared: firmware::Cleared,
    last_refusal: Option<(CommandOpcode, Refusal)>,
    trace: trace::CommandTrace,
    /// The link changed and nobody was told yet; events need memory, which [`Self::set_link_up`] has not.
    link_changed: bool,
    /// Frames that are complete: datagrams, and answers of the port's agents.
    outbox: VecDeque<queue_pair::FinishedFrame>,
}

impl Nic {
    /// A device that was just powered on.
    pub fn new(config: NicConfig) -> Self {
        let bar_size = u64::from(config.bar_pages) * bareverbs_prm::doorbell::UAR_PAGE_SIZE as u64;
        Self {
            registers: bar::Registers::new(&config, Time::ZERO),
            pci: pci::ConfigSpace::new(&config, bar_size),
            firmware: Firmware::new(&config),
            domains: Slab::new(FIRST_PD, 24),
            uars: Slab::new(bar::FIRST_UAR, 24),
            user_memory: Slab::new(firmware::FIRST_UMEM, 24),
            mkeys: MkeyTable::new(),
            events: event::EventQueues::new(),
            completions: completion::CompletionQueues::new(),
            queue_pairs: Slab::new(queue_pair::FIRST_QP, 24),
            congestion: counters::CongestionTally::default(),
            counter_sets: queue_counters::counter_sets(),
            xrc_domains: Slab::new(shared_receive::FIRST_XRCD, 24),
            shared_receives: Slab::new(shared_receive::FIRST_SRQ, 24),
            groups: multicast::Groups::default(),
            looping: None,
            port: Port::new(&config),
            ethernet: ethernet::EthernetObjects::new(),
            schedule: TurnSchedule::default(),
            engine: None,
            counters: Counters::default(),
            times_down: 0,
            cleared: firmware::Cleared::default(),
            last_refusal: None,
            trace: trace::CommandTrace::default(),
            link_changed: false,
            outbox: VecDeque::new(),
            config,
        }
    }

    /// How the device was made.
    pub const fn config(&self) -> &NicConfig {
        &self.config
    }

    /// Function-level reset or reset of the bus: every object, page and register is forgotten. Counters, link and the
    /// engine behind the RPC op-codes stay.
    pub fn reset(&mut self, now: Time) {
        let config = self.config;
        let link_up = self.port.link_up;
        self.forget_objects();
        self.registers = bar::Registers::new(&config, now);
        self.firmware = Firmware::new(&config);
        self.pci = pci::ConfigSpace::new(&config, self.bar_size());
        self.port = Port::new(&config);
        self.port.link_up = link_up;
        self.last_refusal = None;
        self.link_changed = false;
    }

    /// Forgets what INIT_HCA and later commands made.
    fn forget_objects(&mut self) {
        self.queue_pairs.clear();
        self.shared_receives.clear();
        self.groups = multicast::Groups::default();
        self.xrc_domains.clear();
        self.counter_sets.clear();
        self.completions.clear();
        self.events.queues.clear();
        self.events.interrupts.clear();
        self.mkeys.clear();
        self.user_memory.clear();
        self.uars.clear();
        self.domains.clear();
        self.ethernet.clear();
        self.schedule = TurnSchedule::default();
        self.outbox.clear();
    }

    /// The cable was plugged in or pulled out. Software learns of it with the next input.
    pub fn set_link_up(&mut self, up: bool) {
        self.link_changed |= up != self.port.link_up;
        self.times_down += u64::from(self.port.is_up() && !up);
        self.port.link_up = up;
        self.port.train();
    }

    /// Puts an engine behind StRoM's op-codes. It is asked only if [`NicConfig::strom`] is set.
    pub fn set_extension(&mut self, engine: Box<dyn RpcEngine>) {
        self.engine = Some(engine);
    }

    /// The next MSI-X vector to send.
    pub fn poll_interrupt(&mut self) -> Option<u16> {
        self.events.interrupts.poll()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        Counters {
            completions: self.completions.written,
            completions_compressed: self.completions.compressed,
            completion_overruns: self.completions.overruns,
            events_lost: self.events.lost,
            interrupts: self.events.interrupts.raised,
            ..self.counters
        }
    }

    /// The command that was refused last, and why.
    pub const fn last_refusal(&self) -> Option<(CommandOpcode, Refusal)> {
        self.last_refusal
    }

    /// Commands that were asked for and that the device does not have, each with how often, in order of opcodes.
    pub fn unknown_commands(&self) -> impl Iterator<Item = (CommandOpcode, u64)> + '_ {
        self.firmware.unknown.iter().map(|(&opcode, &count)| (CommandOpcode::from_raw(opcode), count))
    }

    /// What was counted of congestion since the last clearing.
    pub(crate) fn congestion_counters(&mut self, clear: bool) -> counters::CongestionTally {
        if clear { core::mem::take(&mut self.congestion) } else { self.congestion }
    }

    /// Live objects: protection domains, memory keys, completion queues, queue pairs, event queues, UARs.
    pub fn live_objects(&self) -> [usize; 6] {
        [
            self.domains.len(),
            self.mkeys.len(),
            self.completions.queues.len(),
            self.queue_pairs.len(),
            self.events.queues.len(),
            self.uars.len(),
        ]
    }

    /// Whether commands and mailboxes are signed.
    fn checksums(&self) -> bool {
        self.firmware.capabilities.checksums()
    }

    /// What must follow every input: queue pairs of broken completion queues die, link changes are told, events that
    /// moderation holds back get their time.
    fn settle<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        if core::mem::take(&mut self.link_changed) {
            self.tell_link(memory);
        } else if self.completions.is_settled() {
            return;
        }
        self.completions.flush(memory, &mut self.events);
        while let Some(cqn) = self.completions.newly_broken.pop() {
            self.break_users(now, memory, cqn);
            self.ethernet.stop_users(cqn);
            self.completions.flush(memory, &mut self.events);
        }
        self.count_failures();
        self.completions.settle(now);
    }

    fn tell_link<M: HostMemory>(&mut self, memory: &mut M) {
        let change = match self.port.state() {
            PortState::Active => PortChange::Active,
            PortState::Down => PortChange::Down,
            PortState::Initialize | PortState::Armed => PortChange::Initialized,
        };
        self.tell_port(memory, change);
    }

    fn tell_port<M: HostMemory>(&mut self, memory: &mut M, change: PortChange) {
        let mut data = PortEvent::new();
        data.set_port(1);
        self.events.post(memory, EventType::PortChange, change.raw(), &data);
    }
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [domains, keys, completion_queues, queue_pairs, event_queues, uars] = self.live_objects();
        f.debug_struct("Nic")
            .field("mac", &self.port.mac())
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

//! Channels: event queues for completions only, each with an interrupt vector of its own.
//!
//! A channel belongs to who waits on it; the device's own event queue goes on serving everything else. Completion queues
//! are bound to a channel when they are made. Nobody but its owner touches a channel, so it needs no lock.

use crate::command::{CommandError, Request};
use crate::device::control::Doomed;
use crate::device::{DeviceRef, DmaOf};
use crate::events::{self, AsyncEvent, EventQueue, EventQueueError, Sorted, sort};
use crate::hal::{Hal, HalError, Noticed};
use bareverbs_prm::command::eq::CreateEqOut;
use bareverbs_prm::ids::{Cqn, Eqn};
use bareverbs_prm::numbering::CommandOpcode;
use bareverbs_prm::time::Time;
use core::fmt;

/// Events of other queues that are kept while one is waited for.
const KEPT: usize = 64;

/// An event queue for completions.
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel<D: DeviceRef> {
    device: D,
    queue: EventQueue<DmaOf<D>>,
    kept: heapless::Vec<Cqn, KEPT>,
    /// An event could not be kept: whose it was nobody knows, so everybody has to look.
    forgot: bool,
}

/// Why a channel could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelError {
    /// There is no memory.
    Memory(HalError),
    /// The device refused: it has no such vector, or no event queue left.
    Command {
        /// The interrupt vector that was asked for.
        vector: u16,
        /// What the device said.
        error: CommandError,
    },
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Memory(error) => write!(f, "a completion channel: {error}"),
            Self::Command { vector, error } => {
                write!(f, "a completion channel on interrupt vector {vector}: {error}")
            }
        }
    }
}

impl core::error::Error for ChannelError {}

impl<D: DeviceRef> CompletionChannel<D> {
    /// Creates a channel that raises interrupt `vector` and holds `entries` events, rounded up to a power of two: one for
    /// each completion queue that is bound to it is enough, because an arming brings one event.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create(device: D, vector: u16, entries: u32) -> Result<Self, ChannelError> {
        let here = device.device();
        let mut queue =
            EventQueue::allocate(here.hal(), entries, here.uar()).map_err(ChannelError::Memory)?;
        let (input, run) = queue.create_input(here.config().log_max_page, vector, 0);
        match here.call::<CreateEqOut>(&Request::with_tail(&input, run.list(0))) {
            Ok(output) => queue.eqn = output.eq_number(),
            Err(error) => {
                if error.status().is_none() {
                    core::mem::forget(queue);
                }
                return Err(ChannelError::Command { vector, error });
            }
        }
        Ok(Self { device, queue, kept: heapless::Vec::new(), forgot: false })
    }

    /// The number of its event queue.
    pub fn number(&self) -> Eqn {
        self.queue.eqn
    }

    /// Whether the device still writes events of completions here. A channel with fewer entries than bound completion queues
    /// can overrun; completions themselves are not lost by that.
    pub fn check(&self) -> Result<(), EventQueueError> {
        events::check(self.device.device(), self.queue.eqn)
    }

    /// The next completion queue whose event came, if there is one.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn poll(&mut self) -> Option<Cqn> {
        self.kept.pop().or_else(|| self.next())
    }

    /// Waits until `deadline` for the event of any queue.
    pub fn wait(&mut self, deadline: Time) -> Option<Cqn> {
        loop {
            let before = self.device.device().hal().noticed();
            if let Some(cqn) = self.poll() {
                return Some(cqn);
            }
            if !self.relax(before, deadline) {
                return self.poll();
            }
        }
    }

    /// Waits until `deadline` for the event of `cqn`; events of others are kept for [`Self::poll`]. May wake up without
    /// an event, so look at the queue.
    pub fn wait_for(&mut self, cqn: Cqn, deadline: Time) -> bool {
        loop {
            let before = self.device.device().hal().noticed();
            if self.take_kept(cqn) {
                return true;
            }
            while let Some(other) = self.next() {
                if other == cqn {
                    return true;
                }
                self.keep(other);
            }
            if !self.relax(before, deadline) || self.forgot {
                return false;
            }
        }
    }

    fn keep(&mut self, cqn: Cqn) {
        if !self.kept.contains(&cqn) && self.kept.push(cqn).is_err() {
            self.forgot = true;
        }
    }

    fn take_kept(&mut self, cqn: Cqn) -> bool {
        let found = self.kept.iter().position(|&kept| kept == cqn);
        if let Some(at) = found {
            self.kept.swap_remove(at);
        }
        found.is_some()
    }

    /// The next event in the ring.
    fn next(&mut self) -> Option<Cqn> {
        let hal = self.device.device().hal();
        while let Some(entry) = self.queue.poll(hal) {
            self.queue.acknowledge(hal);
            if let Sorted::Event(AsyncEvent::Completion { cqn }) = sort(&entry) {
                return Some(cqn);
            }
        }
        None
    }

    /// Lets the place do something else until an interrupt that came after `before` or until `deadline`; `false` if that is
    /// over. An interrupt that another thread took in the meantime counts: it is noticed by the place, not by a thread.
    fn relax(&mut self, before: Noticed, deadline: Time) -> bool {
        let device = self.device.device();
        if device.hal().now() >= deadline {
            return false;
        }
        // The interrupt comes at once if there is an event already.
        self.queue.arm(device.hal());
        device.hal().relax_since(before, deadline);
        true
    }
}

impl<D: DeviceRef> fmt::Debug for CompletionChannel<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").field("eqn", &self.queue.eqn).finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for CompletionChannel<D> {
    /// Dropped before its completion queues, it goes away after them.
    #[doc(alias = "ibv_destroy_comp_channel")]
    fn drop(&mut self) {
        let doomed = Doomed { opcode: CommandOpcode::DestroyEq, number: self.queue.eqn.value() };
        self.device.device().destroy(doomed, Some(self.queue.ring.take()));
    }
}

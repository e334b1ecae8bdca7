//! Completion channels: event queues for completions only, each with its own interrupt vector.
//!
//! A channel belongs to the thread that waits on it, so it needs no lock. The device's own event queue continues to serve
//! everything else. A completion queue is bound to a channel when it is created.

use crate::command::{CommandError, Request};
use crate::device::{DestroyCommand, DeviceRef, DmaOf, EventQueueError, check_event_queue};
use crate::events::{AsyncEvent, DeviceEvent, EventQueue, decode};
use crate::hal::{Hal, HalError, WakeCount};
use bareverbs_prm::command::eq::CreateEqOut;
use bareverbs_prm::ids::{Cqn, Eqn};
use bareverbs_prm::numbering::CommandOpcode;
use bareverbs_prm::time::Time;
use core::fmt;

/// Maximum number of events of other queues that [`CompletionChannel::wait_for`] sets aside.
const PENDING_EVENTS: usize = 64;

/// An event queue for completions.
///
/// ```
/// use bareverbs_core::{CompletionChannel, CompletionQueue, DeviceRef};
/// use std::error::Error;
///
/// /// A queue whose completions raise the device's interrupt vector 0.
/// fn queue<D: DeviceRef>(device: D) -> Result<(CompletionChannel<D>, CompletionQueue<D>), Box<dyn Error>> {
///     let channel = CompletionChannel::create(device.clone(), 0, 64)?;
///     let queue = CompletionQueue::builder(device).entries(256).channel(&channel).create()?;
///     Ok((channel, queue))
/// }
/// ```
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel<D: DeviceRef> {
    device: D,
    queue: EventQueue<DmaOf<D>>,
    vector: u16,
    /// Queues whose events arrived while the owner waited for another queue.
    pending: heapless::Vec<Cqn, PENDING_EVENTS>,
    /// An event did not fit into `pending`, so any queue may have completions.
    overflowed: bool,
}

/// Why a channel could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelError {
    /// The HAL has no such interrupt vector, so nothing would ever wake the channel.
    Vector {
        /// The interrupt vector requested.
        vector: u16,
        /// Number of vectors of the HAL, numbered from zero.
        vectors: usize,
    },
    /// The HAL has no memory left.
    Memory(HalError),
    /// The command failed: the device has no such vector, or no event queue left.
    Command {
        /// The interrupt vector requested.
        vector: u16,
        /// The device's response.
        error: CommandError,
    },
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Vector { vector, vectors } => write!(
                f,
                "a completion channel on interrupt vector {vector}: {vectors} vectors are connected, numbered from 0; use one \
                 of them, or open the device with more"
            ),
            Self::Memory(error) => write!(f, "a completion channel: {error}"),
            Self::Command { vector, error } => {
                write!(f, "a completion channel on interrupt vector {vector}: {error}")
            }
        }
    }
}

impl core::error::Error for ChannelError {}

impl<D: DeviceRef> CompletionChannel<D> {
    /// Creates a channel that raises interrupt `vector` and holds `entries` events, rounded up to a power of two. One entry
    /// for each bound completion queue is enough, because arming a queue brings one event.
    ///
    /// # Errors
    /// The HAL or the device has no such vector, the device has no event queue left, or the HAL has no memory
    /// left.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create(device: D, vector: u16, entries: u32) -> Result<Self, ChannelError> {
        let here = device.device();
        match here.hal().interrupt_vectors() {
            Some(vectors) if usize::from(vector) >= vectors => {
                return Err(ChannelError::Vector { vector, vectors });
            }
            _ => {}
        }
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
        Ok(Self { device, queue, vector, pending: heapless::Vec::new(), overflowed: false })
    }

    /// The device of the channel.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Its interrupt vector.
    pub fn vector(&self) -> u16 {
        self.vector
    }

    /// Number of its event queue.
    pub fn number(&self) -> Eqn {
        self.queue.eqn
    }

    /// Checks that the device still writes events into this channel. A channel with fewer entries than bound completion
    /// queues can overrun. That loses events, but no completions.
    ///
    /// # Errors
    /// The channel overran or its memory failed, or the device could not be queried.
    pub fn check(&self) -> Result<(), EventQueueError> {
        check_event_queue(self.device.device(), self.queue.eqn)
    }

    /// Returns the next completion queue with an event, if there is one.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn poll(&mut self) -> Option<Cqn> {
        let mut looks = self.queue.entries();
        self.pending.pop().or_else(|| self.next(&mut looks))
    }

    /// Arms the channel: the next event, or an unpolled earlier one, raises one interrupt.
    ///
    /// [`Self::wait`] and [`CompletionQueue::wait`](crate::completion_queue::CompletionQueue::wait) call this
    /// themselves. It is for applications with their own event loop that poll the file descriptor of the interrupt
    /// vector (`vector_fd` of `VfioHal` and `VfioUserHal`). One iteration of such a loop:
    ///
    /// 1. Drain the descriptor (`drain_vector`), **before** everything else: what fires later makes it readable again.
    /// 2. [`poll`](Self::poll) until there is no event. Call
    ///    [`acknowledge_event`](crate::completion_queue::CompletionQueue::acknowledge_event) of each queue that is named.
    /// 3. Poll every such queue until it is empty, then [arm](crate::completion_queue::CompletionQueue::arm) it; poll again
    ///    after [`Arming::Ready`](crate::completion_queue::Arming::Ready).
    /// 4. Arm the channel and wait for the descriptor. No order of interrupt and arming loses a completion.
    ///
    /// For a channel of one queue,
    /// [`handle_and_arm`](crate::completion_queue::CompletionQueue::handle_and_arm) does all four steps
    /// except the waiting.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn arm(&mut self) {
        self.queue.arm(self.device.device().hal());
    }

    /// Waits until `deadline` for an event of any queue.
    pub fn wait(&mut self, deadline: Time) -> Option<Cqn> {
        loop {
            let before = self.device.device().hal().wake_count();
            if let Some(cqn) = self.poll() {
                return Some(cqn);
            }
            if !self.relax(before, deadline) {
                return self.poll();
            }
        }
    }

    /// Waits until `deadline` for an event of `cqn`, and returns whether it came. Keeps events of other queues for
    /// [`Self::poll`]. Poll the queue either way: the wait may end without an event.
    pub fn wait_for(&mut self, cqn: Cqn, deadline: Time) -> bool {
        loop {
            let before = self.device.device().hal().wake_count();
            if self.take_pending(cqn) {
                return true;
            }
            let mut looks = self.queue.entries();
            while let Some(other) = self.next(&mut looks) {
                if other == cqn {
                    return true;
                }
                self.set_aside(other);
            }
            if !self.relax(before, deadline) || self.overflowed {
                return false;
            }
        }
    }

    fn set_aside(&mut self, cqn: Cqn) {
        if !self.pending.contains(&cqn) && self.pending.push(cqn).is_err() {
            self.overflowed = true;
        }
    }

    fn take_pending(&mut self, cqn: Cqn) -> bool {
        let found = self.pending.iter().position(|&pending| pending == cqn);
        if let Some(at) = found {
            self.pending.swap_remove(at);
        }
        found.is_some()
    }

    /// The next event in the ring, unless the budget of `looks` is spent: if the device writes events faster
    /// than this reads them, one call handles at most one ring of them.
    fn next(&mut self, looks: &mut u32) -> Option<Cqn> {
        let hal = self.device.device().hal();
        while let Some(left) = looks.checked_sub(1) {
            *looks = left;
            let entry = self.queue.poll(hal)?;
            self.queue.acknowledge(hal);
            if let DeviceEvent::Async(AsyncEvent::Completion { cqn }) = decode(&entry) {
                return Some(cqn);
            }
        }
        None
    }

    /// Arms the channel and waits for a wakeup after `before`, at the latest until `deadline`. Returns
    /// `false` if the deadline has passed. A wakeup that another thread handled counts too, because the HAL
    /// counts all wakeups.
    fn relax(&mut self, before: WakeCount, deadline: Time) -> bool {
        let device = self.device.device();
        if device.hal().now() >= deadline {
            return false;
        }
        // If there already is an event, the interrupt comes at once.
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
    /// A channel that is dropped before its completion queues is destroyed after them.
    #[doc(alias = "ibv_destroy_comp_channel")]
    fn drop(&mut self) {
        let command = DestroyCommand::new(CommandOpcode::DestroyEq, self.queue.eqn.value());
        self.device.device().destroy(command, Some(self.queue.ring.take()));
    }
}

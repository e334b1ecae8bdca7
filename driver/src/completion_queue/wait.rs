//! Waiting for completions, with and without a channel. Every wait ends: with a completion, at its deadline, or because the
//! device is lost.

use super::{Arming, CompletionQueue, Notify, PollError};
use crate::completion_channel::CompletionChannel;
use crate::device::DeviceRef;
use crate::hal::Hal;
use crate::work_completion::WorkCompletion;
use bareverbs_prm::ids::Cqn;
use bareverbs_prm::time::{Duration, Time};
use core::fmt;

/// Longest pause between two looks at a queue that is not armed: no interrupt ends it.
const POLL_INTERVAL: Duration = Duration::from_micros(5);
/// Longest sleep before the registers are looked at: a device that is lost raises no interrupt.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(10);

/// Why a wait for one completion ended without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline came first. Nothing is lost: what completes later is found by the next poll or wait.
    Deadline {
        /// The queue.
        cqn: Cqn,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The queue has an entry that cannot be true, or its device is lost.
    Poll(PollError),
}

impl From<PollError> for WaitError {
    fn from(error: PollError) -> Self {
        Self::Poll(error)
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Deadline { cqn, waited } => write!(
                f,
                "no completion in queue {cqn} after {waited}: check that the request was posted and signalled, that the peer \
                 posted a receive, and ask QueuePair::diagnose"
            ),
            Self::Poll(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for WaitError {}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Polls until there is a completion, until `deadline` at the latest. Needs no channel and raises no interrupt: it looks
    /// again every 5 µs, so it suits short waits, examples and tests.
    ///
    /// ```
    /// use bareverbs_core::hal::Hal;
    /// use bareverbs_core::{CompletionQueue, DeviceRef};
    /// use bareverbs_prm::time::Duration;
    /// use std::error::Error;
    ///
    /// fn bytes_of_next<D: DeviceRef>(queue: &mut CompletionQueue<D>) -> Result<u32, Box<dyn Error>> {
    ///     let deadline = queue.device().device().hal().now() + Duration::from_secs(1);
    ///     Ok(queue.wait_one(deadline)?.into_result()?.byte_count)
    /// }
    /// ```
    ///
    /// # Errors
    /// The deadline came first, the queue has an entry that cannot be true, or the device is lost.
    pub fn wait_one(&mut self, deadline: Time) -> Result<WorkCompletion, WaitError> {
        let start = self.device.device().hal().now();
        loop {
            if let Some(completion) = self.poll_one()? {
                return Ok(completion);
            }
            let device = self.device.device();
            let now = device.hal().now();
            if now >= deadline {
                return Err(WaitError::Deadline { cqn: self.cqn, waited: now.since(start) });
            }
            device.check_presence().map_err(PollError::DeviceLost)?;
            device.hal().relax(deadline.min(now + POLL_INTERVAL));
        }
    }

    /// Polls; while there is nothing, arms and waits for the event on `channel`, the one that the queue was made for, until
    /// `deadline`. Says how many completions there are; none only at the deadline.
    ///
    /// # Errors
    /// The queue has an entry that cannot be true, or the device is lost.
    pub fn wait(
        &mut self,
        channel: &mut CompletionChannel<D>,
        completions: &mut [WorkCompletion],
        deadline: Time,
    ) -> Result<usize, PollError> {
        if completions.is_empty() {
            return Ok(0);
        }
        loop {
            let count = self.poll(completions)?;
            let now = self.device.device().hal().now();
            if count > 0 || now >= deadline {
                return Ok(count);
            }
            self.device.device().check_presence().map_err(PollError::DeviceLost)?;
            let soon = deadline.min(now + PRESENCE_INTERVAL);
            if self.arm(Notify::Next) == Arming::Armed && channel.wait_for(self.cqn, soon) {
                self.acknowledge_event();
            }
        }
    }

    /// One turn of an event loop: gives every completion to `handle`, and arms this queue and its `channel`, so that the next completion raises an
    /// interrupt. It never waits. It is what [`CompletionChannel::arm`] describes, for a channel that serves this queue alone, and
    /// it quiets the interrupt's descriptor first. Begin with one turn before the first wait.
    ///
    /// ```
    /// use bareverbs_core::{CompletionChannel, CompletionQueue, DeviceRef, PollError};
    ///
    /// fn bytes_received<D: DeviceRef>(
    ///     channel: &mut CompletionChannel<D>,
    ///     queue: &mut CompletionQueue<D>,
    /// ) -> Result<u64, PollError> {
    ///     let mut bytes = 0;
    ///     queue.handle_and_arm(channel, |completion| {
    ///         bytes += u64::from(completion.byte_count);
    ///         Ok::<(), PollError>(())
    ///     })?;
    ///     Ok(bytes)
    /// }
    /// ```
    ///
    /// # Errors
    /// The first error of `handle`, or the queue has an entry that cannot be true. The queue is not armed then.
    pub fn handle_and_arm<E: From<PollError>>(
        &mut self,
        channel: &mut CompletionChannel<D>,
        mut handle: impl FnMut(WorkCompletion) -> Result<(), E>,
    ) -> Result<(), E> {
        self.device.device().hal().quiet_vector(channel.vector());
        while channel.poll().is_some() {
            self.acknowledge_event();
        }
        let mut was_ready = false;
        loop {
            let mut has_handled = false;
            while let Some(completion) = self.poll_one()? {
                handle(completion)?;
                has_handled = true;
            }
            let is_armed = self.arm(Notify::Next) == Arming::Armed;
            // Entries that are nobody's, again and again, come from a device that means harm: it keeps no loop. The queue is armed.
            if is_armed || was_ready && !has_handled {
                channel.arm();
                return Ok(());
            }
            was_ready = true;
        }
    }
}

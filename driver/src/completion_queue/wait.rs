//! Waiting for completions, with and without a channel. Every wait ends: with a completion, at its deadline,
//! or because the device is lost.

use super::{Arming, CompletionQueue, Notify, PollError};
use crate::completion_channel::CompletionChannel;
use crate::device::DeviceRef;
use crate::hal::Hal;
use crate::work_completion::WorkCompletion;
use bareverbs_prm::ids::Cqn;
use bareverbs_prm::time::{Duration, Time};
use core::fmt;

/// Longest pause between two polls of a queue that is not armed, because no interrupt ends the pause.
const POLL_INTERVAL: Duration = Duration::from_micros(5);
/// Longest sleep between checks of the registers, because a lost device raises no interrupt.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(10);

/// Why a wait for one completion ended without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline came first. Nothing is lost: the next poll or wait finds a completion that arrives later.
    Deadline {
        /// The queue.
        cqn: Cqn,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The queue has an impossible entry, or its device is lost.
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
                "no completion in queue {cqn} after {waited}: check that the request was posted and signalled, and \
                 that the peer posted a receive, and call QueuePair::diagnose"
            ),
            Self::Poll(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for WaitError {}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Polls until there is a completion, at the latest until `deadline`. It needs no channel and no
    /// interrupt. It polls every 5 µs, so it suits short waits, examples and tests.
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
    /// The deadline came first, the queue has an impossible entry, or the device is lost.
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

    /// Polls; while there is nothing, arms the queue and waits for its event on `channel`, which must be the
    /// channel of the queue, until `deadline`. Returns the number of completions, which is zero only at the
    /// deadline.
    ///
    /// # Errors
    /// The queue has an impossible entry, or the device is lost.
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

    /// One turn of an event loop: passes every completion to `handle`, then arms this queue and its
    /// `channel`, so that the next completion raises an interrupt. It never waits. It implements what
    /// [`CompletionChannel::arm`] describes for a channel that serves only this queue, and first quiets the
    /// interrupt's descriptor. Run one turn before the first wait.
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
    /// The first error of `handle`, or an impossible entry in the queue. The queue is not armed then.
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
            // A device that keeps writing entries that match nothing must not hold the loop forever. The
            // queue is armed.
            if is_armed || was_ready && !has_handled {
                channel.arm();
                return Ok(());
            }
            was_ready = true;
        }
    }
}

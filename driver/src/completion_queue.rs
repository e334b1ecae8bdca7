//! Completion queues: the device reports finished work requests, the application polls for them.
//!
//! One queue may serve many queue pairs. Only its owner polls it (`&mut self`). Queue pairs only need its
//! number, so they may live in other threads. Every entry is checked against the ledger before it is trusted.

mod builder;
mod cache;
mod compressed;
mod direct;
mod entries;
mod error;
mod fast;
mod notify;
mod poll;
mod resize;
mod session;
mod wait;

pub use builder::CompletionQueueBuilder;
pub use error::{CompletionQueueError, PollError};
pub use notify::{Arming, Moderation, Notify, PeriodStart};
pub use wait::WaitError;

use self::cache::QueuePairCache;
use crate::device::{DestroyCommand, DeviceRef, DmaOf};
use crate::dma::Rings;
use crate::ledger::Home;
use crate::ring::Consumer;
use bareverbs_prm::ids::Cqn;
use bareverbs_prm::numbering::CommandOpcode;
use core::fmt;

/// Configuration of a completion queue.
///
/// ```
/// use bareverbs_core::CompletionQueueConfig;
///
/// // 64 sends and 128 receives of one queue pair may be outstanding.
/// let config = CompletionQueueConfig { entries: 64 + 128 };
/// assert!(config.entries < CompletionQueueConfig::default().entries);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionQueueConfig {
    /// Number of completions to hold, rounded up to a power of two. It must cover everything that can be outstanding:
    /// all signalled sends and all receives of all queue pairs, and all sends once a queue pair fails.
    pub entries: u32,
}

impl Default for CompletionQueueConfig {
    fn default() -> Self {
        Self { entries: 256 }
    }
}

/// A completion queue. If it is dropped before its queue pairs, it is destroyed after them.
///
/// ```
/// use bareverbs_core::{CompletionQueue, CompletionQueueConfig, DeviceRef, PollError, WorkCompletion};
/// use std::error::Error;
///
/// fn queue<D: DeviceRef>(device: D) -> Result<CompletionQueue<D>, Box<dyn Error>> {
///     Ok(CompletionQueue::create(device, CompletionQueueConfig { entries: 256 })?)
/// }
///
/// /// Handles what has completed, and waits for nothing.
/// fn drain<D: DeviceRef>(queue: &mut CompletionQueue<D>) -> Result<usize, PollError> {
///     let mut batch = [WorkCompletion::default(); 32];
///     let found = queue.poll(&mut batch)?;
///     batch[..found].iter().filter(|done| !done.is_success()).for_each(|failed| println!("{}", failed.status));
///     Ok(found)
/// }
/// ```
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue<D: DeviceRef> {
    device: D,
    /// The entries, and the doorbell record.
    rings: Rings<DmaOf<D>>,
    consumer: Consumer,
    cache: QueuePairCache,
    cqn: Cqn,
    /// The identity that queue pairs completing here have in the ledger. `NOBODY` if entries have 128 bytes,
    /// which only the general path handles.
    home: Home,
    /// Whether entries have 128 bytes.
    wide: bool,
    arm_sequence: u8,
    discarded: u64,
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Completion queue number (CQN).
    pub fn number(&self) -> Cqn {
        self.cqn
    }

    /// Number of completions that it can hold.
    pub fn entries(&self) -> u32 {
        self.consumer.size()
    }

    /// The device of the queue.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Number of completions whose queue pair no longer existed when they were polled.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }
}

impl<D: DeviceRef> fmt::Debug for CompletionQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("cqn", &self.cqn)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for CompletionQueue<D> {
    #[doc(alias = "ibv_destroy_cq")]
    fn drop(&mut self) {
        let command = DestroyCommand::new(CommandOpcode::DestroyCq, self.cqn.value());
        let memory = [Some(self.rings.take()), self.rings.take_home()];
        self.device.device().destroy_pieces(command, memory);
    }
}

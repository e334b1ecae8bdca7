//! The message that failed, in the requesters of reliable and unreliable connections.

use super::request::RequesterError;
use core::cmp::Ordering;

/// The earliest failed message. Neither it nor any later message is sent; it ends with its error, and later ones end
/// as flushed.
///
/// A message is named by a number that grows from message to message.
#[derive(Debug, Clone, Copy)]
pub(super) struct EarliestFailure {
    /// The message; `u64::MAX`, which no message reaches, if none has failed.
    message: u64,
    /// Its error, if it has failed.
    error: RequesterError,
}

impl EarliestFailure {
    /// No message has failed.
    pub(super) const NONE: Self = Self { message: u64::MAX, error: RequesterError::Flushed };

    /// Records a failure. Returns false if this message or an earlier one had already failed.
    pub(super) fn record(&mut self, message: u64, error: RequesterError) -> bool {
        let is_earliest = message < self.message;
        if is_earliest {
            *self = Self { message, error };
        }
        is_earliest
    }

    /// Whether the message must not be sent.
    #[inline]
    pub(super) fn stops(&self, message: u64) -> bool {
        message >= self.message
    }

    /// How a message ends. `None` if it has not failed and is not complete.
    #[inline]
    pub(super) fn result(
        &self,
        message: u64,
        is_complete: impl FnOnce() -> bool,
    ) -> Option<Result<(), RequesterError>> {
        match message.cmp(&self.message) {
            Ordering::Less => is_complete().then_some(Ok(())),
            Ordering::Equal => Some(Err(self.error)),
            Ordering::Greater => Some(Err(RequesterError::Flushed)),
        }
    }
}

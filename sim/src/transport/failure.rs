//! The message that failed, in the requesters of reliable and unreliable connections.

use super::request::RequesterError;

/// The earliest failed message. Neither it nor any later message is sent; it ends with its error, and later ones end
/// as flushed.
///
/// A message is named by a number that grows from message to message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EarliestFailure(Option<(u64, RequesterError)>);

impl EarliestFailure {
    /// Records a failure. Returns false if this message or an earlier one had already failed.
    pub(super) fn record(&mut self, message: u64, error: RequesterError) -> bool {
        let is_earliest = self.0.is_none_or(|(failed, _)| message < failed);
        if is_earliest {
            self.0 = Some((message, error));
        }
        is_earliest
    }

    /// Whether the message must not be sent.
    #[inline]
    pub(super) fn stops(&self, message: u64) -> bool {
        self.0.is_some_and(|(failed, _)| message >= failed)
    }

    /// How a message ends. `None` if it has not failed and is not complete.
    #[inline]
    pub(super) fn result(
        &self,
        message: u64,
        is_complete: impl FnOnce() -> bool,
    ) -> Option<Result<(), RequesterError>> {
        match self.0 {
            Some((failed, _)) if message > failed => Some(Err(RequesterError::Flushed)),
            Some((failed, error)) if message == failed => Some(Err(error)),
            _ => is_complete().then_some(Ok(())),
        }
    }
}

//! What operations come to.

use crate::Buffer;
use bareverbs_core::command::DeviceLoss;
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::{DeviceRef, PollError, RangeError, WorkCompletion, WorkRequestFailed};
use core::fmt;

/// Why nothing completes any more: the dispatcher has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The device left the bus or was reset by somebody else. It uses no buffer any more.
    DeviceLost(DeviceLoss),
    /// The device wrote a completion that cannot be true. It may still use the buffers that it was given.
    Completion(PollError),
}

impl From<PollError> for Broken {
    fn from(error: PollError) -> Self {
        match error {
            PollError::DeviceLost(loss) => Self::DeviceLost(loss),
            error => Self::Completion(error),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DeviceLost(loss) => write!(f, "{loss}"),
            Self::Completion(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for Broken {}

/// An operation that succeeded.
pub struct Completed<D: DeviceRef> {
    /// What the device said.
    pub completion: WorkCompletion,
    /// The buffer, which is the caller's again.
    pub buffer: Buffer<D>,
}

/// An operation that failed.
pub struct Failed<D: DeviceRef> {
    /// Why.
    pub error: OperationError,
    /// The buffer, unless the device may still use it; then it goes back to its pool when its queue pair is destroyed.
    pub buffer: Option<Buffer<D>>,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationError {
    /// The work request failed at this end or at the peer.
    Work(WorkRequestFailed),
    /// The work request was refused before it was posted.
    Post(PostError),
    /// The peer's memory is shorter than the buffer.
    Remote(RangeError),
    /// A receive, but none is posted: no message could arrive.
    NoReceivePosted,
    /// The dispatcher has stopped.
    Broken(Broken),
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Work(error) => write!(f, "{error}"),
            Self::Post(error) => write!(f, "posting a work request: {error}"),
            Self::Remote(error) => write!(f, "the peer's memory is too short for this buffer: {error}"),
            Self::NoReceivePosted => f.write_str(
                "waiting for a message, but no receive is posted and none can arrive: call post_receive with a buffer first",
            ),
            Self::Broken(broken) => write!(f, "nothing completes any more: {broken}"),
        }
    }
}

impl core::error::Error for OperationError {}

impl<D: DeviceRef> fmt::Debug for Completed<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { completion, buffer } = self;
        f.debug_struct("Completed").field("completion", completion).field("buffer", buffer).finish()
    }
}

impl<D: DeviceRef> fmt::Debug for Failed<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, buffer } = self;
        f.debug_struct("Failed").field("error", error).field("buffer", buffer).finish()
    }
}

impl<D: DeviceRef> fmt::Display for Failed<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl<D: DeviceRef> core::error::Error for Failed<D> {}

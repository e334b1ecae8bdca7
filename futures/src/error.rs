//! Results of operations.

use crate::Buffer;
use bareverbs_core::command::DeviceLoss;
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::{DeviceRef, PollError, RangeError, WorkCompletion, WorkRequestFailed};
use core::fmt;

/// Why the dispatcher has stopped: no further operation completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The device left the bus, or another party reset it. It no longer uses any buffer.
    DeviceLost(DeviceLoss),
    /// The device wrote an invalid completion. It may still use the buffers in flight.
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
    /// The work completion.
    pub completion: WorkCompletion,
    /// The buffer, owned by the caller again.
    pub buffer: Buffer<D>,
}

/// An operation that failed.
pub struct Failed<D: DeviceRef> {
    /// The reason.
    pub error: OperationError,
    /// The buffer. `None` if the device may still use it; it then returns to its pool when the queue pair is destroyed.
    pub buffer: Option<Buffer<D>>,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationError {
    /// The work request completed with an error, found at this end or at the peer.
    Work(WorkRequestFailed),
    /// The driver refused to post the work request.
    Post(PostError),
    /// The remote slice is shorter than the buffer.
    Remote(RangeError),
    /// A receive is awaited, but none is posted, so no message can arrive.
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

//! The dispatcher: polls one completion queue and wakes the futures whose work requests completed.

use crate::buffer::Buffer;
use crate::error::Broken;
use crate::lock::lock;
use crate::operations::{Operations, Released};
use bareverbs_core::completion_queue::{Arming, CompletionQueueError, Notify};
use bareverbs_core::{ChannelError, CompletionChannel, CompletionQueue, DeviceRef, WorkCompletion};
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll};
use std::io;
use std::sync::{Arc, Mutex};

/// Most completions per poll.
const BATCH: usize = 32;

/// Configuration of a dispatcher.
///
/// ```
/// use bareverbs_futures::DispatcherConfig;
///
/// // For a program that polls: no interrupt.
/// let config = DispatcherConfig { entries: 1024, vector: None };
/// assert_eq!(DispatcherConfig::default().vector, Some(0));
/// # let _ = config;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatcherConfig {
    /// Entries of the completion queue. This bounds the work requests in flight on all queue pairs of the dispatcher;
    /// further ones wait for their turn.
    pub entries: u32,
    /// Interrupt vector of the completion channel. `None` creates no channel, for a program that polls.
    pub vector: Option<u16>,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self { entries: 256, vector: Some(0) }
    }
}

/// Why a dispatcher could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DispatcherError {
    /// Creating its completion channel failed.
    Channel(ChannelError),
    /// Creating its completion queue failed.
    Queue(CompletionQueueError),
}

impl fmt::Display for DispatcherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Channel(error) => write!(f, "a dispatcher needs {error}"),
            Self::Queue(error) => write!(f, "a dispatcher needs {error}"),
        }
    }
}

impl core::error::Error for DispatcherError {}

/// Tells a task when the interrupt of a completion channel has fired: a runtime's reactor on the HAL's descriptor
/// (`vector_fd`), or the simulated world.
pub trait InterruptSource {
    /// Returns `Ready`, and drains the interrupt, if it has fired since the last `Ready`; an interrupt before the first
    /// call counts. `Pending` promises a wakeup. Spurious `Ready`s are allowed and useful: one every second or so lets
    /// the dispatcher detect a lost device, which raises no interrupt.
    ///
    /// # Errors
    /// The source has failed for good.
    fn poll_interrupt(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// Why [`Dispatcher::run`] ended.
#[derive(Debug)]
pub enum RunError {
    /// The dispatcher has stopped. All its futures ended with the same error.
    Broken(Broken),
    /// The interrupt source failed. Futures stay pending; the program may continue to poll the dispatcher.
    Source(io::Error),
    /// The dispatcher has no completion channel: [`DispatcherConfig::vector`] was `None`.
    NoChannel,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(broken) => write!(f, "running a dispatcher: {broken}"),
            Self::Source(error) => write!(f, "running a dispatcher: its interrupt source failed: {error}"),
            Self::NoChannel => f.write_str(
                "running a dispatcher that was made without an interrupt vector: name one in DispatcherConfig, or call poll",
            ),
        }
    }
}

impl core::error::Error for RunError {}

/// Polls one completion queue for any number of queue pairs and tasks. Clones refer to the same dispatcher.
///
/// ```
/// use bareverbs_core::DeviceRef;
/// use bareverbs_futures::{Dispatcher, DispatcherConfig, InterruptSource, RunError};
/// use std::error::Error;
///
/// /// The future runs beside the tasks that wait: spawn it. `interrupts` says when the device has raised vector 0.
/// fn start<D: DeviceRef>(
///     device: D,
///     interrupts: impl InterruptSource,
/// ) -> Result<(Dispatcher<D>, impl Future<Output = RunError>), Box<dyn Error>> {
///     let dispatcher = Dispatcher::new(device, DispatcherConfig::default())?;
///     Ok((dispatcher.clone(), dispatcher.run(interrupts)))
/// }
/// ```
pub struct Dispatcher<D: DeviceRef> {
    state: Arc<DispatcherState<D>>,
}

struct DispatcherState<D: DeviceRef> {
    device: D,
    polled: Mutex<Polled<D>>,
    operations: Mutex<Operations<Buffer<D>>>,
}

/// The result of one pass over the completion queue.
struct Round<D: DeviceRef> {
    count: usize,
    released: Vec<Released<Buffer<D>>>,
    result: Result<(), Broken>,
}

/// State that one thread at a time polls. Lock order: before the operations, never after.
struct Polled<D: DeviceRef> {
    queue: CompletionQueue<D>,
    channel: Option<CompletionChannel<D>>,
}

impl<D: DeviceRef> Clone for Dispatcher<D> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone() }
    }
}

impl<D: DeviceRef> Dispatcher<D> {
    /// Creates the completion queue, and a completion channel if `config` names a vector.
    ///
    /// # Errors
    /// Creating one of the two failed.
    pub fn new(device: D, config: DispatcherConfig) -> Result<Self, DispatcherError> {
        let channel = config.vector.map(|vector| CompletionChannel::create(device.clone(), vector, 2));
        let channel = channel.transpose().map_err(DispatcherError::Channel)?;
        let builder = CompletionQueue::builder(device.clone()).entries(config.entries);
        let builder = match &channel {
            Some(channel) => builder.channel(channel),
            None => builder,
        };
        let queue = builder.create().map_err(DispatcherError::Queue)?;
        let operations = Mutex::new(Operations::new(queue.entries() as usize));
        let polled = Mutex::new(Polled { queue, channel });
        Ok(Self { state: Arc::new(DispatcherState { device, polled, operations }) })
    }

    /// The device of the completion queue.
    pub fn device(&self) -> &D {
        &self.state.device
    }

    /// Takes completions and wakes their futures. Returns the number of completions. For programs that busy-poll or
    /// have their own event loop.
    ///
    /// # Errors
    /// The dispatcher has stopped; all its futures end with the same error.
    pub fn poll(&self) -> Result<usize, Broken> {
        let mut polled = lock(&self.state.polled);
        let taken = self.take(&mut polled);
        drop(polled);
        self.hand_out(taken)
    }

    /// Like [`Self::poll`], then arms the completion queue for an interrupt. After [`Arming::Ready`] more completions
    /// are waiting: call it again. After [`Arming::Armed`] wait for the interrupt, drain its descriptor, and call it
    /// again.
    ///
    /// # Errors
    /// Like [`Self::poll`].
    pub fn poll_and_arm(&self) -> Result<(usize, Arming), Broken> {
        let mut polled = lock(&self.state.polled);
        let Polled { queue, channel } = &mut *polled;
        if let Some(channel) = channel {
            while channel.poll().is_some() {
                queue.acknowledge_event();
            }
        }
        let taken = self.take(&mut polled);
        let Polled { queue, channel } = &mut *polled;
        let arming = queue.arm(Notify::Next);
        if let (Arming::Armed, Some(channel)) = (arming, channel) {
            channel.arm();
        }
        drop(polled);
        self.hand_out(taken).map(|count| (count, arming))
    }

    /// Checks that the device is still present.
    ///
    /// # Errors
    /// The device is lost; all futures end with the same error.
    pub fn check(&self) -> Result<(), Broken> {
        let checked = self.state.device.device().check_presence();
        checked.map_err(|loss| self.stop(Broken::DeviceLost(loss)))
    }

    /// Polls whenever `source` reports an interrupt. Returns only on an error: spawn it, and drop it when the work is
    /// done.
    pub async fn run(self, mut source: impl InterruptSource) -> RunError {
        if lock(&self.state.polled).channel.is_none() {
            return RunError::NoChannel;
        }
        loop {
            match self.poll_and_arm() {
                Err(broken) => return RunError::Broken(broken),
                Ok((_, Arming::Ready)) => yield_now().await,
                Ok((count, Arming::Armed)) => {
                    // An interrupt without completions may mean that the device is lost.
                    if let (0, Err(broken)) = (count, self.check()) {
                        return RunError::Broken(broken);
                    }
                    if let Err(error) = poll_fn(|cx| source.poll_interrupt(cx)).await {
                        return RunError::Source(error);
                    }
                }
            }
        }
    }

    /// Calls `work` with the completion queue, which nobody polls meanwhile.
    pub(crate) fn with_queue<R>(&self, work: impl FnOnce(&CompletionQueue<D>) -> R) -> R {
        work(&lock(&self.state.polled).queue)
    }

    /// Calls `work` with the table of operations.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Operations<Buffer<D>>) -> R) -> R {
        work(&mut lock(&self.state.operations))
    }

    /// Takes at most as many completions as the queue holds, so that a fast device cannot keep one pass going forever.
    fn take(&self, polled: &mut Polled<D>) -> Round<D> {
        let mut round = Round { count: 0, released: Vec::new(), result: Ok(()) };
        let mut completions = [WorkCompletion::EMPTY; BATCH];
        while round.count < polled.queue.entries() as usize {
            match polled.queue.poll(&mut completions) {
                Ok(0) => break,
                Ok(count) => {
                    round.released.push(self.with(|operations| operations.complete(&completions[..count])));
                    round.count += count;
                }
                Err(error) => {
                    round.result = Err(error.into());
                    break;
                }
            }
        }
        round
    }

    /// Wakes tasks without holding a lock: a waker may run arbitrary code.
    fn hand_out(&self, round: Round<D>) -> Result<usize, Broken> {
        let Round { count, released, result } = round;
        released.into_iter().for_each(Released::carry_out);
        match result {
            Ok(()) => self.with(|operations| operations.broken()).map_or(Ok(count), Err),
            Err(broken) => Err(self.stop(broken)),
        }
    }

    fn stop(&self, broken: Broken) -> Broken {
        self.with(|operations| operations.stop(broken)).carry_out();
        broken
    }
}

/// Yields once to the other tasks of the thread.
async fn yield_now() {
    let mut yielded = false;
    let once = poll_fn(|cx| {
        if core::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    once.await;
}

impl<D: DeviceRef> fmt::Debug for Dispatcher<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").finish_non_exhaustive()
    }
}

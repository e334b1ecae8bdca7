//! The dispatcher: polls one completion queue and wakes whom a completion concerns.

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

/// Completions taken with one poll.
const BATCH: usize = 32;

/// How a dispatcher is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatcherConfig {
    /// Completions that its queue holds: the most work requests of all its queue pairs that are in flight at a time. Further ones wait
    /// for their turn.
    pub entries: u32,
    /// The interrupt vector of its completion channel. `None` makes no channel, for a program that polls.
    pub vector: Option<u16>,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self { entries: 256, vector: Some(0) }
    }
}

/// Why a dispatcher could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DispatcherError {
    /// Its completion channel.
    Channel(ChannelError),
    /// Its completion queue.
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

/// Tells a task that the interrupt of a completion channel has come. A runtime's reactor on the descriptor that the place gives
/// (`vector_fd`), or the simulator's world.
pub trait InterruptSource {
    /// Ready once the interrupt has fired since the last time that this was ready; then it has also been drained. An interrupt that came before
    /// the first call counts. `Pending` means that the task will be woken. It may be ready without an interrupt: do so every second or
    /// so, and a device that was lost is found, which raises none.
    ///
    /// # Errors
    /// The source is of no use any more.
    fn poll_interrupt(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// Why [`Dispatcher::run`] ended.
#[derive(Debug)]
pub enum RunError {
    /// Nothing completes any more. All futures ended with the same error.
    Broken(Broken),
    /// The interrupt source failed. Futures wait on; whoever polls the dispatcher may go on.
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

/// Polls one completion queue for any number of queue pairs and tasks. Clones are the same dispatcher.
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

/// What was taken from the completion queue at a time, and how it went.
struct Round<D: DeviceRef> {
    count: usize,
    released: Vec<Released<Buffer<D>>>,
    result: Result<(), Broken>,
}

/// What one thread at a time polls. Locked before the operations, never after.
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
    /// Makes the completion queue, and the channel if a vector is named.
    ///
    /// # Errors
    /// One of the two could not be made.
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

    /// The device.
    pub fn device(&self) -> &D {
        &self.state.device
    }

    /// Takes what has completed and wakes whom it concerns; says how much it was. For loops that poll, and for those with an event loop of
    /// their own.
    ///
    /// # Errors
    /// Nothing completes any more; all futures end with the same error.
    pub fn poll(&self) -> Result<usize, Broken> {
        let mut polled = lock(&self.state.polled);
        let taken = self.take(&mut polled);
        drop(polled);
        self.hand_out(taken)
    }

    /// As [`Self::poll`], then asks for an interrupt with the next completion. After [`Arming::Ready`] there is more to poll, so call it
    /// again; after [`Arming::Armed`] wait for the interrupt, drain its descriptor, and call it again.
    ///
    /// # Errors
    /// As [`Self::poll`].
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

    /// Looks whether the device is still there.
    ///
    /// # Errors
    /// It is lost; all futures end with the same error.
    pub fn check(&self) -> Result<(), Broken> {
        let checked = self.state.device.device().check_presence();
        checked.map_err(|loss| self.stop(Broken::DeviceLost(loss)))
    }

    /// Polls whenever `source` says that the interrupt has come. It never ends but with an error: spawn it, and drop it when the work
    /// is done.
    pub async fn run(self, mut source: impl InterruptSource) -> RunError {
        if lock(&self.state.polled).channel.is_none() {
            return RunError::NoChannel;
        }
        loop {
            match self.poll_and_arm() {
                Err(broken) => return RunError::Broken(broken),
                Ok((_, Arming::Ready)) => yield_now().await,
                Ok((count, Arming::Armed)) => {
                    // An interrupt without a completion may be word of a device that is lost.
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

    /// Does something that needs the completion queue, which nobody polls meanwhile.
    pub(crate) fn with_queue<R>(&self, work: impl FnOnce(&CompletionQueue<D>) -> R) -> R {
        work(&lock(&self.state.polled).queue)
    }

    /// Does something to the table of operations.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Operations<Buffer<D>>) -> R) -> R {
        work(&mut lock(&self.state.operations))
    }

    /// At most as many completions as the queue holds: a device that writes faster has the attention of one round.
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

    /// Wakes with no lock held: a waker may run what it likes.
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

/// Lets other tasks of the thread run.
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

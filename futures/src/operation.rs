//! The futures: one for a work request, one for a received message.

use crate::buffer::Buffer;
use crate::error::{Completed, Failed, OperationError};
use crate::lock::lock;
use crate::operations::{Arrival, Direction, Operations, Turn};
use crate::registration::Shared;
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::{DeviceRef, RangeError, RemoteSlice, WorkCompletion, WorkRequest};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

/// Size of an atomic's operand in bytes.
const ATOMIC: usize = 8;

/// The operation to perform with a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Send { immediate: Option<u32> },
    Write { remote: RemoteSlice, immediate: Option<u32> },
    Read { remote: RemoteSlice },
    FetchAdd { remote: RemoteSlice, add: u64 },
    CompareSwap { remote: RemoteSlice, compare: u64, swap: u64 },
}

/// A future that posts a work request when it is first polled, or once the send queue has room. To have several in
/// flight, poll their futures concurrently.
///
/// Cancel-safe: a posted work request continues, and its buffer returns to the pool once the device is done with it.
#[must_use = "a work request is posted when its future is polled"]
pub struct Operation<D: DeviceRef> {
    queue_pair: Arc<Shared<D>>,
    state: State<D>,
}

enum State<D: DeviceRef> {
    Waiting { request: Request, buffer: Buffer<D>, turn: Option<Turn> },
    Posted { id: u64 },
    Ended,
}

impl<D: DeviceRef> Operation<D> {
    pub(crate) fn new(queue_pair: Arc<Shared<D>>, request: Request, buffer: Buffer<D>) -> Self {
        Self { queue_pair, state: State::Waiting { request, buffer, turn: None } }
    }
}

impl<D: DeviceRef> Future for Operation<D> {
    type Output = Result<Completed<D>, Failed<D>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let registration = &this.queue_pair.registration;
        let mut released = None;
        let polled = registration.dispatcher.with(|operations| {
            match core::mem::replace(&mut this.state, State::Ended) {
                State::Waiting { request, mut buffer, mut turn } => {
                    let qpn = registration.qpn;
                    match post(&this.queue_pair, operations, &request, buffer, turn) {
                        Attempt::Posted(id) => {
                            released = Some(operations.end_turn(qpn, turn));
                            this.state = State::Posted { id };
                        }
                        Attempt::Refused(failed) => {
                            released = Some(operations.end_turn(qpn, turn));
                            return Poll::Ready(Err(failed));
                        }
                        Attempt::NoRoom(again) => {
                            buffer = again;
                            operations.await_turn(qpn, &mut turn, cx.waker());
                            this.state = State::Waiting { request, buffer, turn };
                            return Poll::Pending;
                        }
                    }
                }
                State::Ended => unreachable!("a future is not polled after it was ready"),
                posted @ State::Posted { .. } => this.state = posted,
            }
            let State::Posted { id } = this.state else { unreachable!("it was posted above") };
            let polled = operations.poll(id, cx.waker());
            if polled.is_ready() {
                this.state = State::Ended;
            }
            polled.map(|outcome| match outcome {
                Ok((completion, buffer)) => judge(completion, buffer),
                Err((broken, buffer)) => Err(Failed { error: OperationError::Broken(broken), buffer }),
            })
        });
        if let Some(released) = released {
            released.carry_out();
        }
        polled
    }
}

impl<D: DeviceRef> Drop for Operation<D> {
    fn drop(&mut self) {
        let registration = &self.queue_pair.registration;
        let dispatcher = &registration.dispatcher;
        match core::mem::replace(&mut self.state, State::Ended) {
            State::Waiting { turn, .. } => {
                dispatcher.with(|operations| operations.end_turn(registration.qpn, turn)).carry_out();
            }
            // The statement drops the buffer, if there is one, after the table is unlocked.
            State::Posted { id } => drop(dispatcher.with(|operations| operations.abandon(id))),
            State::Ended => {}
        }
    }
}

/// Result of an attempt to post.
enum Attempt<D: DeviceRef> {
    Posted(u64),
    NoRoom(Buffer<D>),
    Refused(Failed<D>),
}

fn post<D: DeviceRef>(
    queue_pair: &Shared<D>,
    operations: &mut Operations<Buffer<D>>,
    request: &Request,
    mut buffer: Buffer<D>,
    turn: Option<Turn>,
) -> Attempt<D> {
    let qpn = queue_pair.registration.qpn;
    let refuse = |error, buffer| Attempt::Refused(Failed { error, buffer });
    if let Some(broken) = operations.broken() {
        return refuse(OperationError::Broken(broken), Some(buffer));
    }
    if let Err(error) = fit(request, &mut buffer) {
        return refuse(OperationError::Remote(error), Some(buffer));
    }
    if operations.is_full() || !operations.is_turn(qpn, turn) {
        return Attempt::NoRoom(buffer);
    }
    let slice = [buffer.slice()];
    let data = if buffer.is_empty() { &[][..] } else { &slice[..] };
    let id = operations.begin(qpn, buffer, Direction::Send);
    let work = match *request {
        Request::Send { immediate } => with_immediate(WorkRequest::send(id, data), immediate),
        Request::Write { remote, immediate } => {
            with_immediate(WorkRequest::write(id, data, remote), immediate)
        }
        Request::Read { remote } => WorkRequest::read(id, data, remote),
        Request::FetchAdd { remote, add } => WorkRequest::fetch_add(id, &slice, remote, add),
        Request::CompareSwap { remote, compare, swap } => {
            WorkRequest::compare_swap(id, &slice, remote, compare, swap)
        }
    };
    // The caller holds the table's lock, so a completion always finds its operation.
    let Err(error) = lock(&queue_pair.driver).post_send(&work.signalled(true)) else {
        return Attempt::Posted(id);
    };
    let buffer = operations.take_back(id, Direction::Send);
    match (error, buffer) {
        // An operation that no empty queue could hold would wait forever.
        (PostError::QueueFull { .. }, Some(buffer)) if operations.will_have_room(qpn) => {
            Attempt::NoRoom(buffer)
        }
        (error, buffer) => refuse(OperationError::Post(error), buffer),
    }
}

const fn with_immediate(work: WorkRequest<'_>, immediate: Option<u32>) -> WorkRequest<'_> {
    match immediate {
        Some(immediate) => work.immediate(immediate),
        None => work,
    }
}

/// Sets the buffer of an atomic to 8 bytes, and checks that the remote slice is not shorter than the buffer.
fn fit<D: DeviceRef>(request: &Request, buffer: &mut Buffer<D>) -> Result<(), RangeError> {
    let remote = match *request {
        Request::Send { .. } => return Ok(()),
        Request::Write { remote, .. } | Request::Read { remote } => remote,
        Request::FetchAdd { remote, .. } | Request::CompareSwap { remote, .. } => {
            buffer.set_len(ATOMIC)?;
            remote
        }
    };
    remote.first(buffer.len()).map(drop)
}

/// Turns a failed completion into an error. The caller gets the buffer back in both cases.
fn judge<D: DeviceRef>(completion: WorkCompletion, buffer: Buffer<D>) -> Result<Completed<D>, Failed<D>> {
    match completion.into_result() {
        Ok(completion) => Ok(Completed { completion, buffer }),
        Err(error) => Err(Failed { error: OperationError::Work(error), buffer: Some(buffer) }),
    }
}

/// The next message of a queue pair; see [`QueuePair::receive`](crate::QueuePair::receive). Cancel-safe.
#[must_use = "a future does nothing until it is polled"]
pub struct Receive<'a, D: DeviceRef> {
    queue_pair: &'a Shared<D>,
}

impl<'a, D: DeviceRef> Receive<'a, D> {
    pub(crate) fn new(queue_pair: &'a Shared<D>) -> Self {
        Self { queue_pair }
    }
}

impl<D: DeviceRef> Future for Receive<'_, D> {
    type Output = Result<Completed<D>, Failed<D>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let registration = &self.queue_pair.registration;
        let polled =
            registration.dispatcher.with(|operations| operations.poll_receive(registration.qpn, cx.waker()));
        polled.map(|arrival| match arrival {
            Arrival::Message(completion, mut buffer) => {
                buffer.set_received(completion.byte_count);
                judge(completion, buffer)
            }
            Arrival::NothingPosted => Err(Failed { error: OperationError::NoReceivePosted, buffer: None }),
            Arrival::Broken(broken) => Err(Failed { error: OperationError::Broken(broken), buffer: None }),
        })
    }
}

//! The table of operations: who owns each buffer, and who waits for each completion. Pure; the device is an argument.
//!
//! **Why dropping a future is safe.** A future holds only the identifier of its work request. From posting to
//! completion, the buffer belongs to this table. Dropping the future marks the operation as abandoned; its completion
//! then frees the buffer. Received messages are not tied to a future: they wait in the inbox of their queue pair.

use crate::error::Broken;
use bareverbs_core::WorkCompletion;
use bareverbs_prm::ids::Qpn;
use core::task::{Poll, Waker};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};

/// Operations in flight on all queue pairs of one completion queue. `B` is the buffer type.
#[derive(Debug)]
pub(crate) struct Operations<B> {
    slots: Slab<Slot<B>>,
    /// Distinguishes operations that successively use the same slot.
    generation: u32,
    queue_pairs: BTreeMap<Qpn, QueuePairState<B>>,
    /// Number of operations that the device holds. Each will produce one completion.
    in_flight: usize,
    /// Capacity of the completion queue.
    limit: usize,
    turns: u64,
    broken: Option<Broken>,
}

/// One work request.
#[derive(Debug)]
struct Slot<B> {
    generation: u32,
    qpn: Qpn,
    state: SlotState<B>,
}

#[derive(Debug)]
enum SlotState<B> {
    /// The device owns the buffer.
    InFlight { buffer: B, waiter: Waiter },
    /// Completed, but the future has not been polled since.
    Done { buffer: B, completion: WorkCompletion },
}

/// Who is notified when an operation completes.
#[derive(Debug)]
enum Waiter {
    /// A future, with its waker once it has been polled after posting.
    Future(Option<Waker>),
    /// Nobody: the future was dropped.
    Nobody,
    /// The inbox of the queue pair.
    Inbox,
}

#[derive(Debug)]
struct QueuePairState<B> {
    /// Messages and failed receives, in order.
    inbox: VecDeque<(WorkCompletion, B)>,
    receives: usize,
    sends: usize,
    readers: Vec<Waker>,
    /// Futures that wait for room in the send queue, longest wait first.
    turns: VecDeque<(Turn, Waker)>,
}

/// A position in the line for a send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(u64);

/// Which queue an operation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Receive,
}

/// Work for after the table is unlocked: buffers to drop, tasks to wake.
#[derive(Debug)]
#[must_use]
pub(crate) struct Released<B> {
    buffers: Vec<B>,
    wakers: Vec<Waker>,
}

impl<B> Released<B> {
    fn nothing() -> Self {
        Self { buffers: Vec::new(), wakers: Vec::new() }
    }

    /// Drops the buffers and wakes the tasks.
    pub(crate) fn carry_out(self) {
        drop(self.buffers);
        self.wakers.into_iter().for_each(Waker::wake);
    }

    /// Leaks the buffers instead of returning them to their pools, because the device may still use them.
    pub(crate) fn leak_buffers(self) -> Self {
        self.buffers.into_iter().for_each(core::mem::forget);
        Self { buffers: Vec::new(), wakers: self.wakers }
    }
}

/// An operation that ended without a completion: the reason, and the buffer unless the device may still use it.
pub(crate) type Interrupted<B> = (Broken, Option<B>);

/// What a reader of an inbox receives.
#[derive(Debug)]
pub(crate) enum Arrival<B> {
    Message(WorkCompletion, B),
    /// No receive is posted and no message is left.
    NothingPosted,
    Broken(Broken),
}

impl<B> Operations<B> {
    /// An empty table for a completion queue of `limit` entries.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: Slab::new(),
            generation: 0,
            queue_pairs: BTreeMap::new(),
            in_flight: 0,
            limit,
            turns: 0,
            broken: None,
        }
    }

    pub(crate) fn add_queue_pair(&mut self, qpn: Qpn) {
        let (inbox, turns) = (VecDeque::new(), VecDeque::new());
        let state = QueuePairState { inbox, receives: 0, sends: 0, readers: Vec::new(), turns };
        self.queue_pairs.insert(qpn, state);
    }

    /// The reason why the dispatcher has stopped, if it has.
    pub(crate) fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Whether the completion queue has no room for another operation.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight >= self.limit
    }

    /// Whether a send of this queue pair is in flight, whose completion will make room.
    pub(crate) fn will_have_room(&self, qpn: Qpn) -> bool {
        self.queue_pairs.get(&qpn).is_some_and(|state| state.sends > 0)
    }

    /// Whether nobody has waited longer for the send queue.
    pub(crate) fn is_turn(&self, qpn: Qpn, turn: Option<Turn>) -> bool {
        let first = self.queue_pairs.get(&qpn).and_then(|state| state.turns.front());
        first.is_none_or(|(first, _)| Some(*first) == turn)
    }

    /// Joins the line for the send queue, or updates the waker.
    pub(crate) fn await_turn(&mut self, qpn: Qpn, turn: &mut Option<Turn>, waker: &Waker) {
        let Some(state) = self.queue_pairs.get_mut(&qpn) else { return };
        let own = *turn.get_or_insert_with(|| {
            self.turns += 1;
            Turn(self.turns)
        });
        match state.turns.iter_mut().find(|(waiting, _)| *waiting == own) {
            Some((_, old)) => old.clone_from(waker),
            None => state.turns.push_back((own, waker.clone())),
        }
    }

    /// Leaves the line after posting or giving up, and wakes the next in line.
    pub(crate) fn end_turn(&mut self, qpn: Qpn, turn: Option<Turn>) -> Released<B> {
        let mut released = Released::nothing();
        if let (Some(state), Some(turn)) = (self.queue_pairs.get_mut(&qpn), turn) {
            state.turns.retain(|(waiting, _)| *waiting != turn);
            released.wakers.extend(state.next_in_line());
        }
        released
    }

    /// Moves `buffer` into the table before the device gets it. Returns the identifier for the work request.
    pub(crate) fn begin(&mut self, qpn: Qpn, buffer: B, direction: Direction) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let waiter = match direction {
            Direction::Send => Waiter::Future(None),
            Direction::Receive => Waiter::Inbox,
        };
        let key = self.slots.insert(Slot { generation, qpn, state: SlotState::InFlight { buffer, waiter } });
        self.in_flight += 1;
        if let Some(state) = self.queue_pairs.get_mut(&qpn) {
            *state.count(direction) += 1;
        }
        u64::from(generation) << 32 | key as u64
    }

    /// Returns the buffer of a work request that the driver refused.
    pub(crate) fn take_back(&mut self, id: u64, direction: Direction) -> Option<B> {
        let slot = self.slots.try_remove(self.find(id)?)?;
        self.in_flight -= 1;
        if let Some(state) = self.queue_pairs.get_mut(&slot.qpn) {
            *state.count(direction) -= 1;
        }
        let (SlotState::InFlight { buffer, .. } | SlotState::Done { buffer, .. }) = slot.state;
        Some(buffer)
    }

    /// Polls the operation of a future.
    pub(crate) fn poll(
        &mut self,
        id: u64,
        waker: &Waker,
    ) -> Poll<Result<(WorkCompletion, B), Interrupted<B>>> {
        let Some(key) = self.find(id) else { unreachable!("only its future removes an operation") };
        let is_done = matches!(self.slots[key].state, SlotState::Done { .. });
        match (self.broken, is_done) {
            (_, true) => {
                let SlotState::Done { buffer, completion } = self.slots.remove(key).state else {
                    unreachable!("it was done above")
                };
                Poll::Ready(Ok((completion, buffer)))
            }
            (Some(broken), false) => Poll::Ready(Err(self.interrupt(key, broken))),
            (None, false) => {
                if let SlotState::InFlight { waiter, .. } = &mut self.slots[key].state {
                    *waiter = Waiter::Future(Some(waker.clone()));
                }
                Poll::Pending
            }
        }
    }

    /// Ends an operation that will never complete. A lost device uses no buffers; any other device may, so then the
    /// buffer stays in the table.
    fn interrupt(&mut self, key: usize, broken: Broken) -> Interrupted<B> {
        if matches!(broken, Broken::Completion(_)) {
            self.mark_dropped(key);
            return (broken, None);
        }
        self.in_flight -= 1;
        let (SlotState::InFlight { buffer, .. } | SlotState::Done { buffer, .. }) =
            self.slots.remove(key).state;
        (broken, Some(buffer))
    }

    /// Handles a dropped future. Returns its buffer if the device is already done with it.
    pub(crate) fn abandon(&mut self, id: u64) -> Option<B> {
        let key = self.find(id)?;
        if let SlotState::InFlight { .. } = self.slots[key].state {
            self.mark_dropped(key);
            return None;
        }
        match self.slots.remove(key).state {
            SlotState::InFlight { buffer, .. } | SlotState::Done { buffer, .. } => Some(buffer),
        }
    }

    fn mark_dropped(&mut self, key: usize) {
        if let SlotState::InFlight { waiter, .. } = &mut self.slots[key].state {
            *waiter = Waiter::Nobody;
        }
    }

    /// Polls for the next message of a queue pair.
    pub(crate) fn poll_receive(&mut self, qpn: Qpn, waker: &Waker) -> Poll<Arrival<B>> {
        let Some(state) = self.queue_pairs.get_mut(&qpn) else {
            unreachable!("a queue pair is forgotten after its futures")
        };
        if let Some((completion, buffer)) = state.inbox.pop_front() {
            return Poll::Ready(Arrival::Message(completion, buffer));
        }
        if let Some(broken) = self.broken {
            return Poll::Ready(Arrival::Broken(broken));
        }
        if state.receives == 0 {
            return Poll::Ready(Arrival::NothingPosted);
        }
        if !state.readers.iter().any(|reader| reader.will_wake(waker)) {
            state.readers.push(waker.clone());
        }
        Poll::Pending
    }

    /// Processes completions of the device.
    pub(crate) fn complete(&mut self, completions: &[WorkCompletion]) -> Released<B> {
        let mut released = Released::nothing();
        for completion in completions {
            self.complete_one(completion, &mut released);
        }
        released
    }

    /// Processes one completion. One without an operation in the table did not originate here and is ignored.
    fn complete_one(&mut self, completion: &WorkCompletion, released: &mut Released<B>) {
        let Some(key) = self.find(completion.wr_id) else { return };
        let is_in_flight = matches!(self.slots[key].state, SlotState::InFlight { .. });
        if !is_in_flight {
            return;
        }
        let Slot { generation, qpn, state } = self.slots.remove(key);
        let SlotState::InFlight { buffer, waiter } = state else { return };
        let was_full = self.is_full();
        self.in_flight -= 1;
        let Some(side) = self.queue_pairs.get_mut(&qpn) else { return released.buffers.push(buffer) };
        match waiter {
            Waiter::Inbox => {
                side.receives -= 1;
                side.inbox.push_back((*completion, buffer));
                released.wakers.append(&mut side.readers);
            }
            Waiter::Nobody => {
                side.sends -= 1;
                released.buffers.push(buffer);
            }
            Waiter::Future(waker) => {
                side.sends -= 1;
                released.wakers.extend(waker);
                let done = SlotState::Done { buffer, completion: *completion };
                // The slab reuses the slot that was just freed, so the key does not change.
                self.slots.insert(Slot { generation, qpn, state: done });
            }
        }
        match was_full {
            true => {
                released.wakers.extend(self.queue_pairs.values().filter_map(QueuePairState::next_in_line))
            }
            false => released.wakers.extend(side_of(&self.queue_pairs, qpn)),
        }
    }

    /// Stops the table: ends every operation.
    pub(crate) fn stop(&mut self, broken: Broken) -> Released<B> {
        let mut released = Released::nothing();
        self.broken.get_or_insert(broken);
        for (_, slot) in &mut self.slots {
            if let SlotState::InFlight { waiter: Waiter::Future(waker), .. } = &mut slot.state {
                released.wakers.extend(waker.take());
            }
        }
        for side in self.queue_pairs.values_mut() {
            released.wakers.append(&mut side.readers);
            released.wakers.extend(side.turns.iter().map(|(_, waker)| waker.clone()));
        }
        released
    }

    /// Removes a destroyed queue pair that has no futures left. Releases its buffers in flight and its unread messages.
    pub(crate) fn forget(&mut self, qpn: Qpn) -> Released<B> {
        let mut released = Released::nothing();
        let keys: Vec<_> =
            self.slots.iter().filter(|(_, slot)| slot.qpn == qpn).map(|(key, _)| key).collect();
        for key in keys {
            let (SlotState::InFlight { buffer, .. } | SlotState::Done { buffer, .. }) =
                self.slots.remove(key).state;
            self.in_flight -= 1;
            released.buffers.push(buffer);
        }
        if let Some(side) = self.queue_pairs.remove(&qpn) {
            released.buffers.extend(side.inbox.into_iter().map(|(_, buffer)| buffer));
        }
        released.wakers.extend(self.queue_pairs.values().filter_map(QueuePairState::next_in_line));
        released
    }

    /// Finds the slot of an operation, unless another operation has taken it over.
    fn find(&self, id: u64) -> Option<usize> {
        let key = id as u32 as usize;
        self.slots.get(key).filter(|slot| u64::from(slot.generation) == id >> 32).map(|_| key)
    }
}

fn side_of<B>(queue_pairs: &BTreeMap<Qpn, QueuePairState<B>>, qpn: Qpn) -> Option<Waker> {
    queue_pairs.get(&qpn).and_then(QueuePairState::next_in_line)
}

impl<B> QueuePairState<B> {
    fn next_in_line(&self) -> Option<Waker> {
        self.turns.front().map(|(_, waker)| waker.clone())
    }

    fn count(&mut self, direction: Direction) -> &mut usize {
        match direction {
            Direction::Send => &mut self.sends,
            Direction::Receive => &mut self.receives,
        }
    }
}

#[cfg(test)]
mod tests;

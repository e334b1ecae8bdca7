//! The table of operations: who owns which buffer, and who waits for what. Pure; the device is an argument.
//!
//! **Why dropping a future is safe.** A future has no more than the identifier of its work request. The buffer lies in this table from
//! the moment the request is posted until it completes. A dropped future leaves its operation here, marked; the completion then
//! frees the buffer. Messages are not bound to a future at all: they wait in the inbox of their queue pair.

use crate::error::Broken;
use bareverbs_core::WorkCompletion;
use bareverbs_prm::ids::Qpn;
use core::task::{Poll, Waker};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};

/// Operations of all queue pairs of one completion queue, with buffers `B`.
#[derive(Debug)]
pub(crate) struct Operations<B> {
    slots: Slab<Slot<B>>,
    /// Distinguishes operations that had the same slot one after the other.
    generation: u32,
    queue_pairs: BTreeMap<Qpn, QueuePairState<B>>,
    /// Operations that the device has: each will write one completion.
    in_flight: usize,
    /// Completions that the queue holds.
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
    /// The device has the buffer.
    InFlight { buffer: B, waiter: Waiter },
    /// The device has given it back, and the future has not asked yet.
    Done { buffer: B, completion: WorkCompletion },
}

/// Who is told when an operation completes.
#[derive(Debug)]
enum Waiter {
    /// A future; it may not have been polled since.
    Future(Option<Waker>),
    /// Nobody: the future was dropped.
    Nobody,
    /// The inbox of the queue pair.
    Inbox,
}

#[derive(Debug)]
struct QueuePairState<B> {
    /// Messages, and receives that failed, in their order.
    inbox: VecDeque<(WorkCompletion, B)>,
    receives: usize,
    sends: usize,
    readers: Vec<Waker>,
    /// Futures that wait for room in the send queue, the longest waiting first.
    turns: VecDeque<(Turn, Waker)>,
}

/// A place in the line for a send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(u64);

/// What kind of operation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Receive,
}

/// What has to be done when the table is not locked any more: buffers dropped, tasks woken.
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

    /// Drops the buffers, then wakes the tasks.
    pub(crate) fn carry_out(self) {
        drop(self.buffers);
        self.wakers.into_iter().for_each(Waker::wake);
    }

    /// The buffers stay out of their pools: the device may still use them.
    pub(crate) fn leak_buffers(self) -> Self {
        self.buffers.into_iter().for_each(core::mem::forget);
        Self { buffers: Vec::new(), wakers: self.wakers }
    }
}

/// Why an operation ended without a completion, and its buffer if the device does not use it any more.
pub(crate) type Interrupted<B> = (Broken, Option<B>);

/// What a reader of an inbox gets.
#[derive(Debug)]
pub(crate) enum Arrival<B> {
    Message(WorkCompletion, B),
    /// No receive is posted and no message is left.
    NothingPosted,
    Broken(Broken),
}

impl<B> Operations<B> {
    /// An empty table for a queue of `limit` completions.
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

    /// Why nothing completes any more, if so.
    pub(crate) fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Whether the completion queue could not hold one more.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight >= self.limit
    }

    /// Whether a send of this queue pair will complete, and so make room.
    pub(crate) fn will_have_room(&self, qpn: Qpn) -> bool {
        self.queue_pairs.get(&qpn).is_some_and(|state| state.sends > 0)
    }

    /// Whether nobody else waits longer for the send queue.
    pub(crate) fn is_turn(&self, qpn: Qpn, turn: Option<Turn>) -> bool {
        let first = self.queue_pairs.get(&qpn).and_then(|state| state.turns.front());
        first.is_none_or(|(first, _)| Some(*first) == turn)
    }

    /// Waits in line for the send queue.
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

    /// Leaves the line, having posted or given up; the next one is woken.
    pub(crate) fn end_turn(&mut self, qpn: Qpn, turn: Option<Turn>) -> Released<B> {
        let mut released = Released::nothing();
        if let (Some(state), Some(turn)) = (self.queue_pairs.get_mut(&qpn), turn) {
            state.turns.retain(|(waiting, _)| *waiting != turn);
            released.wakers.extend(state.next_in_line());
        }
        released
    }

    /// The device is about to be given `buffer`: the identifier of the work request.
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

    /// The work request was refused: the buffer again.
    pub(crate) fn take_back(&mut self, id: u64, direction: Direction) -> Option<B> {
        let slot = self.slots.try_remove(self.find(id)?)?;
        self.in_flight -= 1;
        if let Some(state) = self.queue_pairs.get_mut(&slot.qpn) {
            *state.count(direction) -= 1;
        }
        let (SlotState::InFlight { buffer, .. } | SlotState::Done { buffer, .. }) = slot.state;
        Some(buffer)
    }

    /// What became of the work request of a future.
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

    /// Ends an operation that will not complete. A lost device uses no buffer; any other may, so the buffer stays.
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

    /// The future of a work request was dropped: its buffer, if the device has given it back already.
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

    /// The next message of a queue pair.
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

    /// The device has completed work requests.
    pub(crate) fn complete(&mut self, completions: &[WorkCompletion]) -> Released<B> {
        let mut released = Released::nothing();
        for completion in completions {
            self.complete_one(completion, &mut released);
        }
        released
    }

    /// A completion of an operation that is not in the table is of none that was begun here, and says nothing.
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
                // The slot that was just freed is the next one that is given.
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

    /// Nothing completes any more.
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

    /// A queue pair is destroyed and no future of it is left: the buffers of what was in flight, and the messages nobody read.
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

    /// The slot of an operation, if it still has it.
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

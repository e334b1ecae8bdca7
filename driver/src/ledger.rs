//! Who owns which work request: one producer (the queue pair that posts), one consumer (the completion queue that
//! polls), for the send and for the receive queue each. Pure: it sees shared words and nothing else.
//!
//! One record of 32 words a queue pair says how far each side is; slots elsewhere in the same words hold what was posted.
//! The poster writes slots and then its head (release); the poller reads head (acquire), then slots, then writes its tail
//! (release); the poster reads tail (acquire) before it writes a slot again.
//!
//! What a completion entry says is an allegation: the identity must be that of a record, the counter must lie between
//! tail and head and be where a work request begins. Records are found by the low bits of `user_index`, whose high bits
//! are a generation, so that an entry of a queue pair that is gone finds nobody.

use bareverbs_prm::ids::{Cqn, Qpn};
use core::sync::atomic::Ordering;

/// Words shared by poster and poller.
pub trait Words {
    /// Loads word `index`; zero beyond the end.
    fn load(&self, index: usize, order: Ordering) -> u64;
    /// Stores word `index`; nothing beyond the end.
    fn store(&self, index: usize, value: u64, order: Ordering);
    /// Loads the words `2 * index` and `2 * index + 1`, relaxed; zeros beyond the end.
    #[inline(always)]
    fn load_pair(&self, index: usize) -> [u64; 2] {
        [self.load(2 * index, Ordering::Relaxed), self.load(2 * index + 1, Ordering::Relaxed)]
    }
    /// Stores the words `2 * index` and `2 * index + 1`, relaxed; nothing beyond the end.
    #[inline(always)]
    fn store_pair(&self, index: usize, [a, b]: [u64; 2]) {
        self.store(2 * index, a, Ordering::Relaxed);
        self.store(2 * index + 1, b, Ordering::Relaxed);
    }
}

/// Words of a record: four cache lines, one of them written by the poster, two by pollers.
pub const RECORD_WORDS: usize = 32;
/// Words of a slot: the identifier of the application, and what was posted.
pub const SLOT_WORDS: usize = 2;

const PUBLISH: Ordering =
    if cfg!(bareverbs_mutation = "relaxed_ledger") { Ordering::Relaxed } else { Ordering::Release };

/// Which of the two queues of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The send queue; slots are counted in basic blocks.
    Send,
    /// The receive queue; slots are counted in receive work requests.
    Receive,
}

impl Side {
    const fn identity(self) -> usize {
        self as usize
    }
    const fn range(self) -> usize {
        2 + self as usize
    }
    const fn head(self) -> usize {
        8 + self as usize
    }
    const fn tail(self) -> usize {
        16 + 8 * self as usize
    }
}

/// The identity that a completion entry must prove: queue pair, its `user_index`, and the completion queue it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    /// Of what an entry says, and the queue it stands in.
    #[inline(always)]
    pub const fn new(cqn: Cqn, user_index: u32, qpn: Qpn) -> Self {
        Self(Self::queue(cqn) | ((user_index & 0xff_ffff) as u64) << 24 | qpn.value() as u64)
    }

    /// The part that a completion queue contributes.
    #[inline(always)]
    pub const fn queue(cqn: Cqn) -> u64 {
        (cqn.value() as u64 & 0xffff) << 48
    }

    /// From the part of the queue and the low 48 bits.
    #[inline(always)]
    pub const fn from_parts(queue: u64, user_index: u32, qpn: u32) -> Self {
        Self(queue | ((user_index & 0xff_ffff) as u64) << 24 | (qpn & 0xff_ffff) as u64)
    }

    #[inline(always)]
    const fn user_index(self) -> usize {
        (self.0 >> 24) as usize & 0xff_ffff
    }
}

/// Where the slots of a queue are and how many there are (a power of two). Slots of sends are pairs of words, those of
/// receives single words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First slot, counted from the first word.
    pub base: u32,
    /// Slots.
    pub slots: u32,
}

/// What was posted: the second word of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted(u64);

impl Posted {
    /// A work request of `kind` that begins at `counter` and takes `slots` slots.
    #[inline(always)]
    pub const fn new(counter: u32, slots: u32, kind: u8) -> Self {
        Self((counter & 0xffff) as u64 | (slots as u64) << 16 | (kind as u64) << 32)
    }
    /// The same, beginning at `counter`; it must begin at zero.
    #[inline(always)]
    pub const fn at(self, counter: u32) -> Self {
        Self(self.0 | (counter & 0xffff) as u64)
    }
    /// What the poster said it was.
    #[inline(always)]
    pub const fn kind(self) -> u8 {
        (self.0 >> 32) as u8
    }
    #[inline(always)]
    const fn counter(self) -> u16 {
        self.0 as u16
    }
    #[inline(always)]
    const fn slots(self) -> u32 {
        (self.0 >> 16) as u32 & 0xffff
    }
}

/// The poster's half of one queue.
#[derive(Debug)]
pub struct Poster {
    side: Side,
    record: usize,
    /// The word that tells the poller how far we are.
    head_word: usize,
    base: usize,
    mask: u32,
    head: u32,
    /// The head that the queue is full at, as far as is known: the poller's tail and the size.
    full: u32,
}

impl Poster {
    /// Opens record number `record` for `side`. Nobody polls it before its identity is stored.
    pub fn open(words: &impl Words, side: Side, record: usize, range: Range) -> Self {
        let record = record * RECORD_WORDS;
        words.store(record + side.head(), 0, Ordering::Relaxed);
        words.store(record + side.tail(), 0, Ordering::Relaxed);
        let mask = range.slots.wrapping_sub(1);
        words.store(record + side.range(), (range.base as u64) << 32 | mask as u64, Ordering::Relaxed);
        let (head_word, base) = (record + side.head(), range.base as usize);
        Self { side, record, head_word, base, mask, head: 0, full: range.slots }
    }

    /// Names the queue pair and the completion queue, so that completions find the record.
    pub fn identify(&self, words: &impl Words, identity: Identity) {
        words.store(self.record + self.side.identity(), identity.0, Ordering::Release);
    }

    /// Forgets the identity: completions find nobody from now on.
    pub fn close(&self, words: &impl Words) {
        words.store(self.record + self.side.identity(), u64::MAX, Ordering::Release);
    }

    /// Slots of the queue.
    pub const fn size(&self) -> u32 {
        self.mask.wrapping_add(1)
    }

    /// Slots posted so far, modulo 2^32.
    #[inline(always)]
    pub const fn head(&self) -> u32 {
        self.head
    }

    /// Slots that are not retired yet.
    pub fn outstanding(&self, words: &impl Words) -> u32 {
        self.head.wrapping_sub(words.load(self.record + self.side.tail(), Ordering::Acquire) as u32)
    }

    /// Whether `slots` slots are free. Looks at the poller's tail only when its last known value does not suffice.
    #[inline(always)]
    pub fn has_room(&mut self, words: &impl Words, slots: u32) -> bool {
        self.full.wrapping_sub(self.head) >= slots || self.refresh(words, slots)
    }

    /// Whether a slot is free.
    #[inline(always)]
    pub fn has_room_for_one(&mut self, words: &impl Words) -> bool {
        self.full != self.head || self.refresh(words, 1)
    }

    #[cold]
    #[inline(never)]
    fn refresh(&mut self, words: &impl Words, slots: u32) -> bool {
        let tail = words.load(self.record + self.side.tail(), Ordering::Acquire) as u32;
        self.full = tail.wrapping_add(self.size());
        self.full.wrapping_sub(self.head) >= slots
    }

    /// The slot that comes next, from zero.
    #[inline(always)]
    pub const fn index(&self) -> u32 {
        self.head & self.mask
    }

    /// Remembers a work request of `slots` slots under `id`. The caller has asked [`Self::has_room`].
    pub fn post(&mut self, words: &impl Words, id: u64, slots: u32, kind: u8) {
        let (head, index) = (self.head, self.index());
        words.store_pair(self.base + index as usize, [id, Posted::new(head, slots, kind).0]);
        self.head = head.wrapping_add(slots);
    }

    /// [`Self::post`] of one slot: `head` and `index` are those of the queue, `posted` says so.
    #[inline(always)]
    pub fn post_one(&mut self, words: &impl Words, (head, index): (u32, u32), id: u64, posted: Posted) {
        words.store_pair(self.base + index as usize, [id, posted.0]);
        self.head = head.wrapping_add(1);
    }

    /// Remembers a receive under `id`: one slot, and the poller knows what it is. `head` and `index` are those of the
    /// queue. See [`Self::post`].
    #[inline(always)]
    pub fn post_receive(&mut self, words: &impl Words, (head, index): (u32, u32), id: u64) {
        words.store(self.base + index as usize, id, Ordering::Relaxed);
        self.head = head.wrapping_add(1);
    }

    /// Lets the poller see everything posted so far. Comes before the doorbell.
    #[inline(always)]
    pub fn publish(&self, words: &impl Words) {
        words.store(self.head_word, self.head as u64, PUBLISH);
    }

    /// Starts over after the queue pair was reset and its completions are out of the completion queue.
    pub fn restart(&mut self, words: &impl Words) {
        (self.head, self.full) = (0, self.size());
        words.store(self.record + self.side.tail(), 0, Ordering::Relaxed);
        words.store(self.head_word, 0, PUBLISH);
    }
}

/// Why an allegation was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No queue pair of this identity completes here: it is gone, or never was.
    Stranger,
    /// No work request that begins at this counter is outstanding.
    NotOutstanding,
}

/// What became of a work request: the identifier, and what was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retired {
    /// The identifier of the application.
    pub id: u64,
    /// What was posted.
    pub posted: Posted,
}

/// The poller's half of one send queue. It may be kept between completions as long as [`is_current`](Self::is_current).
#[derive(Debug, Clone, Copy)]
pub struct SendPoller {
    identity: Identity,
    record: usize,
    base: usize,
    mask: u32,
    head: u32,
    tail: u32,
}

impl SendPoller {
    /// Of no queue pair: no record has this identity.
    pub const NOBODY: Self =
        Self { identity: Identity(u64::MAX - 1), record: 0, base: 0, mask: 0, head: 0, tail: 0 };

    /// Finds the record of `identity` among `records` (a power of two).
    #[inline]
    pub fn resolve(words: &impl Words, records: usize, identity: Identity) -> Option<Self> {
        let record = (identity.user_index() & (records - 1)) * RECORD_WORDS;
        if words.load(record + Side::Send.identity(), Ordering::Relaxed) != identity.0 {
            return None;
        }
        let range = words.load(record + Side::Send.range(), Ordering::Relaxed);
        let head = words.load(record + Side::Send.head(), Ordering::Acquire) as u32;
        let tail = words.load(record + Side::Send.tail(), Ordering::Relaxed) as u32;
        Some(Self { identity, record, base: (range >> 32) as usize, mask: range as u32, head, tail })
    }

    /// Whether the queue pair is still the one that was found.
    #[inline(always)]
    pub fn is_current(&self, words: &impl Words) -> bool {
        words.load(self.record + Side::Send.identity(), Ordering::Relaxed) == self.identity.0
    }

    /// Retires the oldest work request, if it is the one at `counter`. This is the way when all are signalled.
    #[inline(always)]
    pub fn retire_next(&mut self, words: &impl Words, counter: u16) -> Option<Retired> {
        if counter != self.tail as u16 || !self.has_outstanding(words) {
            return None;
        }
        let [id, posted] = words.load_pair(self.base + (self.tail & self.mask) as usize);
        let posted = Posted(posted);
        self.tail = self.tail.wrapping_add(posted.slots());
        Some(Retired { id, posted })
    }

    #[inline(always)]
    fn has_outstanding(&mut self, words: &impl Words) -> bool {
        if self.head == self.tail {
            self.head = words.load(self.record + Side::Send.head(), Ordering::Acquire) as u32;
        }
        self.head != self.tail
    }

    /// Retires the work request at `counter` and every earlier one: an unsignalled one completes with the next
    /// completion.
    #[inline]
    pub fn retire(&mut self, words: &impl Words, counter: u16) -> Result<Retired, Refusal> {
        self.head = words.load(self.record + Side::Send.head(), Ordering::Acquire) as u32;
        let ahead = counter.wrapping_sub(self.tail as u16) as u32;
        let [id, posted] = words.load_pair(self.base + (counter as u32 & self.mask) as usize);
        let posted = Posted(posted);
        if ahead >= self.head.wrapping_sub(self.tail) || posted.counter() != counter {
            return Err(Refusal::NotOutstanding);
        }
        self.tail = self.tail.wrapping_add(ahead).wrapping_add(posted.slots());
        Ok(Retired { id, posted })
    }

    /// Gives the slots of what was retired back to the poster.
    #[inline(always)]
    pub fn publish(&self, words: &impl Words) {
        words.store(self.record + Side::Send.tail(), self.tail as u64, PUBLISH);
    }
}

/// Retires the send at `counter` and every earlier one.
pub fn retire_send(
    words: &impl Words,
    records: usize,
    identity: Identity,
    counter: u16,
) -> Result<Retired, Refusal> {
    let mut poller = SendPoller::resolve(words, records, identity).ok_or(Refusal::Stranger)?;
    let retired = poller.retire(words, counter)?;
    poller.publish(words);
    Ok(retired)
}

/// Retires the receive at `counter`: receives of a queue pair complete in order (IBTA v1.4 §10.8.3.1).
#[inline(always)]
pub fn retire_receive(
    words: &impl Words,
    records: usize,
    identity: Identity,
    counter: u16,
) -> Result<u64, Refusal> {
    let record = (identity.user_index() & (records - 1)) * RECORD_WORDS;
    if words.load(record + Side::Receive.identity(), Ordering::Relaxed) != identity.0 {
        return Err(Refusal::Stranger);
    }
    let range = words.load(record + Side::Receive.range(), Ordering::Relaxed);
    let head = words.load(record + Side::Receive.head(), Ordering::Acquire) as u32;
    let tail = words.load(record + Side::Receive.tail(), Ordering::Relaxed) as u32;
    if tail == head || tail as u16 != counter {
        return Err(Refusal::NotOutstanding);
    }
    let id = words.load((range >> 32) as usize + (counter as u32 & range as u32) as usize, Ordering::Relaxed);
    words.store(record + Side::Receive.tail(), tail.wrapping_add(1) as u64, PUBLISH);
    Ok(id)
}

#[cfg(test)]
mod tests;

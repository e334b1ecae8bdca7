//! Ownership of work requests. Each send queue and each receive queue has one producer, the queue pair that
//! posts, and one consumer, the completion queue that polls. Shared receive queues have several pollers: see
//! [`shared`]. This module is pure: it only sees shared words.
//!
//! Each queue pair has a record of 32 words that says how far each side is; slots elsewhere in the same words
//! hold what was posted. The poster writes slots and then its head (release). The poller reads the head
//! (acquire), then slots, then writes its tail (release). The poster reads the tail (acquire) before it
//! writes a slot again.
//!
//! The contents of a completion entry are only claims: its identity must be that of a record, and its counter
//! must lie between tail and head at the start of a work request. The `user_index` selects the record; it also
//! holds a generation, so an entry of a destroyed queue pair matches nothing.

mod poller;
mod receive;
mod send;
pub mod shared;
mod user_index;

pub use poller::{Found, Half, Poller, Receives, Sends};
pub use receive::{ReceivePoller, retire_receive};
pub use send::{Retired, SendPoller, retire_send};
pub use user_index::{RecordPlace, UserIndex};

use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::mutation::mutated;
use core::sync::atomic::Ordering;

/// Words shared by poster and poller.
pub trait Words {
    /// Loads word `index`; zero beyond the end.
    fn load(&self, index: usize, order: Ordering) -> u64;
    /// Stores word `index`; nothing beyond the end.
    fn store(&self, index: usize, value: u64, order: Ordering);
    /// The pairs of words from pair `base` on, indexed modulo `mask + 1`. Stores beyond the end are lost.
    #[inline(always)]
    fn pairs(&self, base: u32, mask: u32) -> impl Pairs + '_ {
        Plain { words: self, base, mask }
    }
    /// The words from `base` on, indexed modulo `mask + 1`. Stores beyond the end are lost.
    #[inline(always)]
    fn singles(&self, base: u32, mask: u32) -> impl Singles + '_ {
        Plain { words: self, base, mask }
    }
    /// A loader of the words number `word` and the next, if they are within the words.
    #[inline(always)]
    fn pair(&self, word: usize) -> Option<impl Fn() -> [u64; 2]> {
        Some(move || [word, word.wrapping_add(1)].map(|word| self.load(word, Ordering::Relaxed)))
    }
    /// A loader of word number `word`, if it is within the words.
    #[inline(always)]
    fn single(&self, word: usize) -> Option<impl Fn() -> u64> {
        Some(move || self.load(word, Ordering::Relaxed))
    }
    /// Record number `number`, if there are records.
    #[inline(always)]
    fn record(&self, number: u32) -> Option<impl Record + '_> {
        Some(PlainRecord(self, number as usize * RECORD_WORDS))
    }
    /// The record at `place`, if there are records.
    #[inline(always)]
    fn record_at(&self, place: RecordPlace) -> Option<impl Record + '_> {
        self.record(place.number())
    }
    /// The record of `user_index` among `records` (a power of two), if there are records.
    #[inline(always)]
    fn record_of(&self, user_index: UserIndex, records: usize) -> Option<impl Record + '_> {
        self.record(user_index.record(records) as u32)
    }
}

/// A record.
pub trait Record {
    /// Loads word `W` of it.
    fn load<const W: usize>(&self, order: Ordering) -> u64;
    /// Stores word `W` of it.
    fn store<const W: usize>(&self, value: u64, order: Ordering);
}

/// A record accessed through the generic methods of [`Words`].
struct PlainRecord<'a, W: ?Sized>(&'a W, usize);

impl<W: Words + ?Sized> Record for PlainRecord<'_, W> {
    fn load<const I: usize>(&self, order: Ordering) -> u64 {
        self.0.load(self.1 + I, order)
    }
    fn store<const I: usize>(&self, value: u64, order: Ordering) {
        self.0.store(self.1 + I, value, order);
    }
}

/// Slots of sends.
pub trait Pairs {
    /// Loads slot `index`, relaxed.
    fn load(&self, index: u32) -> [u64; 2];
    /// Stores slot `index`, relaxed.
    fn store(&self, index: u32, pair: [u64; 2]);
}

/// Slots of receives.
pub trait Singles {
    /// Loads slot `index`, relaxed.
    fn load(&self, index: u32) -> u64;
    /// Stores slot `index`, relaxed.
    fn store(&self, index: u32, word: u64);
}

/// Slots accessed through the generic methods of [`Words`].
struct Plain<'a, W: ?Sized> {
    words: &'a W,
    base: u32,
    mask: u32,
}

impl<W: ?Sized> Plain<'_, W> {
    fn at(&self, index: u32) -> usize {
        self.base as usize + (index & self.mask) as usize
    }
}

impl<W: Words + ?Sized> Pairs for Plain<'_, W> {
    fn load(&self, index: u32) -> [u64; 2] {
        let at = 2 * self.at(index);
        [self.words.load(at, Ordering::Relaxed), self.words.load(at + 1, Ordering::Relaxed)]
    }
    fn store(&self, index: u32, [a, b]: [u64; 2]) {
        let at = 2 * self.at(index);
        self.words.store(at, a, Ordering::Relaxed);
        self.words.store(at + 1, b, Ordering::Relaxed);
    }
}

impl<W: Words + ?Sized> Singles for Plain<'_, W> {
    fn load(&self, index: u32) -> u64 {
        self.words.load(self.at(index), Ordering::Relaxed)
    }
    fn store(&self, index: u32, word: u64) {
        self.words.store(self.at(index), word, Ordering::Relaxed);
    }
}

/// Words of a record: four cache lines, one of them written by the poster, two by pollers, which also hold what
/// pollers read of a record, but for the head.
pub const RECORD_WORDS: usize = 32;
/// Words of a slot: the identifier of the application, and what was posted.
pub const SLOT_WORDS: usize = 2;

/// The ordering that publishes a record together with the slots written before it.
#[inline(always)]
fn publish_order() -> Ordering {
    if mutated("relaxed_ledger") { Ordering::Relaxed } else { Ordering::Release }
}

/// One of the two queues of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The send queue; slots are counted in basic blocks.
    Send,
    /// The receive queue; slots are counted in receive work requests.
    Receive,
}

impl Side {
    const fn head(self) -> usize {
        8 + self as usize
    }
    const fn tail(self) -> usize {
        16 + 8 * self as usize
    }
    /// The word with the [name](Home::name) of the queue.
    const fn name(self) -> usize {
        self.tail() + 1
    }
    /// The word with the number of the queue pair.
    const fn qpn(self) -> usize {
        self.tail() + 2
    }
    /// Words of a slot.
    const fn words(self) -> usize {
        match self {
            Self::Send => SLOT_WORDS,
            Self::Receive => 1,
        }
    }
    /// The word with the number of the first slot's first word.
    const fn base(self) -> usize {
        self.tail() + 3
    }
    /// The word with the number of slots minus one.
    const fn mask(self) -> usize {
        self.tail() + 4
    }
}

/// The name of closed records, which no entry has.
const CLOSED: u64 = u64::MAX;

/// The identity that a completion entry must have: queue pair, `user_index`, and the completion queue that it
/// came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    home: Home,
    user_index: UserIndex,
    qpn: Qpn,
}

impl Identity {
    /// The identity of no queue pair, which no record has.
    const NOBODY: Self =
        Self { home: Home::NOBODY, user_index: UserIndex::new(0), qpn: Qpn::from_low_bits(0) };

    /// The identity in an entry of completion queue `cqn`.
    #[inline(always)]
    pub const fn new(cqn: Cqn, user_index: UserIndex, qpn: Qpn) -> Self {
        Self { home: Home::of(cqn), user_index, qpn }
    }

    /// The name of the queue.
    #[inline(always)]
    const fn name(self) -> u64 {
        self.home.name(self.user_index)
    }

    /// All in one word, of the completion queue's number the low 16 bits.
    #[inline(always)]
    const fn packed(self) -> u64 {
        self.packed_without_queue_pair() | self.qpn.value() as u64
    }

    /// The same without the number of the queue pair.
    #[inline(always)]
    const fn packed_without_queue_pair(self) -> u64 {
        self.home.0 << 16 | (self.user_index.shifted() as u64) << 16
    }
}

/// The completion queue of queue pairs, as part of their identity. It and the `user_index`, which is unique
/// to a queue pair, are what an entry must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home(u64);

impl Home {
    /// The home of no queue pair: no completion queue has such a number.
    pub const NOBODY: Self = Self(1 << 63);

    /// The home of the queue pairs that complete in this queue.
    #[inline(always)]
    pub const fn of(cqn: Cqn) -> Self {
        Self((cqn.value() as u64) << 32)
    }

    /// The name of a queue: its `user_index`, and that it completes here.
    #[inline(always)]
    const fn name(self, user_index: UserIndex) -> u64 {
        self.0 | user_index.shifted() as u64
    }

    /// Whether a queue of this name has this `user_index` and completes here. This takes one instruction less than making
    /// the name and comparing it.
    #[inline(always)]
    const fn is_name(self, name: u64, user_index: UserIndex) -> bool {
        name ^ user_index.shifted() as u64 == self.0
    }
}

/// The location and number (a power of two) of a queue's slots. Send slots are pairs of words, receive slots
/// are single words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First slot, counted from the first word.
    pub base: u32,
    /// Number of slots.
    pub slots: u32,
}

/// The slots of a queue, which may or may not have been checked: indexed modulo `mask + 1` from slot `base`
/// on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// First slot, counted from the first word.
    pub base: usize,
    /// Number of slots minus one.
    pub mask: u32,
}

/// What was posted: the second word of a slot. Bits 31:0 hold the counter of the next work request, 47:32 the
/// number of slots, 63:60 the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted(u64);

impl Posted {
    /// A work request of `kind` (below 16) that begins at `counter` and takes `slots` slots.
    #[inline(always)]
    pub const fn new(counter: u32, slots: u32, kind: u8) -> Self {
        Self::some(slots, kind).before(counter.wrapping_add(slots))
    }
    /// A work request of `kind` with `slots` slots, without a position: see `before`.
    #[inline(always)]
    pub const fn some(slots: u32, kind: u8) -> Self {
        Self(((slots & 0xffff) as u64) << 32 | (kind as u64) << 60)
    }
    /// Adds the position: the work request ends at `next`.
    #[inline(always)]
    const fn before(self, next: u32) -> Self {
        Self(self.0 | next as u64)
    }
    /// The kind that the poster gave.
    #[inline(always)]
    pub const fn kind(self) -> u8 {
        (self.0 >> 60) as u8
    }
    #[inline(always)]
    const fn next(self) -> u32 {
        self.0 as u32
    }
    /// Slots that it takes.
    #[inline(always)]
    pub const fn slots(self) -> u32 {
        (self.0 >> 32) as u32 & 0xffff
    }
    #[inline(always)]
    const fn counter(self) -> u16 {
        self.next().wrapping_sub(self.slots()) as u16
    }
}

/// Closes both queues of record number `record`, so that completions match nothing there.
pub fn close(words: &impl Words, record: usize) {
    for side in [Side::Send, Side::Receive] {
        words.store(record * RECORD_WORDS + side.name(), CLOSED, Ordering::Release);
    }
}

/// The poster's half of one queue.
#[derive(Debug, Clone)]
pub struct Poster {
    side: Side,
    record: usize,
    /// The word that tells the poller the head.
    head_word: usize,
    base: u32,
    mask: u32,
    head: u32,
    /// The head at which the queue is full, as far as is known: the poller's tail plus the size.
    full: u32,
}

impl Poster {
    /// Opens record number `record` for `side`. No poller finds it before its identity is stored.
    pub fn open(words: &impl Words, side: Side, record: usize, range: Range) -> Self {
        let record = record * RECORD_WORDS;
        words.store(record + side.head(), 0, Ordering::Relaxed);
        words.store(record + side.tail(), 0, Ordering::Relaxed);
        let mask = range.slots.wrapping_sub(1);
        words.store(record + side.base(), u64::from(range.base) * side.words() as u64, Ordering::Relaxed);
        words.store(record + side.mask(), mask.into(), Ordering::Relaxed);
        let head_word = record + side.head();
        Self { side, record, head_word, base: range.base, mask, head: 0, full: range.slots }
    }

    /// Stores the queue pair and the completion queue, so that completions find the record.
    pub fn identify(&self, words: &impl Words, identity: Identity) {
        words.store(self.record + self.side.qpn(), identity.qpn.value().into(), Ordering::Relaxed);
        words.store(self.record + self.side.name(), identity.name(), Ordering::Release);
    }

    /// Removes the name, so that completions no longer find the record.
    pub fn close(&self, words: &impl Words) {
        words.store(self.record + self.side.name(), CLOSED, Ordering::Release);
    }

    /// Number of slots.
    pub const fn size(&self) -> u32 {
        self.mask.wrapping_add(1)
    }

    /// Slots posted so far, modulo 2^32.
    #[inline(always)]
    pub const fn head(&self) -> u32 {
        self.head
    }

    /// Slots that have not been retired.
    pub fn outstanding(&self, words: &impl Words) -> u32 {
        self.head.wrapping_sub(words.load(self.record + self.side.tail(), Ordering::Acquire) as u32)
    }

    /// Whether `slots` slots are free. Reads the poller's tail only if its last known value does not suffice.
    #[inline(always)]
    pub fn has_room(&mut self, words: &impl Words, slots: u32) -> bool {
        if self.full.wrapping_sub(self.head) < slots {
            self.full = self.refresh(words);
            return self.full.wrapping_sub(self.head) >= slots;
        }
        true
    }

    /// Whether all slots before `next` are free. That is less than 2^31 slots from the head.
    #[inline(always)]
    pub fn has_room_up_to(&mut self, words: &impl Words, next: u32) -> bool {
        if (self.full.wrapping_sub(next) as i32) < 0 {
            self.full = self.refresh(words);
            return self.full.wrapping_sub(next) as i32 >= 0;
        }
        true
    }

    /// Whether `slots` slots are known to be free.
    #[inline(always)]
    pub const fn knows_room(&self, slots: u32) -> bool {
        self.full.wrapping_sub(self.head) >= slots
    }

    /// Whether a slot is free.
    #[inline(always)]
    pub fn has_room_for_one(&mut self, words: &impl Words) -> bool {
        self.has_room_at(words, self.head)
    }

    /// Whether slot `head` is free; all slots before it are in use.
    #[inline(always)]
    pub fn has_room_at(&mut self, words: &impl Words, head: u32) -> bool {
        if self.full == head {
            self.full = self.refresh(words);
            return self.full != head;
        }
        true
    }

    #[inline(always)]
    fn refresh(&self, words: &impl Words) -> u32 {
        limit(words, self.record + self.side.tail(), self.size())
    }

    /// Takes over the progress of `other`, a copy of this one.
    #[inline(always)]
    pub fn follow(&mut self, other: &Self) {
        (self.head, self.full) = (other.head, other.full);
    }

    /// Its slots.
    #[inline(always)]
    pub const fn slots(&self) -> Slots {
        Slots { base: self.base as usize, mask: self.mask }
    }

    /// The slots of a send queue.
    #[inline(always)]
    pub fn pairs<'a, W: Words>(&self, words: &'a W) -> impl Pairs + use<'a, W> {
        words.pairs(self.base, self.mask)
    }

    /// The slots of a receive queue.
    #[inline(always)]
    pub fn singles<'a, W: Words>(&self, words: &'a W) -> impl Singles + use<'a, W> {
        words.singles(self.base, self.mask)
    }

    /// The slots of a send queue up to number `last`, which is that of the last one.
    #[inline(always)]
    pub fn pairs_up_to<'a, W: Words>(&self, words: &'a W, last: u32) -> impl Pairs + use<'a, W> {
        debug_assert!(last == self.mask, "{last} of {} slots", self.size());
        words.pairs(self.base, last)
    }

    /// The slots of a receive queue up to number `last`, which is that of the last one.
    #[inline(always)]
    pub fn singles_up_to<'a, W: Words>(&self, words: &'a W, last: u32) -> impl Singles + use<'a, W> {
        debug_assert!(last == self.mask, "{last} of {} slots", self.size());
        words.singles(self.base, last)
    }

    /// Records a work request of `slots` slots under `id`. The caller has checked [`Self::has_room`].
    pub fn post(&mut self, words: &impl Words, id: u64, slots: u32, kind: u8) {
        let head = self.head;
        self.pairs(words).store(head, [id, Posted::new(head, slots, kind).0]);
        self.head = head.wrapping_add(slots);
    }

    /// [`Self::post`] for a work request that takes these `slots`; `posted` has no position yet. The poster does not learn
    /// of it before it [advances](Self::advance).
    #[inline(always)]
    pub fn record(pairs: &impl Pairs, slots: core::ops::Range<u32>, id: u64, posted: Posted) {
        pairs.store(slots.start, [id, posted.before(slots.end).0]);
    }

    /// Advances the head to `head`, behind work requests that [`Self::record`] recorded.
    #[inline(always)]
    pub const fn advance(&mut self, head: u32) {
        self.head = head;
    }

    /// Records a receive under `id`: it takes one slot and needs no description. See [`Self::post`].
    #[inline(always)]
    pub fn post_receive(&mut self, singles: &impl Singles, id: u64) {
        singles.store(self.head, id);
        self.head = self.head.wrapping_add(1);
    }

    /// Publishes everything posted so far to the poller. Must come before the doorbell.
    #[inline(always)]
    pub fn publish(&self, words: &impl Words) {
        words.store(self.head_word, self.head as u64, publish_order());
    }

    /// Starts over after a reset, once the queue pair's completions are gone from the completion queue.
    pub fn restart(&mut self, words: &impl Words) {
        let full = if mutated("stale_room") { self.full } else { self.size() };
        (self.head, self.full) = (0, full);
        words.store(self.record + self.side.tail(), 0, Ordering::Relaxed);
        words.store(self.head_word, 0, publish_order());
    }
}

/// The head at which a queue of `size` slots is full.
#[cold]
#[inline(never)]
fn limit(words: &impl Words, tail: usize, size: u32) -> u32 {
    (words.load(tail, Ordering::Acquire) as u32).wrapping_add(size)
}

/// Why a claim was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No queue pair with this identity completes here: it is gone or never existed.
    Stranger,
    /// No work request that begins at this counter is outstanding.
    NotOutstanding,
}

#[cfg(test)]
mod tests;

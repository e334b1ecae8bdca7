//! Ownership of the entries of a shared receive queue. There is one poster, and one poller for each
//! completion queue of its queue pairs. Entries complete in any order, so this ledger is not a ring.
//!
//! Each entry has a slot of two words: the application's identifier and a link. The link of a posted entry is
//! `POSTED`; the link of any other entry names its successor in a list. There are two lists: returned
//! entries, to whose front every poller pushes what it retires, and entries at hand, which belong to the
//! poster. When the poster has no entry at hand, it takes the whole list of returned entries in one exchange,
//! which rules out ABA problems. Nobody ever waits for anybody.
//!
//! The poster writes the identifier and then the link (release). A poller exchanges the link `POSTED` for the
//! front of the list (acquire); only one poller can succeed, whatever the device writes. It then reads the
//! identifier and pushes the entry (release). The poster takes the list (acquire) before it writes the slot
//! again.
//!
//! As in the other ledgers, the contents of a completion entry are only claims: see [`super`].

use super::{
    Identity, Plain, PlainRecord, RECORD_WORDS, Range, Record, RecordPlace, Refusal, Slots, UserIndex, Words,
};
use bareverbs_prm::mutation::mutated;
use core::sync::atomic::Ordering;

/// Words that several threads write.
pub trait SharedWords: Words {
    /// Stores `new` in word `index` and returns the old value; zero beyond the end.
    fn swap(&self, index: usize, new: u64, order: Ordering) -> u64;
    /// Stores `new` in word `index` if it holds `current`, and returns the old value. Fails beyond the end. A
    /// failure has no memory ordering.
    fn compare_exchange(&self, index: usize, current: u64, new: u64, order: Ordering) -> Result<u64, u64>;
    /// The entries whose slots begin at slot `base`, for numbers up to `mask`, if they are within the words.
    #[inline(always)]
    fn entries(&self, base: u32, mask: u32) -> Option<impl Entries + '_>
    where
        Self: Sized,
    {
        Some(Plain { words: self, base, mask })
    }
    /// Record number `number`, if there are records.
    #[inline(always)]
    fn shared_record(&self, number: u32) -> Option<impl SharedRecord + '_>
    where
        Self: Sized,
    {
        Some(PlainRecord(self, number as usize * RECORD_WORDS))
    }
    /// The record at `place`, if there are records.
    #[inline(always)]
    fn shared_record_at(&self, place: RecordPlace) -> Option<impl SharedRecord + '_>
    where
        Self: Sized,
    {
        self.shared_record(place.number())
    }
}

/// A record with words that several threads write.
pub trait SharedRecord: Record {
    /// Like [`SharedWords::compare_exchange`], for word `W` of the record.
    fn compare_exchange<const W: usize>(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64>;
}

impl<S: SharedWords> SharedRecord for PlainRecord<'_, S> {
    fn compare_exchange<const W: usize>(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(self.1 + W, current, new, order)
    }
}

/// Slots of a shared receive queue.
pub trait Entries {
    /// Loads the identifier of `entry`, relaxed.
    fn id(&self, entry: u32) -> u64;
    /// Stores the identifier of `entry`, relaxed.
    fn set_id(&self, entry: u32, id: u64);
    /// Loads the link of `entry`, relaxed.
    fn link(&self, entry: u32) -> u64;
    /// Stores the link of `entry`.
    fn set_link(&self, entry: u32, link: u64, order: Ordering);
    /// Stores `new` as the link of `entry` if it is `current` (acquire), and returns the identifier if it was. `None`
    /// beyond the last entry.
    fn exchange_link(&self, entry: u32, current: u64, new: u64) -> Option<u64>;
}

impl<W: SharedWords> Entries for Plain<'_, W> {
    fn id(&self, entry: u32) -> u64 {
        self.words.load(link_of(self.base, entry) - 1, Ordering::Relaxed)
    }
    fn set_id(&self, entry: u32, id: u64) {
        self.words.store(link_of(self.base, entry) - 1, id, Ordering::Relaxed);
    }
    fn link(&self, entry: u32) -> u64 {
        self.words.load(link_of(self.base, entry), Ordering::Relaxed)
    }
    fn set_link(&self, entry: u32, link: u64, order: Ordering) {
        self.words.store(link_of(self.base, entry), link, order);
    }
    fn exchange_link(&self, entry: u32, current: u64, new: u64) -> Option<u64> {
        if entry > self.mask {
            return None;
        }
        self.words.compare_exchange(link_of(self.base, entry), current, new, Ordering::Acquire).ok()?;
        Some(self.id(entry))
    }
}

/// The slot of one entry, which was found already.
pub trait EntrySlot {
    /// Loads the link, relaxed.
    fn link(&self) -> u64;
    /// Stores the identifier, relaxed, and then the link.
    fn store(&self, id: u64, link: u64, order: Ordering);
}

/// The slot of an entry among all of them.
struct SlotOf<'a, E> {
    entries: &'a E,
    entry: u32,
}

impl<E: Entries> EntrySlot for SlotOf<'_, E> {
    #[inline(always)]
    fn link(&self) -> u64 {
        self.entries.link(self.entry)
    }
    #[inline(always)]
    fn store(&self, id: u64, link: u64, order: Ordering) {
        self.entries.set_id(self.entry, id);
        self.entries.set_link(self.entry, link, order);
    }
}

/// The link of an entry that is posted.
const POSTED: u64 = u64::MAX;
/// The link of the last entry of a list. No entry has this number, and an instruction can hold it.
const LAST: u64 = u64::MAX - 1;

/// Word of a record with the name of a shared receive queue: in the record of a queue pair the one it
/// receives from, in that of a shared receive queue its own.
const NAME: usize = 5;
/// Word of a record with the identity that receives from the shared queue must have.
const IDENTITY: usize = 6;
/// The same for a destroyed queue pair: its completions return their entries but match nobody.
const LATE: usize = 7;
/// Word of a record with the range of a shared receive queue's slots.
const SLOTS: usize = 3;
/// The front of the list of returned entries. It has a cache line of its own.
const RETURNED: usize = 16;
/// The identity of no queue pair, which no record has.
const NOBODY: u64 = u64::MAX - 1;
/// Set in the name of a queue that exists.
const EXISTS: u64 = 1 << 63;

/// The ordering with which a poller returns an entry.
#[inline(always)]
fn return_order() -> Ordering {
    if mutated("relaxed_shared_return") { Ordering::Relaxed } else { Ordering::Release }
}

/// The ordering with which the poster publishes an entry.
#[inline(always)]
fn post_order() -> Ordering {
    if mutated("relaxed_shared_post") { Ordering::Relaxed } else { Ordering::Release }
}

/// The name of a shared receive queue: its `user_index`, which has a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedName(u64);

impl SharedName {
    /// The name of the queue with this `user_index`.
    pub const fn new(user_index: UserIndex) -> Self {
        Self(EXISTS | user_index.shifted() as u64)
    }

    /// The number of its record among `records` (a power of two), if the record still has this name.
    #[inline(always)]
    fn record(self, words: &impl Words, records: usize) -> Option<usize> {
        let number = UserIndex::from_shifted(self.0 as u32).record(records);
        let name = words.load(number * RECORD_WORDS + NAME, Ordering::Relaxed);
        (self.0 & EXISTS != 0 && name == self.0).then_some(number)
    }
}

/// Marks a record as unowned and forgets its earlier owner.
pub fn clear(words: &impl Words, record: usize) {
    let record = record * RECORD_WORDS;
    words.store(record + NAME, 0, Ordering::Relaxed);
    words.store(record + IDENTITY, u64::MAX, Ordering::Release);
    words.store(record + LATE, u64::MAX, Ordering::Release);
}

/// Makes a queue pair, whose record is number `record`, receive from a shared queue.
pub fn attach(words: &impl Words, record: usize, identity: Identity, queue: SharedName) {
    let record = record * RECORD_WORDS;
    words.store(record + NAME, queue.0, Ordering::Relaxed);
    words.store(record + IDENTITY, identity.packed(), Ordering::Release);
}

/// Undoes [`attach`]. Completions that have not been polled yet still return their entries, as long as the
/// record is not reused.
pub fn detach(words: &impl Words, record: usize) {
    let record = record * RECORD_WORDS;
    let identity = words.load(record + IDENTITY, Ordering::Relaxed);
    words.store(record + LATE, identity, Ordering::Release);
    words.store(record + IDENTITY, u64::MAX, Ordering::Release);
}

/// An entry to write, and its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkedEntry {
    /// The entry.
    pub entry: u32,
    /// The entry that the device takes after it.
    pub next: u32,
}

/// The entries that a [`SharedPoster`] takes next, for a loop that keeps them in registers.
#[derive(Debug, Clone, Copy)]
pub struct Front<S> {
    /// The slot of the entry that is posted next.
    slot: S,
    /// The first entry at hand.
    at_hand: u64,
}

impl<S> Front<S> {
    /// A front without entries at hand.
    pub const fn exhausted(slot: S) -> Self {
        Self { slot, at_hand: LAST }
    }
}

/// The poster's half.
#[derive(Debug)]
pub struct SharedPoster {
    record: usize,
    slots: Range,
    /// The entry that is posted next: the last posted one already names it.
    next: u32,
    /// The first entry at hand.
    at_hand: u64,
    posted: u16,
}

impl SharedPoster {
    /// Opens record number `record` for the queue called `name`, with at least two slots. The device begins
    /// with entry 0, and one entry always stays at hand, because the last posted entry has to name it.
    pub fn open(words: &impl Words, record: usize, slots: Range, name: SharedName) -> Self {
        let record = record * RECORD_WORDS;
        let poster = Self { record, slots, next: 0, at_hand: LAST, posted: 0 };
        for entry in 0..slots.slots {
            let behind = entry + 1;
            let link = if behind < slots.slots { behind as u64 } else { LAST };
            words.store(poster.link_of(entry), link, Ordering::Relaxed);
        }
        words.store(record + RETURNED, LAST, Ordering::Relaxed);
        let mask = slots.slots.wrapping_sub(1);
        words.store(record + SLOTS, (slots.base as u64) << 32 | mask as u64, Ordering::Relaxed);
        words.store(record + NAME, name.0, Ordering::Release);
        Self { at_hand: if slots.slots > 1 { 1 } else { LAST }, ..poster }
    }

    /// Sets the identity of an XRC shared receive queue: its completions carry the `user_index` of the queue
    /// and the number of any target queue pair.
    pub fn identify(&self, words: &impl Words, identity: Identity) {
        words.store(self.record + IDENTITY, identity.packed_without_queue_pair(), Ordering::Release);
    }

    /// Makes later completions match nobody.
    pub fn close(&self, words: &impl Words) {
        words.store(self.record + IDENTITY, u64::MAX, Ordering::Release);
        words.store(self.record + NAME, 0, Ordering::Release);
    }

    /// Maximum number of posted receives.
    pub const fn capacity(&self) -> u32 {
        self.slots.slots - 1
    }

    /// Receives posted so far, as the doorbell record counts them.
    #[inline(always)]
    pub const fn posted(&self) -> u16 {
        self.posted
    }

    /// Receives that have not completed yet. This reads every entry.
    pub fn outstanding(&self, words: &impl Words) -> u32 {
        let posted = |&entry: &u32| words.load(self.link_of(entry), Ordering::Relaxed) == POSTED;
        (0..self.slots.slots).filter(posted).count() as u32
    }

    /// Whether another receive can be posted.
    #[inline(always)]
    pub fn has_room(&mut self, words: &impl SharedWords) -> bool {
        if self.at_hand == LAST {
            self.at_hand = words.swap(self.record + RETURNED, LAST, Ordering::Acquire);
        }
        self.at_hand != LAST
    }

    /// The range of the slots.
    #[inline(always)]
    pub const fn slots(&self) -> Slots {
        Slots { base: self.slots.base as usize, mask: self.slots.slots.wrapping_sub(1) }
    }

    /// The slots, if they are within `words`.
    #[inline(always)]
    pub fn entries<'a, W: SharedWords>(&self, words: &'a W) -> Option<impl Entries + use<'a, W>> {
        words.entries(self.slots.base, self.slots.slots.wrapping_sub(1))
    }

    /// The slots up to number `last`, which is that of the last one, if they are within `words`.
    #[inline(always)]
    pub fn entries_up_to<'a, W: SharedWords>(
        &self,
        words: &'a W,
        last: u32,
    ) -> Option<impl Entries + use<'a, W>> {
        debug_assert!(last == self.slots().mask, "{last} of {} slots", self.slots.slots);
        words.entries(self.slots.base, last)
    }

    /// Records a receive under `id` in `entries`, the queue's own slots, and returns its place. The caller
    /// has checked [`Self::has_room`], and writes the entry before it notifies the device.
    #[inline(always)]
    pub fn post(&mut self, entries: &impl Entries, id: u64) -> LinkedEntry {
        let place = LinkedEntry { entry: self.next, next: self.at_hand as u32 };
        let find = |entry| SlotOf { entries, entry };
        self.record(find(place.entry), find(place.next), id);
        self.next = place.next;
        place
    }

    /// What it takes next. `find` finds the slot of an entry.
    #[inline(always)]
    pub fn front<S>(&self, find: impl Fn(u32) -> S) -> Front<S> {
        Front { slot: find(self.next), at_hand: self.at_hand }
    }

    /// [`Self::post`] at `front`, which the caller keeps in step with this poster. Returns the slot, and the entry that the
    /// device takes next; `None` if no entry is at hand, but [`Self::has_room`] may find returned ones. The poster follows
    /// at once, because entries that left its list without its knowledge would never return.
    #[inline(always)]
    pub fn post_at<S: EntrySlot + Copy>(
        &mut self,
        front: &mut Front<S>,
        find: impl Fn(u32) -> S,
        id: u64,
    ) -> Option<(S, u32)> {
        if front.at_hand == LAST {
            return None;
        }
        let (slot, next) = (front.slot, front.at_hand as u32);
        let behind = find(next);
        *front = Front { slot: behind, at_hand: self.record(slot, behind, id) };
        self.next = next;
        Some((slot, next))
    }

    /// Records a receive in `slot`. `behind` is that of the first entry at hand; returns the one after it.
    #[inline(always)]
    fn record(&mut self, slot: impl EntrySlot, behind: impl EntrySlot, id: u64) -> u64 {
        self.at_hand = behind.link();
        slot.store(id, POSTED, post_order());
        self.posted = self.posted.wrapping_add(1);
        self.at_hand
    }

    #[inline(always)]
    fn link_of(&self, entry: u32) -> usize {
        link_of(self.slots.base, entry)
    }
}

/// The word with an entry's link; the word before it holds the identifier.
#[inline(always)]
const fn link_of(base: u32, entry: u32) -> usize {
    2 * (base as usize + entry as usize) + 1
}

/// The result of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// It completes the receive with this identifier.
    Receive(u64),
    /// Its queue pair is gone. The entry can be posted again.
    Late,
}

/// Retires the receive at `entry` of the shared queue that the identity leads to. The poller may be kept
/// unless the completion is late.
#[inline]
pub fn retire_shared(
    words: &impl SharedWords,
    records: usize,
    identity: Identity,
    entry: u16,
) -> Result<(Claimed, SharedPoller), Refusal> {
    let number = identity.user_index.record(records);
    let record = number * RECORD_WORDS;
    let known = words.load(record + IDENTITY, Ordering::Acquire);
    let late = known != identity.packed() && known != identity.packed_without_queue_pair();
    if late && words.load(record + LATE, Ordering::Acquire) != identity.packed() {
        return Err(Refusal::Stranger);
    }
    let poller = SharedPoller::of(words, records, number, known).ok_or(Refusal::Stranger)?;
    let (queue, entries) = poller.queue(words).ok_or(Refusal::Stranger)?;
    let mut chain = Chain::new(&queue);
    let id = poller.claim(&entries, &mut chain, entry).ok_or(Refusal::NotOutstanding)?;
    chain.put_back(&queue, &entries);
    Ok((if late { Claimed::Late } else { Claimed::Receive(id) }, poller))
}

/// The poller's half for receives of one queue pair from its shared queue. It may be kept between completions
/// while [`is_current`](Self::is_current).
#[derive(Debug, Clone, Copy)]
pub struct SharedPoller {
    /// The name in the record of the queue pair.
    known: u64,
    /// The queue pair's record.
    record: RecordPlace,
    name: SharedName,
    /// The shared queue's record.
    queue: RecordPlace,
    base: u32,
    mask: u32,
}

/// Entries that a poller took from the device and has not returned yet. Each is linked to the one taken
/// before it, and the first one to the old front of the list.
#[derive(Debug)]
pub struct Chain {
    front: u64,
    /// The entry taken last, or the front of the list.
    newest: u64,
    /// The entry taken first, or [`POSTED`], which is not an entry.
    oldest: u64,
}

impl SharedPoller {
    /// The poller of no queue pair: no record has this identity.
    pub const NOBODY: Self = Self {
        known: NOBODY,
        record: RecordPlace::new(0),
        name: SharedName(0),
        queue: RecordPlace::new(0),
        base: 0,
        mask: 0,
    };

    /// Finds the record of `identity` among `records` (a power of two), and its shared queue.
    #[inline]
    pub fn resolve(words: &impl Words, records: usize, identity: Identity) -> Option<Self> {
        let number = identity.user_index.record(records);
        let known = words.load(number * RECORD_WORDS + IDENTITY, Ordering::Acquire);
        let is_it = known == identity.packed() || known == identity.packed_without_queue_pair();
        if is_it { Self::of(words, records, number, known) } else { None }
    }

    #[inline(always)]
    fn of(words: &impl Words, records: usize, number: usize, known: u64) -> Option<Self> {
        let name = SharedName(words.load(number * RECORD_WORDS + NAME, Ordering::Relaxed));
        let queue = name.record(words, records)?;
        let slots = words.load(queue * RECORD_WORDS + SLOTS, Ordering::Relaxed);
        let (base, mask) = ((slots >> 32) as u32, slots as u32);
        let (record, queue) = (RecordPlace::new(number), RecordPlace::new(queue));
        Some(Self { known, record, name, queue, base, mask })
    }

    /// The record of the queue pair.
    #[inline(always)]
    pub fn record<'a, W: Words>(&self, words: &'a W) -> Option<impl Record + use<'a, W>> {
        words.record_at(self.record)
    }

    /// The record of the shared queue, and its slots.
    #[inline(always)]
    pub fn queue<'a, W: SharedWords>(
        &self,
        words: &'a W,
    ) -> Option<(impl SharedRecord + use<'a, W>, impl Entries + use<'a, W>)> {
        Some((words.shared_record_at(self.queue)?, words.entries(self.base, self.mask)?))
    }

    /// Whether these are still the records of the queue pair and the shared queue that were found.
    #[inline(always)]
    pub fn is_current(&self, record: &impl Record, queue: &impl Record) -> bool {
        record.load::<IDENTITY>(Ordering::Acquire) == self.known
            && queue.load::<NAME>(Ordering::Relaxed) == self.name.0
    }

    /// Whether `other` leads to the same shared queue.
    #[inline(always)]
    pub fn shares_with(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// Takes `entry` from the device and returns its identifier, if it is posted. The chain will return it.
    /// `entries` are those of the shared queue.
    #[inline(always)]
    pub fn claim(&self, entries: &impl Entries, chain: &mut Chain, entry: u16) -> Option<u64> {
        let entry = entry as u32;
        let id = entries.exchange_link(entry, POSTED, chain.newest)?;
        chain.newest = entry as u64;
        if chain.oldest == POSTED {
            chain.oldest = entry as u64;
        }
        Some(id)
    }
}

impl Chain {
    /// An empty chain for the queue with this record.
    #[inline(always)]
    pub fn new(queue: &impl Record) -> Self {
        let front = queue.load::<RETURNED>(Ordering::Relaxed);
        Self { front, newest: front, oldest: POSTED }
    }

    /// Pushes the entries to the list of returned entries. `queue` and `entries` belong to the shared queue.
    #[inline(always)]
    pub fn put_back(mut self, queue: &impl SharedRecord, entries: &impl Entries) {
        if self.oldest == POSTED {
            return;
        }
        while let Err(other) = queue.compare_exchange::<RETURNED>(self.front, self.newest, return_order()) {
            self.front = other;
            entries.set_link(self.oldest as u32, other, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;

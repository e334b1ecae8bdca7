//! The poller's half of a queue: what [`send`](super::send) and [`receive`](super::receive) have in common.

use super::{Home, Identity, RECORD_WORDS, Record, Side, Slots, Words, publish_order};
use bareverbs_prm::ids::Qpn;
use core::fmt::Debug;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

/// One of the two queues of a queue pair, and the position of its words in a record.
pub trait Half: Debug + Copy {
    /// The queue that this half belongs to.
    const SIDE: Side;
    /// The identity that its completions must have.
    fn identity(record: &impl Record) -> u64;
    /// The range of its slots: the first slot in the upper half, their number minus one in the lower half.
    fn range(record: &impl Record) -> u64;
    /// The index up to which the poller has retired.
    fn tail(record: &impl Record) -> u32;
    /// The index up to which the poster has posted. What the poster wrote before is visible after this load.
    fn head(record: &impl Record) -> u32;
    /// Publishes the index of the poller, after everything that it has read.
    fn set_tail(record: &impl Record, tail: u32);
}

/// The half of sends.
#[derive(Debug, Clone, Copy)]
pub struct Sends;

/// The half of receives.
#[derive(Debug, Clone, Copy)]
pub struct Receives;

/// The word of a record must be known at compile time, which a type parameter cannot provide.
macro_rules! half {
    ($half:ident, $side:expr) => {
        impl Half for $half {
            const SIDE: Side = $side;
            #[inline(always)]
            fn identity(record: &impl Record) -> u64 {
                record.load::<{ $side.identity() }>(Ordering::Relaxed)
            }
            #[inline(always)]
            fn range(record: &impl Record) -> u64 {
                record.load::<{ $side.range() }>(Ordering::Relaxed)
            }
            #[inline(always)]
            fn tail(record: &impl Record) -> u32 {
                record.load::<{ $side.tail() }>(Ordering::Relaxed) as u32
            }
            #[inline(always)]
            fn head(record: &impl Record) -> u32 {
                record.load::<{ $side.head() }>(Ordering::Acquire) as u32
            }
            #[inline(always)]
            fn set_tail(record: &impl Record, tail: u32) {
                record.store::<{ $side.tail() }>(tail as u64, publish_order());
            }
        }
    };
}

half!(Sends, Side::Send);
half!(Receives, Side::Receive);

/// The poller's half of one queue. It may be kept between completions while [`is_current`](Self::is_current).
#[derive(Debug, Clone, Copy)]
pub struct Poller<Q> {
    identity: Identity,
    pub(super) record: u32,
    base: u32,
    mask: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    queue: PhantomData<Q>,
}

impl<Q: Half> Poller<Q> {
    /// The poller of no queue pair: no record has this identity.
    pub const NOBODY: Self = Self {
        identity: Identity::NOBODY,
        record: 0,
        base: 0,
        mask: 0,
        head: 0,
        tail: 0,
        queue: PhantomData,
    };

    /// Finds the record of `identity` among `records` (a power of two).
    #[inline]
    pub fn resolve(words: &impl Words, records: usize, identity: Identity) -> Option<Self> {
        let first = ((identity.user_index() & (records - 1)) * RECORD_WORDS) as u32;
        let record = words.record(first)?;
        (Q::identity(&record) == identity.0).then(|| Self::of(identity, first, &record))
    }

    /// Like [`Self::resolve`], from the `user_index` of an entry without the number of the queue pair. Also
    /// returns the record.
    #[inline(always)]
    pub fn find<W: Words>(
        words: &W,
        records: usize,
        home: Home,
        user_index: u32,
    ) -> Option<(Self, impl Record + use<'_, W, Q>)> {
        let first = ((user_index as usize & (records - 1)) * RECORD_WORDS) as u32;
        let record = words.record(first)?;
        let identity = Identity(Q::identity(&record));
        home.has(identity, user_index).then(|| (Self::of(identity, first, &record), record))
    }

    #[inline(always)]
    fn of(identity: Identity, first: u32, record: &impl Record) -> Self {
        let (range, head, tail) = (Q::range(record), Q::head(record), Q::tail(record));
        let (base, mask) = ((range >> 32) as u32, range as u32);
        Self { identity, record: first, base, mask, head, tail, queue: PhantomData }
    }

    /// The queue pair.
    #[inline(always)]
    pub const fn qpn(&self) -> Qpn {
        self.identity.qpn()
    }

    /// The record.
    #[inline(always)]
    pub fn record<'a, W: Words>(&self, words: &'a W) -> Option<impl Record + use<'a, W, Q>> {
        words.record(self.record)
    }

    /// Whether the queue pair is still the one that was found.
    #[inline(always)]
    pub fn is_current(&self, record: &impl Record) -> bool {
        Q::identity(record) == self.identity.0
    }

    /// Its slots.
    #[inline(always)]
    pub const fn slots(&self) -> Slots {
        Slots { base: self.base, mask: self.mask }
    }

    /// Whether the entry at `counter` completes the oldest outstanding request known so far; see
    /// [`Self::refresh`].
    #[inline(always)]
    pub(super) fn is_oldest(&self, counter: u16) -> bool {
        counter == self.tail as u16 && self.head != self.tail
    }

    /// Reads how far both sides are, including this one: another poller of the same queue may have advanced
    /// while this one was kept. `record` is the queue pair's own.
    #[inline(always)]
    pub fn refresh(&mut self, record: &impl Record) {
        (self.head, self.tail) = (Q::head(record), Q::tail(record));
    }

    /// Returns the retired slots to the poster.
    #[inline(always)]
    pub fn publish(&self, record: &impl Record) {
        Q::set_tail(record, self.tail);
    }
}

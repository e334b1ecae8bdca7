//! The poller's half of a queue: what [`send`](super::send) and [`receive`](super::receive) have in common.

use super::{Home, Identity, Record, Side, Slots, Words, publish_order};
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
    /// Its slots.
    fn slots(record: &impl Record) -> Slots;
    /// The index up to which the poller has retired.
    fn tail(record: &impl Record) -> u32;
    /// The index up to which the poster has posted. What the poster wrote before is visible after this load.
    fn head(record: &impl Record) -> u32;
    /// Publishes the index of the poller, after everything that it has read. Only the lower half counts.
    fn set_tail(record: &impl Record, tail: u64);
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
            fn slots(record: &impl Record) -> Slots {
                let base = record.load::<{ $side.base() }>(Ordering::Relaxed) as usize;
                Slots { base, mask: record.load::<{ $side.mask() }>(Ordering::Relaxed) as u32 }
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
            fn set_tail(record: &impl Record, tail: u64) {
                record.store::<{ $side.tail() }>(tail, publish_order());
            }
        }
    };
}

half!(Sends, Side::Send);
half!(Receives, Side::Receive);

/// The record of a queue pair, to retire one request at once: nothing of it is kept.
pub struct Found<Q, R> {
    pub(super) record: R,
    /// The queue pair.
    pub qpn: Qpn,
    queue: PhantomData<Q>,
}

/// The poller's half of one queue. It may be kept between completions while [`is_current`](Self::is_current).
#[derive(Debug, Clone, Copy)]
pub struct Poller<Q> {
    identity: Identity,
    /// The number of the record.
    pub(super) record: u32,
    slots: Slots,
    pub(super) head: u32,
    pub(super) tail: u32,
    queue: PhantomData<Q>,
}

impl<Q: Half> Poller<Q> {
    /// The poller of no queue pair: no record has this identity.
    pub const NOBODY: Self = Self {
        identity: Identity::NOBODY,
        record: 0,
        slots: Slots { base: 0, mask: 0 },
        head: 0,
        tail: 0,
        queue: PhantomData,
    };

    /// Finds the record of `identity` among `records` (a power of two).
    #[inline]
    pub fn resolve(words: &impl Words, records: usize, identity: Identity) -> Option<Self> {
        let number = (identity.user_index() & (records - 1)) as u32;
        let record = words.record(number)?;
        (Q::identity(&record) == identity.0).then(|| Self::of(identity, number, &record))
    }

    /// Finds the record from the `user_index` of an entry, without the number of the queue pair.
    #[inline(always)]
    pub fn find<W: Words>(
        words: &W,
        records: usize,
        home: Home,
        user_index: u32,
    ) -> Option<Found<Q, impl Record + use<'_, W, Q>>> {
        let record = words.record_of(user_index, records)?;
        let qpn = home.queue_pair(Identity(Q::identity(&record)), user_index)?;
        Some(Found { record, qpn, queue: PhantomData })
    }

    #[inline(always)]
    fn of(identity: Identity, number: u32, record: &impl Record) -> Self {
        let (slots, head, tail) = (Q::slots(record), Q::head(record), Q::tail(record));
        Self { identity, record: number, slots, head, tail, queue: PhantomData }
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
        self.slots
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
        Q::set_tail(record, self.tail.into());
    }
}

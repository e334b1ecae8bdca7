//! The poller's half of a queue: what [`send`](super::send) and [`receive`](super::receive) have in common.

use super::{Home, Identity, Record, RecordPlace, Side, Slots, UserIndex, Words, publish_order};
use bareverbs_prm::ids::Qpn;
use core::fmt::Debug;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

/// One of the two queues of a queue pair, and the position of its words in a record.
pub trait Half: Debug + Copy {
    /// The queue that this half belongs to.
    const SIDE: Side;
    /// The completion queue and the `user_index` that its completions must have.
    fn name(record: &impl Record) -> u64;
    /// The queue pair.
    fn qpn(record: &impl Record) -> Qpn;
    /// Its slots.
    fn slots(record: &impl Record) -> Slots;
    /// The first word of the slot at `tail`, whose upper half does not count.
    fn slot(record: &impl Record, tail: u64) -> usize;
    /// The index up to which the poller has retired. Only the lower half counts.
    fn tail(record: &impl Record) -> u64;
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
            fn name(record: &impl Record) -> u64 {
                record.load::<{ $side.name() }>(Ordering::Relaxed)
            }
            #[inline(always)]
            fn qpn(record: &impl Record) -> Qpn {
                Qpn::from_value(record.load::<{ $side.qpn() }>(Ordering::Relaxed) as u32)
            }
            #[inline(always)]
            fn slots(record: &impl Record) -> Slots {
                let base = record.load::<{ $side.base() }>(Ordering::Relaxed) as usize / $side.words();
                Slots { base, mask: record.load::<{ $side.mask() }>(Ordering::Relaxed) as u32 }
            }
            #[inline(always)]
            fn slot(record: &impl Record, tail: u64) -> usize {
                let base = record.load::<{ $side.base() }>(Ordering::Relaxed) as usize;
                let mask = record.load::<{ $side.mask() }>(Ordering::Relaxed);
                base.wrapping_add($side.words().wrapping_mul((tail & mask) as usize))
            }
            #[inline(always)]
            fn tail(record: &impl Record) -> u64 {
                record.load::<{ $side.tail() }>(Ordering::Relaxed)
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
    queue: PhantomData<Q>,
}

impl<Q: Half, R: Record> Found<Q, R> {
    /// The queue pair. What the poster wrote is visible once a request has been retired.
    #[inline(always)]
    pub fn qpn(&self) -> Qpn {
        Q::qpn(&self.record)
    }
}

/// The poller's half of one queue. It may be kept between completions while [`is_current`](Self::is_current).
#[derive(Debug, Clone, Copy)]
pub struct Poller<Q> {
    /// The name of the queue when it was found.
    name: u64,
    pub(super) record: RecordPlace,
    slots: Slots,
    pub(super) head: u32,
    pub(super) tail: u32,
    queue: PhantomData<Q>,
}

impl<Q: Half> Poller<Q> {
    /// The poller of no queue pair: no record has this identity.
    pub const NOBODY: Self = Self {
        name: Identity::NOBODY.name(),
        record: RecordPlace::new(0),
        slots: Slots { base: 0, mask: 0 },
        head: 0,
        tail: 0,
        queue: PhantomData,
    };

    /// Finds the record of `identity` among `records` (a power of two).
    #[inline]
    pub fn resolve(words: &impl Words, records: usize, identity: Identity) -> Option<Self> {
        let place = RecordPlace::new(identity.user_index.record(records));
        let record = words.record_at(place)?;
        let is_it = Q::name(&record) == identity.name() && Q::qpn(&record) == identity.qpn;
        is_it.then(|| Self::of(identity.name(), place, &record))
    }

    /// Finds the record from the `user_index` of an entry, without the number of the queue pair.
    #[inline(always)]
    pub fn find<W: Words>(
        words: &W,
        records: usize,
        home: Home,
        user_index: UserIndex,
    ) -> Option<Found<Q, impl Record + use<'_, W, Q>>> {
        let record = words.record_of(user_index, records)?;
        home.is_name(Q::name(&record), user_index).then_some(Found { record, queue: PhantomData })
    }

    #[inline(always)]
    fn of(name: u64, place: RecordPlace, record: &impl Record) -> Self {
        let (slots, head, tail) = (Q::slots(record), Q::head(record), Q::tail(record) as u32);
        Self { name, record: place, slots, head, tail, queue: PhantomData }
    }

    /// The record.
    #[inline(always)]
    pub fn record<'a, W: Words>(&self, words: &'a W) -> Option<impl Record + use<'a, W, Q>> {
        words.record_at(self.record)
    }

    /// Whether the queue pair is still the one that was found.
    #[inline(always)]
    pub fn is_current(&self, record: &impl Record) -> bool {
        Q::name(record) == self.name
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
        (self.head, self.tail) = (Q::head(record), Q::tail(record) as u32);
    }

    /// Returns the retired slots to the poster.
    #[inline(always)]
    pub fn publish(&self, record: &impl Record) {
        Q::set_tail(record, self.tail.into());
    }
}

//! The poller's half of a receive queue: receives of a queue pair complete in order (IBTA v1.4 §10.8, work request processing), so that only the
//! oldest one can.

use super::{Identity, RECORD_WORDS, Record, Refusal, Side, Singles, Words, publish_order};
use core::sync::atomic::Ordering;

/// The poller's half of one receive queue. It may be kept between completions as long as
/// [`is_current`](Self::is_current).
#[derive(Debug, Clone, Copy)]
pub struct ReceivePoller {
    identity: Identity,
    record: u32,
    base: u32,
    mask: u32,
    head: u32,
    tail: u32,
}

impl ReceivePoller {
    /// Of no queue pair: no record has this identity.
    pub const NOBODY: Self =
        Self { identity: Identity::NOBODY, record: 0, base: 0, mask: 0, head: 0, tail: 0 };

    /// Finds the record of `identity` among `records` (a power of two).
    #[inline]
    pub fn resolve(words: &impl Words, records: usize, identity: Identity) -> Option<Self> {
        let record = (identity.user_index() & (records - 1)) * RECORD_WORDS;
        if words.load(record + Side::Receive.identity(), Ordering::Relaxed) != identity.0 {
            return None;
        }
        let range = words.load(record + Side::Receive.range(), Ordering::Relaxed);
        let head = words.load(record + Side::Receive.head(), Ordering::Acquire) as u32;
        let tail = words.load(record + Side::Receive.tail(), Ordering::Relaxed) as u32;
        let record = record as u32;
        Some(Self { identity, record, base: (range >> 32) as u32, mask: range as u32, head, tail })
    }

    /// The record.
    #[inline(always)]
    pub fn record<'a, W: Words>(&self, words: &'a W) -> Option<impl Record + use<'a, W>> {
        words.record(self.record)
    }

    /// Whether the queue pair is still the one that was found.
    #[inline(always)]
    pub fn is_current(&self, record: &impl Record) -> bool {
        record.load::<{ Side::Receive.identity() }>(Ordering::Relaxed) == self.identity.0
    }

    /// First slot and mask.
    #[inline(always)]
    pub const fn slots(&self) -> (u32, u32) {
        (self.base, self.mask)
    }

    /// The slots.
    #[inline(always)]
    pub fn singles<'a, W: Words>(&self, words: &'a W) -> impl Singles + use<'a, W> {
        words.singles(self.base, self.mask)
    }

    /// Retires the oldest receive, if it is the one at `counter`, and gives its identifier. `record` and `singles` are its
    /// own.
    #[inline(always)]
    pub fn retire_next(&mut self, record: &impl Record, singles: &impl Singles, counter: u16) -> Option<u64> {
        if counter != self.tail as u16 {
            return None;
        }
        if self.head == self.tail {
            self.head = fresh_head(record);
            if self.head == self.tail {
                return None;
            }
        }
        let id = singles.load(self.tail);
        self.tail = self.tail.wrapping_add(1);
        Some(id)
    }

    /// Takes over how far `other`, a copy of this one, went.
    #[inline(always)]
    pub fn follow(&mut self, other: &Self) {
        (self.head, self.tail) = (other.head, other.tail);
    }

    /// Gives the slots of what was retired back to the poster.
    #[inline(always)]
    pub fn publish(&self, record: &impl Record) {
        record.store::<{ Side::Receive.tail() }>(self.tail as u64, publish_order());
    }
}

#[cold]
fn fresh_head(record: &impl Record) -> u32 {
    record.load::<{ Side::Receive.head() }>(Ordering::Acquire) as u32
}

/// Retires the receive at `counter`, and gives its identifier and the poller, which may be kept.
pub fn retire_receive(
    words: &impl Words,
    records: usize,
    identity: Identity,
    counter: u16,
) -> Result<(u64, ReceivePoller), Refusal> {
    let mut poller = ReceivePoller::resolve(words, records, identity).ok_or(Refusal::Stranger)?;
    let record = poller.record(words).ok_or(Refusal::Stranger)?;
    let id = poller.retire_next(&record, &poller.singles(words), counter).ok_or(Refusal::NotOutstanding)?;
    poller.publish(&record);
    Ok((id, poller))
}

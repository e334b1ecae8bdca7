//! The poller's half of a receive queue. Receives of a queue pair complete in order (IBTA v1.4 §10.8, work
//! request processing), so only the oldest one can complete.

use super::poller::{Found, Half, Poller, Receives};
use super::{Identity, Record, Refusal, Singles, Slots, Words};

/// The poller's half of one receive queue.
pub type ReceivePoller = Poller<Receives>;

impl ReceivePoller {
    /// The slots.
    #[inline(always)]
    pub fn singles<'a, W: Words>(&self, words: &'a W) -> impl Singles + use<'a, W> {
        let Slots { base, mask } = self.slots();
        words.singles(base as u32, mask)
    }

    /// Retires the oldest receive if it is the one at `counter`, and returns its identifier. `singles` are
    /// the queue's own slots.
    #[inline(always)]
    pub fn retire_next(&mut self, singles: &impl Singles, counter: u16) -> Option<u64> {
        if !self.is_oldest(counter) {
            return None;
        }
        let id = singles.load(self.tail);
        self.tail = self.tail.wrapping_add(1);
        Some(id)
    }
}

impl<R: Record> Found<Receives, R> {
    /// Retires the oldest receive if it is the one at `counter`, returns its slot to the poster, and returns its
    /// identifier.
    #[inline(always)]
    pub fn retire_oldest(&self, words: &impl Words, counter: u16) -> Option<u64> {
        let tail = Receives::tail(&self.record);
        if counter != tail as u16 {
            return None;
        }
        let slot = words.single(Receives::slot(&self.record, tail))?;
        // What the poster wrote is visible only after this load.
        if Receives::head(&self.record) == tail as u32 {
            return None;
        }
        let id = slot();
        Receives::set_tail(&self.record, tail.wrapping_add(1));
        Some(id)
    }
}

/// Retires the receive at `counter`. Returns its identifier and the poller, which may be kept.
pub fn retire_receive(
    words: &impl Words,
    records: usize,
    identity: Identity,
    counter: u16,
) -> Result<(u64, ReceivePoller), Refusal> {
    let mut poller = ReceivePoller::resolve(words, records, identity).ok_or(Refusal::Stranger)?;
    let record = poller.record(words).ok_or(Refusal::Stranger)?;
    let id = poller.retire_next(&poller.singles(words), counter).ok_or(Refusal::NotOutstanding)?;
    poller.publish(&record);
    Ok((id, poller))
}

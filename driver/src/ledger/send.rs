//! The poller's half of a send queue: a completion retires its request and all earlier unsignalled ones.

use super::poller::{Found, Half, Poller, Sends};
use super::{Identity, Pairs, Posted, RECORD_WORDS, Record, Refusal, Slots, Words};
use bareverbs_prm::mutation::mutated;
use core::sync::atomic::Ordering;

/// A retired work request: its identifier, and what was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retired {
    /// The identifier of the application.
    pub id: u64,
    /// What was posted.
    pub posted: Posted,
}

/// The poller's half of one send queue.
pub type SendPoller = Poller<Sends>;

impl SendPoller {
    /// The slots.
    #[inline(always)]
    pub fn pairs<'a, W: Words>(&self, words: &'a W) -> impl Pairs + use<'a, W> {
        let Slots { base, mask } = self.slots();
        words.pairs(base as u32, mask)
    }

    /// Retires the oldest work request if it is the one at `counter`. This is the path for queues whose
    /// requests are all signalled. `pairs` are the queue's own slots.
    #[inline(always)]
    pub fn retire_next(&mut self, pairs: &impl Pairs, counter: u16) -> Option<Retired> {
        if !self.is_oldest(counter) {
            return None;
        }
        let [id, posted] = pairs.load(self.tail);
        let posted = Posted(posted);
        self.tail = posted.next();
        Some(Retired { id, posted })
    }

    /// Retires the work request at `counter` and all earlier ones: an unsignalled request completes with the
    /// next completion.
    #[inline]
    pub fn retire(&mut self, words: &impl Words, counter: u16) -> Result<Retired, Refusal> {
        let head_word = self.record.number() as usize * RECORD_WORDS + Sends::SIDE.head();
        self.head = words.load(head_word, Ordering::Acquire) as u32;
        let ahead = counter.wrapping_sub(self.tail as u16) as u32;
        let [id, posted] = self.pairs(words).load(counter as u32);
        let posted = Posted(posted);
        let outstanding = self.head.wrapping_sub(self.tail);
        let unposted = ahead >= outstanding && !(mutated("unused_queue_completes") && ahead == outstanding);
        if unposted || posted.counter() != counter {
            return Err(Refusal::NotOutstanding);
        }
        self.tail = self.tail.wrapping_add(ahead).wrapping_add(posted.slots());
        Ok(Retired { id, posted })
    }
}

impl<R: Record> Found<Sends, R> {
    /// Retires the oldest work request if it is the one at `counter`, and returns its slots to the poster.
    #[inline(always)]
    pub fn retire_oldest(&self, words: &impl Words, counter: u16) -> Option<Retired> {
        let tail = Sends::tail(&self.record);
        if counter != tail as u16 {
            return None;
        }
        let slot = words.pair(Sends::slot(&self.record, tail))?;
        // What the poster wrote is visible only after this load.
        if Sends::head(&self.record) == tail as u32 {
            return None;
        }
        let [id, posted] = slot();
        // Its lower half is the counter of the next request.
        Sends::set_tail(&self.record, posted);
        Some(Retired { id, posted: Posted(posted) })
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
    poller.publish(&poller.record(words).ok_or(Refusal::Stranger)?);
    Ok(retired)
}

//! Short ways of polling: successes of the queue pair that completed last. Whose record is where is found out once and kept;
//! what an entry says of itself is checked for each.
//!
//! Sends, receives, and receives of a shared queue have a way each; what is kept for one says nothing about the others.

use super::CompletionQueue;
use super::poll::{Entry, Tail, hand_back, raw_qpn, received, sent};
use crate::device::DeviceRef;
use crate::device::ledgers::Ledgers;
use crate::dma::{BLOCK, Run, Window};
use crate::hal::Hal;
use crate::ledger::shared::{Chain, SharedPoller};
use crate::ledger::{Identity, ReceivePoller, SendPoller};
use crate::ring::{Consumer, Written, look};
use crate::work_completion::WorkCompletion;
use bareverbs_prm::ids::Qpn;

/// The `user_index` of nobody.
pub(super) const NOBODY: u32 = 0xff_ffff;

/// Why a short way ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// There is no more room, or no more entry.
    Done,
    /// The next entry needs another way.
    Other,
}

/// A queue pair, and where its ledger is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<P> {
    /// The `user_index` as entries have it, in memory order. Its generation makes it unique.
    pub(super) key: u32,
    pub(super) qpn: Qpn,
    pub(super) poller: P,
}

/// The queue pairs that completed last, each in its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    sends: Known<SendPoller>,
    receives: Known<ReceivePoller>,
    shared: Known<SharedPoller>,
}

/// The queue pair of one entry, to be kept.
pub(super) enum Last {
    Sends(Known<SendPoller>),
    Receives(Known<ReceivePoller>),
    Shared(Known<SharedPoller>),
}

impl<P> Known<P> {
    const fn nobody(poller: P) -> Self {
        Self { key: NOBODY, qpn: Qpn::from_low_bits(0), poller }
    }

    #[inline(always)]
    fn is_of(&self, window: &Window<'_, BLOCK>) -> bool {
        window.load_raw32::<32>() == self.key
    }
}

impl Kept {
    /// No queue pair.
    pub(super) const NOBODY: Self = Self {
        sends: Known::nobody(SendPoller::NOBODY),
        receives: Known::nobody(ReceivePoller::NOBODY),
        shared: Known::nobody(SharedPoller::NOBODY),
    };

    /// Keeps the queue pair that completed just now.
    pub(super) const fn keep(&mut self, last: Last) {
        match last {
            Last::Sends(known) => self.sends = known,
            Last::Receives(known) => self.receives = known,
            Last::Shared(known) => self.shared = known,
        }
    }

    /// Retires the receive of the success of a responder in `window`.
    #[inline(always)]
    fn take_received<M>(
        &mut self,
        ledgers: &Ledgers<M>,
        (window, opcode): (Window<'_, BLOCK>, u8),
        place: &mut WorkCompletion,
    ) -> Option<()> {
        if self.receives.is_of(&window) {
            return self.receives.take(ledgers, (window, opcode), place);
        }
        if self.shared.is_of(&window) { self.shared.take(ledgers, (window, opcode), place) } else { None }
    }
}

impl Known<SendPoller> {
    /// Retires the send of the success of a requester in `window`, if it is the oldest that is outstanding.
    #[inline(always)]
    fn take<M>(
        &mut self,
        ledgers: &Ledgers<M>,
        window: &Window<'_, BLOCK>,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let record = self.poller.record(ledgers)?;
        if !self.poller.is_current(&record) || !self.is_of(window) {
            return None;
        }
        let slots = self.poller.pairs(ledgers);
        let retired = self.poller.retire_next(&record, &slots, Tail::counter_of(window))?;
        self.poller.publish(&record);
        *place = sent(window, &retired, self.qpn);
        Some(())
    }
}

impl Known<ReceivePoller> {
    /// Retires the receive of an entry that is of this queue pair, if it is the oldest that is outstanding.
    #[inline(always)]
    fn take<M>(
        &mut self,
        ledgers: &Ledgers<M>,
        (window, opcode): (Window<'_, BLOCK>, u8),
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let record = self.poller.record(ledgers)?;
        if !self.poller.is_current(&record) {
            return None;
        }
        let slots = self.poller.singles(ledgers);
        let id = self.poller.retire_next(&record, &slots, Tail::counter_of(&window))?;
        self.poller.publish(&record);
        received(place, (window, opcode), (id, self.qpn));
        Some(())
    }
}

impl Known<SharedPoller> {
    /// Retires the receive of an entry that is of this queue pair, if it is outstanding.
    #[inline(always)]
    fn take<M>(
        &self,
        ledgers: &Ledgers<M>,
        (window, opcode): (Window<'_, BLOCK>, u8),
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let (record, (queue, entries)) = (self.poller.record(ledgers)?, self.poller.queue(ledgers)?);
        if !self.is_exactly(&window) || !self.poller.is_current(&record, &queue) {
            return None;
        }
        let mut chain = Chain::new(&queue);
        let id = self.poller.claim(&entries, &mut chain, Tail::counter_of(&window))?;
        chain.put_back(&queue, &entries);
        received(place, (window, opcode), (id, self.qpn));
        Some(())
    }

    /// Whether an entry is of this queue pair by its number too: entries of a shared queue of XRC have the `user_index` of the
    /// queue and the numbers of all its queue pairs.
    #[inline(always)]
    fn is_exactly(&self, window: &Window<'_, BLOCK>) -> bool {
        Tail::raw_qpn_of(window) == raw_qpn(self.qpn)
    }

    /// Turns to the queue pair of an entry, if it receives from the same shared queue: completions of one come from all its queue
    /// pairs in turn.
    #[inline(never)]
    fn turn<M>(&mut self, ledgers: &Ledgers<M>, queue: u64, window: Window<'_, BLOCK>) -> bool {
        let (key, qpn) = (window.load_raw32::<32>(), Tail::of(&window).qpn());
        let identity = Identity::from_parts(queue, u32::from_be(key), qpn.value());
        match SharedPoller::resolve(ledgers, ledgers.records(), identity) {
            Some(poller) if poller.shares_with(&self.poller) => {
                *self = Self { key, qpn, poller };
                true
            }
            _ => false,
        }
    }
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Takes the next entry to `place`, if it is a success of a queue pair that is kept; otherwise says why not.
    #[inline(always)]
    pub(super) fn take_next(&mut self, place: &mut WorkCompletion) -> Option<Stop> {
        let Self { device, rings, kept, consumer, wide, .. } = self;
        let device = device.device();
        let (hal, ledgers) = (device.hal(), device.ledgers());
        let window = rings.blocks().slot(consumer.index());
        let taken = match look(&Entry { hal, window }, consumer.phase()) {
            Written::Sent => kept.sends.take(ledgers, &window, place),
            Written::Received(opcode) => kept.take_received(ledgers, (window, opcode), place),
            // The short ways know entries of one block only, and keep nobody of a queue of others: it was a wrong block.
            Written::Nothing if !*wide => return Some(Stop::Done),
            Written::Nothing => None,
            Written::Other => None,
        };
        if taken.is_none() {
            return Some(Stop::Other);
        }
        consumer.advance();
        hand_back(hal, rings, consumer.counter());
        None
    }

    /// Takes entries as long as they go the same short way, and says how many and why it ended.
    #[inline(always)]
    pub(super) fn take_run(&mut self, places: &mut [WorkCompletion]) -> (usize, Stop) {
        if self.wide {
            return (0, Stop::Other);
        }
        let (window, phase) = (self.rings.blocks().slot(self.consumer.index()), self.consumer.phase());
        let entry = Entry { hal: self.device.device().hal(), window };
        match look(&entry, phase) {
            Written::Sent => self.take_sent(places),
            Written::Received(_) if self.kept.receives.is_of(&window) => self.take_received(places),
            Written::Received(_) => self.take_shared(places),
            Written::Nothing => (0, Stop::Done),
            Written::Other => (0, Stop::Other),
        }
    }

    /// Successes of the sends of a queue pair, each the oldest that is outstanding.
    #[inline(always)]
    fn take_sent(&mut self, places: &mut [WorkCompletion]) -> (usize, Stop) {
        let device = self.device.device();
        let (hal, ledgers) = (device.hal(), device.ledgers());
        // Barriers would have what is behind `self` written and read again.
        let (mut known, mut at) = (self.kept.sends, self.consumer);
        let Some(record) = known.poller.record(ledgers) else { return (0, Stop::Other) };
        if !known.poller.is_current(&record) {
            return (0, Stop::Other);
        }
        let slots = ledgers.send_slots(known.poller.slots());
        let (count, stop) = run((hal, self.rings.blocks()), &mut at, places, |window, written, place| {
            if written != Written::Sent || !known.is_of(window) {
                return None;
            }
            let retired = known.poller.retire_next(&record, &slots, Tail::counter_of(window))?;
            *place = sent(window, &retired, known.qpn);
            Some(())
        });
        if count > 0 {
            known.poller.publish(&record);
            self.kept.sends.poller.follow(&known.poller);
            self.consumer = at;
            hand_back(hal, &self.rings, at.counter());
        }
        (count, stop)
    }

    /// Successes of the receives of a queue pair.
    #[inline(never)]
    fn take_received(&mut self, places: &mut [WorkCompletion]) -> (usize, Stop) {
        let device = self.device.device();
        let (hal, ledgers) = (device.hal(), device.ledgers());
        let (mut known, mut at) = (self.kept.receives, self.consumer);
        let Some(record) = known.poller.record(ledgers) else { return (0, Stop::Other) };
        if !known.poller.is_current(&record) {
            return (0, Stop::Other);
        }
        let slots = ledgers.receive_slots(known.poller.slots());
        let (count, stop) = run((hal, self.rings.blocks()), &mut at, places, |window, written, place| {
            let Written::Received(opcode) = written else { return None };
            if !known.is_of(window) {
                return None;
            }
            let id = known.poller.retire_next(&record, &slots, Tail::counter_of(window))?;
            received(place, (*window, opcode), (id, known.qpn));
            Some(())
        });
        if count > 0 {
            known.poller.publish(&record);
            self.kept.receives.poller.follow(&known.poller);
            self.consumer = at;
            hand_back(hal, &self.rings, at.counter());
        }
        (count, stop)
    }

    /// Successes of the receives of a shared queue.
    #[inline(never)]
    fn take_shared(&mut self, places: &mut [WorkCompletion]) -> (usize, Stop) {
        let device = self.device.device();
        let (hal, ledgers) = (device.hal(), device.ledgers());
        let (mut known, mut at) = (self.kept.shared, self.consumer);
        let (Some(record), Some((queue, entries))) =
            (known.poller.record(ledgers), known.poller.queue(ledgers))
        else {
            return (0, Stop::Other);
        };
        if !known.poller.is_current(&record, &queue) {
            return (0, Stop::Other);
        }
        let (completions, mut chain) = (Identity::queue(self.cqn), Chain::new(&queue));
        let (count, stop) = run((hal, self.rings.blocks()), &mut at, places, |window, written, place| {
            let Written::Received(opcode) = written else { return None };
            let same = known.is_of(window) && known.is_exactly(window);
            if !same && !known.turn(ledgers, completions, *window) {
                return None;
            }
            let id = known.poller.claim(&entries, &mut chain, Tail::counter_of(window))?;
            received(place, (*window, opcode), (id, known.qpn));
            Some(())
        });
        if count > 0 {
            chain.put_back(&queue, &entries);
            self.kept.shared = known;
            self.consumer = at;
            hand_back(hal, &self.rings, at.counter());
        }
        (count, stop)
    }
}

/// Lets `step` fill `places` from the entries from `at` on, with what the device has written there, as long as it does.
#[inline(always)]
fn run<H: Hal>(
    (hal, entries): (&H, Run<'_, BLOCK>),
    at: &mut Consumer,
    places: &mut [WorkCompletion],
    mut step: impl FnMut(&Window<'_, BLOCK>, Written, &mut WorkCompletion) -> Option<()>,
) -> (usize, Stop) {
    let (start, mut rest, mut stop) = (at.index(), places, Stop::Done);
    'all: while !rest.is_empty() {
        // The phase is the same up to the end of the ring.
        let phase = at.phase();
        let (now, later) = rest.split_at_mut(rest.len().min(at.left() as usize));
        for place in now {
            let window = entries.slot(at.index());
            let written = look(&Entry { hal, window }, phase);
            if step(&window, written, place).is_none() {
                stop = if written == Written::Nothing { Stop::Done } else { Stop::Other };
                break 'all;
            }
            at.advance();
        }
        rest = later;
    }
    (at.index().wrapping_sub(start) as usize, stop)
}

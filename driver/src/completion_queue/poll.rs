//! Polling: entries in the order of one queue pair go a short way, everything else the general one.

use super::entries::BadRun;
use super::{CompletionQueue, PollError};
use crate::device::DeviceRef;
use crate::dma::{BLOCK, Rings, Run, Window};
use crate::hal::{Barrier, Hal};
use crate::ledger::shared::{Claimed, retire_shared};
use crate::ledger::{Identity, Pairs, Record, Refusal, Retired, SendPoller, retire_receive};
use crate::ring::{OwnedEntry, take_ownership, take_plain};
use crate::trace::TraceEvent;
use crate::work_completion::{Origin, WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_prm::cqe::OP_OWN_OFFSET;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{CqeOpcode, CqeSyndrome};

/// The `user_index` of nobody.
const NOBODY: u32 = 0xff_ffff;

/// The queue pair that completed last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Current {
    /// The `user_index` as entries have it, in memory order. Its generation makes it unique.
    key: u32,
    qpn: Qpn,
    poller: SendPoller,
}

/// Why the short way ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// There is no more room, or no more entry.
    Done,
    /// The next entry needs the general way.
    Other,
}

/// What one entry came to on the general way.
enum Outcome {
    Nothing,
    Discarded(Qpn),
    /// With the queue pair to remember.
    Completion(WorkCompletion, Current),
}

impl Current {
    /// No queue pair.
    pub(super) const NOBODY: Self =
        Self { key: NOBODY, qpn: Qpn::from_low_bits(0), poller: SendPoller::NOBODY };

    /// Reads the entry at `at` if it is a success of this queue pair, the oldest that is outstanding, and retires it.
    #[inline(always)]
    fn step<H: Hal>(
        &mut self,
        hal: &H,
        (entries, record, slots): (Run<'_, BLOCK>, &impl Record, &impl Pairs),
        (index, phase): (u32, u8),
    ) -> Result<WorkCompletion, Stop> {
        let window = entries.slot(index);
        let entry = Entry { hal, window };
        if !take_plain(&entry, phase) {
            return Err(if take_ownership(&entry, phase).is_some() { Stop::Other } else { Stop::Done });
        }
        if window.load_raw32::<32>() != self.key {
            return Err(Stop::Other);
        }
        let retired = self.poller.retire_next(record, slots, Tail::counter_of(&window)).ok_or(Stop::Other)?;
        Ok(sent(&window, &retired, self.qpn))
    }
}

/// Lets the device write the consumed entries again; the loads from them come first.
#[inline(always)]
fn hand_back<H: Hal>(hal: &H, rings: &Rings<H::Dma>, counter: u32) {
    hal.barrier(Barrier::FromDevice);
    rings.record().store_be32::<0>(counter);
}

pub(super) struct Entry<'a, H> {
    pub(super) hal: &'a H,
    pub(super) window: Window<'a, BLOCK>,
}

impl<H: Hal> OwnedEntry for Entry<'_, H> {
    #[inline(always)]
    fn last_byte(&self) -> u8 {
        self.window.load_u8::<OP_OWN_OFFSET>()
    }
    #[inline(always)]
    fn synchronize(&self) {
        self.hal.barrier(Barrier::FromDevice);
    }
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Fills `completions` with what is there, and says how many. An entry that cannot be true ends the call; it is
    /// reported by the call that finds it first.
    #[inline(always)]
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&mut self, completions: &mut [WorkCompletion]) -> Result<usize, PollError> {
        if let [place] = completions {
            match self.take_next() {
                Ok(completion) => *place = completion,
                Err(Stop::Done) => return Ok(0),
                Err(Stop::Other) => return self.take_others(completions, 0),
            }
            return Ok(1);
        }
        match self.take_in_order(completions) {
            (count, Stop::Done) => Ok(count),
            (count, Stop::Other) => self.take_others(completions, count),
        }
    }

    /// The next completion, if there is one.
    #[inline(always)]
    pub fn poll_one(&mut self) -> Result<Option<WorkCompletion>, PollError> {
        match self.take_next() {
            Ok(completion) => Ok(Some(completion)),
            Err(Stop::Done) => Ok(None),
            Err(Stop::Other) => self.take_other(),
        }
    }

    /// Takes the next entry if it is a success of the current queue pair, the oldest that is outstanding.
    #[inline(always)]
    fn take_next(&mut self) -> Result<WorkCompletion, Stop> {
        let Self { device, rings, current, consumer, .. } = self;
        let device = device.device();
        let (hal, ledgers) = (device.hal(), device.ledgers());
        let record = current.poller.record(ledgers).ok_or(Stop::Other)?;
        if !current.poller.is_current(&record) {
            return Err(Stop::Other);
        }
        let slots = current.poller.pairs(ledgers);
        let at = (consumer.index(), consumer.phase());
        let completion = current.step(hal, (rings.blocks(), &record, &slots), at)?;
        consumer.advance();
        current.poller.publish(&record);
        hand_back(hal, rings, consumer.counter());
        Ok(completion)
    }

    /// Takes entries as long as they are successes of the current queue pair, each the oldest that is outstanding.
    #[inline(always)]
    fn take_in_order(&mut self, places: &mut [WorkCompletion]) -> (usize, Stop) {
        let device = self.device.device();
        let (hal, ledgers) = (device.hal(), device.ledgers());
        // Barriers would have what is behind `self` written and read again.
        let (mut current, mut at) = (self.current, self.consumer);
        let Some(record) = current.poller.record(ledgers) else { return (0, Stop::Other) };
        if !current.poller.is_current(&record) {
            return (0, Stop::Other);
        }
        let (slots, entries) = (ledgers.send_slots(current.poller.slots()), self.rings.blocks());
        let (start, mut rest, mut stop) = (at.index(), places, Stop::Done);
        'all: while !rest.is_empty() {
            // The phase is the same up to the end of the ring.
            let phase = at.phase();
            let (now, later) = rest.split_at_mut(rest.len().min(at.left() as usize));
            for place in now {
                match current.step(hal, (entries, &record, &slots), (at.index(), phase)) {
                    Ok(completion) => *place = completion,
                    Err(why) => {
                        stop = why;
                        break 'all;
                    }
                }
                at.advance();
            }
            rest = later;
        }
        let count = at.index().wrapping_sub(start) as usize;
        if count > 0 {
            current.poller.publish(&record);
            self.current.poller.follow(&current.poller);
            self.consumer = at;
            hand_back(hal, &self.rings, at.counter());
        }
        (count, stop)
    }

    #[cold]
    #[inline(never)]
    fn take_other(&mut self) -> Result<Option<WorkCompletion>, PollError> {
        let mut completion = [WorkCompletion::EMPTY];
        Ok((self.take_others(&mut completion, 0)? > 0).then_some(completion[0]))
    }

    /// Goes on with entries of any kind after `count` completions.
    #[cold]
    #[inline(never)]
    fn take_others(
        &mut self,
        completions: &mut [WorkCompletion],
        mut count: usize,
    ) -> Result<usize, PollError> {
        while let Some(place) = completions.get_mut(count) {
            match self.look() {
                Ok(Outcome::Nothing) => break,
                Ok(Outcome::Discarded(qpn)) => self.discard(qpn),
                Ok(Outcome::Completion(completion, current)) => {
                    *place = completion;
                    // The short way knows entries of one block only.
                    self.current = if self.wide { Current::NOBODY } else { current };
                    count += 1;
                }
                Err(_) if count > 0 => break,
                Err(error) => {
                    self.consume();
                    return Err(error);
                }
            }
            self.consume();
            let (more, stop) = self.take_in_order(completions.get_mut(count..).unwrap_or_default());
            count += more;
            if stop == Stop::Done && more > 0 {
                break;
            }
        }
        Ok(count)
    }

    /// Looks at the next entry without consuming it.
    fn look(&self) -> Result<Outcome, PollError> {
        match self.take(self.consumer) {
            Ok(Some(_)) => self.read(&self.entry(self.consumer.index())),
            Ok(None) => Ok(Outcome::Nothing),
            Err(BadRun(entries)) => Err(PollError::BadRun { entries }),
        }
    }

    /// Reads an entry that is ours.
    fn read(&self, window: &Window<'_, BLOCK>) -> Result<Outcome, PollError> {
        let tail = Tail(window.load_be64::<56>());
        let identity = self.identity(window, tail);
        let opcode = CqeOpcode::from_raw(tail.opcode());
        let read = match opcode {
            CqeOpcode::Requester | CqeOpcode::RequesterError => self.read_sent(window, tail, identity),
            opcode if is_responder(opcode) => {
                // What is remembered is about sends and stays true.
                self.read_received(window, tail, identity).map(|completion| (completion, self.current))
            }
            _ => return Err(PollError::UnexpectedOpcode { opcode, qpn: tail.qpn() }),
        };
        match read {
            Ok((completion, current)) => Ok(Outcome::Completion(completion, current)),
            Err(Refusal::Stranger) => Ok(Outcome::Discarded(tail.qpn())),
            Err(Refusal::NotOutstanding) => {
                Err(PollError::NotOutstanding { qpn: tail.qpn(), counter: tail.counter() })
            }
        }
    }

    fn read_sent(
        &self,
        window: &Window<'_, BLOCK>,
        tail: Tail,
        identity: Identity,
    ) -> Result<(WorkCompletion, Current), Refusal> {
        let ledgers = self.device.device().ledgers();
        let mut poller =
            SendPoller::resolve(ledgers, ledgers.records(), identity).ok_or(Refusal::Stranger)?;
        let retired = poller.retire(ledgers, tail.counter())?;
        poller.publish(&poller.record(ledgers).ok_or(Refusal::Stranger)?);
        let mut completion = sent(window, &retired, tail.qpn());
        if CqeOpcode::from_raw(tail.opcode()) == CqeOpcode::RequesterError {
            fail(&mut completion, window);
        }
        Ok((completion, Current { key: window.load_raw32::<32>(), qpn: tail.qpn(), poller }))
    }

    fn read_received(
        &self,
        window: &Window<'_, BLOCK>,
        tail: Tail,
        identity: Identity,
    ) -> Result<WorkCompletion, Refusal> {
        let ledgers = self.device.device().ledgers();
        let own = retire_receive(ledgers, ledgers.records(), identity, tail.counter());
        let wr_id = match own {
            Err(Refusal::Stranger) => {
                match retire_shared(ledgers, ledgers.records(), identity, tail.counter())? {
                    Claimed::Receive(id) => id,
                    Claimed::Late => return Err(Refusal::Stranger),
                }
            }
            own => own?,
        };
        let opcode = CqeOpcode::from_raw(tail.opcode());
        let mut completion = WorkCompletion { wr_id, qpn: tail.qpn(), ..WorkCompletion::EMPTY };
        completion.byte_count = window.load_be32::<44>();
        completion.origin = Origin::new(window.load_be32::<24>());
        completion.opcode = match opcode {
            CqeOpcode::ResponderWriteImmediate => WorkCompletionOpcode::ReceiveRdmaWithImmediate,
            CqeOpcode::ResponderSendInvalidate => WorkCompletionOpcode::ReceiveWithInvalidate,
            _ => WorkCompletionOpcode::Receive,
        };
        match opcode {
            CqeOpcode::ResponderWriteImmediate
            | CqeOpcode::ResponderSendImmediate
            | CqeOpcode::ResponderSendInvalidate => {
                completion.immediate = Some(window.load_be32::<36>());
            }
            CqeOpcode::ResponderError => fail(&mut completion, window),
            _ => (),
        }
        Ok(completion)
    }

    /// Marks all entries of a queue pair that is reset, so that they are thrown away when they are reached.
    pub(crate) fn disown(&mut self, user_index: u32) {
        self.current = Current::NOBODY;
        let mut at = self.consumer;
        for _ in 0..at.size() {
            if !matches!(self.take(at), Ok(Some(_))) {
                break;
            }
            let window = self.entry(at.index());
            let theirs = window.load_be32::<32>() & NOBODY == user_index;
            if theirs && !cfg!(bareverbs_mutation = "kept_completions") {
                self.give_back(&window);
                window.store_be32::<32>(NOBODY);
            }
            at.advance();
        }
    }

    /// A receive of a shared queue goes back to it, although its completion is thrown away.
    fn give_back(&self, window: &Window<'_, BLOCK>) {
        let tail = Tail(window.load_be64::<56>());
        if is_responder(CqeOpcode::from_raw(tail.opcode())) {
            let ledgers = self.device.device().ledgers();
            let identity = self.identity(window, tail);
            // Receives of a queue of its own are strangers here; the reset gives all of them back.
            retire_shared(ledgers, ledgers.records(), identity, tail.counter()).ok();
        }
    }

    /// Whom an entry says it is of.
    fn identity(&self, window: &Window<'_, BLOCK>, tail: Tail) -> Identity {
        Identity::from_parts(Identity::queue(self.cqn), window.load_be32::<32>(), tail.qpn().value())
    }

    #[cold]
    fn discard(&mut self, qpn: Qpn) {
        self.discarded += 1;
        if let Some(observer) = self.device.device().config().observer {
            observer.observe(&TraceEvent::CompletionDiscarded { cqn: self.cqn, qpn });
        }
    }

    /// Goes behind an entry.
    fn consume(&mut self) {
        self.consumer.advance();
        hand_back(self.device.device().hal(), &self.rings, self.consumer.counter());
    }
}

/// The completion of a send that succeeded.
#[inline(always)]
fn sent(window: &Window<'_, BLOCK>, retired: &Retired, qpn: Qpn) -> WorkCompletion {
    WorkCompletion {
        wr_id: retired.id,
        byte_count: window.load_be32::<44>(),
        immediate: None,
        qpn,
        status: WorkCompletionStatus::Success,
        vendor_syndrome: 0,
        opcode: WorkCompletionOpcode::from_kind(retired.posted.kind()),
        origin: Origin::NONE,
    }
}

fn fail(completion: &mut WorkCompletion, window: &Window<'_, BLOCK>) {
    completion.status = WorkCompletionStatus::Failed(CqeSyndrome::from_raw(window.load_u8::<55>()));
    completion.vendor_syndrome = window.load_u8::<54>();
}

fn is_responder(opcode: CqeOpcode) -> bool {
    matches!(
        opcode,
        CqeOpcode::ResponderWriteImmediate
            | CqeOpcode::ResponderSend
            | CqeOpcode::ResponderSendImmediate
            | CqeOpcode::ResponderSendInvalidate
            | CqeOpcode::ResponderError
    )
}

/// The last 8 bytes of an entry: send opcode, queue pair, counter, signature, opcode and owner.
#[derive(Clone, Copy)]
struct Tail(u64);

impl Tail {
    const fn qpn(self) -> Qpn {
        Qpn::from_low_bits((self.0 >> 32) as u32)
    }
    const fn counter(self) -> u16 {
        (self.0 >> 16) as u16
    }
    const fn opcode(self) -> u8 {
        self.0 as u8 >> 4
    }
    /// The counter alone.
    #[inline(always)]
    fn counter_of(window: &Window<'_, BLOCK>) -> u16 {
        window.load_be16::<60>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
    use zerocopy::IntoBytes;

    #[test]
    fn offsets_are_those_of_the_layout() {
        let mut cqe = CompletionEntry::new();
        cqe.set_user_index(0x12_3456).set_immediate(7).set_byte_count(9).set_qpn(Qpn::from_low_bits(0x77));
        cqe.set_wqe_counter(0xabcd).set_opcode(CqeOpcode::ResponderSend).set_owner(true);
        let bytes = cqe.as_bytes();
        let be32 = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((be32(32), be32(36), be32(44), be32(60) >> 16), (0x12_3456, 7, 9, 0xabcd));
        let tail = Tail(u64::from_be_bytes(bytes[56..].try_into().unwrap()));
        assert_eq!((tail.qpn().value(), tail.counter(), tail.opcode()), (0x77, 0xabcd, 2));
        let mut error = ErrorEntry::new();
        error.set_syndrome(CqeSyndrome::RemoteAccess).set_vendor_syndrome(0x88);
        assert_eq!((error.as_bytes()[55], error.as_bytes()[54]), (0x13, 0x88));
    }
}

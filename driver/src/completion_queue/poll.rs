//! Polling: successes of the queue pair that completed last go a short way ([`short`](super::short)), everything else the
//! general one.

use super::entries::BadRun;
use super::short::{Kept, Known, Last, NOBODY, Stop};
use super::{CompletionQueue, PollError};
use crate::device::DeviceRef;
use crate::dma::{BLOCK, Rings, Window};
use crate::hal::{Barrier, Hal};
use crate::ledger::shared::{Claimed, retire_shared};
use crate::ledger::{Identity, Refusal, Retired, SendPoller, retire_receive};
use crate::ring::OwnedEntry;
use crate::trace::TraceEvent;
use crate::work_completion::{Origin, WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_prm::cqe::OP_OWN_OFFSET;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::{CqeOpcode, CqeSyndrome};

/// What one entry came to on the general way.
enum Outcome {
    Nothing,
    Discarded(Qpn),
    /// With the queue pair to keep.
    Completion(WorkCompletion, Last),
}

/// Lets the device write the consumed entries again; the loads from them come first.
#[inline(always)]
pub(super) fn hand_back<H: Hal>(hal: &H, rings: &Rings<H::Dma>, counter: u32) {
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
            return match self.take_next(place) {
                None => Ok(1),
                Some(Stop::Done) => Ok(0),
                Some(Stop::Other) => self.take_others(completions, 0),
            };
        }
        match self.take_run(completions) {
            (count, Stop::Done) => Ok(count),
            (count, Stop::Other) => self.take_others(completions, count),
        }
    }

    /// The next completion, if there is one.
    #[inline(always)]
    pub fn poll_one(&mut self) -> Result<Option<WorkCompletion>, PollError> {
        let mut completion = WorkCompletion::EMPTY;
        match self.take_next(&mut completion) {
            None => Ok(Some(completion)),
            Some(Stop::Done) => Ok(None),
            Some(Stop::Other) => self.take_other(),
        }
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
        while let Some(places @ [_, ..]) = completions.get_mut(count..) {
            // Another short way than the one that ended, perhaps.
            let (more, stop) = self.take_run(places);
            count += more;
            match stop {
                Stop::Done => break,
                Stop::Other if more > 0 => continue,
                Stop::Other => (),
            }
            match self.look() {
                Ok(Outcome::Nothing) => break,
                Ok(Outcome::Discarded(qpn)) => self.discard(qpn),
                Ok(Outcome::Completion(completion, last)) => {
                    places[0] = completion;
                    // The short ways know entries of one block only.
                    if !self.wide {
                        self.kept.keep(last);
                    }
                    count += 1;
                }
                Err(_) if count > 0 => break,
                Err(error) => {
                    self.consume();
                    return Err(error);
                }
            }
            self.consume();
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
        let tail = Tail::of(window);
        let identity = self.identity(window, tail);
        let opcode = CqeOpcode::from_raw(tail.opcode());
        let read = match opcode {
            CqeOpcode::Requester | CqeOpcode::RequesterError => self.read_sent(window, tail, identity),
            opcode if is_responder(opcode) => self.read_received(window, tail, identity),
            _ => return Err(PollError::UnexpectedOpcode { opcode, qpn: tail.qpn() }),
        };
        match read {
            Ok((completion, last)) => Ok(Outcome::Completion(completion, last)),
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
    ) -> Result<(WorkCompletion, Last), Refusal> {
        let ledgers = self.device.device().ledgers();
        let mut poller =
            SendPoller::resolve(ledgers, ledgers.records(), identity).ok_or(Refusal::Stranger)?;
        let retired = poller.retire(ledgers, tail.counter())?;
        poller.publish(&poller.record(ledgers).ok_or(Refusal::Stranger)?);
        let mut completion = sent(window, &retired, tail.qpn());
        if CqeOpcode::from_raw(tail.opcode()) == CqeOpcode::RequesterError {
            fail(&mut completion, window);
        }
        Ok((completion, Last::Sends(known(window, tail, poller))))
    }

    fn read_received(
        &self,
        window: &Window<'_, BLOCK>,
        tail: Tail,
        identity: Identity,
    ) -> Result<(WorkCompletion, Last), Refusal> {
        let ledgers = self.device.device().ledgers();
        let own = retire_receive(ledgers, ledgers.records(), identity, tail.counter());
        let (wr_id, last) = match own {
            Ok((id, poller)) => (id, Last::Receives(known(window, tail, poller))),
            Err(Refusal::Stranger) => {
                match retire_shared(ledgers, ledgers.records(), identity, tail.counter())? {
                    (Claimed::Receive(id), poller) => (id, Last::Shared(known(window, tail, poller))),
                    (Claimed::Late, _) => return Err(Refusal::Stranger),
                }
            }
            Err(refusal) => return Err(refusal),
        };
        let mut completion = WorkCompletion::EMPTY;
        received(&mut completion, (*window, tail.opcode()), (wr_id, tail.qpn()));
        if CqeOpcode::from_raw(tail.opcode()) == CqeOpcode::ResponderError {
            fail(&mut completion, window);
        }
        Ok((completion, last))
    }

    /// Marks all entries of a queue pair that is reset, so that they are thrown away when they are reached.
    pub(crate) fn disown(&mut self, user_index: u32) {
        self.kept = Kept::NOBODY;
        let mut at = self.consumer;
        for _ in 0..at.size() {
            if !matches!(self.take(at), Ok(Some(_))) {
                break;
            }
            let window = self.entry(at.index());
            let theirs = window.load_be32::<32>() & NOBODY == user_index;
            if theirs && !mutated("kept_completions") {
                self.give_back(&window);
                window.store_be32::<32>(NOBODY);
            }
            at.advance();
        }
    }

    /// A receive of a shared queue goes back to it, although its completion is thrown away.
    fn give_back(&self, window: &Window<'_, BLOCK>) {
        let tail = Tail::of(window);
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

/// The queue pair of an entry, to be kept with its poller.
fn known<P>(window: &Window<'_, BLOCK>, tail: Tail, poller: P) -> Known<P> {
    Known { key: window.load_raw32::<32>(), qpn: tail.qpn(), poller }
}

/// The completion of a send that succeeded.
#[inline(always)]
pub(super) fn sent(window: &Window<'_, BLOCK>, retired: &Retired, qpn: Qpn) -> WorkCompletion {
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

/// Writes the completion of a receive that succeeded to `place`.
#[inline(always)]
pub(super) fn received(
    place: &mut WorkCompletion,
    (window, opcode): (Window<'_, BLOCK>, u8),
    (wr_id, qpn): (u64, Qpn),
) {
    *place = WorkCompletion {
        wr_id,
        byte_count: window.load_be32::<44>(),
        immediate: None,
        qpn,
        status: WorkCompletionStatus::Success,
        vendor_syndrome: 0,
        opcode: WorkCompletionOpcode::Receive,
        origin: Origin::new([window.load_be32::<20>(), window.load_be32::<24>()]),
    };
    if opcode != CqeOpcode::ResponderSend.raw() {
        add_what_came_along(place, window, opcode);
    }
}

/// What only some messages bring.
#[inline(never)]
fn add_what_came_along(place: &mut WorkCompletion, window: Window<'_, BLOCK>, opcode: u8) {
    let opcode = CqeOpcode::from_raw(opcode);
    place.opcode = match opcode {
        CqeOpcode::ResponderWriteImmediate => WorkCompletionOpcode::ReceiveRdmaWithImmediate,
        CqeOpcode::ResponderSendInvalidate => WorkCompletionOpcode::ReceiveWithInvalidate,
        _ => WorkCompletionOpcode::Receive,
    };
    if opcode != CqeOpcode::ResponderError {
        place.immediate = Some(window.load_be32::<36>());
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
pub(super) struct Tail(u64);

impl Tail {
    #[inline(always)]
    pub(super) fn of(window: &Window<'_, BLOCK>) -> Self {
        Self(window.load_be64::<56>())
    }
    #[inline(always)]
    pub(super) const fn qpn(self) -> Qpn {
        Qpn::from_low_bits((self.0 >> 32) as u32)
    }
    #[inline(always)]
    pub(super) const fn counter(self) -> u16 {
        (self.0 >> 16) as u16
    }
    const fn opcode(self) -> u8 {
        self.0 as u8 >> 4
    }
    /// The number of the queue pair alone, to be compared with [`raw_qpn`].
    #[inline(always)]
    pub(super) fn raw_qpn_of(window: &Window<'_, BLOCK>) -> u32 {
        window.load_raw32::<56>() & raw_qpn(Qpn::from_low_bits(u32::MAX))
    }
    /// The counter alone.
    #[inline(always)]
    pub(super) fn counter_of(window: &Window<'_, BLOCK>) -> u16 {
        window.load_be16::<60>()
    }
}

/// The number of a queue pair where an entry has it, in memory order.
#[inline(always)]
pub(super) const fn raw_qpn(qpn: Qpn) -> u32 {
    qpn.value().to_be()
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

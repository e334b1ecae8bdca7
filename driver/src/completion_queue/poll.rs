//! Polling. Single successes and those of alternating queue pairs are retired [directly in the
//! ledger](super::direct), many of one queue pair on the [fast path](super::fast) of the cached one;
//! everything else takes the general path.

use super::cache::{CachedQueuePair, Completed, QueuePairCache, Turns};
use super::direct::Single;
use super::entries::{BadRun, hand_back, identity_of};
use super::fast::PathEnd;
use super::{CompletionQueue, PollError};
use crate::cqe::completion::{fail, received, sent};
use crate::cqe::ownership::is_responder;
use crate::cqe::{CompletionFields, CqeView};
use crate::device::DeviceRef;
use crate::ledger::shared::{Claimed, retire_shared};
use crate::ledger::{Identity, Refusal, SendPoller, UserIndex, retire_receive};
use crate::trace::TraceEvent;
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::CqeOpcode;

/// The result for one entry on the general path.
enum PollOutcome {
    Nothing,
    Discarded(Qpn),
    /// A completion, with the queue pair to cache.
    Completion(WorkCompletion, Completed),
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Fills `completions` with the available completions and returns their number. An impossible entry ends
    /// the call; the next call, which finds it first, reports it.
    #[inline(always)]
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&mut self, completions: &mut [WorkCompletion]) -> Result<usize, PollError> {
        // Two calls, each with its own return, so that the processor branches only once.
        if let [place] = completions {
            return match self.take_single(place) {
                Single::Taken => Ok(1),
                Single::Empty => Ok(0),
                Single::OtherPath => self.take_others(completions, 0),
            };
        }
        let taken = match self.cache.turns {
            Turns::Never => self.take_fast(completions),
            _ => self.take_turns(completions),
        };
        match taken {
            (count, PathEnd::Finished) => Ok(count),
            (count, PathEnd::OtherPath) => self.take_others(completions, count),
        }
    }

    /// The next completion, if there is one.
    #[inline(always)]
    pub fn poll_one(&mut self) -> Result<Option<WorkCompletion>, PollError> {
        let mut completion = [WorkCompletion::EMPTY];
        let count = self.poll(&mut completion)?;
        Ok((count > 0).then_some(completion[0]))
    }

    /// Continues with entries of any kind after `count` completions. Discards at most as many entries as the
    /// ring has, so that a device which writes unmatched entries faster than they are discarded cannot hold
    /// the caller.
    #[cold]
    #[inline(never)]
    fn take_others(
        &mut self,
        completions: &mut [WorkCompletion],
        mut count: usize,
    ) -> Result<usize, PollError> {
        let mut discards = self.consumer.size();
        while let Some(places @ [_, ..]) = completions.get_mut(count..) {
            let taken = match self.take_other_turns(places) {
                (0, PathEnd::OtherPath) => {
                    self.cache.turns = Turns::Never;
                    self.take_compressed(places)
                }
                (turns, _) => turns,
            };
            count += taken;
            // The fast path may apply to the queue pair that is cached now.
            let Some(places @ [_, ..]) = completions.get_mut(count..) else { break };
            let (more, end) = self.take_fast(places);
            count += more;
            match end {
                PathEnd::Finished => break,
                PathEnd::OtherPath if taken + more > 0 => continue,
                PathEnd::OtherPath => (),
            }
            match self.look() {
                Ok(PollOutcome::Nothing) => break,
                Ok(PollOutcome::Discarded(qpn)) => {
                    self.discard(qpn);
                    discards -= 1;
                    if discards == 0 {
                        self.consume();
                        break;
                    }
                }
                Ok(PollOutcome::Completion(completion, completed)) => {
                    places[0] = completion;
                    // Two-block entries have no fast path.
                    if !self.wide {
                        self.cache.insert(completed);
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
    fn look(&self) -> Result<PollOutcome, PollError> {
        match self.take_entry(self.consumer) {
            Ok(Some(_)) => self.read(self.entry(self.consumer.index())),
            Ok(None) => Ok(PollOutcome::Nothing),
            Err(BadRun(entries)) => Err(PollError::BadRun { entries }),
        }
    }

    /// Reads an entry that the device has written.
    fn read(&self, cqe: CqeView<'_>) -> Result<PollOutcome, PollError> {
        let (opcode, qpn) = (cqe.opcode(), cqe.qpn());
        let read = match opcode {
            CqeOpcode::Requester | CqeOpcode::RequesterError => self.read_sent(cqe),
            opcode if is_responder(opcode) => self.read_received(cqe),
            _ => return Err(PollError::UnexpectedOpcode { opcode, qpn }),
        };
        match read {
            Ok((mut completion, completed)) => {
                if matches!(opcode, CqeOpcode::RequesterError | CqeOpcode::ResponderError) {
                    fail(&mut completion, cqe);
                }
                Ok(PollOutcome::Completion(completion, completed))
            }
            Err(Refusal::Stranger) => Ok(PollOutcome::Discarded(qpn)),
            Err(Refusal::NotOutstanding) => Err(PollError::NotOutstanding { qpn, counter: cqe.counter() }),
        }
    }

    fn read_sent(&self, cqe: CqeView<'_>) -> Result<(WorkCompletion, Completed), Refusal> {
        let ledgers = self.device.device().ledgers();
        let mut poller =
            SendPoller::resolve(ledgers, ledgers.records(), self.identity(cqe)).ok_or(Refusal::Stranger)?;
        let retired = poller.retire(ledgers, cqe.counter())?;
        poller.publish(&poller.record(ledgers).ok_or(Refusal::Stranger)?);
        let opcode = WorkCompletionOpcode::from_kind(retired.posted.kind());
        let mut completion = WorkCompletion::EMPTY;
        sent(&mut completion, cqe, retired.id, opcode, cqe.qpn());
        Ok((completion, Completed::Send(CachedQueuePair::of(cqe, poller))))
    }

    fn read_received(&self, cqe: CqeView<'_>) -> Result<(WorkCompletion, Completed), Refusal> {
        let (ledgers, identity) = (self.device.device().ledgers(), self.identity(cqe));
        let own = retire_receive(ledgers, ledgers.records(), identity, cqe.counter());
        let (wr_id, completed) = match own {
            Ok((id, poller)) => (id, Completed::Receive(CachedQueuePair::of(cqe, poller))),
            Err(Refusal::Stranger) => {
                match retire_shared(ledgers, ledgers.records(), identity, cqe.counter())? {
                    (Claimed::Receive(id), poller) => {
                        (id, Completed::SharedReceive(CachedQueuePair::of(cqe, poller)))
                    }
                    (Claimed::Late, _) => return Err(Refusal::Stranger),
                }
            }
            Err(refusal) => return Err(refusal),
        };
        let mut completion = WorkCompletion::EMPTY;
        received(&mut completion, cqe, cqe.opcode().raw(), wr_id, cqe.qpn());
        Ok((completion, completed))
    }

    /// Marks all entries of a queue pair that is being reset, so that polling discards them.
    pub(crate) fn disown(&mut self, user_index: UserIndex) {
        self.cache = QueuePairCache::EMPTY;
        let mut at = self.consumer;
        for _ in 0..at.size() {
            if !matches!(self.take_entry(at), Ok(Some(_))) {
                break;
            }
            let cqe = self.entry(at.index());
            if cqe.user_index() == user_index.field() && !mutated("kept_completions") {
                self.give_back(cqe);
                cqe.disown();
            }
            at.advance();
        }
    }

    /// Returns a receive of a shared queue to that queue although its completion is discarded.
    fn give_back(&self, cqe: CqeView<'_>) {
        if is_responder(cqe.opcode()) {
            let ledgers = self.device.device().ledgers();
            // Receives of a queue pair's own queue are strangers here; the reset returns all of them.
            retire_shared(ledgers, ledgers.records(), self.identity(cqe), cqe.counter()).ok();
        }
    }

    /// The identity that an entry claims.
    fn identity(&self, cqe: CqeView<'_>) -> Identity {
        identity_of(self.cqn, cqe)
    }

    #[cold]
    fn discard(&mut self, qpn: Qpn) {
        self.discarded += 1;
        if let Some(observer) = self.device.device().config().observer {
            observer.observe(&TraceEvent::CompletionDiscarded { cqn: self.cqn, qpn });
        }
    }

    /// Moves past an entry.
    pub(super) fn consume(&mut self) {
        self.consumer.advance();
        hand_back(self.device.device().hal(), &self.rings, self.consumer.counter());
    }
}

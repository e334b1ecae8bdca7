//! The oracle of a send queue: each request ends once and in order, completes if it is signalled, and fails
//! only for a reason.

use super::request::{Effect, PlannedRequest, Verb};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionStatus};
use bareverbs_prm::numbering::CqeSyndrome;
use std::collections::VecDeque;

/// A posted send.
#[derive(Debug)]
pub struct PostedSend {
    /// Its `wr_id`.
    pub id: u64,
    /// What it does.
    pub item: PlannedRequest,
    /// Its effect on memory.
    pub effect: Effect,
    /// The slot that it uses on both sides.
    pub slot: usize,
}

/// What a completion ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// What succeeded, including the unsignalled requests before it.
    pub done: Vec<PostedSend>,
    /// What failed.
    pub failed: Option<PostedSend>,
}

/// Requests of a queue pair that have not ended.
#[derive(Debug, Default)]
pub struct Sends {
    queue: VecDeque<PostedSend>,
    /// Whether the queue pair was told to fail or to flush.
    pub dead: bool,
    /// Whether the peer has stopped answering.
    pub deserted: bool,
    /// Whether a request failed; all after it are flushed.
    pub failed: bool,
}

impl Sends {
    /// Records a posted send.
    pub fn push(&mut self, sent: PostedSend) {
        self.queue.push_back(sent);
    }

    /// How many have not ended.
    pub fn outstanding(&self) -> usize {
        self.queue.len()
    }

    /// Requests after the last signalled one.
    pub fn silent(&self) -> usize {
        self.queue.iter().rev().take_while(|sent| !sent.item.signalled).count()
    }

    /// Whether an erroneous request was posted.
    pub fn has_mistake(&self) -> bool {
        self.failed || self.queue.iter().any(|sent| sent.item.verb == Verb::Mistake)
    }

    /// Records that the send queue recovered from a failure.
    pub fn recover(&mut self) {
        (self.dead, self.deserted, self.failed) = (false, false, false);
    }

    /// Forgets what was posted; nothing of it will complete.
    pub fn forget(&mut self) -> VecDeque<PostedSend> {
        self.recover();
        std::mem::take(&mut self.queue)
    }

    /// Takes a completion.
    ///
    /// # Panics
    /// If it is unexpected or wrong.
    #[track_caller]
    pub fn complete(&mut self, completion: &WorkCompletion) -> Ended {
        let id = completion.wr_id;
        let at = self.queue.iter().position(|sent| sent.id == id);
        let at = at.unwrap_or_else(|| panic!("{completion:?}: never posted, or ended before"));
        let mut done: Vec<_> = self.queue.drain(..=at).collect();
        let overtaken = done[..at].iter().find(|sent| sent.item.signalled);
        assert!(overtaken.is_none(), "{completion:?} came before {overtaken:?}");
        let last = done.pop().expect("the one that ended");
        let WorkCompletionStatus::Failed(syndrome) = completion.status else {
            assert!(!self.failed, "{completion:?} succeeded behind one that failed");
            assert!(last.item.signalled, "{completion:?} was not signalled");
            assert_ne!(last.item.verb, Verb::Mistake, "{completion:?}: a mistake was not noticed");
            done.push(last);
            return Ended { done, failed: None };
        };
        self.blame(syndrome, &last, done.len());
        Ended { done, failed: Some(last) }
    }

    /// Checks that a request has a reason for this failure.
    #[track_caller]
    fn blame(&mut self, syndrome: CqeSyndrome, sent: &PostedSend, silent: usize) {
        if self.failed {
            assert_eq!(silent, 0, "{sent:?} was flushed, one before it was not");
            assert_eq!(syndrome, CqeSyndrome::WorkRequestFlushed, "{sent:?} is behind one that failed");
            return;
        }
        let reason = match syndrome {
            CqeSyndrome::WorkRequestFlushed => self.dead,
            CqeSyndrome::LocalProtection => sent.item.verb == Verb::Mistake,
            CqeSyndrome::TransportRetryExceeded => self.deserted,
            _ => false,
        };
        assert!(reason, "{sent:?} failed with {syndrome} and had no reason to");
        self.failed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sends(signalled: &[bool]) -> Sends {
        let mut sends = Sends::default();
        for (id, &signalled) in signalled.iter().enumerate() {
            let item = PlannedRequest { signalled, ..PlannedRequest::bare(Verb::Nop) };
            sends.push(PostedSend { id: id as u64, item, effect: Effect::default(), slot: id });
        }
        sends
    }

    fn of(id: u64, failure: Option<CqeSyndrome>) -> WorkCompletion {
        let status = failure.map_or(WorkCompletionStatus::Success, WorkCompletionStatus::Failed);
        WorkCompletion { wr_id: id, status, ..WorkCompletion::EMPTY }
    }

    const FLUSHED: Option<CqeSyndrome> = Some(CqeSyndrome::WorkRequestFlushed);

    #[test]
    fn unsignalled_requests_end_with_the_next_completion_and_each_flush_is_reported() {
        let mut sends = sends(&[false, true, false, false, true]);
        sends.dead = true;
        assert_eq!(sends.complete(&of(1, None)).done.len(), 2);
        let ended = sends.complete(&of(3, FLUSHED));
        assert_eq!((ended.done.len(), ended.failed.map(|sent| sent.id)), (1, Some(3)));
        sends.complete(&of(4, FLUSHED));
        assert_eq!(sends.outstanding(), 0);
    }

    #[test]
    #[should_panic(expected = "ended before")]
    fn a_second_completion_is_found() {
        let mut sends = sends(&[true]);
        sends.complete(&of(0, None));
        sends.complete(&of(0, None));
    }

    #[test]
    #[should_panic(expected = "one before it was not")]
    fn a_flush_that_was_lost_is_found() {
        let mut sends = sends(&[true, false, false]);
        sends.dead = true;
        sends.complete(&of(0, FLUSHED));
        sends.complete(&of(2, FLUSHED));
    }

    #[test]
    #[should_panic(expected = "had no reason to")]
    fn the_walk_notices_a_failure_without_a_cause() {
        sends(&[true]).complete(&of(0, FLUSHED));
    }

    #[test]
    #[should_panic(expected = "succeeded behind one that failed")]
    fn the_walk_notices_a_success_behind_a_failure() {
        let mut sends = sends(&[true, true]);
        sends.dead = true;
        sends.complete(&of(0, FLUSHED));
        sends.complete(&of(1, None));
    }
}

//! The end of a request: checks the memory of both sides.

use super::end::LAYOUT;
use super::lane::LaneService;
use super::lane_ends::{LaneEnds, own_slot};
use super::remote_key::bytes;
use super::request::Verb;
use super::sends::{Ended, PostedSend};
use crate::walk::slots::Rest;
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_prm::time::Duration;

/// How long packets of a message may be in flight after its request has ended without an answer.
const ECHOES: Duration = Duration::from_millis(1);

impl LaneEnds<'_> {
    /// Takes the completion of a send.
    #[track_caller]
    pub fn end_send(&mut self, completion: &WorkCompletion) {
        let Ended { done, failed } = self.me.sends.complete(completion);
        for sent in done {
            let opcode = (sent.id == completion.wr_id).then_some(completion.opcode);
            self.succeed(sent, opcode);
        }
        if let Some(sent) = failed {
            // With an acknowledged service the message may have arrived, and only its acknowledgement not.
            if !self.me.service.is_reliable() && sent.item.verb.takes_receive() {
                self.peer.inbox.withdraw(sent.id);
            }
            self.release(sent);
        }
    }

    #[track_caller]
    fn succeed(&mut self, sent: PostedSend, opcode: Option<WorkCompletionOpcode>) {
        let what = describe(&sent);
        own_slot(&sent).check(&self.me.memory, &sent.effect.own[1], Rest::Untouched, &what);
        if let (Some(found), Some(wanted)) = (opcode, sent.item.verb.opcode()) {
            assert_eq!(found, wanted, "{what}");
        }
        match sent.item.verb {
            Verb::Open(remote_key) => {
                self.me.remote_keys[remote_key].opened(opcode);
                self.me.opened += 1;
            }
            Verb::Close(remote_key) => self.me.remote_keys[remote_key].closed(),
            _ => {}
        }
        self.me.ended += 1;
        if self.me.service == LaneService::Unreliable && sent.item.is_remote() {
            self.me.echoes.push_back((self.now, sent));
            return;
        }
        self.check_target(&sent, &what);
        if self.me.service.is_reliable() {
            self.peer.inbox.acknowledge(sent.id);
        }
        self.leave(sent);
    }

    /// Checks the peer's memory, after the answer has said that the request is done.
    #[track_caller]
    fn check_target(&self, sent: &PostedSend, what: &str) {
        let after = &sent.effect.target[1];
        let target = self.peer.target_of(&sent.item);
        let slot = target.slot(LAYOUT, sent.slot, after.len());
        bytes!(target, memory => slot.check(memory, after, Rest::Untouched, what));
    }

    /// Frees slots whose packets cannot be in flight any more.
    #[track_caller]
    pub fn reclaim(&mut self) {
        while let Some((since, _)) = self.me.echoes.front()
            && self.now > *since + ECHOES
            && let Some((_, sent)) = self.me.echoes.pop_front()
        {
            self.check_begun(&sent);
            self.me.free.push(sent.slot);
        }
    }

    /// Of a WRITE without an answer, the first packets, all or none may have arrived.
    #[track_caller]
    fn check_begun(&self, sent: &PostedSend) {
        let (what, data) = (describe(sent), &sent.effect.target[1]);
        let slot = self.peer.target_of(&sent.item).slot(LAYOUT, sent.slot, data.len());
        let found = slot.read(&self.peer.memory);
        let same = found.iter().zip(data).take_while(|(a, b)| a == b).count();
        let begun = if same == data.len() { same } else { same / self.mtu * self.mtu };
        slot.check(&self.peer.memory, &data[..begun], Rest::Untouched, &what);
    }

    /// Releases a request that has failed or was dropped; only what it must not touch is checked.
    #[track_caller]
    fn release(&mut self, sent: PostedSend) {
        let what = describe(&sent);
        own_slot(&sent).check(&self.me.memory, &[], Rest::Anything, &what);
        let target = self.peer.target_of(&sent.item);
        let slot = target.slot(LAYOUT, sent.slot, sent.effect.target[1].len());
        bytes!(target, memory => slot.check(memory, &[], Rest::Anything, &what));
        self.leave(sent);
    }

    fn leave(&mut self, sent: PostedSend) {
        if let Some(remote_key) = sent.item.remote_key {
            self.peer.remote_keys[remote_key].leave(self.now);
        }
        self.me.free.push(sent.slot);
    }

    /// Forgets what was posted; nothing of it will complete, and no packet of it is in flight.
    #[track_caller]
    pub fn forget_sends(&mut self) {
        let echoes = std::mem::take(&mut self.me.echoes);
        let sent = self.me.sends.forget();
        if !self.me.service.is_reliable() {
            sent.iter().for_each(|sent| self.peer.inbox.lose(sent.id));
        }
        sent.into_iter().chain(echoes.into_iter().map(|(_, sent)| sent)).for_each(|sent| self.release(sent));
    }
}

fn describe(sent: &PostedSend) -> String {
    format!("{:?} of {} bytes, wr_id {:#x}", sent.item.verb, sent.item.length(), sent.id)
}

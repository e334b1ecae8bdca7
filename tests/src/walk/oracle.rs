//! What was posted and what must become of it: every request completes exactly once and in order, and its
//! bytes are where they belong and nowhere else.

use super::plan::{Item, Kind};
use std::collections::VecDeque;

/// A posted send.
#[derive(Debug)]
pub struct Sent {
    /// Its `wr_id`.
    pub id: u64,
    /// What it does.
    pub item: Item,
    /// The slot that it uses on both sides.
    pub slot: usize,
    /// The bytes that travel.
    pub data: Vec<u8>,
}

/// A posted receive.
#[derive(Debug)]
pub struct Posted {
    /// Its `wr_id`.
    pub id: u64,
    /// The slot of its buffer.
    pub slot: usize,
    /// Lengths of its pieces.
    pub pieces: Vec<usize>,
}

/// A message that the next receive has to take.
#[derive(Debug)]
pub struct Message {
    /// SEND, or RDMA WRITE with immediate data.
    pub kind: Kind,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// Requests of one side that are not complete.
#[derive(Debug, Default)]
pub struct Oracle {
    sends: VecDeque<Sent>,
    receives: VecDeque<Posted>,
    messages: VecDeque<Message>,
    /// Sends that completed, with or without a completion of their own.
    pub completed: u64,
}

impl Oracle {
    /// Records a posted send.
    pub fn sent(&mut self, sent: Sent) {
        self.sends.push_back(sent);
    }

    /// Records a posted receive.
    pub fn posted(&mut self, posted: Posted) {
        self.receives.push_back(posted);
    }

    /// Records that the peer posted something that consumes a receive of this side.
    pub fn expect_message(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// The sends that a completion ends: itself and the unsignalled ones before it.
    ///
    /// # Panics
    /// If the send was never posted, has completed before, or has overtaken a signalled one.
    #[track_caller]
    pub fn complete_send(&mut self, id: u64) -> Vec<Sent> {
        let at = self.sends.iter().position(|sent| sent.id == id);
        let at = at
            .unwrap_or_else(|| panic!("send {id} completed and was not outstanding: never posted, or twice"));
        let done: Vec<_> = self.sends.drain(..=at).collect();
        let (last, silent) = done.split_last().expect("at least the one that completed");
        assert!(last.item.signalled, "send {id} completed and was not signalled");
        let overtaken = silent.iter().find(|sent| sent.item.signalled);
        assert!(overtaken.is_none(), "send {id} completed before {overtaken:?}");
        self.completed += done.len() as u64;
        done
    }

    /// The receive and the message that a completion belongs to.
    ///
    /// # Panics
    /// If it is not the oldest posted receive, or no message was in flight.
    #[track_caller]
    pub fn complete_receive(&mut self, id: u64) -> (Posted, Message) {
        let posted = self.flush_receive(id);
        (
            posted,
            self.messages
                .pop_front()
                .unwrap_or_else(|| panic!("receive {id} took a message that nobody sent")),
        )
    }

    /// The receive that a flush belongs to.
    #[track_caller]
    pub fn flush_receive(&mut self, id: u64) -> Posted {
        let posted = self.receives.pop_front().unwrap_or_else(|| panic!("receive {id} was not outstanding"));
        assert_eq!(posted.id, id, "receives complete in the order in which they were posted");
        posted
    }

    /// Sends that are not complete.
    pub fn sends_outstanding(&self) -> usize {
        self.sends.len()
    }

    /// Receives that are not complete.
    pub fn receives_outstanding(&self) -> usize {
        self.receives.len()
    }

    /// Messages that no receive has taken.
    pub fn messages_outstanding(&self) -> usize {
        self.messages.len()
    }

    /// Unsignalled sends since the last signalled one.
    pub fn silent_since_signalled(&self) -> usize {
        self.sends.iter().rev().take_while(|sent| !sent.item.signalled).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oracle(signalled: &[bool]) -> Oracle {
        let mut oracle = Oracle::default();
        for (id, &signalled) in signalled.iter().enumerate() {
            let item = Item { kind: Kind::Write(None), pieces: vec![], inline: false, signalled };
            oracle.sent(Sent { id: id as u64, item, slot: id, data: vec![] });
        }
        oracle
    }

    #[test]
    fn silent_sends_end_with_the_next_reported_one() {
        let mut oracle = oracle(&[false, false, true, true]);
        assert_eq!(oracle.complete_send(2).len(), 3);
        assert_eq!(oracle.complete_send(3).len(), 1);
        assert_eq!((oracle.sends_outstanding(), oracle.completed), (0, 4));
    }

    #[test]
    #[should_panic(expected = "never posted, or twice")]
    fn a_second_completion_is_found() {
        let mut oracle = oracle(&[true]);
        oracle.complete_send(0);
        oracle.complete_send(0);
    }

    #[test]
    #[should_panic(expected = "completed before")]
    fn a_lost_completion_is_found() {
        oracle(&[true, true]).complete_send(1);
    }

    #[test]
    #[should_panic(expected = "was not signalled")]
    fn a_completion_that_was_not_asked_for_is_found() {
        oracle(&[false]).complete_send(0);
    }
}

//! The oracle of what arrives at a queue pair: with a reliable service everything, once and in order; with
//! the others, each message whole or not at all, and none that nobody sent.

use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_prm::ids::Mkey;
use std::collections::VecDeque;

/// A message in flight.
#[derive(Debug, Clone)]
pub struct InboxMessage {
    /// The `wr_id` of its request.
    pub id: u64,
    /// The opcode of its receive's completion.
    pub opcode: WorkCompletionOpcode,
    /// Immediate data, or the key that it invalidates.
    pub immediate: Option<u32>,
    /// Its bytes.
    pub data: Vec<u8>,
    /// The shared receive queue of XRC that it is for.
    pub queue: Option<usize>,
    /// Whether the sender got the acknowledgement.
    pub acknowledged: bool,
    /// How often it may still arrive.
    pub copies: u32,
}

impl InboxMessage {
    /// The key that it invalidates.
    pub fn invalidates(&self) -> Option<Mkey> {
        let takes = self.opcode == WorkCompletionOpcode::ReceiveWithInvalidate;
        self.immediate.filter(|_| takes).map(Mkey::new)
    }

    /// Whether its bytes go to the receive.
    pub fn fills_receive(&self) -> bool {
        self.opcode != WorkCompletionOpcode::ReceiveRdmaWithImmediate
    }

    fn fits(&self, completion: &WorkCompletion, found: &[u8]) -> bool {
        (self.opcode, self.immediate) == (completion.opcode, completion.immediate)
            && self.data.len() == found.len()
            && (!self.fills_receive() || self.data == found)
    }
}

/// What the service promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// All, once and in order.
    Reliable,
    /// Whole messages, and each at most this many times: once, or as often as the network may have repeated a
    /// packet.
    Whole {
        /// How often.
        copies: u32,
    },
}

/// What a queue pair has to receive.
#[derive(Debug)]
pub struct Inbox {
    promise: Promise,
    messages: VecDeque<InboxMessage>,
    /// Messages that arrived.
    pub delivered: u64,
    /// Messages that are known to be lost.
    pub lost: u64,
}

impl Inbox {
    /// An empty inbox.
    pub fn new(promise: Promise) -> Self {
        Self { promise, messages: VecDeque::new(), delivered: 0, lost: 0 }
    }

    /// How often a message may arrive.
    pub const fn copies(&self) -> u32 {
        match self.promise {
            Promise::Reliable => 1,
            Promise::Whole { copies } => copies,
        }
    }

    /// Records that the peer posted a message.
    pub fn expect(&mut self, message: InboxMessage) {
        self.messages.push_back(message);
    }

    /// Records that the peer got the acknowledgement of this request.
    pub fn acknowledge(&mut self, id: u64) {
        if let Some(message) = self.messages.iter_mut().find(|message| message.id == id) {
            message.acknowledged = true;
        }
    }

    /// Records that the request of a message failed before it was sent.
    ///
    /// # Panics
    /// If the message arrived.
    #[track_caller]
    pub fn withdraw(&mut self, id: u64) {
        let at = self.messages.iter().position(|message| message.id == id);
        let at = at.unwrap_or_else(|| panic!("request {id:#x} failed and was delivered"));
        let message = self.messages.remove(at).expect("it was found");
        assert_eq!(message.copies, self.copies(), "request {id:#x} failed and was delivered");
    }

    /// Records that the request of a message was dropped: if the message has not arrived by now, it was never
    /// sent.
    pub fn lose(&mut self, id: u64) {
        if let Some(at) = self.messages.iter().position(|message| message.id == id) {
            self.lost += u64::from(self.messages[at].copies == self.copies());
            self.messages.remove(at);
        }
    }

    /// Messages that must arrive and have not.
    pub fn outstanding(&self) -> usize {
        if self.promise == Promise::Reliable { self.messages.len() } else { 0 }
    }

    /// Messages that were never delivered and may still be.
    pub fn under_way(&self) -> usize {
        self.messages.iter().filter(|message| message.copies == self.copies()).count()
    }

    /// Finds the message that a receive brought: `found` are its bytes, `queue` is the shared receive queue
    /// of XRC.
    ///
    /// # Panics
    /// If there is no such message.
    #[track_caller]
    pub fn take(&mut self, completion: &WorkCompletion, queue: Option<usize>, found: &[u8]) -> InboxMessage {
        let at = match self.promise {
            Promise::Reliable => self.messages.iter().position(|message| message.queue == queue),
            Promise::Whole { .. } => self.choose(completion, found),
        };
        let at = at.unwrap_or_else(|| panic!("{completion:?}: a message that nobody sent: {}", short(found)));
        let message = self.messages[at].clone();
        assert!(
            message.fits(completion, found),
            "{completion:?} with {} in place of {:?} with {}",
            short(found),
            (message.opcode, message.immediate),
            short(&message.data)
        );
        self.delivered += u64::from(message.copies == self.copies());
        self.messages[at].copies -= 1;
        if self.messages[at].copies == 0 {
            self.messages.remove(at);
        }
        message
    }

    /// The message that this can be; one that has not arrived yet takes precedence over a repeated one.
    fn choose(&self, completion: &WorkCompletion, found: &[u8]) -> Option<usize> {
        let fitting = self.messages.iter().enumerate().filter(|(_, message)| message.fits(completion, found));
        fitting.max_by_key(|(at, message)| (message.copies, usize::MAX - at)).map(|(at, _)| at)
    }

    /// Records that nothing sent so far will arrive any more.
    ///
    /// # Panics
    /// If an acknowledged message has not arrived.
    #[track_caller]
    pub fn forget(&mut self) {
        let broken = self.messages.iter().find(|message| message.acknowledged);
        assert!(broken.is_none(), "acknowledged and not delivered: {broken:?}");
        self.forget_unseen();
    }

    /// The same if completions were thrown away that nobody saw.
    pub fn forget_unseen(&mut self) {
        self.lost += self.under_way() as u64;
        self.messages.clear();
    }
}

fn short(bytes: &[u8]) -> String {
    format!("{} bytes {:02x?}", bytes.len(), &bytes[..bytes.len().min(8)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(promise: Promise) -> Inbox {
        let mut inbox = Inbox::new(promise);
        let (opcode, copies) = (WorkCompletionOpcode::Receive, inbox.copies());
        for byte in [1, 2] {
            let (id, data) = (u64::from(byte), vec![byte]);
            let (immediate, queue, acknowledged) = (None, None, false);
            inbox.expect(InboxMessage { id, opcode, immediate, data, queue, acknowledged, copies });
        }
        inbox
    }

    const RECEIVED: WorkCompletion =
        WorkCompletion { opcode: WorkCompletionOpcode::Receive, ..WorkCompletion::EMPTY };

    #[test]
    fn a_lost_message_is_lost_whole() {
        let mut inbox = inbox(Promise::Whole { copies: 1 });
        assert_eq!(inbox.take(&RECEIVED, None, &[2]).id, 2);
        inbox.forget();
        assert_eq!((inbox.delivered, inbox.lost), (1, 1));
    }

    #[test]
    #[should_panic(expected = "in place of")]
    fn a_reliable_message_that_is_overtaken_is_found() {
        inbox(Promise::Reliable).take(&RECEIVED, None, &[2]);
    }

    #[test]
    #[should_panic(expected = "nobody sent")]
    fn a_second_delivery_is_found() {
        let mut inbox = inbox(Promise::Whole { copies: 1 });
        (0..2).for_each(|_| drop(inbox.take(&RECEIVED, None, &[1])));
    }

    #[test]
    #[should_panic(expected = "nobody sent")]
    fn a_mixed_message_is_found() {
        inbox(Promise::Whole { copies: 2 }).take(&RECEIVED, None, &[3]);
    }

    #[test]
    #[should_panic(expected = "acknowledged and not delivered")]
    fn an_acknowledged_message_that_was_lost_is_found() {
        let mut inbox = inbox(Promise::Reliable);
        inbox.acknowledge(1);
        inbox.forget();
    }
}

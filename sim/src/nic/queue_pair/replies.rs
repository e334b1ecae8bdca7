//! Replies of the RPC engine: bytes that the device keeps until the peer has acknowledged them.

use crate::nic::extension::RpcReply;
use crate::transport::{ConnectionRequester, Operation, Request};
use crate::wire::ServiceHeader;
use std::collections::VecDeque;

/// Tokens with this bit name replies; tokens without it name WQEs.
pub(super) const REPLY: u64 = 1 << 63;

/// Replies that may wait for the requester. A peer that calls and acknowledges the replies late would otherwise fill
/// the memory of the device, because a call that is refused gets a reply, too. The number is four times the calls that
/// a NIC runs at a time.
pub(crate) const MOST_REPLIES: usize = 256;

/// Replies of one queue pair.
#[derive(Debug, Default)]
pub(super) struct RpcReplies {
    waiting: VecDeque<RpcReply>,
    sent: VecDeque<Vec<u8>>,
    /// Number of the first reply in `sent`.
    first: u64,
}

impl RpcReplies {
    /// Queues a reply; `false` if there is no room for it.
    pub(super) fn push(&mut self, reply: RpcReply) -> bool {
        let has_room = self.waiting.len() < MOST_REPLIES;
        if has_room {
            self.waiting.push_back(reply);
        }
        has_room
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.first += self.sent.len() as u64;
        self.sent.clear();
    }

    /// Gives replies to the requester while it has room. Returns how many it refused although it had room.
    pub(super) fn submit(&mut self, requester: &mut ConnectionRequester) -> u64 {
        let mut refused = 0;
        while requester.has_room() {
            let Some(RpcReply { address, rkey, bytes, .. }) = self.waiting.pop_front() else { break };
            let request = Request {
                operation: Operation::Write { address, rkey, immediate: None },
                // A reply longer than any message never gets here, see `QueuePair::push_reply`.
                length: bytes.len() as u32,
                token: REPLY | (self.first + self.sent.len() as u64),
                solicited: false,
                fence: false,
                service_header: ServiceHeader::None,
            };
            match requester.submit(request) {
                Ok(()) => self.sent.push_back(bytes),
                Err(_) => refused += 1,
            }
        }
        refused
    }

    /// Copies payload of a reply; `false` if there is no such reply or the range is outside it.
    pub(super) fn gather(&self, token: u64, offset: u32, payload: &mut [u8]) -> bool {
        let at = (token & !REPLY).checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| self.sent.get(at)).and_then(|bytes| bytes.get(offset as usize..));
        match bytes.and_then(|bytes| bytes.get(..payload.len())) {
            Some(bytes) => {
                payload.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Drops the oldest reply that was sent: requests end in the order of their submission.
    pub(super) fn retire(&mut self) {
        if self.sent.pop_front().is_some() {
            self.first += 1;
        }
    }
}

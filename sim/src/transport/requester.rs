//! The requester of a reliable connection.

use super::{
    ConnectionParameters, Placement, QueueFull, Request, RequestCompletion, RequestPacket, RequesterError,
};
use crate::wire::Packet;
use bareverbs_prm::time::Time;

/// What a requester has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequesterCounters {
    /// Packets given to the wire.
    pub packets: u64,
    /// Of these, packets that were on the wire before.
    pub retransmissions: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
    /// NAKs «PSN sequence error» that were obeyed.
    pub sequence_naks: u64,
    /// Missing READ responses or atomic answers that a later answer gave away.
    pub implied_naks: u64,
    /// RNR NAKs that were obeyed.
    pub rnr_naks: u64,
    /// Answers outside the window of what is outstanding.
    pub ghosts: u64,
}

/// The requester of a reliable connection.
#[derive(Debug)]
pub struct Requester {}

#[allow(unused_variables, missing_docs)]
impl Requester {
    /// Messages that a requester holds at most.
    pub const CAPACITY: usize = 1024;

    /// A requester with nothing to do.
    pub fn new(parameters: &ConnectionParameters) -> Self {
        unimplemented!()
    }
    /// Whether [`Self::submit`] has room.
    pub fn has_room(&self) -> bool {
        unimplemented!()
    }
    /// Takes a message. What is wrong with it comes back as its completion.
    pub fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        unimplemented!()
    }
    /// The next packet for the wire.
    pub fn poll_transmit(&mut self, now: Time) -> Option<RequestPacket> {
        unimplemented!()
    }
    /// Whether [`Self::poll_transmit`] would give a packet.
    pub fn has_work(&self) -> bool {
        unimplemented!()
    }
    /// Takes an answer (`opcode.is_response()`); says where its payload belongs. Place it before polling completions;
    /// if that fails call [`Self::fail`] with its token.
    pub fn handle_response(&mut self, now: Time, packet: &Packet<'_>) -> Placement {
        unimplemented!()
    }
    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        unimplemented!()
    }
    /// When to call [`Self::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        unimplemented!()
    }
    /// The next message that has ended, in order of submission. After a failure every other message ends as flushed.
    pub fn poll_completion(&mut self) -> Option<RequestCompletion> {
        unimplemented!()
    }
    /// The owner could not read or write local memory of a message. Earlier messages still end as they end.
    pub fn fail(&mut self, token: u64, error: RequesterError) {
        unimplemented!()
    }
    /// The queue pair left its sending states: nothing is sent any more, every message ends as flushed.
    pub fn flush(&mut self) {
        unimplemented!()
    }
    /// Messages that have not been given back by [`Self::poll_completion`].
    pub fn outstanding(&self) -> usize {
        unimplemented!()
    }
    /// What was counted.
    pub fn counters(&self) -> RequesterCounters {
        unimplemented!()
    }
}

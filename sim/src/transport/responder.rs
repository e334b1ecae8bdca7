//! The responder of a reliable connection.

use super::{ConnectionParameters, ReceiveBuffer, ResponderError, ResponderHost, ResponsePacket};
use crate::wire::Packet;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;

/// What a responder has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponderCounters {
    /// Packets that were carried out.
    pub packets: u64,
    /// Packets that had been carried out before.
    pub duplicates: u64,
    /// Packets that came too early.
    pub out_of_sequence: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
    /// Other NAKs.
    pub naks: u64,
    /// ACKs that were sent.
    pub acks: u64,
    /// ACKs that a later one made needless before they were sent.
    pub merged_acks: u64,
    /// Packets dropped in silence: nonsense duplicates, no room for the answer, connection broken.
    pub dropped: u64,
}

/// The responder of a reliable connection.
#[derive(Debug)]
pub struct Responder<R> {
    range: core::marker::PhantomData<R>,
}

#[allow(unused_variables)]
impl<R: Clone> Responder<R> {
    /// A responder that expects the first packet.
    pub fn new(parameters: &ConnectionParameters) -> Self {
        unimplemented!()
    }
    /// Takes a request (not `opcode.is_response()`).
    pub fn handle_request<H: ResponderHost<Range = R>>(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        unimplemented!()
    }
    /// The next packet for the wire. After a connection error there may still be answers and the NAK to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<ResponsePacket<R>> {
        unimplemented!()
    }
    /// Whether [`Self::poll_transmit`] would give a packet.
    pub fn has_work(&self) -> bool {
        unimplemented!()
    }
    /// The payload of the READ response with number `psn` could not be read: NAK instead, and the connection breaks.
    pub fn fail_read<H: ResponderHost<Range = R>>(&mut self, psn: Psn, error: ResponderError, host: &mut H) {
        unimplemented!()
    }
    /// The queue pair left its receiving states: nothing is taken any more. Gives back the receive that a SEND was
    /// being written to.
    pub fn flush(&mut self) -> Option<ReceiveBuffer> {
        unimplemented!()
    }
    /// What was counted.
    pub fn counters(&self) -> ResponderCounters {
        unimplemented!()
    }
}

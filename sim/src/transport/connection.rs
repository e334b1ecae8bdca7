//! Requester and responder of a connection, reliable or unreliable: the interface for its owner.

use super::host::{ReceiveBuffer, ResponderError, ResponderHost};
use super::parameters::ConnectionParameters;
use super::request::{Placement, QueueFull, Request, RequestCompletion, RequestPacket, RequesterError};
use super::requester::{Requester, RequesterCounters};
use super::responder::{Responder, ResponderCounters};
use super::response::ResponsePacket;
use super::unreliable::{UnreliableRequester, UnreliableResponder};
use crate::wire::Packet;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;

/// The requester. [`Requester`] documents what its methods promise.
///
/// ```
/// use bareverbs_prm::psn::Psn;
/// use bareverbs_sim::transport::ConnectionRequester;
/// # use bareverbs_sim::transport::ConnectionParameters;
/// # let parameters = ConnectionParameters {
/// #     path_mtu: 1024, send_psn: Psn::new(100), receive_psn: Psn::new(200), ack_timeout: 14, ack_timeout_factor: 1,
/// #     retry_count: 7, rnr_retry: 7, min_rnr_timer: 12, max_outstanding_reads: 16, max_remembered_reads: 16,
/// # };
///
/// let [rc, uc] = [true, false].map(|reliable| ConnectionRequester::new(reliable, &parameters));
/// assert!(matches!(rc, ConnectionRequester::Reliable(_)) && matches!(uc, ConnectionRequester::Unreliable(_)));
/// assert_eq!((rc.next_psn(), rc.outstanding()), (Psn::new(100), 0));
/// ```
#[derive(Debug)]
pub enum ConnectionRequester {
    /// Of a reliable connection.
    Reliable(Requester),
    /// Of an unreliable connection.
    Unreliable(UnreliableRequester),
}

/// The responder. [`Responder`] documents what its methods promise.
///
/// ```
/// use bareverbs_prm::psn::Psn;
/// use bareverbs_sim::transport::ConnectionResponder;
/// # use bareverbs_sim::transport::ConnectionParameters;
/// # let parameters = ConnectionParameters {
/// #     path_mtu: 1024, send_psn: Psn::new(100), receive_psn: Psn::new(200), ack_timeout: 14, ack_timeout_factor: 1,
/// #     retry_count: 7, rnr_retry: 7, min_rnr_timer: 12, max_outstanding_reads: 16, max_remembered_reads: 16,
/// # };
///
/// let [rc, uc] = [true, false].map(|reliable| ConnectionResponder::<(u64, u32)>::new(reliable, &parameters));
/// assert!(matches!(rc, ConnectionResponder::Reliable(_)) && matches!(uc, ConnectionResponder::Unreliable(_)));
/// assert_eq!(rc.expected_psn(), Psn::new(200));
/// ```
#[derive(Debug)]
pub enum ConnectionResponder<R> {
    /// Of a reliable connection.
    Reliable(Responder<R>),
    /// Of an unreliable connection.
    Unreliable(UnreliableResponder<R>),
}

macro_rules! both {
    ($side:expr, $end:ident => $call:expr) => {
        match $side {
            Self::Reliable($end) => $call,
            Self::Unreliable($end) => $call,
        }
    };
}

impl ConnectionRequester {
    /// A requester without messages.
    pub fn new(reliable: bool, parameters: &ConnectionParameters) -> Self {
        if reliable {
            Self::Reliable(Requester::new(parameters))
        } else {
            Self::Unreliable(UnreliableRequester::new(parameters))
        }
    }

    /// Whether [`Self::submit`] has room.
    pub fn has_room(&self) -> bool {
        both!(self, requester => requester.has_room())
    }

    /// Messages that [`Self::poll_completion`] has not returned yet.
    pub fn outstanding(&self) -> usize {
        both!(self, requester => requester.outstanding())
    }

    /// Whether every packet of every message was sent.
    pub fn is_all_sent(&self) -> bool {
        match self {
            Self::Reliable(requester) => requester.is_all_sent(),
            Self::Unreliable(requester) => !requester.has_work(),
        }
    }

    /// Whether READs or atomics still wait for their responses.
    pub fn awaits_data(&self) -> bool {
        match self {
            Self::Reliable(requester) => requester.awaits_data(),
            Self::Unreliable(_) => false,
        }
    }

    /// The PSN of the next packet that has never been sent.
    pub fn next_psn(&self) -> Psn {
        both!(self, requester => requester.next_psn())
    }

    /// The counters.
    pub fn counters(&self) -> RequesterCounters {
        both!(self, requester => requester.counters())
    }

    /// Takes a message.
    #[inline]
    pub fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        both!(self, requester => requester.submit(request))
    }

    /// Whether [`Self::poll_transmit`] would return a packet.
    pub fn has_work(&self) -> bool {
        both!(self, requester => requester.has_work())
    }

    /// The next packet for the wire.
    pub fn poll_transmit(&mut self, now: Time) -> Option<RequestPacket> {
        match self {
            Self::Reliable(requester) => requester.poll_transmit(now),
            Self::Unreliable(requester) => requester.poll_transmit(),
        }
    }

    /// Handles a response. An unreliable connection has none.
    pub fn handle_response(&mut self, now: Time, packet: &Packet<'_>) -> Placement {
        match self {
            Self::Reliable(requester) => requester.handle_response(now, packet),
            Self::Unreliable(_) => Placement::None,
        }
    }

    /// Handles the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Self::Reliable(requester) = self {
            requester.handle_timeout(now);
        }
    }

    /// When to call [`Self::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Reliable(requester) => requester.poll_timeout(),
            Self::Unreliable(_) => None,
        }
    }

    /// The next message that has ended, in order of submission.
    // The data path and the firmware both compile a caller. Without the hint, the compiler inlines it in neither.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<RequestCompletion> {
        both!(self, requester => requester.poll_completion())
    }

    /// Fails a message whose local memory the owner could not read or write.
    pub fn fail(&mut self, token: u64, error: RequesterError) {
        both!(self, requester => requester.fail(token, error));
    }

    /// Flushes everything when the queue pair leaves its sending states.
    pub fn flush(&mut self) {
        both!(self, requester => requester.flush());
    }

    /// Starts no further message.
    pub fn drain(&mut self) {
        both!(self, requester => requester.drain());
    }

    /// Whether it drains, and every message that had begun was returned.
    pub fn is_drained(&self) -> bool {
        both!(self, requester => requester.is_drained())
    }

    /// Starts messages again.
    pub fn resume(&mut self) {
        both!(self, requester => requester.resume());
    }

    /// Takes over the timeout, the retry counts and the limit of outstanding READs; an unreliable connection
    /// has none of them.
    pub fn change(&mut self, parameters: &ConnectionParameters) {
        if let Self::Reliable(requester) = self {
            requester.change(parameters);
        }
    }
}

impl<R: Clone> ConnectionResponder<R> {
    /// A responder that expects the first packet.
    pub fn new(reliable: bool, parameters: &ConnectionParameters) -> Self {
        if reliable {
            Self::Reliable(Responder::new(parameters))
        } else {
            Self::Unreliable(UnreliableResponder::new(parameters))
        }
    }

    /// The counters.
    pub fn counters(&self) -> ResponderCounters {
        both!(self, responder => responder.counters())
    }

    /// The expected PSN.
    pub fn expected_psn(&self) -> Psn {
        both!(self, responder => responder.expected_psn())
    }

    /// Changes the timer code of later RNR NAKs; an unreliable connection sends none.
    pub fn set_min_rnr_timer(&mut self, code: u8) {
        if let Self::Reliable(responder) = self {
            responder.set_min_rnr_timer(code);
        }
    }

    /// Changes how many READs and atomics are remembered; an unreliable connection remembers none.
    pub fn set_max_remembered_reads(&mut self, limit: u8) {
        if let Self::Reliable(responder) = self {
            responder.set_max_remembered_reads(limit);
        }
    }

    /// Whether [`Self::poll_transmit`] would return a packet.
    pub fn has_work(&self) -> bool {
        match self {
            Self::Reliable(responder) => responder.has_work(),
            Self::Unreliable(_) => false,
        }
    }

    /// The next response for the wire.
    pub fn poll_transmit(&mut self) -> Option<ResponsePacket<R>> {
        match self {
            Self::Reliable(responder) => responder.poll_transmit(),
            Self::Unreliable(_) => None,
        }
    }

    /// Handles a request.
    pub fn handle_request<H: ResponderHost<Range = R>>(&mut self, packet: &Packet<'_>, host: &mut H) {
        both!(self, responder => responder.handle_request(packet, host));
    }

    /// Handles a READ response whose payload could not be read.
    pub fn fail_read<H: ResponderHost<Range = R>>(&mut self, psn: Psn, error: ResponderError, host: &mut H) {
        if let Self::Reliable(responder) = self {
            responder.fail_read(psn, error, host);
        }
    }

    /// Stops when the queue pair leaves its receiving states. Returns the receive that a message was being
    /// written to.
    pub fn flush(&mut self) -> Option<ReceiveBuffer> {
        both!(self, responder => responder.flush())
    }
}

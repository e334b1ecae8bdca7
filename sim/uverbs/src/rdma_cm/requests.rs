//! Peers' requests: finds their listener, and refuses those without one.

use super::address::{AddressHeader, Place};
use super::call::CmCall;
use super::events::{EventType, Parameters, WaitingEvent};
use super::identifier::{Identifier, Stage, qp_type};
use super::state::WaitingRequest;
use crate::connection_names::Port;
use crate::process::Process;
use alloc::vec::Vec;
use bareverbs_cm::{
    CommunicationId, Extension, IP_ENDS, Kind, Message, Refusal, Service, ServiceReply, reason, request,
    service_request,
};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::{Duration, Time};

/// How long a request waits for a program to listen before it is refused.
///
/// Linux refuses a request when its work queue reaches it, and programs race with that: the server of `ib_send_lat -R`
/// only starts to listen after it has agreed on that with its client over TCP. On separate processors both sides take
/// the same time, and the server has a head start. Here the programs and devices of all hosts may share two processors,
/// so the server may have to wait for its turn. A peer retries only after 4 s, so it does not mistake this for a loss.
const LISTENER_TIMEOUT: Duration = Duration::from_millis(500);
/// Requests that may wait. Further ones are refused at once.
const MOST_WAITING: usize = 256;
/// Status of a SIDR_REP: the service does not exist (IBTA v1.4 §12.11.2.1).
const UNKNOWN_SERVICE: u8 = 1;

/// A peer's request in terms of IP.
struct Asked {
    port: Option<Port>,
    ends: Option<AddressHeader>,
    qp_type: u8,
}

impl Asked {
    fn connection(message: &Message, service: Service) -> Self {
        let qp_type = match service {
            Service::ReliableConnection => qp_type::RELIABLE,
            Service::UnreliableConnection => qp_type::UNRELIABLE,
            Service::Xrc => qp_type::XRC_RECEIVE,
        };
        Self::new(message.get(request::SERVICE_ID), message.private(request::PRIVATE), qp_type)
    }

    fn service(message: &Message) -> Self {
        let private = message.private(service_request::PRIVATE);
        Self::new(message.get(service_request::SERVICE_ID), private, qp_type::DATAGRAM)
    }

    fn new(service_id: u64, private: &[u8], qp_type: u8) -> Self {
        let port = Port::of_service(service_id);
        let ends = port.and_then(|port| AddressHeader::parse(private, port.number));
        Self { port, ends, qp_type }
    }

    /// Whether the request is for this listener, by port, kind and address.
    fn is_for(&self, known: &Identifier) -> bool {
        let Some(ends) = self.ends else { return false };
        let source = known.source.map(|source| source.place());
        let named = source == Some(Place::Any) || source == Some(ends.destination.place());
        let kind = known.qp_type == self.qp_type
            || known.qp_type == qp_type::XRC_SEND && self.qp_type == qp_type::XRC_RECEIVE;
        known.stage == Stage::Listening && known.port == self.port && named && kind
    }
}

impl<P: Process> CmCall<'_, P> {
    /// Handles a peer's request for a connection or a service.
    pub(super) fn on_request(&mut self, id: CommunicationId, message: &Message) {
        let Some(asked) = self.asked(id, message) else { return };
        if self.give_to_listener(id, message, &asked) {
            return;
        }
        if self.may_listen(asked.port) && self.cm.waiting_requests.len() < MOST_WAITING {
            let (message, until) = (message.clone(), self.now + LISTENER_TIMEOUT);
            self.cm.waiting_requests.push_back(WaitingRequest { id, message, until });
        } else {
            self.refuse_request(id, message, asked.port);
        }
    }

    /// Looks for listeners for the waiting requests, and refuses those that have waited until `due`.
    pub(super) fn look_at_requests(&mut self, due: Time) {
        for request in core::mem::take(&mut self.cm.waiting_requests) {
            let WaitingRequest { id, message, until } = &request;
            // The peer may have given up.
            let Some(asked) = self.asked(*id, message) else { continue };
            if self.give_to_listener(*id, message, &asked) {
                continue;
            }
            if *until <= due {
                self.refuse_request(*id, message, asked.port);
            } else {
                self.cm.waiting_requests.push_back(request);
            }
        }
    }

    fn asked(&self, id: CommunicationId, message: &Message) -> Option<Asked> {
        let connection = self.cm.manager.get(id)?;
        Some(match message.kind() {
            Kind::ServiceRequest => Asked::service(message),
            _ => Asked::connection(message, connection.terms.service),
        })
    }

    /// Passes a request to its listener; returns false if there is none.
    fn give_to_listener(&mut self, id: CommunicationId, message: &Message, asked: &Asked) -> bool {
        let found = self.cm.identifiers.iter().find(|(_, known)| asked.is_for(known));
        let Some(listener) = found.map(|(id, _)| *id) else { return false };
        if message.kind() == Kind::ServiceRequest {
            let private = message.private(service_request::PRIVATE);
            let parameters = Parameters::of_service_request(private, IP_ENDS);
            self.ask_program(id, listener, asked, &parameters, Extension::default());
        } else {
            let parameters = Parameters::of_request(message, IP_ENDS);
            if self.ask_program(id, listener, asked, &parameters, Extension::of(message)) {
                self.cm.manager.acknowledge(id);
            }
        }
        true
    }

    /// Refuses a request because nobody listens, if this process is the one to do so for its host.
    fn refuse_request(&mut self, id: CommunicationId, message: &Message, port: Option<Port>) {
        if !self.refuses(port) {
            return self.cm.manager.forget(id);
        }
        // The peer expects nothing else.
        let _ = if message.kind() == Kind::ServiceRequest {
            let qpn = Qpn::from_low_bits(0);
            let response = ServiceReply { status: UNKNOWN_SERVICE, qpn, q_key: 0, private: Vec::new() };
            self.cm.manager.answer_service(id, &response)
        } else {
            let refusal = Refusal { reason: reason::INVALID_SERVICE_ID, private: Vec::new() };
            self.cm.manager.reject(id, &refusal)
        };
    }

    /// Creates an identifier for a request and notifies the listener's program. If there is no room, the peer
    /// tries again.
    fn ask_program(
        &mut self,
        id: CommunicationId,
        listener: u32,
        asked: &Asked,
        parameters: &Parameters,
        extension: Extension,
    ) -> bool {
        let made = self.request_identifier(id, listener, asked);
        let Some((new, known)) = made.and_then(|known| Some((self.new_number().ok()?, known))) else {
            self.cm.manager.forget(id);
            return false;
        };
        let Some(listening) = self.cm.identifiers.get(&listener) else { return false };
        let kind = EventType::ConnectRequest;
        let mut event = WaitingEvent::new(listener, listening, kind, 0, parameters).extended(extension);
        (event.response.id, event.new) = (new, Some(new));
        self.cm.owners.insert(id, new);
        self.cm.identifiers.insert(new, known);
        self.tell(event);
        true
    }

    /// The identifier for a request; `None` if the listener's backlog is full.
    fn request_identifier(&self, id: CommunicationId, listener: u32, asked: &Asked) -> Option<Identifier> {
        let listening = self.cm.identifiers.get(&listener)?;
        let waiting = self.cm.files.get(&listening.file)?;
        let unread = waiting.iter().filter(|event| event.counted == listener && event.new.is_some()).count();
        let path = self.cm.manager.get(id)?.path;
        if unread >= listening.backlog {
            return None;
        }
        let ends = asked.ends?;
        Some(Identifier {
            stage: Stage::Connecting,
            source: Some(ends.destination),
            destination: Some(ends.source),
            path: Some(path),
            communication: Some(id),
            traffic_class: listening.traffic_class,
            ..Identifier::new(listening.file, 0, listening.space, listening.qp_type)
        })
    }
}

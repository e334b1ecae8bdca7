//! What happens to connections, told to programs.

use super::address::{ADDRESS_HEADER, AddressHeader, Place};
use super::call::CmCall;
use super::events::{EventType, Parameters, WaitingEvent, route};
use super::identifier::{Identifier, Stage, qp_type};
use crate::Errno;
use crate::cm::{
    CommunicationId, Event, Extension, Message, News, Refusal, Service, ServiceAnswer, reason, reject,
    request, service_reply, service_request,
};
use crate::connection_names::Port;
use crate::process::Process;
use alloc::vec::Vec;
use bareverbs_prm::ids::Qpn;

/// Status of a SIDR_REP: the service does not exist (IBTA v1.4 §12.11.2.1).
const UNKNOWN_SERVICE: u8 = 1;

/// A request of a peer, in the terms of IP.
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

    /// Whether a listener is meant: by port, kind and address.
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
    /// Tells programs what has happened to their connections.
    pub(super) fn tell_news(&mut self) {
        while let Some(event) = self.cm.manager.poll_event() {
            self.tell_one(event);
        }
    }

    fn tell_one(&mut self, Event { id, news }: Event) {
        match news {
            News::Requested(message) => return self.on_request(id, &message),
            News::ServiceRequested(message) => return self.on_service_request(id, &message),
            News::Replied(_) => self.cm.manager.acknowledge(id),
            _ => {}
        }
        let Some(&owner) = self.cm.owners.get(&id) else { return };
        if matches!(
            news,
            News::Rejected(_) | News::Unreachable | News::TimeWaitOver | News::ServiceResolved(_)
        ) {
            // The connection is gone.
            self.cm.owners.remove(&id);
        }
        let Some(known) = self.cm.identifiers.get(&owner) else { return };
        // A program that has not accepted knows nothing of this identifier.
        if known.uid == 0 {
            return;
        }
        let event = self.event(owner, known, &news);
        self.tell(event);
    }

    fn event(&self, id: u32, known: &Identifier, news: &News) -> WaitingEvent {
        let late = -Errno::TimedOut.raw();
        let event = |kind, status, parameters| WaitingEvent::new(id, known, kind, status, &parameters);
        match news {
            News::Replied(message) => event(EventType::ConnectResponse, 0, Parameters::of_reply(message))
                .extended(Extension::of(message)),
            News::Established => event(EventType::Established, 0, Parameters::None),
            News::Rejected(message) => {
                let reason = message.get32(reject::REASON).cast_signed();
                event(EventType::Rejected, reason, Parameters::of_reject(message))
            }
            News::Disconnected { timed_out } => {
                event(EventType::Disconnected, if *timed_out { late } else { 0 }, Parameters::None)
            }
            News::TimeWaitOver => event(EventType::TimeWaitExit, 0, Parameters::None),
            News::ServiceResolved(message) => self.resolved(id, known, message),
            // Requests are told elsewhere, and what is left is that nobody answers.
            News::Unreachable | News::Requested(_) | News::ServiceRequested(_) => {
                event(EventType::Unreachable, late, Parameters::None)
            }
        }
    }

    fn resolved(&self, id: u32, known: &Identifier, message: &Message) -> WaitingEvent {
        let status = i32::from(message.get8(service_reply::STATUS));
        if status != 0 {
            return WaitingEvent::new(id, known, EventType::Unreachable, status, &Parameters::None);
        }
        let way = known.path.map(|path| route(path, &self.cm.facts.gids, known.traffic_class));
        let parameters = way.map_or(Parameters::None, |way| Parameters::of_service_reply(message, way));
        WaitingEvent::new(id, known, EventType::Established, 0, &parameters)
    }

    /// The listener that a request is for.
    fn find_listener(&self, asked: &Asked) -> Option<u32> {
        self.cm.identifiers.iter().find(|(_, known)| asked.is_for(known)).map(|(id, _)| *id)
    }

    fn on_request(&mut self, id: CommunicationId, message: &Message) {
        let Some(service) = self.cm.manager.get(id).map(|connection| connection.terms.service) else {
            return;
        };
        let asked = Asked::connection(message, service);
        let Some(listener) = self.find_listener(&asked) else {
            if self.refuses(asked.port) {
                let refusal = Refusal { reason: reason::INVALID_SERVICE_ID, private: Vec::new() };
                // It waits for nothing else.
                let _ = self.cm.manager.reject(id, &refusal);
            } else {
                self.cm.manager.forget(id);
            }
            return;
        };
        let parameters = Parameters::of_request(message, ADDRESS_HEADER);
        if self.ask_program(id, listener, &asked, &parameters, Extension::of(message)) {
            self.cm.manager.acknowledge(id);
        }
    }

    fn on_service_request(&mut self, id: CommunicationId, message: &Message) {
        let asked = Asked::service(message);
        let Some(listener) = self.find_listener(&asked) else {
            if self.refuses(asked.port) {
                let qpn = Qpn::from_low_bits(0);
                let answer = ServiceAnswer { status: UNKNOWN_SERVICE, qpn, q_key: 0, private: Vec::new() };
                let _ = self.cm.manager.answer_service(id, &answer);
            } else {
                self.cm.manager.forget(id);
            }
            return;
        };
        let private = message.private(service_request::PRIVATE);
        let parameters = Parameters::of_service_request(private, ADDRESS_HEADER);
        self.ask_program(id, listener, &asked, &parameters, Extension::default());
    }

    /// Makes an identifier for a request and tells the listener's program. Without room the peer asks again.
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

    /// The identifier of a request; `None` if the listener's backlog is full.
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

//! The connection manager: requests of the program, and timeouts.

use super::compose::{begin, no_terms, request_message, set_extension};
use super::connection::{
    CommunicationId, Connection, ConnectionState, Path, Repetition, Role, Terms, time_of,
};
use super::message::{
    Kind, Message, RECEIVER_ID, SENDER_ID, disconnect, of_message, receipt, reject, reply, service_reply,
    service_request,
};
use super::parameters::{Acceptance, Offer, Refusal, ServiceOffer, ServiceReply};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;

/// Most connections and resolutions of one process at a time, half-open ones included.
const MOST: usize = 1 << 14;
/// Service timeout code of an MRA, as Linux sets it (`CMA_CM_MRA_SETTING`).
const RECEIPT_TIMEOUT: u8 = 24;
/// Failover is not supported (IBTA v1.4 §12.6.8.9).
const NO_FAILOVER: u8 = 1;
/// Status of a SIDR_REP that rejects the service (IBTA v1.4 §12.11.2.1).
const SERVICE_REJECTED: u8 = 2;

/// Reasons of a REJ (IBTA v1.4 §12.6.7.2).
pub mod reason {
    /// No resources.
    pub const NO_RESOURCES: u16 = 3;
    /// The active side has given up.
    pub const TIMEOUT: u16 = 4;
    /// No service with this ID.
    pub const INVALID_SERVICE_ID: u16 = 8;
    /// The queue pair already belongs to a live connection.
    pub const STALE_CONNECTION: u16 = 10;
    /// The program rejected the request.
    pub const CONSUMER: u16 = 28;
}

/// An event on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The connection.
    pub id: CommunicationId,
    /// What happened.
    pub news: News,
}

/// What an [`Event`] reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A peer sent a REQ. Answer with [`Manager::accept`], [`Manager::reject`] or [`Manager::forget`].
    Requested(Message),
    /// The peer sent a REP. Answer with [`Manager::ready`].
    Replied(Message),
    /// The peer sent its RTU: the connection is established.
    Established,
    /// The peer sent a REJ. The connection is gone.
    Rejected(Message),
    /// The peer did not answer. The connection is gone.
    Unreachable,
    /// The peer has disconnected, or has confirmed our disconnect. It may be waiting for [`Manager::disconnect`].
    Disconnected {
        /// Whether the peer did not answer our DREQ.
        timed_out: bool,
    },
    /// The time-wait state is over: no packet of the connection is in flight. The connection is gone.
    TimeWaitOver,
    /// A peer sent a SIDR_REQ. Answer with [`Manager::answer_service`] or [`Manager::forget`].
    ServiceRequested(Message),
    /// The peer answered our SIDR_REQ.
    ServiceResolved(Message),
}

/// The call does not fit the state of the connection, or the connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongState;

/// Our side of all connections of one process. The crate's documentation has an overview.
#[derive(Debug)]
pub struct Manager {
    guid: u64,
    /// GUIDs of the host's other ports, by GID. Each port is a device of its own.
    further_guids: BTreeMap<Gid, u64>,
    /// The process number: the upper 8 bits of its communication IDs.
    pub(super) process: u8,
    next: u32,
    random: u64,
    pub(super) connections: BTreeMap<CommunicationId, Connection>,
    /// When which connections have something due. The owner asks for the next deadline after each of its inputs.
    pub(super) deadlines: BTreeSet<(Time, CommunicationId)>,
    pub(super) outgoing: VecDeque<(Path, Message)>,
    pub(super) events: VecDeque<Event>,
}

impl Manager {
    /// A manager for the device with this GUID and for this process of its host. `seed` determines the first connection
    /// number and the starting PSNs, so that peers do not mistake this process for an earlier one.
    pub fn new(guid: u64, process: u8, seed: u64) -> Self {
        let (connections, outgoing, events) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        let (further_guids, deadlines) = (BTreeMap::new(), BTreeSet::new());
        let mut manager = Self {
            guid,
            further_guids,
            process,
            next: 0,
            random: seed,
            connections,
            deadlines,
            outgoing,
            events,
        };
        manager.next = manager.next_random() as u32 & 0xff_ffff;
        manager
    }

    /// Adds a port with these GIDs that belongs to another device. Peers distinguish queue pairs of two devices by the
    /// devices' GUIDs.
    pub fn add_port(&mut self, guid: u64, gids: &[Gid]) {
        self.further_guids.extend(gids.iter().map(|gid| (*gid, guid)));
    }

    /// GUID of the device at our end of a path.
    fn guid_of(&self, path: Path) -> u64 {
        self.further_guids.get(&path.local).copied().unwrap_or(self.guid)
    }

    /// Returns a live connection.
    pub fn get(&self, id: CommunicationId) -> Option<&Connection> {
        self.connections.get(&id)
    }

    /// Whether a message is waiting to be sent.
    pub fn has_message(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns the next message to send.
    pub fn poll_message(&mut self) -> Option<(Path, Message)> {
        self.outgoing.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] must be called next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Lists the deadline of a connection whose repetition or time wait has changed.
    pub(super) fn list_deadline(&mut self, id: CommunicationId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let deadline = connection.deadline();
        if let Some(before) = core::mem::replace(&mut connection.listed, deadline) {
            self.deadlines.remove(&(before, id));
        }
        self.deadlines.extend(deadline.map(|deadline| (deadline, id)));
    }

    /// An unused communication ID; `None` if there are too many connections.
    pub(super) fn new_id(&mut self) -> Option<CommunicationId> {
        if self.connections.len() >= MOST {
            return None;
        }
        loop {
            self.next = self.next.wrapping_add(1) & 0xff_ffff;
            let id = CommunicationId(u32::from(self.process) << 24 | self.next);
            if self.next != 0 && !self.connections.contains_key(&id) {
                return Some(id);
            }
        }
    }

    /// SplitMix64: the next pseudo-random number.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 31
    }

    /// A starting PSN for one direction of a new connection.
    pub(super) fn new_psn(&mut self) -> Psn {
        Psn::new(self.next_random() as u32 & 0xff_ffff)
    }

    /// A new transaction ID.
    fn new_transaction(&mut self, id: CommunicationId) -> u64 {
        u64::from(id.0) << 32 | self.next_random() & 0xffff_ffff
    }

    pub(super) fn tell(&mut self, id: CommunicationId, news: News) {
        if self.connections.get(&id).is_none_or(|connection| !connection.is_orphan) {
            self.events.push_back(Event { id, news });
        }
    }

    /// Sends a REQ; `None` if there are too many connections.
    pub fn connect(&mut self, now: Time, offer: &Offer) -> Option<CommunicationId> {
        let id = self.new_id()?;
        let transaction = self.new_transaction(id);
        let terms = Terms {
            service: offer.service,
            local_qpn: offer.qpn,
            remote_qpn: Qpn::from_low_bits(0),
            send_psn: Psn::new(0),
            receive_psn: offer.psn.unwrap_or_else(|| self.new_psn()),
            responder_resources: offer.responder_resources,
            initiator_depth: offer.initiator_depth,
            retry_count: offer.retry_count,
            rnr_retry: offer.rnr_retry,
            ack_timeout: offer.ack_timeout,
            path_mtu: offer.path_mtu,
            traffic_class: offer.traffic_class,
        };
        let guid = self.guid_of(offer.path);
        let message = request_message(guid, id, transaction, offer, &terms);
        let connection = begin(Role::Active, ConnectionState::RequestSent, offer.path, transaction, terms);
        self.connections.insert(id, connection);
        self.ask(now, id, message);
        Some(id)
    }

    /// Sends a message and resends it until it is answered.
    fn ask(&mut self, now: Time, id: CommunicationId, message: Message) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pause = connection.response_time;
        self.outgoing.push_back((connection.path, message.clone()));
        connection.repetition =
            Some(Repetition { message, at: now + pause, left: connection.retries, pause });
        self.list_deadline(id);
    }

    /// Sends a message and keeps it, to resend it when the peer repeats its message.
    fn send_and_keep(&mut self, id: CommunicationId, message: Message) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        self.outgoing.push_back((connection.path, message.clone()));
        connection.last_message = Some(message);
    }

    /// A message about a connection that carries both communication IDs.
    pub(super) fn message(id: CommunicationId, connection: &Connection, kind: Kind) -> Message {
        let mut message = Message::new(kind, connection.transaction);
        message.set(SENDER_ID, id.0).set(RECEIVER_ID, connection.remote_id);
        message
    }

    /// Sends an MRA: our answer will take a while, so the peer should wait longer (IBTA v1.4 §12.6.6).
    pub fn acknowledge(&mut self, id: CommunicationId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let about = match connection.state {
            ConnectionState::RequestReceived => of_message::REQUEST,
            ConnectionState::ReplyReceived => of_message::REPLY,
            _ => return,
        };
        let mut message = Self::message(id, connection, Kind::Receipt);
        message.set(receipt::MESSAGE, about).set(receipt::SERVICE_TIMEOUT, RECEIPT_TIMEOUT);
        self.send_and_keep(id, message);
    }

    /// Sends a REP.
    pub fn accept(
        &mut self,
        now: Time,
        id: CommunicationId,
        acceptance: &Acceptance,
    ) -> Result<(), WrongState> {
        let connection = self.expect(id, ConnectionState::RequestReceived)?;
        let terms = &mut connection.terms;
        terms.local_qpn = acceptance.qpn;
        terms.receive_psn = acceptance.psn.unwrap_or(terms.receive_psn);
        (terms.responder_resources, terms.initiator_depth) =
            (acceptance.responder_resources, acceptance.initiator_depth);
        connection.state = ConnectionState::ReplySent;
        let (terms, path) = (*terms, connection.path);
        let mut message = Self::message(id, connection, Kind::Reply);
        message.set(reply::LOCAL_QPN, acceptance.qpn.value());
        message.set(reply::STARTING_PSN, terms.receive_psn.value());
        message.set(reply::RESPONDER_RESOURCES, terms.responder_resources);
        message.set(reply::INITIATOR_DEPTH, terms.initiator_depth).set(reply::FAILOVER, NO_FAILOVER);
        message.set(reply::FLOW_CONTROL, acceptance.flow_control).set(reply::RNR_RETRY, acceptance.rnr_retry);
        message.set(reply::SHARED_RECEIVES, acceptance.shared_receives);
        message.set_private(reply::PRIVATE, &acceptance.private);
        set_extension(&mut message, acceptance.extension);
        message.set(reply::LOCAL_GUID, self.guid_of(path));
        self.ask(now, id, message);
        Ok(())
    }

    fn expect(&mut self, id: CommunicationId, state: ConnectionState) -> Result<&mut Connection, WrongState> {
        self.connections.get_mut(&id).filter(|connection| connection.state == state).ok_or(WrongState)
    }

    /// Sends an RTU: the active side is ready.
    pub fn ready(&mut self, id: CommunicationId) -> Result<(), WrongState> {
        let connection = self.expect(id, ConnectionState::ReplyReceived)?;
        connection.state = ConnectionState::Established;
        let message = Self::message(id, connection, Kind::ReadyToUse);
        self.send_and_keep(id, message);
        Ok(())
    }

    /// Data has arrived before the RTU: the connection is established (IBTA v1.4 §12.9.7.1).
    pub fn establish(&mut self, id: CommunicationId) -> Result<(), WrongState> {
        let connection = self.expect(id, ConnectionState::ReplySent)?;
        (connection.state, connection.repetition) = (ConnectionState::Established, None);
        self.list_deadline(id);
        self.tell(id, News::Established);
        Ok(())
    }

    /// Sends a REJ and removes the connection.
    pub fn reject(&mut self, id: CommunicationId, refusal: &Refusal) -> Result<(), WrongState> {
        let connection = self.connections.get(&id).ok_or(WrongState)?;
        let about = match connection.state {
            ConnectionState::RequestReceived => of_message::REQUEST,
            ConnectionState::ReplyReceived => of_message::REPLY,
            ConnectionState::RequestSent | ConnectionState::ReplySent => of_message::NONE,
            _ => return Err(WrongState),
        };
        let mut message = Self::message(id, connection, Kind::Reject);
        message.set(reject::MESSAGE, about).set(reject::REASON, refusal.reason);
        message.set_private(reject::PRIVATE, &refusal.private);
        if refusal.reason == reason::TIMEOUT {
            let guid = self.guid_of(connection.path);
            message.set(reject::INFO_LENGTH, size_of::<u64>() as u8).set(reject::INFO_GUID, guid);
        }
        self.outgoing.push_back((connection.path, message));
        self.forget(id);
        Ok(())
    }

    /// Ends an established connection with a DREQ, or answers the peer's DREQ with a DREP.
    pub fn disconnect(&mut self, now: Time, id: CommunicationId) -> Result<(), WrongState> {
        let transaction = self.new_transaction(id);
        let connection = self.connections.get_mut(&id).ok_or(WrongState)?;
        match connection.state {
            ConnectionState::Established => {
                (connection.state, connection.transaction) = (ConnectionState::DisconnectSent, transaction);
                let mut message = Self::message(id, connection, Kind::DisconnectRequest);
                message.set(disconnect::REMOTE_QPN, connection.terms.remote_qpn.value());
                self.ask(now, id, message);
            }
            ConnectionState::DisconnectReceived => {
                let message = Self::message(id, connection, Kind::DisconnectReply);
                self.send_and_keep(id, message);
                self.wait_out(now, id);
            }
            _ => return Err(WrongState),
        }
        Ok(())
    }

    /// Enters time wait: nothing is sent while packets of the connection may be in flight (IBTA v1.4 §12.9.8.4).
    pub(super) fn wait_out(&mut self, now: Time, id: CommunicationId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            (connection.state, connection.repetition) = (ConnectionState::TimeWait, None);
            connection.time_wait = Some(now + time_of(connection.terms.ack_timeout));
        }
        self.list_deadline(id);
    }

    /// The program has destroyed its end: tells the peer, and reports no more events.
    pub fn destroy(&mut self, now: Time, id: CommunicationId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.is_orphan = true;
        let refusal = |reason| Refusal { reason, private: Vec::new() };
        let told = match connection.state {
            ConnectionState::RequestSent => self.reject(id, &refusal(reason::TIMEOUT)),
            ConnectionState::RequestReceived
            | ConnectionState::ReplySent
            | ConnectionState::ReplyReceived => self.reject(id, &refusal(reason::CONSUMER)),
            // The DREQ is sent once: nobody is left to wait for its answer.
            ConnectionState::Established => self.disconnect(now, id).map(|()| self.wait_out(now, id)),
            ConnectionState::DisconnectReceived => self.disconnect(now, id),
            ConnectionState::DisconnectSent => {
                self.wait_out(now, id);
                Ok(())
            }
            ConnectionState::TimeWait => Ok(()),
            ConnectionState::ServiceRequestSent => Err(WrongState),
            ConnectionState::ServiceRequestReceived => {
                let refused = ServiceReply {
                    status: SERVICE_REJECTED,
                    qpn: Qpn::from_low_bits(0),
                    q_key: 0,
                    private: Vec::new(),
                };
                self.answer_service(id, &refused)
            }
        };
        if told.is_err() {
            self.forget(id);
        }
    }

    /// Removes a connection without sending anything: another process of the host answers the request, or there is no
    /// room for it. In the latter case the peer will ask again.
    pub fn forget(&mut self, id: CommunicationId) {
        let listed = self.connections.remove(&id).and_then(|connection| connection.listed);
        if let Some(deadline) = listed {
            self.deadlines.remove(&(deadline, id));
        }
    }

    /// Sends a SIDR_REQ; `None` if there are too many connections.
    pub fn resolve_service(&mut self, now: Time, offer: &ServiceOffer) -> Option<CommunicationId> {
        let id = self.new_id()?;
        let transaction = self.new_transaction(id);
        let mut message = Message::new(Kind::ServiceRequest, transaction);
        message.set(service_request::REQUEST_ID, id.0);
        message.set(service_request::PARTITION_KEY, offer.path.partition_key());
        message.set(service_request::SERVICE_ID, offer.service_id);
        message.set_private(service_request::PRIVATE, &offer.private);
        let connection =
            begin(Role::Active, ConnectionState::ServiceRequestSent, offer.path, transaction, no_terms());
        self.connections.insert(id, connection);
        self.ask(now, id, message);
        Some(id)
    }

    /// Sends a SIDR_REP and removes the resolution.
    pub fn answer_service(&mut self, id: CommunicationId, reply: &ServiceReply) -> Result<(), WrongState> {
        let connection = self.expect(id, ConnectionState::ServiceRequestReceived)?;
        let mut message = Message::new(Kind::ServiceReply, connection.transaction);
        message.set(service_reply::REQUEST_ID, connection.remote_id);
        message.set(service_reply::SERVICE_ID, connection.service_id);
        message.set(service_reply::STATUS, reply.status).set(service_reply::QPN, reply.qpn.value());
        message.set(service_reply::Q_KEY, reply.q_key);
        message.set_private(service_reply::PRIVATE, &reply.private);
        let path = connection.path;
        self.outgoing.push_back((path, message));
        self.forget(id);
        Ok(())
    }

    /// Handles everything that is due: resends unanswered messages, gives up, ends time waits.
    pub fn handle_timeout(&mut self, now: Time) {
        let due = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        let mut due: Vec<CommunicationId> = due.map(|(_, id)| *id).collect();
        // Late or not, they have their turns in the order of their numbers.
        due.sort_unstable();
        for id in due {
            self.time_out(now, id);
        }
    }

    fn time_out(&mut self, now: Time, id: CommunicationId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.time_wait.is_some_and(|end| end <= now) {
            self.tell(id, News::TimeWaitOver);
            return self.forget(id);
        }
        let Some(repetition) = connection.repetition.as_mut().filter(|repetition| repetition.at <= now)
        else {
            return;
        };
        if repetition.left > 0 {
            (repetition.left, repetition.at) = (repetition.left - 1, now + repetition.pause);
            let message = repetition.message.clone();
            self.outgoing.push_back((connection.path, message));
            self.list_deadline(id);
        } else if connection.state == ConnectionState::DisconnectSent {
            self.tell(id, News::Disconnected { timed_out: true });
            self.wait_out(now, id);
        } else {
            self.tell(id, News::Unreachable);
            self.forget(id);
        }
    }
}

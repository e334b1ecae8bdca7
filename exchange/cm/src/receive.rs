//! Messages received from peers.

use super::compose::requested;
use super::connection::{CommunicationId, Connection, ConnectionState, Path, Role, time_of};
use super::manager::{Manager, News, reason};
use super::message::{
    Kind, Message, RECEIVER_ID, SENDER_ID, disconnect, of_message, receipt, reject, reply, service_reply,
};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;

impl Manager {
    /// Handles a message. A message for another process of the host, or one that fits no connection, changes nothing.
    pub fn handle(&mut self, now: Time, path: Path, message: &Message) {
        match message.kind() {
            Kind::Request => self.on_request(now, path, message),
            Kind::ServiceRequest => self.on_service_request(path, message),
            Kind::ServiceReply => self.on_service_reply(message),
            Kind::Receipt => self.on_receipt(now, message),
            Kind::Reject => self.on_reject(message),
            Kind::Reply => self.on_reply(now, message),
            Kind::ReadyToUse => self.on_ready(message),
            Kind::DisconnectRequest => self.on_disconnect_request(path, message),
            Kind::DisconnectReply => self.on_disconnect_reply(now, message),
            Kind::Other(_) => {}
        }
    }

    /// Finds the connection that a message names by both communication IDs.
    fn named(&mut self, message: &Message) -> Option<(CommunicationId, &mut Connection)> {
        let (id, theirs) = (CommunicationId(message.get32(RECEIVER_ID)), message.get32(SENDER_ID));
        let connection = self.connections.get_mut(&id)?;
        (connection.remote_id == theirs).then_some((id, connection))
    }

    /// Finds the connection whose REQ a message answers. The peer's ID is not known yet.
    fn asking(&mut self, message: &Message) -> Option<(CommunicationId, &mut Connection)> {
        let id = CommunicationId(message.get32(RECEIVER_ID));
        let connection = self.connections.get_mut(&id)?;
        (connection.state == ConnectionState::RequestSent).then_some((id, connection))
    }

    fn on_request(&mut self, now: Time, path: Path, message: &Message) {
        let connection = requested(path, message);
        let same = |known: &Connection| {
            known.role == Role::Passive
                && known.remote_id == connection.remote_id
                && known.first_transaction == connection.first_transaction
                && known.remote_guid == connection.remote_guid
        };
        if let Some(known) = self.connections.values().find(|known| same(known)) {
            return self.resend_last_message(&known.clone());
        }
        let Some(id) = self.new_id() else {
            return self.refuse(CommunicationId(0), &connection, reason::NO_RESOURCES);
        };
        if let Some(stale) = self.find_stale(&connection) {
            self.refuse(CommunicationId(0), &connection, reason::STALE_CONNECTION);
            // The peer has forgotten that connection, so it ends here too (IBTA v1.4 §12.4.1). It may already be
            // disconnecting.
            let _ = self.disconnect(now, stale);
            return;
        }
        // Libraries bring up their queue pair before they accept, so the PSN of the REP is chosen now.
        let mut connection = connection;
        connection.terms.receive_psn = self.new_psn();
        self.connections.insert(id, connection);
        self.tell(id, News::Requested(message.clone()));
    }

    /// Resends the message that the peer has not received.
    fn resend_last_message(&mut self, known: &Connection) {
        let message = match known.state {
            ConnectionState::RequestReceived => known.last_message.clone(),
            ConnectionState::ReplySent => {
                known.repetition.as_ref().map(|repetition| repetition.message.clone())
            }
            _ => None,
        };
        self.outgoing.extend(message.map(|message| (known.path, message)));
    }

    /// Finds a live connection to the peer's queue pair that a new REQ names: the peer no longer knows that connection.
    fn find_stale(&self, new: &Connection) -> Option<CommunicationId> {
        let lives = |state| {
            !matches!(
                state,
                ConnectionState::TimeWait
                    | ConnectionState::RequestSent
                    | ConnectionState::ServiceRequestSent
            )
        };
        let same = |known: &Connection| {
            lives(known.state)
                && known.remote_guid == new.remote_guid
                && known.terms.remote_qpn == new.terms.remote_qpn
                && known.terms.remote_qpn.value() != 0
        };
        self.connections.iter().find(|(_, known)| same(known)).map(|(id, _)| *id)
    }

    /// Sends a REJ for a REQ or REP that led to no connection.
    fn refuse(&mut self, id: CommunicationId, connection: &Connection, reason: u16) {
        let mut message = Self::message(id, connection, Kind::Reject);
        let about = if connection.role == Role::Passive { of_message::REQUEST } else { of_message::REPLY };
        message.set(reject::MESSAGE, about).set(reject::REASON, reason);
        self.outgoing.push_back((connection.path, message));
    }

    fn on_service_request(&mut self, path: Path, message: &Message) {
        let connection = requested(path, message);
        let same = |known: &Connection| {
            known.state == ConnectionState::ServiceRequestReceived
                && (known.remote_id, known.path) == (connection.remote_id, path)
        };
        if self.connections.values().any(same) {
            return;
        }
        // Without room we stay silent, and the peer asks again.
        let Some(id) = self.new_id() else { return };
        self.connections.insert(id, connection);
        self.tell(id, News::ServiceRequested(message.clone()));
    }

    fn on_service_reply(&mut self, message: &Message) {
        let id = CommunicationId(message.get32(service_reply::REQUEST_ID));
        if self.connections.get(&id).is_some_and(|known| known.state == ConnectionState::ServiceRequestSent) {
            self.tell(id, News::ServiceResolved(message.clone()));
            self.forget(id);
        }
    }

    /// An MRA: the peer needs more time, so we wait longer. It is not an answer.
    fn on_receipt(&mut self, now: Time, message: &Message) {
        let found = match message.get(receipt::MESSAGE) {
            of_message::REQUEST => self.asking(message),
            of_message::REPLY => {
                self.named(message).filter(|(_, known)| known.state == ConnectionState::ReplySent)
            }
            _ => None,
        };
        let Some((id, connection)) = found else { return };
        let pause = time_of(message.get8(receipt::SERVICE_TIMEOUT)) + connection.response_time;
        if let Some(repetition) = &mut connection.repetition {
            (repetition.pause, repetition.at) = (pause, now + pause);
        }
        self.list_deadline(id);
    }

    fn on_reject(&mut self, message: &Message) {
        let found = if message.get(reject::REASON) == u64::from(reason::TIMEOUT) {
            self.given_up(message)
        } else if message.get(reject::MESSAGE) == of_message::REQUEST {
            self.asking(message).map(|(id, _)| id)
        } else {
            self.named(message).map(|(id, _)| id)
        };
        let Some(id) = found else { return };
        if self.connections.get(&id).is_some_and(|known| known.state != ConnectionState::TimeWait) {
            self.tell(id, News::Rejected(message.clone()));
            self.forget(id);
        }
    }

    /// Finds the connection whose active side gave up before it knew our communication ID.
    fn given_up(&self, message: &Message) -> Option<CommunicationId> {
        let theirs = (message.get(reject::INFO_GUID), message.get32(SENDER_ID));
        let same = |known: &Connection| (known.remote_guid, known.remote_id) == theirs;
        self.connections.iter().find(|(_, known)| same(known)).map(|(id, _)| *id)
    }

    fn on_reply(&mut self, now: Time, message: &Message) {
        let Some((id, connection)) = self.asking(message) else {
            return self.on_repeated_reply(message);
        };
        let terms = &mut connection.terms;
        terms.remote_qpn = Qpn::from_low_bits(message.get32(reply::LOCAL_QPN));
        terms.send_psn = Psn::new(message.get32(reply::STARTING_PSN));
        terms.responder_resources = message.get8(reply::INITIATOR_DEPTH);
        terms.initiator_depth = message.get8(reply::RESPONDER_RESOURCES);
        terms.rnr_retry = message.get8(reply::RNR_RETRY);
        connection.remote_id = message.get32(SENDER_ID);
        connection.remote_guid = message.get(reply::LOCAL_GUID);
        let seen = connection.clone();
        if let Some(stale) = self.find_stale(&seen) {
            self.refuse(id, &seen, reason::STALE_CONNECTION);
            let _ = self.disconnect(now, stale);
            self.tell(id, News::Unreachable);
            return self.forget(id);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            (connection.state, connection.repetition) = (ConnectionState::ReplyReceived, None);
        }
        self.list_deadline(id);
        self.tell(id, News::Replied(message.clone()));
    }

    /// Handles a repeated REP: the peer missed our MRA or RTU, or waits for the RTU of a connection that is gone.
    fn on_repeated_reply(&mut self, message: &Message) {
        let Some((_, connection)) = self.named(message) else { return };
        if let ConnectionState::ReplyReceived | ConnectionState::Established = connection.state {
            let again = connection.last_message.clone().map(|message| (connection.path, message));
            self.outgoing.extend(again);
        }
    }

    fn on_ready(&mut self, message: &Message) {
        if let Some((id, _)) = self.named(message) {
            // An already established connection does not change.
            let _ = self.establish(id);
        }
    }

    /// Answers a DREQ for an unknown connection, so that the peer can finish. Only the process that owned the
    /// connection answers.
    fn on_disconnect_request(&mut self, path: Path, message: &Message) {
        let ours = (message.get32(RECEIVER_ID) >> 24) as u8 == self.process;
        let Some((id, connection)) = self.named(message) else {
            if ours {
                let mut reply = Message::new(Kind::DisconnectReply, message.transaction());
                reply.set(SENDER_ID, message.get(RECEIVER_ID)).set(RECEIVER_ID, message.get(SENDER_ID));
                self.outgoing.push_back((path, reply));
            }
            return;
        };
        if u64::from(connection.terms.local_qpn.value()) != message.get(disconnect::REMOTE_QPN) {
            return;
        }
        match connection.state {
            ConnectionState::Established
            | ConnectionState::ReplySent
            | ConnectionState::ReplyReceived
            | ConnectionState::DisconnectSent => {
                (connection.state, connection.repetition) = (ConnectionState::DisconnectReceived, None);
                connection.transaction = message.transaction();
                self.list_deadline(id);
                self.tell(id, News::Disconnected { timed_out: false });
            }
            ConnectionState::TimeWait => {
                connection.transaction = message.transaction();
                let path = connection.path;
                let reply = Self::message(id, connection, Kind::DisconnectReply);
                self.outgoing.push_back((path, reply));
            }
            _ => {}
        }
    }

    fn on_disconnect_reply(&mut self, now: Time, message: &Message) {
        if let Some((id, connection)) = self.named(message)
            && connection.state == ConnectionState::DisconnectSent
        {
            self.tell(id, News::Disconnected { timed_out: false });
            self.wait_out(now, id);
        }
    }
}

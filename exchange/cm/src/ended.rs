//! A process on a peer's host has died without disconnecting.
//!
//! Under Linux the kernel closes the files of a killed process and sends the final messages for it (`cm_destroy_id`). A
//! process of `bareverbs run` contains its kernel, which dies with it. So when the death of a process becomes known,
//! this module acts as if that kernel's messages had arrived.

use super::connection::{CommunicationId, Connection, ConnectionState};
use super::manager::{Manager, reason};
use super::message::{Kind, Message, RECEIVER_ID, SENDER_ID, disconnect, of_message, reject};
use alloc::vec::Vec;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Time;

impl Manager {
    /// Handles the death of process `process` on the host with these GIDs. Connections to it end as if it had
    /// disconnected. A connection whose REQ is still unanswered could belong to any process of that host, so it keeps
    /// waiting until its timeout.
    pub fn handle_ended_peer(&mut self, now: Time, host: &[Gid], process: u8) {
        let is_its = |connection: &Connection| {
            host.contains(&connection.path.remote) && (connection.remote_id >> 24) as u8 == process
        };
        let said: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_its(connection))
            .filter_map(|(id, connection)| Some((connection.path, last_word(*id, connection)?)))
            .collect();
        for (path, message) in said {
            self.handle(now, path, &message);
        }
    }
}

/// The message that the peer's kernel would send, given our state of the connection.
fn last_word(id: CommunicationId, connection: &Connection) -> Option<Message> {
    let (about, reason) = match connection.state {
        ConnectionState::RequestReceived => (of_message::NONE, reason::TIMEOUT),
        ConnectionState::ReplySent => (of_message::REPLY, reason::CONSUMER),
        ConnectionState::ReplyReceived => (of_message::NONE, reason::CONSUMER),
        ConnectionState::Established => return Some(parting(id, connection, Kind::DisconnectRequest)),
        ConnectionState::DisconnectSent => return Some(parting(id, connection, Kind::DisconnectReply)),
        // Either the peer has nothing left to say, or we do not know which process it is.
        ConnectionState::RequestSent
        | ConnectionState::DisconnectReceived
        | ConnectionState::TimeWait
        | ConnectionState::ServiceRequestSent
        | ConnectionState::ServiceRequestReceived => return None,
    };
    let mut message = parting(id, connection, Kind::Reject);
    message.set(reject::MESSAGE, about).set(reject::REASON, reason);
    message.set(reject::INFO_LENGTH, size_of::<u64>() as u8).set(reject::INFO_GUID, connection.remote_guid);
    Some(message)
}

/// A message from the peer that carries both communication IDs.
fn parting(id: CommunicationId, connection: &Connection, kind: Kind) -> Message {
    let mut message = Message::new(kind, connection.transaction);
    message.set(SENDER_ID, connection.remote_id).set(RECEIVER_ID, id.0);
    if kind == Kind::DisconnectRequest {
        message.set(disconnect::REMOTE_QPN, connection.terms.local_qpn.value());
    }
    message
}

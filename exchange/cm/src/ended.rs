//! A process of a peer's host has ended without a word.
//!
//! Under Linux the kernel closes the files of a process that is killed, and says for it what there is to say (`cm_destroy_id`). A
//! process of `bareverbs run` has its kernel inside, which dies with it. So whoever sees that the process is gone takes what that
//! kernel would have said as heard.

use super::connection::{CommunicationId, Connection, ConnectionState};
use super::manager::{Manager, reason};
use super::message::{Kind, Message, RECEIVER_ID, SENDER_ID, disconnect, of_message, reject};
use alloc::vec::Vec;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Time;

impl Manager {
    /// The process of this number, of the host with these GIDs, is gone. Connections to it end as if it had parted from them. One that
    /// has not answered our REQ yet may have been any process: that request goes on until its timeout.
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

/// What the peer's kernel would say about a connection, by where it stands here.
fn last_word(id: CommunicationId, connection: &Connection) -> Option<Message> {
    let (about, reason) = match connection.state {
        ConnectionState::RequestReceived => (of_message::NONE, reason::TIMEOUT),
        ConnectionState::ReplySent => (of_message::REPLY, reason::CONSUMER),
        ConnectionState::ReplyReceived => (of_message::NONE, reason::CONSUMER),
        ConnectionState::Established => return Some(parting(id, connection, Kind::DisconnectRequest)),
        ConnectionState::DisconnectSent => return Some(parting(id, connection, Kind::DisconnectReply)),
        // Nobody waits for the peer, or it is not known which process it is.
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

/// A message of the peer with both numbers.
fn parting(id: CommunicationId, connection: &Connection, kind: Kind) -> Message {
    let mut message = Message::new(kind, connection.transaction);
    message.set(SENDER_ID, connection.remote_id).set(RECEIVER_ID, id.0);
    if kind == Kind::DisconnectRequest {
        message.set(disconnect::REMOTE_QPN, connection.terms.local_qpn.value());
    }
    message
}

//! The transport of connections as two pure state machines, requester and responder: reliable (IBTA v1.4 §9.7) and
//! unreliable (§9.8.2).
//!
//! **What this is.** [`Requester`] segments messages and numbers their packets, keeps them until they are
//! acknowledged, and retransmits when they are not. [`Responder`] checks the PSN, the order, the length and
//! the key of each packet and responds. Inputs are `submit` and `handle_*`, outputs are `poll_*`, time is an
//! argument.
//!
//! **What it may not do.** This module knows packets, sequence numbers and timers. It must not know WQEs,
//! CQEs or memory keys: a [`ResponderHost`] stands between it and them, and a request is named by a token
//! that its owner chose. It never touches payload: a [`RequestPacket`] says where the payload is, a
//! [`Placement`] where it belongs. No packet that arrives makes it panic.
//!
//! **Where to read first.** [`Requester::poll_transmit`] and [`Responder::handle_request`].

mod arithmetic;
pub mod congestion;
mod connection;
mod failure;
mod host;
mod outstanding;
mod parameters;
mod replay;
mod replies;
mod request;
mod requester;
mod responder;
mod response;
mod segment;
#[cfg(test)]
mod tests;
mod timers;
mod unreliable;

pub use arithmetic::{AtomicOperation, MaskedCompareSwap};
pub use connection::{ConnectionRequester, ConnectionResponder};
pub use host::{
    LocalFault, ReceiveBuffer, ReceiveCompletion, ReceiveKind, ReceiveStatus, RemoteAccess, RemoteFault,
    ResponderError, ResponderHost, RpcPacket, UnknownQueue,
};
pub use parameters::{ConnectionParameters, ack_timeout, rnr_timer};
pub use request::{
    Operation, Placement, QueueFull, Request, RequestCompletion, RequestPacket, RequesterError,
    RetransmissionCause,
};
pub use requester::{Requester, RequesterCounters};
pub use responder::{Responder, ResponderCounters};
pub use response::{ResponsePacket, ResponsePayload};
pub use unreliable::{UnreliableRequester, UnreliableResponder};

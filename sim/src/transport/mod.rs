//! The transport of connections as two pure state machines, requester and responder: reliable (IBTA v1.4 §9.7) and
//! unreliable (§9.8.2).
//!
//! **What this is.** [`Requester`] numbers and segments messages, remembers them until they are acknowledged, and sends
//! them again when they are not. [`Responder`] checks the numbers, the order, the lengths and the keys of what
//! arrives, and answers. Inputs are `submit` and `handle_*`, outputs are `poll_*`, time is an argument.
//!
//! **What it may not do.** This room knows packets, sequence numbers and timers. It knows no WQE, no CQE and no memory
//! key: what it needs of those it asks of a [`ResponderHost`], and it names a request by a token that its owner chose.
//! It never touches payload: a [`RequestPacket`] says where the payload is, a [`Placement`] where it belongs. Nothing
//! that arrives makes it panic.
//!
//! **Where to read first.** [`Requester::poll_transmit`] and [`Responder::handle_request`].

mod arithmetic;
pub mod congestion;
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
mod side;
#[cfg(test)]
mod tests;
mod timers;
mod unreliable;

pub use arithmetic::{AtomicOperation, MaskedCompareSwap};
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
pub use side::{ReceivingSide, SendingSide};
pub use unreliable::{UnreliableRequester, UnreliableResponder};

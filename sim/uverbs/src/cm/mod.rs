//! Communication management (IBTA v1.4 chapter 12): how two queue pairs find each other, agree and part, by messages between
//! the general services of two ports.
//!
//! **What this is.** One side of any number of connections, and of services that are resolved: what a program wants and what
//! arrives goes in, messages and news come out. Time is an argument.
//!
//! **What it may not do.** It knows no program, no queue pair and no network: it has addresses and numbers only. A message of
//! a peer is an allegation, and one that fits no connection changes nothing.
//!
//! Load alternate path (§12.8) is not done: such messages are dropped, as a peer that does not migrate may.

mod compose;
mod connection;
mod ended;
mod manager;
mod message;
mod receive;
#[cfg(test)]
mod tests;
mod wishes;

pub(crate) use connection::{
    CommunicationId, Connection, ConnectionState, Lids, Path, Role, Sender, Service,
};
pub(crate) use manager::{Event, Manager, News, reason};
pub(crate) use message::{Kind, Message, reject, reply, request, service_reply, service_request};
pub(crate) use wishes::{Acceptance, Extension, Offer, Refusal, ServiceAnswer, ServiceOffer};

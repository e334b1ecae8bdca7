//! # bareverbs-cm: communication management (IBTA v1.4 chapter 12)
//!
//! How two queue pairs find each other, agree and part, by messages between the general services of two ports.
//!
//! **What this is.** One side of any number of connections, and of services that are resolved: what a program wants and what
//! arrives goes in, messages and news come out. Time is an argument. A kernel that is imitated uses it, and a program whose device
//! has no kernel.
//!
//! **What it may not do.** It knows no program, no queue pair and no network: it has addresses and numbers only. A message of
//! a peer is an allegation, and one that fits no connection changes nothing.
//!
//! **Where to read first.** [`Manager`]; [`IpEnds`] for what RDMA CM adds (IBTA annex A11).
//!
//! Load alternate path (§12.8) is not done: such messages are dropped, as a peer that does not migrate may.
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

mod compose;
mod connection;
mod ended;
mod ip_ends;
mod manager;
mod message;
mod receive;
#[cfg(test)]
mod tests;
mod wishes;

pub use connection::{
    CommunicationId, Connection, ConnectionState, Lids, Path, Role, Sender, Service, Terms,
};
pub use ip_ends::{IP_ENDS, IpEnds, PORT_SPACE_TCP, PORT_SPACE_UDP, port_of_service, service_id};
pub use manager::{Event, Manager, News, WrongState, reason};
pub use message::{Field, Kind, Message, Private, reject, reply, request, service_reply, service_request};
pub use wishes::{Acceptance, Extension, Offer, Refusal, ServiceAnswer, ServiceOffer};

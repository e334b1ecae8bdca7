//! # bareverbs-cm: communication management (IBTA v1.4 chapter 12)
//!
//! How two queue pairs find each other, negotiate and disconnect, by messages between the general services interfaces
//! of two ports.
//!
//! **What this is.** One side of any number of connections and service resolutions. Requests of the program and
//! received messages go in; messages to send and events come out. Time is an argument. Its users are the simulated
//! kernel and programs whose device has no kernel driver.
//!
//! **What it may not do.** It knows no program, no queue pair and no network, only addresses and numbers. It trusts no
//! message of a peer, and ignores one that fits no connection.
//!
//! **Where to read first.** [`Manager`]; [`IpEnds`] for what RDMA CM adds (IBTA annex A11).
//!
//! Load Alternate Path (§12.8) is not implemented. Its messages are dropped, as the specification allows for a peer
//! that does not migrate paths.
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

mod compose;
mod connection;
mod ended;
mod ip_ends;
mod manager;
mod message;
mod parameters;
mod receive;
#[cfg(test)]
mod tests;

pub use connection::{
    CommunicationId, Connection, ConnectionState, Lids, Path, Role, Sender, Service, Terms,
};
pub use ip_ends::{IP_ENDS, IpEnds, PORT_SPACE_TCP, PORT_SPACE_UDP, port_of_service, service_id};
pub use manager::{Event, Manager, News, WrongState, reason};
pub use message::{Field, Kind, Message, Private, reject, reply, request, service_reply, service_request};
pub use parameters::{Acceptance, Extension, Offer, Refusal, ServiceOffer, ServiceReply};

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;

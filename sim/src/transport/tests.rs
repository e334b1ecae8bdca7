//! Conversations between a requester, a responder and a model of the device around them.

mod arbitrary;
mod conformance;
mod connection;
mod counters;
pub(super) mod model;
mod requester;
mod responder;
mod unreliable;
mod walk;

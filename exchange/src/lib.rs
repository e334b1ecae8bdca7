#![doc = include_str!("../README.md")]
//!
//! # Where to read first
//!
//! [`Introduction`] is what is told, [`Session`] is how. `message` has the form of the bytes and is pure; `line` is a TCP connection with
//! a deadline. `proof` has what shows that an end knows a key, [`IncomingCall`] how a listener asks for it.
//!
//! **What this may not do.** It opens no device and moves no queue pair: what the peer says, the program gives to
//! [`PreparedQueuePair::connect`](bareverbs_core::PreparedQueuePair::connect), which checks it.
#![forbid(unsafe_code)]

mod call;
mod error;
mod line;
mod message;
mod proof;
mod session;

pub use call::{IncomingCall, ProvenCall};
pub use error::{Awaited, ExchangeCause, ExchangeError};
pub use message::{Introduction, Limit, MessageError, VERSION};
pub use proof::{Credentials, SharedKey, SharedKeyError};
pub use session::{Listener, Session};

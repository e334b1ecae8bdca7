#![doc = include_str!("../README.md")]
//!
//! # Where to read first
//! [`Introduction`] is what each end says, [`Session`] is the exchange itself. `message` defines the wire format and is
//! pure; `line` is a TCP connection with a deadline; `proof` shows that an end knows a key; [`IncomingCall`] is how a
//! listener asks for that proof.
//!
//! **What this may not do.** It opens no device and changes no queue pair: the program passes what the peer said to
//! [`PreparedQueuePair::connect`](bareverbs_core::PreparedQueuePair::connect), which checks it.
#![forbid(unsafe_code)]

mod call;
mod error;
mod line;
mod message;
mod proof;
mod session;

pub use call::{CallEnd, IncomingCall, ProvenCall};
pub use error::{Awaited, ExchangeCause, ExchangeError};
pub use message::{Introduction, Limit, MessageError, VERSION};
pub use proof::{Credentials, SessionSecret, SharedKey, SharedKeyError};
pub use session::{Listener, Session};

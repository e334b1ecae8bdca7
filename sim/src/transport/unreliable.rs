//! Unreliable connections: SEND and RDMA WRITE without acknowledgement. IBTA v1.4 §9.8.2.
//!
//! A message arrives whole or not at all and in order. It arrives once, unless the network duplicates a
//! packet that is a whole message. The requester learns nothing of losses. The responder detects a gap in the
//! PSNs, drops the message that the gap falls into, and continues with the next message that begins.

mod requester;
mod responder;

pub use requester::UnreliableRequester;
pub use responder::UnreliableResponder;

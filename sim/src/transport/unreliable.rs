//! Unreliable connections: SEND and RDMA WRITE without acknowledgement. IBTA v1.4 §9.8.2.
//!
//! A message arrives whole or not at all, in order and, unless the network doubles a packet that is a message of its own,
//! once. The requester is never told; the responder recognises a gap by the packet sequence numbers, forgets the
//! message it falls into, and goes on with the next that begins.

mod requester;
mod responder;

pub use requester::UnreliableRequester;
pub use responder::UnreliableResponder;

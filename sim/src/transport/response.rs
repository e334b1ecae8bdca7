//! The packets that a responder sends.

use crate::wire::PacketHeader;

/// A packet that a responder sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponsePacket<R> {
    /// Op-code, PSN and extension headers.
    pub header: PacketHeader,
    /// For a READ response: where its payload is.
    pub payload: Option<ResponsePayload<R>>,
}

/// The payload of a READ response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponsePayload<R> {
    /// The checked range.
    pub range: R,
    /// Offset in it.
    pub offset: u32,
    /// Bytes; may be zero.
    pub length: u32,
}

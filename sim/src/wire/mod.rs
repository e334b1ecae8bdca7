//! Encoding and decoding of frames: Ethernet, VLAN, IPv4/IPv6, UDP, BTH and its extension headers, ICRC.
//!
//! **What this is.** [`parse`] decodes a RoCE frame into a [`Packet`], or returns a single error. [`FrameWriter`]
//! encodes a [`PacketHeader`] and a payload with a per-connection [`HeaderTemplate`]. A [`Packet`] prints as one line.
//! Both directions allocate nothing and take one pass over the bytes. A [`FrameBuffer`] holds a frame, and its packet
//! as long as no byte has changed since it was written.
//!
//! **What it may not do.** It knows no connections, no sequences and no time. No input makes it panic.
//!
//! **Where to read first.** IBTA v1.4 §9.2 and §9.3 for the headers, RoCEv2 A17.3 for what is below them.

pub mod aeth;
pub mod bth;
mod buffer;
mod ethernet;
pub mod extension;
mod frame;
mod icrc;
pub mod infiniband;
mod ipv4;
mod ipv6;
pub mod management;
mod masking;
pub mod opcode;
mod packet;
mod parse;
mod parse_error;
mod partition;
pub mod route;
pub mod service;
mod template;
#[cfg(test)]
mod tests;
mod transport_headers;
mod udp;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use bth::Bth;
pub use buffer::FrameBuffer;
pub use ethernet::MIN_FRAME;
pub use extension::{AtomicEth, Extension, MaskedAtomicEth, Reth};
pub use frame::{FrameWriter, MAX_PAYLOAD, PayloadTooLong};
pub use opcode::{BthOpcode, ExtensionKind, OperationKind, Position};
pub use packet::{Packet, PacketHeader};
pub use parse::{network_header, parse};
pub use parse_error::ParseError;
pub use partition::DEFAULT_PARTITION_KEY;
pub(crate) use partition::{MEMBERSHIP_BIT, is_same_partition};
pub use route::{GlobalRoute, LocalRoute, Network, ROCE_UDP_PORT, Route, VlanTag};
pub use service::{Deth, ServiceClass, ServiceHeader};
pub use template::{HeaderTemplate, RouteTemplate};

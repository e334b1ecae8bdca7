//! Ethernet: what a port does with packets that are not RDMA's.
//!
//! **What this is.** Send queues whose WQEs are packets, with checksums, segmentation and VLAN tags filled in by the
//! device; the flow tables that say where received packets go; transport interface receives (TIR) that spread them over
//! receive queues by a hash; the receive queues themselves.
//!
//! **What it may not do.** RoCE packets pass by here only while RoCE is off. Nothing here knows a queue pair.
//!
//! **Where to read first.** `send` for the way out, `deliver` and `receive` for the way in, `flow` for what lies between.

mod checksum;
mod deliver;
pub(crate) mod filter;
pub(crate) mod flow;
pub(crate) mod hash;
mod headers;
mod objects;
pub(crate) mod packets;
pub(crate) mod queue_state;
pub(crate) mod receive;
mod segment;
pub(crate) mod send;
#[cfg(test)]
mod tests;
pub(crate) mod traffic;
mod turns;

pub(in crate::nic) use deliver::IncomingPacket;
pub(in crate::nic) use headers::is_roce;
pub(crate) use objects::{EthernetObjects, QueueTable};

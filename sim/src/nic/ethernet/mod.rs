//! Ethernet: packets that are not RDMA.
//!
//! **What this is.** Send queues whose WQEs are packets, with checksum, segmentation and VLAN offloads; flow tables
//! that steer received packets; transport interface receives (TIRs) that spread them over receive queues by a hash; and
//! the receive queues.
//!
//! **What it may not do.** RoCE packets only come here while RoCE is disabled. Nothing here knows a queue pair.
//!
//! **Where to read first.** `send` for transmission, `deliver` and `receive` for reception, `flow` for steering.

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

//! `/dev/infiniband/rdma_cm`: the counterpart of the kernel's `rdma_ucm` and `rdma_cm` for librdmacm.
//!
//! **What this is.** Commands that a program writes to the file, about identifiers of connections, listeners and
//! multicast groups, and the events that it reads. The protocol itself is in `cm`; IP addresses, ports and listeners
//! are here.
//!
//! A host may have several devices, each with its own port and addresses. As in the kernel, an identifier has no device
//! until it is bound to an address or its peer is resolved. A listener on any address hears all ports.
//!
//! **What it may not do.** It changes no queue pair: librdmacm does that, following INIT_QP_ATTR. It knows no other
//! process of its host; it asks the [`Process`] who owns a port.
//!
//! Every process of a host hears every message for the host's queue pair 1. A request goes to the process that listens
//! on its port. If nobody owns the port, the request waits for a moment in all of them, and then the first process of
//! the host refuses it. Every other message names a connection, whose number has the process in its upper 8 bits.

mod address;
mod call;
mod connections;
mod events;
mod file;
mod group_address;
mod groups;
mod identifier;
mod listing;
mod naming;
mod news;
mod options;
mod port_facts;
mod ports;
mod queries;
mod queue_pair;
mod requests;
mod resolution;
mod state;

pub(crate) use file::Heard;
pub(crate) use port_facts::{HostFacts, PortFacts};
pub(crate) use state::RdmaCm;

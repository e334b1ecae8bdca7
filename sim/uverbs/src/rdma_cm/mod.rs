//! `/dev/infiniband/rdma_cm`: what `rdma_ucm` and `rdma_cm` are to librdmacm on Linux.
//!
//! **What this is.** Commands that a program writes to the file, on identifiers of connections, listeners and groups, and the
//! events that it reads. The protocol is `cm`'s; addresses of IP, ports and listeners are here.
//!
//! A host may have several devices, each with a port and addresses of its own. An identifier has no device before it is bound to an
//! address or its peer's is resolved, as with the kernel; whoever listens on any address hears all ports.
//!
//! **What it may not do.** It moves no queue pair: librdmacm does, by what INIT_QP_ATTR says. It knows no other process of its
//! host; whose a port is, it asks the [`Process`].
//!
//! Every process of a host hears every message for the host's queue pair 1. A request goes to the process that listens on its
//! port; if none has the port, it waits for a moment in all of them, and then the first process of the host refuses it. All other
//! messages name a connection, whose number has the process in its upper 8 bits.

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

//! Commands: one module per family, input and output of each command as a layout (PRM, command reference).

pub mod caps;
pub mod caps_ethernet;
pub mod caps_optional;
pub mod congestion;
pub mod cq;
pub mod entry;
pub mod eq;
pub mod ethernet_port;
pub mod ethernet_receive;
pub mod ethernet_send;
pub mod flow;
pub mod general_object;
pub mod hca;
pub mod ib_port;
pub mod mad;
pub mod mkey;
pub mod multicast;
pub mod pages;
pub mod pd;
pub mod port;
pub mod port_counters;
pub mod qp;
pub mod queue_counter;
pub mod srq;
pub mod uar;
pub mod umem;

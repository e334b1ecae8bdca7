//! # bareverbs-tests: what the tests share
//!
//! Readers of the vectors and the harness of the integration tests. Nothing outside this crate may depend on
//! it. [`prm_tables`] compares layouts with the reference tables; [`boot_trace`] reads the commands of a real
//! ConnectX-4; [`judges`] runs tshark and scapy.

pub mod attack;
pub mod boot_trace;
pub mod conformance;
pub mod datagrams;
pub mod device_fields;
pub mod free_port;
pub mod guest;
pub mod hosted;
pub mod installation;
pub mod judges;
pub mod kill_on_drop;
pub mod node;
pub mod pair;
pub mod perftest_rows;
pub mod places;
pub mod prm_tables;
pub mod replay;
pub mod shared;
pub mod tap;
pub mod trace_memory;
pub mod walk;

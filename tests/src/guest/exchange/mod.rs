//! How Debian's ping-pongs find each other: small fixed messages over TCP, before and after the RDMA traffic. What perftest says is in
//! `bareverbs-perftest`.
//!
//! **What this is.** Messages and their order, seen from either end: [`pingpong`] for `ibv_*_pingpong` of rdma-core.
//! **What it may not do.** It posts nothing: the caller does between two messages what the program would do.

pub mod pingpong;

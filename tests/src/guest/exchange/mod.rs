//! How Debian's ping-pongs exchange addresses: small fixed messages over TCP, before and after the RDMA
//! traffic. The exchange of perftest is in `bareverbs-perftest`.
//!
//! [`pingpong`] has the messages of rdma-core's `ibv_*_pingpong` and their order, for either end. It posts no
//! work requests: between two messages the caller does what the program would do.

pub mod pingpong;

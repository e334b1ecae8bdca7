//! The asking side: looks keys up in a remote table in one of three ways.
//!
//! | way | request | answer |
//! |---|---|---|
//! | kernel on the DPU | SEND | RDMA WRITE with immediate into a response slot |
//! | kernel in the NIC | StRoM RPC Params | RDMA WRITE into a response slot, found by polling its request id |
//! | plain READ | an RDMA READ for each element | the elements; the client walks by itself |
//!
//! [`slots`] and [`walk`] are pure.

pub mod slots;
pub mod walk;

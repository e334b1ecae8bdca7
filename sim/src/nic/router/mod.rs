//! The router: every input of the device comes in here, and every output is asked for here.
//!
//! **What this is.** It resolves a number once, builds the bus, lets the queue act, and hands what the queue wants to the scheduler:
//! `bar` for registers and doorbells, `config_space`, `receive` and `transmit` for frames, `datagrams`, `ethernet` for packets that are
//! not RDMA's, `management` for an InfiniBand port's agent, `timeouts`.
//!
//! **What it may not do.** It decides nothing that a queue, a table or the firmware can decide.

mod bar;
mod config_space;
mod datagrams;
mod ethernet;
mod management;
mod receive;
mod timeouts;
mod transmit;

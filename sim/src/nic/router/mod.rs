//! The router: the entry point of all inputs and outputs.
//!
//! **What this is.** It resolves a number once, builds the bus, lets the queue act, and passes the queue's requests to
//! the scheduler. `bar` handles registers and doorbells; `config_space`; `receive` and `transmit` handle frames;
//! `datagrams`; `ethernet` handles packets that are not RDMA; `management` serves an InfiniBand port's agents;
//! `timeouts`.
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

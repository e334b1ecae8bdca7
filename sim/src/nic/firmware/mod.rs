//! The firmware: decodes and checks command queue entries, runs one handler per command, and writes the
//! result.
//!
//! `entry` moves bytes between the command queue and a `Call`; `dispatch` selects the handler and the device states it
//! is allowed in; `checks` validates every input; the other modules each handle one family of commands. A handler gets
//! a typed input and fills a typed output; it never sees the queue.
//!
//! A command accesses host memory through `dyn HostMemory`. So the firmware is compiled once, in this crate, and not once more in
//! each crate that brings a memory of its own. The data path stays generic.

mod call;
mod capabilities;
mod checks;
mod completion_queue;
mod congestion;
mod dispatch;
mod domain;
mod entry;
mod ethernet;
mod event_queue;
mod general_object;
mod ib_port;
mod mad;
mod mailbox;
mod memory_key;
mod multicast;
mod pages;
mod port;
mod port_counters;
mod queue_counter;
mod queue_pair;
mod register;
mod register_data;
mod shared_receive;
mod system;
mod transition;
mod umem;
mod user_context;

pub(super) use entry::{ring, work_off};

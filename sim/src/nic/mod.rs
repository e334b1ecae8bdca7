//! The device model: an mlx5 network adapter as a pure state machine with five inputs and three outputs.
//!
//! **What this is.** [`Nic`] contains PCI configuration space, BAR0, the firmware behind its command queue, memory
//! keys, work, completion and event queues, and a port. Inputs: [`Nic::handle_mmio_read`], [`Nic::handle_mmio_write`],
//! [`Nic::handle_config_write`], [`Nic::handle_frame`], [`Nic::handle_timeout`]. Outputs: [`Nic::poll_transmit`],
//! [`Nic::poll_interrupt`] and writes to [`HostMemory`]; [`Nic::poll_timeout`] returns the next deadline.
//!
//! **What it may not do.** It models no delay: all effects of an input have occurred when the call returns, except for
//! what waits for the wire. It trusts nothing: everything from a driver, a peer or memory is checked, and a faulting
//! DMA access becomes a delivery status, an error completion or an event, never a panic.
//!
//! **Where to read first.** `device` for the state, `router` for inputs and outputs, `firmware` for commands,
//! `queue_pair` for the behaviour of queue pairs, `ethernet` for packets that are not RDMA. Router and firmware know
//! the device; the modules below them do not.
//!
//! Frames between two queue pairs of the same device do not leave it: they are delivered inside [`Nic::poll_transmit`].

mod buffer;
mod bus;
mod card;
mod completion;
mod config;
mod contexts;
mod counters;
mod cqe;
mod device;
mod doorbell_record;
mod ethernet;
mod event;
mod extension;
mod features;
mod firmware;
mod firmware_state;
mod flow_control;
mod guids;
mod interrupt;
mod memory;
mod mkey;
mod multicast;
mod observer;
mod optional_state;
mod page_list;
mod pci;
mod port;
mod port_link;
mod port_traps;
mod queue_counters;
mod queue_pair;
mod receive_queue;
mod registers;
mod route_templates;
mod router;
mod schedule;
mod send_queue;
mod shared_parts;
mod shared_receive;
mod strict;
pub mod syndrome;
mod trace;
mod user_memory;
mod work_queue;
pub mod wqe;

#[cfg(test)]
mod tests;

pub use card::{AccessKey, CardNotice, DmaCopy, DmaRequest};
pub use config::{
    CONNECTX5, CardFunction, Limits, LinkLayer, NicConfig, PortBuffer, PortSpeed, QueuePairNumbers,
    RoceSupport, SubnetMembership,
};
pub use counters::Counters;
pub use device::Nic;
pub use extension::{RpcEngine, RpcReply};
pub use guids::Guids;
pub use memory::{DmaFault, HostMemory};
pub use mkey::{DmaEnd, DmaRefused, HostRange, SharedKey};
pub use observer::{DeviceEvent, DeviceRecord, FrameOrigin, FrameWork, TextError, TextWords, WorkName};
pub use pci::VENDOR_ID;
pub use port_link::LinkHistory;
pub use queue_pair::{Transmit, TransmitClass};
pub use syndrome::Refusal;
pub use trace::CommandRecord;

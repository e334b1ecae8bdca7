//! # bareverbs: RDMA verbs for mlx5-class NICs, with nothing in between
//!
//! **What this is.** A driver that brings an mlx5 device up through its command interface, owns its rings, builds work
//! queue entries, rings doorbells and reads completions.
//!
//! **What it may not do.** It knows no operating system: no std, no allocation, no thread, no clock of its own. What it
//! needs of the place it lives in goes through one [`hal::Hal`].
//!
//! **Where to read first.** [`hal`] for the contract with the place; [`device`] for opening and closing;
//! [`queue_pair`], [`completion_queue`] and [`memory_region`] for the data path. The layers, each knowing only those
//! below it: objects, then [`command`], [`ledger`], [`ring`] and [`doorbell`], then [`dma`], then [`hal`].
#![no_std]
#![deny(unsafe_code)]

pub mod address_handle;
#[allow(unsafe_code)]
pub mod barrier;
pub mod capabilities;
pub mod command;
pub mod completion_channel;
pub mod completion_queue;
pub mod counter_set;
pub mod device;
#[allow(unsafe_code)]
pub mod dma;
pub mod doorbell;
pub mod events;
pub mod fast_region;
pub mod gid;
#[allow(unsafe_code)]
pub mod hal;
pub mod indirect_region;
pub mod key_update;
pub mod ledger;
mod memory_key;
pub mod memory_region;
pub mod memory_window;
pub mod page_supply;
pub mod port;
pub mod port_counters;
pub mod protection_domain;
pub mod queue_pair;
pub mod ring;
pub mod shared_receive_queue;
#[cfg(test)]
#[allow(unsafe_code)]
mod test_memory;
pub mod trace;
mod translation;
pub mod work_completion;
pub mod work_request;
pub mod xrc_domain;

pub use address_handle::{AddressHandle, Destination};
pub use capabilities::Capabilities;
pub use completion_channel::{ChannelError, CompletionChannel};
pub use completion_queue::{CompletionQueue, CompletionQueueConfig, PollError};
pub use counter_set::{CongestionCounters, CounterSet, QueueCounters};
pub use device::{Device, DeviceConfig, DeviceRef};
pub use events::{AsyncEvent, EventQueueError, QueuePairFault, QueuePairPart};
pub use fast_region::FastRegion;
pub use gid::GidEntry;
pub use indirect_region::IndirectRegion;
pub use key_update::KeyUpdate;
pub use memory_region::{AccessFlags, MemoryRegion, MemorySlice, RegionAddress, RemoteSlice};
pub use memory_window::{MemoryWindow, WindowType};
pub use port_counters::{EthernetCounters, InfiniBandCounters, PortCounterError, PriorityCounters};
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder, RemoteEndpoint};
pub use queue_pair::{Connected, Rc, Service, Uc, Ud};
pub use shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
pub use work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
pub use work_request::{ReceiveRequest, WorkRequest};
pub use xrc_domain::XrcDomain;

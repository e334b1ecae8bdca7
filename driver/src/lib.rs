//! # bareverbs-core: RDMA verbs for mlx5-class NICs, straight on the hardware
//!
//! This driver boots an mlx5 device through its command interface, owns its rings, builds work queue entries, rings
//! doorbells and reads completions. It needs no operating system: no std, no allocator, no threads, no clock.
//! Everything it requires from its environment goes through [`hal::Hal`].
//!
//! # Objects
//!
//! | verbs | here |
//! |---|---|
//! | context | [`Device`], opened with a [`DeviceConfig`]; its [`Capabilities`], [`port`] and [`gid`] table |
//! | protection domain, XRC domain | [`ProtectionDomain`], [`XrcDomain`] |
//! | memory region, memory window | [`MemoryRegion`], [`MemoryWindow`], [`FastRegion`], [`IndirectRegion`], [`KeyUpdate`] |
//! | completion queue, completion channel | [`CompletionQueue`], [`CompletionChannel`] |
//! | queue pair | [`QueuePairBuilder`] → [`PreparedQueuePair`] → [`QueuePair`]; [`queue_pair::transitions`] |
//! | shared receive queue | [`SharedReceiveQueue`] |
//! | address handle | [`AddressHandle`] |
//! | memory of another function of the card, copies | [`SharedRegion`], [`RemoteVhcaRegion`], [`DmaQueue`] |
//! | work request, work completion | [`WorkRequest`], [`ReceiveRequest`], [`WorkCompletion`] |
//! | asynchronous event | [`AsyncEvent`], from [`Device::poll_event`] |
//! | counters | [`CounterSet`], [`port_counters`] |
//!
//! # Example
//!
//! Everything a host needs before it knows its peer, in any environment:
//!
//! ```
//! use bareverbs_core::hal::Hal;
//! use bareverbs_core::{
//!     AccessFlags, CompletionQueue, CompletionQueueConfig, Device, DeviceConfig, MemoryRegion, PreparedQueuePair,
//!     ProtectionDomain, QueuePairBuilder,
//! };
//! use std::error::Error;
//! use std::sync::Arc;
//!
//! struct Host<H: Hal> {
//!     queue_pair: PreparedQueuePair<Arc<Device<H>>>,
//!     completions: CompletionQueue<Arc<Device<H>>>,
//!     region: MemoryRegion<Arc<Device<H>>>,
//! }
//!
//! fn host<H: Hal>(hal: H) -> Result<Host<H>, Box<dyn Error>> {
//!     let device = Arc::new(Device::open(hal, DeviceConfig::default())?);
//!     let domain = ProtectionDomain::allocate(device.clone())?;
//!     let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
//!     let region = MemoryRegion::allocate(&domain, 4096, access)?;
//!     let completions = CompletionQueue::create(device, CompletionQueueConfig { entries: 16 })?;
//!     let queue_pair = QueuePairBuilder::new(&domain, &completions, &completions).build()?;
//!     Ok(Host { queue_pair, completions, region })
//! }
//! ```
//!
//! # Layers
//!
//! Each layer only uses those below it: objects, then [`device`], then [`events`], then [`command`], `ledger`, `ring`
//! and `doorbell`, then `dma`, then [`hal`] and [`barrier`]. The machinery below the objects is private.
#![no_std]
#![deny(unsafe_code)]

pub mod address_handle;
mod address_vector;
#[allow(unsafe_code)]
pub mod barrier;
mod boot_step;
pub mod capabilities;
pub mod capability_page;
pub mod command;
pub mod completion_channel;
pub mod completion_queue;
pub mod congestion_control;
pub mod counter_set;
mod cqe;
pub mod device;
#[allow(unsafe_code)]
mod dma;
pub mod dma_queue;
mod doorbell;
pub mod error_correction;
pub mod events;
mod executor;
pub mod fast_region;
pub mod flow_control;
pub mod gid;
pub mod gid_choice;
#[allow(unsafe_code)]
pub mod hal;
pub mod identity;
pub mod indirect_region;
pub mod key_update;
mod ledger;
mod memory_key;
pub mod memory_region;
mod memory_slice;
pub mod memory_window;
mod page_supply;
pub mod port;
pub mod port_counters;
pub mod port_link;
mod post_error;
pub mod protection_domain;
pub mod queue_pair;
pub mod remote_vhca_region;
mod ring;
pub mod shared_receive_queue;
pub mod shared_region;
#[cfg(test)]
#[allow(unsafe_code)]
mod test_memory;
#[doc(hidden)]
pub mod testing;
pub mod trace;
mod translation;
pub mod work_completion;
pub mod work_request;
mod wqe;
pub mod xrc_domain;

pub use address_handle::{AddressHandle, Destination};
pub use capabilities::Capabilities;
pub use completion_channel::{ChannelError, CompletionChannel};
pub use completion_queue::{CompletionQueue, CompletionQueueConfig, PollError, WaitError};
pub use counter_set::{CongestionCounters, CounterSet, QueueCounters};
pub use device::{Device, DeviceConfig, DeviceRef, EventQueueError};
pub use dma::{RangeError, UserMemory};
pub use dma_queue::{DmaCopy, DmaQueue, DmaQueueConfig};
pub use events::{AsyncEvent, QueuePairFault, QueuePairPart};
pub use fast_region::FastRegion;
pub use gid::GidEntry;
pub use indirect_region::IndirectRegion;
pub use key_update::KeyUpdate;
pub use memory_region::{
    AccessFlags, MemoryRegion, MemorySlice, RegionAddress, RegionCell, RegionCells, RemoteSlice,
};
pub use memory_window::{MemoryWindow, WindowType};
pub use port_counters::{EthernetCounters, InfiniBandCounters, PortCounterError, PriorityCounters};
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder, RemoteEndpoint};
pub use queue_pair::{Connected, Rc, Service, Uc, Ud};
pub use remote_vhca_region::RemoteVhcaRegion;
pub use shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
pub use shared_region::{AccessKey, SharedRegion};
pub use work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus, WorkRequestFailed};
pub use work_request::{ReceiveRequest, WorkRequest};
pub use xrc_domain::XrcDomain;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;

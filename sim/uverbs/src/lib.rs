//! # bareverbs-uverbs: the kernel's side of libibverbs and libmlx5
//!
//! **What this is.** The equivalent of `ib_uverbs`, `mlx5_ib` and `mlx5_core` for a program on Linux. It boots a
//! simulated NIC through its command queue, and serves the `RDMA_VERBS_IOCTL` requests of the distribution's libibverbs
//! and libmlx5 with firmware commands.
//!
//! **What it may not do.** It uses no `unsafe`, system call, clock or thread. A request is bytes, the program's memory
//! is a [`HostMemory`](bareverbs_sim::nic::HostMemory), and anything that requires an operating system goes through a
//! [`Process`]. An unknown request gets `EPROTONOSUPPORT`, never success.
//!
//! **Where to read first.** [`Uverbs`] for the life of a device file, `drive` for the driving loop, `schema` for the
//! methods, `request` for the checks before a method runs.
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

mod address_methods;
mod address_path;
mod async_events;
mod attributes;
mod boot;
mod call;
mod commands;
mod completion_methods;
mod connection_names;
mod device;
mod device_index;
mod device_methods;
mod devx;
mod devx_object;
mod doorbells;
mod drive;
mod errno;
mod event_queues;
mod event_record;
mod events;
mod files;
mod general_services;
mod host;
mod host_settings;
mod ip_network;
mod kernel_completions;
mod kernel_memory;
mod key_changes;
mod mapping;
mod memory_methods;
pub mod netlink;
mod null_process;
mod object_list;
mod object_methods;
mod page_list;
mod port_state;
mod process;
mod queue_pair_methods;
mod queue_pair_state;
mod queues;
mod rdma_cm;
mod rdma_cm_file;
mod request;
mod schema;
mod shared_receive_methods;
mod subnet;
pub mod sysfs;
mod transition;
mod uverbs;
mod write_commands;

pub use attributes::DeviceAttributes;
pub use bareverbs_uapi as uapi;
pub use commands::CommandFailure;
pub use connection_names::{ConnectionFileId, Port, SubnetPort};
pub use device_index::{DeviceIndex, MOST_DEVICES};
pub use errno::Errno;
pub use event_record::{EventFileId, EventFileKind, EventRecord};
pub use files::FileId;
pub use host::{PortAddresses, VirtualHost};
pub use host_settings::HostSettings;
pub use ip_network::ipv4_prefix;
pub use mapping::Mapping;
pub use null_process::NullProcess;
pub use process::Process;
pub use rdma_cm_file::Connections;
pub use subnet::SubnetLink;
pub use uverbs::Uverbs;

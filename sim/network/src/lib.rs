//! # bareverbs-network: the network between the processes of `bareverbs run`
//!
//! **What this is.** [`Wire`] is the cable of one process's device: frames travel through rings in shared memory to the
//! process that has the destination address according to [`Neighbours`]. Frames for unknown addresses go to the
//! [`Bridge`], if there is one, which has a wire to the outside and looks up neighbours there ([`Discovery`], pure);
//! [`OutsideNeighbours`] queries the bridge. [`NetworkIo`] presents the cable to a device in real time, so that a tool
//! can be a host of the network like a program.
//!
//! **What it may not do.** `unsafe` is limited to `ring`. It contains no device: others decide what a frame means. It
//! trusts nothing that another process wrote.
//!
//! **Where to read first.** [`Wire`].
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod bridge;
mod discovery;
mod frame_io;
mod neighbour_message;
mod neighbours;
mod outside;
mod pace;
#[allow(
    unsafe_code,
    reason = "memory that two processes share is mapped and accessed here, and nowhere else"
)]
pub mod ring;
mod wire;

pub use bridge::Bridge;
pub use discovery::{Discovery, LookupState};
pub use frame_io::NetworkIo;
pub use neighbour_message::{Neighbour, NeighbourMessage};
pub use neighbours::{Neighbours, virtual_host, virtual_ports};
pub use outside::OutsideNeighbours;
pub use pace::Pace;
pub use wire::{EndedProcess, Wire, WireCounters};

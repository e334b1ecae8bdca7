//! # bareverbs-network: the network between the processes of `bareverbs run`
//!
//! **What this is.** [`Wire`] is the cable of the device of one process: frames go from process to process through rings of shared
//! memory, to whoever [`Neighbours`] says has the address. What nobody has goes to the [`Bridge`], if there is one, which has a wire to the
//! outside and asks there for neighbours ([`Discovery`], pure); [`OutsideNeighbours`] asks the bridge. [`NetworkIo`] gives that cable to a device in real time, so that a
//! tool is a host of the network like a program.
//!
//! **What it may not do.** No `unsafe` but in `ring`, and no device: what a frame means is decided elsewhere. It believes nothing that
//! another process wrote.
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
pub use discovery::{Answer, Discovery};
pub use frame_io::NetworkIo;
pub use neighbour_message::{Neighbour, NeighbourMessage};
pub use neighbours::{Neighbours, virtual_host, virtual_ports};
pub use outside::OutsideNeighbours;
pub use pace::Pace;
pub use wire::{EndedProcess, Wire, WireCounters};

//! # bareverbs-hal: places a bareverbs driver can live in
//!
//! **What this is.** Backends of [`bareverbs::hal::Hal`]. [`vfio`] is a PCI function of this machine, in user space;
//! [`vfio_user`] a device that another process serves; [`sim`] a simulated mlx5 device in the same process in virtual time,
//! [`real_time`] one in real time on a wire that leads outside. [`memory`] is the DMA memory of the first two, [`pci`] what
//! this machine has and what is in the way. This crate is where driver and simulator meet; neither knows the other.
//!
//! **What it may not do.** No `unsafe` outside the rooms that hold raw memory, registers or system calls: `memory`, `vfio`,
//! `vfio_user` and `sim/memory.rs`; and the one method of the `Hal` that is unsafe to call and hands its contract on. No
//! clock and no randomness in `sim` but those of the world.
//!
//! **Where to read first.** [`sim::SimWorld`], [`vfio::VfioHal`].
#![deny(unsafe_code)]

mod interrupts;
#[allow(unsafe_code, reason = "memory that driver and device share")]
pub mod memory;
pub mod pci;
mod ranges;
pub mod real_time;
mod registers;
pub mod sim;
#[allow(unsafe_code, reason = "registers that are mapped, and system calls")]
pub mod vfio;
#[allow(unsafe_code, reason = "pages of registers that a server may offer")]
pub mod vfio_user;

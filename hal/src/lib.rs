//! # bareverbs-hal: HALs for NICs of this machine
//!
//! **What this is.** Linux implementations of [`bareverbs_core::hal::Hal`]. [`vfio`] drives a PCI function of this
//! machine from user space; [`vfio_user`] drives a device that another process serves; `uverbs`, a feature, shares a device
//! with the kernel that owns it. [`memory`] is the DMA memory of all. [`pci`] reports which functions exist and what prevents their use. The HAL for a simulator in the driver's own
//! process is the crate `bareverbs-hal-sim`.
//!
//! **What it may not do.** `unsafe` is limited to the modules that handle raw memory, registers or system calls:
//! `memory`, `mapped_bar`, `vfio`, `vfio_user`, and two files of `uverbs`.
//!
//! **Where to read first.** [`vfio::VfioHal`].
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

#[cfg(any(feature = "vfio", feature = "vfio-user", feature = "uverbs"))]
mod clock;
#[cfg(any(feature = "vfio", feature = "vfio-user"))]
mod interrupts;
#[cfg(any(feature = "vfio", feature = "vfio-user", feature = "uverbs"))]
#[allow(unsafe_code, reason = "registers that are mapped")]
mod mapped_bar;
#[allow(unsafe_code, reason = "memory that driver and device share")]
pub mod memory;
pub mod pci;
mod ranges;
#[cfg(feature = "uverbs")]
pub mod uverbs;
#[cfg(feature = "vfio")]
#[allow(unsafe_code, reason = "registers that are mapped, and system calls")]
pub mod vfio;
#[cfg(feature = "vfio-user")]
#[allow(unsafe_code, reason = "pages of registers that a server may offer")]
pub mod vfio_user;

#[cfg(any(feature = "vfio", feature = "vfio-user", feature = "uverbs"))]
pub use mapped_bar::MappedBar;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;

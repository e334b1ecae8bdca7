//! bareverbs without an operating system.
//!
//! **What this is.** The example that an author of a kernel or of firmware copies: a [`Hal`](bareverbs_core::hal::Hal) of a few
//! pages over memory that is mapped one to one, a search for the NIC in PCI configuration space, and a program that looks
//! keys up in a remote table. The binary adds what differs between processors: entry, console, clock, power switch.
//!
//! **What it may not do.** No allocator, no thread, no interrupt; one processor. What a PCI function, a peer or a line of
//! the console says is checked before it is used.

#![no_std]
#![deny(unsafe_code)]

pub mod arena;
pub mod console;
pub mod exchange;
#[allow(unsafe_code)]
pub mod hal;
pub mod lookup;
#[allow(unsafe_code)]
pub mod pci;
pub mod rows;

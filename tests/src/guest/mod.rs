//! A real Linux in front of the simulator: the rig that every outside judge of the guest shares.
//!
//! **What this is.** [`root`] builds the guest's root file system once, [`machine`] boots it under QEMU without any
//! right outside the guest, [`control`] runs commands in it. **What it may not do.** It knows no judge: what a guest is
//! to prove is told by the modules of the judges. Nothing is left behind: processes, mounts and sockets end with the
//! [`machine::Machine`]. **Where to read first.** [`machine::Machine::boot`].

pub mod bare_metal;
pub mod command;
pub mod control;
pub mod exchange;
pub mod floor;
pub mod interrupt;
pub mod kernel;
pub mod machine;
pub mod mlx5;
mod ports;
pub mod process;
pub mod programs;
pub mod recipe;
pub mod root;
pub mod rxe;
pub mod soak;
pub mod storage;
pub mod subnet;
pub mod table;
pub mod vfio;
pub mod without_guest;

use core::fmt;

/// A judge cannot run on this machine, and why: neither a pass nor a fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped(pub String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIPPED: {}", self.0)
    }
}

impl core::error::Error for Skipped {}

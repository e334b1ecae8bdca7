//! A real Linux in front of the simulator: the rig that all judges in the guest share.
//!
//! [`root`] builds the guest's root file system once, [`machine`] boots it under QEMU without any right
//! outside the guest, and [`control`] runs commands in it. Nothing here knows a particular judge; the judges'
//! modules say what a guest is to prove. Nothing is left behind: processes, mounts and sockets end with the
//! [`machine::Machine`]. Start reading at [`machine::Machine::boot`].

pub mod bare_metal;
pub mod command;
pub mod control;
pub mod devx;
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

/// Why a judge cannot run on this machine. That is neither a pass nor a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped(pub String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIPPED: {}", self.0)
    }
}

impl core::error::Error for Skipped {}

//! Kernels through which a stream passes: StRoM's RPC WRITE. Bytes come in pieces of any length, writes to the host's memory go out.
//!
//! Sans-IO, as everything here: [`StreamKernel::take`] takes what arrived, [`StreamKernel::poll_write`] says what is to be written, and
//! [`StreamKernel::write_done`] that a write has ended. A kernel that has no room left takes fewer bytes than it was given; whoever feeds it then
//! carries out writes before it goes on, and a client behind credits waits.

pub mod hyper_log_log;
pub mod open_stream;
pub mod shuffle;

use crate::grant::Writable;
use core::fmt;

/// Bytes that are to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamWrite<'a> {
    /// To be returned with [`StreamKernel::write_done`].
    pub tag: usize,
    /// Where to.
    pub to: Writable,
    /// What.
    pub bytes: &'a [u8],
}

/// Why a stream cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFault {
    /// A partition has all the bytes that its part of the region has room for. Nothing was written beyond it.
    PartitionFull {
        /// Its number.
        partition: usize,
        /// Bytes that it has room for.
        capacity: u64,
    },
    /// The stream ended within a value.
    Incomplete {
        /// Bytes of the value that came.
        bytes: usize,
    },
    /// More came than the region has room for, or nothing may be written there.
    Region {
        /// Where the next byte would be written, from the start of the region.
        offset: u64,
    },
}

impl fmt::Display for StreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PartitionFull { partition, capacity } => {
                write!(
                    f,
                    "partition {partition} has all the {capacity} bytes that it has room for: count its values before"
                )
            }
            Self::Incomplete { bytes } => write!(f, "the stream ended {bytes} bytes into a value of 8"),
            Self::Region { offset } => write!(f, "offset {offset:#x} may not be written: see the grant"),
        }
    }
}

impl core::error::Error for StreamFault {}

/// A kernel through which a stream passes.
pub trait StreamKernel {
    /// Takes bytes and says how many; fewer than it was given if it has no room until a write has ended.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, StreamFault>;
    /// The stream has ended: what was held back to be written together is to be written. `false`: no room; call it again after a write has ended.
    fn finish(&mut self) -> Result<bool, StreamFault>;
    /// The next write. It stays the kernel's until [`StreamKernel::write_done`].
    fn poll_write(&mut self) -> Option<StreamWrite<'_>>;
    /// A write has ended.
    fn write_done(&mut self, tag: usize);
}

//! Kernels that a stream passes through: StRoM's RPC WRITE. Bytes come in pieces of any length; writes to the host's
//! memory go out.
//!
//! | where | how a stream gets to the kernel |
//! |---|---|
//! | in the NIC of the receiver | RPC WRITEs: [`open_stream`] |
//! | on the cores of a DPU | messages, each answered when its bytes were taken: [`piece`] |
//! | at the sender, before it leaves | a [`Tap`] sees the bytes: [`KernelClient::send_stream_through`](crate::client::KernelClient::send_stream_through) |
//! | on this machine, without a network | [`OpenStream`](open_stream::OpenStream) and memory: [`local`](crate::local) |
//!
//! Sans-IO like the rest of the crate: [`StreamKernel::take`] takes arrived bytes, [`StreamKernel::poll_write`] emits
//! writes, and [`StreamKernel::write_done`] reports that a write has ended. A kernel without room takes fewer bytes
//! than it was given; its caller then carries out writes before it continues, and a client that depends on credits
//! waits.

pub mod hyper_log_log;
pub mod open_stream;
pub mod piece;
pub mod shuffle;

use crate::grant::Writable;
use core::fmt;

/// Bytes to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamWrite<'a> {
    /// To be passed to [`StreamKernel::write_done`].
    pub tag: usize,
    /// Destination.
    pub to: Writable,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Why a stream cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFault {
    /// A partition has filled its part of the region. Nothing was written beyond it.
    PartitionFull {
        /// Its number.
        partition: usize,
        /// Capacity in bytes.
        capacity: u64,
    },
    /// The stream ended within a value.
    Incomplete {
        /// Bytes of the value that arrived.
        bytes: usize,
    },
    /// More bytes came than the region holds, or it is not writable.
    Region {
        /// Offset of the next byte to write, from the start of the region.
        offset: u64,
    },
}

impl fmt::Display for StreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PartitionFull { partition, capacity } => {
                write!(f, "partition {partition} is full ({capacity} bytes): count its values beforehand")
            }
            Self::Incomplete { bytes } => write!(f, "the stream ended {bytes} bytes into a value of 8"),
            Self::Region { offset } => write!(f, "offset {offset:#x} may not be written: see the grant"),
        }
    }
}

impl core::error::Error for StreamFault {}

/// What sees a stream pass and changes nothing, such as a
/// [`ValueCounter`](hyper_log_log::ValueCounter) or a closure.
pub trait Tap {
    /// The next bytes, in pieces of any length.
    fn see(&mut self, bytes: &[u8]);
}

impl<F: FnMut(&[u8])> Tap for F {
    fn see(&mut self, bytes: &[u8]) {
        self(bytes);
    }
}

/// A kernel that a stream passes through.
pub trait StreamKernel {
    /// Takes bytes and returns how many it took: fewer than it was given if it has no room
    /// until a write has ended.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, StreamFault>;
    /// The stream has ended: the kernel hands out the data that it has held back to combine writes. `false`: no
    /// room; call it again after a write has ended.
    fn finish(&mut self) -> Result<bool, StreamFault>;
    /// The next write. The kernel owns its bytes until [`StreamKernel::write_done`].
    fn poll_write(&mut self) -> Option<StreamWrite<'_>>;
    /// A write has ended.
    fn write_done(&mut self, tag: usize);
}

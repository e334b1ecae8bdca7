//! The device's view of its host.

use core::fmt;

/// The device's access to host memory: DMA. Every access may fault.
pub trait HostMemory {
    /// Reads `buffer.len()` bytes at I/O virtual address `iova`.
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault>;
    /// Writes `bytes` at I/O virtual address `iova`, the last byte last.
    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault>;
}

/// A DMA access outside any mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaFault {
    /// First address of the access.
    pub iova: u64,
    /// Length in bytes.
    pub length: usize,
    /// Whether it was a write.
    pub write: bool,
}

impl fmt::Display for DmaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.write { "write" } else { "read" };
        write!(f, "DMA {way} of {} bytes at {:#x}: not mapped", self.length, self.iova)
    }
}

impl core::error::Error for DmaFault {}

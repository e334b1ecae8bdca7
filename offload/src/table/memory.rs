//! The memory that holds a table.

use super::error::MemoryFault;

/// Memory that holds a table. Offsets count from the start of the table.
pub trait TableMemory {
    /// Bytes of the memory.
    fn length(&self) -> u64;
    /// Copies bytes out.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault>;
    /// The bytes themselves, if the memory can lend them; [`TableMemory::read`] copies them in any case.
    fn lend(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let _ = (offset, length);
        None
    }
    /// Copies bytes in. Aligned words of 8 bytes must reach readers whole.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault>;
    /// Orders writes: readers see what was written before this call before what is written after it.
    fn order(&mut self) {
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
    }
}

impl TableMemory for &mut [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        let range = slice_range(offset, buffer.len())?;
        buffer.copy_from_slice(self.get(range).ok_or(MemoryFault { offset, length: buffer.len() })?);
        Ok(())
    }
    fn lend(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.get(slice_range(offset, length).ok()?)
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let range = slice_range(offset, bytes.len())?;
        self.get_mut(range).ok_or(MemoryFault { offset, length: bytes.len() })?.copy_from_slice(bytes);
        Ok(())
    }
}

fn slice_range(offset: u64, length: usize) -> Result<core::ops::Range<usize>, MemoryFault> {
    let fault = MemoryFault { offset, length };
    let begin = usize::try_from(offset).map_err(|_| fault)?;
    Ok(begin..begin.checked_add(length).ok_or(fault)?)
}

//! Queue buffers: a stretch of bytes on host pages that need not be contiguous.

use super::{DmaFault, HostMemory};

/// A queue buffer as its page list describes it. Offsets are within the buffer, not within the first page.
#[derive(Debug, Clone)]
pub(crate) struct PagedBuffer {
    /// Page addresses; empty if the buffer is contiguous.
    pages: Vec<u64>,
    /// Address of byte 0, valid for the whole buffer if it is contiguous.
    base: u64,
    /// Offset of byte 0 in the first page.
    lead: u64,
    log_page: u8,
    length: u64,
}

impl PagedBuffer {
    /// A buffer of `length` bytes that starts `lead` bytes into the first of `pages`.
    pub(crate) fn new(pages: &[u64], log_page: u8, lead: u64, length: u64) -> Self {
        let contiguous = pages.windows(2).all(|w| w[0].checked_add(1 << log_page) == Some(w[1]));
        let base = pages.first().copied().unwrap_or(0).wrapping_add(lead);
        Self { pages: if contiguous { Vec::new() } else { pages.to_vec() }, base, lead, log_page, length }
    }

    /// The address of `offset` and how many bytes follow it contiguously; `None` outside the buffer.
    fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        let left = self.length.checked_sub(offset).filter(|&left| left > 0)?;
        if self.pages.is_empty() {
            return Some((self.base.wrapping_add(offset), left));
        }
        let at = self.lead + offset;
        let within = at & ((1 << self.log_page) - 1);
        let page = *self.pages.get((at >> self.log_page) as usize)?;
        Some((page.wrapping_add(within), left.min((1 << self.log_page) - within)))
    }

    /// Reads bytes from `offset` on.
    pub(crate) fn read<M: HostMemory>(
        &self,
        memory: &mut M,
        mut offset: u64,
        mut bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        while !bytes.is_empty() {
            let Some((iova, run)) = self.locate(offset) else {
                return Err(DmaFault { iova: self.base, length: bytes.len(), write: false });
            };
            let take = bytes.len().min(usize::try_from(run).unwrap_or(usize::MAX));
            let (now, rest) = bytes.split_at_mut(take);
            memory.read(iova, now)?;
            bytes = rest;
            offset += take as u64;
        }
        Ok(())
    }

    /// Writes one queue entry. An entry never crosses a page: its size divides the page and its alignment.
    pub(crate) fn write_entry<M: HostMemory>(
        &self,
        memory: &mut M,
        offset: u64,
        bytes: &[u8; 64],
    ) -> Result<(), DmaFault> {
        match self.locate(offset) {
            Some((iova, run)) if run >= 64 => memory.write(iova, bytes),
            _ => Err(DmaFault { iova: self.base, length: 64, write: true }),
        }
    }
}

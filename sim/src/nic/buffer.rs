//! Queue buffers: consecutive bytes on host pages that may be anywhere in memory.

use super::page_list::{BudgetUsedUp, PageBudget, PageList};
use super::user_memory::{CutError, Need, PageRun, UserMemory};
use super::{DmaFault, HostMemory};
use std::sync::Arc;

/// A queue buffer as its page list describes it. Offsets are within the buffer, not within the first page.
#[derive(Debug, Clone)]
pub(crate) struct PagedBuffer {
    /// Page addresses; `None` if the buffer is contiguous.
    pages: Option<PageList>,
    /// Address of byte 0; valid for the whole buffer if it is contiguous.
    base: u64,
    /// Offset of byte 0 in the first page.
    lead: u64,
    log_page: u8,
    length: u64,
    /// The user memory object that contains it.
    _held: Option<Arc<UserMemory>>,
}

impl PagedBuffer {
    /// A buffer of `length` bytes that starts where `run` does. If its pages are contiguous, it keeps no page
    /// list.
    pub(crate) fn new(budget: &PageBudget, run: PageRun, length: u64) -> Result<Self, BudgetUsedUp> {
        let PageRun { pages, log_page, lead } = run;
        let contiguous = pages.windows(2).all(|w| w[0].checked_add(1 << log_page) == Some(w[1]));
        let base = pages.first().copied().unwrap_or(0).wrapping_add(lead);
        let pages = if contiguous { None } else { Some(budget.hold(pages)?) };
        Ok(Self { pages, base, lead, log_page, length, _held: None })
    }

    /// The buffer of `length` bytes at `offset` of `object`. It keeps the object alive.
    pub(super) fn cut(
        object: &Arc<UserMemory>,
        offset: u64,
        length: u64,
        need: Need,
    ) -> Result<Self, CutError> {
        let run = object.stretch(offset, length, need)?;
        let buffer = Self::new(object.budget(), run, length).map_err(|BudgetUsedUp| CutError::Budget)?;
        Ok(Self { _held: Some(object.clone()), ..buffer })
    }

    /// The I/O virtual address of byte 0.
    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    /// The address of `offset` and how many bytes follow it contiguously; `None` outside the buffer.
    fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        let left = self.length.checked_sub(offset).filter(|&left| left > 0)?;
        let Some(pages) = &self.pages else {
            return Some((self.base.wrapping_add(offset), left));
        };
        let at = self.lead + offset;
        let within = at & ((1 << self.log_page) - 1);
        let page = *pages.get((at >> self.log_page) as usize)?;
        Some((page.wrapping_add(within), left.min((1 << self.log_page) - within)))
    }

    /// Reads bytes from `offset` on.
    pub(crate) fn read<M: HostMemory + ?Sized>(
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
    pub(crate) fn write_entry<M: HostMemory + ?Sized>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::doorbell_record::DoorbellRecord;

    fn list(pages: &[u64]) -> PageList {
        PageBudget::default().hold(pages.to_vec()).unwrap()
    }

    /// A buffer on pages of 4 KiB.
    fn paged(pages: &[u64], lead: u64, length: u64) -> PagedBuffer {
        let run = PageRun { pages: pages.to_vec(), log_page: 12, lead };
        PagedBuffer::new(&PageBudget::default(), run, length).unwrap()
    }

    /// Records the pieces of each access.
    struct Log(Vec<(u64, usize)>);

    impl HostMemory for Log {
        fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
            self.0.push((iova, buffer.len()));
            Ok(())
        }
        fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
            self.0.push((iova, bytes.len()));
            Ok(())
        }
    }

    fn read(buffer: &PagedBuffer, offset: u64, length: usize) -> Option<Vec<(u64, usize)>> {
        let mut log = Log(Vec::new());
        buffer.read(&mut log, offset, &mut vec![0; length]).ok().map(|()| log.0)
    }

    #[test]
    fn contiguous_pages_are_one_piece() {
        let buffer = paged(&[0x4000, 0x5000, 0x6000], 0x80, 0x2000);
        assert_eq!(read(&buffer, 0, 0x2000), Some(vec![(0x4080, 0x2000)]));
        assert_eq!(read(&buffer, 1, 0x2000), None, "beyond the end");
        assert_eq!(read(&buffer, u64::MAX, 1), None);
    }

    #[test]
    fn scattered_pages_are_walked() {
        let buffer = paged(&[0x4000, 0x9000, 0x6000], 0xfc0, 0x1080);
        assert_eq!(read(&buffer, 0, 0x1080), Some(vec![(0x4fc0, 0x40), (0x9000, 0x1000), (0x6000, 0x40)]));
        assert_eq!(read(&buffer, 0x1040, 0x40), Some(vec![(0x6000, 0x40)]));
        assert_eq!(read(&buffer, 0x1040, 0x41), None);
        let mut log = Log(Vec::new());
        buffer.write_entry(&mut log, 0x40, &[0; 64]).unwrap();
        assert_eq!(log.0, [(0x9000, 64)]);
        assert!(buffer.write_entry(&mut log, 0x1080, &[0; 64]).is_err());
        assert!(paged(&[], 0, 0).write_entry(&mut log, 0, &[0; 64]).is_err());
    }

    fn object() -> Arc<UserMemory> {
        Arc::new(UserMemory::new(list(&[0x4003, 0x9001, 0x6003]), 12, 0x40))
    }

    #[test]
    fn a_cut_begins_at_its_offset_in_the_pages() {
        let at = |offset| PagedBuffer::cut(&object(), offset, 8, Need::Read).map(|buffer| buffer.base());
        assert_eq!(at(0), Ok(0x4040));
        assert_eq!(at(0xfc0), Ok(0x9000), "the first byte of the second page");
        assert_eq!(at(0x2fb8), Ok(0x6ff8), "the last 8 bytes");
        assert_eq!(at(0x2fb9), Err(CutError::Range));
        assert_eq!(at(u64::MAX), Err(CutError::Range));
        assert_eq!(at(u64::MAX - 0x41), Err(CutError::Range));
    }

    #[test]
    fn every_page_of_a_stretch_needs_the_right() {
        let cut = |offset, length| PagedBuffer::cut(&object(), offset, length, Need::Write).map(drop);
        assert_eq!(cut(0, 0xfc0), Ok(()));
        assert_eq!(cut(0, 0xfc1), Err(CutError::Right), "the second page may only be read");
        assert_eq!(cut(0x1fc0, 0x1000), Ok(()));
    }

    #[test]
    fn parts_of_an_object_keep_it_alive() {
        let object = object();
        let buffer = PagedBuffer::cut(&object, 0, 64, Need::Read).unwrap();
        let second = buffer.clone();
        let record = DoorbellRecord::within(object.clone(), 0x4040);
        assert_eq!(Arc::strong_count(&object), 4);
        drop((buffer, second, record));
        assert_eq!(Arc::strong_count(&object), 1);
    }
}

//! User memory objects: host pages that have a number, from which queues and doorbell records are cut.
//!
//! What is cut holds its object, so that a number in use cannot be taken away and none is counted by hand.

use super::buffer::PagedBuffer;
use std::sync::Arc;

/// Flags in a translation entry: the device may read, the device may write.
const READ: u64 = 1;
const WRITE: u64 = 2;
/// Both; the rest of an entry is an address.
pub(crate) const ENTRY_FLAGS: u64 = READ | WRITE;

/// What the device does to a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It only reads: work queues and doorbell records.
    Read,
    /// It only writes: completion queues.
    Write,
}

/// Why a stretch cannot be cut from an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutError {
    /// It leaves the object.
    Range,
    /// An entry of it lacks the right.
    Right,
}

/// One object.
#[derive(Debug)]
pub(crate) struct UserMemory {
    /// Addresses with their flags.
    entries: Vec<u64>,
    log_page: u8,
    /// Where byte 0 lies in the first page.
    lead: u64,
}

impl UserMemory {
    /// An object on pages of `1 << log_page` bytes that begins `lead` bytes into the first of them and ends with the last.
    pub(crate) const fn new(entries: Vec<u64>, log_page: u8, lead: u64) -> Self {
        Self { entries, log_page, lead }
    }

    /// The buffer of `length` bytes at `offset`. It holds the object.
    pub(crate) fn cut(
        self: &Arc<Self>,
        offset: u64,
        length: u64,
        need: Need,
    ) -> Result<PagedBuffer, CutError> {
        let start = self.lead.checked_add(offset).ok_or(CutError::Range)?;
        let end = start.checked_add(length).ok_or(CutError::Range)?;
        let (first, behind) = (start >> self.log_page, end.div_ceil(1 << self.log_page));
        let place = |index: u64| usize::try_from(index).map_err(|_| CutError::Range);
        let entries = self.entries.get(place(first)?..place(behind)?).ok_or(CutError::Range)?;
        let flag = if need == Need::Write { WRITE } else { READ };
        if entries.iter().any(|entry| entry & flag == 0) {
            return Err(CutError::Right);
        }
        let pages: Vec<u64> = entries.iter().map(|entry| entry & !ENTRY_FLAGS).collect();
        let lead = start - (first << self.log_page);
        Ok(PagedBuffer::new(&pages, self.log_page, lead, length).holding(self.clone()))
    }
}

/// A doorbell record: 8 bytes that never cross a page.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// Its I/O virtual address.
    pub(crate) address: u64,
    /// The object that it is part of.
    _held: Option<Arc<UserMemory>>,
}

impl Record {
    /// A record at an address.
    pub(crate) const fn at(address: u64) -> Self {
        Self { address, _held: None }
    }

    /// A record in an object.
    pub(crate) const fn within(object: Arc<UserMemory>, address: u64) -> Self {
        Self { address, _held: Some(object) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Arc<UserMemory> {
        Arc::new(UserMemory::new(vec![0x4003, 0x9001, 0x6003], 12, 0x40))
    }

    #[test]
    fn a_stretch_lies_where_its_offset_says() {
        let at = |offset| object().cut(offset, 8, Need::Read).map(|buffer| buffer.base());
        assert_eq!(at(0), Ok(0x4040));
        assert_eq!(at(0xfc0), Ok(0x9000), "the first byte of the second page");
        assert_eq!(at(0x2fb8), Ok(0x6ff8), "the last 8 bytes");
        assert_eq!(at(0x2fb9), Err(CutError::Range));
        assert_eq!(at(u64::MAX), Err(CutError::Range));
        assert_eq!(at(u64::MAX - 0x41), Err(CutError::Range));
    }

    #[test]
    fn every_page_of_a_stretch_needs_the_right() {
        let cut = |offset, length| object().cut(offset, length, Need::Write).map(drop);
        assert_eq!(cut(0, 0xfc0), Ok(()));
        assert_eq!(cut(0, 0xfc1), Err(CutError::Right), "the second page may only be read");
        assert_eq!(cut(0x1fc0, 0x1000), Ok(()));
    }

    #[test]
    fn what_is_cut_holds_its_object() {
        let object = object();
        let buffer = object.cut(0, 64, Need::Read).unwrap();
        let second = buffer.clone();
        let record = Record::within(object.clone(), 0x4040);
        assert_eq!(Arc::strong_count(&object), 4);
        drop((buffer, second, record));
        assert_eq!(Arc::strong_count(&object), 1);
    }
}

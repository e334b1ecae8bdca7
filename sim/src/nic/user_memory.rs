//! User memory objects (UMEM): numbered ranges of host pages from which queues and doorbell records are cut.
//!
//! Each part holds a reference to its object, so a UMEM in use cannot be destroyed and needs no separate
//! count.

use super::page_list::{PageBudget, PageList};

/// Access rights in a translation entry: the device may read, the device may write.
const READ: u64 = 1;
const WRITE: u64 = 2;
/// Both; the rest of an entry is an address.
pub(crate) const ENTRY_FLAGS: u64 = READ | WRITE;

/// First number of a user memory object: a field that was never set reads as zero.
pub(crate) const FIRST_UMEM: u32 = 1;

/// What the device does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It only reads: work queues and doorbell records.
    Read,
    /// It only writes: completion queues.
    Write,
}

/// Why a range cannot be cut from an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutError {
    /// It exceeds the object.
    Range,
    /// One of its entries lacks the access right.
    Right,
    /// The budget for page lists has no room for its pages.
    Budget,
}

/// Pages of an object, and the offset in the first of them at which a range begins.
#[derive(Debug)]
pub(crate) struct PageRun {
    /// Host addresses.
    pub(crate) pages: Vec<u64>,
    /// log2 of the page size in bytes.
    pub(crate) log_page: u8,
    /// Bytes of the first page before the range.
    pub(crate) lead: u64,
}

/// One object.
#[derive(Debug)]
pub(crate) struct UserMemory {
    /// Addresses with their access rights.
    entries: PageList,
    log_page: u8,
    /// Offset of byte 0 in the first page.
    lead: u64,
}

impl UserMemory {
    /// An object on pages of `1 << log_page` bytes. It begins `lead` bytes into the first page and ends with
    /// the last.
    pub(crate) const fn new(entries: PageList, log_page: u8, lead: u64) -> Self {
        Self { entries, log_page, lead }
    }

    /// The budget that its entries count against.
    pub(crate) fn budget(&self) -> &PageBudget {
        self.entries.budget()
    }

    /// The pages under `length` bytes at `offset`, if they grant the device the access that it needs.
    pub(crate) fn stretch(&self, offset: u64, length: u64, need: Need) -> Result<PageRun, CutError> {
        let start = self.lead.checked_add(offset).ok_or(CutError::Range)?;
        let end = start.checked_add(length).ok_or(CutError::Range)?;
        let (first, behind) = (start >> self.log_page, end.div_ceil(1 << self.log_page));
        let place = |index: u64| usize::try_from(index).map_err(|_| CutError::Range);
        let entries = self.entries.get(place(first)?..place(behind)?).ok_or(CutError::Range)?;
        let flag = if need == Need::Write { WRITE } else { READ };
        if entries.iter().any(|entry| entry & flag == 0) {
            return Err(CutError::Right);
        }
        let pages = entries.iter().map(|entry| entry & !ENTRY_FLAGS).collect();
        Ok(PageRun { pages, log_page: self.log_page, lead: start - (first << self.log_page) })
    }
}

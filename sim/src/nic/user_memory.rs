//! User memory objects: host pages that have a number, from which queues and doorbell records are cut.
//!
//! What is cut holds its object, so that a number in use cannot be taken away and none is counted by hand.

/// Flags in a translation entry: the device may read, the device may write.
const READ: u64 = 1;
const WRITE: u64 = 2;
/// Both; the rest of an entry is an address.
pub(crate) const ENTRY_FLAGS: u64 = READ | WRITE;

/// First number of a user memory object: zero is what a field says that was never set.
pub(crate) const FIRST_UMEM: u32 = 1;

/// Entries that all objects of a device may have together: 2^25 bytes, enough for 16 GiB in pages of 4 KiB.
pub(crate) const ENTRY_BUDGET: usize = 1 << 22;

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

/// Pages of an object, and where on the first of them a stretch begins.
#[derive(Debug)]
pub(super) struct PageRun {
    /// Host addresses.
    pub(super) pages: Vec<u64>,
    /// Logarithm of the bytes of a page.
    pub(super) log_page: u8,
    /// Bytes of the first page before the stretch.
    pub(super) lead: u64,
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

    /// Entries that it has.
    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// The pages under `length` bytes at `offset`, if the device may do there what it needs to.
    pub(super) fn stretch(&self, offset: u64, length: u64, need: Need) -> Result<PageRun, CutError> {
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

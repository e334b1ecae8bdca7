//! The records of one response. Each starts at a multiple of 8 bytes (IBTA v1.4 §15.2.1.1).

use crate::wire::management::administration::status;
use bareverbs_prm::field::Layout;
use zerocopy::{Immutable, IntoBytes};

/// Maximum number of bytes of records in one response.
const MOST_BYTES: usize = 4 << 20;

/// The list; see the module.
pub(super) struct RecordList {
    pub(super) bytes: Vec<u8>,
    /// Distance between the starts of consecutive records in bytes.
    pub(super) stride: usize,
}

impl RecordList {
    pub(super) const fn new(size: usize) -> Self {
        Self { bytes: Vec::new(), stride: size.next_multiple_of(8) }
    }

    pub(super) fn of<T: IntoBytes + Immutable + Layout>(
        records: impl IntoIterator<Item = T>,
    ) -> Result<Self, u16> {
        let mut list = Self::new(T::SIZE);
        records.into_iter().try_for_each(|record| list.push(&record))?;
        Ok(list)
    }

    /// Adds a record, if there is room.
    pub(super) fn push(&mut self, record: &(impl IntoBytes + Immutable)) -> Result<(), u16> {
        let end = self.bytes.len() + self.stride;
        if end > MOST_BYTES {
            return Err(status::NO_RESOURCES);
        }
        self.bytes.extend_from_slice(record.as_bytes());
        self.bytes.resize(end, 0);
        Ok(())
    }

    /// Keeps the first `most` records.
    pub(super) fn keep(&mut self, most: usize) {
        self.bytes.truncate(most.saturating_mul(self.stride));
    }

    /// Number of records.
    pub(super) const fn count(&self) -> usize {
        self.bytes.len() / self.stride
    }
}

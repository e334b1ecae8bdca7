//! The number by which a completion entry names its queue pair or shared receive queue.

/// A `user_index`: the number of a record, and above it a generation that tells apart the owners of that record.
///
/// Both together have 24 bits, and the field holds their bytes in reverse order. So the dword of an entry, which is
/// big-endian, is this number and the offset of its record at once, without a byte swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserIndex(u32);

impl UserIndex {
    /// The `user_index` with this record number and generation (24 bits).
    pub const fn new(number: u32) -> Self {
        Self(number << 8)
    }

    /// From the field of an entry or a context.
    pub const fn from_field(field: u32) -> Self {
        Self(field.swap_bytes() & !0xff)
    }

    /// From the dword of an entry, in memory order. The reserved byte beside the field is kept: it matches no record
    /// unless it is zero.
    #[inline(always)]
    pub const fn from_dword(dword: u32) -> Self {
        Self(u32::from_le(dword))
    }

    /// The field of a context.
    pub const fn field(self) -> u32 {
        self.0.swap_bytes()
    }

    /// The number of its record among `records`, a power of two.
    #[inline(always)]
    pub const fn record(self, records: usize) -> usize {
        (self.0 >> 8) as usize & (records - 1)
    }

    /// Record number and generation, shifted by a byte.
    #[inline(always)]
    pub(crate) const fn shifted(self) -> u32 {
        self.0
    }

    /// From what [`Self::shifted`] returned.
    #[inline(always)]
    pub(crate) const fn from_shifted(shifted: u32) -> Self {
        Self(shifted)
    }
}

/// The number of a record, shifted as in a [`UserIndex`], so that it is an offset at once, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace(u32);

impl RecordPlace {
    /// The place of record `number`, below 2^24.
    pub const fn new(number: usize) -> Self {
        Self((number as u32) << 8)
    }

    /// The number of the record.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.0 >> 8
    }

    #[inline(always)]
    pub(crate) const fn shifted(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::cqe::CompletionEntry;
    use zerocopy::IntoBytes;

    #[test]
    fn the_dword_of_an_entry_is_the_number_shifted_by_a_byte() {
        let index = UserIndex::new(0x12_3456);
        assert_eq!((index.field(), index.record(16)), (0x56_3412, 6));
        let mut entry = CompletionEntry::new();
        entry.set_user_index(index.field());
        let at = CompletionEntry::FIELDS.user_index.offset() & !3;
        let dword = u32::from_ne_bytes(entry.as_bytes()[at..at + 4].try_into().unwrap());
        assert_eq!(UserIndex::from_dword(dword), index);
        assert_eq!(UserIndex::from_field(0xff56_3412), index, "without what is beside the field");
        assert_ne!(UserIndex::from_dword(dword | 0x01_u32.to_le()), index, "the reserved byte");
    }
}

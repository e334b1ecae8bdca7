//! Partition keys (P_Keys). IBTA v1.4 §10.9.1.1.

/// P_Key of a full member of the default partition.
pub const DEFAULT_PARTITION_KEY: u16 = 0xffff;
/// The membership bit, set for a full member. The other 15 bits are the number of the partition.
pub(crate) const MEMBERSHIP_BIT: u16 = 1 << 15;

/// Whether two P_Keys belong to the same partition and at least one is of a full member (IBTA v1.4 §10.9.3).
#[inline]
pub(crate) const fn is_same_partition(one: u16, other: u16) -> bool {
    let partition = one & !MEMBERSHIP_BIT;
    partition != 0 && partition == other & !MEMBERSHIP_BIT && (one | other) & MEMBERSHIP_BIT != 0
}

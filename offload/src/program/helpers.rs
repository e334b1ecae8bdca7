//! Functions that a program may call. They read its memory, bounded and charged, and have no state.

use crate::kernels::checksum::{crc32c, crc64};
use core::fmt;

/// Bytes that a helper works on for one unit of fuel.
pub const BYTES_PER_FUEL: u32 = 16;

/// A function that a program may call by its number.
///
/// ```
/// use bareverbs_offload::program::Helper;
///
/// assert_eq!(Helper::from_number(1), Some(Helper::Crc32c));
/// assert_eq!(Helper::from_number(4), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    /// 1: `crc32c(bytes, length)`: the Castagnoli checksum.
    Crc32c,
    /// 2: `crc64(bytes, length)`: the reflected "Jones" checksum of StRoM's consistency kernel.
    Crc64,
    /// 3: `key_eq(one, other, length)`: 1 if both have the same bytes, else 0.
    KeyEqual,
}

impl Helper {
    /// All helpers.
    pub const ALL: [Self; 3] = [Self::Crc32c, Self::Crc64, Self::KeyEqual];

    /// The number in the call instruction.
    pub const fn number(self) -> i32 {
        self as i32 + 1
    }

    /// The helper with this number.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|helper| helper.number() == number)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Crc64 => "crc64",
            Self::KeyEqual => "key_eq",
        }
    }

    /// The result for one range, or two of the same length.
    pub(super) fn apply(self, one: &[u8], other: &[u8]) -> u64 {
        match self {
            Self::Crc32c => crc32c(one).into(),
            Self::Crc64 => crc64(one),
            Self::KeyEqual => (one == other).into(),
        }
    }
}

impl fmt::Display for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

//! Functions that a program may call. They read its memory, bounded and charged, and have no state.

use super::fault::Fault;
use super::memory::Memory;
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
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        Self::ALL.get(index).copied()
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

/// Calls a helper at instruction `at` and returns the fuel that it used. Afterwards r1 to r5 are zero, so that no
/// program can rely on their values.
#[inline(never)]
pub(super) fn call(
    at: usize,
    number: i32,
    registers: &mut [u64; 16],
    memory: &Memory<'_>,
    fuel: u32,
) -> Result<u32, Fault> {
    let helper = Helper::from_number(number).ok_or(Fault::Unverified { instruction: at })?;
    let [_, first, second, third, ..] = *registers;
    let length = if helper == Helper::KeyEqual { third } else { second };
    let outside = Fault::Outside { instruction: at, address: first, bytes: u32::MAX, write: false };
    let bytes = u32::try_from(length).map_err(|_| outside)?;
    let one = memory.range(at, first, bytes)?;
    let other = if helper == Helper::KeyEqual { memory.range(at, second, bytes)? } else { &[] };
    let used = bytes.div_ceil(BYTES_PER_FUEL);
    if used > fuel {
        return Err(Fault::OutOfFuel { instruction: at });
    }
    registers[0] = helper.apply(one, other);
    registers[1..6].fill(0);
    Ok(used)
}

impl fmt::Display for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

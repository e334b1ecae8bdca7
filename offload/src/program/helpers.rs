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

    /// Works on what registers r1 to r3 of a call name, and returns the result and the fuel that it used.
    ///
    /// `range` finds the bytes at an address, if they are all in one segment.
    #[inline]
    pub fn call<'m>(
        self,
        [first, second, third]: [u64; 3],
        fuel: u32,
        range: impl Fn(u64, u32) -> Option<&'m [u8]>,
    ) -> Result<(u64, u32), Unable> {
        let compares = self == Self::KeyEqual;
        let length = if compares { third } else { second };
        let outside = |address, bytes| Unable::Outside { address, bytes };
        let bytes = u32::try_from(length).map_err(|_| outside(first, u32::MAX))?;
        let one = range(first, bytes).ok_or(outside(first, bytes))?;
        let other = if compares { range(second, bytes).ok_or(outside(second, bytes))? } else { &[] };
        let used = bytes.div_ceil(BYTES_PER_FUEL);
        if used > fuel {
            return Err(Unable::OutOfFuel);
        }
        let result = match self {
            Self::Crc32c => crc32c(one).into(),
            Self::Crc64 => crc64(one),
            Self::KeyEqual => (one == other).into(),
        };
        Ok((result, used))
    }
}

/// Why a helper cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unable {
    /// The bytes are not all in one segment.
    Outside {
        /// The address of the first one.
        address: u64,
        /// How many they are, at most [`u32::MAX`].
        bytes: u32,
    },
    /// The fuel does not last.
    OutOfFuel,
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
    let called = helper.call([first, second, third], fuel, |address, bytes| memory.range(address, bytes));
    let (result, used) = called.map_err(|unable| match unable {
        Unable::Outside { address, bytes } => {
            Fault::Outside { instruction: at, address, bytes, write: false }
        }
        Unable::OutOfFuel => Fault::OutOfFuel { instruction: at },
    })?;
    registers[0] = result;
    registers[1..6].fill(0);
    Ok(used)
}

impl fmt::Display for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

//! Printing of single fields for `Debug`, one function for each kind of [`layout!`](crate::layout). Fields that are zero are left
//! out.

use super::FieldValue;
use core::fmt::{Debug, DebugStruct};

/// Bits of a dword, in hexadecimal.
pub fn bits<T: FieldValue + Debug>(shown: &mut DebugStruct<'_, '_>, name: &str, value: T) {
    if value.to_field() != 0 {
        shown.field(name, &format_args!("{value:#x?}"));
    }
}

/// Another meaning of bits that are shown already.
pub fn or<T: FieldValue>(_: &mut DebugStruct<'_, '_>, _: &str, _: T) {}

/// A number of two dwords, in hexadecimal.
pub fn wide(shown: &mut DebugStruct<'_, '_>, name: &str, value: u64) {
    if value != 0 {
        shown.field(name, &format_args!("{value:#x}"));
    }
}

/// A run of bytes, in hexadecimal.
pub fn bytes<const LENGTH: usize>(shown: &mut DebugStruct<'_, '_>, name: &str, value: [u8; LENGTH]) {
    if value != [0; LENGTH] {
        shown.field(name, &format_args!("{value:02x?}"));
    }
}

/// Another structure.
pub fn part(shown: &mut DebugStruct<'_, '_>, name: &str, value: &dyn Debug) {
    shown.field(name, value);
}

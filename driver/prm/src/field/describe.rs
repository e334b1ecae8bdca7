//! Descriptions of single fields, one function for each kind of [`layout!`](crate::layout). `dword` is the
//! number of the dword in which the field begins.

use super::{ByteOrder, FieldInfo, FieldValue, Layout};

/// Bits `high:low` of a dword.
///
/// # Panics
/// At compile time, if `T` is too narrow, or if the bits are not of a dword or in the wrong order.
pub const fn bits<T: FieldValue>(path: &'static str, dword: u32, high: u32, low: u32) -> FieldInfo {
    assert!(high < u32::BITS && low <= high, "a dword has bits 31:0, and the high one comes first");
    assert!(T::WIDTH > high - low, "the type is too narrow");
    let bit_offset = (dword + 1) * u32::BITS - 1 - high;
    FieldInfo { bit_offset, bit_width: high - low + 1, ..number::<T>(path) }
}

/// Another meaning of bits that another field declares.
pub const fn or<T: FieldValue>(path: &'static str, dword: u32, high: u32, low: u32) -> FieldInfo {
    FieldInfo { is_alternative: true, ..bits::<T>(path, dword, high, low) }
}

/// A number of whole dwords.
pub const fn wide<T>(path: &'static str, dword: u32) -> FieldInfo {
    FieldInfo { bit_offset: dword * u32::BITS, ..number::<T>(path) }
}

/// A run of bytes.
pub const fn bytes<const LENGTH: usize>(path: &'static str, dword: u32) -> FieldInfo {
    FieldInfo { order: ByteOrder::Memory, ..wide::<[u8; LENGTH]>(path, dword) }
}

/// Another structure.
pub const fn part<T: Layout>(path: &'static str, dword: u32) -> FieldInfo {
    FieldInfo { order: ByteOrder::Memory, part: Some(&T::INFO), ..wide::<T>(path, dword) }
}

/// A number as wide as its type, at the start of the structure.
const fn number<T>(path: &'static str) -> FieldInfo {
    let bit_width = size_of::<T>() as u32 * u8::BITS;
    FieldInfo {
        path,
        bit_offset: 0,
        bit_width,
        order: ByteOrder::BigEndian,
        part: None,
        is_alternative: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the type is too narrow")]
    fn a_type_that_cannot_hold_the_field_is_refused() {
        bits::<u8>("wide", 0, 8, 0);
    }

    #[test]
    #[should_panic(expected = "the high one comes first")]
    fn bits_the_wrong_way_round_are_refused() {
        bits::<u8>("reversed", 0, 3, 4);
    }
}

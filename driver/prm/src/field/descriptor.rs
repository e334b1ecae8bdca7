//! Field descriptors: the position of a field, as a constant. [`layout!`](crate::layout) emits one for each field, so
//! that code that reads single fields of a ring entry, or builds an entry word by word, takes its offsets from the
//! checked layout.
//!
//! ```
//! use bareverbs_prm::cqe::CompletionEntry;
//! use bareverbs_prm::field::BitRange;
//!
//! assert_eq!(CompletionEntry::FIELDS.byte_count.offset(), 44);
//! const COUNTER: BitRange = CompletionEntry::FIELDS.wqe_counter.in_word(7);
//! assert_eq!(COUNTER.get(COUNTER.put(0x1234)), 0x1234);
//! ```

use super::info::{ByteOrder, FieldInfo};
use core::ops::Range;

/// Bits of a byte.
const BYTE: u32 = 8;
/// Bits of the words that entries are built of.
const WORD: u32 = 64;
/// Bits of the dwords that structures are declared in.
const DWORD: u32 = 32;
/// Bits of a key that hold the width; see [`Field::key`].
const KEY_WIDTH: u32 = 16;

/// The position of a field in its structure.
///
/// ```
/// use bareverbs_prm::cqe::CompletionEntry;
/// use bareverbs_prm::field::Field;
///
/// let counter = CompletionEntry::FIELDS.wqe_counter;
/// assert_eq!((counter.offset(), counter.width()), (60, 16));
/// assert_eq!(Field::from_key(counter.key()), counter);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    bit_offset: u32,
    width: u32,
    order: ByteOrder,
}

impl Field {
    /// The descriptor of the first field in `rest`, which is removed from there.
    ///
    /// # Panics
    /// At compile time, if `rest` is empty.
    #[doc(hidden)]
    pub const fn first_of(rest: &mut &[FieldInfo]) -> Self {
        let [info, others @ ..] = *rest else { panic!("a field has no description") };
        *rest = others;
        Self { bit_offset: info.bit_offset, width: info.bit_width, order: info.order }
    }

    /// Width in bits.
    pub const fn width(self) -> u32 {
        self.width
    }

    /// How its bytes are ordered.
    pub const fn order(self) -> ByteOrder {
        self.order
    }

    /// Bytes of the smallest aligned number that holds the whole field: 1, 2, 4 or 8.
    ///
    /// # Panics
    /// At compile time, if it is a run of bytes or straddles two words.
    pub const fn size(self) -> usize {
        let mut bits = BYTE;
        while self.bit_offset / bits != (self.bit_offset + self.width - 1) / bits {
            bits *= 2;
        }
        assert!(bits <= WORD && matches!(self.order, ByteOrder::BigEndian), "the field is no number");
        (bits / BYTE) as usize
    }

    /// Offset in bytes of the number whose size is [`size`](Self::size).
    pub const fn offset(self) -> usize {
        (self.bit_offset / BYTE) as usize / self.size() * self.size()
    }

    /// The bytes of that number in the structure.
    pub const fn bytes(self) -> Range<usize> {
        self.offset()..self.offset() + self.size()
    }

    /// Bits below the field in that number.
    pub const fn shift(self) -> u32 {
        (self.offset() + self.size()) as u32 * BYTE - self.bit_offset - self.width
    }

    /// The bits of the field, right-aligned.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (WORD - self.width)
    }

    /// The bits that the field has of the byte in which it is.
    ///
    /// # Panics
    /// At compile time, if it takes more than one byte.
    pub const fn in_byte(self) -> BitRange {
        self.in_number(self.offset() as u32 * BYTE, BYTE)
    }

    /// The bits that the field has of the big-endian 64-bit word number `index` of its structure.
    ///
    /// # Panics
    /// At compile time, if it is not in that word.
    pub const fn in_word(self, index: usize) -> BitRange {
        self.in_number(index as u32 * WORD, WORD)
    }

    /// The same of the dword number `index`.
    pub const fn in_dword(self, index: usize) -> BitRange {
        self.in_number(index as u32 * DWORD, DWORD)
    }

    const fn in_number(self, start: u32, bits: u32) -> BitRange {
        assert!(self.bit_offset >= start && self.bit_offset + self.width <= start + bits, "another word");
        BitRange { shift: start + bits - self.bit_offset - self.width, mask: self.mask() }
    }

    /// The descriptor packed into a number, which can be a const parameter of a function that loads the field.
    pub const fn key(self) -> u32 {
        assert!(matches!(self.order, ByteOrder::BigEndian), "the field is no number");
        self.bit_offset << KEY_WIDTH | self.width
    }

    /// The descriptor that [`key`](Self::key) was made from.
    pub const fn from_key(key: u32) -> Self {
        let width = key & u32::MAX >> (u32::BITS - KEY_WIDTH);
        Self { bit_offset: key >> KEY_WIDTH, width, order: ByteOrder::BigEndian }
    }
}

/// The bits that a field has of a 64-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitRange {
    shift: u32,
    mask: u64,
}

impl BitRange {
    /// The number with `value` in the field and zeros around it. What does not fit is cut, so that a neighbour is never
    /// touched.
    #[inline(always)]
    pub const fn put(self, value: u64) -> u64 {
        (value & self.mask) << self.shift
    }

    /// The value of the field in `number`.
    #[inline(always)]
    pub const fn get(self, number: u64) -> u64 {
        number >> self.shift & self.mask
    }

    /// `number` with zeros in the field.
    #[inline(always)]
    pub const fn clear(self, number: u64) -> u64 {
        number & !self.put(u64::MAX)
    }

    /// `number` with `value` in the field.
    #[inline(always)]
    pub const fn set(self, number: u64, value: u64) -> u64 {
        self.clear(number) | self.put(value)
    }
}

#[cfg(test)]
#[allow(dead_code, reason = "a layout has more accessors than a test asks")]
mod tests {
    use super::*;
    use crate::field::Layout;
    use crate::layout;
    use zerocopy::IntoBytes;

    layout! {
        /// A structure with a field of each kind.
        pub struct Sample, "sample", 8;
        bits byte / set_byte: u8 = 0[15:8], "byte";
        bits part / set_part: u8 = 0[5:2], "part";
        bits half / set_half: u16 = 1[31:16], "half";
        bits odd / set_odd: u32 = 2[23:0], "odd";
        bits flag / set_flag: bool = 3[31:31], "flag";
        wide whole / set_whole: u64 = 4, "whole";
        bytes tail / set_tail: 4 = 6, "tail";
    }

    #[test]
    fn descriptors_say_what_to_load() {
        let at = |field: Field| (field.offset(), field.size(), field.shift(), field.mask());
        let fields = Sample::FIELDS;
        assert_eq!(at(fields.byte), (2, 1, 0, 0xff));
        assert_eq!(at(fields.part), (3, 1, 2, 0xf));
        assert_eq!(at(fields.half), (4, 2, 0, 0xffff));
        assert_eq!(at(fields.odd), (8, 4, 0, 0xff_ffff));
        assert_eq!(at(fields.flag), (12, 1, 7, 1));
        assert_eq!(at(fields.whole), (16, 8, 0, u64::MAX));
        assert_eq!((fields.odd.bytes(), fields.whole.bytes()), (8..12, 16..24));
        assert_eq!(fields.part.in_byte(), BitRange { shift: 2, mask: 0xf });
        assert_eq!((fields.tail.order(), fields.tail.width()), (ByteOrder::Memory, 32));
        assert_eq!(Sample::INFO.fields.len(), 7);
    }

    #[test]
    fn keys_and_words_agree_with_the_setters() {
        let mut sample = Sample::new();
        sample.set_byte(0xa5).set_part(9).set_half(0x1234).set_odd(0x56_789a).set_flag(true).set_whole(7);
        let word = |index: usize| u64::from_be_bytes(sample.as_bytes()[index * 8..][..8].try_into().unwrap());
        let get = |field: Field, index| Field::from_key(field.key()).in_word(index).get(word(index));
        let fields = Sample::FIELDS;
        assert_eq!([get(fields.byte, 0), get(fields.part, 0), get(fields.half, 0)], [0xa5, 9, 0x1234]);
        assert_eq!([get(fields.odd, 1), get(fields.flag, 1), get(fields.whole, 2)], [0x56_789a, 1, 7]);
        assert_eq!(fields.half.in_dword(1).get(word(0) & 0xffff_ffff), 0x1234);
        let part = fields.part.in_word(0);
        assert_eq!(part.get(part.set(u64::MAX, 5)), 5);
        assert_eq!(part.clear(u64::MAX), !part.put(u64::MAX), "neighbours stay");
    }

    #[test]
    #[should_panic(expected = "another word")]
    fn a_field_of_another_word_is_refused() {
        Sample::FIELDS.odd.in_word(0);
    }

    #[test]
    #[should_panic(expected = "no number")]
    fn a_run_of_bytes_is_no_number() {
        Sample::FIELDS.tail.key();
    }
}

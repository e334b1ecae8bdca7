//! Fields of elements and records that a client describes, and predicates over them. Several kernels'
//! parameter tables use them.

use crate::kernel::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits within an element: `bits` bits of the word at `position`, from bit `shift` upwards.
///
/// The word has 4 bytes if the bits lie in its low 32, else 8.
///
/// ```
/// use bareverbs_offload::kernels::field::Field;
///
/// let length = Field::word(4).bits(32, 16);
/// assert_eq!(length, Field { position: 4, relative: false, shift: 32, bits: 16 });
/// assert!(Field::after_key(2).relative, "eight bytes behind the key that matched");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Where the word begins, in units of 4 bytes from the start of the element.
    pub position: u8,
    /// Whether `position` counts from the key that matched. A row that always applies has no such key; it counts from the start.
    pub relative: bool,
    /// The lowest bit.
    pub shift: u8,
    /// Number of bits, 1 to 64.
    pub bits: u8,
}

/// How the key of an element compares with the wanted key; both are unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predicate {
    /// They are equal.
    Equal,
    /// The element's key is less.
    LessThan,
    /// The element's key is greater.
    GreaterThan,
    /// They are not equal.
    NotEqual,
    /// The row applies to every element.
    Always,
}

/// The order of bytes in the words of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// As x86-64 and aarch64 store them.
    LittleEndian,
    /// As networks send them.
    BigEndian,
}

impl Field {
    /// A whole word of 8 bytes at `position`, in units of 4 bytes.
    pub const fn word(position: u8) -> Self {
        Self { position, relative: false, shift: 0, bits: 64 }
    }

    /// The same, counted from the key that matched.
    pub const fn after_key(position: u8) -> Self {
        Self { relative: true, ..Self::word(position) }
    }

    /// The `bits` bits of it from bit `shift` upwards.
    pub const fn bits(self, shift: u8, bits: u8) -> Self {
        Self { shift, bits, ..self }
    }

    /// Whether the bits lie in a word, and the word lies in the element wherever the key may be.
    pub(super) fn fits(self, element: u16, base: u32) -> bool {
        let end = u16::from(self.shift) + u16::from(self.bits);
        let bytes = if end <= 32 { 4 } else { 8 };
        let position = u32::from(self.position) + if self.relative { base } else { 0 };
        self.bits > 0 && end <= 64 && position * 4 + bytes <= u32::from(element)
    }

    pub(super) const fn parse(raw: FieldBytes) -> Result<Self, Status> {
        let relative = match raw.relative {
            0 => false,
            1 => true,
            _ => return Err(Status::BadParameters),
        };
        Ok(Self { position: raw.position, relative, shift: raw.shift, bits: raw.bits })
    }
}

/// How a field of elements with this order of bytes is read: what its description says, worked out once for all
/// elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Where the word begins, in bytes.
    at: u16,
    /// Mask of the matched key's offset, which is added to `at` if the field is relative: all ones or zero.
    from_key: u16,
    word: Word,
    /// Cuts off what is above the field.
    left: u8,
    /// Cuts off what is below the field then.
    right: u8,
}

/// The word that a field is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// The field is all of its 8 bytes, in little-endian order.
    Whole,
    Little64,
    Big64,
    Little32,
    Big32,
}

impl Load {
    /// Of a field that does not [fit](Field::fits), it reads some bits or none.
    pub(super) const fn new(field: Field, order: ByteOrder) -> Self {
        let end = field.shift.wrapping_add(field.bits);
        let word = match (end > 32, order) {
            (true, ByteOrder::LittleEndian) if field.bits == 64 => Word::Whole,
            (true, ByteOrder::LittleEndian) => Word::Little64,
            (true, ByteOrder::BigEndian) => Word::Big64,
            (false, ByteOrder::LittleEndian) => Word::Little32,
            (false, ByteOrder::BigEndian) => Word::Big32,
        };
        Self {
            at: field.position as u16 * 4,
            from_key: if field.relative { u16::MAX } else { 0 },
            word,
            left: 64_u8.wrapping_sub(end),
            right: 64_u8.wrapping_sub(field.bits),
        }
    }

    /// The value of the field in an element whose matching key is at byte `key`; `None` if the word is not inside the
    /// element.
    #[inline(always)]
    pub(super) fn value(&self, element: &[u8], key: u16) -> Option<u64> {
        self.value_at(element, usize::from(self.at) + usize::from(key & self.from_key))
    }

    /// The same if its word is at this byte.
    #[inline(always)]
    pub(super) fn value_at(&self, element: &[u8], at: usize) -> Option<u64> {
        if self.word == Word::Whole {
            return Some(u64::from_le_bytes(*element.get(at..at + 8)?.first_chunk()?));
        }
        self.bits(element.get(at..)?)
    }

    /// The bits of the field in the word with which these bytes begin.
    // Most fields are whole words; what these need is kept out of the way of the others.
    #[inline(never)]
    fn bits(&self, word: &[u8]) -> Option<u64> {
        let value = match self.word {
            Word::Whole | Word::Little64 => u64::from_le_bytes(*word.first_chunk()?),
            Word::Big64 => u64::from_be_bytes(*word.first_chunk()?),
            Word::Little32 => u32::from_le_bytes(*word.first_chunk()?).into(),
            Word::Big32 => u32::from_be_bytes(*word.first_chunk()?).into(),
        };
        Some(value.wrapping_shl(self.left.into()).wrapping_shr(self.right.into()))
    }
}

/// A predicate as it is asked of each key: the outcomes of a comparison for which it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcomes(u8);

impl Outcomes {
    const LESS: u8 = 1;
    const EQUAL: u8 = 2;
    const GREATER: u8 = 4;
    /// It holds for every element.
    pub(super) const ALL: Self = Self(Self::LESS | Self::EQUAL | Self::GREATER);

    pub(super) const fn of(predicate: Predicate) -> Self {
        match predicate {
            Predicate::Equal => Self(Self::EQUAL),
            Predicate::LessThan => Self(Self::LESS),
            Predicate::GreaterThan => Self(Self::GREATER),
            Predicate::NotEqual => Self(Self::LESS | Self::GREATER),
            Predicate::Always => Self::ALL,
        }
    }

    /// Whether the predicate holds for an element's key and the wanted key.
    #[inline(always)]
    pub(super) fn have(self, element: u64, key: u64) -> bool {
        // The number of the bit: less, equal, greater.
        let outcome = u8::from(element >= key) + u8::from(element > key);
        self.0 >> outcome & 1 != 0
    }
}

impl Predicate {
    const ALL: [Self; 5] = [Self::Equal, Self::LessThan, Self::GreaterThan, Self::NotEqual, Self::Always];

    /// The predicate with this number in parameters; the first four numbers are StRoM's.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A field as it stands in parameters.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct FieldBytes {
    position: u8,
    relative: u8,
    shift: u8,
    bits: u8,
}

impl From<Field> for FieldBytes {
    fn from(field: Field) -> Self {
        let Field { position, relative, shift, bits } = field;
        Self { position, relative: relative.into(), shift, bits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order() -> impl Strategy<Value = ByteOrder> {
        prop_oneof![Just(ByteOrder::LittleEndian), Just(ByteOrder::BigEndian)]
    }

    proptest! {
        #[test]
        fn a_field_is_read_as_it_is_described(
            element in proptest::collection::vec(any::<u8>(), 1..64),
            position in 0_u8..16,
            relative: bool,
            (shift, bits) in (0_u8..64).prop_flat_map(|shift| (Just(shift), 1..=64 - shift)),
            key in 0_u8..8,
            order in order(),
        ) {
            let field = Field { position, relative, shift, bits };
            let at = 4 * usize::from(position + if relative { key } else { 0 });
            let length = if shift + bits <= 32 { 4 } else { 8 };
            let expected = element.get(at..at + length).map(|word| {
                let number = |number: u128, byte: &u8| number << 8 | u128::from(*byte);
                let word = match order {
                    ByteOrder::LittleEndian => word.iter().rev().fold(0, number),
                    ByteOrder::BigEndian => word.iter().fold(0, number),
                };
                (word >> shift & ((1 << bits) - 1)) as u64
            });
            let fits = field.fits(element.len() as u16, key.into());
            prop_assert_eq!(fits, expected.is_some());
            prop_assert_eq!(Load::new(field, order).value(&element, u16::from(key) * 4), expected);
        }
    }
}

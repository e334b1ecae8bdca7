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

    /// Reads a field that [fits](Self::fits) of an element whose matching key is at word `base`. `None` if the word is
    /// not inside the element.
    #[inline]
    pub(super) fn load(self, element: &[u8], base: u8, order: ByteOrder) -> Option<u64> {
        let position = usize::from(self.position) + if self.relative { usize::from(base) } else { 0 };
        let word = element.get(position * 4..)?;
        let (bits, end) = (u32::from(self.bits), u32::from(self.shift) + u32::from(self.bits));
        let value = match (end <= 32, order) {
            (true, ByteOrder::LittleEndian) => u32::from_le_bytes(*word.first_chunk()?).into(),
            (true, ByteOrder::BigEndian) => u32::from_be_bytes(*word.first_chunk()?).into(),
            (false, ByteOrder::LittleEndian) => u64::from_le_bytes(*word.first_chunk()?),
            (false, ByteOrder::BigEndian) => u64::from_be_bytes(*word.first_chunk()?),
        };
        // Two shifts cut off what is above the field and what is below it. Both are less than 64.
        Some(value.wrapping_shl(64_u32.wrapping_sub(end)).wrapping_shr(64_u32.wrapping_sub(bits)))
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

impl Predicate {
    const ALL: [Self; 5] = [Self::Equal, Self::LessThan, Self::GreaterThan, Self::NotEqual, Self::Always];

    /// The predicate with this number in parameters; the first four numbers are StRoM's.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether the predicate holds for an element's key and the wanted key.
    pub(super) const fn holds(self, element: u64, key: u64) -> bool {
        match self {
            Self::Equal => element == key,
            Self::LessThan => element < key,
            Self::GreaterThan => element > key,
            Self::NotEqual => element != key,
            Self::Always => true,
        }
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

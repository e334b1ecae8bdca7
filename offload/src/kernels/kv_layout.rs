//! The bytes of the remote hash table: bucket lines and objects. Numbers are big-endian.
//!
//! ```text
//! line, 64 bytes, 64-byte aligned        object, 16-byte aligned
//!  0  fingerprint 0 | ref 0               0  key hash 8
//! 16  fingerprint 1 | ref 1               8  key length 2 | flags 2 | value length 4
//! 32  fingerprint 2 | ref 2              16  version 8
//! 48  offset of the next line            24  key, value, zeros up to a multiple of 8
//! 56  sequence 4 | crc32c 4               t  crc64 8 of [0, t) | version 8
//! ```
//! A ref packs the offset of an object (48 bits) and its size in units of 16 bytes (16 bits). Offsets count from the
//! start of the region, never from anywhere else: the table can be moved, and no ref can name foreign memory. Zero is
//! "nothing", since the descriptor of the table lives at offset zero.

use super::checksum::{crc32c, crc64, crc64_of};
use core::hash::Hasher;
use siphasher::sip::SipHasher24;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a bucket line.
pub const LINE_SIZE: u32 = 64;
/// References in one line.
pub const SLOTS: usize = 3;
/// Longest key in bytes.
pub const MAX_KEY: usize = 64;
/// Longest value in bytes.
pub const MAX_VALUE: usize = 64 * 1024;
/// Granule of objects in bytes.
pub const UNIT: u32 = 16;
/// Size of the largest object in bytes.
pub const MAX_OBJECT: u32 = object_size(MAX_KEY, MAX_VALUE);

const HEADER_SIZE: usize = 24;
const TAIL_SIZE: usize = 16;

/// The hash of a key: SipHash-2-4 with the 128-bit seed of the table. Part of the format.
pub fn hash_key(seed: &[u8; 16], key: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(seed);
    hasher.write(key);
    hasher.finish()
}

/// The bucket that a hash belongs to: the high bits decide, any number of buckets will do.
pub const fn bucket_of(hash: u64, buckets: u32) -> u32 {
    ((hash as u128 * buckets as u128) >> 64) as u32
}

/// Bytes that an object takes. Both lengths must be within [`MAX_KEY`] and [`MAX_VALUE`].
pub const fn object_size(key: usize, value: usize) -> u32 {
    let size = tail_offset(key, value) + TAIL_SIZE;
    (size as u32).next_multiple_of(UNIT)
}

const fn tail_offset(key: usize, value: usize) -> usize {
    (HEADER_SIZE + key + value).next_multiple_of(8)
}

/// Where an object lies: offset and size in one word.
///
/// ```
/// use bareverbs_offload::kernels::kv_layout::ObjectRef;
///
/// let object = ObjectRef::new(0x400, 48).unwrap();
/// assert_eq!((object.offset(), object.size(), object.bits()), (0x400, 48, 0x400_0003));
/// assert_eq!(ObjectRef::new(0x408, 48), None, "objects lie at multiples of 16");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectRef(u64);

impl ObjectRef {
    /// No object.
    pub const NONE: Self = Self(0);

    /// A reference to `size` bytes at `offset`, if both can be expressed: multiples of 16, the offset within 48 bits.
    pub const fn new(offset: u64, size: u32) -> Option<Self> {
        let units = size / UNIT;
        if offset == 0
            || offset >> 48 != 0
            || !offset.is_multiple_of(UNIT as u64)
            || !size.is_multiple_of(UNIT)
            || units > 0xffff
        {
            return None;
        }
        Some(Self(offset << 16 | units as u64))
    }
    /// The reference as it stands in a line; an allegation.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    /// The reference as it stands in a line.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// Whether there is no object.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
    /// First byte of the object from the start of the region.
    pub const fn offset(self) -> u64 {
        self.0 >> 16
    }
    /// Bytes of the object.
    pub const fn size(self) -> u32 {
        (self.0 & 0xffff) as u32 * UNIT
    }
}

/// One reference of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineSlot {
    /// The hash of the key.
    pub fingerprint: u64,
    /// Where the object lies.
    pub object: ObjectRef,
}

/// A bucket line, decoded.
///
/// ```
/// use bareverbs_offload::kernels::kv_layout::{Line, LineSlot, ObjectRef, Torn};
///
/// let mut line = Line { sequence: 4, ..Line::default() };
/// line.slots[0] = LineSlot { fingerprint: 0xa129_ca61, object: ObjectRef::new(0x400, 48).unwrap() };
/// let mut bytes = line.encode();
/// assert_eq!(Line::parse(&bytes), Ok(line));
/// bytes[15] ^= 1;
/// assert_eq!(Line::parse(&bytes), Err(Torn::Mismatch));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Line {
    /// The references.
    pub slots: [LineSlot; SLOTS],
    /// Offset of the next line of the chain, zero at its end.
    pub next: u64,
    /// Changes with every change of the line; odd while one is under way.
    pub sequence: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct LineBytes {
    slots: [[U64; 2]; SLOTS],
    next: U64,
    sequence: U32,
    crc: U32,
}

/// Bytes of a line that its checksum covers.
const LINE_COVERED: usize = 60;

/// What was read was being changed, or never was what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Torn {
    /// The sequence is odd: a writer is at work.
    Changing,
    /// Checksum, lengths or versions do not agree.
    Mismatch,
}

impl Line {
    /// Decodes and checks a line.
    pub fn parse(bytes: &[u8]) -> Result<Self, Torn> {
        let line = LineBytes::ref_from_bytes(bytes).map_err(|_| Torn::Mismatch)?;
        let sequence = line.sequence.get();
        if sequence % 2 == 1 {
            return Err(Torn::Changing);
        }
        if bytes.get(..LINE_COVERED).map(crc32c) != Some(line.crc.get()) {
            return Err(Torn::Mismatch);
        }
        let slots = line.slots.map(|[fingerprint, object]| LineSlot {
            fingerprint: fingerprint.get(),
            object: ObjectRef::from_bits(object.get()),
        });
        Ok(Self { slots, next: line.next.get(), sequence })
    }

    /// The bytes of the line, checksum included.
    pub fn encode(&self) -> [u8; LINE_SIZE as usize] {
        let mut line = LineBytes {
            slots: self.slots.map(|slot| [slot.fingerprint.into(), slot.object.bits().into()]),
            next: self.next.into(),
            sequence: self.sequence.into(),
            crc: U32::ZERO,
        };
        line.crc = crc32c(&line.as_bytes()[..LINE_COVERED]).into();
        zerocopy::transmute!(line)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct ObjectHeaderBytes {
    hash: U64,
    key_length: U16,
    flags: U16,
    value_length: U32,
    version: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct TailBytes {
    crc: U64,
    version: U64,
}

/// An object that was found to be whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// The hash of the key, as stored.
    pub hash: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Where the value begins in the bytes of the object.
    pub value_offset: u32,
    /// The version of the value.
    pub version: u64,
}

/// Decodes and checks an object: lengths, both versions, checksum.
pub fn parse_object(bytes: &[u8]) -> Result<Object<'_>, Torn> {
    let (header, rest) = ObjectHeaderBytes::ref_from_prefix(bytes).map_err(|_| Torn::Mismatch)?;
    let key_length = usize::from(header.key_length.get());
    let value_length = header.value_length.get() as usize;
    if key_length == 0 || key_length > MAX_KEY || value_length > MAX_VALUE {
        return Err(Torn::Mismatch);
    }
    let tail_at = tail_offset(key_length, value_length);
    let (covered, tail) = bytes.split_at_checked(tail_at).ok_or(Torn::Mismatch)?;
    let (tail, _) = TailBytes::ref_from_prefix(tail).map_err(|_| Torn::Mismatch)?;
    if tail.version != header.version || tail.crc.get() != crc64(covered) {
        return Err(Torn::Mismatch);
    }
    let (key, rest) = rest.split_at_checked(key_length).ok_or(Torn::Mismatch)?;
    let value = rest.get(..value_length).ok_or(Torn::Mismatch)?;
    let value_offset = (HEADER_SIZE + key_length) as u32;
    Ok(Object { hash: header.hash.get(), key, value, value_offset, version: header.version.get() })
}

/// What stands around key and value in an object.
///
/// ```
/// use bareverbs_offload::kernels::kv_layout::{ObjectFrame, hash_key, parse_object};
///
/// let (key, value) = (b"user:4711", b"Ada");
/// let frame = ObjectFrame::new(hash_key(&[3; 16], key), key, value, 1).unwrap();
/// let object = [frame.header(), key, value, frame.end()].concat();
/// assert_eq!(parse_object(&object).unwrap().value, value);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectFrame {
    header: [u8; HEADER_SIZE],
    end: [u8; MAX_END],
    padding: usize,
}

/// Padding of at most seven bytes, and the tail.
const MAX_END: usize = 7 + TAIL_SIZE;

impl ObjectFrame {
    /// The frame for an object; `None` if key or value are too long or the key is empty.
    pub fn new(hash: u64, key: &[u8], value: &[u8], version: u64) -> Option<Self> {
        if key.is_empty() || key.len() > MAX_KEY || value.len() > MAX_VALUE {
            return None;
        }
        let header: [u8; HEADER_SIZE] = zerocopy::transmute!(ObjectHeaderBytes {
            hash: hash.into(),
            key_length: (key.len() as u16).into(),
            flags: U16::ZERO,
            value_length: (value.len() as u32).into(),
            version: version.into(),
        });
        let padding = tail_offset(key.len(), value.len()) - HEADER_SIZE - key.len() - value.len();
        let mut end = [0; MAX_END];
        let crc = crc64_of(&[&header, key, value, &end[..padding]]);
        let tail: [u8; TAIL_SIZE] =
            zerocopy::transmute!(TailBytes { crc: crc.into(), version: version.into() });
        end[padding..padding + TAIL_SIZE].copy_from_slice(&tail);
        Some(Self { header, end, padding })
    }
    /// What comes before the key.
    pub const fn header(&self) -> &[u8] {
        &self.header
    }
    /// What comes after the value.
    pub fn end(&self) -> &[u8] {
        &self.end[..self.padding + TAIL_SIZE]
    }
}

/// The key of an object, given the bytes of its beginning, unchecked but for its length: for the writer, who owns the
/// memory.
pub fn peek_key(bytes: &[u8]) -> Option<&[u8]> {
    let (header, rest) = ObjectHeaderBytes::ref_from_prefix(bytes).ok()?;
    rest.get(..usize::from(header.key_length.get()))
}

/// Bytes of an object that [`peek_key`] may need.
pub const PEEK: usize = HEADER_SIZE + MAX_KEY;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hash_is_siphash_2_4() {
        // The last vector of the authors' paper (Aumasson, Bernstein: SipHash, appendix A).
        let seed: [u8; 16] = core::array::from_fn(|i| i as u8);
        let message: [u8; 15] = core::array::from_fn(|i| i as u8);
        assert_eq!(hash_key(&seed, &message), 0xa129_ca61_49be_45e5);
        // The first of the reference implementation's list: the empty message.
        assert_eq!(hash_key(&seed, b""), 0x726f_db47_dd0e_0e31);
    }

    #[test]
    fn buckets_are_reached_evenly() {
        assert_eq!(bucket_of(0, 7), 0);
        assert_eq!(bucket_of(u64::MAX, 7), 6);
        assert_eq!(bucket_of(u64::MAX, 0), 0);
        assert_eq!(bucket_of(u64::MAX / 2 + 1, 8), 4);
    }

    #[test]
    fn a_line_has_64_bytes_at_the_stated_places() {
        let mut line = Line { next: 0x1122, sequence: 4, ..Line::default() };
        line.slots[1] = LineSlot { fingerprint: 0xa1a2, object: ObjectRef::new(0x40, 48).expect("aligned") };
        let bytes = line.encode();
        assert_eq!(bytes.len(), 64);
        assert_eq!(bytes[22..24], [0xa1, 0xa2]);
        assert_eq!(bytes[24..32], [0, 0, 0, 0, 0, 0x40, 0, 3]);
        assert_eq!(bytes[54..56], [0x11, 0x22]);
        assert_eq!(bytes[56..60], [0, 0, 0, 4]);
        assert_eq!(Line::parse(&bytes), Ok(line));
    }

    #[test]
    fn a_line_under_change_is_torn() {
        let bytes = Line { sequence: 3, ..Line::default() }.encode();
        assert_eq!(Line::parse(&bytes), Err(Torn::Changing));
        assert_eq!(Line::parse(&bytes[..63]), Err(Torn::Mismatch));
        assert_eq!(Line::parse(&[0; 64]), Err(Torn::Mismatch), "untouched memory is not an empty bucket");
    }

    #[test]
    fn the_largest_object_fits_a_reference() {
        assert!(ObjectRef::new(16, MAX_OBJECT).is_some());
        assert!(ObjectRef::new(0, 16).is_none());
        assert!(ObjectRef::new(1 << 48, 16).is_none());
        assert!(ObjectRef::new(24, 16).is_none());
    }

    proptest! {
        #[test]
        fn objects_survive_and_flipped_bits_do_not(
            key in proptest::collection::vec(any::<u8>(), 1..=MAX_KEY),
            value in proptest::collection::vec(any::<u8>(), 0..300),
            version: u64, flip: prop::sample::Index, bit in 0u8..8,
        ) {
            let frame = ObjectFrame::new(7, &key, &value, version).expect("fits");
            let mut object = [frame.header(), &key, &value, frame.end()].concat();
            prop_assert_eq!(object.len().next_multiple_of(16), object_size(key.len(), value.len()) as usize);
            let found = parse_object(&object).expect("whole");
            prop_assert_eq!((found.key, found.value, found.version), (&key[..], &value[..], version));
            prop_assert_eq!(peek_key(&object), Some(&key[..]));
            let at = flip.index(object.len());
            object[at] ^= 1 << bit;
            prop_assert_eq!(parse_object(&object), Err(Torn::Mismatch));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_object(&bytes);
            let _ = Line::parse(&bytes);
        }
    }
}

//! The bytes of the remote hash table: bucket lines and objects. Numbers are big-endian.
//!
//! ```text
//! line, 64 bytes, 64-byte aligned        object, 16-byte aligned
//!  0  fingerprint 0 | ref 0               0  key hash 8
//! 16  fingerprint 1 | ref 1               8  key length 2 | flags 2 | value length 4
//! 32  fingerprint 2 | ref 2              16  version 8
//! 48  offset of the next line | moved    24  key, value, zeros up to a multiple of 8
//! 56  sequence 4 | seal 4                 t  crc64 8 of [0, t) | version 8
//! ```
//! The seal is the crc32c of what comes before it, exclusive-or the number of the chain that the line belongs to ([`chain_of`]). So
//! a reader that still follows the old chain rejects a line that was moved to another chain.
//!
//! A table that grows has lines elsewhere, twice as many. The first line of a chain that has moved there points to
//! them: its next line is the first of all new lines, with the lowest bit set ([`Line::moved_to`]). A reader that meets
//! it continues there, in the hash's bucket among twice as many.
//!
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

/// The bucket of a hash. The high bits select it, so any number of buckets works.
pub const fn bucket_of(hash: u64, buckets: u32) -> u32 {
    ((hash as u128 * buckets as u128) >> 64) as u32
}

/// Most buckets of a table. It leaves each chain of every table that this one may grow into a number of its
/// own.
pub const MAX_BUCKETS: u32 = 1 << 30;

/// The number of the chain that begins in `bucket` of `buckets`. Buckets only ever double, so no two chains that a table ever has share one.
pub const fn chain_of(bucket: u32, buckets: u32) -> u32 {
    buckets.wrapping_add(bucket)
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
    /// The reference as it stands in a line; unchecked.
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
/// let mut bytes = line.encode(7);
/// assert_eq!(Line::parse(&bytes, 7), Ok(line));
/// assert_eq!(Line::parse(&bytes, 8), Err(Torn::Mismatch), "a line of another chain");
/// bytes[15] ^= 1;
/// assert_eq!(Line::parse(&bytes, 7), Err(Torn::Mismatch));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Line {
    /// The references.
    pub slots: [LineSlot; SLOTS],
    /// Offset of the next line of the chain, zero at its end; or where the lines moved to, see
    /// [`Line::moved_to`].
    pub next: u64,
    /// Changes whenever the line changes; odd during a change.
    pub sequence: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct LineBytes {
    slots: [[U64; 2]; SLOTS],
    next: U64,
    sequence: U32,
    seal: U32,
}

/// Bytes of a line that its checksum covers.
const LINE_COVERED: usize = 60;

/// The bytes were being changed when they were read, or were never valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Torn {
    /// The sequence is odd: a writer is at work.
    Changing,
    /// Checksum, lengths or versions do not agree.
    Mismatch,
}

/// The bit of [`Line::next`] that says that the lines have moved.
const MOVED: u64 = 1;

impl Line {
    /// Decodes and checks a line of a chain.
    pub fn parse(bytes: &[u8], chain: u32) -> Result<Self, Torn> {
        let raw = LineBytes::ref_from_bytes(bytes).map_err(|_| Torn::Mismatch)?;
        if raw.sequence.get() % 2 == 1 {
            return Err(Torn::Changing);
        }
        if bytes.get(..LINE_COVERED).map(|covered| crc32c(covered) ^ chain) != Some(raw.seal.get()) {
            return Err(Torn::Mismatch);
        }
        Ok(Self::decode(raw))
    }

    /// Decodes a line in the middle of a change, which only the next writer may trust; `None` for any other
    /// line.
    pub fn unfinished(bytes: &[u8; LINE_SIZE as usize]) -> Option<Self> {
        let raw = LineBytes::ref_from_bytes(bytes).ok()?;
        (raw.sequence.get() % 2 == 1).then(|| Self::decode(raw))
    }

    fn decode(raw: &LineBytes) -> Self {
        let slots = raw.slots.map(|[fingerprint, object]| LineSlot {
            fingerprint: fingerprint.get(),
            object: ObjectRef::from_bits(object.get()),
        });
        Self { slots, next: raw.next.get(), sequence: raw.sequence.get() }
    }

    /// The bytes of the line as one of this chain, sealed.
    pub fn encode(&self, chain: u32) -> [u8; LINE_SIZE as usize] {
        let mut line = LineBytes {
            slots: self.slots.map(|slot| [slot.fingerprint.into(), slot.object.bits().into()]),
            next: self.next.into(),
            sequence: self.sequence.into(),
            seal: U32::ZERO,
        };
        line.seal = (crc32c(&line.as_bytes()[..LINE_COVERED]) ^ chain).into();
        zerocopy::transmute!(line)
    }

    /// Offset of the first of twice as many lines, if this line's chain has moved there.
    pub const fn moved_to(&self) -> Option<u64> {
        if self.next & MOVED == MOVED { Some(self.next & !MOVED) } else { None }
    }

    /// The first line of a chain that has moved to the table whose lines begin at `lines`.
    #[must_use]
    pub const fn with_move(self, lines: u64) -> Self {
        Self { next: lines | MOVED, ..self }
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

/// An object that passed its checks.
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

/// The bytes around key and value in an object.
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

/// The header of an object, for the writer, who owns the memory: only the lengths are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peeked {
    /// The hash of the key.
    pub hash: u64,
    /// The version of the value.
    pub version: u64,
    /// Bytes of the value.
    pub value_length: u32,
    key: [u8; MAX_KEY],
    key_length: u8,
}

impl Peeked {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key[..usize::from(self.key_length)]
    }

    /// Where the value begins in the object.
    pub fn value_offset(&self) -> u64 {
        HEADER_SIZE as u64 + u64::from(self.key_length)
    }
}

/// Decodes the header of an object; `None` if it is impossible.
pub fn peek(bytes: &[u8]) -> Option<Peeked> {
    let (header, rest) = ObjectHeaderBytes::ref_from_prefix(bytes).ok()?;
    let (key_length, value_length) = (usize::from(header.key_length.get()), header.value_length.get());
    if key_length == 0 || key_length > MAX_KEY || value_length as usize > MAX_VALUE {
        return None;
    }
    let mut key = [0; MAX_KEY];
    key[..key_length].copy_from_slice(rest.get(..key_length)?);
    let (hash, version) = (header.hash.get(), header.version.get());
    Some(Peeked { hash, version, value_length, key, key_length: key_length as u8 })
}

/// Bytes of an object that [`peek`] may need.
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
        // The first vector of the reference implementation: the empty message.
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
        let bytes = line.encode(5);
        assert_eq!(bytes.len(), 64);
        assert_eq!(bytes[22..24], [0xa1, 0xa2]);
        assert_eq!(bytes[24..32], [0, 0, 0, 0, 0, 0x40, 0, 3]);
        assert_eq!(bytes[54..56], [0x11, 0x22]);
        assert_eq!(bytes[56..60], [0, 0, 0, 4]);
        assert_eq!(bytes[60..], (crc32c(&bytes[..60]) ^ 5).to_be_bytes());
        assert_eq!(Line::parse(&bytes, 5), Ok(line));
        assert_eq!(Line::parse(&bytes, 4), Err(Torn::Mismatch), "a line of another chain");
    }

    #[test]
    fn a_line_under_change_is_torn() {
        let line = Line { sequence: 3, next: 64, ..Line::default() };
        let bytes = line.encode(1);
        assert_eq!(Line::parse(&bytes, 1), Err(Torn::Changing));
        assert_eq!(Line::unfinished(&bytes), Some(line));
        assert_eq!(Line::unfinished(&Line::default().encode(1)), None);
        assert_eq!(Line::parse(&bytes[..63], 1), Err(Torn::Mismatch));
        assert_eq!(Line::parse(&[0; 64], 1), Err(Torn::Mismatch), "untouched memory is not an empty bucket");
    }

    #[test]
    fn a_line_that_moved_says_where_to() {
        assert_eq!(Line { next: 128, ..Line::default() }.moved_to(), None);
        assert_eq!(Line { next: 128, ..Line::default() }.with_move(4096).moved_to(), Some(4096));
    }

    #[test]
    fn no_two_chains_of_a_table_that_doubles_share_a_number() {
        let mut seen = std::collections::BTreeSet::new();
        for buckets in [3, 6, 12, 24] {
            assert!((0..buckets).all(|bucket| seen.insert(chain_of(bucket, buckets))));
        }
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
            let peeked = peek(&object).expect("a key");
            prop_assert_eq!((peeked.key(), peeked.version, peeked.hash), (&key[..], version, 7));
            let at = flip.index(object.len());
            object[at] ^= 1 << bit;
            prop_assert_eq!(parse_object(&object), Err(Torn::Mismatch));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_object(&bytes);
            let _ = Line::parse(&bytes, 1);
        }
    }
}

//! Inline data: a header of four bytes directly followed by the bytes, padded to whole segments.

use crate::dma::{BLOCK, Run, Window};
use bareverbs_prm::field::BitRange;
use bareverbs_prm::wqe::{InlineHeader, SEGMENT};

const IS_INLINE: BitRange = InlineHeader::FIELDS.inline.in_word(0);
const BYTE_COUNT: BitRange = InlineHeader::FIELDS.byte_count.in_word(0);
/// Bytes that are copied at a time.
const PIECE: usize = 16;
/// Bytes that share the first word with the header.
const BESIDE_HEADER: usize = 8 - InlineHeader::SIZE;

/// Segments for `length` inline bytes, including the header. A length near 2^32, which no entry has, may give any number.
#[inline(always)]
pub(crate) const fn inline_segments(length: u32) -> u32 {
    // Rounded up by hand: `div_ceil` takes more instructions where it is not known that the sum is small.
    length.wrapping_add((InlineHeader::SIZE + SEGMENT - 1) as u32) / SEGMENT as u32
}

/// Bytes to copy into an entry, with their header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InlineData<'a> {
    bytes: &'a [u8],
    /// The header: the low half of the first word, read as a little-endian number.
    header: u64,
}

impl<'a> InlineData<'a> {
    #[inline(always)]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        let word = IS_INLINE.put(1) | BYTE_COUNT.put(bytes.len() as u64);
        Self { bytes, header: ((word >> 32) as u32).swap_bytes() as u64 }
    }

    #[inline(always)]
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Header and bytes as two words in memory order, if there are exactly eight bytes.
    #[inline(always)]
    pub(super) fn eight(&self) -> Option<[u64; 2]> {
        let bytes = u64::from_le_bytes(self.bytes.try_into().ok()?);
        Some([(self.header | bytes << 32).to_le(), (bytes >> 32).to_le()])
    }
}

/// Header and up to 16 bytes, in memory order, padded with zeros.
#[inline(always)]
pub(super) fn short_words(&InlineData { bytes, header }: &InlineData<'_>) -> [u64; 3] {
    let (low, high) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), _) if bytes.len() == 8 => (u64::from_le_bytes(*first), 0),
        (Some(first), Some(last)) => {
            // The last 8 bytes overlap the first ones; only the bytes beyond those count.
            let overlap = 128u32.wrapping_sub(bytes.len() as u32 * 8) & 63;
            (u64::from_le_bytes(*first), u64::from_le_bytes(*last) >> overlap)
        }
        _ => (up_to_seven(bytes), 0),
    };
    [(header | low << 32).to_le(), (low >> 32 | high << 32).to_le(), (high >> 32).to_le()]
}

/// Passes header and bytes to `put` as words in memory order, the last one padded with zeros.
pub(super) fn for_each_word(&InlineData { bytes, header }: &InlineData<'_>, mut put: impl FnMut(u64)) {
    let mut carry = header;
    let chunks = bytes.chunks_exact(8);
    let rest = up_to_seven(chunks.remainder());
    let long = chunks.remainder().len() > BESIDE_HEADER;
    for chunk in chunks {
        let value = chunk.try_into().map_or(0, u64::from_le_bytes);
        put((carry | value << 32).to_le());
        carry = value >> 32;
    }
    put((carry | rest << 32).to_le());
    if long {
        put((rest >> 32).to_le());
    }
}

/// Up to 7 bytes as a number, the first one in the lowest bits.
#[inline(always)]
fn up_to_seven(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let beyond = bytes.len().saturating_sub(4) as u32 * 8;
            let high = (u32::from_le_bytes(*last) as u64).checked_shr(32 - beyond).unwrap_or(0);
            u32::from_le_bytes(*first) as u64 | high << 32
        }
        _ => bytes.iter().rev().fold(0, |value, &byte| value << 8 | byte as u64),
    }
}

/// Writes the header and at least [`PIECE`] `bytes` behind the first `HEAD` bytes of block `head`, which takes `FIRST`
/// of the bytes. The ring may end between two blocks. The rest of the last segment stays unchanged.
#[inline(always)]
pub(super) fn write<const HEAD: usize, const FIRST: usize>(
    ring: Run<'_, BLOCK>,
    head: u32,
    &InlineData { bytes, header }: &InlineData<'_>,
) {
    const { assert!(HEAD + InlineHeader::SIZE + FIRST == BLOCK && FIRST >= PIECE) };
    let block = ring.slot(head);
    block.store_raw32::<HEAD>((header as u32).to_le());
    let next = head.wrapping_add(1);
    // One comparison for most: a block, and less than another one.
    if bytes.len().wrapping_sub(FIRST) < BLOCK
        && let Some(start) = bytes.first_chunk::<FIRST>()
    {
        write_rest(block, BLOCK - FIRST, start, 0);
        return write_rest(ring.slot(next), 0, bytes, FIRST);
    }
    match bytes.first_chunk::<FIRST>() {
        None => write_rest(block, BLOCK - FIRST, bytes, 0),
        Some(start) => {
            write_rest(block, BLOCK - FIRST, start, 0);
            write_blocks::<FIRST>(ring, next, bytes);
        }
    }
}

/// Writes what follows the first `FIRST` of `bytes`, at least a block, from block `number` on.
#[cold]
#[inline(never)]
fn write_blocks<const FIRST: usize>(ring: Run<'_, BLOCK>, mut number: u32, bytes: &[u8]) {
    let mut skip = FIRST;
    while let Some(whole) = piece::<BLOCK>(bytes, skip) {
        ring.slot(number).store_bytes::<BLOCK>(0, whole);
        (number, skip) = (number.wrapping_add(1), skip + BLOCK);
    }
    write_rest(ring.slot(number), 0, bytes, skip);
}

/// Writes what follows the first `skip` of `bytes`, less than a block, from byte `at` of `block` on. The last piece
/// overlaps the one before it, so that only the number of pieces depends on the length.
#[inline(always)]
fn write_rest(block: Window<'_, BLOCK>, at: usize, bytes: &[u8], skip: usize) {
    let length = bytes.len() - skip;
    if length < PIECE {
        return write_end(block, at, bytes.get(skip..).unwrap_or(&[]), bytes);
    }
    let copy = |start: usize| {
        if let Some(piece) = piece::<PIECE>(bytes, skip + start) {
            block.store_bytes::<PIECE>(at + start, piece);
        }
    };
    copy(0);
    if length > 2 * PIECE {
        copy(PIECE);
        if length > 3 * PIECE {
            copy(2 * PIECE);
        }
    }
    copy(length - PIECE);
}

/// `L` of the `bytes` from `start` on, if there are so many.
#[inline(always)]
fn piece<const L: usize>(bytes: &[u8], start: usize) -> Option<&[u8; L]> {
    bytes.get(start..)?.first_chunk()
}

/// Writes `rest`, the end of `bytes` and less than a piece, from byte `at` of `block` on.
#[inline(always)]
fn write_end(block: Window<'_, BLOCK>, at: usize, rest: &[u8], bytes: &[u8]) {
    if let (Some(first), Some(last)) = (rest.first_chunk::<8>(), rest.last_chunk::<8>()) {
        block.store_bytes::<8>(at, first);
        block.store_bytes::<8>(at + rest.len() - 8, last);
    } else if let (1.., Some(last)) = (rest.len(), bytes.last_chunk::<8>()) {
        // The last eight bytes begin before the rest; only the bytes in it count.
        let beyond = 8 * rest.len() as u32;
        let word = u64::from_le_bytes(*last) >> (beyond.wrapping_neg() & 63);
        block.store_bytes::<8>(at, &word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromBytes, IntoBytes};

    #[test]
    fn inline_bytes_follow_their_header() {
        let bytes: [u8; 60] = core::array::from_fn(|i| i as u8 + 1);
        for length in 0..=60 {
            let mut words = [0; 8];
            let mut at = 0;
            for_each_word(&InlineData::new(&bytes[..length]), |word| {
                words[at] = word;
                at += 1;
            });
            let memory = words.as_bytes();
            let (header, data) = InlineHeader::read_from_prefix(memory).unwrap();
            if length <= 16 {
                assert_eq!(short_words(&InlineData::new(&bytes[..length])), words[..3]);
                let eight = InlineData::new(&bytes[..length]).eight();
                assert_eq!(eight, (length == 8).then_some([words[0], words[1]]));
            }
            assert_eq!((header.inline(), header.byte_count() as usize), (true, length));
            assert_eq!(data[..length], bytes[..length]);
            assert!(data[length..].iter().all(|&b| b == 0));
            assert!(4 + length <= inline_segments(length as u32) as usize * 16);
        }
    }
}

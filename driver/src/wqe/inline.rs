//! Inline data: a header of four bytes directly followed by the bytes, padded to whole segments.

use super::BLOCK_WORDS;
use crate::dma::{BLOCK, Run, Window};
use bareverbs_prm::field::BitRange;
use bareverbs_prm::wqe::{InlineHeader, SEGMENT};

const IS_INLINE: BitRange = InlineHeader::FIELDS.inline.in_word(0);
const BYTE_COUNT: BitRange = InlineHeader::FIELDS.byte_count.in_word(0);
/// Bytes that share the first word with the header.
const BESIDE_HEADER: usize = 8 - InlineHeader::SIZE;

/// Segments for `length` inline bytes, including the header; `length` is small.
#[inline(always)]
pub(crate) const fn inline_segments(length: u32) -> u32 {
    (length + InlineHeader::SIZE as u32).div_ceil(SEGMENT as u32)
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

/// Writes the header and at least eight `bytes` from word `AT` of block `head` on; that block takes `FIRST`
/// of the bytes. The ring may end between two blocks. The rest of the last segment stays unchanged.
#[inline(always)]
pub(super) fn write<const AT: usize, const FIRST: usize>(
    ring: Run<'_, BLOCK>,
    head: u32,
    data: &InlineData<'_>,
) {
    let &InlineData { bytes, header } = data;
    const { assert!((AT == 2 || AT == 4) && AT * 8 + BESIDE_HEADER + FIRST == BLOCK) };
    let block = ring.slot(head);
    // One comparison for most: a block, and less than another one.
    if bytes.len().wrapping_sub(FIRST) < BLOCK
        && let Some((start, rest)) = bytes.split_first_chunk::<FIRST>()
    {
        write_start::<AT, FIRST>(block, start, header);
        return write_rest::<0>(ring.slot(head.wrapping_add(1)), rest, bytes);
    }
    let Some((start, mut rest)) = bytes.split_first_chunk::<FIRST>() else {
        let Some((beside, behind)) = bytes.split_first_chunk::<BESIDE_HEADER>() else { return };
        block.store_word_at(AT, first_word(header, beside));
        return if AT == 2 {
            write_rest::<3>(block, behind, bytes)
        } else {
            write_rest::<5>(block, behind, bytes)
        };
    };
    write_start::<AT, FIRST>(block, start, header);
    let mut number = head.wrapping_add(1);
    while let Some((whole, behind)) = rest.split_first_chunk::<BLOCK>() {
        let block = ring.slot(number);
        words(whole).enumerate().for_each(|(index, word)| block.store_word_at(index, word));
        (number, rest) = (number.wrapping_add(1), behind);
    }
    write_rest::<0>(ring.slot(number), rest, bytes);
}

/// Writes the header and the bytes that the first block takes.
#[inline(always)]
fn write_start<const AT: usize, const FIRST: usize>(
    block: Window<'_, BLOCK>,
    start: &[u8; FIRST],
    header: u64,
) {
    if let Some((beside, behind)) = start.split_first_chunk::<BESIDE_HEADER>() {
        block.store_word_at(AT, first_word(header, beside));
        words(behind).enumerate().for_each(|(index, word)| block.store_word_at(AT + 1 + index, word));
    }
}

/// The header, and the first bytes beside it.
#[inline(always)]
fn first_word(header: u64, beside: &[u8; BESIDE_HEADER]) -> u64 {
    (header | (u32::from_le_bytes(*beside) as u64) << 32).to_le()
}

/// Writes `rest`, the end of `bytes` and less than a block, from word `AT` of `block` on.
#[inline(always)]
fn write_rest<const AT: usize>(block: Window<'_, BLOCK>, rest: &[u8], bytes: &[u8]) {
    const { assert!(AT < BLOCK_WORDS) };
    // Step by step, so that the position of each word is known at compile time.
    let Some(behind) = write_two(block, AT, rest) else { return write_end(block, AT, rest, bytes) };
    let rest = behind;
    let Some(behind) = write_two(block, AT + 2, rest) else { return write_end(block, AT + 2, rest, bytes) };
    let rest = behind;
    let Some(behind) = write_two(block, AT + 4, rest) else { return write_end(block, AT + 4, rest, bytes) };
    write_end(block, AT + 6, behind, bytes);
}

/// Writes two words, if there are that many, and returns the bytes after them.
#[inline(always)]
fn write_two<'a>(block: Window<'_, BLOCK>, at: usize, rest: &'a [u8]) -> Option<&'a [u8]> {
    let (two, behind) = rest.split_first_chunk::<16>()?;
    words(two).enumerate().for_each(|(index, word)| block.store_word_at(at + index, word));
    Some(behind)
}

/// Writes `rest`, the end of `bytes` and less than two words.
#[inline(always)]
fn write_end(block: Window<'_, BLOCK>, mut at: usize, mut rest: &[u8], bytes: &[u8]) {
    if let Some((one, behind)) = rest.split_first_chunk::<8>() {
        block.store_word_at(at, u64::from_ne_bytes(*one));
        (at, rest) = (at + 1, behind);
    }
    if let (1.., Some(last)) = (rest.len(), bytes.last_chunk::<8>()) {
        // The last 8 bytes overlap what is already written; only the bytes beyond that count.
        let beyond = 8 * rest.len() as u32;
        block.store_word_at(at, (u64::from_le_bytes(*last) >> (beyond.wrapping_neg() & 63)).to_le());
    }
}

/// The whole words of `bytes`, in memory order.
#[inline(always)]
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
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

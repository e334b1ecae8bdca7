//! Inline data of more than a few bytes, written into the ring word by word.

use crate::dma::{BLOCK, Run, Window};
use crate::work_request::inline_header;

/// Bytes that share the first word with the header.
const BESIDE_HEADER: usize = 4;

/// Writes the header of an inline segment and at least eight `bytes` from word `AT` of block `head` on, of which that block
/// takes `FIRST` bytes. The ring may end between two blocks. What is behind the bytes in the last segment stays as it is.
#[inline(always)]
pub(super) fn write<const AT: usize, const FIRST: usize>(ring: Run<'_, BLOCK>, head: u32, bytes: &[u8]) {
    const { assert!((AT == 2 || AT == 4) && AT * 8 + BESIDE_HEADER + FIRST == BLOCK) };
    let block = ring.slot(head);
    let Some((start, mut rest)) = bytes.split_first_chunk::<FIRST>() else {
        let Some((beside, behind)) = bytes.split_first_chunk::<BESIDE_HEADER>() else { return };
        block.store_word_at(AT, first_word(bytes, beside));
        return if AT == 2 {
            write_rest::<3>(block, behind, bytes)
        } else {
            write_rest::<5>(block, behind, bytes)
        };
    };
    if let Some((beside, behind)) = start.split_first_chunk::<BESIDE_HEADER>() {
        block.store_word_at(AT, first_word(bytes, beside));
        words(behind).enumerate().for_each(|(index, word)| block.store_word_at(AT + 1 + index, word));
    }
    let mut number = head.wrapping_add(1);
    while let Some((whole, behind)) = rest.split_first_chunk::<BLOCK>() {
        let block = ring.slot(number);
        words(whole).enumerate().for_each(|(index, word)| block.store_word_at(index, word));
        (number, rest) = (number.wrapping_add(1), behind);
    }
    write_rest::<0>(ring.slot(number), rest, bytes);
}

/// The header, and the first bytes beside it.
#[inline(always)]
fn first_word(bytes: &[u8], beside: &[u8; BESIDE_HEADER]) -> u64 {
    (inline_header(bytes) | (u32::from_le_bytes(*beside) as u64) << 32).to_le()
}

/// Writes `rest`, less than a block and the end of `bytes`, from word `AT` of `block` on.
#[inline(always)]
fn write_rest<const AT: usize>(block: Window<'_, BLOCK>, rest: &[u8], bytes: &[u8]) {
    // Step by step, so that each word has a place that is known when this is compiled.
    let Some(behind) = write_two(block, AT, rest) else { return write_end(block, AT, rest, bytes) };
    let rest = behind;
    let Some(behind) = write_two(block, AT + 2, rest) else { return write_end(block, AT + 2, rest, bytes) };
    let rest = behind;
    let Some(behind) = write_two(block, AT + 4, rest) else { return write_end(block, AT + 4, rest, bytes) };
    write_end(block, AT + 6, behind, bytes);
}

/// Writes two words, if there are so many, and gives the bytes behind them.
#[inline(always)]
fn write_two<'a>(block: Window<'_, BLOCK>, at: usize, rest: &'a [u8]) -> Option<&'a [u8]> {
    let (two, behind) = rest.split_first_chunk::<16>()?;
    words(two).enumerate().for_each(|(index, word)| block.store_word_at(at + index, word));
    Some(behind)
}

/// Writes `rest`, less than two words and the end of `bytes`.
#[inline(always)]
fn write_end(block: Window<'_, BLOCK>, mut at: usize, mut rest: &[u8], bytes: &[u8]) {
    if let Some((one, behind)) = rest.split_first_chunk::<8>() {
        block.store_word_at(at, u64::from_ne_bytes(*one));
        (at, rest) = (at + 1, behind);
    }
    if let (1.., Some(last)) = (rest.len(), bytes.last_chunk::<8>()) {
        // The last 8 bytes overlap what is written; only what is beyond it counts.
        let beyond = 8 * rest.len() as u32;
        block.store_word_at(at, (u64::from_le_bytes(*last) >> (beyond.wrapping_neg() & 63)).to_le());
    }
}

/// The whole words of `bytes`, in memory order.
#[inline(always)]
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
}

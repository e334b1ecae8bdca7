//! Bytes that show where they came from: none of their periods is a multiple of a path MTU, so the comparison
//! notices a packet in the wrong place.

use anyhow::{Result, bail};
use bareverbs_perftest::payload::mix;

/// Words of perftest's payload file: a prime number.
const WORDS: u32 = 251;
/// Its length in bytes.
const PERIOD: usize = WORDS as usize * 4;

/// perftest's payload file (`--payload_file_path`): words in hexadecimal, little-endian, separated by commas.
pub fn payload_file() -> String {
    let words: Vec<String> = (0..WORDS).map(|index| format!("{:#010x}", word(index))).collect();
    words.join(",")
}

/// The byte at `offset` of a buffer that perftest fills from the file for messages of `size` bytes. perftest
/// repeats no more of the file than one message holds.
fn payload_byte(offset: usize, size: usize) -> u8 {
    let at = offset % PERIOD.min(size.max(1));
    let [a, b, c, d] = word((at / 4) as u32).to_le_bytes();
    match at % 4 {
        0 => a,
        1 => b,
        2 => c,
        _ => d,
    }
}

/// The bytes from `offset` on of such a buffer.
pub fn payload(offset: usize, length: usize, size: usize) -> Vec<u8> {
    (offset..offset + length).map(|at| payload_byte(at, size)).collect()
}

/// Bytes of message number `number`, different for each and without a short period.
pub fn message(number: u32, length: usize) -> Vec<u8> {
    let words = (0u32..).flat_map(|index| mix(index ^ number.rotate_left(20)).to_le_bytes());
    words.take(length).collect()
}

const fn word(index: u32) -> u32 {
    mix(index.wrapping_add(0x51ed_270b))
}

/// Fails at the first offset where the bytes differ.
pub fn compare(what: &str, found: &[u8], expected: &[u8]) -> Result<()> {
    if found.len() != expected.len() {
        bail!("{what}: {} bytes instead of {}", found.len(), expected.len());
    }
    if let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
        let wrong = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
        bail!("{what}: {wrong} of {} bytes differ, the first at {at}", found.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_words_of_ten_characters() {
        let file = payload_file();
        assert_eq!(file.split(',').count(), 251);
        assert!(file.split(',').all(|word| word.len() == 10 && word.starts_with("0x")));
        let first = u32::from_str_radix(&file[2..10], 16).expect("a word");
        assert_eq!(payload(0, 4, 4096), first.to_le_bytes());
    }

    #[test]
    fn a_packet_in_the_wrong_place_is_seen() {
        for mtu in [256, 512, 1024, 2048, 4096] {
            let buffer = payload(0, 1 << 20, 1 << 20);
            let packets: Vec<_> = buffer.chunks(mtu).collect();
            assert!(packets.windows(2).all(|pair| pair[0] != pair[1]));
        }
        assert_ne!(message(1, 64), message(2, 64));
        assert!(compare("test", &message(1, 64), &message(1, 64)).is_ok());
        assert!(compare("test", &[1, 2], &[1, 3]).is_err());
    }
}

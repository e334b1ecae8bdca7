//! Bytes that both ends of a test have agreed on: a text file of 32-bit words, in the format of perftest's
//! `--payload_file_path`.

use crate::input_file::read_text_at_most;
use anyhow::{Context as _, Result, bail, ensure};
use std::path::Path;
use std::sync::Arc;

/// Longest file that is read.
const LONGEST: u64 = 1 << 24;

/// The bytes, which repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payload(Arc<[u8]>);

impl Payload {
    /// The byte at an offset of a message.
    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.0.get(at % self.0.len().max(1)).copied().unwrap_or(0)
    }
}

/// Reads the words of a file.
pub(super) fn read_payload(path: &Path) -> Result<Payload> {
    let attempt = || format!("reading the payload {}", path.display());
    words(&read_text_at_most(path, LONGEST).with_context(attempt)?).with_context(attempt)
}

/// Parses words; each becomes four bytes in little-endian order.
fn words(text: &str) -> Result<Payload> {
    let mut bytes = Vec::new();
    for word in text.split([',', ' ', '\t', '\n', '\r']).filter(|word| !word.is_empty()) {
        let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(number) = number else { bail!("{word:?} is not a word; write it as 0x01234567") };
        bytes.extend(number.to_le_bytes());
    }
    ensure!(!bytes.is_empty(), "it has no words; write them as 0x01234567, 0x89abcdef");
    Ok(Payload(bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_with_their_least_significant_byte_first_and_again() {
        let payload = words("0x04030201, 0x8\n0XFFFFFFFF").unwrap();
        let bytes: Vec<u8> = (0..14).map(|at| payload.byte(at)).collect();
        assert_eq!(bytes, [1, 2, 3, 4, 8, 0, 0, 0, 255, 255, 255, 255, 1, 2]);
        for wrong in ["", " , ", "12", "0x", "0x123456789", "0xg"] {
            assert!(words(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_endless_file_is_no_payload() {
        let error = read_payload(Path::new("/dev/zero")).unwrap_err();
        assert!(format!("{error:#}").contains("/dev/zero: it has more than 16777216 bytes"), "{error:#}");
    }
}

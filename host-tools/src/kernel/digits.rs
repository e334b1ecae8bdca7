//! Bytes as hexadecimal digits, and back.

use crate::Failure;
use anyhow::anyhow;

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes in the value of `option`.
pub(super) fn bytes_of(option: &str, digits: &str) -> Result<Vec<u8>, Failure> {
    let wrong =
        || Failure::Input(anyhow!("{option} {digits}: an even number of hexadecimal digits is needed"));
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return Err(wrong()) };
    let byte = |pair: &[u8; 2]| {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)
    };
    pairs.iter().map(byte).collect::<Option<_>>().ok_or_else(wrong)
}

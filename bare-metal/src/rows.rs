//! The table that is asked: both sides know its rows, so that every answer can be verified.

use core::fmt::Write;
use heapless::{String, Vec};

/// Rows of the table.
pub const ROWS: u32 = 200;
/// Keys that are asked for and not in the table.
pub const ABSENT: u32 = 20;
/// Bytes of the longest value.
pub const MAX_VALUE: u32 = 96;

/// The key of row `number`.
pub fn key(number: u32) -> String<24> {
    let mut key = String::new();
    // "row " and ten digits always fit.
    let _ = write!(key, "row {number}");
    key
}

/// The value of row `number`: up to [`MAX_VALUE`] bytes that no other row has.
pub fn value(number: u32) -> Vec<u8, { MAX_VALUE as usize }> {
    let length = 8 + number % (MAX_VALUE - 8 + 1);
    (0..length).map(|at| (number.wrapping_mul(0x9e37_79b9).rotate_left(at % 32) ^ at) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_every_length_and_differ() {
        assert_eq!(value(0).len(), 8);
        assert_eq!(value(MAX_VALUE - 8).len(), MAX_VALUE as usize);
        assert!((0..ROWS).all(|row| (0..row).all(|other| value(row) != value(other))));
        assert_eq!(key(7).as_str(), "row 7");
    }
}

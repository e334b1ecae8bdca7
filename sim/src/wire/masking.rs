//! Ones in place of what may change on the way: neither CRC nor digest sees it.

/// Sets `count` bytes from `at` on to ones, as far as there are such bytes.
pub fn set_ones(bytes: &mut [u8], at: usize, count: usize) {
    if let Some(field) = bytes.get_mut(at..at + count) {
        field.fill(0xff);
    }
}

//! Masks fields that may change in transit, so that neither CRC nor digest depends on them.

/// Sets `count` bytes from `at` to ones, up to the end of `bytes`.
pub fn set_ones(bytes: &mut [u8], at: usize, count: usize) {
    if let Some(field) = bytes.get_mut(at..at + count) {
        field.fill(0xff);
    }
}

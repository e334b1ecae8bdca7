//! Checksums of the command interface: the complement of the exclusive or of all bytes (PRM, command interface).

/// The byte that makes the exclusive or of `bytes` and itself all ones, if `bytes` has zero in its place.
pub(crate) fn signature(bytes: &[u8]) -> u8 {
    !bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Whether `bytes`, its signature included, is intact.
pub(crate) fn is_intact(bytes: &[u8]) -> bool {
    signature(bytes) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_block_is_intact() {
        let mut block = [0x07, 0x10, 0x01, 0x04, 0];
        block[4] = signature(&block);
        assert!(is_intact(&block));
        block[1] ^= 4;
        assert!(!is_intact(&block));
    }
}

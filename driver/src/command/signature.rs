//! Checksums of the command interface: the complement of the XOR of all bytes (PRM, command interface).

/// The signature of `bytes`, in which its place is zero: with it, the XOR of all bytes is 0xff.
pub(crate) fn signature(bytes: &[u8]) -> u8 {
    !bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Whether `bytes`, including its signature, is intact.
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

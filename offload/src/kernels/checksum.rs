//! The two checksums of the remote hash table.

use crc::{CRC_32_ISCSI, CRC_64_REDIS, Crc, Table};

static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// CRC-32C (Castagnoli), over bucket lines.
pub fn crc32c(bytes: &[u8]) -> u32 {
    CRC32C.checksum(bytes)
}

/// CRC-64 with the reflected "Jones" polynomial, as StRoM's consistency kernel uses it, over objects.
pub fn crc64(bytes: &[u8]) -> u64 {
    CRC64.checksum(bytes)
}

/// [`crc64`] of several pieces as if they were one.
pub fn crc64_of(pieces: &[&[u8]]) -> u64 {
    let mut digest = CRC64.digest();
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc64_of(&[b"1234", b"", b"56789"]), crc64(b"123456789"));
    }
}

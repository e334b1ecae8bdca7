//! The two checksums of the remote hash table. They use lookup tables everywhere; with the feature `std` they
//! use vector instructions if the processor has them.

#[cfg(feature = "std")]
use crc_fast::{CrcAlgorithm, Digest, checksum};

/// CRC-32C (Castagnoli), over bucket lines.
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(feature = "std")]
    return checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    #[cfg(not(feature = "std"))]
    tables::CRC32C.checksum(bytes)
}

/// CRC-64 with the reflected "Jones" polynomial, as StRoM's consistency kernel uses it, over objects.
pub fn crc64(bytes: &[u8]) -> u64 {
    #[cfg(feature = "std")]
    return checksum(CrcAlgorithm::Crc64Redis, bytes);
    #[cfg(not(feature = "std"))]
    tables::CRC64.checksum(bytes)
}

/// [`crc64`] of several pieces as if they were one.
pub fn crc64_of(pieces: &[&[u8]]) -> u64 {
    #[cfg(feature = "std")]
    let mut digest = Digest::new(CrcAlgorithm::Crc64Redis);
    #[cfg(not(feature = "std"))]
    let mut digest = tables::CRC64.digest();
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize()
}

#[cfg(any(test, not(feature = "std")))]
mod tables {
    use crc::{CRC_32_ISCSI, CRC_64_REDIS, Crc, Table};

    pub(super) static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
    pub(super) static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn check_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc64_of(&[b"1234", b"", b"56789"]), crc64(b"123456789"));
    }

    proptest! {
        /// Whichever implementation runs, the sums equal those of the tables.
        #[test]
        fn sums_are_those_of_the_tables(bytes in proptest::collection::vec(any::<u8>(), 0..5000), cut: proptest::sample::Index) {
            let (head, tail) = bytes.split_at(if bytes.is_empty() { 0 } else { cut.index(bytes.len()) });
            prop_assert_eq!(crc32c(&bytes), tables::CRC32C.checksum(&bytes));
            prop_assert_eq!(crc64(&bytes), tables::CRC64.checksum(&bytes));
            prop_assert_eq!(crc64_of(&[head, tail]), tables::CRC64.checksum(&bytes));
        }
    }
}

//! Payload for tests that compare what arrives.

/// A permutation of all 32-bit words that leaves no pattern in consecutive inputs: the finalizer of
/// MurmurHash3.
///
/// ```
/// use bareverbs_perftest::payload::mix;
///
/// assert_eq!([mix(0), mix(1), mix(2)], [0, 0x514e_28b7, 0x30f4_c306]);
/// ```
#[must_use]
pub const fn mix(mut word: u32) -> u32 {
    word ^= word >> 16;
    word = word.wrapping_mul(0x85eb_ca6b);
    word ^= word >> 13;
    word = word.wrapping_mul(0xc2b2_ae35);
    word ^ word >> 16
}

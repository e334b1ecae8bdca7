//! The encoding of a [`RemoteEndpoint`] and a [`RemoteSlice`] for the peer: fixed-size, big-endian, with a version.
//!
//! ```text
//! endpoint   0 "BVE1"   4 qpn   8 psn   12 gid (16)   28 mac (6)   34 RoCE version, 0 if unknown   35 zero   36 lid   38 zero (2)
//! slice      0 "BVS1"   4 length   8 address (8)   16 rkey   20 zero (4)
//! ```

use super::connect::RemoteEndpoint;
use crate::memory_slice::RemoteSlice;
use bareverbs_prm::ids::{Gid, MacAddress, Mkey, Qpn};
use bareverbs_prm::numbering::RoceVersion;
use bareverbs_prm::psn::Psn;
use core::fmt;

const ENDPOINT: [u8; 4] = *b"BVE1";
const SLICE: [u8; 4] = *b"BVS1";

/// Bytes that do not encode an endpoint or slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireFormError {
    /// The length is wrong.
    Length {
        /// Length found.
        found: usize,
        /// Length expected.
        expected: usize,
    },
    /// The magic is wrong: something else, or another version of the encoding.
    Mark {
        /// The magic found.
        found: [u8; 4],
        /// The magic of this version.
        expected: [u8; 4],
    },
    /// A field has an invalid value.
    Field {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: u32,
    },
}

impl fmt::Display for WireFormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Length { found, expected } => write!(
                f,
                "reading what the peer sent: {found} bytes instead of {expected}; was it cut, or sent in another form?"
            ),
            Self::Mark { found, expected } => write!(
                f,
                "reading what the peer sent: it begins with \"{}\" instead of \"{}\"; does the peer have the same version?",
                found.escape_ascii(),
                expected.escape_ascii()
            ),
            Self::Field { name, value } => {
                write!(f, "reading what the peer sent: {name} is {value:#x}, which cannot be")
            }
        }
    }
}

impl core::error::Error for WireFormError {}

impl RemoteEndpoint {
    /// Length of the encoding in bytes.
    pub const BYTES: usize = 40;

    /// Encodes the endpoint for the peer.
    ///
    /// ```
    /// use bareverbs_core::RemoteEndpoint;
    /// # use bareverbs_prm::{ids::{Gid, MacAddress, Qpn}, psn::Psn};
    /// # let (gid, mac) = (Gid::from_ipv4([10, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 1]));
    /// # let (qpn, psn) = (Qpn::from_low_bits(0x42), Psn::new(7));
    /// # let endpoint = RemoteEndpoint { qpn, psn, gid, mac, version: None, lid: 0 };
    ///
    /// let bytes = endpoint.to_bytes();
    /// assert_eq!(RemoteEndpoint::from_bytes(&bytes), Ok(endpoint));
    /// assert!(RemoteEndpoint::from_bytes(&bytes[1..]).is_err());
    /// ```
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&ENDPOINT);
        bytes[4..8].copy_from_slice(&self.qpn.value().to_be_bytes());
        bytes[8..12].copy_from_slice(&self.psn.value().to_be_bytes());
        bytes[12..28].copy_from_slice(&self.gid.0);
        bytes[28..34].copy_from_slice(&self.mac.0);
        bytes[34] = version_code(self.version);
        bytes[36..38].copy_from_slice(&self.lid.to_be_bytes());
        bytes
    }

    /// Decodes an endpoint encoded with [`Self::to_bytes`].
    ///
    /// # Errors
    /// The bytes do not encode an endpoint, or have another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireFormError> {
        let bytes: &[u8; Self::BYTES] = sized(bytes)?;
        check_mark(bytes, ENDPOINT)?;
        check_zero(&[bytes[35], bytes[38], bytes[39]])?;
        Ok(Self {
            qpn: qpn_of(word(bytes, 4))?,
            psn: psn_of(word(bytes, 8))?,
            gid: Gid(piece(bytes, 12)),
            mac: MacAddress(piece(bytes, 28)),
            version: version_of(bytes[34])?,
            lid: u16::from_be_bytes(piece(bytes, 36)),
        })
    }
}

impl RemoteSlice {
    /// Length of the encoding in bytes.
    pub const BYTES: usize = 24;

    /// Encodes the slice for the peer.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&SLICE);
        bytes[4..8].copy_from_slice(&self.length.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.rkey.value().to_be_bytes());
        bytes
    }

    /// Decodes a slice encoded with [`Self::to_bytes`].
    ///
    /// # Errors
    /// The bytes do not encode a slice, or have another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireFormError> {
        let bytes: &[u8; Self::BYTES] = sized(bytes)?;
        check_mark(bytes, SLICE)?;
        check_zero(&piece::<4>(bytes, 20))?;
        let address = u64::from_be_bytes(piece(bytes, 8));
        Ok(Self::from_raw(address, word(bytes, 4), Mkey::new(word(bytes, 16))))
    }
}

/// The encoding of a RoCE version: 0 if unknown.
pub(super) const fn version_code(version: Option<RoceVersion>) -> u8 {
    match version {
        Some(RoceVersion::Version1) => 1,
        Some(RoceVersion::Version2) => 2,
        _ => 0,
    }
}

pub(super) fn version_of(code: u8) -> Result<Option<RoceVersion>, WireFormError> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(RoceVersion::Version1)),
        2 => Ok(Some(RoceVersion::Version2)),
        other => Err(WireFormError::Field { name: "the RoCE version", value: other.into() }),
    }
}

pub(super) fn qpn_of(value: u32) -> Result<Qpn, WireFormError> {
    Qpn::new(value).ok_or(WireFormError::Field { name: "the queue pair number", value })
}

pub(super) fn psn_of(value: u32) -> Result<Psn, WireFormError> {
    match value >> 24 {
        0 => Ok(Psn::new(value)),
        _ => Err(WireFormError::Field { name: "the PSN", value }),
    }
}

fn sized<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], WireFormError> {
    bytes.try_into().map_err(|_| WireFormError::Length { found: bytes.len(), expected: N })
}

fn check_mark(bytes: &[u8], expected: [u8; 4]) -> Result<(), WireFormError> {
    let found = piece(bytes, 0);
    if found == expected { Ok(()) } else { Err(WireFormError::Mark { found, expected }) }
}

/// Reserved bytes must be zero, so that a later version can give them a meaning.
fn check_zero(reserved: &[u8]) -> Result<(), WireFormError> {
    match reserved.iter().find(|byte| **byte != 0) {
        None => Ok(()),
        Some(&byte) => Err(WireFormError::Field { name: "a reserved byte", value: byte.into() }),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(piece(bytes, at))
}

/// `N` bytes at `at`, which callers choose within the form.
fn piece<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk().copied()).unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    fn endpoint() -> impl Strategy<Value = RemoteEndpoint> {
        let version =
            prop_oneof![Just(None), Just(Some(RoceVersion::Version1)), Just(Some(RoceVersion::Version2))];
        (any::<u32>(), any::<u32>(), any::<[u8; 16]>(), any::<[u8; 6]>(), version, any::<u16>()).prop_map(
            |(qpn, psn, gid, mac, version, lid)| RemoteEndpoint {
                qpn: Qpn::from_low_bits(qpn),
                psn: Psn::new(psn),
                gid: Gid(gid),
                mac: MacAddress(mac),
                version,
                lid,
            },
        )
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(endpoint in endpoint(), slice in any::<(u64, u32, u32)>()) {
            prop_assert_eq!(RemoteEndpoint::from_bytes(&endpoint.to_bytes()), Ok(endpoint));
            let slice = RemoteSlice::from_raw(slice.0, slice.1, Mkey::new(slice.2));
            prop_assert_eq!(RemoteSlice::from_bytes(&slice.to_bytes()), Ok(slice));
        }

        /// Arbitrary bytes are either decoded or refused, and a decoded value encodes to the same bytes.
        #[test]
        fn other_bytes_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..64), marked in any::<bool>()) {
            if marked && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&ENDPOINT);
            }
            if let Ok(endpoint) = RemoteEndpoint::from_bytes(&bytes) {
                prop_assert_eq!(&endpoint.to_bytes()[..], &bytes[..]);
            }
            RemoteSlice::from_bytes(&bytes).ok();
        }
    }

    /// Peers of other versions read this form, so it must never change.
    #[test]
    fn the_form_is_fixed() {
        let gid = Gid::from_ipv4([10, 0, 0, 1]);
        let mac = MacAddress([2, 0, 0, 0, 0, 9]);
        let (qpn, psn, version) =
            (Qpn::from_low_bits(0x123456), Psn::new(0xabcdef), Some(RoceVersion::Version2));
        let bytes = RemoteEndpoint { qpn, psn, gid, mac, version, lid: 0x0102 }.to_bytes();
        let expected = *b"BVE1\x00\x12\x34\x56\x00\xab\xcd\xef\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x01\x02\0\0\0\0\x09\x02\0\x01\x02\0\0";
        assert_eq!(bytes, expected);
        let slice = RemoteSlice::from_raw(0x0102_0304_0506_0708, 0x1000, Mkey::new(0xaabb_ccdd));
        let expected = *b"BVS1\0\0\x10\0\x01\x02\x03\x04\x05\x06\x07\x08\xaa\xbb\xcc\xdd\0\0\0\0";
        assert_eq!(slice.to_bytes(), expected);
    }

    #[test]
    fn each_mistake_is_reported_with_its_value() {
        let good = *b"BVS1\0\0\x10\0\x01\x02\x03\x04\x05\x06\x07\x08\xaa\xbb\xcc\xdd\0\0\0\0";
        let text = |bytes: &[u8]| RemoteSlice::from_bytes(bytes).unwrap_err().to_string();
        assert!(text(&good[..20]).contains("20 bytes instead of 24"));
        let mut other = good;
        other[3] = b'2';
        assert!(text(&other).contains("begins with \"BVS2\" instead of \"BVS1\""));
        let mut other = good;
        other[23] = 5;
        assert!(text(&other).contains("a reserved byte is 0x5"));
        let mut qpn = [0; RemoteEndpoint::BYTES];
        qpn[..8].copy_from_slice(b"BVE1\x01\0\0\0");
        assert!(
            RemoteEndpoint::from_bytes(&qpn)
                .unwrap_err()
                .to_string()
                .contains("queue pair number is 0x1000000")
        );
    }
}

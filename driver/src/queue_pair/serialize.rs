//! Serde support for [`RemoteEndpoint`] and [`RemoteSlice`]: named fields in human-readable formats, the fixed bytes of
//! `wire_form` in others. The bytes have a version, so later versions of this crate can read both.

use super::connect::RemoteEndpoint;
use super::wire_form::{self, WireFormError};
use crate::memory_slice::RemoteSlice;
use bareverbs_prm::ids::{Gid, MacAddress, Mkey, Qpn};
use bareverbs_prm::numbering::RoceVersion;
use bareverbs_prm::psn::Psn;
use core::fmt;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An endpoint in human-readable form. Addresses are their bytes in transmission order.
#[derive(Serialize, Deserialize)]
#[serde(rename = "RemoteEndpoint", deny_unknown_fields)]
struct NamedEndpoint {
    qpn: u32,
    psn: u32,
    gid: [u8; 16],
    mac: [u8; 6],
    /// 1 or 2.
    roce_version: Option<u8>,
    lid: u16,
}

/// A slice in human-readable form.
#[derive(Serialize, Deserialize)]
#[serde(rename = "RemoteSlice", deny_unknown_fields)]
struct NamedSlice {
    address: u64,
    rkey: u32,
    length: u32,
}

impl From<&RemoteEndpoint> for NamedEndpoint {
    fn from(endpoint: &RemoteEndpoint) -> Self {
        let RemoteEndpoint { qpn, psn, gid, mac, version, lid } = *endpoint;
        let roce_version = wire_form::version_code(version);
        let roce_version = (roce_version != 0).then_some(roce_version);
        Self { qpn: qpn.value(), psn: psn.value(), gid: gid.0, mac: mac.0, roce_version, lid }
    }
}

impl TryFrom<NamedEndpoint> for RemoteEndpoint {
    type Error = WireFormError;

    fn try_from(named: NamedEndpoint) -> Result<Self, WireFormError> {
        let NamedEndpoint { qpn, psn, gid, mac, roce_version, lid } = named;
        let version: Option<RoceVersion> = wire_form::version_of(roce_version.unwrap_or(0))?;
        let (qpn, psn): (Qpn, Psn) = (wire_form::qpn_of(qpn)?, wire_form::psn_of(psn)?);
        Ok(Self { qpn, psn, gid: Gid(gid), mac: MacAddress(mac), version, lid })
    }
}

impl Serialize for RemoteEndpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => NamedEndpoint::from(self).serialize(serializer),
            false => serializer.serialize_bytes(&self.to_bytes()),
        }
    }
}

impl<'de> Deserialize<'de> for RemoteEndpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Self::try_from(NamedEndpoint::deserialize(deserializer)?).map_err(D::Error::custom);
        }
        let bytes = deserializer.deserialize_bytes(Bytes::<{ Self::BYTES }>)?;
        Self::from_bytes(&bytes).map_err(D::Error::custom)
    }
}

impl Serialize for RemoteSlice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { address, rkey, length } = *self;
        match serializer.is_human_readable() {
            true => NamedSlice { address, rkey: rkey.value(), length }.serialize(serializer),
            false => serializer.serialize_bytes(&self.to_bytes()),
        }
    }
}

impl<'de> Deserialize<'de> for RemoteSlice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let NamedSlice { address, rkey, length } = NamedSlice::deserialize(deserializer)?;
            return Ok(Self { address, rkey: Mkey::new(rkey), length });
        }
        let bytes = deserializer.deserialize_bytes(Bytes::<{ Self::BYTES }>)?;
        Self::from_bytes(&bytes).map_err(D::Error::custom)
    }
}

/// Takes exactly `N` bytes, either as bytes or, in formats without them, as a sequence of numbers.
struct Bytes<const N: usize>;

impl<'de, const N: usize> Visitor<'de> for Bytes<N> {
    type Value = [u8; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{N} bytes of the fixed form")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<[u8; N], E> {
        bytes.try_into().map_err(|_| E::invalid_length(bytes.len(), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<[u8; N], A::Error> {
        let mut bytes = [0; N];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = sequence.next_element()?.ok_or_else(|| A::Error::invalid_length(at, &self))?;
        }
        match sequence.next_element::<u8>()? {
            None => Ok(bytes),
            Some(_) => Err(A::Error::invalid_length(N + 1, &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use serde::de::value::{Error as ValueError, SeqDeserializer};
    use serde_test::{Compact, Configure, Token, assert_de_tokens_error, assert_tokens};
    use std::string::ToString;

    const TEXT: &str = r#"{"qpn":66,"psn":7,"gid":[0,0,0,0,0,0,0,0,0,0,255,255,10,0,0,1],"mac":[2,0,0,0,0,1],"roce_version":2,"lid":3}"#;

    fn endpoint() -> RemoteEndpoint {
        RemoteEndpoint {
            qpn: Qpn::from_low_bits(66),
            psn: Psn::new(7),
            gid: Gid::from_ipv4([10, 0, 0, 1]),
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            version: Some(RoceVersion::Version2),
            lid: 3,
        }
    }

    /// Files with this text exist, so the form must not change.
    #[test]
    fn text_has_names() {
        assert_eq!(serde_json::to_string(&endpoint()).unwrap(), TEXT);
        assert_eq!(serde_json::from_str::<RemoteEndpoint>(TEXT).unwrap(), endpoint());
        let slice = RemoteSlice::from_raw(u64::MAX, 64, Mkey::new(9));
        let text = r#"{"address":18446744073709551615,"rkey":9,"length":64}"#;
        assert_eq!(serde_json::to_string(&slice).unwrap(), text);
        assert_eq!(serde_json::from_str::<RemoteSlice>(text).unwrap(), slice);
    }

    #[test]
    fn text_is_checked_as_bytes_are() {
        for (from, to, says) in [
            (r#""qpn":66"#, r#""qpn":16777216"#, "the queue pair number is 0x1000000"),
            (r#""psn":7"#, r#""psn":16777216"#, "the PSN is 0x1000000"),
            (r#""roce_version":2"#, r#""roce_version":3"#, "the RoCE version is 0x3"),
            (r#""lid":3"#, r#""lid":3,"more":1"#, "unknown field `more`"),
        ] {
            let refused = serde_json::from_str::<RemoteEndpoint>(&TEXT.replace(from, to)).unwrap_err();
            assert!(refused.to_string().contains(says), "{refused}");
        }
    }

    #[test]
    fn compact_formats_have_the_fixed_bytes() {
        let bytes: &'static [u8] = std::boxed::Box::leak(std::boxed::Box::new(endpoint().to_bytes()));
        assert_tokens(&endpoint().compact(), &[Token::Bytes(bytes)]);
        let slice = RemoteSlice::from_raw(0x1000, 64, Mkey::new(9));
        let bytes: &'static [u8] = std::boxed::Box::leak(std::boxed::Box::new(slice.to_bytes()));
        assert_tokens(&slice.compact(), &[Token::Bytes(bytes)]);
        let cut = "invalid length 23, expected 24 bytes of the fixed form";
        assert_de_tokens_error::<Compact<RemoteSlice>>(&[Token::Bytes(&bytes[1..])], cut);
    }

    /// Formats without bytes use a sequence of numbers.
    #[test]
    fn a_sequence_of_another_length_is_refused() {
        let bytes = RemoteSlice::from_raw(0x1000, 64, Mkey::new(9)).to_bytes();
        let from = |numbers: &[u8]| {
            let numbers = SeqDeserializer::<_, ValueError>::new(numbers.iter().copied());
            numbers.deserialize_any(Bytes::<{ RemoteSlice::BYTES }>)
        };
        assert_eq!(from(&bytes).unwrap(), bytes);
        assert!(from(&bytes[1..]).unwrap_err().to_string().contains("invalid length 23, expected 24 bytes"));
        assert!(from(&[0; 25]).unwrap_err().to_string().contains("invalid length 25"));
    }
}

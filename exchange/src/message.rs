//! The wire format: big-endian, every message headed by a magic and a version.
//!
//! ```text
//! head           0 "BVEX"   4 version (2)   6 kind (2)   8 bytes of the body (4)
//! introduction   0 endpoint (40)   40 path MTU (1)   41 zero   42 slices (2)   44 bytes of purpose (2)   46 zero (2)
//!                48 bytes of data (4)   52 purpose, slices of 24 bytes each, data
//! ready          nothing
//! refusal        text, UTF-8
//! name, challenge, proof: see `proof`
//! ```
//!
//! The head has this form in every version, so that two versions can tell each other apart.

use bareverbs_core::queue_pair::WireFormError;
use bareverbs_core::{RemoteEndpoint, RemoteSlice};
use bareverbs_prm::numbering::PathMtu;
use core::fmt;

/// Protocol version of the exchange.
pub const VERSION: u16 = 1;
pub(crate) const HEAD: usize = 12;
const MARK: [u8; 4] = *b"BVEX";
const FIXED: usize = 52;
const MAX_PURPOSE: usize = 255;
const MAX_SLICES: usize = 1024;
const MAX_DATA: usize = 64 * 1024;
/// Longest text of a refusal, in bytes.
pub(crate) const MAX_REFUSAL: usize = 1024;
/// Longest name of a caller, in bytes.
const MAX_NAME: usize = 64;
/// Longest body of any message, in bytes.
pub(crate) const MAX_BODY: usize = FIXED + MAX_PURPOSE + MAX_SLICES * RemoteSlice::BYTES + MAX_DATA;

/// What one end tells the other.
///
/// ```
/// use bareverbs_core::{DeviceRef, MemoryRegion, PreparedQueuePair};
/// use bareverbs_exchange::Introduction;
/// use bareverbs_prm::numbering::PathMtu;
/// use std::error::Error;
///
/// /// What a server sends to its callers: its queue pair, and the memory that may be read.
/// fn introduce<D: DeviceRef>(
///     prepared: &PreparedQueuePair<D>,
///     log: &MemoryRegion<D>,
/// ) -> Result<Introduction, Box<dyn Error>> {
///     let own = Introduction::new("replicated log 2", prepared.endpoint(0)?).offering(log.remote(0));
///     Ok(Introduction { path_mtu: PathMtu::Mtu4096, data: b"term 7".to_vec(), ..own })
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// What the connection is for, including a version. Both ends must say the same. Up to 255 bytes.
    pub purpose: String,
    /// Endpoint of the queue pair.
    pub endpoint: RemoteEndpoint,
    /// Largest packet payload that this end accepts. The connection uses the smaller one of both ends.
    pub path_mtu: PathMtu,
    /// Memory that the peer may use. Up to 1,024 slices.
    pub slices: Vec<RemoteSlice>,
    /// Data of the application. Up to 64 KiB.
    pub data: Vec<u8>,
}

impl Introduction {
    /// An introduction that offers no memory. Its path MTU is 1,024 bytes, the default of
    /// [`ConnectOptions`](bareverbs_core::ConnectOptions).
    pub fn new(purpose: impl Into<String>, endpoint: RemoteEndpoint) -> Self {
        let (purpose, path_mtu) = (purpose.into(), PathMtu::Mtu1024);
        Self { purpose, endpoint, path_mtu, slices: Vec::new(), data: Vec::new() }
    }

    /// Offers one more slice of memory.
    #[must_use]
    pub fn offering(mut self, slice: RemoteSlice) -> Self {
        self.slices.push(slice);
        self
    }

    /// Encodes the message body.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, MessageError> {
        check(Limit::Purpose, self.purpose.len())?;
        check(Limit::Slices, self.slices.len())?;
        check(Limit::Data, self.data.len())?;
        check_path_mtu(self.path_mtu)?;
        let mut body = Vec::with_capacity(FIXED + self.purpose.len() + self.data.len());
        body.extend(self.endpoint.to_bytes());
        body.extend([self.path_mtu.raw(), 0]);
        body.extend((self.slices.len() as u16).to_be_bytes());
        body.extend((self.purpose.len() as u16).to_be_bytes());
        body.extend([0, 0]);
        body.extend((self.data.len() as u32).to_be_bytes());
        body.extend(self.purpose.as_bytes());
        self.slices.iter().for_each(|slice| body.extend(slice.to_bytes()));
        body.extend(&self.data);
        Ok(body)
    }

    /// Decodes a body that a peer sent.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, MessageError> {
        let mut rest = Rest(body);
        let endpoint = RemoteEndpoint::from_bytes(rest.take(RemoteEndpoint::BYTES)?)?;
        let [path_mtu, zero] = rest.array()?;
        let [slices, purpose, reserved] = [rest.u16()?, rest.u16()?, rest.u16()?];
        if (zero, reserved) != (0, 0) {
            return Err(MessageError::Reserved);
        }
        let data = rest.u32()? as usize;
        check(Limit::Purpose, purpose.into())?;
        check(Limit::Slices, slices.into())?;
        check(Limit::Data, data)?;
        let purpose = core::str::from_utf8(rest.take(purpose.into())?).map_err(|_| MessageError::NotText)?;
        let slices: Result<Vec<_>, _> = (0..slices)
            .map(|_| Ok::<_, MessageError>(RemoteSlice::from_bytes(rest.take(RemoteSlice::BYTES)?)?))
            .collect();
        let (slices, data) = (slices?, rest.take(data)?.to_vec());
        if !rest.0.is_empty() {
            return Err(MessageError::Length { expected: body.len() - rest.0.len(), found: body.len() });
        }
        let path_mtu = PathMtu::from_raw(path_mtu);
        check_path_mtu(path_mtu)?;
        Ok(Self { purpose: purpose.to_owned(), endpoint, path_mtu, slices, data })
    }
}

/// A quantity with an upper limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of [`Introduction::purpose`].
    Purpose,
    /// Number of [`Introduction::slices`].
    Slices,
    /// Bytes of [`Introduction::data`].
    Data,
    /// Bytes of a message after its head.
    Body,
    /// Bytes of a caller's name.
    Name,
}

impl Limit {
    /// The limit's value.
    pub const fn largest(self) -> usize {
        match self {
            Self::Purpose => MAX_PURPOSE,
            Self::Slices => MAX_SLICES,
            Self::Data => MAX_DATA,
            Self::Body => MAX_BODY,
            Self::Name => MAX_NAME,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Purpose => "bytes of purpose",
            Self::Slices => "slices of memory",
            Self::Data => "bytes of data",
            Self::Body => "bytes of message",
            Self::Name => "bytes of name",
        }
    }
}

/// An invalid introduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// Something exceeds its limit.
    TooMany {
        /// Which limit.
        limit: Limit,
        /// The value found.
        found: usize,
    },
    /// The parts of the message do not add up to its length.
    Length {
        /// Bytes of its parts, as far as they were read.
        expected: usize,
        /// Length of the message.
        found: usize,
    },
    /// Reserved bytes are not zero.
    Reserved,
    /// The purpose is not UTF-8.
    NotText,
    /// A path MTU that InfiniBand does not define.
    PathMtu {
        /// IBTA's code of it.
        code: u8,
    },
    /// The endpoint or a slice is invalid.
    Form(WireFormError),
}

impl From<WireFormError> for MessageError {
    fn from(error: WireFormError) -> Self {
        Self::Form(error)
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooMany { limit, found } => {
                write!(f, "{found} {}, but at most {} are allowed", limit.name(), limit.largest())
            }
            Self::Length { expected, found } => {
                write!(f, "the parts of the message take {expected} bytes, the message has {found}")
            }
            Self::Reserved => write!(f, "reserved bytes are not zero"),
            Self::NotText => write!(f, "the purpose is not UTF-8"),
            Self::PathMtu { code } => {
                write!(f, "the path MTU has the code {code}; codes go from 1 (256 bytes) to 5 (4,096 bytes)")
            }
            Self::Form(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for MessageError {}

/// Kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Introduction,
    Ready,
    Refusal,
    Name,
    Challenge,
    Proof,
    Unknown(u16),
}

impl Kind {
    pub(crate) const fn value(self) -> u16 {
        match self {
            Self::Introduction => 1,
            Self::Ready => 2,
            Self::Refusal => 3,
            Self::Name => 4,
            Self::Challenge => 5,
            Self::Proof => 6,
            Self::Unknown(value) => value,
        }
    }
}

impl From<u16> for Kind {
    fn from(value: u16) -> Self {
        match value {
            1 => Self::Introduction,
            2 => Self::Ready,
            3 => Self::Refusal,
            4 => Self::Name,
            5 => Self::Challenge,
            6 => Self::Proof,
            other => Self::Unknown(other),
        }
    }
}

/// The head of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) body: usize,
}

/// A head that this version does not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadError {
    Mark([u8; 4]),
    Version(u16),
    TooLong(usize),
}

impl Head {
    pub(crate) fn encode(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.value().to_be_bytes());
        bytes[8..].copy_from_slice(&(self.body as u32).to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; HEAD]) -> Result<Self, HeadError> {
        let [a, b, c, d, v, w, k, l, rest @ ..] = bytes;
        let (mark, version, body) =
            ([a, b, c, d], u16::from_be_bytes([v, w]), u32::from_be_bytes(rest) as usize);
        match () {
            () if mark != MARK => Err(HeadError::Mark(mark)),
            () if version != VERSION => Err(HeadError::Version(version)),
            () if body > MAX_BODY => Err(HeadError::TooLong(body)),
            () => Ok(Self { kind: Kind::from(u16::from_be_bytes([k, l])), body }),
        }
    }
}

pub(crate) fn check(limit: Limit, found: usize) -> Result<(), MessageError> {
    if found > limit.largest() { Err(MessageError::TooMany { limit, found }) } else { Ok(()) }
}

fn check_path_mtu(path_mtu: PathMtu) -> Result<(), MessageError> {
    match path_mtu.raw() {
        1..=5 => Ok(()),
        code => Err(MessageError::PathMtu { code }),
    }
}

/// The unread remainder of a body.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], MessageError> {
        let (taken, rest) = self
            .0
            .split_at_checked(bytes)
            .ok_or(MessageError::Length { expected: bytes, found: self.0.len() })?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (taken, rest) =
            self.0.split_first_chunk().ok_or(MessageError::Length { expected: N, found: self.0.len() })?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, MessageError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        self.array().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::ids::{Gid, MacAddress, Mkey, Qpn};
    use bareverbs_prm::psn::Psn;
    use proptest::prelude::*;

    fn introduction() -> Introduction {
        let endpoint = RemoteEndpoint {
            qpn: Qpn::from_low_bits(0x42),
            psn: Psn::new(7),
            gid: Gid::from_ipv4([10, 0, 0, 1]),
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            version: None,
            lid: 0,
        };
        Introduction::new("test 1", endpoint)
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(
            purpose in "\\PC{0,40}",
            slices in prop::collection::vec(any::<(u64, u32, u32)>(), 0..5),
            data in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let slices = slices.into_iter().map(|(address, length, key)| RemoteSlice::from_raw(address, length, Mkey::new(key))).collect();
            let own = Introduction { purpose, slices, data, ..introduction() };
            prop_assert_eq!(Introduction::decode(&own.encode().unwrap()), Ok(own));
        }

        /// Any body of a peer is either refused or re-encodes to the same bytes.
        #[test]
        fn other_bytes_are_refused(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            length in any::<prop::sample::Index>(),
        ) {
            let mut body = introduction().offering(RemoteSlice::default()).encode().unwrap();
            for (at, value) in edits {
                *at.get_mut(&mut body) = value;
            }
            body.truncate(length.index(body.len()) + 1);
            if let Ok(read) = Introduction::decode(&body) {
                prop_assert_eq!(read.encode(), Ok(body));
            }
        }

        #[test]
        fn heads_are_read_or_refused(bytes in any::<[u8; HEAD]>()) {
            if let Ok(head) = Head::decode(bytes) {
                prop_assert_eq!(head.encode(), bytes);
            }
        }
    }

    /// Programs of other versions read this form, so it must never change.
    #[test]
    fn the_form_is_fixed() {
        let slice = RemoteSlice::from_raw(0x1000, 64, Mkey::new(0x99));
        let own = Introduction { data: b"xyz".to_vec(), ..introduction().offering(slice) };
        let mut expected = own.endpoint.to_bytes().to_vec();
        expected.extend(b"\x03\0\0\x01\0\x06\0\0\0\0\0\x03test 1");
        expected.extend(slice.to_bytes());
        expected.extend(b"xyz");
        assert_eq!(own.encode().unwrap(), expected);
        let head = Head { kind: Kind::Introduction, body: expected.len() }.encode();
        assert_eq!(&head, b"BVEX\0\x01\0\x01\0\0\0\x55");
    }

    #[test]
    fn oversized_values_are_refused_with_the_limit() {
        let own = Introduction { purpose: "p".repeat(256), ..introduction() };
        assert_eq!(
            own.encode().unwrap_err().to_string(),
            "256 bytes of purpose, but at most 255 are allowed"
        );
        let own = Introduction { data: vec![0; MAX_DATA + 1], ..introduction() };
        assert_eq!(own.encode(), Err(MessageError::TooMany { limit: Limit::Data, found: MAX_DATA + 1 }));
        let own = Introduction { path_mtu: PathMtu::RawEthernetQp, ..introduction() };
        assert_eq!(own.encode(), Err(MessageError::PathMtu { code: 7 }));
    }
}

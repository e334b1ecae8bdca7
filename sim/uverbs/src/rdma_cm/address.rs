//! Socket addresses, as programs write them: `sockaddr_in`, `sockaddr_in6`, `sockaddr_ib`.

use crate::uapi::SOCKADDR_STORAGE;
use bareverbs_cm::{IP_ENDS, IpEnds};
use bareverbs_prm::ids::Gid;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Families, as Linux numbers them.
const INET: u16 = 2;
const INET6: u16 = 10;
const IB: u16 = 27;
/// Bytes of each.
const INET_SIZE: usize = 16;
const INET6_SIZE: usize = 28;
const IB_SIZE: usize = 48;
/// Offsets of the service ID and of its mask in a `sockaddr_ib`.
const SERVICE_ID: usize = 24;

/// An address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketAddress {
    V4 {
        address: [u8; 4],
        port: u16,
    },
    V6 {
        address: [u8; 16],
        port: u16,
        /// Flow information and scope, unchanged.
        rest: [u8; 8],
    },
    /// An address of native InfiniBand, unchanged. librdmacm uses one to find out whether the kernel supports
    /// them.
    Native([u8; IB_SIZE]),
}

/// A `sockaddr_storage`, and how many of its bytes are used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Storage {
    pub(super) bytes: [u8; SOCKADDR_STORAGE],
    pub(super) size: u16,
}

impl Storage {
    /// No address.
    pub(super) const NONE: Self = Self { bytes: [0; SOCKADDR_STORAGE], size: 0 };
}

/// What an address refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Any,
    Loopback,
    Gid(Gid),
}

impl SocketAddress {
    /// Any IPv4 address, any port.
    pub(super) const ANY: Self = Self::V4 { address: [0; 4], port: 0 };

    /// Parses an address; `None` if it is of another family or too short.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let family = u16::from_ne_bytes(*bytes.first_chunk()?);
        let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
        match family {
            INET => Some(Self::V4 { address: *bytes.get(4..)?.first_chunk()?, port }),
            INET6 => {
                let (flow, scope): (&[u8; 4], &[u8; 4]) =
                    (bytes.get(4..)?.first_chunk()?, bytes.get(24..)?.first_chunk()?);
                let mut rest = [0; 8];
                rest[..4].copy_from_slice(flow);
                rest[4..].copy_from_slice(scope);
                Some(Self::V6 { address: *bytes.get(8..)?.first_chunk()?, port, rest })
            }
            IB => Some(Self::Native(*bytes.first_chunk()?)),
            _ => None,
        }
    }

    /// The bytes of a `sockaddr_storage`.
    pub(super) fn write(&self) -> Storage {
        let mut bytes = [0; SOCKADDR_STORAGE];
        bytes[..2].copy_from_slice(&self.family().to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.port().to_be_bytes());
        let size = match self {
            Self::V4 { address, .. } => {
                bytes[4..8].copy_from_slice(address);
                INET_SIZE
            }
            Self::V6 { address, rest, .. } => {
                bytes[4..8].copy_from_slice(&rest[..4]);
                bytes[8..24].copy_from_slice(address);
                bytes[24..28].copy_from_slice(&rest[4..]);
                INET6_SIZE
            }
            Self::Native(native) => {
                bytes[..IB_SIZE].copy_from_slice(native);
                IB_SIZE
            }
        };
        Storage { bytes, size: size as u16 }
    }

    pub(super) const fn family(&self) -> u16 {
        match self {
            Self::V4 { .. } => INET,
            Self::V6 { .. } => INET6,
            Self::Native(_) => IB,
        }
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            Self::V4 { port, .. } | Self::V6 { port, .. } => *port,
            Self::Native(bytes) => u16::from_be_bytes([bytes[SERVICE_ID + 6], bytes[SERVICE_ID + 7]]),
        }
    }

    /// The port space that a service ID names; for other addresses, the identifier's creator names it.
    pub(super) fn named_space(&self) -> Option<u16> {
        match self {
            Self::Native(bytes) => Some(u16::from_be_bytes([bytes[SERVICE_ID + 4], bytes[SERVICE_ID + 5]])),
            _ => None,
        }
    }

    /// The same with another port.
    pub(super) fn with_port(mut self, wanted: u16) -> Self {
        match &mut self {
            Self::V4 { port, .. } | Self::V6 { port, .. } => *port = wanted,
            Self::Native(bytes) => {
                bytes[SERVICE_ID + 6..SERVICE_ID + 8].copy_from_slice(&wanted.to_be_bytes());
            }
        }
        self
    }

    /// The IP address and port; unspecified for native InfiniBand.
    fn ip_end(&self) -> SocketAddr {
        let ip = match self {
            Self::V4 { address, .. } => IpAddr::from(*address),
            Self::V6 { address, .. } => IpAddr::from(*address),
            Self::Native(_) => Ipv4Addr::UNSPECIFIED.into(),
        };
        SocketAddr::new(ip, self.port())
    }

    /// What the address refers to.
    pub(super) fn place(&self) -> Place {
        let gid = match self {
            Self::V4 { address, .. } => Gid::from_ipv4(*address),
            Self::V6 { address, .. } => Gid(*address),
            Self::Native(bytes) => {
                let mut gid = [0; 16];
                gid.copy_from_slice(&bytes[8..24]);
                Gid(gid)
            }
        };
        let mut loopback = [0; 16];
        loopback[15] = 1;
        match gid.to_ipv4() {
            Some([0, 0, 0, 0]) => Place::Any,
            Some([127, ..]) => Place::Loopback,
            None if gid.is_zero() => Place::Any,
            None if gid.0 == loopback => Place::Loopback,
            _ => Place::Gid(gid),
        }
    }

    /// The address of a GID, in the family that the GID implies, with a port.
    pub(super) fn of_gid(gid: Gid, port: u16) -> Self {
        match gid.to_ipv4() {
            Some(address) => Self::V4 { address, port },
            None => Self::V6 { address: gid.0, port, rest: [0; 8] },
        }
    }
}

/// The addresses of both ends that precede a program's private data, as socket addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AddressHeader {
    pub(super) source: SocketAddress,
    pub(super) destination: SocketAddress,
}

impl AddressHeader {
    /// The bytes. The destination's port is in the service ID.
    pub(super) fn write(&self) -> [u8; IP_ENDS] {
        IpEnds { source: self.source.ip_end(), destination: self.destination.ip_end() }.write()
    }

    /// Parses the bytes; `None` if they are of another version.
    pub(super) fn parse(bytes: &[u8], destination_port: u16) -> Option<Self> {
        let IpEnds { source, destination } = IpEnds::parse(bytes, destination_port)?;
        Some(Self { source: source.into(), destination: destination.into() })
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(end: SocketAddr) -> Self {
        match end.ip() {
            IpAddr::V4(address) => Self::V4 { address: address.octets(), port: end.port() },
            IpAddr::V6(address) => Self::V6 { address: address.octets(), port: end.port(), rest: [0; 8] },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_their_bytes() {
        let mut native = [0; IB_SIZE];
        native[..2].copy_from_slice(&IB.to_ne_bytes());
        native[SERVICE_ID..SERVICE_ID + 8].copy_from_slice(&0x0106_1c06_u64.to_be_bytes());
        for address in [
            SocketAddress::V4 { address: [198, 18, 3, 4], port: 7174 },
            SocketAddress::V6 { address: [0xfe; 16], port: 1, rest: [1, 2, 3, 4, 5, 6, 7, 8] },
            SocketAddress::Native(native),
        ] {
            let Storage { bytes, size } = address.write();
            assert_eq!(SocketAddress::parse(&bytes[..size.into()]), Some(address));
            assert_eq!(SocketAddress::parse(&bytes[..usize::from(size) - 9]), None, "too short");
            assert_eq!(address.with_port(5).port(), 5);
        }
        assert_eq!(SocketAddress::Native(native).named_space(), Some(0x0106));
        assert_eq!(SocketAddress::parse(&[1, 0, 0, 0, 0, 0, 0, 0]), None, "another family");
    }

    #[test]
    fn addresses_say_whose_they_are() {
        let v4 = |address| SocketAddress::V4 { address, port: 0 }.place();
        assert_eq!(v4([0; 4]), Place::Any);
        assert_eq!(v4([127, 0, 0, 1]), Place::Loopback);
        assert_eq!(v4([198, 18, 0, 1]), Place::Gid(Gid::from_ipv4([198, 18, 0, 1])));
        let v6 = |address| SocketAddress::V6 { address, port: 0, rest: [0; 8] }.place();
        assert_eq!(v6([0; 16]), Place::Any);
        assert_eq!(v6(Gid::from_ipv4([127, 0, 0, 1]).0), Place::Loopback, "mapped");
    }
}

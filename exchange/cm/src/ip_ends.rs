//! What RDMA CM adds to communication management: ports as service IDs, and IP addresses before the private data (IBTA
//! annex A11).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Port space of reliable connections, numbered as in Linux (`RDMA_PS_TCP`; low byte 6 is TCP's protocol number).
pub const PORT_SPACE_TCP: u16 = 0x0106;
/// Port space of datagrams, numbered as in Linux (`RDMA_PS_UDP`; low byte 17 is UDP's protocol number).
pub const PORT_SPACE_UDP: u16 = 0x0111;
/// Encoded length of [`IpEnds`] in bytes.
pub const IP_ENDS: usize = 36;
/// Header version and IP versions.
const HEADER_VERSION: u8 = 0;
const VERSION_4: u8 = 4;
const VERSION_6: u8 = 6;
/// Offsets of the two addresses, 16 bytes each. An IPv4 address fills the last four.
const SOURCE: usize = 4;
const DESTINATION: usize = 20;
const ADDRESS: usize = 16;
const IPV4: usize = 12;

/// The service ID of a port in a port space.
pub const fn service_id(space: u16, port: u16) -> u64 {
    (space as u64) << 16 | port as u64
}

/// Port space and port of a service ID; `None` if the ID is not one of RDMA CM.
pub const fn port_of_service(service_id: u64) -> Option<(u16, u16)> {
    if service_id >> 32 != 0 || service_id as u16 == 0 {
        return None;
    }
    Some(((service_id >> 16) as u16, service_id as u16))
}

/// IP addresses of both ends, as they precede the private data of a REQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpEnds {
    /// The active side.
    pub source: SocketAddr,
    /// The passive side. Its port is not in the header: it is part of the service ID.
    pub destination: SocketAddr,
}

impl IpEnds {
    /// Encodes the header in network byte order.
    pub fn write(&self) -> [u8; IP_ENDS] {
        let mut bytes = [0; IP_ENDS];
        bytes[0] = HEADER_VERSION;
        bytes[1] = if self.source.is_ipv6() { VERSION_6 } else { VERSION_4 } << 4;
        bytes[2..4].copy_from_slice(&self.source.port().to_be_bytes());
        put(&mut bytes[SOURCE..SOURCE + ADDRESS], self.source.ip());
        put(&mut bytes[DESTINATION..DESTINATION + ADDRESS], self.destination.ip());
        bytes
    }

    /// Parses the header at the start of private data; `None` if it is truncated or of another version.
    pub fn parse(bytes: &[u8], destination_port: u16) -> Option<Self> {
        let bytes: &[u8; IP_ENDS] = bytes.first_chunk()?;
        let ip = |at: usize| -> Option<IpAddr> {
            match bytes[1] >> 4 {
                VERSION_4 => Some(Ipv4Addr::from(*bytes[at + IPV4..].first_chunk::<4>()?).into()),
                VERSION_6 => Some(Ipv6Addr::from(*bytes[at..].first_chunk::<ADDRESS>()?).into()),
                _ => None,
            }
        };
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        let source = SocketAddr::new(ip(SOURCE)?, port);
        let destination = SocketAddr::new(ip(DESTINATION)?, destination_port);
        (bytes[0] == HEADER_VERSION).then_some(Self { source, destination })
    }
}

fn put(place: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => place[IPV4..].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => place.copy_from_slice(&address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirement: RDMA IP CM Service A11: the addresses of both ends precede the program's private data.
    #[test]
    fn ends_are_those_of_annex_a11() {
        let ends = IpEnds {
            source: SocketAddr::from(([1, 2, 3, 4], 0x1234)),
            destination: SocketAddr::from(([5, 6, 7, 8], 0x5678)),
        };
        let bytes = ends.write();
        assert_eq!(bytes[..4], [0, 0x40, 0x12, 0x34]);
        assert_eq!((&bytes[16..20], &bytes[32..36]), (&[1, 2, 3, 4][..], &[5, 6, 7, 8][..]));
        assert_eq!(IpEnds::parse(&bytes, 0x5678), Some(ends));
        assert_eq!(IpEnds::parse(&bytes[..35], 0), None);
        for (at, value) in [(0, 1), (1, 0x50)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(IpEnds::parse(&other, 0), None, "byte {at}");
        }
    }

    #[test]
    fn ends_of_ipv6_fill_their_places() {
        let end = |last: u8, port| SocketAddr::from(([0xfe80, 0, 0, 0, 0, 0, 0, last.into()], port));
        let ends = IpEnds { source: end(1, 7), destination: end(2, 9) };
        let bytes = ends.write();
        assert_eq!((bytes[1], bytes[4], bytes[19], bytes[35]), (0x60, 0xfe, 1, 2));
        assert_eq!(IpEnds::parse(&bytes, 9), Some(ends));
    }

    #[test]
    fn a_service_names_space_and_port() {
        assert_eq!(service_id(PORT_SPACE_TCP, 18515), 0x0106_4853);
        assert_eq!(port_of_service(0x0106_4853), Some((PORT_SPACE_TCP, 18515)));
        assert_eq!((port_of_service(0x0106_0000), port_of_service(1 << 32 | 5)), (None, None));
    }
}

//! Multicast addresses of groups: on RoCE the GID of the IP address; on InfiniBand the GID that IPoIB derives
//! from it (RFC 4391 §4), and a LID.

use super::address::{Place, SocketAddress};
use super::port_facts::PortFacts;
use crate::uapi::RDMA_PS_UDP;
use bareverbs_cm::Path;
use bareverbs_prm::ids::Gid;
use bareverbs_sim::wire::infiniband::FIRST_MULTICAST_LID;

/// LIDs of groups: up to 0xfffe (IBTA v1.4 §4.1.3).
const MULTICAST_LIDS: u32 = 0x3fff;
/// Scope of IPoIB's groups, link-local; and the default partition.
const SCOPE: u8 = 0x12;
const PARTITION: [u8; 2] = [0xff, 0xff];
/// Signatures of IPoIB's groups; RDMA CM has its own second byte (`cma_set_mgid`).
const IPV4_SIGNATURE: [u8; 2] = [0x40, 0x1b];
const IPV6_SIGNATURE: [u8; 2] = [0x60, 0x1b];
const CONNECTION_SIGNATURE: u8 = 0x01;
/// First bytes of a GID that the subnet administration assigned, without its scope.
const GIVEN: [u8; 4] = [0xff, 0x10, 0xa0, 0x1b];

/// A group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupAddress {
    pub(super) gid: Gid,
    /// 0 on Ethernet.
    lid: u16,
}

impl GroupAddress {
    /// The group of an address in a port space; `None` if it is not a multicast address.
    pub(super) fn of(address: &SocketAddress, space: u16, is_infiniband: bool) -> Option<Self> {
        let Place::Gid(named) = address.place() else { return None };
        // `cma_iboe_set_mgid`.
        if !is_infiniband {
            return named.is_multicast().then_some(Self { gid: named, lid: 0 });
        }
        let gid = mapped(address, named, space)?;
        Some(Self { gid, lid: group_lid(gid) })
    }

    /// The path to the group from an own GID.
    pub(super) fn path(&self, facts: &PortFacts, local: Gid) -> Path {
        facts.path(local, self.gid, self.lid)
    }
}

/// The GID of an address's group on InfiniBand.
fn mapped(address: &SocketAddress, named: Gid, space: u16) -> Option<Gid> {
    let [first, second, third, fourth, ..] = named.0;
    if matches!(address, SocketAddress::Native(_)) || [first, second & 0xf0, third, fourth] == GIVEN {
        return named.is_multicast().then_some(named);
    }
    if !named.is_multicast() {
        return None;
    }
    let mut gid = [0; 16];
    (gid[0], gid[1]) = (0xff, SCOPE);
    gid[4..6].copy_from_slice(&PARTITION);
    match address {
        SocketAddress::V4 { address: [a, rest @ ..], .. } => {
            gid[2..4].copy_from_slice(&IPV4_SIGNATURE);
            gid[12] = a & 0xf;
            gid[13..].copy_from_slice(rest);
        }
        _ => {
            gid[2..4].copy_from_slice(&IPV6_SIGNATURE);
            gid[6..].copy_from_slice(&named.0[6..]);
        }
    }
    if space == RDMA_PS_UDP {
        gid[3] = CONNECTION_SIGNATURE;
    }
    Some(Gid(gid))
}

/// The LID of a group. A subnet's administration assigns LIDs in the order of requests. Here they are derived
/// from the GIDs (FNV-1a, 32 bits), so that all processes agree without asking anybody. Groups may share a
/// LID, as in subnets with few of them: ports distinguish them by their GIDs (IBTA v1.4 §10.5.1).
fn group_lid(gid: Gid) -> u16 {
    let spread =
        gid.0.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    FIRST_MULTICAST_LID + (spread % MULTICAST_LIDS) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uapi::RDMA_PS_IPOIB;

    const V4: SocketAddress = SocketAddress::V4 { address: [239, 1, 2, 3], port: 0 };

    fn v6(begin: [u8; 4]) -> SocketAddress {
        let mut address = [7; 16];
        address[..4].copy_from_slice(&begin);
        SocketAddress::V6 { address, port: 0, rest: [0; 8] }
    }

    #[test]
    fn a_group_of_roce_is_its_address() {
        let group = GroupAddress::of(&V4, RDMA_PS_UDP, false).unwrap();
        assert_eq!((group.gid, group.lid), (Gid::from_ipv4([239, 1, 2, 3]), 0));
        let nobody = SocketAddress::V4 { address: [10, 0, 0, 1], port: 0 };
        assert_eq!(GroupAddress::of(&nobody, RDMA_PS_UDP, false), None);
        assert_eq!(GroupAddress::of(&nobody, RDMA_PS_UDP, true), None);
    }

    /// RFC 4391 §4: the GID of an IP multicast group on InfiniBand; `cma_set_mgid` for the signature of port space UDP.
    #[test]
    fn a_group_of_infiniband_has_the_gid_of_ipoib() {
        let gid = |address: &SocketAddress, space| GroupAddress::of(address, space, true).unwrap().gid.0;
        let of_ipoib = gid(&V4, RDMA_PS_IPOIB);
        assert_eq!(of_ipoib, [0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 15, 1, 2, 3]);
        assert_eq!(gid(&V4, RDMA_PS_UDP)[..4], [0xff, 0x12, 0x40, 0x01]);
        let six = gid(&v6([0xff, 0x0e, 0, 0]), RDMA_PS_IPOIB);
        assert_eq!(six, [0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        let given = v6([0xff, 0x12, 0xa0, 0x1b]);
        assert_eq!(Place::Gid(Gid(gid(&given, RDMA_PS_UDP))), given.place(), "it is a GID already");
    }

    #[test]
    fn group_addresses_have_multicast_lids() {
        for last in 0..=255 {
            let address = SocketAddress::V4 { address: [239, 1, 2, last], port: 0 };
            let lid = GroupAddress::of(&address, RDMA_PS_UDP, true).unwrap().lid;
            assert!((FIRST_MULTICAST_LID..0xffff).contains(&lid), "{lid:#x}");
        }
    }
}

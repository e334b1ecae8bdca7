//! Addresses of peers, as queue pairs and address handles have them.

use bareverbs_prm::ids::{Gid, MacAddress};

/// The address of a peer and the path to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_ah_attr")]
pub struct AddressVector {
    /// Index of our own address in the RoCE address table.
    pub gid_index: u8,
    /// The peer's address.
    pub gid: Gid,
    /// Ethernet address of the peer, or of the router on the way.
    pub mac: MacAddress,
    /// Hops that a packet may make.
    pub hop_limit: u8,
    /// Traffic class: differentiated services and congestion bits.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Service level, on Ethernet the priority; 4 bits.
    pub service_level: u8,
    /// UDP source port, which spreads flows over paths (RoCEv2 A17.3.2.1, A17.9.4).
    pub udp_source_port: u16,
    /// The peer's LID on InfiniBand, from 1 to 0xbfff; zero on Ethernet. With it, Ethernet address and UDP port mean nothing,
    /// and a GID of zero is a path within the subnet, whose packets have no global route header.
    pub lid: u16,
}

impl AddressVector {
    /// The path to a peer on Ethernet: from entry `gid_index` of our own address table to `gid`, by the station `mac`, over at most 64 hops. The
    /// rest is zero.
    ///
    /// ```
    /// use bareverbs_core::queue_pair::AddressVector;
    /// use bareverbs_prm::ids::{Gid, MacAddress};
    ///
    /// let peer = AddressVector::roce(0, Gid::from_ipv4([10, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 2]));
    /// let important = AddressVector { service_level: 3, ..peer };
    /// assert_eq!((important.hop_limit, important.lid), (64, 0));
    /// ```
    pub const fn roce(gid_index: u8, gid: Gid, mac: MacAddress) -> Self {
        Self {
            gid_index,
            gid,
            mac,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            udp_source_port: 0,
            lid: 0,
        }
    }
}

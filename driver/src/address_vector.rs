//! Peer addresses, for queue pairs and address handles.

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
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: differentiated services and congestion bits.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Service level, on Ethernet the priority; 4 bits.
    pub service_level: u8,
    /// UDP source port, which spreads flows over paths (RoCEv2 A17.3.2.1, A17.9.4).
    pub udp_source_port: u16,
    /// The peer's LID on InfiniBand, 1 to 0xbfff; zero on Ethernet. With a LID, `mac` and `udp_source_port` are
    /// ignored, and a zero GID selects a path within the subnet without a global route header.
    pub lid: u16,
}

impl AddressVector {
    /// The path to a peer on Ethernet: from entry `gid_index` of our own address table to `gid`, through the station
    /// `mac`, with a hop limit of 64. All other fields are zero.
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

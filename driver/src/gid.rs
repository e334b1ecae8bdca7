//! The RoCE address table: the addresses of the port, each with its RoCE version (RoCEv2 A17.4.3, A17.8).

use bareverbs_prm::command::port::{QueryRoceAddressIn, SetRoceAddressIn};
use bareverbs_prm::context::RoceAddress;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::{CommandOpcode, RoceL3Type, RoceVersion};

/// An entry of the RoCE address table.
///
/// ```
/// use bareverbs_core::GidEntry;
/// use bareverbs_prm::ids::{Gid, MacAddress};
///
/// let mac = MacAddress([2, 0, 0, 0, 0, 1]);
/// let entry = GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, 1]), mac);
/// let tagged = GidEntry { vlan: Some(100), ..entry };
/// assert_eq!((entry.vlan, tagged.vlan), (None, Some(100)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_gid_entry")]
pub struct GidEntry {
    /// The identifier; `::ffff:a.b.c.d` for IPv4. All zero clears the entry.
    pub gid: Gid,
    /// Source address of frames.
    pub mac: MacAddress,
    /// VLAN identifier, 12 bits, if frames are tagged.
    pub vlan: Option<u16>,
    /// RoCE version. The entry only sends and receives packets of this version; one GID may have an entry for
    /// each version.
    pub version: RoceVersion,
}

impl GidEntry {
    /// An entry of RoCEv2 without VLAN tag.
    pub const fn roce_v2(gid: Gid, mac: MacAddress) -> Self {
        Self { gid, mac, vlan: None, version: RoceVersion::Version2 }
    }

    /// An entry of RoCE version 1 without VLAN tag: EtherType 0x8915 and a global route header, which no
    /// router forwards. The GIDs of both ends may belong to any address family.
    pub const fn roce_v1(gid: Gid, mac: MacAddress) -> Self {
        Self { gid, mac, vlan: None, version: RoceVersion::Version1 }
    }

    /// Whether one packet can carry both this address and that of a peer. RoCEv2 needs the same IP family at
    /// both ends; version 1 does not.
    pub(crate) fn is_compatible(&self, remote: Gid) -> bool {
        let same_family = self.gid.to_ipv4().is_some() == remote.to_ipv4().is_some();
        self.version == RoceVersion::Version1 || same_family
    }

    fn network_layer(&self) -> RoceL3Type {
        if self.gid.to_ipv4().is_some() { RoceL3Type::Ipv4 } else { RoceL3Type::Ipv6 }
    }
}

/// The name of a version in messages.
pub(crate) const fn version_name(version: RoceVersion) -> &'static str {
    match version {
        RoceVersion::Version1 => "RoCE version 1",
        RoceVersion::Version2 => "RoCE version 2",
        _ => "an unknown version of RoCE",
    }
}

/// SET_ROCE_ADDRESS of entry `index`.
pub(crate) fn set_address(index: u16, entry: &GidEntry) -> SetRoceAddressIn {
    let mut input = SetRoceAddressIn::new();
    input.set_opcode(CommandOpcode::SetRoceAddress).set_roce_address_index(index).set_vhca_port_num(0);
    if !entry.gid.is_zero() {
        fill(input.roce_address_mut(), entry);
    }
    input
}

/// QUERY_ROCE_ADDRESS of entry `index`.
pub(crate) fn query_address(index: u16) -> QueryRoceAddressIn {
    let mut input = QueryRoceAddressIn::new();
    input.set_opcode(CommandOpcode::QueryRoceAddress).set_roce_address_index(index);
    input
}

/// An entry as the device has it; `None` if it is empty.
pub(crate) fn entry_of(address: &RoceAddress) -> Option<GidEntry> {
    let gid = Gid(address.source_l3_address());
    if gid.is_zero() {
        return None;
    }
    let [a, b] = address.source_mac_47_32().to_be_bytes();
    let [c, d, e, f] = address.source_mac_31_0().to_be_bytes();
    let vlan = address.vlan_valid().then(|| address.vlan_id());
    Some(GidEntry { gid, mac: MacAddress([a, b, c, d, e, f]), vlan, version: address.roce_version() })
}

fn fill(address: &mut RoceAddress, entry: &GidEntry) {
    address
        .set_source_l3_address(entry.gid.0)
        .set_source_mac_47_32(entry.mac.high())
        .set_source_mac_31_0(entry.mac.low())
        .set_roce_version(entry.version);
    // Version 1 has no network layer, so Linux leaves the field zero.
    if entry.version != RoceVersion::Version1 {
        address.set_roce_l3_type(entry.network_layer());
    }
    if let Some(vlan) = entry.vlan {
        address.set_vlan_valid(true).set_vlan_id(vlan & 0xfff);
    }
}

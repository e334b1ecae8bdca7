//! The port: its link, its addresses, and the route from a queue pair context to a packet.

use super::guids::{Guids, card_guid};
use super::port_link::PortLink;
use super::port_traps::{KeyViolation, PortTrap, capability_notice, description_notice};
use super::{LinkLayer, NicConfig, QueuePairNumbers, SubnetMembership};
use crate::wire::infiniband::{MANAGEMENT_LANE, PERMISSIVE_LID, is_multicast_lid};
use crate::wire::management::values::SUBNET_TIMEOUT;
use crate::wire::management::{PortState, SubnetPacket, TrapSender};
use crate::wire::{GlobalRoute, LocalRoute, Network, Route, VlanTag};
use bareverbs_prm::command::ib_port::HcaVportContext;
use bareverbs_prm::context::{AddressPath, NicVportContext, QueuePairContext, RoceAddress};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::{RoceL3Type, RoceVersion};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_prm::wqe::AddressVector;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Entries of the P_Key table.
pub(crate) const PARTITION_KEYS: usize = 128;
/// Bytes of the largest path MTU.
const LARGEST_PACKET: u16 = 4096;
/// The only LID of a subnet with one port.
const ONLY_LID: u16 = 1;
/// `CapabilityMask` of an InfiniBand port (IBTA v1.4 §14.2.5.6): traps, service-level mapping table, system
/// image GUID, extended link speeds, capability-mask notice, client reregistration.
const CAPABILITIES: u32 = 1 << 3 | 1 << 6 | 1 << 11 | 1 << 14 | 1 << 22 | 1 << 25 | 1 << 26;
/// ECN field of an ECN-capable packet: ECT(0), as ConnectX sends it.
const CAPABLE: u8 = 0b10;

/// State of the port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) link: PortLink,
    /// The RoCE address table.
    addresses: Vec<RoceAddress>,
    pub(crate) vport: NicVportContext,
    /// The context of an InfiniBand port's virtual port, except for its states, which follow the link.
    pub(crate) hca_vport: HcaVportContext,
    link_layer: LinkLayer,
    subnet: SubnetMembership,
    /// State of an InfiniBand port in a managed subnet while its link is up.
    managed_state: PortState,
    partition_keys: [u16; PARTITION_KEYS],
    mac: MacAddress,
    queue_pair_numbers: QueuePairNumbers,
    /// ECN field of RoCEv2 packets whose queue pair does not choose one (RFC 3168).
    ecn: u8,
    traps: TrapSender<PortTrap>,
    /// The entry that matched last; it is checked first.
    recent: usize,
    /// Addresses and VLAN of the last RoCE packet for this port; cleared when the table changes.
    last_addressed: Option<(Network, Option<VlanTag>)>,
}

impl Port {
    /// A port with the factory MAC address and the matching link-local GID in entry 0.
    pub(crate) fn new(config: &NicConfig) -> Self {
        let mut vport = NicVportContext::new();
        let guids = config.guids.unwrap_or_else(|| Guids::of(config.mac));
        let card = config.guids.map_or_else(|| card_guid(config.mac, config.card_port), |guids| guids.node);
        vport.set_mtu(config.mtu).set_node_guid(guids.node).set_port_guid(guids.port);
        vport.set_system_image_guid(card);
        vport
            .permanent_address_mut()
            .set_mac_addr_47_32(config.mac.high())
            .set_mac_addr_31_0(config.mac.low());
        let mut addresses = vec![RoceAddress::new(); address_entries(config)];
        if let Some(first) = addresses.first_mut() {
            *first = link_local(config.mac, guids.port);
        }
        Self {
            link: PortLink::new(!config.starts_down, config.receive_buffer.is_some()),
            addresses,
            vport,
            hca_vport: hca_vport(guids, card, config.subnet),
            link_layer: config.link_layer,
            subnet: config.subnet,
            managed_state: PortState::Initialize,
            partition_keys: default_partition(),
            mac: config.mac,
            ecn: if config.congestion_control { CAPABLE } else { 0 },
            queue_pair_numbers: config.queue_pair_numbers,
            traps: TrapSender::default(),
            recent: 0,
            last_addressed: None,
        }
    }

    /// Whether RoCEv2 packets are marked ECN-capable unless their queue pair decides otherwise.
    pub(crate) const fn marks_as_capable(&self) -> bool {
        self.ecn != 0
    }

    /// Whether the link layer of the port is InfiniBand.
    pub(crate) const fn is_infiniband(&self) -> bool {
        matches!(self.link_layer, LinkLayer::InfiniBand)
    }

    /// The P_Key table; 0 means an empty entry.
    pub(crate) const fn partition_keys(&self) -> &[u16; PARTITION_KEYS] {
        &self.partition_keys
    }

    /// The P_Key table, for the SM to change.
    pub(crate) const fn partition_keys_mut(&mut self) -> &mut [u16; PARTITION_KEYS] {
        &mut self.partition_keys
    }

    /// The P_Key of an entry; packets of an empty entry belong to no partition.
    pub(crate) fn partition_key(&self, index: u16) -> u16 {
        self.partition_keys.get(usize::from(index)).copied().unwrap_or(0)
    }

    /// Handles a link that came up or went down: a managed port starts over (IBTA v1.4 §7.2.7).
    pub(crate) const fn initialize(&mut self) {
        self.managed_state = PortState::Initialize;
    }

    /// The logical state. An Ethernet port is either down or active.
    pub(crate) const fn state(&self) -> PortState {
        match (self.is_up(), self.link_layer, self.subnet) {
            (false, ..) => PortState::Down,
            (true, LinkLayer::InfiniBand, SubnetMembership::Managed) => self.managed_state,
            (true, ..) => PortState::Active,
        }
    }

    /// Whether packets may leave: the port is active and has a peer.
    pub(crate) const fn reaches_others(&self) -> bool {
        let admitted = matches!(self.subnet, SubnetMembership::Managed)
            && matches!(self.managed_state, PortState::Active);
        self.is_up() && (admitted || !self.is_infiniband())
    }

    /// Whether subnet management packets may leave: the link is up and has a peer (IBTA v1.4 §7.2.7).
    pub(crate) const fn is_linked(&self) -> bool {
        self.is_up() && !matches!(self.subnet, SubnetMembership::Alone)
    }

    /// Sets the state that the SM requests.
    pub(crate) const fn set_managed_state(&mut self, state: PortState) {
        self.managed_state = state;
    }

    /// Whether a LID belongs to the port: the base LID with any path bits (IBTA v1.4 §4.1.3).
    pub(crate) fn owns_lid(&self, lid: u16) -> bool {
        let base = self.hca_vport.lid();
        base != 0 && lid & !self.path_bits() == base
    }

    fn path_bits(&self) -> u16 {
        (1 << self.hca_vport.lmc()) - 1
    }

    /// Whether frames pass.
    pub(crate) const fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// The MAC address that frames for this port carry.
    pub(crate) const fn mac(&self) -> MacAddress {
        self.mac
    }

    /// Adopts the MAC address of the virtual port context.
    pub(crate) fn adopt_mac(&mut self) {
        let address = self.vport.permanent_address();
        self.mac = MacAddress::from_parts(address.mac_addr_47_32(), address.mac_addr_31_0());
    }

    /// Sets the current MAC address; the permanent one stays.
    pub(crate) fn set_mac(&mut self, mac: MacAddress) {
        self.mac = mac;
    }

    pub(crate) fn mtu(&self) -> u16 {
        self.vport.mtu()
    }

    /// The RoCE address table.
    pub(crate) fn addresses(&self) -> &[RoceAddress] {
        &self.addresses
    }

    /// The RoCE address table, mutably.
    pub(crate) fn addresses_mut(&mut self) -> &mut [RoceAddress] {
        self.last_addressed = None;
        &mut self.addresses
    }

    /// An entry that is in use.
    pub(crate) fn address(&self, index: u8) -> Option<&RoceAddress> {
        self.addresses.get(usize::from(index)).filter(|entry| !Self::gid(entry).is_zero())
    }

    pub(crate) fn gid(entry: &RoceAddress) -> Gid {
        Gid(entry.source_l3_address())
    }

    /// Whether this port accepts InfiniBand packets for this GID.
    fn owns(&mut self, gid: Gid) -> bool {
        self.finds(gid, |_| true)
    }

    /// Whether this port accepts RoCE packets for this GID in this VLAN. An entry accepts only packets of its
    /// own RoCE version (RoCEv2 A17.8). VLAN 0 carries only a priority (IEEE 802.1Q).
    #[inline]
    fn accepts_roce(&mut self, network: &Network, vlan: Option<VlanTag>) -> bool {
        let vlan = vlan.map(|tag| tag.id).filter(|&id| id != 0);
        let version = version(network);
        self.finds(ends(network).1, |entry| vlan_of(entry) == vlan && entry.roce_version() == version)
    }

    /// Whether the table has a matching entry with this GID.
    #[inline]
    fn finds(&mut self, gid: Gid, fits: impl Fn(&RoceAddress) -> bool) -> bool {
        let ours = |entry: &RoceAddress| Self::gid(entry) == gid && fits(entry);
        if self.addresses.get(self.recent).is_some_and(ours) {
            return !gid.is_zero();
        }
        match self.addresses.iter().position(ours) {
            Some(at) if !gid.is_zero() => {
                self.recent = at;
                true
            }
            _ => false,
        }
    }

    /// The route for packets of a queue pair: its own RoCE address and its address path (PRM, address path
    /// format). `None` if the table entry is gone.
    pub(crate) fn route(&self, context: &QueuePairContext, qpn: u32, software_port: bool) -> Option<Route> {
        let path = context.primary_address_path();
        if self.is_infiniband() {
            return Some(self.infiniband_route(path));
        }
        let source = self.address(path.src_addr_index())?;
        let dscp_class = if path.f_dscp() { path.tclass() } else { path.dscp() << 2 };
        let class = if path.tclass() != 0 { path.tclass() } else { dscp_class };
        Some(Route {
            source_mac: MacAddress::from_parts(source.source_mac_47_32(), source.source_mac_31_0()),
            destination_mac: MacAddress::from_parts(path.rmac_47_32(), path.rmac_31_0()),
            vlan: vlan_of(source).map(|id| VlanTag { id, priority: path.eth_prio(), drop_eligible: false }),
            network: network(source, Gid(path.rgid_rip()))?,
            traffic_class: class & !3 | self.ecn_of(path.ecn() & 3, source),
            hop_limit: if path.hop_limit() == 0 { 64 } else { path.hop_limit() },
            flow_label: path.flow_label(),
            udp_source_port: source_port(path.udp_sport(), software_port, qpn, context.remote_qpn().value()),
        })
    }
}

impl Port {
    /// Counts a packet with a wrong key and informs the SM (IBTA v1.4 §10.9.4, §14.2.5.1).
    #[cold]
    pub(crate) fn note_violation(&mut self, now: Time, violation: &KeyViolation) {
        let vport = &mut self.hca_vport;
        match violation.trap {
            PortTrap::PartitionKey => {
                vport.set_pkey_violation_counter(vport.pkey_violation_counter().saturating_add(1));
            }
            PortTrap::QueueKey => {
                vport.set_qkey_violation_counter(vport.qkey_violation_counter().saturating_add(1));
            }
            PortTrap::Capability | PortTrap::Description => {}
        }
        if self.has_manager() {
            self.traps.raise(now, violation.trap, violation.notice());
        }
    }

    /// Sets the capability mask.
    pub(crate) fn set_capability_mask(&mut self, now: Time, mask: u32) {
        let is_changed = self.hca_vport.cap_mask1() != mask;
        self.hca_vport.set_cap_mask1(mask);
        if is_changed && self.has_manager() {
            let notice = capability_notice(self.hca_vport.lid(), mask);
            self.traps.raise(now, PortTrap::Capability, notice);
        }
    }

    /// Handles a changed NodeDescription.
    pub(crate) fn note_description(&mut self, now: Time) {
        if self.has_manager() {
            let notice = description_notice(self.hca_vport.lid(), self.hca_vport.cap_mask1());
            self.traps.raise(now, PortTrap::Description, notice);
        }
    }

    /// The next trap that is due, and its destination LID.
    pub(crate) fn poll_trap(&mut self, now: Time) -> Option<(SubnetPacket, u16)> {
        let (lid, manager) = (self.hca_vport.lid(), self.hca_vport.sm_lid());
        if !self.has_manager() {
            self.traps.clear();
            return None;
        }
        let interval = Duration::from_nanos(4_096 << self.hca_vport.subnet_timeout());
        Some((self.traps.poll(now, lid, interval)?, manager))
    }

    /// When the next trap is due.
    #[inline]
    pub(crate) fn next_trap(&self) -> Option<Time> {
        self.traps.poll_timeout()
    }

    /// Handles the SM's TrapRepress.
    pub(crate) fn repress_trap(&mut self, transaction: u64) {
        self.traps.repress(transaction);
    }

    /// Whether the port knows an SM elsewhere.
    fn has_manager(&self) -> bool {
        let (lid, manager) = (self.hca_vport.lid(), self.hca_vport.sm_lid());
        self.is_linked() && lid != 0 && manager != 0 && !self.owns_lid(manager)
    }

    /// The route of a connection on an InfiniBand port.
    fn infiniband_route(&self, path: &AddressPath) -> Route {
        let global = path.grh().then(|| self.global(path.src_addr_index(), path.rgid_rip()));
        Route {
            traffic_class: path.tclass(),
            hop_limit: path.hop_limit(),
            flow_label: path.flow_label(),
            ..self.local(path.rlid(), path.mlid(), path.sl(), global).into()
        }
    }

    /// The ECN field of a packet from this address: the one that software chose, or the default of the port.
    /// RoCE v1 has no IP header.
    fn ecn_of(&self, chosen: u8, source: &RoceAddress) -> u8 {
        if chosen == 0 && source.roce_version() == RoceVersion::Version2 { self.ecn } else { chosen }
    }

    /// The route of one datagram. `None` if its source is no entry of the RoCE address table or of another IP
    /// family than its destination.
    pub(crate) fn datagram_route(
        &self,
        vector: &AddressVector,
        qpn: Qpn,
        software_port: bool,
    ) -> Option<Route> {
        if self.is_infiniband() {
            return Some(self.infiniband_datagram_route(vector));
        }
        let source = self.address(vector.sgid_index())?;
        let (port, peer) = (vector.udp_sport(), vector.dqpn().value());
        Some(Route {
            source_mac: MacAddress::from_parts(source.source_mac_47_32(), source.source_mac_31_0()),
            destination_mac: vector.remote_mac(),
            vlan: vlan_of(source).map(|id| VlanTag { id, priority: vector.roce_sl(), drop_eligible: false }),
            network: network(source, Gid(vector.rgid()))?,
            traffic_class: vector.tclass() & !3 | self.ecn_of(vector.tclass() & 3, source),
            hop_limit: if vector.hop_limit() == 0 { 64 } else { vector.hop_limit() },
            flow_label: vector.flow_label(),
            udp_source_port: source_port(port, software_port, qpn.value(), peer),
        })
    }

    /// log2 of the longest datagram: one packet of the port's largest path MTU (IBTA v1.4 §9.8.3.1).
    pub(crate) fn log_largest_datagram(&self) -> u8 {
        let port = if self.is_infiniband() { LARGEST_PACKET } else { self.mtu().clamp(256, LARGEST_PACKET) };
        port.ilog2() as u8
    }

    /// The route of a QP0 datagram: over the management lane, without a global route header. In a datagram to
    /// the node at the other end of the link, the source LID does not matter (IBTA v1.4 §14.2.1.1).
    pub(crate) fn management_route(&self, vector: &AddressVector) -> Route {
        let local = self.local(vector.rlid(), vector.mlid(), 0, None);
        let source = if local.destination == PERMISSIVE_LID { PERMISSIVE_LID } else { local.source };
        LocalRoute { source, virtual_lane: MANAGEMENT_LANE, ..local }.into()
    }

    fn infiniband_datagram_route(&self, vector: &AddressVector) -> Route {
        let global = vector.grh().then(|| self.global(vector.sgid_index(), vector.rgid()));
        Route {
            traffic_class: vector.tclass(),
            hop_limit: vector.hop_limit(),
            flow_label: vector.flow_label(),
            ..self.local(vector.rlid(), vector.mlid(), vector.sl(), global).into()
        }
    }

    /// All service levels share one virtual lane.
    fn local(
        &self,
        destination: u16,
        bits: u8,
        service_level: u8,
        global: Option<GlobalRoute>,
    ) -> LocalRoute {
        let source = self.hca_vport.lid() | u16::from(bits) & self.path_bits();
        LocalRoute { source, destination, service_level, virtual_lane: 0, global }
    }

    fn global(&self, index: u8, destination: [u8; 16]) -> GlobalRoute {
        let own = self.address(index).or(self.address(0)).map_or(Gid([0; 16]), Self::gid);
        GlobalRoute::new(own.0, destination)
    }

    /// Whether packets that follow a route to a queue pair return to this device.
    pub(crate) fn is_ours(&mut self, route: &Route, destination: Qpn) -> bool {
        match &route.network {
            Network::InfiniBand(local) => {
                let addressed = local.global.is_none_or(|global| self.owns(Gid(global.destination.octets())));
                addressed && self.owns_lid(local.destination) && self.has_number_or_is_special(destination)
            }
            _ => route.destination_mac == self.mac && self.has_number(destination),
        }
    }

    /// Whether a queue pair with this number belongs to this device, provided that the packet's address does.
    pub(crate) const fn has_number(&self, number: Qpn) -> bool {
        self.queue_pair_numbers.contains(number)
    }

    /// Like [`Self::has_number`], but devices with the same addresses share QP0 and QP1 (IBTA v1.4 §3.9.2).
    const fn has_number_or_is_special(&self, number: Qpn) -> bool {
        number.value() < 2 || self.has_number(number)
    }

    /// Whether this is queue pair 0 or 1 and other devices share it because they have the same addresses.
    pub(crate) const fn shares(&self, number: Qpn) -> bool {
        number.value() < 2 && matches!(self.queue_pair_numbers, QueuePairNumbers::Block(_))
    }

    /// Whether a packet from the link is addressed to this port.
    #[inline(always)] // For every packet that arrives.
    pub(crate) fn is_addressed(&mut self, network: &Network, vlan: Option<VlanTag>) -> bool {
        let is_as_last = match &self.last_addressed {
            Some((last, tag)) => last == network && *tag == vlan,
            None => false,
        };
        is_as_last || self.finds_address(network, vlan)
    }

    /// [`Self::is_addressed`] without the cached result of the last packet.
    #[inline(never)]
    fn finds_address(&mut self, network: &Network, vlan: Option<VlanTag>) -> bool {
        match network {
            Network::InfiniBand(local) => {
                self.owns_lid(local.destination)
                    && local.global.is_none_or(|global| self.owns(Gid(global.destination.octets())))
            }
            _ => {
                let ours = self.accepts_roce(network, vlan);
                self.last_addressed = ours.then_some((*network, vlan));
                ours
            }
        }
    }
}

/// The virtual port context that the SM of a one-port subnet would set: LID 1, which is also its own. A
/// managed port starts with none.
fn hca_vport(guids: Guids, card: u64, subnet: SubnetMembership) -> HcaVportContext {
    let mut context = HcaVportContext::new();
    context.set_system_image_guid(card).set_port_guid(guids.port).set_node_guid(guids.node);
    context.set_subnet_timeout(SUBNET_TIMEOUT).set_has_smi(true).set_cap_mask1(CAPABILITIES);
    if subnet == SubnetMembership::Alone {
        context.set_lid(ONLY_LID).set_sm_lid(ONLY_LID);
    }
    context
}

/// The VLAN of a RoCE address.
fn vlan_of(entry: &RoceAddress) -> Option<u16> {
    entry.vlan_valid().then(|| entry.vlan_id()).filter(|&id| id != 0)
}

/// Every port is a full member of the default partition (IBTA v1.4 §10.9.1.2).
const fn default_partition() -> [u16; PARTITION_KEYS] {
    let mut table = [0; PARTITION_KEYS];
    table[0] = crate::wire::DEFAULT_PARTITION_KEY;
    table
}

/// The UDP source port that software chose, or a dynamic one that depends on both ends (RoCEv2 A17.3.2.1).
fn source_port(chosen: u16, by_software: bool, qpn: u32, remote: u32) -> u16 {
    if by_software && chosen != 0 {
        return chosen;
    }
    let mixed = (qpn.wrapping_mul(remote.max(1))) as u64;
    let folded = (mixed ^ mixed >> 20 ^ mixed >> 40) as u16;
    folded | if mutated("low_source_port") { 0x8000 } else { 0xc000 }
}

/// Entries of the address table: GIDs on an InfiniBand port, RoCE addresses on an Ethernet port.
fn address_entries(config: &NicConfig) -> usize {
    match config.link_layer {
        LinkLayer::InfiniBand => 8 << config.limits.gid_table_size.min(4),
        LinkLayer::Ethernet => config.limits.roce_addresses.into(),
    }
}

/// Both ends of a path; `None` if they are of different IP families. RoCE v1 carries the GIDs themselves.
fn network(source: &RoceAddress, destination: Gid) -> Option<Network> {
    let (version, source) = (source.roce_version(), Port::gid(source));
    match (source.to_ipv4(), destination.to_ipv4()) {
        _ if version == RoceVersion::Version1 => {
            Some(Network::Version1(GlobalRoute::new(source.0, destination.0)))
        }
        (Some(source), Some(destination)) => {
            Some(Network::V4 { source: Ipv4Addr::from(source), destination: Ipv4Addr::from(destination) })
        }
        (None, None) => {
            Some(Network::V6 { source: Ipv6Addr::from(source.0), destination: Ipv6Addr::from(destination.0) })
        }
        _ => None,
    }
}

/// Source and destination of a packet: their GIDs (RoCEv2 A17.4.1.1) or, on InfiniBand, their LIDs in the low
/// bytes of otherwise zero GIDs, because LIDs identify a connection whether or not there is a global route
/// header.
#[inline]
pub(crate) fn ends(network: &Network) -> (Gid, Gid) {
    match network {
        Network::V4 { source, destination } => {
            (Gid::from_ipv4(source.octets()), Gid::from_ipv4(destination.octets()))
        }
        Network::V6 { source, destination } | Network::Version1(GlobalRoute { source, destination }) => {
            (Gid(source.octets()), Gid(destination.octets()))
        }
        Network::InfiniBand(local) => (lid_end(local.source), lid_end(local.destination)),
    }
}

/// The multicast group that a packet is addressed to: by its GID on Ethernet, by its LID on InfiniBand, where
/// the GID in the global route header tells groups with the same LID apart (IBTA v1.4 §10.5.1).
pub(crate) fn group_of(network: &Network) -> Option<Gid> {
    match network {
        Network::InfiniBand(local) if !is_multicast_lid(local.destination) => None,
        Network::InfiniBand(local) => local.global.map(|global| Gid(global.destination.octets())),
        _ => Some(ends(network).1),
    }
    .filter(|group| group.is_multicast())
}

/// The RoCE version of a packet. Meaningless for InfiniBand packets.
#[inline]
pub(crate) const fn version(network: &Network) -> RoceVersion {
    match network {
        Network::Version1(_) => RoceVersion::Version1,
        _ => RoceVersion::Version2,
    }
}

const fn lid_end(lid: u16) -> Gid {
    let mut end = [0; 16];
    let [high, low] = lid.to_be_bytes();
    (end[14], end[15]) = (high, low);
    Gid(end)
}

fn link_local(mac: MacAddress, guid: u64) -> RoceAddress {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..].copy_from_slice(&guid.to_be_bytes());
    let mut entry = RoceAddress::new();
    entry
        .set_source_l3_address(gid)
        .set_roce_l3_type(RoceL3Type::Ipv6)
        .set_roce_version(RoceVersion::Version2);
    entry.set_source_mac_47_32(mac.high()).set_source_mac_31_0(mac.low());
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirement: RoCEv2 A17.3.2.1: the UDP source port is in the dynamic range (0xc000 to 0xffff) and the same for all
    /// packets of a queue pair.
    #[test]
    fn source_ports_are_of_the_dynamic_range() {
        for qpn in (0..1 << 24).step_by(4099) {
            for remote in [0, 1, 0x40, 0x41, 0xff_ffff] {
                assert!(source_port(0, false, qpn, remote) >= 0xc000, "{qpn:#x} to {remote:#x}");
            }
        }
        assert_eq!(source_port(0x1234, true, 0x40, 0x41), 0x1234, "software chose");
        assert_eq!(
            source_port(0x1234, false, 0x40, 0x41),
            source_port(0, true, 0x40, 0x41),
            "software may not, or did not"
        );
    }
}

//! The subnet management agent of a switch (IBTA v1.4 §14.2.5, §18.2.4.1). It reads and sets the attributes of the
//! node, of port 0 and of the external ports.
//!
//! If the switch hosts the master SM, only that SM configures its agent. Other switches, and one whose SM is in
//! standby, obey the master and report link changes to it with trap 128. A trap is repeated until the SM represses it
//! or the attempts run out (§13.4.9).
//!
//! **What it may not do.** It stores M_Keys but does not check them. A port forwards in any port state,
//! because data only flows once both ends have LIDs. All cables have the same width and speed, because the
//! switch does not learn those of its peer.

use super::config::{SubnetConfig, SubnetSwitchConfig};
use super::end_port::PortAttributes;
use super::enforcement::{Enforcement, keys_of, table_of};
use super::events::{SwitchTrap, link_notice, switch_key_notice};
use super::forwarding::{ForwardingTables, GROUPS, LINEAR_BLOCK, POSITION, multicast_blocks};
use super::lanes::{ARBITRATION_ENTRIES, Lanes};
use super::partitions::{PARTITION_KEYS, PartitionedPort, Partitions};
use crate::net::topology::NodeKind;
use crate::wire::infiniband::{FIRST_MULTICAST_LID, PERMISSIVE_LID};
use crate::wire::management::attributes::{NodeInfo, Notice, PortInfo, SmInfo, SwitchInfo};
use crate::wire::management::values::{
    IS_SM, LINK_UP, MTU_4096, ONE_LANE, POLLING, RESPONSE_TIME, SUBNET_TIMEOUT, VENDOR_ID,
};
use crate::wire::management::{
    CLASS_VERSION, Method, PortState, SubnetPacket, TrapSender, attribute, node_type, status,
};
use crate::wire::{DEFAULT_PARTITION_KEY, Packet};
use bareverbs_prm::time::{Duration, Time};

/// LID of the SM: the highest unicast LID, so that the LIDs of ports start at 1.
pub const MANAGER_LID: u16 = 0xbfff;
/// Repetition interval of a trap: `SubnetTimeOut`.
const TRAP_INTERVAL: Duration = Duration::from_nanos(4_096 << SUBNET_TIMEOUT);
/// GID prefix of a subnet without an assigned one (IBTA v1.4 §4.1.1).
const LINK_LOCAL_PREFIX: u64 = 0xfe80 << 48;
/// Well-known GUID of the subnet administration, which every port can use (IBTA v1.4 §4.1.1).
const ADMINISTRATION_GUID: u64 = 0x0200_0000_0000_0002;
const MANAGER_DESCRIPTION: &str = "bareverbs switch with the subnet's manager";
/// `CapabilityMask`: SL mapping, SystemImageGUID, extended speeds. Switches without an SM also set the trap bit.
const CAPABILITIES: u32 = 1 << 6 | 1 << 11 | 1 << 14;
const TRAPS_CAPABILITY: u32 = 1 << 3;
/// Width 4x, link speed QDR, extended speed EDR.
const WIDTH_4X: u8 = 2;
const QDR: u8 = 4;
const EDR: u8 = 2;
/// GUIDs per block.
const GUIDS: u32 = 8;

/// What the agent reveals about the SM on the same node, if there is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct ManagerState {
    /// SMInfo, with the SM_Key.
    pub(super) info: SmInfo,
    /// Whether the SM is the master, and thus the only one to configure its own switch.
    pub(super) is_master: bool,
}

/// The agent of a switch; see the module.
#[derive(Debug)]
pub(super) struct SwitchAgent {
    attributes: PortAttributes,
    info: SwitchInfo,
    /// Attributes of the external ports, from port 1.
    cables: Vec<PortInfo>,
    partition_keys: Vec<u16>,
    /// Whether the switch was built with a fixed number of ports. Otherwise it has as many as have ever had a cable.
    has_fixed_ports: bool,
    /// Whether an SM on another node configures it and receives its link-change traps.
    is_configured_from_afar: bool,
    traps: TrapSender<SwitchTrap>,
    enforcement: Enforcement,
    lanes: Lanes,
}

impl SwitchAgent {
    /// The switch that hosts the SM. It has as many ports as have ever had a cable.
    pub(super) fn of_manager(config: &SubnetConfig) -> Self {
        let (guid, name) = (config.guid, config.description.as_str());
        let name = if name.is_empty() { MANAGER_DESCRIPTION } else { name };
        let mut agent = Self::new(guid, config.partitions.keys(own_port(guid)), name);
        agent.attributes.port.set_lid(MANAGER_LID).set_master_sm_lid(MANAGER_LID);
        agent.attributes.port.set_capability_mask(CAPABILITIES | IS_SM);
        agent.info.set_linear_top(MANAGER_LID).set_multicast_top(PERMISSIVE_LID - 1);
        agent
    }

    /// A switch without an SM, which an SM elsewhere has to discover.
    pub(super) fn of(config: &SubnetSwitchConfig) -> Self {
        let mut agent = Self::new(config.guid, vec![DEFAULT_PARTITION_KEY], &config.description);
        (1..=config.ports).for_each(|port| agent.count_port(port));
        agent.attributes.port.set_capability_mask(CAPABILITIES | TRAPS_CAPABILITY);
        (agent.is_configured_from_afar, agent.has_fixed_ports) = (true, true);
        agent
    }

    fn new(guid: u64, partition_keys: Vec<u16>, description: &str) -> Self {
        let mut attributes = PortAttributes::new();
        attributes.node = node_info(guid);
        attributes.describe(description);
        attributes.port = port_info();
        attributes.port.set_gid_prefix(LINK_LOCAL_PREFIX).set_guid_cap(1);
        attributes.port.set_port_state(PortState::Active as u8).set_port_physical_state(LINK_UP);
        let mut info = SwitchInfo::new();
        info.set_linear_cap(FIRST_MULTICAST_LID).set_multicast_cap(GROUPS as u16);
        info.set_partition_enforcement_cap(PARTITION_KEYS as u16).set_life_time(SUBNET_TIMEOUT);
        info.set_default_multicast_primary(u8::MAX).set_default_multicast_not_primary(u8::MAX);
        info.set_default_port(u8::MAX);
        Self {
            attributes,
            info,
            cables: Vec::new(),
            partition_keys,
            has_fixed_ports: false,
            is_configured_from_afar: false,
            traps: TrapSender::default(),
            enforcement: Enforcement::default(),
            lanes: Lanes::default(),
        }
    }

    pub(super) const fn attributes(&self) -> &PortAttributes {
        &self.attributes
    }

    pub(super) fn partition_keys(&self) -> &[u16] {
        &self.partition_keys
    }

    pub(super) const fn info(&self) -> &SwitchInfo {
        &self.info
    }

    pub(super) fn lid(&self) -> u16 {
        self.attributes.port.lid()
    }

    pub(super) fn guid(&self) -> u64 {
        self.attributes.node.node_guid()
    }

    /// Number of external ports, if it is fixed.
    pub(super) fn fixed_ports(&self) -> Option<usize> {
        self.has_fixed_ports.then_some(self.cables.len())
    }

    /// Current number of external ports.
    pub(super) fn ports(&self) -> usize {
        self.cables.len()
    }

    /// PortInfo of a port. Port 0 is the switch's own.
    pub(super) fn port(&self, port: u8) -> Option<&PortInfo> {
        match usize::from(port).checked_sub(1) {
            None => Some(&self.attributes.port),
            Some(index) => self.cables.get(index),
        }
    }

    /// Handles a link that came up or went down.
    pub(super) fn handle_link(&mut self, now: Time, port: u8, up: bool) {
        if !self.has_fixed_ports {
            self.count_port(port);
        }
        let Some(cable) = self.cables.get_mut(usize::from(port).wrapping_sub(1)) else { return };
        let (state, physical) =
            if up { (PortState::Initialize, LINK_UP) } else { (PortState::Down, POLLING) };
        cable.set_port_state(state as u8).set_port_physical_state(physical);
        self.info.set_port_state_change(true);
        if self.is_configured_from_afar {
            self.traps.replace(now, SwitchTrap::Links, link_notice(self.lid()));
        }
    }

    /// P_Key enforcement of the external ports.
    pub(super) const fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// Virtual lanes of the switch.
    pub(super) const fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Number of the last external port.
    fn last_port(&self) -> u8 {
        self.attributes.node.num_ports()
    }

    /// Records that `port`, counted from 0, dropped a packet for its P_Key. Returns the notice for the SM on the same
    /// node, if that SM is the master.
    pub(super) fn note_violation(&mut self, now: Time, port: usize, packet: &Packet<'_>) -> Option<Notice> {
        let notice = switch_key_notice(self.lid(), u8::try_from(port + 1).ok()?, packet)?;
        let is_new = self.traps.raise(now, SwitchTrap::PartitionKey, notice);
        if self.is_configured_from_afar {
            return None;
        }
        // The SM on this node learns of it directly, without a trap.
        self.traps.suppress(now, &SwitchTrap::PartitionKey, TRAP_INTERVAL);
        is_new.then_some(notice)
    }

    /// Sets what `port`, counted from 1, lets pass on behalf of the SM on this node: everything, or packets with these
    /// P_Keys.
    pub(super) fn set_partitions(&mut self, port: u8, keys: Option<&[u16]>) {
        let Some(index) = usize::from(port).checked_sub(1) else { return };
        let is_known = keys.is_none_or(|keys| self.enforcement.set_table(index, &table_of(keys)));
        self.enforce(index, keys.is_some() && is_known, keys.is_some() && is_known);
    }

    fn enforce(&mut self, index: usize, is_inbound: bool, is_outbound: bool) {
        let Some(cable) = self.cables.get_mut(index) else { return };
        cable.set_partition_enforcement_inbound(is_inbound).set_partition_enforcement_outbound(is_outbound);
        self.enforcement.set_enforced(index, is_inbound, is_outbound);
    }

    /// The SM on this node is no longer the master.
    pub(super) fn obey_another(&mut self) {
        self.is_configured_from_afar = true;
    }

    /// The SM on this node becomes the master again, with these partitions. Returns the ports with a link, which it has
    /// to discover anew.
    pub(super) fn obey_own(&mut self, partitions: &Partitions) -> Vec<u8> {
        self.partition_keys = partitions.keys(own_port(self.guid()));
        self.is_configured_from_afar = false;
        self.traps.clear();
        // Clear the enforcement that the other SM set up; this SM sets its own.
        (0..self.cables.len()).for_each(|index| self.enforce(index, false, false));
        self.attributes.port.set_lid(MANAGER_LID).set_master_sm_lid(MANAGER_LID);
        self.attributes.port.set_gid_prefix(LINK_LOCAL_PREFIX);
        self.info.set_linear_top(MANAGER_LID).set_multicast_top(PERMISSIVE_LID - 1);
        // Inclusive, because `zip` asks for the number after that of the last port.
        let ports = (1..=u8::MAX).zip(&self.cables);
        let linked = ports.filter(|(_, cable)| cable.port_state() > PortState::Down as u8);
        linked.map(|(port, _)| port).collect()
    }

    /// Makes a port active on behalf of the SM on this node.
    pub(super) fn raise(&mut self, port: u8) {
        let cable = self.cables.get_mut(usize::from(port).wrapping_sub(1));
        if let Some(cable) = cable.filter(|cable| cable.port_state() > PortState::Down as u8) {
            cable.set_port_state(PortState::Active as u8);
        }
    }

    /// Whether a GID in a GRH is one of this port's.
    pub(super) fn owns_gid(&self, gid: u128) -> bool {
        let own = [self.attributes.node.port_guid(), ADMINISTRATION_GUID];
        own.iter().any(|guid| gid == u128::from(LINK_LOCAL_PREFIX) << 64 | u128::from(*guid))
    }

    /// Returns the next due trap and its destination, the LID of the SM. Only once that LID is known.
    pub(super) fn poll_trap(&mut self, now: Time) -> Option<(SubnetPacket, u16)> {
        let (own, manager) = (self.lid(), self.attributes.port.master_sm_lid());
        if own == 0 || manager == 0 {
            self.traps.clear();
            return None;
        }
        Some((self.traps.poll(now, own, TRAP_INTERVAL)?, manager))
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.traps.poll_timeout()
    }

    /// Handles TrapRepress: the SM has received the trap.
    pub(super) fn repress(&mut self, transaction: u64) {
        self.traps.repress(transaction);
    }

    /// Answers a request in place; false if there is no response. `ingress` is the port it arrived at.
    pub(super) fn answer(
        &mut self,
        request: &mut SubnetPacket,
        ingress: u8,
        tables: &mut ForwardingTables,
        manager: Option<ManagerState>,
    ) -> bool {
        if !request.method().has_response() || !request.arrive(ingress) {
            return false;
        }
        let done = match (request.class_version(), request.method()) {
            (CLASS_VERSION, Method::Get) => self.show(request, ingress, tables, manager),
            (CLASS_VERSION, Method::Set) if manager.is_some_and(|manager| manager.is_master) => {
                Err(status::UNSUPPORTED)
            }
            (CLASS_VERSION, Method::Set) => self.change(request, ingress, tables),
            (CLASS_VERSION, _) => Err(status::BAD_METHOD),
            _ => Err(status::BAD_VERSION),
        };
        request.answer(done.err().unwrap_or(status::OK));
        true
    }

    fn show(
        &self,
        packet: &mut SubnetPacket,
        ingress: u8,
        tables: &ForwardingTables,
        manager: Option<ManagerState>,
    ) -> Result<(), u16> {
        match (packet.attribute(), manager) {
            ((attribute::NODE_DESCRIPTION, _), _) => {
                packet.data_mut().copy_from_slice(&self.attributes.description);
            }
            ((attribute::NODE_INFO, _), _) => {
                let mut info = self.attributes.node;
                packet.write(info.set_local_port_num(ingress));
            }
            ((attribute::SWITCH_INFO, _), _) => packet.write(&self.info),
            ((attribute::PORT_INFO, modifier), _) => self.show_port(packet, ingress, modifier)?,
            ((attribute::GUID_INFO, modifier), _) => self.show_guids(packet, modifier)?,
            ((attribute::PARTITION_KEYS, modifier), _) => self.show_keys(packet, modifier)?,
            ((attribute::LINEAR_FORWARDING, modifier), _) => {
                packet.data_mut().copy_from_slice(&tables.linear_block(linear_block(modifier)?));
            }
            ((attribute::MULTICAST_FORWARDING, modifier), _) => {
                let (block, position) = multicast_block(modifier)?;
                packet.data_mut().copy_from_slice(&tables.multicast_block(block, position));
            }
            ((attribute::SL_TO_VL, modifier), _) => {
                packet.write(&self.lanes.mapping(self.last_port(), modifier)?);
            }
            ((attribute::VL_ARBITRATION, modifier), _) => {
                packet.data_mut().copy_from_slice(&self.lanes.arbitration(self.last_port(), modifier)?);
            }
            ((attribute::SM_INFO, _), Some(manager)) => self.show_manager(packet, manager),
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(())
    }

    /// Get of PortInfo. Its `LocalPortNum`, like that of NodeInfo, is the ingress port, so that a discovering node does
    /// not go back through it (IBTA v1.4 §14.2.5.6).
    fn show_port(&self, packet: &mut SubnetPacket, ingress: u8, modifier: u32) -> Result<(), u16> {
        let mut info = *self.port(port_number(modifier)?).ok_or(status::INVALID)?;
        packet.write(info.set_local_port_num(ingress));
        Ok(())
    }

    /// Get of GUIDInfo: port 0 has one GUID (IBTA v1.4 §14.2.5.5).
    fn show_guids(&self, packet: &mut SubnetPacket, block: u32) -> Result<(), u16> {
        if block >= u32::from(self.attributes.port.guid_cap()).div_ceil(GUIDS) {
            return Err(status::INVALID);
        }
        packet.data_mut().fill(0);
        packet.data_mut()[..8].copy_from_slice(&self.attributes.node.port_guid().to_be_bytes());
        Ok(())
    }

    /// Get of P_KeyTable: one block per port, for port 0 its own P_Keys and for an external port those it enforces
    /// (IBTA v1.4 §14.2.5.7).
    fn show_keys(&self, packet: &mut SubnetPacket, modifier: u32) -> Result<(), u16> {
        let keys = match partition_block(modifier)? {
            None => &self.partition_keys[..],
            Some(port) => self.enforcement.table(port).ok_or(status::INVALID)?,
        };
        packet.data_mut().copy_from_slice(&table_of(keys));
        Ok(())
    }

    fn change_keys(&mut self, modifier: u32, table: &[u8; 64]) -> Result<(), u16> {
        match partition_block(modifier)? {
            None => {
                let keys = keys_of(table);
                let length = keys.iter().rposition(|key| *key != 0).map_or(0, |last| last + 1);
                self.partition_keys = keys[..length].to_vec();
                Ok(())
            }
            Some(port) if self.enforcement.set_table(port, table) => Ok(()),
            Some(_) => Err(status::INVALID),
        }
    }

    /// Get of SMInfo. Only authenticated requesters see the SM_Key (IBTA v1.4 §14.2.5.13), which means those who know
    /// the M_Key; while that is 0, everybody does. Other SMs compare the SM_Key with their own and ignore an SM with
    /// another one.
    fn show_manager(&self, packet: &mut SubnetPacket, manager: ManagerState) {
        let (mut info, m_key) = (manager.info, self.attributes.port.m_key());
        if m_key != 0 && packet.m_key() != m_key {
            info.set_sm_key(0);
        }
        packet.write(&info);
    }

    /// Handles a Set from an SM on another node. The response has the resulting values.
    fn change(
        &mut self,
        packet: &mut SubnetPacket,
        ingress: u8,
        tables: &mut ForwardingTables,
    ) -> Result<(), u16> {
        match packet.attribute() {
            (attribute::SWITCH_INFO, _) => {
                self.change_switch(&packet.read().ok_or(status::INVALID)?)?;
                packet.write(&self.info);
            }
            (attribute::PORT_INFO, modifier) => {
                let (port, requested) = (port_number(modifier)?, packet.read().ok_or(status::INVALID)?);
                match port {
                    0 => self.change_own_port(&requested)?,
                    port => self.change_cable(port, &requested)?,
                }
                self.show_port(packet, ingress, modifier)?;
            }
            (attribute::PARTITION_KEYS, modifier) => {
                self.change_keys(modifier, packet.data().try_into().map_err(|_| status::INVALID)?)?;
                self.show_keys(packet, modifier)?;
            }
            (attribute::SL_TO_VL, modifier) => {
                let block = packet.data().try_into().map_err(|_| status::INVALID)?;
                self.lanes.set_mapping(self.last_port(), modifier, block)?;
            }
            (attribute::VL_ARBITRATION, modifier) => {
                let block = packet.data().try_into().map_err(|_| status::INVALID)?;
                self.lanes.set_arbitration(self.last_port(), modifier, block)?;
                // A longer table is truncated, and the response shows the result.
                packet.data_mut().copy_from_slice(&self.lanes.arbitration(self.last_port(), modifier)?);
            }
            (attribute::LINEAR_FORWARDING, modifier) => {
                let ports = packet.data().try_into().map_err(|_| status::INVALID)?;
                tables.set_linear_block(linear_block(modifier)?, ports);
            }
            (attribute::MULTICAST_FORWARDING, modifier) => {
                let (block, position) = multicast_block(modifier)?;
                let masks = packet.data().try_into().map_err(|_| status::INVALID)?;
                if !tables.set_multicast_block(block, position, masks) {
                    return Err(status::INVALID);
                }
            }
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(())
    }

    /// Set of SwitchInfo: table tops and lifetime. `PortStateChange` is cleared by writing 1 (IBTA v1.4 §14.2.5.4).
    fn change_switch(&mut self, requested: &SwitchInfo) -> Result<(), u16> {
        if requested.linear_top() >= self.info.linear_cap() {
            return Err(status::INVALID);
        }
        if requested.port_state_change() {
            self.info.set_port_state_change(false);
        }
        self.info.set_linear_top(requested.linear_top()).set_multicast_top(requested.multicast_top());
        self.info.set_life_time(requested.life_time());
        Ok(())
    }

    /// Set of PortInfo on port 0: its LID and the SM's. A base switch port 0 has no port states (IBTA v1.4 §14.2.5.6).
    fn change_own_port(&mut self, requested: &PortInfo) -> Result<(), u16> {
        let own = &mut self.attributes.port;
        if requested.lid() == 0 || requested.lid() >= FIRST_MULTICAST_LID || requested.lmc() != 0 {
            return Err(status::INVALID);
        }
        own.set_lid(requested.lid())
            .set_master_sm_lid(requested.master_sm_lid())
            .set_master_sm_sl(requested.master_sm_sl());
        own.set_m_key(requested.m_key()).set_m_key_protect_bits(requested.m_key_protect_bits());
        own.set_m_key_lease_period(requested.m_key_lease_period()).set_gid_prefix(requested.gid_prefix());
        own.set_subnet_timeout(requested.subnet_timeout());
        Ok(())
    }

    /// Set of PortInfo on an external port: its next state (IBTA v1.4 §7.2.7) and P_Key enforcement. Links cannot be
    /// disabled here.
    fn change_cable(&mut self, port: u8, requested: &PortInfo) -> Result<(), u16> {
        let cable = self.cables.get_mut(usize::from(port).wrapping_sub(1)).ok_or(status::INVALID)?;
        if !matches!(requested.port_physical_state(), 0 | POLLING) {
            return Err(status::INVALID);
        }
        let (state, requested_state) = (PortState::from_raw(cable.port_state()), requested.port_state());
        let next = match (state, PortState::from_raw(requested_state)) {
            (Some(state), None) if requested_state == 0 => state,
            (Some(PortState::Initialize | PortState::Armed), Some(PortState::Armed)) => PortState::Armed,
            (Some(PortState::Armed | PortState::Active), Some(PortState::Active)) => PortState::Active,
            (Some(PortState::Down), Some(PortState::Down)) => PortState::Down,
            (Some(_), Some(PortState::Down)) => PortState::Initialize,
            _ => return Err(status::INVALID),
        };
        cable.set_port_state(next as u8);
        let enforced =
            (requested.partition_enforcement_inbound(), requested.partition_enforcement_outbound());
        self.enforce(usize::from(port) - 1, enforced.0, enforced.1);
        Ok(())
    }

    /// Makes sure that the external port with this number, counted from 1, exists.
    fn count_port(&mut self, port: u8) {
        while self.cables.len() < usize::from(port) {
            let mut cable = port_info();
            cable.set_vl_arbitration_high_cap(ARBITRATION_ENTRIES);
            cable.set_vl_arbitration_low_cap(ARBITRATION_ENTRIES);
            cable.set_port_state(PortState::Down as u8).set_port_physical_state(POLLING);
            self.cables.push(cable);
        }
        self.enforcement.grow(self.cables.len());
        self.attributes.node.set_num_ports(self.cables.len() as u8);
    }
}

/// Port number of an attribute modifier. The high bit only matters to an SM.
fn port_number(modifier: u32) -> Result<u8, u16> {
    u8::try_from(modifier & 0x7fff_ffff).map_err(|_| status::INVALID)
}

fn linear_block(modifier: u32) -> Result<u16, u16> {
    let block = u16::try_from(modifier).map_err(|_| status::INVALID)?;
    if block < FIRST_MULTICAST_LID / LINEAR_BLOCK { Ok(block) } else { Err(status::INVALID) }
}

/// Splits an attribute modifier into block and position (IBTA v1.4 §14.2.5.12).
fn multicast_block(modifier: u32) -> Result<(u16, u8), u16> {
    let (block, position) = ((modifier & 0x1ff) as u16, (modifier >> 28) as u8);
    let is_one = modifier & 0x0fff_fe00 == 0 && block < multicast_blocks() && position < POSITION;
    if is_one { Ok((block, position)) } else { Err(status::INVALID) }
}

/// Port 0 of the switch that hosts the SM.
const fn own_port(guid: u64) -> PartitionedPort {
    PartitionedPort { guid, kind: NodeKind::Switch, is_manager: true }
}

/// External port, counted from 0, of a P_KeyTable modifier; `None` for port 0. Every port has a single block.
fn partition_block(modifier: u32) -> Result<Option<usize>, u16> {
    let (port, block) = ((modifier >> 16) as usize, modifier & 0xffff);
    if block == 0 { Ok(port.checked_sub(1)) } else { Err(status::INVALID) }
}

fn node_info(guid: u64) -> NodeInfo {
    let mut info = NodeInfo::new();
    info.set_base_version(1).set_class_version(CLASS_VERSION);
    info.set_node_type(node_type::SWITCH).set_vendor_id(VENDOR_ID);
    info.set_system_image_guid(guid).set_node_guid(guid).set_port_guid(guid);
    info.set_partition_cap(PARTITION_KEYS as u16);
    info
}

/// The attributes that port 0 and external ports share.
fn port_info() -> PortInfo {
    let mut info = PortInfo::new();
    info.set_neighbor_mtu(MTU_4096).set_mtu_cap(MTU_4096);
    info.set_link_width_enabled(WIDTH_4X).set_link_width_supported(WIDTH_4X).set_link_width_active(WIDTH_4X);
    info.set_link_speed_enabled(QDR).set_link_speed_supported(QDR).set_link_speed_active(QDR);
    info.set_link_speed_ext_enabled(EDR).set_link_speed_ext_supported(EDR).set_link_speed_ext_active(EDR);
    info.set_vl_cap(ONE_LANE).set_operational_vls(ONE_LANE);
    info.set_subnet_timeout(SUBNET_TIMEOUT).set_resp_time_value(RESPONSE_TIME);
    info
}

//! A switch as subnet management sees it (IBTA v1.4 §14.2.5, §18.2.4.1): its node, its port 0 and its cables, and the agent that shows and
//! changes them.
//!
//! The agent of a switch whose manager is the master is configured by that manager alone, which lives in the same node. Other switches, and one whose
//! manager stands by, do what they are told, and tell the manager of changed links by trap 128, again and again until it has heard (§13.4.9), or a few times.
//!
//! **What it may not do.** M_Keys are kept, and not checked. A port forwards what comes whatever its state: a link has data when both ends of it
//! have been told their LIDs. All cables are of one width and speed, as a switch is not told what is at the other end.

use super::config::SubnetSwitchConfig;
use super::end_port::Portrait;
use super::enforcement::{Enforcement, keys_of, table_of};
use super::events::{link_notice, switch_key_notice};
use super::forwarding::{ForwardingTables, GROUPS, LINEAR_BLOCK, POSITION, multicast_blocks};
use super::lanes::{ARBITRATION_ENTRIES, Lanes};
use super::partitions::{PARTITION_KEYS, PartitionedPort, Partitions};
use super::switch_traps::{SwitchTrap, SwitchTraps};
use crate::net::topology::NodeKind;
use crate::wire::infiniband::{FIRST_MULTICAST_LID, PERMISSIVE_LID};
use crate::wire::management::attributes::{NodeInfo, Notice, PortInfo, SmInfo, SwitchInfo};
use crate::wire::management::{CLASS_VERSION, Method, PortState, SubnetPacket, attribute, node_type, status};
use crate::wire::{DEFAULT_PARTITION_KEY, Packet};
use bareverbs_prm::time::{Duration, Time};

/// The LID of the manager: the last one that a port can have, so that those of ports begin with 1.
pub const MANAGER_LID: u16 = 0xbfff;
/// `SubnetTimeOut`, and how long a packet lives at most: 4.096 µs times 2 to this power.
pub(super) const SUBNET_TIMEOUT: u8 = 18;
/// After how long a trap is sent again: `SubnetTimeOut`.
const TRAP_INTERVAL: Duration = Duration::from_nanos(4_096 << SUBNET_TIMEOUT);
/// Prefix of the GIDs of a subnet that nobody gave another (IBTA v1.4 §4.1.1).
const LINK_LOCAL_PREFIX: u64 = 0xfe80 << 48;
/// The GUID by which every port may name the subnet's administration (IBTA v1.4 §4.1.1).
const ADMINISTRATION_GUID: u64 = 0x0200_0000_0000_0002;
/// The company number of the maker, as that of the adapters.
const VENDOR: u32 = 0x0002c9;
const MANAGER_DESCRIPTION: &str = "bareverbs switch with the subnet's manager";
/// `CapabilityMask`: a manager is here; mapping of service levels, SystemImageGUID, extended speeds. Traps of switches without one.
const IS_MANAGER: u32 = 1 << 1;
const CAPABILITIES: u32 = 1 << 6 | 1 << 11 | 1 << 14;
const TRAPS_CAPABILITY: u32 = 1 << 3;
/// Width 4x, basic speed QDR, extended speed EDR, MTU 4096, one data lane, physical states.
const WIDTH_4X: u8 = 2;
const QDR: u8 = 4;
const EDR: u8 = 2;
const MTU_4096: u8 = 5;
const ONE_LANE: u8 = 1;
const POLLING: u8 = 2;
const LINK_UP: u8 = 5;
/// 4.096 µs times 2 to this power, within which the agent answers.
const RESPONSE_TIME: u8 = 8;
/// GUIDs of a block.
const GUIDS: u32 = 8;

/// What the manager in the same node, if there is one, lets be known of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct ManagerState {
    /// SMInfo, with the SM_Key.
    pub(super) info: SmInfo,
    /// The master configures its own switch alone.
    pub(super) is_master: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SwitchAgent {
    portrait: Portrait,
    info: SwitchInfo,
    /// Cables by their ports, from port 1 on.
    cables: Vec<PortInfo>,
    partition_keys: Vec<u16>,
    /// It was built with so many ports; otherwise it has as many as have had cables.
    has_fixed_ports: bool,
    /// A manager elsewhere configures it, and is told of changed links.
    is_configured_from_afar: bool,
    traps: SwitchTraps,
    enforcement: Enforcement,
    lanes: Lanes,
}

impl SwitchAgent {
    /// A switch whose port 0 is the manager's. It has as many ports as have had cables.
    pub(super) fn of_manager(guid: u64, partitions: &Partitions) -> Self {
        let mut agent = Self::new(guid, partitions.keys(own_port(guid)), MANAGER_DESCRIPTION);
        agent.portrait.port.set_lid(MANAGER_LID).set_master_sm_lid(MANAGER_LID);
        agent.portrait.port.set_capability_mask(CAPABILITIES | IS_MANAGER);
        agent.info.set_linear_top(MANAGER_LID).set_multicast_top(PERMISSIVE_LID - 1);
        agent
    }

    /// A switch that a manager elsewhere has to find.
    pub(super) fn of(config: &SubnetSwitchConfig) -> Self {
        let mut agent = Self::new(config.guid, vec![DEFAULT_PARTITION_KEY], &config.description);
        (1..=config.ports).for_each(|port| agent.count_port(port));
        agent.portrait.port.set_capability_mask(CAPABILITIES | TRAPS_CAPABILITY);
        (agent.is_configured_from_afar, agent.has_fixed_ports) = (true, true);
        agent
    }

    fn new(guid: u64, partition_keys: Vec<u16>, description: &str) -> Self {
        let mut portrait = Portrait::new();
        portrait.node = node_info(guid);
        portrait.describe(description);
        portrait.port = port_info();
        portrait.port.set_gid_prefix(LINK_LOCAL_PREFIX).set_guid_cap(1);
        portrait.port.set_port_state(PortState::Active as u8).set_port_physical_state(LINK_UP);
        let mut info = SwitchInfo::new();
        info.set_linear_cap(FIRST_MULTICAST_LID).set_multicast_cap(GROUPS as u16);
        info.set_partition_enforcement_cap(PARTITION_KEYS as u16).set_life_time(SUBNET_TIMEOUT);
        info.set_default_multicast_primary(u8::MAX).set_default_multicast_not_primary(u8::MAX);
        info.set_default_port(u8::MAX);
        Self {
            portrait,
            info,
            cables: Vec::new(),
            partition_keys,
            has_fixed_ports: false,
            is_configured_from_afar: false,
            traps: SwitchTraps::new(TRAP_INTERVAL),
            enforcement: Enforcement::default(),
            lanes: Lanes::default(),
        }
    }

    pub(super) const fn portrait(&self) -> &Portrait {
        &self.portrait
    }

    pub(super) fn partition_keys(&self) -> &[u16] {
        &self.partition_keys
    }

    pub(super) const fn info(&self) -> &SwitchInfo {
        &self.info
    }

    pub(super) fn lid(&self) -> u16 {
        self.portrait.port.lid()
    }

    pub(super) fn guid(&self) -> u64 {
        self.portrait.node.node_guid()
    }

    /// Ports for cables, if their number is fixed.
    pub(super) fn fixed_ports(&self) -> Option<usize> {
        self.has_fixed_ports.then_some(self.cables.len())
    }

    /// External ports that it has by now.
    pub(super) fn ports(&self) -> usize {
        self.cables.len()
    }

    /// What a port says of itself; port 0 is the switch's own.
    pub(super) fn port(&self, port: u8) -> Option<&PortInfo> {
        match usize::from(port).checked_sub(1) {
            None => Some(&self.portrait.port),
            Some(index) => self.cables.get(index),
        }
    }

    /// The link of a port has come or gone.
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
            self.traps.raise(now, SwitchTrap::Links, link_notice(self.lid()));
        }
    }

    /// What the external ports let pass.
    pub(super) const fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// Which packets have a lane.
    pub(super) const fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// External ports, as management counts them.
    fn last_port(&self) -> u8 {
        self.portrait.node.num_ports()
    }

    /// A port, counted from 0, did not let a packet pass. What the manager of the same node is to be told of it, if it is the master.
    pub(super) fn note_violation(&mut self, now: Time, port: usize, packet: &Packet<'_>) -> Option<Notice> {
        let notice = switch_key_notice(self.lid(), u8::try_from(port + 1).ok()?, packet)?;
        let is_new = self.traps.raise(now, SwitchTrap::PartitionKey, notice);
        if self.is_configured_from_afar {
            return None;
        }
        // The manager hears it at once.
        self.traps.hear(now, SwitchTrap::PartitionKey);
        is_new.then_some(notice)
    }

    /// The manager of the same node sets what a port, counted from 1, lets pass: everything, or packets with these P_Keys.
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

    /// The manager of the same node is the master no more.
    pub(super) fn obey_another(&mut self) {
        self.is_configured_from_afar = true;
    }

    /// The manager of the same node is the master again, with these partitions. The ports that have a link, which are looked at anew.
    pub(super) fn obey_own(&mut self, partitions: &Partitions) -> Vec<u8> {
        self.partition_keys = partitions.keys(own_port(self.guid()));
        self.is_configured_from_afar = false;
        self.traps.clear();
        // What the other manager had the ports look at: this one says so anew.
        (0..self.cables.len()).for_each(|index| self.enforce(index, false, false));
        self.portrait.port.set_lid(MANAGER_LID).set_master_sm_lid(MANAGER_LID);
        self.portrait.port.set_gid_prefix(LINK_LOCAL_PREFIX);
        self.info.set_linear_top(MANAGER_LID).set_multicast_top(PERMISSIVE_LID - 1);
        let linked = (1..).zip(&self.cables).filter(|(_, cable)| cable.port_state() > PortState::Down as u8);
        linked.map(|(port, _)| port).collect()
    }

    /// The manager of the same node has made a port active.
    pub(super) fn raise(&mut self, port: u8) {
        let cable = self.cables.get_mut(usize::from(port).wrapping_sub(1));
        if let Some(cable) = cable.filter(|cable| cable.port_state() > PortState::Down as u8) {
            cable.set_port_state(PortState::Active as u8);
        }
    }

    /// Whether a global route header that names this GID is for this port.
    pub(super) fn owns_gid(&self, gid: u128) -> bool {
        let own = [self.portrait.node.port_guid(), ADMINISTRATION_GUID];
        own.iter().any(|guid| gid == u128::from(LINK_LOCAL_PREFIX) << 64 | u128::from(*guid))
    }

    /// The trap that is due, and where it goes: to the manager's LID, which the switch has to know.
    pub(super) fn poll_trap(&mut self, now: Time) -> Option<(SubnetPacket, u16)> {
        let (own, manager) = (self.lid(), self.portrait.port.master_sm_lid());
        if own == 0 || manager == 0 {
            self.traps.clear();
            return None;
        }
        Some((self.traps.poll(now, own)?, manager))
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.traps.poll_timeout()
    }

    /// The manager has heard a trap.
    pub(super) fn repress(&mut self, transaction: u64) {
        self.traps.repress(transaction);
    }

    /// Answers a question that has arrived, in place; false if it has no answer. `ingress` is the port that it came in by.
    pub(super) fn answer(
        &mut self,
        question: &mut SubnetPacket,
        ingress: u8,
        tables: &mut ForwardingTables,
        manager: Option<ManagerState>,
    ) -> bool {
        if !question.method().has_answer() || !question.arrive(ingress) {
            return false;
        }
        let done = match (question.class_version(), question.method()) {
            (CLASS_VERSION, Method::Get) => self.show(question, ingress, tables, manager),
            (CLASS_VERSION, Method::Set) if manager.is_some_and(|manager| manager.is_master) => {
                Err(status::UNSUPPORTED)
            }
            (CLASS_VERSION, Method::Set) => self.change(question, ingress, tables),
            (CLASS_VERSION, _) => Err(status::BAD_METHOD),
            _ => Err(status::BAD_VERSION),
        };
        question.answer(done.err().unwrap_or(status::OK));
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
                packet.data_mut().copy_from_slice(&self.portrait.description);
            }
            ((attribute::NODE_INFO, _), _) => {
                let mut info = self.portrait.node;
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

    /// PortInfo of a port, which says by which port the question came in, as NodeInfo does: who discovers a subnet does not go back by that one
    /// (IBTA v1.4 §14.2.5.6).
    fn show_port(&self, packet: &mut SubnetPacket, ingress: u8, modifier: u32) -> Result<(), u16> {
        let mut info = *self.port(port_number(modifier)?).ok_or(status::INVALID)?;
        packet.write(info.set_local_port_num(ingress));
        Ok(())
    }

    /// The one GUID of port 0 (IBTA v1.4 §14.2.5.5).
    fn show_guids(&self, packet: &mut SubnetPacket, block: u32) -> Result<(), u16> {
        if block >= u32::from(self.portrait.port.guid_cap()).div_ceil(GUIDS) {
            return Err(status::INVALID);
        }
        packet.data_mut().fill(0);
        packet.data_mut()[..8].copy_from_slice(&self.portrait.node.port_guid().to_be_bytes());
        Ok(())
    }

    /// The one block of P_Keys of a port: those that port 0 has, and those that an external port lets pass (IBTA v1.4 §14.2.5.7).
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

    /// SMInfo. Its SM_Key is shown to who is authenticated (IBTA v1.4 §14.2.5.13): who knows the M_Key, which nobody has to know while it is 0. Other
    /// managers compare the SM_Key with theirs, and take no notice of a manager with another one.
    fn show_manager(&self, packet: &mut SubnetPacket, manager: ManagerState) {
        let (mut info, m_key) = (manager.info, self.portrait.port.m_key());
        if m_key != 0 && packet.m_key() != m_key {
            info.set_sm_key(0);
        }
        packet.write(&info);
    }

    /// What a manager elsewhere sets. The answer shows how it is now.
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
                let (port, wish) = (port_number(modifier)?, packet.read().ok_or(status::INVALID)?);
                match port {
                    0 => self.change_own_port(&wish)?,
                    port => self.change_cable(port, &wish)?,
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
                // Of a longer table the beginning is kept, and the answer says so.
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

    /// Tops of the tables and the life time; `PortStateChange` is cleared by writing 1 (IBTA v1.4 §14.2.5.4).
    fn change_switch(&mut self, wish: &SwitchInfo) -> Result<(), u16> {
        if wish.linear_top() >= self.info.linear_cap() {
            return Err(status::INVALID);
        }
        if wish.port_state_change() {
            self.info.set_port_state_change(false);
        }
        self.info.set_linear_top(wish.linear_top()).set_multicast_top(wish.multicast_top());
        self.info.set_life_time(wish.life_time());
        Ok(())
    }

    /// Port 0 has a LID, and knows its manager. It has no states (IBTA v1.4 §14.2.5.6, base switch port 0).
    fn change_own_port(&mut self, wish: &PortInfo) -> Result<(), u16> {
        let own = &mut self.portrait.port;
        if wish.lid() == 0 || wish.lid() >= FIRST_MULTICAST_LID || wish.lmc() != 0 {
            return Err(status::INVALID);
        }
        own.set_lid(wish.lid()).set_master_sm_lid(wish.master_sm_lid()).set_master_sm_sl(wish.master_sm_sl());
        own.set_m_key(wish.m_key()).set_m_key_protect_bits(wish.m_key_protect_bits());
        own.set_m_key_lease_period(wish.m_key_lease_period()).set_gid_prefix(wish.gid_prefix());
        own.set_subnet_timeout(wish.subnet_timeout());
        Ok(())
    }

    /// The next state of a cable's port (IBTA v1.4 §7.2.7), and whether it looks at P_Keys. A link is not switched off here.
    fn change_cable(&mut self, port: u8, wish: &PortInfo) -> Result<(), u16> {
        let cable = self.cables.get_mut(usize::from(port).wrapping_sub(1)).ok_or(status::INVALID)?;
        if !matches!(wish.port_physical_state(), 0 | POLLING) {
            return Err(status::INVALID);
        }
        let (state, wished) = (PortState::from_raw(cable.port_state()), wish.port_state());
        let next = match (state, PortState::from_raw(wished)) {
            (Some(state), None) if wished == 0 => state,
            (Some(PortState::Initialize | PortState::Armed), Some(PortState::Armed)) => PortState::Armed,
            (Some(PortState::Armed | PortState::Active), Some(PortState::Active)) => PortState::Active,
            (Some(PortState::Down), Some(PortState::Down)) => PortState::Down,
            (Some(_), Some(PortState::Down)) => PortState::Initialize,
            _ => return Err(status::INVALID),
        };
        cable.set_port_state(next as u8);
        let enforced = (wish.partition_enforcement_inbound(), wish.partition_enforcement_outbound());
        self.enforce(usize::from(port) - 1, enforced.0, enforced.1);
        Ok(())
    }

    /// The switch has an external port of this number, counted from 1.
    fn count_port(&mut self, port: u8) {
        while self.cables.len() < usize::from(port) {
            let mut cable = port_info();
            cable.set_vl_arbitration_high_cap(ARBITRATION_ENTRIES);
            cable.set_vl_arbitration_low_cap(ARBITRATION_ENTRIES);
            cable.set_port_state(PortState::Down as u8).set_port_physical_state(POLLING);
            self.cables.push(cable);
        }
        self.enforcement.grow(self.cables.len());
        self.portrait.node.set_num_ports(self.cables.len() as u8);
    }
}

/// A port by its number. The high bit says only what the manager knows.
fn port_number(modifier: u32) -> Result<u8, u16> {
    u8::try_from(modifier & 0x7fff_ffff).map_err(|_| status::INVALID)
}

fn linear_block(modifier: u32) -> Result<u16, u16> {
    let block = u16::try_from(modifier).map_err(|_| status::INVALID)?;
    if block < FIRST_MULTICAST_LID / LINEAR_BLOCK { Ok(block) } else { Err(status::INVALID) }
}

/// Block and position (IBTA v1.4 §14.2.5.12).
fn multicast_block(modifier: u32) -> Result<(u16, u8), u16> {
    let (block, position) = ((modifier & 0x1ff) as u16, (modifier >> 28) as u8);
    let is_one = modifier & 0x0fff_fe00 == 0 && block < multicast_blocks() && position < POSITION;
    if is_one { Ok((block, position)) } else { Err(status::INVALID) }
}

/// Port 0 of the manager's switch.
const fn own_port(guid: u64) -> PartitionedPort {
    PartitionedPort { guid, kind: NodeKind::Switch, is_manager: true }
}

/// The external port, counted from 0, of a P_Key table; `None` for port 0. Each has one block.
fn partition_block(modifier: u32) -> Result<Option<usize>, u16> {
    let (port, block) = ((modifier >> 16) as usize, modifier & 0xffff);
    if block == 0 { Ok(port.checked_sub(1)) } else { Err(status::INVALID) }
}

fn node_info(guid: u64) -> NodeInfo {
    let mut info = NodeInfo::new();
    info.set_base_version(1).set_class_version(CLASS_VERSION);
    info.set_node_type(node_type::SWITCH).set_vendor_id(VENDOR);
    info.set_system_image_guid(guid).set_node_guid(guid).set_port_guid(guid);
    info.set_partition_cap(PARTITION_KEYS as u16);
    info
}

/// What port 0 and the cables have in common.
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

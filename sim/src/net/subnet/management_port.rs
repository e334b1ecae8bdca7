//! Port 0 of the switch, where the subnet's manager lives: its LID, and its agent of subnet management (IBTA v1.4 §14.2.5, §18.2.4.1).
//!
//! **What it may not do.** It is configured by nobody: the manager in the same node is the master, and gives the subnet to no other.

use super::directory::{Portrait, full_member};
use crate::wire::DEFAULT_PARTITION_KEY;
use crate::wire::management::attributes::{NodeInfo, PortInfo, SmInfo};
use crate::wire::management::{CLASS_VERSION, Method, PortState, SubnetPacket, attribute, status};

/// The LID of the manager: the last one that a port can have, so that those of ports begin with 1.
pub const MANAGER_LID: u16 = 0xbfff;
/// `SubnetTimeOut`, and how long a packet lives at most: 4.096 µs times 2 to this power.
pub(super) const SUBNET_TIMEOUT: u8 = 18;
/// Prefix of the GIDs of a subnet that nobody gave another (IBTA v1.4 §4.1.1).
const LINK_LOCAL_PREFIX: u64 = 0xfe80 << 48;
/// The GUID by which every port may name the subnet's administration (IBTA v1.4 §4.1.1).
const ADMINISTRATION_GUID: u64 = 0x0200_0000_0000_0002;
/// `NodeType` of a switch.
const SWITCH: u8 = 2;
/// The company number of the maker, as that of the adapters.
const VENDOR: u32 = 0x0002c9;
const DESCRIPTION: &[u8] = b"bareverbs switch with the subnet's manager";
/// `CapabilityMask`: a manager is here; SystemImageGUID; extended speeds.
const CAPABILITIES: u32 = 1 << 1 | 1 << 11 | 1 << 14;
/// Width 4x, basic speed QDR, extended speed EDR, MTU 4096, one data lane, physical state LinkUp.
const WIDTH_4X: u8 = 2;
const QDR: u8 = 4;
const EDR: u8 = 2;
const MTU_4096: u8 = 5;
const ONE_LANE: u8 = 1;
const LINK_UP: u8 = 5;
/// 4.096 µs times 2 to this power, within which the agent answers.
const RESPONSE_TIME: u8 = 8;
/// `SMState` of a master.
const MASTER: u8 = 3;

/// Port 0; see the module.
#[derive(Debug)]
pub(super) struct ManagementPort {
    portrait: Portrait,
    partition_keys: Vec<u16>,
    sm_key: u64,
}

impl ManagementPort {
    /// Port 0 of a switch with this GUID. It is a full member of every partition, so that every port can ask.
    pub(super) fn new(guid: u64, sm_key: u64, partition_keys: &[u16]) -> Self {
        let mut partition_keys: Vec<u16> =
            partition_keys.iter().filter(|key| **key != 0).map(|key| full_member(*key)).collect();
        partition_keys.push(DEFAULT_PARTITION_KEY);
        partition_keys.sort_unstable();
        partition_keys.dedup();
        partition_keys.reverse();
        let mut portrait = Portrait::new();
        portrait.node = node_info(guid, partition_keys.len());
        portrait.description[..DESCRIPTION.len()].copy_from_slice(DESCRIPTION);
        portrait.port = port_info();
        Self { portrait, partition_keys, sm_key }
    }

    pub(super) const fn portrait(&self) -> &Portrait {
        &self.portrait
    }

    pub(super) fn partition_keys(&self) -> &[u16] {
        &self.partition_keys
    }

    /// The switch has an external port of this number, counted from 1.
    pub(super) fn count_port(&mut self, port: u8) {
        let ports = self.portrait.node.num_ports();
        self.portrait.node.set_num_ports(ports.max(port));
    }

    /// Whether a global route header that names this GID is for this port.
    pub(super) fn owns_gid(&self, gid: u128) -> bool {
        let own = [self.portrait.node.port_guid(), ADMINISTRATION_GUID];
        own.iter().any(|guid| gid == u128::from(LINK_LOCAL_PREFIX) << 64 | u128::from(*guid))
    }

    /// Answers a question that has arrived, in place; false if it has no answer. `ingress` is the port that it came in by, and `transactions`
    /// counts what the manager has done.
    pub(super) fn answer(&self, question: &mut SubnetPacket, ingress: u8, transactions: u64) -> bool {
        if !question.method().has_answer() || !question.arrive(ingress) {
            return false;
        }
        let done = match (question.class_version(), question.method()) {
            (CLASS_VERSION, Method::Get) => self.show(question, ingress, transactions),
            (CLASS_VERSION, Method::Set) => Err(status::UNSUPPORTED),
            (CLASS_VERSION, _) => Err(status::BAD_METHOD),
            _ => Err(status::BAD_VERSION),
        };
        question.answer(done.err().unwrap_or(status::OK));
        true
    }

    fn show(&self, packet: &mut SubnetPacket, ingress: u8, transactions: u64) -> Result<(), u16> {
        match packet.attribute() {
            (attribute::NODE_DESCRIPTION, _) => {
                packet.data_mut().copy_from_slice(&self.portrait.description);
            }
            (attribute::NODE_INFO, _) => {
                let mut info = self.portrait.node;
                packet.write(info.set_local_port_num(ingress));
            }
            // The high bit says only what the manager knows.
            (attribute::PORT_INFO, modifier) if modifier & 0x7fff_ffff == 0 => {
                packet.write(&self.portrait.port);
            }
            (attribute::PORT_INFO, _) => return Err(status::INVALID),
            (attribute::SM_INFO, _) => self.show_manager(packet, transactions),
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(())
    }

    /// SMInfo. Its SM_Key is shown to who knows it (IBTA v1.4 §14.2.5.13).
    fn show_manager(&self, packet: &mut SubnetPacket, transactions: u64) {
        let knows_key = packet.read::<SmInfo>().is_some_and(|asked| asked.sm_key() == self.sm_key);
        let mut info = SmInfo::new();
        info.set_guid(self.portrait.node.port_guid()).set_sm_state(MASTER);
        info.set_sm_key(if knows_key { self.sm_key } else { 0 }).set_act_count(transactions as u32);
        packet.write(&info);
    }
}

fn node_info(guid: u64, partition_keys: usize) -> NodeInfo {
    let mut info = NodeInfo::new();
    info.set_base_version(1).set_class_version(CLASS_VERSION).set_node_type(SWITCH).set_vendor_id(VENDOR);
    info.set_system_image_guid(guid).set_node_guid(guid).set_port_guid(guid);
    info.set_partition_cap(u16::try_from(partition_keys).unwrap_or(u16::MAX));
    info
}

fn port_info() -> PortInfo {
    let mut info = PortInfo::new();
    info.set_gid_prefix(LINK_LOCAL_PREFIX).set_lid(MANAGER_LID).set_master_sm_lid(MANAGER_LID);
    info.set_capability_mask(CAPABILITIES).set_port_state(PortState::Active as u8);
    info.set_port_physical_state(LINK_UP).set_neighbor_mtu(MTU_4096).set_mtu_cap(MTU_4096);
    info.set_link_width_enabled(WIDTH_4X).set_link_width_supported(WIDTH_4X).set_link_width_active(WIDTH_4X);
    info.set_link_speed_enabled(QDR).set_link_speed_supported(QDR).set_link_speed_active(QDR);
    info.set_link_speed_ext_enabled(EDR).set_link_speed_ext_supported(EDR).set_link_speed_ext_active(EDR);
    info.set_vl_cap(ONE_LANE).set_operational_vls(ONE_LANE).set_guid_cap(1);
    info.set_subnet_timeout(SUBNET_TIMEOUT).set_resp_time_value(RESPONSE_TIME);
    info
}

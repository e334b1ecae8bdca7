//! The subnet management agent of an InfiniBand port: responds to the SM (IBTA v1.4 §14.3), which sets LID, state,
//! P_Key table and its own address.
//!
//! **What it may not do.** It manages nothing itself, and does not check M_Keys: the key is zero, which protects
//! nothing (IBTA v1.4 §14.2.4). `router/management` separates its packets from the host's.

use super::Nic;
use crate::nic::HostMemory;
use crate::nic::firmware_state::ARBITRATION_ENTRIES;
use crate::nic::port::PARTITION_KEYS;
use crate::wire::infiniband;
use crate::wire::management::attributes::{NodeInfo, PortInfo};
use crate::wire::management::values::{MTU_4096, ONE_LANE, POLLING, RESPONSE_TIME, VENDOR_ID};
use crate::wire::management::{CLASS_VERSION, Method, PortState, SubnetPacket, attribute, node_type, status};
use bareverbs_prm::context::RoceAddress;
use bareverbs_prm::numbering::PortChange;

/// The only port of an adapter.
const PORT: u8 = 1;
/// P_Keys and GUIDs per block.
const KEYS: usize = 32;
const GUIDS: usize = 8;

impl Nic {
    /// The response, if any, to a request that came over the link or that the port's host sent to the port's
    /// LID.
    pub(in crate::nic) fn answer_management(
        &mut self,
        memory: &mut dyn HostMemory,
        mut request: SubnetPacket,
    ) -> Option<SubnetPacket> {
        if !request.method().has_response() || !request.arrive(PORT) {
            return None;
        }
        let status = self.perform(memory, &mut request).unwrap_or_else(|status| status);
        request.answer(status);
        Some(request)
    }

    /// The response to a request in a command. A directed route that would continue past this port also gets
    /// a response that says so, because a failed command would tell the host nothing.
    pub(in crate::nic) fn answer_host(
        &mut self,
        memory: &mut dyn HostMemory,
        mut request: SubnetPacket,
    ) -> Option<SubnetPacket> {
        if !request.method().has_response() {
            return None;
        }
        let done =
            if request.ends_at_host() { self.perform(memory, &mut request) } else { Err(status::INVALID) };
        request.answer_at_host(done.unwrap_or_else(|status| status));
        Some(request)
    }

    /// Executes the request. The packet then holds the current attribute.
    fn perform(&mut self, memory: &mut dyn HostMemory, packet: &mut SubnetPacket) -> Result<u16, u16> {
        if packet.class_version() != CLASS_VERSION {
            return Err(status::BAD_VERSION);
        }
        match packet.method() {
            Method::Get => self.show(packet)?,
            Method::Set => {
                let client_reregister = self.set(memory, packet)?;
                self.show(packet)?;
                // The response repeats ClientReregister; a later Get does not.
                if client_reregister {
                    packet.write(self.port_info().set_client_reregister(true));
                }
            }
            _ => return Err(status::BAD_METHOD),
        }
        Ok(status::OK)
    }

    /// Writes the current attribute.
    fn show(&mut self, packet: &mut SubnetPacket) -> Result<(), u16> {
        let (number, modifier) = packet.attribute();
        match number {
            attribute::NODE_DESCRIPTION => packet.data_mut().copy_from_slice(&self.firmware.node_description),
            attribute::NODE_INFO => packet.write(&self.node_info()),
            attribute::GUID_INFO => self.show_guids(block(modifier)?, packet.data_mut())?,
            attribute::PORT_INFO => {
                check_port(modifier)?;
                packet.write(&self.port_info());
            }
            // This attribute reports the vendor's speed between QDR and FDR, FDR10, which no port here has.
            attribute::VENDOR_PORT_INFO => {
                check_port(modifier)?;
                packet.data_mut().fill(0);
            }
            attribute::PARTITION_KEYS => self.show_keys(block(modifier & 0xffff)?, packet.data_mut())?,
            attribute::SL_TO_VL => packet.write(&self.firmware.lanes.sl_to_vl),
            attribute::VL_ARBITRATION => {
                let table = self.firmware.lanes.arbitration(modifier).ok_or(status::INVALID)?;
                let data = packet.data_mut();
                data.fill(0);
                data[..table.len()].copy_from_slice(table);
            }
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(())
    }

    /// Sets the attribute. Returns whether clients must register again.
    fn set(&mut self, memory: &mut dyn HostMemory, packet: &SubnetPacket) -> Result<bool, u16> {
        let (number, modifier) = packet.attribute();
        match number {
            attribute::GUID_INFO => self.set_guids(memory, block(modifier)?, packet.data())?,
            attribute::PORT_INFO => {
                check_port(modifier)?;
                let requested = packet.read::<PortInfo>().ok_or(status::INVALID)?;
                self.set_port(memory, &requested)?;
                return Ok(requested.client_reregister());
            }
            attribute::PARTITION_KEYS => self.set_keys(memory, block(modifier & 0xffff)?, packet.data())?,
            attribute::SL_TO_VL => {
                let table = packet.data().first_chunk().ok_or(status::INVALID)?;
                self.firmware.lanes.sl_to_vl = *table;
            }
            attribute::VL_ARBITRATION => {
                let table = self.firmware.lanes.arbitration(modifier).ok_or(status::INVALID)?;
                let length = table.len();
                table.copy_from_slice(&packet.data()[..length]);
            }
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(false)
    }

    fn node_info(&self) -> NodeInfo {
        let (vport, mut info) = (&self.shared.port.hca_vport, NodeInfo::new());
        info.set_base_version(1).set_class_version(CLASS_VERSION);
        info.set_node_type(node_type::CHANNEL_ADAPTER).set_num_ports(PORT).set_local_port_num(PORT);
        info.set_system_image_guid(vport.system_image_guid()).set_node_guid(vport.node_guid());
        info.set_port_guid(vport.port_guid()).set_partition_cap(PARTITION_KEYS as u16);
        info.set_device_id(self.config.device_id).set_vendor_id(VENDOR_ID);
        info
    }

    /// A block of GUIDInfo (IBTA v1.4 §14.2.5.5).
    fn show_guids(&self, block: usize, data: &mut [u8]) -> Result<(), u16> {
        let entries = self.shared.port.addresses().chunks(GUIDS).nth(block).ok_or(status::INVALID)?;
        data.fill(0);
        for (to, entry) in data.chunks_exact_mut(8).zip(entries) {
            to.copy_from_slice(&entry.source_l3_address()[8..]);
        }
        Ok(())
    }

    /// Sets the additional GUIDs of the port; the first one is its own and stays (IBTA v1.4 §14.2.5.5).
    fn set_guids(&mut self, memory: &mut dyn HostMemory, block: usize, data: &[u8]) -> Result<(), u16> {
        let prefix = self.gid_prefix().to_be_bytes();
        let entries = self.shared.port.addresses_mut().chunks_mut(GUIDS).nth(block).ok_or(status::INVALID)?;
        let mut changed = false;
        for (index, (entry, guid)) in entries.iter_mut().zip(data.chunks_exact(8)).enumerate() {
            if block == 0 && index == 0 {
                continue;
            }
            let mut gid = [0; 16];
            if guid != [0; 8] {
                gid[..8].copy_from_slice(&prefix);
                gid[8..].copy_from_slice(guid);
            }
            changed |= entry.source_l3_address() != gid;
            entry.set_source_l3_address(gid);
        }
        if changed {
            self.tell_port(memory, PortChange::Guid);
        }
        Ok(())
    }

    fn gid_prefix(&self) -> u64 {
        self.shared.port.addresses().first().map_or(0, prefix)
    }

    /// PortInfo (IBTA v1.4 §14.2.5.6).
    fn port_info(&self) -> PortInfo {
        let (vport, state, mut info) =
            (&self.shared.port.hca_vport, self.shared.port.state(), PortInfo::new());
        info.set_gid_prefix(self.gid_prefix()).set_lid(vport.lid()).set_lmc(vport.lmc());
        info.set_master_sm_lid(vport.sm_lid()).set_master_sm_sl(vport.sm_sl());
        info.set_capability_mask(vport.cap_mask1()).set_local_port_num(PORT);
        info.set_port_state(state as u8).set_link_down_default_state(POLLING);
        info.set_port_physical_state(self.shared.port.link.physical_state() as u8);
        info.set_neighbor_mtu(MTU_4096).set_mtu_cap(MTU_4096);
        info.set_vl_cap(ONE_LANE).set_operational_vls(ONE_LANE);
        info.set_vl_arbitration_high_cap(ARBITRATION_ENTRIES).set_vl_arbitration_low_cap(ARBITRATION_ENTRIES);
        info.set_p_key_violations(vport.pkey_violation_counter());
        info.set_q_key_violations(vport.qkey_violation_counter());
        info.set_guid_cap(self.shared.port.addresses().len() as u8)
            .set_subnet_timeout(vport.subnet_timeout());
        info.set_resp_time_value(RESPONSE_TIME);
        self.show_speed(&mut info);
        info
    }

    /// Width and speed. Speeds from FDR on are in the extended fields, and the basic fields then say QDR.
    fn show_speed(&self, info: &mut PortInfo) {
        let (width, speed) = self.config.speed.infiniband_protocol();
        let width = port_info_width(width);
        info.set_link_width_enabled(width).set_link_width_supported(width);
        let (basic, extended) = port_info_speed(speed);
        info.set_link_speed_supported(basic).set_link_speed_enabled(basic);
        info.set_link_speed_ext_supported(extended).set_link_speed_ext_enabled(extended);
        let (width, speed) = self.config.link_speed().infiniband_protocol();
        let (basic, extended) = port_info_speed(speed);
        info.set_link_width_active(port_info_width(width));
        info.set_link_speed_active(basic).set_link_speed_ext_active(extended);
    }

    /// Sets the fields of PortInfo that an SM may set: LID, LMC, the SM's own LID and SL, timeout, and the
    /// next state. If any of them is invalid, nothing changes.
    fn set_port(&mut self, memory: &mut dyn HostMemory, requested: &PortInfo) -> Result<(), u16> {
        let (lid, lmc) = (requested.lid(), requested.lmc());
        // Links cannot be disabled here.
        if !matches!(requested.port_physical_state(), 0 | POLLING) {
            return Err(status::INVALID);
        }
        let state = self.next_state(requested.port_state())?;
        let last = lid.checked_add((1 << lmc) - 1).ok_or(status::INVALID)?;
        if lid == 0 || last >= infiniband::FIRST_MULTICAST_LID || lid & ((1 << lmc) - 1) != 0 {
            return Err(status::INVALID);
        }
        let (before, vport) = (self.shared.port.state(), &mut self.shared.port.hca_vport);
        let manager = requested.master_sm_lid();
        let moved = (vport.lid(), vport.lmc(), vport.sm_lid()) != (lid, lmc, manager);
        vport.set_lid(lid).set_lmc(lmc).set_sm_lid(manager);
        vport.set_sm_sl(requested.master_sm_sl()).set_subnet_timeout(requested.subnet_timeout());
        self.shared.port.set_managed_state(state);
        if moved {
            self.tell_port(memory, PortChange::Lid);
        }
        if requested.client_reregister() {
            self.tell_port(memory, PortChange::ClientRereg);
        }
        match state {
            PortState::Active if before != state => self.tell_port(memory, PortChange::Active),
            // Linux suspends the clients of an active port until it is active again.
            PortState::Initialize if before != state => self.tell_port(memory, PortChange::Initialized),
            _ => {}
        }
        Ok(())
    }

    /// The state that follows when an SM requests the state `requested` (IBTA v1.4 §7.2.7). 0 keeps the state, and a port
    /// must be armed before it becomes active.
    fn next_state(&self, requested: u8) -> Result<PortState, u16> {
        let state = self.shared.port.state();
        if requested == 0 {
            return Ok(state);
        }
        match (state, PortState::from_raw(requested).ok_or(status::INVALID)?) {
            (PortState::Initialize | PortState::Armed, PortState::Armed) => Ok(PortState::Armed),
            (PortState::Armed | PortState::Active, PortState::Active) => Ok(PortState::Active),
            (_, PortState::Down) => Ok(PortState::Initialize),
            _ => Err(status::INVALID),
        }
    }

    fn show_keys(&self, block: usize, data: &mut [u8]) -> Result<(), u16> {
        let keys = self.shared.port.partition_keys().chunks(KEYS).nth(block).ok_or(status::INVALID)?;
        for (to, key) in data.chunks_exact_mut(2).zip(keys) {
            to.copy_from_slice(&key.to_be_bytes());
        }
        Ok(())
    }

    /// P_KeyTable (IBTA v1.4 §14.2.5.7).
    fn set_keys(&mut self, memory: &mut dyn HostMemory, block: usize, data: &[u8]) -> Result<(), u16> {
        let keys =
            self.shared.port.partition_keys_mut().chunks_mut(KEYS).nth(block).ok_or(status::INVALID)?;
        let mut changed = false;
        for (key, from) in keys.iter_mut().zip(data.chunks_exact(2)) {
            let requested = u16::from_be_bytes([from[0], from[1]]);
            changed |= *key != requested;
            *key = requested;
        }
        if changed {
            self.tell_port(memory, PortChange::Pkey);
        }
        Ok(())
    }
}

/// `LinkWidth` of PortInfo places 2 lanes after all other widths; register PTYS lists them in order.
const fn port_info_width(lanes: u16) -> u8 {
    match lanes {
        0b010 => 16,
        0b100 => 2,
        _ => 1,
    }
}

/// Basic and extended speed of PortInfo: from FDR on, the basic one says QDR.
const fn port_info_speed(speed: u16) -> (u8, u8) {
    (if speed & 7 == 0 { 4 } else { speed as u8 & 7 }, (speed >> 4) as u8 & 0xf)
}

/// The index of a table block.
fn block(modifier: u32) -> Result<usize, u16> {
    usize::try_from(modifier).map_err(|_| status::INVALID)
}

/// Checks the port number of PortInfo. An adapter has one port, and 0 means the port that received the
/// request. The high bit only says what the SM knows.
fn check_port(modifier: u32) -> Result<(), u16> {
    if modifier & 0x7fff_ffff <= u32::from(PORT) { Ok(()) } else { Err(status::INVALID) }
}

fn prefix(entry: &RoceAddress) -> u64 {
    entry.source_l3_address().first_chunk().map_or(0, |prefix| u64::from_be_bytes(*prefix))
}

//! The agent of an InfiniBand port: it answers the subnet's manager (IBTA v1.4 §14.3). LID, state, P_Key table and manager
//! are what it says.
//!
//! **What it may not do.** It manages nothing itself, and M_Keys are not checked: the key is zero, which protects nothing
//! (IBTA v1.4 §14.2.4). What the host's own management queue pairs see is told in `datagram`.

use super::Nic;
use crate::nic::HostMemory;
use crate::nic::port::PARTITION_KEYS;
use crate::wire::infiniband;
use crate::wire::management::{Method, PortState, SubnetPacket, attribute, status};
use bareverbs_prm::numbering::PortChange;

/// The port of an adapter that has one.
const PORT: u8 = 1;
/// P_Keys and GUIDs of a block.
const KEYS: usize = 32;
const GUIDS: usize = 8;
/// `NodeType` of a channel adapter.
const CHANNEL_ADAPTER: u8 = 1;
/// Vendor in NodeInfo: the company number of the device's maker.
const VENDOR: [u8; 3] = [0x00, 0x02, 0xc9];
/// `MTU` of 4096 bytes, and the one virtual lane for data.
const MTU_4096: u8 = 5;
const ONE_LANE: u8 = 1;
/// `PortPhysicalState`.
const POLLING: u8 = 2;
const LINK_UP: u8 = 5;

impl Nic {
    /// The answer to a question that ends here: from the link, or from the port's own host.
    pub(in crate::nic) fn answer_management<M: HostMemory>(
        &mut self,
        memory: &mut M,
        mut question: SubnetPacket,
    ) -> Option<SubnetPacket> {
        if question.method() == Method::Response || !question.arrive(PORT) {
            return None;
        }
        let status = self.perform(memory, &mut question).unwrap_or_else(|status| status);
        question.answer(status);
        Some(question)
    }

    /// Does what is asked; the packet then has the attribute as it is.
    fn perform<M: HostMemory>(&mut self, memory: &mut M, packet: &mut SubnetPacket) -> Result<u16, u16> {
        let (number, modifier) = packet.attribute();
        match (packet.method(), number) {
            (Method::Get, attribute::NODE_DESCRIPTION) => {
                packet.data_mut().copy_from_slice(&self.firmware.node_description);
            }
            (Method::Get, attribute::NODE_INFO) => self.show_node(packet.data_mut()),
            (Method::Get, attribute::GUID_INFO) => self.show_guids(block(modifier)?, packet.data_mut())?,
            (Method::Get, attribute::PORT_INFO) => self.show_port(packet.data_mut()),
            (Method::Set, attribute::PORT_INFO) => {
                self.set_port(memory, packet.data())?;
                self.show_port(packet.data_mut());
            }
            (Method::Get, attribute::PARTITION_KEYS) => {
                self.show_keys(block(modifier & 0xffff)?, packet.data_mut())?;
            }
            (Method::Set, attribute::PARTITION_KEYS) => {
                self.set_keys(memory, block(modifier & 0xffff)?, packet.data())?;
            }
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(status::OK)
    }

    /// NodeInfo (IBTA v1.4 §14.2.5.3).
    fn show_node(&self, data: &mut [u8]) {
        let vport = &self.port.hca_vport;
        data.fill(0);
        data[..4].copy_from_slice(&[1, 1, CHANNEL_ADAPTER, 1]);
        data[4..12].copy_from_slice(&vport.system_image_guid().to_be_bytes());
        data[12..20].copy_from_slice(&vport.node_guid().to_be_bytes());
        data[20..28].copy_from_slice(&vport.port_guid().to_be_bytes());
        data[28..30].copy_from_slice(&(PARTITION_KEYS as u16).to_be_bytes());
        data[30..32].copy_from_slice(&self.config.device_id.to_be_bytes());
        data[36] = PORT;
        data[37..40].copy_from_slice(&VENDOR);
    }

    /// A block of GUIDInfo (IBTA v1.4 §14.2.5.5): only the first entry is in use.
    fn show_guids(&self, block: usize, data: &mut [u8]) -> Result<(), u16> {
        let entries = self.port.addresses().chunks(GUIDS).nth(block).ok_or(status::INVALID)?;
        data.fill(0);
        for (to, entry) in data.chunks_exact_mut(8).zip(entries) {
            to.copy_from_slice(&entry.source_l3_address()[8..]);
        }
        Ok(())
    }

    /// PortInfo (IBTA v1.4 §14.2.5.6).
    fn show_port(&self, data: &mut [u8]) {
        let (vport, state) = (&self.port.hca_vport, self.port.state());
        let (width, speed) = self.config.speed.infiniband_protocol();
        data.fill(0);
        data[8..16].copy_from_slice(&self.port.addresses().first().map_or([0; 8], prefix));
        data[16..18].copy_from_slice(&vport.lid().to_be_bytes());
        data[18..20].copy_from_slice(&vport.sm_lid().to_be_bytes());
        data[20..24].copy_from_slice(&vport.cap_mask1().to_be_bytes());
        data[28] = PORT;
        data[29..32].fill(width as u8);
        // Speeds from FDR on are in the extended fields; the others then say QDR.
        let (basic, extended) = (if speed & 7 == 0 { 4 } else { speed as u8 & 7 }, (speed >> 4) as u8 & 3);
        data[32] = basic << 4 | state as u8;
        data[33] = if state == PortState::Down { POLLING } else { LINK_UP } << 4 | POLLING;
        data[34] = vport.lmc();
        data[35] = basic << 4 | basic;
        data[36] = MTU_4096 << 4 | vport.sm_sl();
        data[37] = ONE_LANE << 4;
        data[41] = MTU_4096;
        data[43] = ONE_LANE << 4;
        data[46..48].copy_from_slice(&vport.pkey_violation_counter().to_be_bytes());
        data[48..50].copy_from_slice(&vport.qkey_violation_counter().to_be_bytes());
        data[50] = self.port.addresses().len() as u8;
        data[51] = vport.subnet_timeout();
        data[62] = extended << 4 | extended;
        data[63] = extended;
    }

    /// What a manager may set of PortInfo: LID, LMC, its own LID and level, timeout, and the next state. Nothing changes if
    /// something of it is not possible.
    fn set_port<M: HostMemory>(&mut self, memory: &mut M, data: &[u8]) -> Result<(), u16> {
        let (lid, lmc) = (u16::from_be_bytes([data[16], data[17]]), data[34] & 7);
        let state = self.next_state(data[32] & 0xf)?;
        let last = lid.checked_add((1 << lmc) - 1).ok_or(status::INVALID)?;
        if lid == 0 || last >= infiniband::FIRST_MULTICAST_LID || lid & ((1 << lmc) - 1) != 0 {
            return Err(status::INVALID);
        }
        let (before, vport) = (self.port.state(), &mut self.port.hca_vport);
        let moved = (vport.lid(), vport.lmc(), vport.sm_lid())
            != (lid, lmc, u16::from_be_bytes([data[18], data[19]]));
        vport.set_lid(lid).set_lmc(lmc).set_sm_lid(u16::from_be_bytes([data[18], data[19]]));
        vport.set_sm_sl(data[36] & 0xf).set_subnet_timeout(data[51] & 0x1f);
        self.port.set_trained(state);
        if moved {
            self.tell_port(memory, PortChange::Lid);
        }
        if data[51] & 0x80 != 0 {
            self.tell_port(memory, PortChange::ClientRereg);
        }
        if before != state && state == PortState::Active {
            self.tell_port(memory, PortChange::Active);
        }
        Ok(())
    }

    /// The state that follows when a manager asks for `wish` (IBTA v1.4 §7.2.7): 0 leaves it, and a port is armed before it
    /// is active.
    fn next_state(&self, wish: u8) -> Result<PortState, u16> {
        let state = self.port.state();
        if wish == 0 {
            return Ok(state);
        }
        match (state, PortState::from_raw(wish).ok_or(status::INVALID)?) {
            (PortState::Initialize | PortState::Armed, PortState::Armed) => Ok(PortState::Armed),
            (PortState::Armed | PortState::Active, PortState::Active) => Ok(PortState::Active),
            (_, PortState::Down) => Ok(PortState::Initialize),
            _ => Err(status::INVALID),
        }
    }

    fn show_keys(&self, block: usize, data: &mut [u8]) -> Result<(), u16> {
        let keys = self.port.partition_keys().chunks(KEYS).nth(block).ok_or(status::INVALID)?;
        for (to, key) in data.chunks_exact_mut(2).zip(keys) {
            to.copy_from_slice(&key.to_be_bytes());
        }
        Ok(())
    }

    /// P_KeyTable (IBTA v1.4 §14.2.5.7).
    fn set_keys<M: HostMemory>(&mut self, memory: &mut M, block: usize, data: &[u8]) -> Result<(), u16> {
        let keys = self.port.partition_keys_mut().chunks_mut(KEYS).nth(block).ok_or(status::INVALID)?;
        for (key, from) in keys.iter_mut().zip(data.chunks_exact(2)) {
            *key = u16::from_be_bytes([from[0], from[1]]);
        }
        self.tell_port(memory, PortChange::Pkey);
        Ok(())
    }
}

/// A block of a table by its number.
fn block(modifier: u32) -> Result<usize, u16> {
    usize::try_from(modifier).map_err(|_| status::INVALID)
}

fn prefix(entry: &bareverbs_prm::context::RoceAddress) -> [u8; 8] {
    entry.source_l3_address().first_chunk().copied().unwrap_or_default()
}

//! Registers that only Ethernet ports have: flow control, error correction, module lanes, counters.

use super::super::register::{bytes, check_port, read};
use super::super::syndrome::{self, Refusal};
use crate::nic::Nic;
use crate::nic::ethernet::traffic::{Direction, PortTraffic};
use bareverbs_prm::command::ethernet_port::{PfccRegister, PmlpRegister, PpcntRegister, PplmRegister};

/// Bytes of a counter set; every counter is 64 bits wide.
const COUNTER_SET: usize = 248;
/// `grp` of PPCNT.
mod group {
    pub(super) const IEEE_802_3: u8 = 0x0;
    pub(super) const RFC_2863: u8 = 0x1;
    pub(super) const RFC_2819: u8 = 0x2;
    pub(super) const RFC_3635: u8 = 0x3;
    pub(super) const EXTENDED: u8 = 0x5;
    pub(super) const PRIORITY: u8 = 0x10;
    pub(super) const TRAFFIC_CLASS: u8 = 0x11;
    pub(super) const PHYSICAL: u8 = 0x12;
}
/// Lanes of the cable, in module 0.
const LANES: u8 = 4;

/// Pause frames and priority flow control: none, since the wire of the model has no back-pressure.
pub(in crate::nic::firmware) fn flow_control(data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let wish: PfccRegister = read(data)?;
    check_port(wish.local_port())?;
    let asked = wish.pptx() || wish.pprx() || wish.pfctx() != 0 || wish.pfcrx() != 0;
    if write && asked {
        return Err(syndrome::REGISTER_VALUE);
    }
    let mut register = PfccRegister::new();
    register.set_local_port(1);
    bytes(&register)
}

/// Forward error correction: none can be chosen, none is active.
pub(in crate::nic::firmware) fn error_correction(data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let wish: PplmRegister = read(data)?;
    check_port(wish.local_port())?;
    if write {
        return Err(syndrome::REGISTER_READ_ONLY);
    }
    let mut register = PplmRegister::new();
    register.set_local_port(1);
    bytes(&register)
}

/// All lanes of module 0.
pub(in crate::nic::firmware) fn module_lanes(data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let wish: PmlpRegister = read(data)?;
    check_port(wish.local_port())?;
    if write {
        return Err(syndrome::REGISTER_READ_ONLY);
    }
    let mut register = PmlpRegister::new();
    register.set_local_port(1).set_width(LANES);
    let lane = |index: u32| index << 24 | index << 16;
    register.set_lane0_module_mapping(lane(0)).set_lane1_module_mapping(lane(1));
    register.set_lane2_module_mapping(lane(2)).set_lane3_module_mapping(lane(3));
    bytes(&register)
}

/// Counters of a group. What the model has no errors of is zero; clearing is not offered.
pub(in crate::nic::firmware) fn counters(nic: &Nic, data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let wish: PpcntRegister = read(data)?;
    check_port(wish.local_port())?;
    if write || wish.clr() {
        return Err(syndrome::REGISTER_READ_ONLY);
    }
    let view = View::new(nic);
    let set: &[(usize, u64)] = match wish.grp() {
        group::IEEE_802_3 => &view.ieee_802_3(),
        group::RFC_2863 => &view.rfc_2863(),
        group::RFC_2819 => &view.rfc_2819(),
        group::PRIORITY if wish.prio_tc() == 0 => &view.priority(),
        group::RFC_3635 | group::EXTENDED | group::PRIORITY | group::TRAFFIC_CLASS | group::PHYSICAL => &[],
        _ => return Err(syndrome::REGISTER_VALUE),
    };
    let mut register = PpcntRegister::new();
    register.set_local_port(1).set_grp(wish.grp()).set_prio_tc(wish.prio_tc());
    register.set_counter_set(encode(set));
    bytes(&register)
}

/// Counters by their index in the set.
fn encode(set: &[(usize, u64)]) -> [u8; COUNTER_SET] {
    let mut bytes = [0; COUNTER_SET];
    for &(index, value) in set {
        if let Some(place) = bytes.get_mut(index * 8..index * 8 + 8) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }
    bytes
}

/// What passed the port: packets of Ethernet by kind, RDMA's among those to one address.
struct View {
    traffic: PortTraffic,
    received: (u64, u64),
    sent: (u64, u64),
}

impl View {
    fn new(nic: &Nic) -> Self {
        let counters = &nic.counters;
        Self {
            traffic: nic.ethernet.traffic,
            received: (counters.frames_received, counters.bytes_received),
            sent: (counters.frames_sent, counters.bytes_sent),
        }
    }

    /// Packets to one address: all that are not to a group.
    fn unicast(all: u64, direction: &Direction) -> u64 {
        all.saturating_sub(direction.multicast.packets + direction.broadcast.packets)
    }

    fn ieee_802_3(&self) -> [(usize, u64); 9] {
        let (received, sent) = (&self.traffic.received, &self.traffic.sent);
        [
            (0, self.sent.0),
            (1, self.received.0),
            (4, self.sent.1),
            (5, self.received.1),
            (6, sent.multicast.packets),
            (7, sent.broadcast.packets),
            (8, received.multicast.packets),
            (9, received.broadcast.packets),
            (12, self.traffic.oversize),
        ]
    }

    fn rfc_2863(&self) -> [(usize, u64); 9] {
        let (received, sent) = (&self.traffic.received, &self.traffic.sent);
        [
            (0, self.received.1),
            (1, Self::unicast(self.received.0, received)),
            (2, self.traffic.not_steered),
            (5, self.sent.1),
            (6, Self::unicast(self.sent.0, sent)),
            (9, received.multicast.packets),
            (10, received.broadcast.packets),
            (11, sent.multicast.packets),
            (12, sent.broadcast.packets),
        ]
    }

    fn rfc_2819(&self) -> [(usize, u64); 5] {
        let received = &self.traffic.received;
        [
            (1, self.received.1),
            (2, self.received.0),
            (3, received.broadcast.packets),
            (4, received.multicast.packets),
            (7, self.traffic.oversize),
        ]
    }

    /// Everything is of priority 0.
    fn priority(&self) -> [(usize, u64); 4] {
        [(0, self.received.1), (4, self.received.0), (5, self.sent.1), (9, self.sent.0)]
    }
}

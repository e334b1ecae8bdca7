//! Register PPCNT: counters of the port, by group.
//!
//! The model counts from its creation and never resets. Clearing a group stores the current values, which are
//! then subtracted.

use super::register_data::{bytes, check_port, read};
use crate::nic::Nic;
use crate::nic::ethernet::traffic::{Count, DirectionTraffic, PRIORITIES, PortTraffic};
use crate::nic::firmware_state::{COUNTER_SET, COUNTERS, CounterValues};
use crate::nic::flow_control::FlowTally;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::ethernet_port::PpcntRegister;
use bareverbs_prm::command::port_counters::InfiniBandCounterSet;
use bareverbs_prm::numbering::PortCounterGroup;
use zerocopy::IntoBytes;

/// `clr` may come with a read or a write and returns the counters as they were before; a write can do nothing
/// else.
pub(super) fn access(nic: &mut Nic, data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let requested: PpcntRegister = read(data)?;
    check_port(requested.local_port())?;
    if write && !requested.clr() {
        return Err(syndrome::REGISTER_READ_ONLY);
    }
    let (group, priority) = (requested.grp(), requested.prio_tc());
    let counted = counters(nic, group, priority)?;
    let shown = nic.cleared.since(group, priority, &counted);
    if requested.clr() {
        nic.cleared.clear(group, priority, counted);
    }
    let mut register = PpcntRegister::new();
    register.set_local_port(1).set_grp(group).set_prio_tc(priority);
    register.set_counter_set(if group == PortCounterGroup::InfiniBandPort {
        encode_infiniband(&shown)
    } else {
        encode(&shown)
    });
    bytes(&register)
}

/// Counters of a group. Counters of errors that the model cannot have are zero. InfiniBand and Ethernet
/// groups exist only on their own kind of port.
fn counters(nic: &Nic, group: PortCounterGroup, priority: u8) -> Result<CounterValues, Refusal> {
    use PortCounterGroup as Group;
    let (view, infiniband) = (View::new(nic), nic.shared.port.is_infiniband());
    match group {
        Group::InfiniBandPort if infiniband => Ok(placed(&faults::of(nic))),
        Group::InfiniBandPort => Err(syndrome::LINK_LAYER),
        Group::Unknown(_) | Group::InfiniBandExtendedPort => Err(syndrome::REGISTER_VALUE),
        _ if infiniband => Err(syndrome::LINK_LAYER),
        Group::Ieee8023 => Ok(placed(&view.ieee_802_3())),
        Group::Rfc2863 => Ok(placed(&view.rfc_2863())),
        Group::Rfc2819 => Ok(placed(&view.rfc_2819())),
        Group::PerPriority if usize::from(priority) < PRIORITIES => Ok(placed(&view.priority(priority))),
        Group::PerPriority => Err(syndrome::REGISTER_VALUE),
        _ => Ok([0; COUNTERS]),
    }
}

fn placed(set: &[(usize, u64)]) -> CounterValues {
    let mut counters = [0; COUNTERS];
    for &(index, value) in set {
        counters[index] = value;
    }
    counters
}

fn encode(counters: &CounterValues) -> [u8; COUNTER_SET] {
    let mut bytes = [0; COUNTER_SET];
    for (place, value) in bytes.chunks_exact_mut(8).zip(counters) {
        place.copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// Error counters of an InfiniBand port, in an order of our own.
mod faults {
    use crate::nic::Nic;

    pub(super) const LINK_DOWNED: usize = 0;
    pub(super) const RECEIVE_ERRORS: usize = 1;
    pub(super) const TRANSMIT_DISCARDS: usize = 2;

    pub(super) fn of(nic: &Nic) -> [(usize, u64); 3] {
        let counters = &nic.shared.counters;
        [
            (LINK_DOWNED, nic.times_down),
            (RECEIVE_ERRORS, counters.frames_malformed + counters.frames_bad_icrc),
            (TRANSMIT_DISCARDS, counters.frames_without_path),
        ]
    }
}

/// InfiniBand counters saturate (IBTA v1.4, performance management).
fn encode_infiniband(shown: &CounterValues) -> [u8; COUNTER_SET] {
    let limited = |index: usize| u16::try_from(shown[index]).unwrap_or(u16::MAX);
    let mut set = InfiniBandCounterSet::new();
    set.set_link_downed_counter(u8::try_from(shown[faults::LINK_DOWNED]).unwrap_or(u8::MAX));
    set.set_port_rcv_errors(limited(faults::RECEIVE_ERRORS));
    set.set_port_xmit_discards(limited(faults::TRANSMIT_DISCARDS));
    let mut bytes = [0; COUNTER_SET];
    bytes[..InfiniBandCounterSet::SIZE].copy_from_slice(set.as_bytes());
    bytes
}

/// The traffic of a port: Ethernet packets by kind of address, with RDMA counted as unicast.
struct View {
    traffic: PortTraffic,
    received: (u64, u64),
    sent: (u64, u64),
    flow: FlowTally,
}

impl View {
    fn new(nic: &Nic) -> Self {
        let counters = &nic.shared.counters;
        Self {
            traffic: nic.ethernet.traffic,
            received: (counters.frames_received, counters.bytes_received),
            sent: (counters.frames_sent, counters.bytes_sent),
            flow: nic.flow.counted,
        }
    }

    /// Unicast packets: all but those to groups.
    fn unicast(all: u64, direction: &DirectionTraffic) -> u64 {
        all.saturating_sub(direction.multicast.packets + direction.broadcast.packets)
    }

    fn ieee_802_3(&self) -> [(usize, u64); 14] {
        let (received, sent) = (&self.traffic.received, &self.traffic.sent);
        let flow = &self.flow;
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
            (14, flow.sent),
            (15, flow.received + flow.unsupported),
            (16, flow.unsupported),
            (17, flow.received),
            (18, flow.sent),
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

    /// Pause frames for all traffic count as priority 0, as on devices without priority flow control.
    fn priority(&self, priority: u8) -> [(usize, u64); 10] {
        let of =
            |counts: &[Count; PRIORITIES]| counts.get(usize::from(priority)).copied().unwrap_or_default();
        let (received, sent) = (of(&self.traffic.received_by_priority), of(&self.traffic.sent_by_priority));
        let flow = if priority == 0 { self.flow } else { FlowTally::default() };
        let discards = self.flow.discards.get(usize::from(priority)).copied().unwrap_or_default();
        [
            (0, received.bytes),
            (4, received.packets),
            (5, sent.bytes),
            (9, sent.packets),
            (10, flow.received),
            (11, flow.received_time.as_nanos() / 1000),
            (12, flow.sent),
            (13, flow.sent_time.as_nanos() / 1000),
            (14, flow.transitions),
            (15, discards),
        ]
    }
}

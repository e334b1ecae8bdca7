//! The performance management agent of a node (IBTA v1.4 §16.1): reports the port counters to requesters at queue pair
//! 1.
//!
//! **What it may not do.** It counts nothing itself. It gets the ports' totals and remembers offsets, so that counters
//! can be set. PortCounters and PortCountersExtended have separate offsets. PortXmitWait can be read and set but never
//! rises: it counts ticks in which data lacked credits, and simulated links have no credits.

use super::attributes::{ClassPortInfo, PortCounters, PortCountersExtended};
use super::{CLASS_VERSION, MadHeader, Method, SIZE, attribute, status};
use bareverbs_prm::field::Layout;
use std::collections::BTreeMap;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Offset of the class's attribute (IBTA v1.4 §16.1.1).
const DATA: usize = 64;
/// `PortSelect` for all ports of the node.
const ALL_PORTS: u8 = 0xff;
/// `CapabilityMask`: AllPortSelect; 64-bit counters; PortXmitWait (IBTA v1.4 §16.1.3.1).
const CAPABILITIES: u16 = 1 << 8 | 1 << 9 | 1 << 12;
/// Number of counters in PortCounters, in the order of `CounterSelect` and `CounterSelect2`, and in
/// PortCountersExtended.
const CLASSIC: usize = 17;
const EXTENDED: usize = 8;
/// Width in bits of each counter in PortCounters.
const WIDTHS: [u32; CLASSIC] = [16, 8, 8, 16, 16, 16, 16, 8, 8, 4, 4, 16, 32, 32, 32, 32, 32];

/// Traffic of a port in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crossed {
    /// All packets.
    pub packets: u64,
    /// Multicast packets.
    pub multicast: u64,
    /// Bytes without the VCRC (IBTA v1.4 §16.1.3.5).
    pub bytes: u64,
}

/// Totals of a port. Errors without a field here never occur at simulated ports.
///
/// ```
/// use bareverbs_sim::wire::management::performance::{Crossed, PortCounts};
///
/// let sent = Crossed { packets: 10, ..Crossed::default() };
/// let counts = PortCounts { sent, discards: 1, ..PortCounts::default() };
/// assert_eq!(counts.received, Crossed::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounts {
    /// Packets sent.
    pub sent: Crossed,
    /// Packets received.
    pub received: Crossed,
    /// `LinkDownedCounter`: number of times the link went down.
    pub link_downed: u64,
    /// `PortRcvErrors`: malformed packets, or packets with a bad CRC.
    pub receive_errors: u64,
    /// `PortRcvSwitchRelayErrors`: packets that a switch had no route for.
    pub relay_errors: u64,
    /// `PortXmitDiscards`: packets dropped at egress.
    pub discards: u64,
    /// `PortXmitConstraintErrors`: packets dropped at egress for their P_Key.
    pub transmit_constraint_errors: u64,
    /// `PortRcvConstraintErrors`: packets dropped at ingress for their P_Key.
    pub receive_constraint_errors: u64,
    /// `VL15Dropped`: management packets dropped for lack of room.
    pub management_dropped: u64,
}

/// Offsets to subtract from a port's totals.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    classic: [u64; CLASSIC],
    extended: [u64; EXTENDED],
}

/// The agent; see the module.
#[derive(Debug, Default)]
pub struct PerformanceAgent {
    /// Offsets by port. A port whose counters were never set is missing.
    ahead: BTreeMap<u8, Ahead>,
}

impl Crossed {
    /// Counts a packet of `bytes` bytes.
    #[inline]
    pub const fn count(&mut self, bytes: usize, is_multicast: bool) {
        self.packets += 1;
        self.multicast += is_multicast as u64;
        self.bytes += bytes as u64;
    }

    /// Undoes the count of a packet that was dropped after all.
    pub const fn take_back(&mut self, bytes: usize, is_multicast: bool) {
        self.packets = self.packets.saturating_sub(1);
        self.multicast = self.multicast.saturating_sub(is_multicast as u64);
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }
}

impl PerformanceAgent {
    /// Answers a performance management datagram in place; false if there is no response. `ports` are the node's ports
    /// from port 1.
    pub fn answer(&mut self, mad: &mut [u8; SIZE], ports: &[PortCounts]) -> bool {
        let mut header = MadHeader::of(mad);
        let method = Method::from_raw(header.method());
        if !method.has_response() {
            return false;
        }
        let done = match (header.class_version(), method) {
            (CLASS_VERSION, Method::Get) => self.show(header.attribute(), &mut mad[DATA..], ports),
            (CLASS_VERSION, Method::Set) => self
                .set(header.attribute(), &mad[DATA..], ports)
                .and_then(|()| self.show(header.attribute(), &mut mad[DATA..], ports)),
            (CLASS_VERSION, _) => Err(status::BAD_METHOD),
            _ => Err(status::BAD_VERSION),
        };
        header.set_method(method.answered()).set_status(done.err().unwrap_or(status::OK));
        header.write_to(mad);
        true
    }

    fn show(&self, number: u16, data: &mut [u8], ports: &[PortCounts]) -> Result<(), u16> {
        match number {
            attribute::CLASS_PORT_INFO => {
                let mut info = ClassPortInfo::new();
                info.set_base_version(1).set_class_version(CLASS_VERSION).set_capability_mask(CAPABILITIES);
                put(data, &info);
            }
            attribute::PORT_COUNTERS => {
                let select = read::<PortCounters>(data)?.port_select();
                let shown = self.sum(&chosen(select, ports)?, PortCounts::classic, |ahead| &ahead.classic);
                put(data, &port_counters(select, &shown));
            }
            attribute::PORT_COUNTERS_EXTENDED => {
                let select = read::<PortCountersExtended>(data)?.port_select();
                let shown = self.sum(&chosen(select, ports)?, PortCounts::extended, |ahead| &ahead.extended);
                put(data, &extended_counters(select, &shown));
            }
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(())
    }

    /// Counters summed over the selected ports.
    fn sum<const N: usize>(
        &self,
        ports: &[(u8, &PortCounts)],
        counted: fn(&PortCounts) -> [u64; N],
        ahead: fn(&Ahead) -> &[u64; N],
    ) -> [u64; N] {
        let mut sum = [0_u64; N];
        for (number, counts) in ports {
            let before = self.ahead.get(number).map_or([0; N], |known| *ahead(known));
            for ((sum, counted), before) in sum.iter_mut().zip(counted(counts)).zip(before) {
                *sum = sum.wrapping_add(counted.wrapping_sub(before));
            }
        }
        sum
    }

    /// Sets the selected counters to the values in the attribute.
    fn set(&mut self, number: u16, data: &[u8], ports: &[PortCounts]) -> Result<(), u16> {
        match number {
            attribute::PORT_COUNTERS => {
                let requested = read::<PortCounters>(data)?;
                let select =
                    u32::from(requested.counter_select()) | u32::from(requested.counter_select2()) << 16;
                for (number, counts) in chosen(requested.port_select(), ports)? {
                    let ahead = &mut self.ahead.entry(number).or_default().classic;
                    set(ahead, select, &counts.classic(), &classic_values(&requested));
                }
            }
            attribute::PORT_COUNTERS_EXTENDED => {
                let requested = read::<PortCountersExtended>(data)?;
                for (number, counts) in chosen(requested.port_select(), ports)? {
                    let ahead = &mut self.ahead.entry(number).or_default().extended;
                    set(
                        ahead,
                        requested.counter_select().into(),
                        &counts.extended(),
                        &extended_values(&requested),
                    );
                }
            }
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(())
    }
}

impl PortCounts {
    /// All counters of PortCounters, ordered like [`WIDTHS`].
    fn classic(&self) -> [u64; CLASSIC] {
        let mut all = [0; CLASSIC];
        (all[2], all[3], all[5], all[6]) =
            (self.link_downed, self.receive_errors, self.relay_errors, self.discards);
        (all[7], all[8]) = (self.transmit_constraint_errors, self.receive_constraint_errors);
        (all[11], all[12], all[13]) = (self.management_dropped, self.sent.words(), self.received.words());
        (all[14], all[15]) = (self.sent.packets, self.received.packets);
        all
    }

    /// All counters of PortCountersExtended.
    const fn extended(&self) -> [u64; EXTENDED] {
        let (sent, received) = (&self.sent, &self.received);
        let (to_one, from_one) = (sent.unicast(), received.unicast());
        let packets = [sent.packets, received.packets];
        let groups = [sent.multicast, received.multicast];
        [sent.words(), received.words(), packets[0], packets[1], to_one, from_one, groups[0], groups[1]]
    }
}

impl Crossed {
    /// Data in words of 4 bytes (IBTA v1.4 §16.1.3.5).
    const fn words(&self) -> u64 {
        self.bytes / 4
    }

    const fn unicast(&self) -> u64 {
        self.packets.saturating_sub(self.multicast)
    }
}

/// The ports that `PortSelect` selects, with their numbers.
fn chosen(select: u8, ports: &[PortCounts]) -> Result<Vec<(u8, &PortCounts)>, u16> {
    let mut all = (1..ALL_PORTS).zip(ports);
    match select {
        ALL_PORTS => Ok(all.collect()),
        one => all.find(|(number, _)| *number == one).map(|port| vec![port]).ok_or(status::INVALID),
    }
}

/// Encodes PortCounters. Counters saturate.
fn port_counters(select: u8, values: &[u64; CLASSIC]) -> PortCounters {
    let shown: [u32; CLASSIC] = core::array::from_fn(|index| {
        u32::try_from(values[index]).unwrap_or(u32::MAX).min(u32::MAX >> (32 - WIDTHS[index]))
    });
    let mut counters = PortCounters::new();
    counters.set_port_select(select);
    counters.set_symbol_error_counter(shown[0] as u16).set_link_error_recovery_counter(shown[1] as u8);
    counters.set_link_downed_counter(shown[2] as u8).set_port_rcv_errors(shown[3] as u16);
    counters.set_port_rcv_remote_physical_errors(shown[4] as u16);
    counters.set_port_rcv_switch_relay_errors(shown[5] as u16).set_port_xmit_discards(shown[6] as u16);
    counters.set_port_xmit_constraint_errors(shown[7] as u8);
    counters.set_port_rcv_constraint_errors(shown[8] as u8);
    counters.set_local_link_integrity_errors(shown[9] as u8);
    counters.set_excessive_buffer_overrun_errors(shown[10] as u8).set_vl15_dropped(shown[11] as u16);
    counters.set_port_xmit_data(shown[12]).set_port_rcv_data(shown[13]);
    counters.set_port_xmit_pkts(shown[14]).set_port_rcv_pkts(shown[15]).set_port_xmit_wait(shown[16]);
    counters
}

fn extended_counters(select: u8, shown: &[u64; EXTENDED]) -> PortCountersExtended {
    let mut counters = PortCountersExtended::new();
    counters.set_port_select(select);
    counters.set_port_xmit_data(shown[0]).set_port_rcv_data(shown[1]);
    counters.set_port_xmit_pkts(shown[2]).set_port_rcv_pkts(shown[3]);
    counters.set_port_unicast_xmit_pkts(shown[4]).set_port_unicast_rcv_pkts(shown[5]);
    counters.set_port_multicast_xmit_pkts(shown[6]).set_port_multicast_rcv_pkts(shown[7]);
    counters
}

/// Counter values of a Set, ordered like [`WIDTHS`].
fn classic_values(requested: &PortCounters) -> [u64; CLASSIC] {
    [
        requested.symbol_error_counter().into(),
        requested.link_error_recovery_counter().into(),
        requested.link_downed_counter().into(),
        requested.port_rcv_errors().into(),
        requested.port_rcv_remote_physical_errors().into(),
        requested.port_rcv_switch_relay_errors().into(),
        requested.port_xmit_discards().into(),
        requested.port_xmit_constraint_errors().into(),
        requested.port_rcv_constraint_errors().into(),
        requested.local_link_integrity_errors().into(),
        requested.excessive_buffer_overrun_errors().into(),
        requested.vl15_dropped().into(),
        requested.port_xmit_data().into(),
        requested.port_rcv_data().into(),
        requested.port_xmit_pkts().into(),
        requested.port_rcv_pkts().into(),
        requested.port_xmit_wait().into(),
    ]
}

fn extended_values(requested: &PortCountersExtended) -> [u64; EXTENDED] {
    [
        requested.port_xmit_data(),
        requested.port_rcv_data(),
        requested.port_xmit_pkts(),
        requested.port_rcv_pkts(),
        requested.port_unicast_xmit_pkts(),
        requested.port_unicast_rcv_pkts(),
        requested.port_multicast_xmit_pkts(),
        requested.port_multicast_rcv_pkts(),
    ]
}

fn set(ahead: &mut [u64], chosen: u32, counted: &[u64], values: &[u64]) {
    for (index, ahead) in ahead.iter_mut().enumerate() {
        if chosen >> index & 1 != 0 {
            *ahead = counted[index].wrapping_sub(values[index]);
        }
    }
}

fn read<T: FromBytes + Layout>(data: &[u8]) -> Result<T, u16> {
    T::read_from_prefix(data).map(|(attribute, _)| attribute).map_err(|_| status::INVALID)
}

/// Writes an attribute and zeros the rest of the datagram.
fn put(data: &mut [u8], attribute: &(impl IntoBytes + Immutable)) {
    let bytes = attribute.as_bytes();
    data.fill(0);
    data[..bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::management::class;

    fn mad(method: u8, number: u16, attribute: &(impl IntoBytes + Immutable)) -> [u8; SIZE] {
        let mut mad = [0; SIZE];
        let mut header = MadHeader::new();
        header.set_base_version(1).set_class(class::PERFORMANCE).set_class_version(CLASS_VERSION);
        header.set_method(method).set_attribute(number).write_to(&mut mad);
        put(&mut mad[DATA..], attribute);
        mad
    }

    fn ports() -> [PortCounts; 2] {
        let crossed = |packets, multicast, bytes| Crossed { packets, multicast, bytes };
        let one = PortCounts { sent: crossed(3, 1, 300), relay_errors: 5, ..PortCounts::default() };
        [one, PortCounts { sent: crossed(70, 0, 1 << 40), receive_constraint_errors: 300, ..one }]
    }

    fn classic(agent: &mut PerformanceAgent, method: u8, requested: &PortCounters) -> PortCounters {
        let mut mad = mad(method, attribute::PORT_COUNTERS, requested);
        assert!(agent.answer(&mut mad, &ports()));
        assert_eq!((MadHeader::of(&mad).method(), MadHeader::of(&mad).status()), (0x81, status::OK));
        read(&mad[DATA..]).expect("an attribute")
    }

    /// Requirement: IBTA v1.4 §16.1.3.5: a counter stops at its maximum, and data is counted in words of 4 bytes.
    #[test]
    fn counters_of_a_port_are_shown_and_stop_at_their_largest_value() {
        let mut agent = PerformanceAgent::default();
        let mut requested = PortCounters::new();
        let first = classic(&mut agent, 1, requested.set_port_select(1));
        assert_eq!((first.port_xmit_pkts(), first.port_xmit_data()), (3, 75));
        let second = classic(&mut agent, 1, requested.set_port_select(2));
        assert_eq!((second.port_xmit_data(), second.port_rcv_constraint_errors()), (u32::MAX, 255));
    }

    /// Requirement: IBTA v1.4 §16.1.3.5: a Set writes the selected counters, with `PortSelect` 0xff those of all ports.
    #[test]
    fn counters_that_are_selected_are_set_and_others_are_not() {
        let mut agent = PerformanceAgent::default();
        let mut requested = PortCounters::new();
        requested.set_port_select(1).set_counter_select(1 << 5).set_port_rcv_switch_relay_errors(2);
        let one = classic(&mut agent, 2, &requested);
        assert_eq!((one.port_rcv_switch_relay_errors(), one.port_xmit_pkts()), (2, 3));
        let mut all = PortCounters::new();
        let all = classic(&mut agent, 1, all.set_port_select(ALL_PORTS));
        assert_eq!((all.port_rcv_switch_relay_errors(), all.port_xmit_pkts()), (2 + 5, 3 + 70));
        requested.set_port_select(ALL_PORTS).set_port_rcv_switch_relay_errors(0);
        assert_eq!(classic(&mut agent, 2, &requested).port_rcv_switch_relay_errors(), 0);
    }

    /// Requirement: IBTA v1.4 §13.4.7: a port that the node does not have, and an attribute, method or version that the
    /// agent does not know, are refused; packets that are no requests get no response.
    #[test]
    fn unknown_attributes_methods_and_ports_are_refused() {
        let mut agent = PerformanceAgent::default();
        let mut refused = |method, number, select: u8, version| {
            let mut requested = PortCounters::new();
            let mut mad = mad(method, number, requested.set_port_select(select));
            let mut header = MadHeader::of(&mad);
            header.set_class_version(version).write_to(&mut mad);
            agent.answer(&mut mad, &ports()).then(|| MadHeader::of(&mad).status())
        };
        let counters = attribute::PORT_COUNTERS;
        assert_eq!(refused(1, counters, 3, 1), Some(status::INVALID));
        assert_eq!(refused(1, counters, 0, 1), Some(status::INVALID));
        assert_eq!(refused(2, counters, 3, 1), Some(status::INVALID));
        assert_eq!(refused(1, 0x7777, 1, 1), Some(status::UNSUPPORTED));
        assert_eq!(refused(1, counters, 1, 2), Some(status::BAD_VERSION));
        assert_eq!(refused(0x81, counters, 1, 1), None);
    }
}

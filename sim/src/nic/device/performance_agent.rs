//! The performance agent of an InfiniBand port (IBTA v1.4 §16.1): counters of the port for whoever asks queue pair 1, or by command.
//!
//! **What it may not do.** It counts nothing itself: it shows what the device has counted since a counter was last set. PortCounters and
//! PortCountersExtended are set apart from each other, and from what other commands show.

use super::Nic;
use crate::nic::firmware_state::{CLASSIC, EXTENDED};
use crate::wire::infiniband::VCRC;
use crate::wire::management::attributes::{ClassPortInfo, PortCounters, PortCountersExtended};
use crate::wire::management::{CLASS_VERSION, MadHeader, Method, SIZE, attribute, status};
use bareverbs_prm::field::Layout;
use zerocopy::{FromBytes, IntoBytes};

/// Where the attribute of this class begins (IBTA v1.4 §16.1.1).
const DATA: usize = 64;
/// The port that an adapter of one port has, and all of them.
const PORT: u8 = 1;
const ALL_PORTS: u8 = 0xff;
/// `CapabilityMask`: `PortSelect` may name all ports; counters of 64 bits; PortXmitWait (IBTA v1.4 §16.1.3.1).
const CAPABILITIES: u16 = 1 << 8 | 1 << 9 | 1 << 12;
/// Width in bits of the counters of PortCounters, in the order of `CounterSelect` and then `CounterSelect2`.
const WIDTHS: [u32; CLASSIC] = [16, 8, 8, 16, 16, 16, 16, 8, 8, 4, 4, 16, 32, 32, 32, 32, 32];

impl Nic {
    /// Answers a datagram of performance management in place; false if it has no answer.
    pub(in crate::nic) fn answer_performance(&mut self, mad: &mut [u8; SIZE]) -> bool {
        let mut header = MadHeader::of(mad);
        let method = Method::from_raw(header.method());
        if !method.has_answer() {
            return false;
        }
        let done = match (header.class_version(), method) {
            (CLASS_VERSION, Method::Get) => self.show_counters(header.attribute(), &mut mad[DATA..]),
            (CLASS_VERSION, Method::Set) => self
                .set_counters(header.attribute(), &mad[DATA..])
                .and_then(|()| self.show_counters(header.attribute(), &mut mad[DATA..])),
            (CLASS_VERSION, _) => Err(status::BAD_METHOD),
            _ => Err(status::BAD_VERSION),
        };
        header.set_method(method.answered()).set_status(done.err().unwrap_or(status::OK));
        header.write_to(mad);
        true
    }

    fn show_counters(&self, number: u16, data: &mut [u8]) -> Result<(), u16> {
        match number {
            attribute::CLASS_PORT_INFO => {
                let mut info = ClassPortInfo::new();
                info.set_base_version(1).set_class_version(CLASS_VERSION).set_capability_mask(CAPABILITIES);
                put(data, &info);
            }
            attribute::PORT_COUNTERS => {
                let select = select::<PortCounters>(data)?.port_select();
                put(data, check_port(select).map(|()| self.port_counters(select))?.as_bytes());
            }
            attribute::PORT_COUNTERS_EXTENDED => {
                let select = select::<PortCountersExtended>(data)?.port_select();
                put(data, check_port(select).map(|()| self.extended_counters(select))?.as_bytes());
            }
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(())
    }

    /// Gives the counters that are selected the values in the attribute.
    fn set_counters(&mut self, number: u16, data: &[u8]) -> Result<(), u16> {
        match number {
            attribute::PORT_COUNTERS => {
                let wish = select::<PortCounters>(data)?;
                check_port(wish.port_select())?;
                let chosen = u32::from(wish.counter_select()) | u32::from(wish.counter_select2()) << 16;
                let counted = self.count_classic();
                set(&mut self.performance.classic, chosen, &counted, &classic_values(&wish));
            }
            attribute::PORT_COUNTERS_EXTENDED => {
                let wish = select::<PortCountersExtended>(data)?;
                check_port(wish.port_select())?;
                let counted = self.count_extended();
                let values = extended_values(&wish);
                set(&mut self.performance.extended, wish.counter_select().into(), &counted, &values);
            }
            _ => return Err(status::UNSUPPORTED),
        }
        Ok(())
    }

    /// They stop at their largest value.
    fn port_counters(&self, select: u8) -> PortCounters {
        let counted = self.count_classic();
        let shown: [u32; CLASSIC] = core::array::from_fn(|index| {
            let since = counted[index].wrapping_sub(self.performance.classic[index]);
            u32::try_from(since).unwrap_or(u32::MAX).min(u32::MAX >> (32 - WIDTHS[index]))
        });
        let mut counters = PortCounters::new();
        counters.set_port_select(select);
        counters.set_link_downed_counter(shown[2] as u8).set_port_rcv_errors(shown[3] as u16);
        counters.set_port_xmit_discards(shown[6] as u16).set_vl15_dropped(shown[11] as u16);
        counters.set_port_xmit_data(shown[12]).set_port_rcv_data(shown[13]);
        counters.set_port_xmit_pkts(shown[14]).set_port_rcv_pkts(shown[15]);
        // Nothing else goes wrong here. What was set shows all the same.
        counters.set_symbol_error_counter(shown[0] as u16).set_link_error_recovery_counter(shown[1] as u8);
        counters.set_port_rcv_remote_physical_errors(shown[4] as u16);
        counters.set_port_rcv_switch_relay_errors(shown[5] as u16);
        counters.set_port_xmit_constraint_errors(shown[7] as u8);
        counters.set_port_rcv_constraint_errors(shown[8] as u8);
        counters.set_local_link_integrity_errors(shown[9] as u8);
        counters.set_excessive_buffer_overrun_errors(shown[10] as u8).set_port_xmit_wait(shown[16]);
        counters
    }

    fn extended_counters(&self, select: u8) -> PortCountersExtended {
        let counted = self.count_extended();
        let since = |index: usize| counted[index].wrapping_sub(self.performance.extended[index]);
        let mut counters = PortCountersExtended::new();
        counters.set_port_select(select);
        counters.set_port_xmit_data(since(0)).set_port_rcv_data(since(1));
        counters.set_port_xmit_pkts(since(2)).set_port_rcv_pkts(since(3));
        counters.set_port_unicast_xmit_pkts(since(4)).set_port_unicast_rcv_pkts(since(5));
        counters.set_port_multicast_xmit_pkts(since(6)).set_port_multicast_rcv_pkts(since(7));
        counters
    }

    /// All counters of PortCounters, in the order of [`WIDTHS`].
    fn count_classic(&self) -> [u64; CLASSIC] {
        let (counters, [sent_words, received_words, sent, received, ..]) =
            (&self.counters, self.count_extended());
        let mut all = [0; CLASSIC];
        all[2] = self.times_down;
        all[3] = counters.frames_malformed + counters.frames_bad_icrc;
        all[6] = counters.frames_without_path;
        all[11] = counters.management_dropped;
        (all[12], all[13], all[14], all[15]) = (sent_words, received_words, sent, received);
        all
    }

    /// All counters of PortCountersExtended. Data is counted in words of 4 bytes, without the variant CRC (IBTA v1.4 §16.1.3.5).
    fn count_extended(&self) -> [u64; EXTENDED] {
        let counters = &self.counters;
        let sent = counters.frames_sent + counters.frames_looped_back;
        let bytes = counters.bytes_sent + counters.bytes_looped_back;
        let words = |bytes: u64, packets: u64| bytes.saturating_sub(packets * VCRC as u64) / 4;
        let (received, traffic) = (counters.frames_received, &self.ethernet.traffic);
        let groups = [traffic.sent_groups.packets, traffic.received_groups.packets];
        let [to_one, from_one] = [sent.saturating_sub(groups[0]), received.saturating_sub(groups[1])];
        let data = [words(bytes, sent), words(counters.bytes_received, received)];
        [data[0], data[1], sent, received, to_one, from_one, groups[0], groups[1]]
    }
}

/// The values that a Set has for the counters, in the order of [`WIDTHS`].
fn classic_values(wish: &PortCounters) -> [u64; CLASSIC] {
    [
        wish.symbol_error_counter().into(),
        wish.link_error_recovery_counter().into(),
        wish.link_downed_counter().into(),
        wish.port_rcv_errors().into(),
        wish.port_rcv_remote_physical_errors().into(),
        wish.port_rcv_switch_relay_errors().into(),
        wish.port_xmit_discards().into(),
        wish.port_xmit_constraint_errors().into(),
        wish.port_rcv_constraint_errors().into(),
        wish.local_link_integrity_errors().into(),
        wish.excessive_buffer_overrun_errors().into(),
        wish.vl15_dropped().into(),
        wish.port_xmit_data().into(),
        wish.port_rcv_data().into(),
        wish.port_xmit_pkts().into(),
        wish.port_rcv_pkts().into(),
        wish.port_xmit_wait().into(),
    ]
}

fn extended_values(wish: &PortCountersExtended) -> [u64; EXTENDED] {
    [
        wish.port_xmit_data(),
        wish.port_rcv_data(),
        wish.port_xmit_pkts(),
        wish.port_rcv_pkts(),
        wish.port_unicast_xmit_pkts(),
        wish.port_unicast_rcv_pkts(),
        wish.port_multicast_xmit_pkts(),
        wish.port_multicast_rcv_pkts(),
    ]
}

fn set(ahead: &mut [u64], chosen: u32, counted: &[u64], values: &[u64]) {
    for (index, ahead) in ahead.iter_mut().enumerate() {
        if chosen >> index & 1 != 0 {
            *ahead = counted[index].wrapping_sub(values[index]);
        }
    }
}

fn check_port(select: u8) -> Result<(), u16> {
    if matches!(select, PORT | ALL_PORTS) { Ok(()) } else { Err(status::INVALID) }
}

fn select<T: FromBytes + Layout>(data: &[u8]) -> Result<T, u16> {
    T::read_from_prefix(data).map(|(attribute, _)| attribute).map_err(|_| status::INVALID)
}

/// Writes an attribute; what is behind it in the datagram is zero.
fn put(data: &mut [u8], attribute: &(impl IntoBytes + zerocopy::Immutable + ?Sized)) {
    let bytes = attribute.as_bytes();
    data.fill(0);
    data[..bytes.len()].copy_from_slice(bytes);
}

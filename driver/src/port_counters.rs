//! Counters of the port, read from register PPCNT one group at a time.
//!
//! They count all traffic of the port; a [`CounterSet`](crate::CounterSet) counts that of chosen queue pairs. A device
//! that shares its port with other functions may refuse to clear them.

use crate::command::CommandError;
use crate::device::Device;
use crate::hal::Hal;
use bareverbs_prm::command::ethernet_port::PpcntRegister;
use bareverbs_prm::command::port_counters::{EthernetCounterSet, InfiniBandCounterSet};
use bareverbs_prm::numbering::{PortCounterGroup, PortType, RegisterId};
use core::fmt;
use zerocopy::FromBytes;

/// Priorities of IEEE 802.1Q.
const PRIORITIES: u8 = 8;
/// Bytes of a counter set.
const COUNTER_SET: usize = 248;

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident: $number:ty { $($(#[$doc:meta])* $counter:ident;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$doc])* pub $counter: $number,)*
        }

        impl $name {
            /// The counters with their names, in PRM order.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, $number)> {
                [$((stringify!($counter), self.$counter),)*].into_iter()
            }
        }
    };
}

counters! {
    /// All traffic of an Ethernet port, RDMA included, under the names of IEEE 802.3.
    EthernetCounters: u64 {
        /// Frames sent.
        a_frames_transmitted_ok;
        /// Frames received.
        a_frames_received_ok;
        /// Frames received with a wrong frame check sequence.
        a_frame_check_sequence_errors;
        /// Frames received whose length is not a whole number of bytes.
        a_alignment_errors;
        /// Bytes sent.
        a_octets_transmitted_ok;
        /// Bytes received.
        a_octets_received_ok;
        /// Multicast frames sent.
        a_multicast_frames_xmitted_ok;
        /// Broadcast frames sent.
        a_broadcast_frames_xmitted_ok;
        /// Multicast frames received.
        a_multicast_frames_received_ok;
        /// Broadcast frames received.
        a_broadcast_frames_received_ok;
        /// Frames received whose length field differs from their length.
        a_in_range_length_errors;
        /// Frames received whose length field is out of range.
        a_out_of_range_length_field;
        /// Frames received that were too long.
        a_frame_too_long_errors;
        /// Symbol errors while the link was up.
        a_symbol_error_during_carrier;
        /// Control frames sent.
        a_mac_control_frames_transmitted;
        /// Control frames received.
        a_mac_control_frames_received;
        /// Control frames received with an unknown operation.
        a_unsupported_opcodes_received;
        /// Pause frames received.
        a_pause_mac_ctrl_frames_received;
        /// Pause frames sent.
        a_pause_mac_ctrl_frames_transmitted;
    }
}

counters! {
    /// Traffic of an Ethernet port with one priority: the priority of the 802.1Q tag, or, without a tag, the default priority of
    /// the port, which is 0 unless configured.
    PriorityCounters: u64 {
        /// Bytes received.
        rx_octets;
        /// Frames received.
        rx_frames;
        /// Bytes sent.
        tx_octets;
        /// Frames sent.
        tx_frames;
        /// Pause frames received.
        rx_pause;
        /// Microseconds during which received pause frames stopped sending.
        rx_pause_duration;
        /// Pause frames sent.
        tx_pause;
        /// Microseconds during which sent pause frames stopped the peer.
        tx_pause_duration;
        /// Transitions from sending to paused.
        rx_pause_transition;
        /// Frames received and dropped because no buffer was free.
        rx_discards;
    }
}

counters! {
    /// Error counters of an InfiniBand port (IBTA v1.4 chapter 16, performance management, PortCounters). Each stops at the
    /// largest value of the width given here.
    InfiniBandCounters: u32 {
        /// Symbol errors. 16 bits.
        symbol_error_counter;
        /// Times that the link recovered from errors. 8 bits.
        link_error_recovery_counter;
        /// Times that the link went down. 8 bits.
        link_downed_counter;
        /// Packets received with an error. 16 bits.
        port_rcv_errors;
        /// Packets received with the end-of-bad-packet delimiter. 16 bits.
        port_rcv_remote_physical_errors;
        /// Packets that a switch could not forward. 16 bits.
        port_rcv_switch_relay_errors;
        /// Packets that could not be sent and were discarded. 16 bits.
        port_xmit_discards;
        /// Packets not sent because of a constraint of the port (partition or raw filter). 8 bits.
        port_xmit_constraint_errors;
        /// Packets discarded on receipt because of a constraint of the port (partition or raw filter). 8 bits.
        port_rcv_constraint_errors;
        /// Excessive buffer overruns. 8 bits.
        link_overrun_errors;
        /// Subnet management packets (VL 15) dropped because no buffer was free. 16 bits.
        vl_15_dropped;
        /// Ticks during which the port had data to send and could not. 32 bits.
        port_xmit_wait;
    }
}

/// Why the counters of the port could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortCounterError {
    /// Ports with this link layer have no such counters. No command was sent.
    LinkLayer {
        /// The counter group.
        group: PortCounterGroup,
        /// The link layer of the port.
        port: PortType,
    },
    /// The priority is above 7. No command was sent.
    Priority {
        /// The requested priority.
        asked: u8,
    },
    /// The device refused.
    Command(CommandError),
}

impl<H: Hal> Device<H> {
    /// Reads the IEEE 802.3 counters of an Ethernet port. `clear` sets them to zero; no count between the two is lost.
    #[doc(alias = "PPCNT")]
    #[doc(alias = "ethtool -S")]
    pub fn ethernet_counters(&self, clear: bool) -> Result<EthernetCounters, PortCounterError> {
        let set = self.counter_set(PortCounterGroup::Ieee8023, 0, clear)?;
        Ok(EthernetCounters::read(&EthernetCounterSet::read_from_bytes(&set).unwrap_or_default()))
    }

    /// Reads the counters of one priority, 0 to 7, of an Ethernet port. `clear` sets those of this priority to zero.
    pub fn priority_counters(&self, priority: u8, clear: bool) -> Result<PriorityCounters, PortCounterError> {
        if priority >= PRIORITIES {
            return Err(PortCounterError::Priority { asked: priority });
        }
        let set = self.counter_set(PortCounterGroup::PerPriority, priority, clear)?;
        Ok(PriorityCounters::read(&set))
    }

    /// Reads the error counters of an InfiniBand port. `clear` sets them to zero.
    #[doc(alias = "PortCounters")]
    pub fn infiniband_counters(&self, clear: bool) -> Result<InfiniBandCounters, PortCounterError> {
        let set = self.counter_set(PortCounterGroup::InfiniBandPort, 0, clear)?;
        let set =
            InfiniBandCounterSet::read_from_prefix(&set).map_or_else(|_| Default::default(), |(set, _)| set);
        Ok(InfiniBandCounters::read(&set))
    }

    fn counter_set(
        &self,
        group: PortCounterGroup,
        priority: u8,
        clear: bool,
    ) -> Result<[u8; COUNTER_SET], PortCounterError> {
        let (wanted, port) = (link_layer(group), self.capabilities().port_type);
        if port != wanted {
            return Err(PortCounterError::LinkLayer { group, port });
        }
        let mut register = PpcntRegister::new();
        register.set_local_port(1).set_grp(group).set_prio_tc(priority).set_clr(clear);
        Ok(self.register(RegisterId::Ppcnt, &register)?.counter_set())
    }
}

const fn link_layer(group: PortCounterGroup) -> PortType {
    match group {
        PortCounterGroup::InfiniBandPort | PortCounterGroup::InfiniBandExtendedPort => PortType::Ib,
        _ => PortType::Ethernet,
    }
}

const fn joined(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

impl EthernetCounters {
    fn read(set: &EthernetCounterSet) -> Self {
        Self {
            a_frames_transmitted_ok: joined(
                set.a_frames_transmitted_ok_high(),
                set.a_frames_transmitted_ok_low(),
            ),
            a_frames_received_ok: joined(set.a_frames_received_ok_high(), set.a_frames_received_ok_low()),
            a_frame_check_sequence_errors: joined(
                set.a_frame_check_sequence_errors_high(),
                set.a_frame_check_sequence_errors_low(),
            ),
            a_alignment_errors: joined(set.a_alignment_errors_high(), set.a_alignment_errors_low()),
            a_octets_transmitted_ok: joined(
                set.a_octets_transmitted_ok_high(),
                set.a_octets_transmitted_ok_low(),
            ),
            a_octets_received_ok: joined(set.a_octets_received_ok_high(), set.a_octets_received_ok_low()),
            a_multicast_frames_xmitted_ok: joined(
                set.a_multicast_frames_xmitted_ok_high(),
                set.a_multicast_frames_xmitted_ok_low(),
            ),
            a_broadcast_frames_xmitted_ok: joined(
                set.a_broadcast_frames_xmitted_ok_high(),
                set.a_broadcast_frames_xmitted_ok_low(),
            ),
            a_multicast_frames_received_ok: joined(
                set.a_multicast_frames_received_ok_high(),
                set.a_multicast_frames_received_ok_low(),
            ),
            a_broadcast_frames_received_ok: joined(
                set.a_broadcast_frames_received_ok_high(),
                set.a_broadcast_frames_received_ok_low(),
            ),
            a_in_range_length_errors: joined(
                set.a_in_range_length_errors_high(),
                set.a_in_range_length_errors_low(),
            ),
            a_out_of_range_length_field: joined(
                set.a_out_of_range_length_field_high(),
                set.a_out_of_range_length_field_low(),
            ),
            a_frame_too_long_errors: joined(
                set.a_frame_too_long_errors_high(),
                set.a_frame_too_long_errors_low(),
            ),
            a_symbol_error_during_carrier: joined(
                set.a_symbol_error_during_carrier_high(),
                set.a_symbol_error_during_carrier_low(),
            ),
            a_mac_control_frames_transmitted: joined(
                set.a_mac_control_frames_transmitted_high(),
                set.a_mac_control_frames_transmitted_low(),
            ),
            a_mac_control_frames_received: joined(
                set.a_mac_control_frames_received_high(),
                set.a_mac_control_frames_received_low(),
            ),
            a_unsupported_opcodes_received: joined(
                set.a_unsupported_opcodes_received_high(),
                set.a_unsupported_opcodes_received_low(),
            ),
            a_pause_mac_ctrl_frames_received: joined(
                set.a_pause_mac_ctrl_frames_received_high(),
                set.a_pause_mac_ctrl_frames_received_low(),
            ),
            a_pause_mac_ctrl_frames_transmitted: joined(
                set.a_pause_mac_ctrl_frames_transmitted_high(),
                set.a_pause_mac_ctrl_frames_transmitted_low(),
            ),
        }
    }
}

impl PriorityCounters {
    /// Reads 64-bit counters at their positions in the set (`eth_per_prio_grp_data_layout`).
    fn read(set: &[u8; COUNTER_SET]) -> Self {
        let counters = |index: usize| set.get(index * 8..)?.first_chunk::<8>();
        let at = |index: usize| counters(index).map_or(0, |bytes| u64::from_be_bytes(*bytes));
        Self {
            rx_octets: at(0),
            rx_frames: at(4),
            tx_octets: at(5),
            tx_frames: at(9),
            rx_pause: at(10),
            rx_pause_duration: at(11),
            tx_pause: at(12),
            tx_pause_duration: at(13),
            rx_pause_transition: at(14),
            rx_discards: at(15),
        }
    }
}

impl InfiniBandCounters {
    fn read(set: &InfiniBandCounterSet) -> Self {
        Self {
            symbol_error_counter: set.symbol_error_counter().into(),
            link_error_recovery_counter: set.link_error_recovery_counter().into(),
            link_downed_counter: set.link_downed_counter().into(),
            port_rcv_errors: set.port_rcv_errors().into(),
            port_rcv_remote_physical_errors: set.port_rcv_remote_physical_errors().into(),
            port_rcv_switch_relay_errors: set.port_rcv_switch_relay_errors().into(),
            port_xmit_discards: set.port_xmit_discards().into(),
            port_xmit_constraint_errors: set.port_xmit_constraint_errors().into(),
            port_rcv_constraint_errors: set.port_rcv_constraint_errors().into(),
            link_overrun_errors: set.link_overrun_errors().into(),
            vl_15_dropped: set.vl_15_dropped().into(),
            port_xmit_wait: set.port_xmit_wait(),
        }
    }
}

impl From<CommandError> for PortCounterError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl fmt::Display for PortCounterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LinkLayer { group, port } => write!(
                f,
                "cannot read the counters {group}: only ports of link layer {} have them, and this port is {port}",
                link_layer(group)
            ),
            Self::Priority { asked } => {
                write!(f, "cannot read the counters of priority {asked}: priorities are 0 to 7")
            }
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for PortCounterError {}

//! Counters of the port: register PPCNT, a group at a time.
//!
//! They count everything that passes the port, whoever sent it; what single queue pairs count is in
//! [`CounterSet`](crate::CounterSet). A device that shares its port with others may refuse to clear them.

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
            /// The counters with their names, in the order of the PRM.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, $number)> {
                [$((stringify!($counter), self.$counter),)*].into_iter()
            }
        }
    };
}

counters! {
    /// What passed an Ethernet port, under the names of IEEE 802.3. RDMA is among it.
    EthernetCounters: u64 {
        /// Frames sent.
        a_frames_transmitted_ok;
        /// Frames received.
        a_frames_received_ok;
        /// Frames received with a wrong frame check sequence.
        a_frame_check_sequence_errors;
        /// Frames received that are no whole number of bytes.
        a_alignment_errors;
        /// Bytes sent.
        a_octets_transmitted_ok;
        /// Bytes received.
        a_octets_received_ok;
        /// Frames sent to groups.
        a_multicast_frames_xmitted_ok;
        /// Frames sent to everybody.
        a_broadcast_frames_xmitted_ok;
        /// Frames received for groups.
        a_multicast_frames_received_ok;
        /// Frames received for everybody.
        a_broadcast_frames_received_ok;
        /// Frames received whose length field is not their length.
        a_in_range_length_errors;
        /// Frames received whose length field is no length that a frame may have.
        a_out_of_range_length_field;
        /// Frames received that were too long.
        a_frame_too_long_errors;
        /// Errors of symbols while there was a link.
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
    /// What passed an Ethernet port with one priority: that of the 802.1Q tag; frames without one have the priority that the
    /// port gives them, 0 unless told otherwise.
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
        /// Microseconds for which pause frames stopped sending.
        rx_pause_duration;
        /// Pause frames sent.
        tx_pause;
        /// Microseconds for which pause frames stopped the peer.
        tx_pause_duration;
        /// Times that sending stopped.
        rx_pause_transition;
        /// Frames received that found no buffer.
        rx_discards;
    }
}

counters! {
    /// What went wrong at an InfiniBand port (IBTA v1.4 chapter 16, performance management, PortCounters). They stop at their largest
    /// value, which is that of the bits given here.
    InfiniBandCounters: u32 {
        /// Errors of symbols. 16 bits.
        symbol_error_counter;
        /// Times that the link recovered from errors. 8 bits.
        link_error_recovery_counter;
        /// Times that the link went down. 8 bits.
        link_downed_counter;
        /// Packets received that were broken. 16 bits.
        port_rcv_errors;
        /// Packets received that somebody had marked as broken. 16 bits.
        port_rcv_remote_physical_errors;
        /// Packets that a switch could not forward. 16 bits.
        port_rcv_switch_relay_errors;
        /// Packets that could not be sent and were discarded. 16 bits.
        port_xmit_discards;
        /// Packets that the port may not send. 8 bits.
        port_xmit_constraint_errors;
        /// Packets that the port may not receive. 8 bits.
        port_rcv_constraint_errors;
        /// Overruns of buffers. 8 bits.
        link_overrun_errors;
        /// Packets of subnet management that found no room. 16 bits.
        vl_15_dropped;
        /// Ticks that the port had something to send and could not. 32 bits.
        port_xmit_wait;
    }
}

/// Why counters of the port could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortCounterError {
    /// Ports of this link layer have no such counters. Nothing was sent.
    LinkLayer {
        /// The counters.
        group: PortCounterGroup,
        /// The link layer of the port.
        port: PortType,
    },
    /// There is no such priority. Nothing was sent.
    Priority {
        /// Asked for.
        asked: u8,
    },
    /// The device refused.
    Command(CommandError),
}

impl<H: Hal> Device<H> {
    /// The IEEE 802.3 counters of an Ethernet port; with `clear` they begin again from zero, and nothing is lost in between.
    #[doc(alias = "PPCNT")]
    #[doc(alias = "ethtool -S")]
    pub fn ethernet_counters(&self, clear: bool) -> Result<EthernetCounters, PortCounterError> {
        let set = self.counter_set(PortCounterGroup::Ieee8023, 0, clear)?;
        Ok(EthernetCounters::read(&EthernetCounterSet::read_from_bytes(&set).unwrap_or_default()))
    }

    /// The counters of one priority, 0 to 7, of an Ethernet port; `clear` as above, for this priority.
    pub fn priority_counters(&self, priority: u8, clear: bool) -> Result<PriorityCounters, PortCounterError> {
        if priority >= PRIORITIES {
            return Err(PortCounterError::Priority { asked: priority });
        }
        let set = self.counter_set(PortCounterGroup::PerPriority, priority, clear)?;
        Ok(PriorityCounters::read(&set))
    }

    /// The error counters of an InfiniBand port; `clear` as above.
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
    /// Counters of 64 bits at their places in the set (`eth_per_prio_grp_data_layout`).
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
                "cannot read the counters {group}: ports of link layer {} have them, this one is {port}",
                link_layer(group)
            ),
            Self::Priority { asked } => {
                write!(f, "cannot read the counters of priority {asked}: there are 0 to 7")
            }
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for PortCounterError {}

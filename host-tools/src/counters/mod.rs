//! A device's counters under mlx5's names in Linux: port counters as in `ethtool -S`, queue pair counters as in
//! `/sys/class/infiniband/DEVICE/ports/1/hw_counters`; and what an increase of each means.
//!
//! - `table`: every named counter, what it counts and what it means.

mod table;

use bareverbs_core::Device;
use bareverbs_core::command::CommandError;
use bareverbs_core::counter_set::QueueCounters;
use bareverbs_core::hal::Hal;
use bareverbs_core::port_counters::PortCounterError;
use bareverbs_prm::numbering::PortType;
use std::collections::BTreeMap;

pub use table::{Abnormal, AbnormalKind, KNOWN, Known, known};

/// Counter values by name.
pub type Readings = BTreeMap<String, u64>;

/// Priorities of IEEE 802.1Q.
const PRIORITIES: u8 = 8;

/// Linux's names for the counters of IEEE 802.3; the driver uses the PRM's names.
const ETHERNET: &[(&str, &str)] = &[
    ("a_frames_transmitted_ok", "tx_packets_phy"),
    ("a_frames_received_ok", "rx_packets_phy"),
    ("a_frame_check_sequence_errors", "rx_crc_errors_phy"),
    ("a_alignment_errors", "rx_alignment_errors_phy"),
    ("a_octets_transmitted_ok", "tx_bytes_phy"),
    ("a_octets_received_ok", "rx_bytes_phy"),
    ("a_multicast_frames_xmitted_ok", "tx_multicast_phy"),
    ("a_broadcast_frames_xmitted_ok", "tx_broadcast_phy"),
    ("a_multicast_frames_received_ok", "rx_multicast_phy"),
    ("a_broadcast_frames_received_ok", "rx_broadcast_phy"),
    ("a_in_range_length_errors", "rx_in_range_len_errors_phy"),
    ("a_out_of_range_length_field", "rx_out_of_range_len_phy"),
    ("a_frame_too_long_errors", "rx_oversize_pkts_phy"),
    ("a_symbol_error_during_carrier", "rx_symbol_err_phy"),
    ("a_mac_control_frames_transmitted", "tx_mac_control_phy"),
    ("a_mac_control_frames_received", "rx_mac_control_phy"),
    ("a_unsupported_opcodes_received", "rx_unsupported_op_phy"),
    ("a_pause_mac_ctrl_frames_received", "rx_pause_ctrl_phy"),
    ("a_pause_mac_ctrl_frames_transmitted", "tx_pause_ctrl_phy"),
];

/// Linux's names for the counters of an InfiniBand port in sysfs (`ports/1/counters`).
const INFINIBAND: &[(&str, &str)] = &[
    ("symbol_error_counter", "symbol_error"),
    ("link_error_recovery_counter", "link_error_recovery"),
    ("link_downed_counter", "link_downed"),
    ("vl_15_dropped", "VL15_dropped"),
];

/// Linux's name for a counter, or the PRM's where Linux shows none.
fn linux_name(names: &[(&str, &str)], prm: &str) -> String {
    names.iter().find(|(own, _)| *own == prm).map_or(prm, |(_, linux)| linux).to_owned()
}

/// Reads all port and congestion control counters.
///
/// # Errors
/// A command failed. A device without congestion control simply lacks those counters.
pub fn port_counters<H: Hal>(device: &Device<H>) -> Result<Readings, CommandError> {
    let mut readings = Readings::new();
    if device.capabilities().port_type == PortType::Ethernet {
        let ethernet = device.ethernet_counters(false).map_err(command_error)?;
        readings.extend(ethernet.by_name().map(|(name, value)| (linux_name(ETHERNET, name), value)));
        for priority in 0..PRIORITIES {
            let counters = device.priority_counters(priority, false).map_err(command_error)?;
            readings.extend(counters.by_name().map(|(name, value)| (priority_name(priority, name), value)));
        }
        let congestion = device.congestion_counters(false)?;
        for (name, value) in [
            ("np_ecn_marked_roce_packets", congestion.np_ecn_marked_roce_packets),
            ("np_cnp_sent", congestion.np_cnp_sent),
            ("rp_cnp_handled", congestion.rp_cnp_handled),
            ("rp_cnp_ignored", congestion.rp_cnp_ignored),
        ] {
            readings.insert(name.to_owned(), value);
        }
    } else {
        let counters = device.infiniband_counters(false).map_err(command_error)?;
        readings.extend(counters.by_name().map(|(name, value)| (linux_name(INFINIBAND, name), value.into())));
    }
    Ok(readings)
}

/// Queue pair counters by name.
pub fn queue_counters(counters: &QueueCounters) -> Readings {
    counters.by_name().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// `rx_prio3_packets` from `rx_frames`.
fn priority_name(priority: u8, prm: &str) -> String {
    let (direction, rest) = prm.split_once('_').unwrap_or(("", prm));
    let rest = match rest {
        "octets" => "bytes",
        "frames" => "packets",
        other => other,
    };
    format!("{direction}_prio{priority}_{rest}")
}

/// The other errors are mistakes of the caller, which always asks for the counters of the port's link layer.
fn command_error(error: PortCounterError) -> CommandError {
    match error {
        PortCounterError::Command(error) => error,
        other => {
            unreachable!("the group belongs to the port's link layer and the priority is below 8: {other}")
        }
    }
}

#[cfg(test)]
mod tests;

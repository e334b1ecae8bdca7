//! Counter sets of register PPCNT, by group: what its `counter_set` holds.

use crate::layout;

layout! {
    /// Counters of IEEE 802.3, 64 bits each.
    pub struct EthernetCounterSet, "eth_802_3_cntrs_grp_data_layout", 62;
    bits a_frames_transmitted_ok_high / set_a_frames_transmitted_ok_high: u32 = 0[31:0], "a_frames_transmitted_ok_high";
    bits a_frames_transmitted_ok_low / set_a_frames_transmitted_ok_low: u32 = 1[31:0], "a_frames_transmitted_ok_low";
    bits a_frames_received_ok_high / set_a_frames_received_ok_high: u32 = 2[31:0], "a_frames_received_ok_high";
    bits a_frames_received_ok_low / set_a_frames_received_ok_low: u32 = 3[31:0], "a_frames_received_ok_low";
    bits a_frame_check_sequence_errors_high / set_a_frame_check_sequence_errors_high: u32 = 4[31:0], "a_frame_check_sequence_errors_high";
    bits a_frame_check_sequence_errors_low / set_a_frame_check_sequence_errors_low: u32 = 5[31:0], "a_frame_check_sequence_errors_low";
    bits a_alignment_errors_high / set_a_alignment_errors_high: u32 = 6[31:0], "a_alignment_errors_high";
    bits a_alignment_errors_low / set_a_alignment_errors_low: u32 = 7[31:0], "a_alignment_errors_low";
    bits a_octets_transmitted_ok_high / set_a_octets_transmitted_ok_high: u32 = 8[31:0], "a_octets_transmitted_ok_high";
    bits a_octets_transmitted_ok_low / set_a_octets_transmitted_ok_low: u32 = 9[31:0], "a_octets_transmitted_ok_low";
    bits a_octets_received_ok_high / set_a_octets_received_ok_high: u32 = 10[31:0], "a_octets_received_ok_high";
    bits a_octets_received_ok_low / set_a_octets_received_ok_low: u32 = 11[31:0], "a_octets_received_ok_low";
    bits a_multicast_frames_xmitted_ok_high / set_a_multicast_frames_xmitted_ok_high: u32 = 12[31:0], "a_multicast_frames_xmitted_ok_high";
    bits a_multicast_frames_xmitted_ok_low / set_a_multicast_frames_xmitted_ok_low: u32 = 13[31:0], "a_multicast_frames_xmitted_ok_low";
    bits a_broadcast_frames_xmitted_ok_high / set_a_broadcast_frames_xmitted_ok_high: u32 = 14[31:0], "a_broadcast_frames_xmitted_ok_high";
    bits a_broadcast_frames_xmitted_ok_low / set_a_broadcast_frames_xmitted_ok_low: u32 = 15[31:0], "a_broadcast_frames_xmitted_ok_low";
    bits a_multicast_frames_received_ok_high / set_a_multicast_frames_received_ok_high: u32 = 16[31:0], "a_multicast_frames_received_ok_high";
    bits a_multicast_frames_received_ok_low / set_a_multicast_frames_received_ok_low: u32 = 17[31:0], "a_multicast_frames_received_ok_low";
    bits a_broadcast_frames_received_ok_high / set_a_broadcast_frames_received_ok_high: u32 = 18[31:0], "a_broadcast_frames_received_ok_high";
    bits a_broadcast_frames_received_ok_low / set_a_broadcast_frames_received_ok_low: u32 = 19[31:0], "a_broadcast_frames_received_ok_low";
    bits a_in_range_length_errors_high / set_a_in_range_length_errors_high: u32 = 20[31:0], "a_in_range_length_errors_high";
    bits a_in_range_length_errors_low / set_a_in_range_length_errors_low: u32 = 21[31:0], "a_in_range_length_errors_low";
    bits a_out_of_range_length_field_high / set_a_out_of_range_length_field_high: u32 = 22[31:0], "a_out_of_range_length_field_high";
    bits a_out_of_range_length_field_low / set_a_out_of_range_length_field_low: u32 = 23[31:0], "a_out_of_range_length_field_low";
    bits a_frame_too_long_errors_high / set_a_frame_too_long_errors_high: u32 = 24[31:0], "a_frame_too_long_errors_high";
    bits a_frame_too_long_errors_low / set_a_frame_too_long_errors_low: u32 = 25[31:0], "a_frame_too_long_errors_low";
    bits a_symbol_error_during_carrier_high / set_a_symbol_error_during_carrier_high: u32 = 26[31:0], "a_symbol_error_during_carrier_high";
    bits a_symbol_error_during_carrier_low / set_a_symbol_error_during_carrier_low: u32 = 27[31:0], "a_symbol_error_during_carrier_low";
    bits a_mac_control_frames_transmitted_high / set_a_mac_control_frames_transmitted_high: u32 = 28[31:0], "a_mac_control_frames_transmitted_high";
    bits a_mac_control_frames_transmitted_low / set_a_mac_control_frames_transmitted_low: u32 = 29[31:0], "a_mac_control_frames_transmitted_low";
    bits a_mac_control_frames_received_high / set_a_mac_control_frames_received_high: u32 = 30[31:0], "a_mac_control_frames_received_high";
    bits a_mac_control_frames_received_low / set_a_mac_control_frames_received_low: u32 = 31[31:0], "a_mac_control_frames_received_low";
    bits a_unsupported_opcodes_received_high / set_a_unsupported_opcodes_received_high: u32 = 32[31:0], "a_unsupported_opcodes_received_high";
    bits a_unsupported_opcodes_received_low / set_a_unsupported_opcodes_received_low: u32 = 33[31:0], "a_unsupported_opcodes_received_low";
    bits a_pause_mac_ctrl_frames_received_high / set_a_pause_mac_ctrl_frames_received_high: u32 = 34[31:0], "a_pause_mac_ctrl_frames_received_high";
    bits a_pause_mac_ctrl_frames_received_low / set_a_pause_mac_ctrl_frames_received_low: u32 = 35[31:0], "a_pause_mac_ctrl_frames_received_low";
    bits a_pause_mac_ctrl_frames_transmitted_high / set_a_pause_mac_ctrl_frames_transmitted_high: u32 = 36[31:0], "a_pause_mac_ctrl_frames_transmitted_high";
    bits a_pause_mac_ctrl_frames_transmitted_low / set_a_pause_mac_ctrl_frames_transmitted_low: u32 = 37[31:0], "a_pause_mac_ctrl_frames_transmitted_low";
}

layout! {
    /// Counters of an InfiniBand port, as PortCounters of performance management has them: they stop at their largest value.
    pub struct InfiniBandCounterSet, "ib_port_cntrs_grp_data_layout", 10;
    bits symbol_error_counter / set_symbol_error_counter: u16 = 0[31:16], "symbol_error_counter";
    bits link_error_recovery_counter / set_link_error_recovery_counter: u8 = 0[15:8], "link_error_recovery_counter";
    bits link_downed_counter / set_link_downed_counter: u8 = 0[7:0], "link_downed_counter";
    bits port_rcv_errors / set_port_rcv_errors: u16 = 1[31:16], "port_rcv_errors";
    bits port_rcv_remote_physical_errors / set_port_rcv_remote_physical_errors: u16 = 1[15:0], "port_rcv_remote_physical_errors";
    bits port_rcv_switch_relay_errors / set_port_rcv_switch_relay_errors: u16 = 2[31:16], "port_rcv_switch_relay_errors";
    bits port_xmit_discards / set_port_xmit_discards: u16 = 2[15:0], "port_xmit_discards";
    bits port_xmit_constraint_errors / set_port_xmit_constraint_errors: u8 = 3[31:24], "port_xmit_constraint_errors";
    bits port_rcv_constraint_errors / set_port_rcv_constraint_errors: u8 = 3[23:16], "port_rcv_constraint_errors";
    bits link_overrun_errors / set_link_overrun_errors: u8 = 3[7:0], "link_overrun_errors";
    bits vl_15_dropped / set_vl_15_dropped: u16 = 4[15:0], "vl_15_dropped";
    bits port_xmit_wait / set_port_xmit_wait: u32 = 9[31:0], "port_xmit_wait";
}

//! Congestion: what notification and reaction points counted, and whether they are switched on.

use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of QUERY_CONG_STATISTICS.
    pub struct QueryCongStatisticsIn, "query_cong_statistics_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits clear / set_clear: bool = 2[31:31], "clear";
}

layout! {
    /// Output of QUERY_CONG_STATISTICS. Counters of 64 bits are two halves.
    pub struct QueryCongStatisticsOut, "query_cong_statistics_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits rp_cur_flows / set_rp_cur_flows: u32 = 4[31:0], "rp_cur_flows";
    bits sum_flows / set_sum_flows: u32 = 5[31:0], "sum_flows";
    bits rp_cnp_ignored_high / set_rp_cnp_ignored_high: u32 = 6[31:0], "rp_cnp_ignored_high";
    bits rp_cnp_ignored_low / set_rp_cnp_ignored_low: u32 = 7[31:0], "rp_cnp_ignored_low";
    bits rp_cnp_handled_high / set_rp_cnp_handled_high: u32 = 8[31:0], "rp_cnp_handled_high";
    bits rp_cnp_handled_low / set_rp_cnp_handled_low: u32 = 9[31:0], "rp_cnp_handled_low";
    bits time_stamp_high / set_time_stamp_high: u32 = 18[31:0], "time_stamp_high";
    bits time_stamp_low / set_time_stamp_low: u32 = 19[31:0], "time_stamp_low";
    bits accumulators_period / set_accumulators_period: u32 = 20[31:0], "accumulators_period";
    bits np_ecn_marked_roce_packets_high / set_np_ecn_marked_roce_packets_high: u32 = 21[31:0], "np_ecn_marked_roce_packets_high";
    bits np_ecn_marked_roce_packets_low / set_np_ecn_marked_roce_packets_low: u32 = 22[31:0], "np_ecn_marked_roce_packets_low";
    bits np_cnp_sent_high / set_np_cnp_sent_high: u32 = 23[31:0], "np_cnp_sent_high";
    bits np_cnp_sent_low / set_np_cnp_sent_low: u32 = 24[31:0], "np_cnp_sent_low";
}

layout! {
    /// Input of QUERY_CONG_STATUS.
    pub struct QueryCongStatusIn, "query_cong_status_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits priority / set_priority: u8 = 2[7:4], "priority";
    bits cong_protocol / set_cong_protocol: u8 = 2[3:0], "cong_protocol";
}

layout! {
    /// Output of QUERY_CONG_STATUS.
    pub struct QueryCongStatusOut, "query_cong_status_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits enable / set_enable: bool = 3[31:31], "enable";
    bits tag_enable / set_tag_enable: bool = 3[30:30], "tag_enable";
}

/// `cong_protocol` of the end that slows down: the reaction point of RoCE. Linux's driver for Ethernet has these numbers in a list of its own.
pub const REACTION_POINT: u8 = 1;
/// `cong_protocol` of the end that reports marked packets: the notification point of RoCE.
pub const NOTIFICATION_POINT: u8 = 2;

//! Flow steering: tables, groups, entries, counters.

use crate::ids::FlowTableId;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Flow table context.
    pub struct FlowTableContext, "flow_table_context", 10;
    bits reformat_en / set_reformat_en: bool = 0[31:31], "reformat_en";
    bits decap_en / set_decap_en: bool = 0[30:30], "decap_en";
    bits sw_owner / set_sw_owner: bool = 0[29:29], "sw_owner";
    bits termination_table / set_termination_table: bool = 0[28:28], "termination_table";
    bits table_miss_action / set_table_miss_action: u8 = 0[27:24], "table_miss_action";
    bits level / set_level: u8 = 0[23:16], "level";
    bits rtc_valid / set_rtc_valid: bool = 0[15:15], "rtc_valid";
    bits log_size / set_log_size: u8 = 0[7:0], "log_size";
    bits table_miss_id / set_table_miss_id: FlowTableId = 1[23:0], "table_miss_id";
    bits lag_master_next_table_id / set_lag_master_next_table_id: u32 = 2[23:0], "lag_master_next_table_id";
}

layout! {
    /// Input of CREATE_FLOW_TABLE.
    pub struct CreateFlowTableIn, "create_flow_table_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    part flow_table_context / flow_table_context_mut: FlowTableContext = 6, "flow_table_context";
}

layout! {
    /// Output of CREATE_FLOW_TABLE.
    pub struct CreateFlowTableOut, "create_flow_table_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits icm_address_63_40 / set_icm_address_63_40: u32 = 0[23:0], "icm_address_63_40";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits icm_address_39_32 / set_icm_address_39_32: u8 = 2[31:24], "icm_address_39_32";
    bits table_id / set_table_id: FlowTableId = 2[23:0], "table_id";
    bits icm_address_31_0 / set_icm_address_31_0: u32 = 3[31:0], "icm_address_31_0";
}

layout! {
    /// Input of MODIFY_FLOW_TABLE.
    pub struct ModifyFlowTableIn, "modify_flow_table_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits modify_field_select / set_modify_field_select: u16 = 3[15:0], "modify_field_select";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
    part flow_table_context / flow_table_context_mut: FlowTableContext = 6, "flow_table_context";
}

layout! {
    /// Output of MODIFY_FLOW_TABLE.
    pub struct ModifyFlowTableOut, "modify_flow_table_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DESTROY_FLOW_TABLE.
    pub struct DestroyFlowTableIn, "destroy_flow_table_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
}

layout! {
    /// Output of DESTROY_FLOW_TABLE.
    pub struct DestroyFlowTableOut, "destroy_flow_table_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_FLOW_TABLE.
    pub struct QueryFlowTableIn, "query_flow_table_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
}

layout! {
    /// Output of QUERY_FLOW_TABLE.
    pub struct QueryFlowTableOut, "query_flow_table_out", 16;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part flow_table_context / flow_table_context_mut: FlowTableContext = 6, "flow_table_context";
}

layout! {
    /// Input of SET_FLOW_TABLE_ROOT.
    pub struct SetFlowTableRootIn, "set_flow_table_root_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits table_of_other_vport / set_table_of_other_vport: bool = 4[16:16], "table_of_other_vport";
    bits table_vport_number / set_table_vport_number: u16 = 4[15:0], "table_vport_number";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
    bits underlay_qpn / set_underlay_qpn: u32 = 6[23:0], "underlay_qpn";
    bits table_eswitch_owner_vhca_id_valid / set_table_eswitch_owner_vhca_id_valid: bool = 7[31:31], "table_eswitch_owner_vhca_id_valid";
    bits table_eswitch_owner_vhca_id / set_table_eswitch_owner_vhca_id: u16 = 7[15:0], "table_eswitch_owner_vhca_id";
}

layout! {
    /// Output of SET_FLOW_TABLE_ROOT.
    pub struct SetFlowTableRootOut, "set_flow_table_root_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Headers that flows are matched by: layers 2 to 4. An IPv4 address is in the last four bytes.
    pub struct FlowMatchHeaders, "fte_match_set_lyr_2_4", 16;
    bits smac_47_16 / set_smac_47_16: u32 = 0[31:0], "smac_47_16";
    bits smac_15_0 / set_smac_15_0: u16 = 1[31:16], "smac_15_0";
    bits ethertype / set_ethertype: u16 = 1[15:0], "ethertype";
    bits dmac_47_16 / set_dmac_47_16: u32 = 2[31:0], "dmac_47_16";
    bits dmac_15_0 / set_dmac_15_0: u16 = 3[31:16], "dmac_15_0";
    bits first_prio / set_first_prio: u8 = 3[15:13], "first_prio";
    bits first_cfi / set_first_cfi: bool = 3[12:12], "first_cfi";
    bits first_vid / set_first_vid: u16 = 3[11:0], "first_vid";
    bits ip_protocol / set_ip_protocol: u8 = 4[31:24], "ip_protocol";
    bits ip_dscp / set_ip_dscp: u8 = 4[23:18], "ip_dscp";
    bits ip_ecn / set_ip_ecn: u8 = 4[17:16], "ip_ecn";
    bits cvlan_tag / set_cvlan_tag: bool = 4[15:15], "cvlan_tag";
    bits svlan_tag / set_svlan_tag: bool = 4[14:14], "svlan_tag";
    bits frag / set_frag: bool = 4[13:13], "frag";
    bits ip_version / set_ip_version: u8 = 4[12:9], "ip_version";
    bits tcp_flags / set_tcp_flags: u16 = 4[8:0], "tcp_flags";
    bits tcp_sport / set_tcp_sport: u16 = 5[31:16], "tcp_sport";
    bits tcp_dport / set_tcp_dport: u16 = 5[15:0], "tcp_dport";
    bits l4_type / set_l4_type: u8 = 6[31:30], "l4_type";
    bits ipv4_ihl / set_ipv4_ihl: u8 = 6[15:12], "ipv4_ihl";
    bits ttl_hoplimit / set_ttl_hoplimit: u8 = 6[7:0], "ttl_hoplimit";
    bits udp_sport / set_udp_sport: u16 = 7[31:16], "udp_sport";
    bits udp_dport / set_udp_dport: u16 = 7[15:0], "udp_dport";
    bytes source_ip / set_source_ip: 16 = 8, "src_ipv4_src_ipv6.ipv6_layout.ipv6";
    bytes destination_ip / set_destination_ip: 16 = 12, "dst_ipv4_dst_ipv6.ipv6_layout.ipv6";
}

layout! {
    /// The part of the match parameters that is described here: the outer headers.
    pub struct FlowMatchParameters, "fte_match_param", 128;
    part outer_headers / outer_headers_mut: FlowMatchHeaders = 0, "outer_headers";
}

layout! {
    /// Input of CREATE_FLOW_GROUP.
    pub struct CreateFlowGroupIn, "create_flow_group_in", 256;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits group_type / set_group_type: u8 = 4[19:16], "group_type";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
    bits source_eswitch_owner_vhca_id_valid / set_source_eswitch_owner_vhca_id_valid: bool = 6[31:31], "source_eswitch_owner_vhca_id_valid";
    bits start_flow_index / set_start_flow_index: u32 = 7[31:0], "start_flow_index";
    bits end_flow_index / set_end_flow_index: u32 = 9[31:0], "end_flow_index";
    bits match_definer_id / set_match_definer_id: u16 = 10[15:0], "match_definer_id";
    bits match_criteria_enable / set_match_criteria_enable: u8 = 15[7:0], "match_criteria_enable";
    part match_criteria / match_criteria_mut: FlowMatchParameters = 16, "match_criteria";
}

layout! {
    /// Output of CREATE_FLOW_GROUP.
    pub struct CreateFlowGroupOut, "create_flow_group_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits group_id / set_group_id: u32 = 2[23:0], "group_id";
}

layout! {
    /// Input of DESTROY_FLOW_GROUP.
    pub struct DestroyFlowGroupIn, "destroy_flow_group_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
    bits group_id / set_group_id: u32 = 6[31:0], "group_id";
}

layout! {
    /// Output of DESTROY_FLOW_GROUP.
    pub struct DestroyFlowGroupOut, "destroy_flow_group_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_FLOW_GROUP.
    pub struct QueryFlowGroupIn, "query_flow_group_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
    bits group_id / set_group_id: u32 = 6[31:0], "group_id";
}

layout! {
    /// Output of QUERY_FLOW_GROUP.
    pub struct QueryFlowGroupOut, "query_flow_group_out", 256;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits start_flow_index / set_start_flow_index: u32 = 7[31:0], "start_flow_index";
    bits end_flow_index / set_end_flow_index: u32 = 9[31:0], "end_flow_index";
    bits match_criteria_enable / set_match_criteria_enable: u8 = 15[7:0], "match_criteria_enable";
    part match_criteria / match_criteria_mut: FlowMatchParameters = 16, "match_criteria";
}

layout! {
    /// Flow table entry: what it matches, and what happens to matching packets.
    pub struct FlowContext, "flow_context", 192;
    bits push_vlan_ethtype / set_push_vlan_ethtype: u16 = 0[31:16], "push_vlan.ethtype";
    bits push_vlan_prio / set_push_vlan_prio: u8 = 0[15:13], "push_vlan.prio";
    bits push_vlan_cfi / set_push_vlan_cfi: bool = 0[12:12], "push_vlan.cfi";
    bits push_vlan_vid / set_push_vlan_vid: u16 = 0[11:0], "push_vlan.vid";
    bits group_id / set_group_id: u32 = 1[31:0], "group_id";
    bits flow_tag / set_flow_tag: u32 = 2[23:0], "flow_tag";
    bits action / set_action: u16 = 3[15:0], "action";
    bits extended_destination / set_extended_destination: bool = 4[31:31], "extended_destination";
    bits uplink_hairpin_en / set_uplink_hairpin_en: bool = 4[30:30], "uplink_hairpin_en";
    bits flow_source / set_flow_source: u8 = 4[29:28], "flow_source";
    bits encrypt_decrypt_type / set_encrypt_decrypt_type: u8 = 4[27:24], "encrypt_decrypt_type";
    bits destination_list_size / set_destination_list_size: u32 = 4[23:0], "destination_list_size";
    bits flow_counter_list_size / set_flow_counter_list_size: u32 = 5[23:0], "flow_counter_list_size";
    bits packet_reformat_id / set_packet_reformat_id: u32 = 6[31:0], "packet_reformat_id";
    bits modify_header_id / set_modify_header_id: u32 = 7[31:0], "modify_header_id";
    bits push_vlan_2_ethtype / set_push_vlan_2_ethtype: u16 = 8[31:16], "push_vlan_2.ethtype";
    bits push_vlan_2_prio / set_push_vlan_2_prio: u8 = 8[15:13], "push_vlan_2.prio";
    bits push_vlan_2_cfi / set_push_vlan_2_cfi: bool = 8[12:12], "push_vlan_2.cfi";
    bits push_vlan_2_vid / set_push_vlan_2_vid: u16 = 8[11:0], "push_vlan_2.vid";
    bits encrypt_decrypt_obj_id / set_encrypt_decrypt_obj_id: u32 = 9[31:0], "encrypt_decrypt_obj_id";
    part match_value / match_value_mut: FlowMatchParameters = 16, "match_value";
}

impl FlowContext {
    /// Byte offset of the variable-length `destination`.
    pub const DESTINATION_OFFSET: usize = 768;
}

layout! {
    /// Input of SET_FLOW_TABLE_ENTRY.
    pub struct SetFlowEntryIn, "set_fte_in", 208;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
    bits ignore_flow_level / set_ignore_flow_level: bool = 6[31:31], "ignore_flow_level";
    bits modify_enable_mask / set_modify_enable_mask: u8 = 6[7:0], "modify_enable_mask";
    bits flow_index / set_flow_index: u32 = 8[31:0], "flow_index";
    part flow_context / flow_context_mut: FlowContext = 16, "flow_context";
}

layout! {
    /// Output of SET_FLOW_TABLE_ENTRY.
    pub struct SetFlowEntryOut, "set_fte_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DELETE_FLOW_TABLE_ENTRY.
    pub struct DeleteFlowEntryIn, "delete_fte_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
    bits flow_index / set_flow_index: u32 = 8[31:0], "flow_index";
}

layout! {
    /// Output of DELETE_FLOW_TABLE_ENTRY.
    pub struct DeleteFlowEntryOut, "delete_fte_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_FLOW_TABLE_ENTRY.
    pub struct QueryFlowEntryIn, "query_fte_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits table_type / set_table_type: u8 = 4[31:24], "table_type";
    bits table_id / set_table_id: FlowTableId = 5[23:0], "table_id";
    bits flow_index / set_flow_index: u32 = 8[31:0], "flow_index";
}

layout! {
    /// Output of QUERY_FLOW_TABLE_ENTRY.
    pub struct QueryFlowEntryOut, "query_fte_out", 208;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part flow_context / flow_context_mut: FlowContext = 16, "flow_context";
}

layout! {
    /// Destination of a flow.
    pub struct FlowDestination, "dest_format_struct", 2;
    bits destination_type / set_destination_type: u8 = 0[31:24], "destination_type";
    bits destination_id / set_destination_id: u32 = 0[23:0], "destination_id";
    bits destination_eswitch_owner_vhca_id_valid / set_destination_eswitch_owner_vhca_id_valid: bool = 1[31:31], "destination_eswitch_owner_vhca_id_valid";
    bits packet_reformat / set_packet_reformat: bool = 1[30:30], "packet_reformat";
    bits destination_table_type / set_destination_table_type: u8 = 1[23:16], "destination_table_type";
    bits destination_eswitch_owner_vhca_id / set_destination_eswitch_owner_vhca_id: u16 = 1[15:0], "destination_eswitch_owner_vhca_id";
}

layout! {
    /// Counter of a flow, after its destinations.
    pub struct FlowCounterId, "flow_counter_list", 2;
    bits flow_counter_id / set_flow_counter_id: u32 = 0[31:0], "flow_counter_id";
}

layout! {
    /// What a flow counter counted.
    pub struct TrafficCounter, "traffic_counter", 4;
    wide packets / set_packets: u64 = 0, "packets";
    wide octets / set_octets: u64 = 2, "octets";
}

layout! {
    /// Input of ALLOC_FLOW_COUNTER.
    pub struct AllocFlowCounterIn, "alloc_flow_counter_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits flow_counter_bulk_log_size / set_flow_counter_bulk_log_size: u8 = 3[12:8], "flow_counter_bulk_log_size";
    bits flow_counter_bulk / set_flow_counter_bulk: u8 = 3[7:0], "flow_counter_bulk";
}

layout! {
    /// Output of ALLOC_FLOW_COUNTER.
    pub struct AllocFlowCounterOut, "alloc_flow_counter_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits flow_counter_id / set_flow_counter_id: u32 = 2[31:0], "flow_counter_id";
}

layout! {
    /// Input of DEALLOC_FLOW_COUNTER.
    pub struct DeallocFlowCounterIn, "dealloc_flow_counter_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits flow_counter_id / set_flow_counter_id: u32 = 2[31:0], "flow_counter_id";
}

layout! {
    /// Output of DEALLOC_FLOW_COUNTER.
    pub struct DeallocFlowCounterOut, "dealloc_flow_counter_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_FLOW_COUNTER.
    pub struct QueryFlowCounterIn, "query_flow_counter_in", 8;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits clear / set_clear: bool = 6[31:31], "clear";
    bits num_of_counters / set_num_of_counters: u16 = 6[15:0], "num_of_counters";
    bits flow_counter_id / set_flow_counter_id: u32 = 7[31:0], "flow_counter_id";
}

layout! {
    /// Output of QUERY_FLOW_COUNTER.
    pub struct QueryFlowCounterOut, "query_flow_counter_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

impl QueryFlowCounterOut {
    /// Byte offset of the variable-length `flow_statistics`.
    pub const FLOW_STATISTICS_OFFSET: usize = 16;
}

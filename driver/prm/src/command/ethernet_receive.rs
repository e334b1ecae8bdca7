//! Ethernet reception: receive queues, receive queue tables (RQT), transport interface receives (TIR).

use crate::command::srq::WorkQueueContext;
use crate::ids::{Cqn, Rqn, Rqtn, Srqn, Tirn, TransportDomain};
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Receive queue context.
    pub struct ReceiveQueueContext, "rqc", 60;
    bits rlky / set_rlky: bool = 0[31:31], "rlky";
    bits delay_drop_en / set_delay_drop_en: bool = 0[30:30], "delay_drop_en";
    bits scatter_fcs / set_scatter_fcs: bool = 0[29:29], "scatter_fcs";
    bits vsd / set_vsd: bool = 0[28:28], "vsd";
    bits mem_rq_type / set_mem_rq_type: u8 = 0[27:24], "mem_rq_type";
    bits state / set_state: u8 = 0[23:20], "state";
    bits flush_in_error_en / set_flush_in_error_en: bool = 0[18:18], "flush_in_error_en";
    bits hairpin / set_hairpin: bool = 0[17:17], "hairpin";
    bits ts_format / set_ts_format: u8 = 0[5:4], "ts_format";
    bits user_index / set_user_index: u32 = 1[23:0], "user_index";
    bits cqn / set_cqn: Cqn = 2[23:0], "cqn";
    bits counter_set_id / set_counter_set_id: u8 = 3[31:24], "counter_set_id";
    bits rmpn / set_rmpn: Srqn = 4[23:0], "rmpn";
    bits hairpin_peer_sq / set_hairpin_peer_sq: u32 = 5[23:0], "hairpin_peer_sq";
    bits hairpin_peer_vhca / set_hairpin_peer_vhca: u16 = 6[15:0], "hairpin_peer_vhca";
    bits shampo_no_match_alignment_granularity / set_shampo_no_match_alignment_granularity: u8 = 9[25:24], "shampo_no_match_alignment_granularity";
    bits shampo_match_criteria_type / set_shampo_match_criteria_type: u8 = 9[17:16], "shampo_match_criteria_type";
    bits reservation_timeout / set_reservation_timeout: u16 = 9[15:0], "reservation_timeout";
    part wq / wq_mut: WorkQueueContext = 12, "wq";
}

layout! {
    /// Input of CREATE_RQ.
    pub struct CreateRqIn, "create_rq_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    part ctx / ctx_mut: ReceiveQueueContext = 8, "ctx";
}

layout! {
    /// Output of CREATE_RQ.
    pub struct CreateRqOut, "create_rq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits rqn / set_rqn: Rqn = 2[23:0], "rqn";
}

layout! {
    /// Input of MODIFY_RQ.
    pub struct ModifyRqIn, "modify_rq_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits rq_state / set_rq_state: u8 = 2[31:28], "rq_state";
    bits rqn / set_rqn: Rqn = 2[23:0], "rqn";
    wide modify_bitmask / set_modify_bitmask: u64 = 4, "modify_bitmask";
    part ctx / ctx_mut: ReceiveQueueContext = 8, "ctx";
}

layout! {
    /// Output of MODIFY_RQ.
    pub struct ModifyRqOut, "modify_rq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DESTROY_RQ.
    pub struct DestroyRqIn, "destroy_rq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits rqn / set_rqn: Rqn = 2[23:0], "rqn";
}

layout! {
    /// Output of DESTROY_RQ.
    pub struct DestroyRqOut, "destroy_rq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_RQ.
    pub struct QueryRqIn, "query_rq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits rqn / set_rqn: Rqn = 2[23:0], "rqn";
}

layout! {
    /// Output of QUERY_RQ.
    pub struct QueryRqOut, "query_rq_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part rq_context / rq_context_mut: ReceiveQueueContext = 8, "rq_context";
}

layout! {
    /// Receive queue table context: queues that packets are spread over.
    pub struct RqtContext, "rqtc", 60;
    bits list_q_type / set_list_q_type: u8 = 5[26:24], "list_q_type";
    bits rqt_max_size / set_rqt_max_size: u16 = 5[15:0], "rqt_max_size";
    bits rq_vhca_id_format / set_rq_vhca_id_format: bool = 6[31:31], "rq_vhca_id_format";
    bits rqt_actual_size / set_rqt_actual_size: u16 = 6[15:0], "rqt_actual_size";
}

impl RqtContext {
    /// Byte offset of the variable-length `rq_num`.
    pub const RQ_NUM_OFFSET: usize = 240;
}

layout! {
    /// Input of CREATE_RQT.
    pub struct CreateRqtIn, "create_rqt_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    part rqt_context / rqt_context_mut: RqtContext = 8, "rqt_context";
}

layout! {
    /// Output of CREATE_RQT.
    pub struct CreateRqtOut, "create_rqt_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits rqtn / set_rqtn: Rqtn = 2[23:0], "rqtn";
}

layout! {
    /// Input of MODIFY_RQT.
    pub struct ModifyRqtIn, "modify_rqt_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits rqtn / set_rqtn: Rqtn = 2[23:0], "rqtn";
    bits bitmask_rqn_list / set_bitmask_rqn_list: bool = 5[0:0], "bitmask.rqn_list";
    part ctx / ctx_mut: RqtContext = 8, "ctx";
}

layout! {
    /// Output of MODIFY_RQT.
    pub struct ModifyRqtOut, "modify_rqt_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DESTROY_RQT.
    pub struct DestroyRqtIn, "destroy_rqt_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits rqtn / set_rqtn: Rqtn = 2[23:0], "rqtn";
}

layout! {
    /// Output of DESTROY_RQT.
    pub struct DestroyRqtOut, "destroy_rqt_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_RQT.
    pub struct QueryRqtIn, "query_rqt_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits rqtn / set_rqtn: Rqtn = 2[23:0], "rqtn";
}

layout! {
    /// Output of QUERY_RQT.
    pub struct QueryRqtOut, "query_rqt_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part rqt_context / rqt_context_mut: RqtContext = 8, "rqt_context";
}

layout! {
    /// Transport interface receive context: where packets go, and how they are spread.
    pub struct TirContext, "tirc", 60;
    bits disp_type / set_disp_type: u8 = 1[31:28], "disp_type";
    bits tls_en / set_tls_en: bool = 1[27:27], "tls_en";
    bits lro_timeout_period_usecs / set_lro_timeout_period_usecs: u16 = 4[27:12], "lro_timeout_period_usecs";
    bits packet_merge_mask / set_packet_merge_mask: u8 = 4[11:8], "packet_merge_mask";
    bits lro_max_ip_payload_size / set_lro_max_ip_payload_size: u8 = 4[7:0], "lro_max_ip_payload_size";
    bits inline_rqn / set_inline_rqn: Rqn = 7[23:0], "inline_rqn";
    bits rx_hash_symmetric / set_rx_hash_symmetric: bool = 8[31:31], "rx_hash_symmetric";
    bits tunneled_offload_en / set_tunneled_offload_en: bool = 8[29:29], "tunneled_offload_en";
    bits indirect_table / set_indirect_table: Rqtn = 8[23:0], "indirect_table";
    bits rx_hash_fn / set_rx_hash_fn: u8 = 9[31:28], "rx_hash_fn";
    bits self_lb_block / set_self_lb_block: u8 = 9[25:24], "self_lb_block";
    bits transport_domain / set_transport_domain: TransportDomain = 9[23:0], "transport_domain";
    bytes rx_hash_toeplitz_key / set_rx_hash_toeplitz_key: 40 = 10, "rx_hash_toeplitz_key";
    bits rx_hash_field_selector_outer_l3_prot_type / set_rx_hash_field_selector_outer_l3_prot_type: bool = 20[31:31], "rx_hash_field_selector_outer.l3_prot_type";
    bits rx_hash_field_selector_outer_l4_prot_type / set_rx_hash_field_selector_outer_l4_prot_type: bool = 20[30:30], "rx_hash_field_selector_outer.l4_prot_type";
    bits rx_hash_field_selector_outer_selected_fields / set_rx_hash_field_selector_outer_selected_fields: u32 = 20[29:0], "rx_hash_field_selector_outer.selected_fields";
    bits rx_hash_field_selector_inner_l3_prot_type / set_rx_hash_field_selector_inner_l3_prot_type: bool = 21[31:31], "rx_hash_field_selector_inner.l3_prot_type";
    bits rx_hash_field_selector_inner_l4_prot_type / set_rx_hash_field_selector_inner_l4_prot_type: bool = 21[30:30], "rx_hash_field_selector_inner.l4_prot_type";
    bits rx_hash_field_selector_inner_selected_fields / set_rx_hash_field_selector_inner_selected_fields: u32 = 21[29:0], "rx_hash_field_selector_inner.selected_fields";
}

layout! {
    /// Input of CREATE_TIR.
    pub struct CreateTirIn, "create_tir_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    part ctx / ctx_mut: TirContext = 8, "ctx";
}

layout! {
    /// Output of CREATE_TIR.
    pub struct CreateTirOut, "create_tir_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits icm_address_63_40 / set_icm_address_63_40: u32 = 0[23:0], "icm_address_63_40";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits icm_address_39_32 / set_icm_address_39_32: u8 = 2[31:24], "icm_address_39_32";
    bits tirn / set_tirn: Tirn = 2[23:0], "tirn";
    bits icm_address_31_0 / set_icm_address_31_0: u32 = 3[31:0], "icm_address_31_0";
}

layout! {
    /// Input of MODIFY_TIR.
    pub struct ModifyTirIn, "modify_tir_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits tirn / set_tirn: Tirn = 2[23:0], "tirn";
    bits bitmask_self_lb_en / set_bitmask_self_lb_en: bool = 5[4:4], "bitmask.self_lb_en";
    bits bitmask_hash / set_bitmask_hash: bool = 5[2:2], "bitmask.hash";
    bits bitmask_packet_merge / set_bitmask_packet_merge: bool = 5[0:0], "bitmask.packet_merge";
    part ctx / ctx_mut: TirContext = 8, "ctx";
}

layout! {
    /// Output of MODIFY_TIR.
    pub struct ModifyTirOut, "modify_tir_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DESTROY_TIR.
    pub struct DestroyTirIn, "destroy_tir_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits tirn / set_tirn: Tirn = 2[23:0], "tirn";
}

layout! {
    /// Output of DESTROY_TIR.
    pub struct DestroyTirOut, "destroy_tir_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_TIR.
    pub struct QueryTirIn, "query_tir_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits tirn / set_tirn: Tirn = 2[23:0], "tirn";
}

layout! {
    /// Output of QUERY_TIR.
    pub struct QueryTirOut, "query_tir_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part tir_context / tir_context_mut: TirContext = 8, "tir_context";
}

//! Ethernet transmission: transport domains, transport interface sends (TIS), send queues.

use crate::command::srq::WorkQueueContext;
use crate::ids::{Cqn, Pdn, Sqn, Tisn, TransportDomain};
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of ALLOC_TRANSPORT_DOMAIN.
    pub struct AllocTransportDomainIn, "alloc_transport_domain_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// Output of ALLOC_TRANSPORT_DOMAIN.
    pub struct AllocTransportDomainOut, "alloc_transport_domain_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits transport_domain / set_transport_domain: TransportDomain = 2[23:0], "transport_domain";
}

layout! {
    /// Input of DEALLOC_TRANSPORT_DOMAIN.
    pub struct DeallocTransportDomainIn, "dealloc_transport_domain_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits transport_domain / set_transport_domain: TransportDomain = 2[23:0], "transport_domain";
}

layout! {
    /// Output of DEALLOC_TRANSPORT_DOMAIN.
    pub struct DeallocTransportDomainOut, "dealloc_transport_domain_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Transport interface send context.
    pub struct TisContext, "tisc", 40;
    bits strict_lag_tx_port_affinity / set_strict_lag_tx_port_affinity: bool = 0[31:31], "strict_lag_tx_port_affinity";
    bits tls_en / set_tls_en: bool = 0[30:30], "tls_en";
    bits lag_tx_port_affinity / set_lag_tx_port_affinity: u8 = 0[27:24], "lag_tx_port_affinity";
    bits prio / set_prio: u8 = 0[19:16], "prio";
    bits transport_domain / set_transport_domain: TransportDomain = 9[23:0], "transport_domain";
    bits underlay_qpn / set_underlay_qpn: u32 = 10[23:0], "underlay_qpn";
    bits pd / set_pd: Pdn = 11[23:0], "pd";
}

layout! {
    /// Input of CREATE_TIS.
    pub struct CreateTisIn, "create_tis_in", 48;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    part ctx / ctx_mut: TisContext = 8, "ctx";
}

layout! {
    /// Output of CREATE_TIS.
    pub struct CreateTisOut, "create_tis_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits tisn / set_tisn: Tisn = 2[23:0], "tisn";
}

layout! {
    /// Input of MODIFY_TIS.
    pub struct ModifyTisIn, "modify_tis_in", 48;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits tisn / set_tisn: Tisn = 2[23:0], "tisn";
    bits bitmask_lag_tx_port_affinity / set_bitmask_lag_tx_port_affinity: bool = 5[2:2], "bitmask.lag_tx_port_affinity";
    bits bitmask_strict_lag_tx_port_affinity / set_bitmask_strict_lag_tx_port_affinity: bool = 5[1:1], "bitmask.strict_lag_tx_port_affinity";
    bits bitmask_prio / set_bitmask_prio: bool = 5[0:0], "bitmask.prio";
    part ctx / ctx_mut: TisContext = 8, "ctx";
}

layout! {
    /// Output of MODIFY_TIS.
    pub struct ModifyTisOut, "modify_tis_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DESTROY_TIS.
    pub struct DestroyTisIn, "destroy_tis_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits tisn / set_tisn: Tisn = 2[23:0], "tisn";
}

layout! {
    /// Output of DESTROY_TIS.
    pub struct DestroyTisOut, "destroy_tis_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_TIS.
    pub struct QueryTisIn, "query_tis_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits tisn / set_tisn: Tisn = 2[23:0], "tisn";
}

layout! {
    /// Output of QUERY_TIS.
    pub struct QueryTisOut, "query_tis_out", 44;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part tis_context / tis_context_mut: TisContext = 4, "tis_context";
}

layout! {
    /// Send queue context.
    pub struct SendQueueContext, "sqc", 60;
    bits rlky / set_rlky: bool = 0[31:31], "rlky";
    bits cd_master / set_cd_master: bool = 0[30:30], "cd_master";
    bits fre / set_fre: bool = 0[29:29], "fre";
    bits flush_in_error_en / set_flush_in_error_en: bool = 0[28:28], "flush_in_error_en";
    bits allow_multi_pkt_send_wqe / set_allow_multi_pkt_send_wqe: bool = 0[27:27], "allow_multi_pkt_send_wqe";
    bits min_wqe_inline_mode / set_min_wqe_inline_mode: u8 = 0[26:24], "min_wqe_inline_mode";
    bits state / set_state: u8 = 0[23:20], "state";
    bits reg_umr / set_reg_umr: bool = 0[19:19], "reg_umr";
    bits allow_swp / set_allow_swp: bool = 0[18:18], "allow_swp";
    bits hairpin / set_hairpin: bool = 0[17:17], "hairpin";
    bits non_wire / set_non_wire: bool = 0[16:16], "non_wire";
    bits ts_format / set_ts_format: u8 = 0[5:4], "ts_format";
    bits user_index / set_user_index: u32 = 1[23:0], "user_index";
    bits cqn / set_cqn: Cqn = 2[23:0], "cqn";
    bits hairpin_peer_rq / set_hairpin_peer_rq: u32 = 3[23:0], "hairpin_peer_rq";
    bits hairpin_peer_vhca / set_hairpin_peer_vhca: u16 = 4[15:0], "hairpin_peer_vhca";
    bits ts_cqe_to_dest_cqn / set_ts_cqe_to_dest_cqn: u32 = 6[23:0], "ts_cqe_to_dest_cqn";
    bits packet_pacing_rate_limit_index / set_packet_pacing_rate_limit_index: u16 = 7[15:0], "packet_pacing_rate_limit_index";
    bits tis_lst_sz / set_tis_lst_sz: u16 = 8[31:16], "tis_lst_sz";
    bits qos_queue_group_id / set_qos_queue_group_id: u16 = 8[15:0], "qos_queue_group_id";
    bits tis_num_0 / set_tis_num_0: Tisn = 11[23:0], "tis_num_0";
    part wq / wq_mut: WorkQueueContext = 12, "wq";
}

layout! {
    /// Input of CREATE_SQ.
    pub struct CreateSqIn, "create_sq_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    part ctx / ctx_mut: SendQueueContext = 8, "ctx";
}

layout! {
    /// Output of CREATE_SQ.
    pub struct CreateSqOut, "create_sq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits sqn / set_sqn: Sqn = 2[23:0], "sqn";
}

layout! {
    /// Input of MODIFY_SQ.
    pub struct ModifySqIn, "modify_sq_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits sq_state / set_sq_state: u8 = 2[31:28], "sq_state";
    bits sqn / set_sqn: Sqn = 2[23:0], "sqn";
    wide modify_bitmask / set_modify_bitmask: u64 = 4, "modify_bitmask";
    part ctx / ctx_mut: SendQueueContext = 8, "ctx";
}

layout! {
    /// Output of MODIFY_SQ.
    pub struct ModifySqOut, "modify_sq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DESTROY_SQ.
    pub struct DestroySqIn, "destroy_sq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits sqn / set_sqn: Sqn = 2[23:0], "sqn";
}

layout! {
    /// Output of DESTROY_SQ.
    pub struct DestroySqOut, "destroy_sq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_SQ.
    pub struct QuerySqIn, "query_sq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits sqn / set_sqn: Sqn = 2[23:0], "sqn";
}

layout! {
    /// Output of QUERY_SQ.
    pub struct QuerySqOut, "query_sq_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part sq_context / sq_context_mut: SendQueueContext = 8, "sq_context";
}

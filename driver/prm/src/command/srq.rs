//! Shared receive queues: receive memory pools, XRC shared receive queues, XRC domains.

use crate::ids::{Cqn, Pdn, Srqn, UarIndex, Xrcdn};
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Work queue context.
    pub struct WorkQueueContext, "wq", 48;
    bits wq_type / set_wq_type: u8 = 0[31:28], "wq_type";
    bits wq_signature / set_wq_signature: bool = 0[27:27], "wq_signature";
    bits end_padding_mode / set_end_padding_mode: u8 = 0[26:25], "end_padding_mode";
    bits cd_slave / set_cd_slave: bool = 0[24:24], "cd_slave";
    bits hds_skip_first_sge / set_hds_skip_first_sge: bool = 1[31:31], "hds_skip_first_sge";
    bits log2_hds_buf_size / set_log2_hds_buf_size: u8 = 1[30:28], "log2_hds_buf_size";
    bits page_offset / set_page_offset: u8 = 1[20:16], "page_offset";
    bits lwm / set_lwm: u16 = 1[15:0], "lwm";
    bits pd / set_pd: Pdn = 2[23:0], "pd";
    bits uar_page / set_uar_page: UarIndex = 3[23:0], "uar_page";
    wide dbr_addr / set_dbr_addr: u64 = 4, "dbr_addr";
    bits hw_counter / set_hw_counter: u32 = 6[31:0], "hw_counter";
    bits sw_counter / set_sw_counter: u32 = 7[31:0], "sw_counter";
    bits log_wq_stride / set_log_wq_stride: u8 = 8[19:16], "log_wq_stride";
    bits log_wq_pg_sz / set_log_wq_pg_sz: u8 = 8[12:8], "log_wq_pg_sz";
    bits log_wq_sz / set_log_wq_sz: u8 = 8[4:0], "log_wq_sz";
    bits dbr_umem_valid / set_dbr_umem_valid: bool = 9[31:31], "dbr_umem_valid";
    bits wq_umem_valid / set_wq_umem_valid: bool = 9[30:30], "wq_umem_valid";
    bits log_hairpin_num_packets / set_log_hairpin_num_packets: u8 = 9[28:24], "log_hairpin_num_packets";
    bits log_hairpin_data_sz / set_log_hairpin_data_sz: u8 = 9[20:16], "log_hairpin_data_sz";
    bits log_wqe_num_of_strides / set_log_wqe_num_of_strides: u8 = 9[11:8], "log_wqe_num_of_strides";
    bits two_byte_shift_en / set_two_byte_shift_en: bool = 9[7:7], "two_byte_shift_en";
    bits log_wqe_stride_size / set_log_wqe_stride_size: u8 = 9[2:0], "log_wqe_stride_size";
    bits dbr_umem_id / set_dbr_umem_id: u32 = 10[31:0], "dbr_umem_id";
    bits wq_umem_id / set_wq_umem_id: u32 = 11[31:0], "wq_umem_id";
    wide wq_umem_offset / set_wq_umem_offset: u64 = 12, "wq_umem_offset";
    bits headers_mkey / set_headers_mkey: u32 = 14[31:0], "headers_mkey";
    bits shampo_enable / set_shampo_enable: bool = 15[31:31], "shampo_enable";
    bits log_reservation_size / set_log_reservation_size: u8 = 15[26:24], "log_reservation_size";
    bits log_max_num_of_packets_per_reservation / set_log_max_num_of_packets_per_reservation: u8 = 15[18:16], "log_max_num_of_packets_per_reservation";
    bits log_headers_entry_size / set_log_headers_entry_size: u8 = 15[9:8], "log_headers_entry_size";
    bits log_headers_buffer_entry_num / set_log_headers_buffer_entry_num: u8 = 15[3:0], "log_headers_buffer_entry_num";
}

impl WorkQueueContext {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 192;
}

layout! {
    /// Receive memory pool context.
    pub struct RmpContext, "rmpc", 60;
    bits state / set_state: u8 = 0[23:20], "state";
    bits basic_cyclic_rcv_wqe / set_basic_cyclic_rcv_wqe: bool = 1[31:31], "basic_cyclic_rcv_wqe";
    part wq / wq_mut: WorkQueueContext = 12, "wq";
}

layout! {
    /// XRC shared receive queue context.
    pub struct XrcSrqContext, "xrc_srqc", 16;
    bits state / set_state: u8 = 0[31:28], "state";
    bits log_xrc_srq_size / set_log_xrc_srq_size: u8 = 0[27:24], "log_xrc_srq_size";
    bits wq_signature / set_wq_signature: bool = 1[31:31], "wq_signature";
    bits cont_srq / set_cont_srq: bool = 1[30:30], "cont_srq";
    bits rlky / set_rlky: bool = 1[28:28], "rlky";
    bits basic_cyclic_rcv_wqe / set_basic_cyclic_rcv_wqe: bool = 1[27:27], "basic_cyclic_rcv_wqe";
    bits log_rq_stride / set_log_rq_stride: u8 = 1[26:24], "log_rq_stride";
    bits xrcd / set_xrcd: Xrcdn = 1[23:0], "xrcd";
    bits page_offset / set_page_offset: u8 = 2[31:26], "page_offset";
    bits dbr_umem_valid / set_dbr_umem_valid: bool = 2[24:24], "dbr_umem_valid";
    bits cqn / set_cqn: Cqn = 2[23:0], "cqn";
    bits user_index_equal_xrc_srqn / set_user_index_equal_xrc_srqn: bool = 4[31:31], "user_index_equal_xrc_srqn";
    bits log_page_size / set_log_page_size: u8 = 4[29:24], "log_page_size";
    bits user_index / set_user_index: u32 = 4[23:0], "user_index";
    bits pd / set_pd: Pdn = 6[23:0], "pd";
    bits lwm / set_lwm: u16 = 7[31:16], "lwm";
    bits wqe_cnt / set_wqe_cnt: u16 = 7[15:0], "wqe_cnt";
    bits db_record_addr_h / set_db_record_addr_h: u32 = 10[31:0], "db_record_addr_h";
    bits db_record_addr_l / set_db_record_addr_l: u32 = 11[31:2], "db_record_addr_l";
}

layout! {
    /// Input of CREATE_RMP.
    pub struct CreateRmpIn, "create_rmp_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    part ctx / ctx_mut: RmpContext = 8, "ctx";
}

layout! {
    /// Output of CREATE_RMP.
    pub struct CreateRmpOut, "create_rmp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits rmpn / set_rmpn: Srqn = 2[23:0], "rmpn";
}

layout! {
    /// Input of MODIFY_RMP.
    pub struct ModifyRmpIn, "modify_rmp_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits rmp_state / set_rmp_state: u8 = 2[31:28], "rmp_state";
    bits rmpn / set_rmpn: Srqn = 2[23:0], "rmpn";
    bits bitmask_lwm / set_bitmask_lwm: bool = 5[0:0], "bitmask.lwm";
    part ctx / ctx_mut: RmpContext = 8, "ctx";
}

layout! {
    /// Output of MODIFY_RMP.
    pub struct ModifyRmpOut, "modify_rmp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DESTROY_RMP.
    pub struct DestroyRmpIn, "destroy_rmp_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits rmpn / set_rmpn: Srqn = 2[23:0], "rmpn";
}

layout! {
    /// Output of DESTROY_RMP.
    pub struct DestroyRmpOut, "destroy_rmp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_RMP.
    pub struct QueryRmpIn, "query_rmp_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits rmpn / set_rmpn: Srqn = 2[23:0], "rmpn";
}

layout! {
    /// Output of QUERY_RMP.
    pub struct QueryRmpOut, "query_rmp_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part rmp_context / rmp_context_mut: RmpContext = 8, "rmp_context";
}

layout! {
    /// Input of CREATE_XRC_SRQ.
    pub struct CreateXrcSrqIn, "create_xrc_srq_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    part xrc_srq_context_entry / xrc_srq_context_entry_mut: XrcSrqContext = 4, "xrc_srq_context_entry";
    bits xrc_srq_umem_valid / set_xrc_srq_umem_valid: bool = 23[31:31], "xrc_srq_umem_valid";
}

impl CreateXrcSrqIn {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 272;
}

layout! {
    /// Output of CREATE_XRC_SRQ.
    pub struct CreateXrcSrqOut, "create_xrc_srq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits xrc_srqn / set_xrc_srqn: Srqn = 2[23:0], "xrc_srqn";
}

layout! {
    /// Input of DESTROY_XRC_SRQ.
    pub struct DestroyXrcSrqIn, "destroy_xrc_srq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits xrc_srqn / set_xrc_srqn: Srqn = 2[23:0], "xrc_srqn";
}

layout! {
    /// Output of DESTROY_XRC_SRQ.
    pub struct DestroyXrcSrqOut, "destroy_xrc_srq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_XRC_SRQ.
    pub struct QueryXrcSrqIn, "query_xrc_srq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits xrc_srqn / set_xrc_srqn: Srqn = 2[23:0], "xrc_srqn";
}

layout! {
    /// Output of QUERY_XRC_SRQ.
    pub struct QueryXrcSrqOut, "query_xrc_srq_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part xrc_srq_context_entry / xrc_srq_context_entry_mut: XrcSrqContext = 4, "xrc_srq_context_entry";
}

impl QueryXrcSrqOut {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 272;
}

layout! {
    /// Input of ARM_XRC_SRQ.
    pub struct ArmXrcSrqIn, "arm_xrc_srq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits xrc_srqn / set_xrc_srqn: Srqn = 2[23:0], "xrc_srqn";
    bits lwm / set_lwm: u16 = 3[15:0], "lwm";
}

layout! {
    /// Output of ARM_XRC_SRQ.
    pub struct ArmXrcSrqOut, "arm_xrc_srq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of ALLOC_XRCD.
    pub struct AllocXrcdIn, "alloc_xrcd_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// Output of ALLOC_XRCD.
    pub struct AllocXrcdOut, "alloc_xrcd_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits xrcd / set_xrcd: Xrcdn = 2[23:0], "xrcd";
}

layout! {
    /// Input of DEALLOC_XRCD.
    pub struct DeallocXrcdIn, "dealloc_xrcd_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits xrcd / set_xrcd: Xrcdn = 2[23:0], "xrcd";
}

layout! {
    /// Output of DEALLOC_XRCD.
    pub struct DeallocXrcdOut, "dealloc_xrcd_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

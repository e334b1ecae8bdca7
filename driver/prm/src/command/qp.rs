//! Queue pairs and their state transitions.

use crate::context::{QueuePairContext, QueuePairExtension};
use crate::ids::Qpn;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of CREATE_QP.
    pub struct CreateQpIn, "create_qp_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpc_ext / set_qpc_ext: bool = 2[31:31], "qpc_ext";
    bits input_qpn / set_input_qpn: Qpn = 2[23:0], "input_qpn";
    bits opt_param_mask / set_opt_param_mask: u32 = 4[31:0], "opt_param_mask";
    bits ece / set_ece: u32 = 5[31:0], "ece";
    part qpc / qpc_mut: QueuePairContext = 6, "qpc";
    wide wq_umem_offset / set_wq_umem_offset: u64 = 64, "wq_umem_offset";
    bits wq_umem_id / set_wq_umem_id: u32 = 66[31:0], "wq_umem_id";
    bits wq_umem_valid / set_wq_umem_valid: bool = 67[31:31], "wq_umem_valid";
}

impl CreateQpIn {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 272;
}

layout! {
    /// Output of CREATE_QP.
    pub struct CreateQpOut, "create_qp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bits ece / set_ece: u32 = 3[31:0], "ece";
}

layout! {
    /// Input of DESTROY_QP.
    pub struct DestroyQpIn, "destroy_qp_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
}

layout! {
    /// Output of DESTROY_QP.
    pub struct DestroyQpOut, "destroy_qp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of RST2INIT_QP.
    pub struct ResetToInitQpIn, "rst2init_qp_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bits opt_param_mask / set_opt_param_mask: u32 = 4[31:0], "opt_param_mask";
    bits ece / set_ece: u32 = 5[31:0], "ece";
    part qpc / qpc_mut: QueuePairContext = 6, "qpc";
}

layout! {
    /// Output of RST2INIT_QP.
    pub struct ResetToInitQpOut, "rst2init_qp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits ece / set_ece: u32 = 3[31:0], "ece";
}

layout! {
    /// Input of INIT2RTR_QP.
    pub struct InitToRtrQpIn, "init2rtr_qp_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bits opt_param_mask / set_opt_param_mask: u32 = 4[31:0], "opt_param_mask";
    bits ece / set_ece: u32 = 5[31:0], "ece";
    part qpc / qpc_mut: QueuePairContext = 6, "qpc";
}

layout! {
    /// Output of INIT2RTR_QP.
    pub struct InitToRtrQpOut, "init2rtr_qp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits ece / set_ece: u32 = 3[31:0], "ece";
}

layout! {
    /// Input of RTR2RTS_QP.
    pub struct RtrToRtsQpIn, "rtr2rts_qp_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bits opt_param_mask / set_opt_param_mask: u32 = 4[31:0], "opt_param_mask";
    bits ece / set_ece: u32 = 5[31:0], "ece";
    part qpc / qpc_mut: QueuePairContext = 6, "qpc";
}

layout! {
    /// Output of RTR2RTS_QP.
    pub struct RtrToRtsQpOut, "rtr2rts_qp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits ece / set_ece: u32 = 3[31:0], "ece";
}

layout! {
    /// Input of RTS2RTS_QP.
    pub struct RtsToRtsQpIn, "rts2rts_qp_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bits opt_param_mask / set_opt_param_mask: u32 = 4[31:0], "opt_param_mask";
    bits ece / set_ece: u32 = 5[31:0], "ece";
    part qpc / qpc_mut: QueuePairContext = 6, "qpc";
}

layout! {
    /// Output of RTS2RTS_QP.
    pub struct RtsToRtsQpOut, "rts2rts_qp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits ece / set_ece: u32 = 3[31:0], "ece";
}

layout! {
    /// Input of SQERR2RTS_QP.
    pub struct SqErrorToRtsQpIn, "sqerr2rts_qp_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bits opt_param_mask / set_opt_param_mask: u32 = 4[31:0], "opt_param_mask";
    part qpc / qpc_mut: QueuePairContext = 6, "qpc";
}

layout! {
    /// Output of SQERR2RTS_QP.
    pub struct SqErrorToRtsQpOut, "sqerr2rts_qp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of INIT2INIT_QP.
    pub struct InitToInitQpIn, "init2init_qp_in", 116;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    /// There is an extension behind the context.
    bits qpc_ext / set_qpc_ext: bool = 2[31:31], "qpc_ext";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bits opt_param_mask / set_opt_param_mask: u32 = 4[31:0], "opt_param_mask";
    bits ece / set_ece: u32 = 5[31:0], "ece";
    part qpc / qpc_mut: QueuePairContext = 6, "qpc";
    /// Which fields of the extension count; see [`extension_mask`].
    wide opt_param_mask_95_32 / set_opt_param_mask_95_32: u64 = 66, "opt_param_mask_95_32";
    part qpc_data_ext / qpc_data_ext_mut: QueuePairExtension = 68, "qpc_data_ext";
}

impl InitToInitQpIn {
    /// Bytes without the extension, which drivers that do not use it leave out.
    pub const SHORT: usize = 272;
}

/// Bits of [`InitToInitQpIn::opt_param_mask_95_32`].
pub mod extension_mask {
    /// [`mmo`](super::QueuePairExtension::mmo).
    pub const MMO: u64 = 1 << 3;
}

layout! {
    /// Output of INIT2INIT_QP.
    pub struct InitToInitQpOut, "init2init_qp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits ece / set_ece: u32 = 3[31:0], "ece";
}

layout! {
    /// Input of SQD_RTS_QP.
    pub struct SqdToRtsQpIn, "sqd2rts_qp_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bits opt_param_mask / set_opt_param_mask: u32 = 4[31:0], "opt_param_mask";
    part qpc / qpc_mut: QueuePairContext = 6, "qpc";
}

layout! {
    /// Output of SQD_RTS_QP.
    pub struct SqdToRtsQpOut, "sqd2rts_qp_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of 2ERR_QP.
    pub struct ToErrorQpIn, "qp_2err_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
}

layout! {
    /// Output of 2ERR_QP.
    pub struct ToErrorQpOut, "qp_2err_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of 2RST_QP.
    pub struct ToResetQpIn, "qp_2rst_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
}

layout! {
    /// Output of 2RST_QP.
    pub struct ToResetQpOut, "qp_2rst_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_QP.
    pub struct QueryQpIn, "query_qp_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpc_ext / set_qpc_ext: bool = 2[31:31], "qpc_ext";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
}

layout! {
    /// Output of QUERY_QP.
    pub struct QueryQpOut, "query_qp_out", 116;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits opt_param_mask / set_opt_param_mask: u32 = 4[31:0], "opt_param_mask";
    bits ece / set_ece: u32 = 5[31:0], "ece";
    part qpc / qpc_mut: QueuePairContext = 6, "qpc";
    bits qp_pas_or_qpc_ext_and_pas_qpc_ext_and_pas_list_qpc_data_extension_error_syndrome_hw_error_syndrome / set_qp_pas_or_qpc_ext_and_pas_qpc_ext_and_pas_list_qpc_data_extension_error_syndrome_hw_error_syndrome: u8 = 71[31:24], "qp_pas_or_qpc_ext_and_pas.qpc_ext_and_pas_list.qpc_data_extension.error_syndrome.hw_error_syndrome";
    bits qp_pas_or_qpc_ext_and_pas_qpc_ext_and_pas_list_qpc_data_extension_error_syndrome_hw_syndrome_type / set_qp_pas_or_qpc_ext_and_pas_qpc_ext_and_pas_list_qpc_data_extension_error_syndrome_hw_syndrome_type: u8 = 71[23:20], "qp_pas_or_qpc_ext_and_pas.qpc_ext_and_pas_list.qpc_data_extension.error_syndrome.hw_syndrome_type";
    bits qp_pas_or_qpc_ext_and_pas_qpc_ext_and_pas_list_qpc_data_extension_error_syndrome_vendor_error_syndrome / set_qp_pas_or_qpc_ext_and_pas_qpc_ext_and_pas_list_qpc_data_extension_error_syndrome_vendor_error_syndrome: u8 = 71[15:8], "qp_pas_or_qpc_ext_and_pas.qpc_ext_and_pas_list.qpc_data_extension.error_syndrome.vendor_error_syndrome";
    bits qp_pas_or_qpc_ext_and_pas_qpc_ext_and_pas_list_qpc_data_extension_error_syndrome_syndrome / set_qp_pas_or_qpc_ext_and_pas_qpc_ext_and_pas_list_qpc_data_extension_error_syndrome_syndrome: u8 = 71[7:0], "qp_pas_or_qpc_ext_and_pas.qpc_ext_and_pas_list.qpc_data_extension.error_syndrome.syndrome";
}

impl QueryQpOut {
    /// Byte offset of the variable-length `qp_pas_or_qpc_ext_and_pas.qp_pas_list.pas`.
    pub const QP_PAS_OR_QPC_EXT_AND_PAS_QP_PAS_LIST_PAS_OFFSET: usize = 272;
    /// Byte offset of the variable-length `qp_pas_or_qpc_ext_and_pas.qpc_ext_and_pas_list.pas`.
    pub const QP_PAS_OR_QPC_EXT_AND_PAS_QPC_EXT_AND_PAS_LIST_PAS_OFFSET: usize = 464;
}

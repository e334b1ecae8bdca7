//! Completion queues.

use crate::context::CompletionQueueContext;
use crate::ids::Cqn;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of CREATE_CQ.
    pub struct CreateCqIn, "create_cq_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    part cq_context / cq_context_mut: CompletionQueueContext = 4, "cq_context";
    wide cq_umem_offset / set_cq_umem_offset: u64 = 20, "cq_umem_offset";
    bits cq_umem_id / set_cq_umem_id: u32 = 22[31:0], "cq_umem_id";
    bits cq_umem_valid / set_cq_umem_valid: bool = 23[31:31], "cq_umem_valid";
}

impl CreateCqIn {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 272;
}

layout! {
    /// Output of CREATE_CQ.
    pub struct CreateCqOut, "create_cq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits cqn / set_cqn: Cqn = 2[23:0], "cqn";
}

layout! {
    /// Input of DESTROY_CQ.
    pub struct DestroyCqIn, "destroy_cq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits cqn / set_cqn: Cqn = 2[23:0], "cqn";
}

layout! {
    /// Output of DESTROY_CQ.
    pub struct DestroyCqOut, "destroy_cq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_CQ.
    pub struct QueryCqIn, "query_cq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits cqn / set_cqn: Cqn = 2[23:0], "cqn";
}

layout! {
    /// Output of QUERY_CQ.
    pub struct QueryCqOut, "query_cq_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part cq_context / cq_context_mut: CompletionQueueContext = 4, "cq_context";
}

impl QueryCqOut {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 272;
}

layout! {
    /// Input of MODIFY_CQ.
    pub struct ModifyCqIn, "modify_cq_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits cqn / set_cqn: Cqn = 2[23:0], "cqn";
    bits modify_field_select_resize_field_select_modify_field_select_modify_field_select / set_modify_field_select_resize_field_select_modify_field_select_modify_field_select: u32 = 3[31:0], "modify_field_select_resize_field_select.modify_field_select.modify_field_select";
    part cq_context / cq_context_mut: CompletionQueueContext = 4, "cq_context";
    wide cq_umem_offset / set_cq_umem_offset: u64 = 20, "cq_umem_offset";
    bits cq_umem_id / set_cq_umem_id: u32 = 22[31:0], "cq_umem_id";
    bits cq_umem_valid / set_cq_umem_valid: bool = 23[31:31], "cq_umem_valid";
}

impl ModifyCqIn {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 272;
}

layout! {
    /// Output of MODIFY_CQ.
    pub struct ModifyCqOut, "modify_cq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

//! Event queues.

use crate::context::EventQueueContext;
use crate::ids::Eqn;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of CREATE_EQ.
    pub struct CreateEqIn, "create_eq_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    part eq_context_entry / eq_context_entry_mut: EventQueueContext = 4, "eq_context_entry";
    bytes event_bitmask / set_event_bitmask: 32 = 22, "event_bitmask";
}

impl CreateEqIn {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 272;
}

layout! {
    /// Output of CREATE_EQ.
    pub struct CreateEqOut, "create_eq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits eq_number / set_eq_number: Eqn = 2[7:0], "eq_number";
}

layout! {
    /// Input of DESTROY_EQ.
    pub struct DestroyEqIn, "destroy_eq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits eq_number / set_eq_number: Eqn = 2[7:0], "eq_number";
}

layout! {
    /// Output of DESTROY_EQ.
    pub struct DestroyEqOut, "destroy_eq_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_EQ.
    pub struct QueryEqIn, "query_eq_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits eq_number / set_eq_number: Eqn = 2[7:0], "eq_number";
}

layout! {
    /// Output of QUERY_EQ.
    pub struct QueryEqOut, "query_eq_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part eq_context_entry / eq_context_entry_mut: EventQueueContext = 4, "eq_context_entry";
    wide event_bitmask / set_event_bitmask: u64 = 22, "event_bitmask";
}

impl QueryEqOut {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 272;
}

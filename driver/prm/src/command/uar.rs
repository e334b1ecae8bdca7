//! User access regions.

use crate::ids::UarIndex;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of ALLOC_UAR.
    pub struct AllocUarIn, "alloc_uar_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// Output of ALLOC_UAR.
    pub struct AllocUarOut, "alloc_uar_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits uar / set_uar: UarIndex = 2[23:0], "uar";
}

layout! {
    /// Input of DEALLOC_UAR.
    pub struct DeallocUarIn, "dealloc_uar_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits uar / set_uar: UarIndex = 2[23:0], "uar";
}

layout! {
    /// Output of DEALLOC_UAR.
    pub struct DeallocUarOut, "dealloc_uar_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

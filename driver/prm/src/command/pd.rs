//! Protection domains.

use crate::ids::Pdn;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of ALLOC_PD.
    pub struct AllocPdIn, "alloc_pd_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// Output of ALLOC_PD.
    pub struct AllocPdOut, "alloc_pd_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits pd / set_pd: Pdn = 2[23:0], "pd";
}

layout! {
    /// Input of DEALLOC_PD.
    pub struct DeallocPdIn, "dealloc_pd_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits pd / set_pd: Pdn = 2[23:0], "pd";
}

layout! {
    /// Output of DEALLOC_PD.
    pub struct DeallocPdOut, "dealloc_pd_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

//! User contexts: numbers by which the device distinguishes the objects of unprivileged software. A kernel creates one
//! for each program and puts its number, the `uid`, into every command that it passes on (DEVX).

use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of CREATE_UCTX.
    pub struct CreateUctxIn, "create_uctx_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits cap / set_cap: u32 = 4[31:0], "uctx.cap";
}

layout! {
    /// Output of CREATE_UCTX.
    pub struct CreateUctxOut, "create_uctx_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits uid / set_uid: u16 = 2[15:0], "uid";
}

layout! {
    /// Input of DESTROY_UCTX.
    pub struct DestroyUctxIn, "destroy_uctx_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits uid / set_uid: u16 = 2[15:0], "uid";
}

layout! {
    /// Output of DESTROY_UCTX.
    pub struct DestroyUctxOut, "destroy_uctx_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

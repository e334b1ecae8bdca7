//! Multicast groups: which queue pairs get what is sent to a group.

use crate::ids::Qpn;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of ATTACH_TO_MCG.
    pub struct AttachToMcgIn, "attach_to_mcg_in", 8;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bytes multicast_gid / set_multicast_gid: 16 = 4, "multicast_gid";
}

layout! {
    /// Output of ATTACH_TO_MCG.
    pub struct AttachToMcgOut, "attach_to_mcg_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DETACH_FROM_MCG.
    pub struct DetachFromMcgIn, "detach_from_mcg_in", 8;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits qpn / set_qpn: Qpn = 2[23:0], "qpn";
    bytes multicast_gid / set_multicast_gid: 16 = 4, "multicast_gid";
}

layout! {
    /// Output of DETACH_FROM_MCG.
    pub struct DetachFromMcgOut, "detach_from_mcg_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

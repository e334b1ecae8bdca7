//! Management datagrams that software hands to the port's agents in a command.

use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of MAD_IFC.
    pub struct MadIfcIn, "mad_ifc_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits remote_lid / set_remote_lid: u16 = 2[31:16], "remote_lid";
    bits plane_index / set_plane_index: u8 = 2[15:8], "plane_index";
    bits port / set_port: u8 = 2[7:0], "port";
    bytes mad / set_mad: 256 = 4, "mad";
}

layout! {
    /// Output of MAD_IFC.
    pub struct MadIfcOut, "mad_ifc_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bytes response_mad_packet / set_response_mad_packet: 256 = 4, "response_mad_packet";
}

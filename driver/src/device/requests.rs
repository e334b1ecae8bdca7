//! Requests that both opening and closing a device send.

use bareverbs_prm::command::entry::CommandHeaderIn;
use bareverbs_prm::command::port::ModifyNicVportContextIn;
use bareverbs_prm::numbering::CommandOpcode;

/// A command that consists only of its header.
pub(super) fn command_header(opcode: CommandOpcode, op_mod: u16) -> CommandHeaderIn {
    let mut input = CommandHeaderIn::new();
    input.set_opcode(opcode).set_op_mod(op_mod);
    input
}

/// MODIFY_NIC_VPORT_CONTEXT that enables or disables RoCE.
pub(super) fn set_roce(enabled: bool) -> ModifyNicVportContextIn {
    let mut input = ModifyNicVportContextIn::new();
    input.set_opcode(CommandOpcode::ModifyNicVportContext).set_field_select_roce_en(true);
    input.nic_vport_context_mut().set_roce_en(enabled);
    input
}

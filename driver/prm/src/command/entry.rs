//! The command queue entry, the mailbox block, and the header that all commands share (PRM, command interface).

use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Command queue entry, 64 bytes.
    pub struct CommandQueueEntry, "cmd_queue_entry", 16;
    bits kind / set_kind: u8 = 0[31:24], "type";
    bits input_length / set_input_length: u32 = 1[31:0], "input_length";
    bits input_mailbox_pointer_63_32 / set_input_mailbox_pointer_63_32: u32 = 2[31:0], "input_mailbox_pointer_63_32";
    bits input_mailbox_pointer_31_9 / set_input_mailbox_pointer_31_9: u32 = 3[31:9], "input_mailbox_pointer_31_9";
    bytes command_input_inline_data / set_command_input_inline_data: 16 = 4, "command_input_inline_data";
    bytes command_output_inline_data / set_command_output_inline_data: 16 = 8, "command_output_inline_data";
    bits output_mailbox_pointer_63_32 / set_output_mailbox_pointer_63_32: u32 = 12[31:0], "output_mailbox_pointer_63_32";
    bits output_mailbox_pointer_31_9 / set_output_mailbox_pointer_31_9: u32 = 13[31:9], "output_mailbox_pointer_31_9";
    bits output_length / set_output_length: u32 = 14[31:0], "output_length";
    bits token / set_token: u8 = 15[31:24], "token";
    bits signature / set_signature: u8 = 15[23:16], "signature";
    bits status / set_status: u8 = 15[7:1], "status";
    bits ownership / set_ownership: bool = 15[0:0], "ownership";
}

layout! {
    /// Mailbox block, 576 bytes of which 512 carry data.
    pub struct CommandMailbox, "cmd_if_box", 144;
    bytes mailbox_data / set_mailbox_data: 512 = 0, "mailbox_data";
    bits next_pointer_63_32 / set_next_pointer_63_32: u32 = 140[31:0], "next_pointer_63_32";
    bits next_pointer_31_10 / set_next_pointer_31_10: u32 = 141[31:10], "next_pointer_31_10";
    bits block_number / set_block_number: u32 = 142[31:0], "block_number";
    bits token / set_token: u8 = 143[23:16], "token";
    bits ctrl_signature / set_ctrl_signature: u8 = 143[15:8], "ctrl_signature";
    bits signature / set_signature: u8 = 143[7:0], "signature";
}

layout! {
    /// What every command input begins with.
    pub struct CommandHeaderIn, "mbox_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// What every command output begins with.
    pub struct CommandHeaderOut, "mbox_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

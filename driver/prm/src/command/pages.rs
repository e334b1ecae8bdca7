//! Commands that lend host pages to the device and take them back.

use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of QUERY_PAGES.
    pub struct QueryPagesIn, "query_pages_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits embedded_cpu_function / set_embedded_cpu_function: bool = 2[31:31], "embedded_cpu_function";
    bits function_id / set_function_id: u16 = 2[15:0], "function_id";
}

layout! {
    /// Output of QUERY_PAGES.
    pub struct QueryPagesOut, "query_pages_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits embedded_cpu_function / set_embedded_cpu_function: bool = 2[31:31], "embedded_cpu_function";
    bits function_id / set_function_id: u16 = 2[15:0], "function_id";
    bits num_pages / set_num_pages: u32 = 3[31:0], "num_pages";
}

layout! {
    /// Input of MANAGE_PAGES.
    pub struct ManagePagesIn, "manage_pages_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits embedded_cpu_function / set_embedded_cpu_function: bool = 2[31:31], "embedded_cpu_function";
    bits function_id / set_function_id: u16 = 2[15:0], "function_id";
    bits input_num_entries / set_input_num_entries: u32 = 3[31:0], "input_num_entries";
}

impl ManagePagesIn {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 16;
}

layout! {
    /// Output of MANAGE_PAGES.
    pub struct ManagePagesOut, "manage_pages_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits output_num_entries / set_output_num_entries: u32 = 2[31:0], "output_num_entries";
}

impl ManagePagesOut {
    /// Byte offset of the variable-length `pas`.
    pub const PAS_OFFSET: usize = 16;
}

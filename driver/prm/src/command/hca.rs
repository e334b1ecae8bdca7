//! Commands on the whole device: enable, initialise, tear down, ISSI, registers.

use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus, RegisterId};

layout! {
    /// Input of ENABLE_HCA.
    pub struct EnableHcaIn, "enable_hca_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits embedded_cpu_function / set_embedded_cpu_function: bool = 2[31:31], "embedded_cpu_function";
    bits function_id / set_function_id: u16 = 2[15:0], "function_id";
}

layout! {
    /// Output of ENABLE_HCA.
    pub struct EnableHcaOut, "enable_hca_out", 3;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of DISABLE_HCA.
    pub struct DisableHcaIn, "disable_hca_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits embedded_cpu_function / set_embedded_cpu_function: bool = 2[31:31], "embedded_cpu_function";
    bits function_id / set_function_id: u16 = 2[15:0], "function_id";
}

layout! {
    /// Output of DISABLE_HCA.
    pub struct DisableHcaOut, "disable_hca_out", 3;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of INIT_HCA.
    pub struct InitHcaIn, "init_hca_in", 8;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits sw_vhca_id / set_sw_vhca_id: u16 = 3[29:16], "sw_vhca_id";
    bytes sw_owner_id / set_sw_owner_id: 16 = 4, "sw_owner_id";
}

layout! {
    /// Output of INIT_HCA.
    pub struct InitHcaOut, "init_hca_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of TEARDOWN_HCA.
    pub struct TeardownHcaIn, "teardown_hca_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits profile / set_profile: u16 = 2[15:0], "profile";
}

layout! {
    /// Output of TEARDOWN_HCA.
    pub struct TeardownHcaOut, "teardown_hca_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits state / set_state: bool = 3[0:0], "state";
}

layout! {
    /// Input of QUERY_ISSI.
    pub struct QueryIssiIn, "query_issi_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// Output of QUERY_ISSI.
    pub struct QueryIssiOut, "query_issi_out", 28;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits current_issi / set_current_issi: u16 = 2[15:0], "current_issi";
    bits supported_issi_dw0 / set_supported_issi_dw0: u32 = 27[31:0], "supported_issi_dw0";
}

layout! {
    /// Input of SET_ISSI.
    pub struct SetIssiIn, "set_issi_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits current_issi / set_current_issi: u16 = 2[15:0], "current_issi";
}

layout! {
    /// Output of SET_ISSI.
    pub struct SetIssiOut, "set_issi_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_ADAPTER.
    pub struct QueryAdapterIn, "query_adapter_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// Output of QUERY_ADAPTER.
    pub struct QueryAdapterOut, "query_adapter_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits query_adapter_struct_ieee_vendor_id / set_query_adapter_struct_ieee_vendor_id: u32 = 10[23:0], "query_adapter_struct.ieee_vendor_id";
    bits query_adapter_struct_vsd_vendor_id / set_query_adapter_struct_vsd_vendor_id: u16 = 11[15:0], "query_adapter_struct.vsd_vendor_id";
    bytes query_adapter_struct_vsd / set_query_adapter_struct_vsd: 208 = 12, "query_adapter_struct.vsd";
    bytes query_adapter_struct_vsd_contd_psid / set_query_adapter_struct_vsd_contd_psid: 16 = 64, "query_adapter_struct.vsd_contd_psid";
}

layout! {
    /// Input of SET_DRIVER_VERSION.
    pub struct SetDriverVersionIn, "set_driver_version_in", 20;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bytes driver_version / set_driver_version: 64 = 4, "driver_version";
}

layout! {
    /// Output of SET_DRIVER_VERSION.
    pub struct SetDriverVersionOut, "set_driver_version_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of ACCESS_REG; the register follows.
    pub struct AccessRegisterIn, "access_register_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits register_id / set_register_id: RegisterId = 2[15:0], "register_id";
    bits argument / set_argument: u32 = 3[31:0], "argument";
}

impl AccessRegisterIn {
    /// Byte offset of the variable-length `register_data`.
    pub const REGISTER_DATA_OFFSET: usize = 16;
}

layout! {
    /// Output of ACCESS_REG; the register follows.
    pub struct AccessRegisterOut, "access_register_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

impl AccessRegisterOut {
    /// Byte offset of the variable-length `register_data`.
    pub const REGISTER_DATA_OFFSET: usize = 16;
}

layout! {
    /// Input of QUERY_SPECIAL_CONTEXTS.
    pub struct QuerySpecialContextsIn, "query_special_contexts_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// Output of QUERY_SPECIAL_CONTEXTS.
    pub struct QuerySpecialContextsOut, "query_special_contexts_out", 8;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits dump_fill_mkey / set_dump_fill_mkey: u32 = 2[31:0], "dump_fill_mkey";
    bits resd_lkey / set_resd_lkey: u32 = 3[31:0], "resd_lkey";
    bits null_mkey / set_null_mkey: u32 = 4[31:0], "null_mkey";
    bits terminate_scatter_list_mkey / set_terminate_scatter_list_mkey: u32 = 5[31:0], "terminate_scatter_list_mkey";
    bits repeated_mkey / set_repeated_mkey: u32 = 6[31:0], "repeated_mkey";
}

layout! {
    /// Input of NOP.
    pub struct NopIn, "nop_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// Output of NOP.
    pub struct NopOut, "nop_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Register HOST_ENDIANNESS.
    pub struct HostEndiannessRegister, "register_host_endianness", 4;
    bits he / set_he: bool = 0[31:31], "he";
}

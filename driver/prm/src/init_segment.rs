//! The initialization segment at the start of BAR0 and its health buffer (PRM, initialization segment).

use crate::layout;
use crate::numbering::HealthSyndrome;

layout! {
    /// The health buffer: the firmware's report on its own state.
    pub struct HealthBuffer, "health_buffer", 16;
    bits assert_existptr / set_assert_existptr: u32 = 8[31:0], "assert_existptr";
    bits assert_callra / set_assert_callra: u32 = 9[31:0], "assert_callra";
    bits time / set_time: u32 = 11[31:0], "time";
    bits fw_version / set_fw_version: u32 = 12[31:0], "fw_version";
    bits hw_id / set_hw_id: u32 = 13[31:0], "hw_id";
    bits rfr / set_rfr: bool = 14[31:31], "rfr";
    bits valid / set_valid: bool = 14[27:27], "valid";
    bits severity / set_severity: u8 = 14[26:24], "severity";
    bits irisc_index / set_irisc_index: u8 = 15[31:24], "irisc_index";
    bits synd / set_synd: HealthSyndrome = 15[23:16], "synd";
    bits ext_synd / set_ext_synd: u16 = 15[15:0], "ext_synd";
}

layout! {
    /// The initialization segment. `nic_interface` is two bits wide here; drivers read three, see the doorbell module.
    pub struct InitSegment, "initial_seg", 4099;
    bits fw_rev_minor / set_fw_rev_minor: u16 = 0[31:16], "fw_rev_minor";
    bits fw_rev_major / set_fw_rev_major: u16 = 0[15:0], "fw_rev_major";
    bits cmd_interface_rev / set_cmd_interface_rev: u16 = 1[31:16], "cmd_interface_rev";
    bits fw_rev_subminor / set_fw_rev_subminor: u16 = 1[15:0], "fw_rev_subminor";
    bits cmdq_phy_addr_63_32 / set_cmdq_phy_addr_63_32: u32 = 4[31:0], "cmdq_phy_addr_63_32";
    bits cmdq_phy_addr_31_12 / set_cmdq_phy_addr_31_12: u32 = 5[31:12], "cmdq_phy_addr_31_12";
    bits nic_interface / set_nic_interface: u8 = 5[9:8], "nic_interface";
    bits log_cmdq_size / set_log_cmdq_size: u8 = 5[7:4], "log_cmdq_size";
    bits log_cmdq_stride / set_log_cmdq_stride: u8 = 5[3:0], "log_cmdq_stride";
    bits command_doorbell_vector / set_command_doorbell_vector: u32 = 6[31:0], "command_doorbell_vector";
    bits initializing / set_initializing: bool = 127[31:31], "initializing";
    bits nic_interface_supported / set_nic_interface_supported: u8 = 127[26:24], "nic_interface_supported";
    bits embedded_cpu / set_embedded_cpu: bool = 127[23:23], "embedded_cpu";
    part health_buffer / health_buffer_mut: HealthBuffer = 128, "health_buffer";
    bits no_dram_nic_offset / set_no_dram_nic_offset: u32 = 144[31:0], "no_dram_nic_offset";
    bits clear_int / set_clear_int: bool = 1027[0:0], "clear_int";
    bits health_syndrome / set_health_syndrome: u8 = 1028[31:24], "health_syndrome";
    bits health_counter / set_health_counter: u32 = 1028[23:0], "health_counter";
}

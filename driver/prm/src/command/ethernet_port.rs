//! Registers of Ethernet ports, and the register that says which registers a port has.

use crate::layout;
use crate::numbering::PortCounterGroup;

layout! {
    /// Register PFCC: flow control.
    pub struct PfccRegister, "pfcc_reg", 8;
    bits buf_ownership / set_buf_ownership: u8 = 0[27:26], "buf_ownership";
    bits local_port / set_local_port: u8 = 0[23:16], "local_port";
    bits ppan_mask_n / set_ppan_mask_n: bool = 0[4:4], "ppan_mask_n";
    bits minor_stall_mask / set_minor_stall_mask: bool = 0[3:3], "minor_stall_mask";
    bits critical_stall_mask / set_critical_stall_mask: bool = 0[2:2], "critical_stall_mask";
    bits ppan / set_ppan: u8 = 1[31:28], "ppan";
    bits prio_mask_tx / set_prio_mask_tx: u8 = 1[23:16], "prio_mask_tx";
    bits prio_mask_rx / set_prio_mask_rx: u8 = 1[7:0], "prio_mask_rx";
    bits pptx / set_pptx: bool = 2[31:31], "pptx";
    bits aptx / set_aptx: bool = 2[30:30], "aptx";
    bits pptx_mask_n / set_pptx_mask_n: bool = 2[29:29], "pptx_mask_n";
    bits pfctx / set_pfctx: u8 = 2[23:16], "pfctx";
    bits pprx / set_pprx: bool = 3[31:31], "pprx";
    bits aprx / set_aprx: bool = 3[30:30], "aprx";
    bits pprx_mask_n / set_pprx_mask_n: bool = 3[29:29], "pprx_mask_n";
    bits pfcrx / set_pfcrx: u8 = 3[23:16], "pfcrx";
    bits device_stall_minor_watermark / set_device_stall_minor_watermark: u16 = 4[31:16], "device_stall_minor_watermark";
    bits device_stall_critical_watermark / set_device_stall_critical_watermark: u16 = 4[15:0], "device_stall_critical_watermark";
}

layout! {
    /// Register PPLM: forward error correction.
    pub struct PplmRegister, "pplm_reg", 20;
    bits local_port / set_local_port: u8 = 0[23:16], "local_port";
    bits port_profile_mode / set_port_profile_mode: u8 = 2[31:24], "port_profile_mode";
    bits static_port_profile / set_static_port_profile: u8 = 2[23:16], "static_port_profile";
    bits active_port_profile / set_active_port_profile: u8 = 2[15:8], "active_port_profile";
    bits retransmission_active / set_retransmission_active: u8 = 3[31:24], "retransmission_active";
    bits fec_mode_active / set_fec_mode_active: u32 = 3[23:0], "fec_mode_active";
    bits rs_fec_correction_bypass_cap / set_rs_fec_correction_bypass_cap: u8 = 4[31:28], "rs_fec_correction_bypass_cap";
    bits fec_override_cap_56g / set_fec_override_cap_56g: u8 = 4[19:16], "fec_override_cap_56g";
    bits fec_override_cap_100g / set_fec_override_cap_100g: u8 = 4[15:12], "fec_override_cap_100g";
    bits fec_override_cap_50g / set_fec_override_cap_50g: u8 = 4[11:8], "fec_override_cap_50g";
    bits fec_override_cap_25g / set_fec_override_cap_25g: u8 = 4[7:4], "fec_override_cap_25g";
    bits fec_override_cap_10g_40g / set_fec_override_cap_10g_40g: u8 = 4[3:0], "fec_override_cap_10g_40g";
    bits rs_fec_correction_bypass_admin / set_rs_fec_correction_bypass_admin: u8 = 5[31:28], "rs_fec_correction_bypass_admin";
    bits fec_override_admin_56g / set_fec_override_admin_56g: u8 = 5[19:16], "fec_override_admin_56g";
    bits fec_override_admin_100g / set_fec_override_admin_100g: u8 = 5[15:12], "fec_override_admin_100g";
    bits fec_override_admin_50g / set_fec_override_admin_50g: u8 = 5[11:8], "fec_override_admin_50g";
    bits fec_override_admin_25g / set_fec_override_admin_25g: u8 = 5[7:4], "fec_override_admin_25g";
    bits fec_override_admin_10g_40g / set_fec_override_admin_10g_40g: u8 = 5[3:0], "fec_override_admin_10g_40g";
    bits fec_override_cap_400g_8x / set_fec_override_cap_400g_8x: u16 = 6[31:16], "fec_override_cap_400g_8x";
    bits fec_override_cap_200g_4x / set_fec_override_cap_200g_4x: u16 = 6[15:0], "fec_override_cap_200g_4x";
    bits fec_override_cap_100g_2x / set_fec_override_cap_100g_2x: u16 = 7[31:16], "fec_override_cap_100g_2x";
    bits fec_override_cap_50g_1x / set_fec_override_cap_50g_1x: u16 = 7[15:0], "fec_override_cap_50g_1x";
    bits fec_override_admin_400g_8x / set_fec_override_admin_400g_8x: u16 = 8[31:16], "fec_override_admin_400g_8x";
    bits fec_override_admin_200g_4x / set_fec_override_admin_200g_4x: u16 = 8[15:0], "fec_override_admin_200g_4x";
    bits fec_override_admin_100g_2x / set_fec_override_admin_100g_2x: u16 = 9[31:16], "fec_override_admin_100g_2x";
    bits fec_override_admin_50g_1x / set_fec_override_admin_50g_1x: u16 = 9[15:0], "fec_override_admin_50g_1x";
    bits fec_override_cap_800g_8x / set_fec_override_cap_800g_8x: u16 = 10[31:16], "fec_override_cap_800g_8x";
    bits fec_override_cap_400g_4x / set_fec_override_cap_400g_4x: u16 = 10[15:0], "fec_override_cap_400g_4x";
    bits fec_override_cap_200g_2x / set_fec_override_cap_200g_2x: u16 = 11[31:16], "fec_override_cap_200g_2x";
    bits fec_override_cap_100g_1x / set_fec_override_cap_100g_1x: u16 = 11[15:0], "fec_override_cap_100g_1x";
    bits fec_override_admin_800g_8x / set_fec_override_admin_800g_8x: u16 = 17[31:16], "fec_override_admin_800g_8x";
    bits fec_override_admin_400g_4x / set_fec_override_admin_400g_4x: u16 = 17[15:0], "fec_override_admin_400g_4x";
    bits fec_override_admin_200g_2x / set_fec_override_admin_200g_2x: u16 = 18[31:16], "fec_override_admin_200g_2x";
    bits fec_override_admin_100g_1x / set_fec_override_admin_100g_1x: u16 = 18[15:0], "fec_override_admin_100g_1x";
}

layout! {
    /// Register PPCNT: counters of a port, by group.
    pub struct PpcntRegister, "ppcnt_reg", 64;
    bits swid / set_swid: u8 = 0[31:24], "swid";
    bits local_port / set_local_port: u8 = 0[23:16], "local_port";
    bits pnat / set_pnat: u8 = 0[15:14], "pnat";
    bits grp / set_grp: PortCounterGroup = 0[5:0], "grp";
    bits clr / set_clr: bool = 1[31:31], "clr";
    bits plane_ind / set_plane_ind: u8 = 1[11:8], "plane_ind";
    bits prio_tc / set_prio_tc: u8 = 1[4:0], "prio_tc";
    bytes counter_set / set_counter_set: 248 = 2, "counter_set";
}

layout! {
    /// Register PMLP: which lanes of which module a port has.
    pub struct PmlpRegister, "pmlp_reg", 16;
    bits rxtx / set_rxtx: bool = 0[31:31], "rxtx";
    bits local_port / set_local_port: u8 = 0[23:16], "local_port";
    bits width / set_width: u8 = 0[7:0], "width";
    bits lane0_module_mapping / set_lane0_module_mapping: u32 = 1[31:0], "lane0_module_mapping";
    bits lane1_module_mapping / set_lane1_module_mapping: u32 = 2[31:0], "lane1_module_mapping";
    bits lane2_module_mapping / set_lane2_module_mapping: u32 = 3[31:0], "lane2_module_mapping";
    bits lane3_module_mapping / set_lane3_module_mapping: u32 = 4[31:0], "lane3_module_mapping";
}

layout! {
    /// The access registers 0x5000 to 0x507f that exist; bit n of the mask is register 0x5000 + n.
    pub struct PortRegisterMask, "pcam_regs_5000_to_507f", 4;
    bits registers_127_to_96 / set_registers_127_to_96: u32 = 0[31:0], "port_access_reg_cap_mask_127_to_96";
    bits registers_95_to_64 / set_registers_95_to_64: u32 = 1[31:0], "port_access_reg_cap_mask_95_to_64";
    bits registers_63_to_36 / set_registers_63_to_36: u32 = 2[31:4], "port_access_reg_cap_mask_63_to_36";
    bits pplm / set_pplm: bool = 2[3:3], "pplm";
    bits registers_34_to_32 / set_registers_34_to_32: u8 = 2[2:0], "port_access_reg_cap_mask_34_to_32";
    bits registers_31_to_13 / set_registers_31_to_13: u32 = 3[31:13], "port_access_reg_cap_mask_31_to_13";
    bits pbmc / set_pbmc: bool = 3[12:12], "pbmc";
    bits pptb / set_pptb: bool = 3[11:11], "pptb";
    bits registers_10_to_9 / set_registers_10_to_9: u8 = 3[10:9], "port_access_reg_cap_mask_10_to_09";
    bits ppcnt / set_ppcnt: bool = 3[8:8], "ppcnt";
    bits registers_7_to_0 / set_registers_7_to_0: u8 = 3[7:0], "port_access_reg_cap_mask_07_to_00";
}

layout! {
    /// Enhanced features of port registers.
    pub struct PortFeatureMask, "pcam_enhanced_features", 4;
    bits fec_100g_per_lane_in_pplm / set_fec_100g_per_lane_in_pplm: bool = 2[23:23], "fec_100G_per_lane_in_pplm";
    bits buffer_ownership / set_buffer_ownership: bool = 2[12:12], "buffer_ownership";
    bits fec_50g_per_lane_in_pplm / set_fec_50g_per_lane_in_pplm: bool = 3[23:23], "fec_50G_per_lane_in_pplm";
    bits rx_icrc_encapsulated_counter / set_rx_icrc_encapsulated_counter: bool = 3[18:18], "rx_icrc_encapsulated_counter";
    bits ptys_extended_ethernet / set_ptys_extended_ethernet: bool = 3[13:13], "ptys_extended_ethernet";
    bits pfcc_mask / set_pfcc_mask: bool = 3[9:9], "pfcc_mask";
    bits per_lane_error_counters / set_per_lane_error_counters: bool = 3[5:5], "per_lane_error_counters";
    bits rx_buffer_fullness_counters / set_rx_buffer_fullness_counters: bool = 3[4:4], "rx_buffer_fullness_counters";
    bits ptys_connector_type / set_ptys_connector_type: bool = 3[3:3], "ptys_connector_type";
    bits ppcnt_discard_group / set_ppcnt_discard_group: bool = 3[1:1], "ppcnt_discard_group";
    bits ppcnt_statistical_group / set_ppcnt_statistical_group: bool = 3[0:0], "ppcnt_statistical_group";
}

layout! {
    /// Register PCAM: which registers and features a port has.
    pub struct PcamRegister, "pcam_reg", 20;
    bits feature_group / set_feature_group: u8 = 0[23:16], "feature_group";
    bits access_reg_group / set_access_reg_group: u8 = 0[7:0], "access_reg_group";
    part registers / registers_mut: PortRegisterMask = 2, "port_access_reg_cap_mask.regs_5000_to_507f";
    part features / features_mut: PortFeatureMask = 10, "feature_cap_mask.enhanced_features";
}

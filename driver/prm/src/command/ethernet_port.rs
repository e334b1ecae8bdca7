//! Registers of Ethernet ports.

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

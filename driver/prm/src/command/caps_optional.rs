//! Capability pages that a device may lack: on-demand paging, quality of service, device memory.

use crate::layout;

layout! {
    /// Which operations of one transport may meet a missing page.
    pub struct OdpTransportCapabilities, "odp_per_transport_service_cap", 1;
    bits send / set_send: bool = 0[31:31], "send";
    bits receive / set_receive: bool = 0[30:30], "receive";
    bits write / set_write: bool = 0[29:29], "write";
    bits read / set_read: bool = 0[28:28], "read";
    bits atomic / set_atomic: bool = 0[27:27], "atomic";
    bits srq_receive / set_srq_receive: bool = 0[26:26], "srq_receive";
}

layout! {
    /// On-demand paging under one scheme of page faults.
    pub struct OdpSchemeCapabilities, "odp_scheme_cap", 16;
    bits sig / set_sig: bool = 2[31:31], "sig";
    bits page_prefetch / set_page_prefetch: bool = 2[26:26], "page_prefetch";
    part rc / rc_mut: OdpTransportCapabilities = 4, "rc_odp_caps";
    part uc / uc_mut: OdpTransportCapabilities = 5, "uc_odp_caps";
    part ud / ud_mut: OdpTransportCapabilities = 6, "ud_odp_caps";
    part xrc / xrc_mut: OdpTransportCapabilities = 7, "xrc_odp_caps";
    part dc / dc_mut: OdpTransportCapabilities = 8, "dc_odp_caps";
}

layout! {
    /// On-demand paging capabilities.
    pub struct OdpCapabilities, "odp_cap", 64;
    part transport_scheme / transport_scheme_mut: OdpSchemeCapabilities = 0, "transport_page_fault_scheme_cap";
    part memory_scheme / memory_scheme_mut: OdpSchemeCapabilities = 16, "memory_page_fault_scheme_cap";
    /// Page faults name memory instead of a request: `memory_scheme` is in force.
    bits mem_page_fault / set_mem_page_fault: bool = 48[31:31], "mem_page_fault";
}

layout! {
    /// Quality of service capabilities.
    pub struct QosCapabilities, "qos_cap", 64;
    bits packet_pacing / set_packet_pacing: bool = 0[31:31], "packet_pacing";
    bits esw_scheduling / set_esw_scheduling: bool = 0[30:30], "esw_scheduling";
    bits esw_bw_share / set_esw_bw_share: bool = 0[29:29], "esw_bw_share";
    bits esw_rate_limit / set_esw_rate_limit: bool = 0[28:28], "esw_rate_limit";
    bits packet_pacing_burst_bound / set_packet_pacing_burst_bound: bool = 0[26:26], "packet_pacing_burst_bound";
    bits packet_pacing_typical_size / set_packet_pacing_typical_size: bool = 0[25:25], "packet_pacing_typical_size";
    bits nic_sq_scheduling / set_nic_sq_scheduling: bool = 0[23:23], "nic_sq_scheduling";
    bits nic_bw_share / set_nic_bw_share: bool = 0[22:22], "nic_bw_share";
    bits nic_rate_limit / set_nic_rate_limit: bool = 0[21:21], "nic_rate_limit";
    bits packet_pacing_uid / set_packet_pacing_uid: bool = 0[20:20], "packet_pacing_uid";
    /// Rates in kbit/s.
    bits packet_pacing_max_rate / set_packet_pacing_max_rate: u32 = 2[31:0], "packet_pacing_max_rate";
    bits packet_pacing_min_rate / set_packet_pacing_min_rate: u32 = 3[31:0], "packet_pacing_min_rate";
    bits packet_pacing_rate_table_size / set_packet_pacing_rate_table_size: u16 = 4[15:0], "packet_pacing_rate_table_size";
}

layout! {
    /// Capabilities of memory on the device.
    pub struct DeviceMemoryCapabilities, "device_mem_cap", 64;
    bits memic / set_memic: bool = 0[31:31], "memic";
    bits log_min_memic_alloc_size / set_log_min_memic_alloc_size: u8 = 1[20:16], "log_min_memic_alloc_size";
    bits log_max_memic_addr_alignment / set_log_max_memic_addr_alignment: u8 = 1[7:0], "log_max_memic_addr_alignment";
    /// Bytes.
    bits max_memic_size / set_max_memic_size: u32 = 5[31:0], "max_memic_size";
}

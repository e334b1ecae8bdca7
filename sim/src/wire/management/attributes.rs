//! Attributes of management classes in wire format (IBTA v1.4 §13.4.8, §14.2.5, §16.1.3). Field names are IBTA's.

use bareverbs_prm::layout;

layout! {
    /// NodeInfo (IBTA v1.4 §14.2.5.3).
    pub struct NodeInfo, "NodeInfo", 10;
    bits base_version / set_base_version: u8 = 0[31:24], "BaseVersion";
    bits class_version / set_class_version: u8 = 0[23:16], "ClassVersion";
    bits node_type / set_node_type: u8 = 0[15:8], "NodeType";
    bits num_ports / set_num_ports: u8 = 0[7:0], "NumPorts";
    wide system_image_guid / set_system_image_guid: u64 = 1, "SystemImageGUID";
    wide node_guid / set_node_guid: u64 = 3, "NodeGUID";
    wide port_guid / set_port_guid: u64 = 5, "PortGUID";
    bits partition_cap / set_partition_cap: u16 = 7[31:16], "PartitionCap";
    bits device_id / set_device_id: u16 = 7[15:0], "DeviceID";
    bits revision / set_revision: u32 = 8[31:0], "Revision";
    bits local_port_num / set_local_port_num: u8 = 9[31:24], "LocalPortNum";
    bits vendor_id / set_vendor_id: u32 = 9[23:0], "VendorID";
}

layout! {
    /// SwitchInfo (IBTA v1.4 §14.2.5.4).
    pub struct SwitchInfo, "SwitchInfo", 5;
    bits linear_cap / set_linear_cap: u16 = 0[31:16], "LinearFDBCap";
    bits random_cap / set_random_cap: u16 = 0[15:0], "RandomFDBCap";
    bits multicast_cap / set_multicast_cap: u16 = 1[31:16], "MulticastFDBCap";
    bits linear_top / set_linear_top: u16 = 1[15:0], "LinearFDBTop";
    bits default_port / set_default_port: u8 = 2[31:24], "DefaultPort";
    bits default_multicast_primary / set_default_multicast_primary: u8 = 2[23:16], "DefaultMulticastPrimaryPort";
    bits default_multicast_not_primary / set_default_multicast_not_primary: u8 = 2[15:8], "DefaultMulticastNotPrimaryPort";
    bits life_time / set_life_time: u8 = 2[7:3], "LifeTimeValue";
    bits port_state_change / set_port_state_change: bool = 2[2:2], "PortStateChange";
    bits lids_per_port / set_lids_per_port: u16 = 3[31:16], "LIDsPerPort";
    bits partition_enforcement_cap / set_partition_enforcement_cap: u16 = 3[15:0], "PartitionEnforcementCap";
    bits inbound_enforcement_cap / set_inbound_enforcement_cap: bool = 4[31:31], "InboundEnforcementCap";
    bits outbound_enforcement_cap / set_outbound_enforcement_cap: bool = 4[30:30], "OutboundEnforcementCap";
    bits filter_raw_inbound_cap / set_filter_raw_inbound_cap: bool = 4[29:29], "FilterRawInboundCap";
    bits filter_raw_outbound_cap / set_filter_raw_outbound_cap: bool = 4[28:28], "FilterRawOutboundCap";
    bits enhanced_port0 / set_enhanced_port0: bool = 4[27:27], "EnhancedPort0";
    bits multicast_top / set_multicast_top: u16 = 4[15:0], "MulticastFDBTop";
}

layout! {
    /// Notice (IBTA v1.4 §13.4.8.2).
    pub struct Notice, "Notice", 16;
    bits is_generic / set_generic: bool = 0[31:31], "IsGeneric";
    bits kind / set_kind: u8 = 0[30:24], "Type";
    bits producer / set_producer: u32 = 0[23:0], "ProducerType";
    bits trap / set_trap: u16 = 1[31:16], "TrapNumber";
    bits issuer_lid / set_issuer_lid: u16 = 1[15:0], "IssuerLID";
    bits toggle / set_toggle: bool = 2[31:31], "NoticeToggle";
    bits count / set_count: u16 = 2[30:16], "NoticeCount";
    bits lid / set_lid: u16 = 2[15:0], "DataDetails";
    bytes details / set_details: 52 = 3, "DataDetails.Rest";
}

layout! {
    /// `DataDetails.Rest` of traps 64 to 67: a GID came into service or went out of it, or a multicast group was
    /// created or deleted (IBTA v1.4 §14.2.5.1).
    pub struct GidDetails, "GIDDetails", 13;
    bytes gid / set_gid: 16 = 1, "GIDADDR";
}

layout! {
    /// `DataDetails.Rest` of trap 144: a port's capabilities or its node description changed (IBTA v1.4 §14.2.5.1).
    pub struct CapabilityDetails, "CapabilityDetails", 13;
    bits lid / set_lid: u16 = 0[31:16], "LIDADDR";
    bits other_local_changes / set_other_local_changes: bool = 0[0:0], "OtherLocalChanges";
    bits capability_mask / set_capability_mask: u32 = 1[31:0], "CAPABILITYMASK";
    bits node_description_change / set_node_description_change: bool = 2[16:16], "NodeDescriptionChange";
}

layout! {
    /// `DataDetails.Rest` of traps 257 and 258: bad P_Key or bad Q_Key at a receiver (IBTA v1.4 §14.2.5.1).
    pub struct KeyDetails, "KeyDetails", 13;
    bits source_lid / set_source_lid: u16 = 0[31:16], "LIDADDR1";
    bits destination_lid / set_destination_lid: u16 = 0[15:0], "LIDADDR2";
    bits key / set_key: u32 = 1[31:0], "KEY";
    bits service_level / set_service_level: u8 = 2[31:28], "SL";
    bits source_qp / set_source_qp: u32 = 2[23:0], "QP1";
    bits destination_qp / set_destination_qp: u32 = 3[23:0], "QP2";
    bytes source_gid / set_source_gid: 16 = 4, "GIDADDR1";
    bytes destination_gid / set_destination_gid: 16 = 8, "GIDADDR2";
}

layout! {
    /// `DataDetails` of trap 259, from its first byte: a switch dropped a packet for its P_Key (IBTA v1.4 §14.2.5.1).
    pub struct SwitchKeyDetails, "SwitchKeyDetails", 13;
    bits data_valid / set_data_valid: u16 = 0[31:16], "DataValid";
    bits source_lid / set_source_lid: u16 = 0[15:0], "LIDADDR1";
    bits destination_lid / set_destination_lid: u16 = 1[31:16], "LIDADDR2";
    bits key / set_key: u16 = 1[15:0], "PKEY";
    bits service_level / set_service_level: u8 = 2[31:28], "SL";
    bits source_qp / set_source_qp: u32 = 2[23:0], "QP1";
    bits destination_qp / set_destination_qp: u32 = 3[23:0], "QP2";
    bytes source_gid / set_source_gid: 16 = 4, "GIDADDR1";
    bytes destination_gid / set_destination_gid: 16 = 8, "GIDADDR2";
    bits switch_lid / set_switch_lid: u16 = 12[31:16], "SWLIDADDR";
    bits port / set_port: u8 = 12[15:8], "PORTNO";
}

layout! {
    /// Notice in a datagram of queue pair 1, with its issuer (IBTA v1.4 §13.4.8.2).
    pub struct IssuedNotice, "IssuedNotice", 20;
    part notice / notice_mut: Notice = 0, "Notice";
    bytes issuer_gid / set_issuer_gid: 16 = 16, "IssuerGID";
}

layout! {
    /// InformInfo (IBTA v1.4 §13.4.8.3).
    pub struct InformInfo, "InformInfo", 9;
    bytes gid / set_gid: 16 = 0, "GID";
    bits lid_range_begin / set_lid_range_begin: u16 = 4[31:16], "LIDRangeBegin";
    bits lid_range_end / set_lid_range_end: u16 = 4[15:0], "LIDRangeEnd";
    bits is_generic / set_is_generic: u8 = 5[15:8], "IsGeneric";
    bits subscribe / set_subscribe: u8 = 5[7:0], "Subscribe";
    bits kind / set_kind: u16 = 6[31:16], "Type";
    bits trap / set_trap: u16 = 6[15:0], "TrapNumber";
    bits qpn / set_qpn: u32 = 7[31:8], "QPN";
    bits resp_time_value / set_resp_time_value: u8 = 7[4:0], "RespTimeValue";
    bits producer / set_producer: u32 = 8[23:0], "ProducerType";
}

layout! {
    /// PortInfo (IBTA v1.4 §14.2.5.6).
    pub struct PortInfo, "PortInfo", 16;
    wide m_key / set_m_key: u64 = 0, "M_Key";
    wide gid_prefix / set_gid_prefix: u64 = 2, "GidPrefix";
    bits lid / set_lid: u16 = 4[31:16], "LID";
    bits master_sm_lid / set_master_sm_lid: u16 = 4[15:0], "MasterSMLID";
    bits capability_mask / set_capability_mask: u32 = 5[31:0], "CapabilityMask";
    bits diag_code / set_diag_code: u16 = 6[31:16], "DiagCode";
    bits m_key_lease_period / set_m_key_lease_period: u16 = 6[15:0], "M_KeyLeasePeriod";
    bits local_port_num / set_local_port_num: u8 = 7[31:24], "LocalPortNum";
    bits link_width_enabled / set_link_width_enabled: u8 = 7[23:16], "LinkWidthEnabled";
    bits link_width_supported / set_link_width_supported: u8 = 7[15:8], "LinkWidthSupported";
    bits link_width_active / set_link_width_active: u8 = 7[7:0], "LinkWidthActive";
    bits link_speed_supported / set_link_speed_supported: u8 = 8[31:28], "LinkSpeedSupported";
    bits port_state / set_port_state: u8 = 8[27:24], "PortState";
    bits port_physical_state / set_port_physical_state: u8 = 8[23:20], "PortPhysicalState";
    bits link_down_default_state / set_link_down_default_state: u8 = 8[19:16], "LinkDownDefaultState";
    bits m_key_protect_bits / set_m_key_protect_bits: u8 = 8[15:14], "M_KeyProtectBits";
    bits lmc / set_lmc: u8 = 8[10:8], "LMC";
    bits link_speed_active / set_link_speed_active: u8 = 8[7:4], "LinkSpeedActive";
    bits link_speed_enabled / set_link_speed_enabled: u8 = 8[3:0], "LinkSpeedEnabled";
    bits neighbor_mtu / set_neighbor_mtu: u8 = 9[31:28], "NeighborMTU";
    bits master_sm_sl / set_master_sm_sl: u8 = 9[27:24], "MasterSMSL";
    bits vl_cap / set_vl_cap: u8 = 9[23:20], "VLCap";
    bits init_type / set_init_type: u8 = 9[19:16], "InitType";
    bits vl_high_limit / set_vl_high_limit: u8 = 9[15:8], "VLHighLimit";
    bits vl_arbitration_high_cap / set_vl_arbitration_high_cap: u8 = 9[7:0], "VLArbitrationHighCap";
    bits vl_arbitration_low_cap / set_vl_arbitration_low_cap: u8 = 10[31:24], "VLArbitrationLowCap";
    bits init_type_reply / set_init_type_reply: u8 = 10[23:20], "InitTypeReply";
    bits mtu_cap / set_mtu_cap: u8 = 10[19:16], "MTUCap";
    bits vl_stall_count / set_vl_stall_count: u8 = 10[15:13], "VLStallCount";
    bits hoq_life / set_hoq_life: u8 = 10[12:8], "HOQLife";
    bits operational_vls / set_operational_vls: u8 = 10[7:4], "OperationalVLs";
    bits partition_enforcement_inbound / set_partition_enforcement_inbound: bool = 10[3:3], "PartitionEnforcementInbound";
    bits partition_enforcement_outbound / set_partition_enforcement_outbound: bool = 10[2:2], "PartitionEnforcementOutbound";
    bits filter_raw_inbound / set_filter_raw_inbound: bool = 10[1:1], "FilterRawInbound";
    bits filter_raw_outbound / set_filter_raw_outbound: bool = 10[0:0], "FilterRawOutbound";
    bits m_key_violations / set_m_key_violations: u16 = 11[31:16], "M_KeyViolations";
    bits p_key_violations / set_p_key_violations: u16 = 11[15:0], "P_KeyViolations";
    bits q_key_violations / set_q_key_violations: u16 = 12[31:16], "Q_KeyViolations";
    bits guid_cap / set_guid_cap: u8 = 12[15:8], "GUIDCap";
    bits client_reregister / set_client_reregister: bool = 12[7:7], "ClientReregister";
    bits subnet_timeout / set_subnet_timeout: u8 = 12[4:0], "SubnetTimeOut";
    bits resp_time_value / set_resp_time_value: u8 = 13[28:24], "RespTimeValue";
    bits local_phy_errors / set_local_phy_errors: u8 = 13[23:20], "LocalPhyErrors";
    bits overrun_errors / set_overrun_errors: u8 = 13[19:16], "OverrunErrors";
    bits max_credit_hint / set_max_credit_hint: u16 = 13[15:0], "MaxCreditHint";
    bits link_round_trip_latency / set_link_round_trip_latency: u32 = 14[23:0], "LinkRoundTripLatency";
    bits capability_mask2 / set_capability_mask2: u16 = 15[31:16], "CapabilityMask2";
    bits link_speed_ext_active / set_link_speed_ext_active: u8 = 15[15:12], "LinkSpeedExtActive";
    bits link_speed_ext_supported / set_link_speed_ext_supported: u8 = 15[11:8], "LinkSpeedExtSupported";
    bits link_speed_ext_enabled / set_link_speed_ext_enabled: u8 = 15[4:0], "LinkSpeedExtEnabled";
}

layout! {
    /// SMInfo (IBTA v1.4 §14.2.5.13).
    pub struct SmInfo, "SMInfo", 6;
    wide guid / set_guid: u64 = 0, "GUID";
    wide sm_key / set_sm_key: u64 = 2, "SM_Key";
    bits act_count / set_act_count: u32 = 4[31:0], "ActCount";
    bits priority / set_priority: u8 = 5[31:28], "Priority";
    bits sm_state / set_sm_state: u8 = 5[27:24], "SMState";
}

layout! {
    /// ClassPortInfo (IBTA v1.4 §13.4.8.1).
    pub struct ClassPortInfo, "ClassPortInfo", 18;
    bits base_version / set_base_version: u8 = 0[31:24], "BaseVersion";
    bits class_version / set_class_version: u8 = 0[23:16], "ClassVersion";
    bits capability_mask / set_capability_mask: u16 = 0[15:0], "CapabilityMask";
    bits capability_mask2 / set_capability_mask2: u32 = 1[31:5], "CapabilityMask2";
    bits resp_time_value / set_resp_time_value: u8 = 1[4:0], "RespTimeValue";
}

layout! {
    /// PortCounters (IBTA v1.4 §16.1.3.5).
    pub struct PortCounters, "PortCounters", 11;
    bits port_select / set_port_select: u8 = 0[23:16], "PortSelect";
    bits counter_select / set_counter_select: u16 = 0[15:0], "CounterSelect";
    bits symbol_error_counter / set_symbol_error_counter: u16 = 1[31:16], "SymbolErrorCounter";
    bits link_error_recovery_counter / set_link_error_recovery_counter: u8 = 1[15:8], "LinkErrorRecoveryCounter";
    bits link_downed_counter / set_link_downed_counter: u8 = 1[7:0], "LinkDownedCounter";
    bits port_rcv_errors / set_port_rcv_errors: u16 = 2[31:16], "PortRcvErrors";
    bits port_rcv_remote_physical_errors / set_port_rcv_remote_physical_errors: u16 = 2[15:0], "PortRcvRemotePhysicalErrors";
    bits port_rcv_switch_relay_errors / set_port_rcv_switch_relay_errors: u16 = 3[31:16], "PortRcvSwitchRelayErrors";
    bits port_xmit_discards / set_port_xmit_discards: u16 = 3[15:0], "PortXmitDiscards";
    bits port_xmit_constraint_errors / set_port_xmit_constraint_errors: u8 = 4[31:24], "PortXmitConstraintErrors";
    bits port_rcv_constraint_errors / set_port_rcv_constraint_errors: u8 = 4[23:16], "PortRcvConstraintErrors";
    bits counter_select2 / set_counter_select2: u8 = 4[15:8], "CounterSelect2";
    bits local_link_integrity_errors / set_local_link_integrity_errors: u8 = 4[7:4], "LocalLinkIntegrityErrors";
    bits excessive_buffer_overrun_errors / set_excessive_buffer_overrun_errors: u8 = 4[3:0], "ExcessiveBufferOverrunErrors";
    bits qp1_dropped / set_qp1_dropped: u16 = 5[31:16], "QP1Dropped";
    bits vl15_dropped / set_vl15_dropped: u16 = 5[15:0], "VL15Dropped";
    bits port_xmit_data / set_port_xmit_data: u32 = 6[31:0], "PortXmitData";
    bits port_rcv_data / set_port_rcv_data: u32 = 7[31:0], "PortRcvData";
    bits port_xmit_pkts / set_port_xmit_pkts: u32 = 8[31:0], "PortXmitPkts";
    bits port_rcv_pkts / set_port_rcv_pkts: u32 = 9[31:0], "PortRcvPkts";
    bits port_xmit_wait / set_port_xmit_wait: u32 = 10[31:0], "PortXmitWait";
}

layout! {
    /// PortCountersExtended (IBTA v1.4 §16.1.4.11).
    pub struct PortCountersExtended, "PortCountersExtended", 18;
    bits port_select / set_port_select: u8 = 0[23:16], "PortSelect";
    bits counter_select / set_counter_select: u16 = 0[15:0], "CounterSelect";
    wide port_xmit_data / set_port_xmit_data: u64 = 2, "PortXmitData";
    wide port_rcv_data / set_port_rcv_data: u64 = 4, "PortRcvData";
    wide port_xmit_pkts / set_port_xmit_pkts: u64 = 6, "PortXmitPkts";
    wide port_rcv_pkts / set_port_rcv_pkts: u64 = 8, "PortRcvPkts";
    wide port_unicast_xmit_pkts / set_port_unicast_xmit_pkts: u64 = 10, "PortUnicastXmitPkts";
    wide port_unicast_rcv_pkts / set_port_unicast_rcv_pkts: u64 = 12, "PortUnicastRcvPkts";
    wide port_multicast_xmit_pkts / set_port_multicast_xmit_pkts: u64 = 14, "PortMulticastXmitPkts";
    wide port_multicast_rcv_pkts / set_port_multicast_rcv_pkts: u64 = 16, "PortMulticastRcvPkts";
}

//! InfiniBand ports: virtual port contexts, GID and P_Key tables, counters, virtual lanes.

use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Virtual port of an InfiniBand port.
    pub struct HcaVportContext, "hca_vport_context", 128;
    bits field_select / set_field_select: u32 = 0[31:0], "field_select";
    bits sm_virt_aware / set_sm_virt_aware: bool = 8[31:31], "sm_virt_aware";
    bits has_smi / set_has_smi: bool = 8[30:30], "has_smi";
    bits has_raw / set_has_raw: bool = 8[29:29], "has_raw";
    bits grh_required / set_grh_required: bool = 8[28:28], "grh_required";
    bits num_port_plane / set_num_port_plane: u8 = 8[23:16], "num_port_plane";
    bits port_physical_state / set_port_physical_state: u8 = 8[15:12], "port_physical_state";
    bits vport_state_policy / set_vport_state_policy: u8 = 8[11:8], "vport_state_policy";
    bits port_state / set_port_state: u8 = 8[7:4], "port_state";
    bits vport_state / set_vport_state: u8 = 8[3:0], "vport_state";
    wide system_image_guid / set_system_image_guid: u64 = 10, "system_image_guid";
    wide port_guid / set_port_guid: u64 = 12, "port_guid";
    wide node_guid / set_node_guid: u64 = 14, "node_guid";
    bits cap_mask1 / set_cap_mask1: u32 = 16[31:0], "cap_mask1";
    bits cap_mask1_field_select / set_cap_mask1_field_select: u32 = 17[31:0], "cap_mask1_field_select";
    bits cap_mask2 / set_cap_mask2: u32 = 18[31:0], "cap_mask2";
    bits cap_mask2_field_select / set_cap_mask2_field_select: u32 = 19[31:0], "cap_mask2_field_select";
    bits lid / set_lid: u16 = 24[31:16], "lid";
    bits init_type_reply / set_init_type_reply: u8 = 24[11:8], "init_type_reply";
    bits lmc / set_lmc: u8 = 24[7:5], "lmc";
    bits subnet_timeout / set_subnet_timeout: u8 = 24[4:0], "subnet_timeout";
    bits sm_lid / set_sm_lid: u16 = 25[31:16], "sm_lid";
    bits sm_sl / set_sm_sl: u8 = 25[15:12], "sm_sl";
    bits qkey_violation_counter / set_qkey_violation_counter: u16 = 26[31:16], "qkey_violation_counter";
    bits pkey_violation_counter / set_pkey_violation_counter: u16 = 26[15:0], "pkey_violation_counter";
}

layout! {
    /// Input of QUERY_HCA_VPORT_CONTEXT.
    pub struct QueryHcaVportContextIn, "query_hca_vport_context_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits port_num / set_port_num: u8 = 2[19:16], "port_num";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
}

layout! {
    /// Output of QUERY_HCA_VPORT_CONTEXT.
    pub struct QueryHcaVportContextOut, "query_hca_vport_context_out", 132;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part hca_vport_context / hca_vport_context_mut: HcaVportContext = 4, "hca_vport_context";
}

layout! {
    /// Input of MODIFY_HCA_VPORT_CONTEXT.
    pub struct ModifyHcaVportContextIn, "modify_hca_vport_context_in", 132;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits port_num / set_port_num: u8 = 2[19:16], "port_num";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    part hca_vport_context / hca_vport_context_mut: HcaVportContext = 4, "hca_vport_context";
}

layout! {
    /// Output of MODIFY_HCA_VPORT_CONTEXT.
    pub struct ModifyHcaVportContextOut, "modify_hca_vport_context_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_HCA_VPORT_GID.
    pub struct QueryHcaVportGidIn, "query_hca_vport_gid_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits port_num / set_port_num: u8 = 2[19:16], "port_num";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits gid_index / set_gid_index: u16 = 3[15:0], "gid_index";
}

layout! {
    /// Output of QUERY_HCA_VPORT_GID.
    pub struct QueryHcaVportGidOut, "query_hca_vport_gid_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits gids_num / set_gids_num: u16 = 3[31:16], "gids_num";
}

impl QueryHcaVportGidOut {
    /// Byte offset of the variable-length `gid`.
    pub const GID_OFFSET: usize = 16;
}

layout! {
    /// Input of QUERY_HCA_VPORT_PKEY.
    pub struct QueryHcaVportPkeyIn, "query_hca_vport_pkey_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits port_num / set_port_num: u8 = 2[19:16], "port_num";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits pkey_index / set_pkey_index: u16 = 3[15:0], "pkey_index";
}

layout! {
    /// Output of QUERY_HCA_VPORT_PKEY.
    pub struct QueryHcaVportPkeyOut, "query_hca_vport_pkey_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

impl QueryHcaVportPkeyOut {
    /// Byte offset of the variable-length `pkey`.
    pub const PKEY_OFFSET: usize = 16;
}

layout! {
    /// Register PVLC: virtual lanes.
    pub struct PvlcRegister, "pvlc_reg", 4;
    bits local_port / set_local_port: u8 = 0[23:16], "local_port";
    bits vl_hw_cap / set_vl_hw_cap: u8 = 1[3:0], "vl_hw_cap";
    bits vl_admin / set_vl_admin: u8 = 2[3:0], "vl_admin";
    bits vl_operational / set_vl_operational: u8 = 3[3:0], "vl_operational";
}

layout! {
    /// Input of QUERY_VPORT_COUNTER.
    pub struct QueryVportCounterIn, "query_vport_counter_in", 8;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits port_num / set_port_num: u8 = 2[19:16], "port_num";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits clear / set_clear: bool = 6[31:31], "clear";
}

layout! {
    /// Output of QUERY_VPORT_COUNTER.
    pub struct QueryVportCounterOut, "query_vport_counter_out", 132;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    wide received_errors_packets / set_received_errors_packets: u64 = 4, "received_errors.packets";
    wide received_errors_octets / set_received_errors_octets: u64 = 6, "received_errors.octets";
    wide transmit_errors_packets / set_transmit_errors_packets: u64 = 8, "transmit_errors.packets";
    wide transmit_errors_octets / set_transmit_errors_octets: u64 = 10, "transmit_errors.octets";
    wide received_ib_unicast_packets / set_received_ib_unicast_packets: u64 = 12, "received_ib_unicast.packets";
    wide received_ib_unicast_octets / set_received_ib_unicast_octets: u64 = 14, "received_ib_unicast.octets";
    wide transmitted_ib_unicast_packets / set_transmitted_ib_unicast_packets: u64 = 16, "transmitted_ib_unicast.packets";
    wide transmitted_ib_unicast_octets / set_transmitted_ib_unicast_octets: u64 = 18, "transmitted_ib_unicast.octets";
    wide received_ib_multicast_packets / set_received_ib_multicast_packets: u64 = 20, "received_ib_multicast.packets";
    wide received_ib_multicast_octets / set_received_ib_multicast_octets: u64 = 22, "received_ib_multicast.octets";
    wide transmitted_ib_multicast_packets / set_transmitted_ib_multicast_packets: u64 = 24, "transmitted_ib_multicast.packets";
    wide transmitted_ib_multicast_octets / set_transmitted_ib_multicast_octets: u64 = 26, "transmitted_ib_multicast.octets";
    wide received_eth_broadcast_packets / set_received_eth_broadcast_packets: u64 = 28, "received_eth_broadcast.packets";
    wide received_eth_broadcast_octets / set_received_eth_broadcast_octets: u64 = 30, "received_eth_broadcast.octets";
    wide transmitted_eth_broadcast_packets / set_transmitted_eth_broadcast_packets: u64 = 32, "transmitted_eth_broadcast.packets";
    wide transmitted_eth_broadcast_octets / set_transmitted_eth_broadcast_octets: u64 = 34, "transmitted_eth_broadcast.octets";
    wide received_eth_unicast_packets / set_received_eth_unicast_packets: u64 = 36, "received_eth_unicast.packets";
    wide received_eth_unicast_octets / set_received_eth_unicast_octets: u64 = 38, "received_eth_unicast.octets";
    wide transmitted_eth_unicast_packets / set_transmitted_eth_unicast_packets: u64 = 40, "transmitted_eth_unicast.packets";
    wide transmitted_eth_unicast_octets / set_transmitted_eth_unicast_octets: u64 = 42, "transmitted_eth_unicast.octets";
    wide received_eth_multicast_packets / set_received_eth_multicast_packets: u64 = 44, "received_eth_multicast.packets";
    wide received_eth_multicast_octets / set_received_eth_multicast_octets: u64 = 46, "received_eth_multicast.octets";
    wide transmitted_eth_multicast_packets / set_transmitted_eth_multicast_packets: u64 = 48, "transmitted_eth_multicast.packets";
    wide transmitted_eth_multicast_octets / set_transmitted_eth_multicast_octets: u64 = 50, "transmitted_eth_multicast.octets";
    wide local_loopback_packets / set_local_loopback_packets: u64 = 52, "local_loopback.packets";
    wide local_loopback_octets / set_local_loopback_octets: u64 = 54, "local_loopback.octets";
}

//! Ports: RoCE addresses, virtual port state and context, port registers.

use crate::context::NicVportContext;
use crate::context::RoceAddress;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of SET_ROCE_ADDRESS.
    pub struct SetRoceAddressIn, "set_roce_address_in", 12;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits roce_address_index / set_roce_address_index: u16 = 2[31:16], "roce_address_index";
    bits vhca_port_num / set_vhca_port_num: u8 = 2[3:0], "vhca_port_num";
    part roce_address / roce_address_mut: RoceAddress = 4, "roce_address";
}

layout! {
    /// Output of SET_ROCE_ADDRESS.
    pub struct SetRoceAddressOut, "set_roce_address_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_ROCE_ADDRESS.
    pub struct QueryRoceAddressIn, "query_roce_address_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits roce_address_index / set_roce_address_index: u16 = 2[31:16], "roce_address_index";
    bits vhca_port_num / set_vhca_port_num: u8 = 2[3:0], "vhca_port_num";
}

layout! {
    /// Output of QUERY_ROCE_ADDRESS.
    pub struct QueryRoceAddressOut, "query_roce_address_out", 12;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part roce_address / roce_address_mut: RoceAddress = 4, "roce_address";
}

layout! {
    /// Input of QUERY_VPORT_STATE.
    pub struct QueryVportStateIn, "query_vport_state_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
}

layout! {
    /// Output of QUERY_VPORT_STATE.
    pub struct QueryVportStateOut, "query_vport_state_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits admin_state / set_admin_state: u8 = 3[7:4], "admin_state";
    bits state / set_state: u8 = 3[3:0], "state";
}

layout! {
    /// Input of QUERY_NIC_VPORT_CONTEXT.
    pub struct QueryNicVportContextIn, "query_nic_vport_context_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits allowed_list_type / set_allowed_list_type: u8 = 3[26:24], "allowed_list_type";
}

layout! {
    /// Output of QUERY_NIC_VPORT_CONTEXT.
    pub struct QueryNicVportContextOut, "query_nic_vport_context_out", 68;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part nic_vport_context / nic_vport_context_mut: NicVportContext = 4, "nic_vport_context";
}

layout! {
    /// Input of MODIFY_NIC_VPORT_CONTEXT.
    pub struct ModifyNicVportContextIn, "modify_nic_vport_context_in", 128;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits field_select_affiliation / set_field_select_affiliation: bool = 3[13:13], "field_select.affiliation";
    bits field_select_disable_uc_local_lb / set_field_select_disable_uc_local_lb: bool = 3[11:11], "field_select.disable_uc_local_lb";
    bits field_select_disable_mc_local_lb / set_field_select_disable_mc_local_lb: bool = 3[10:10], "field_select.disable_mc_local_lb";
    bits field_select_node_guid / set_field_select_node_guid: bool = 3[9:9], "field_select.node_guid";
    bits field_select_port_guid / set_field_select_port_guid: bool = 3[8:8], "field_select.port_guid";
    bits field_select_min_inline / set_field_select_min_inline: bool = 3[7:7], "field_select.min_inline";
    bits field_select_mtu / set_field_select_mtu: bool = 3[6:6], "field_select.mtu";
    bits field_select_change_event / set_field_select_change_event: bool = 3[5:5], "field_select.change_event";
    bits field_select_promisc / set_field_select_promisc: bool = 3[4:4], "field_select.promisc";
    bits field_select_permanent_address / set_field_select_permanent_address: bool = 3[3:3], "field_select.permanent_address";
    bits field_select_addresses_list / set_field_select_addresses_list: bool = 3[2:2], "field_select.addresses_list";
    bits field_select_roce_en / set_field_select_roce_en: bool = 3[1:1], "field_select.roce_en";
    part nic_vport_context / nic_vport_context_mut: NicVportContext = 64, "nic_vport_context";
}

layout! {
    /// Output of MODIFY_NIC_VPORT_CONTEXT.
    pub struct ModifyNicVportContextOut, "modify_nic_vport_context_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Register PMTU: sizes in bytes.
    pub struct PmtuRegister, "pmtu_reg", 4;
    bits local_port / set_local_port: u8 = 0[23:16], "local_port";
    bits max_mtu / set_max_mtu: u16 = 1[31:16], "max_mtu";
    bits admin_mtu / set_admin_mtu: u16 = 2[31:16], "admin_mtu";
    bits oper_mtu / set_oper_mtu: u16 = 3[31:16], "oper_mtu";
}

layout! {
    /// Register PTYS: link speeds.
    pub struct PtysRegister, "ptys_reg", 16;
    bits an_disable_admin / set_an_disable_admin: bool = 0[30:30], "an_disable_admin";
    bits an_disable_cap / set_an_disable_cap: bool = 0[29:29], "an_disable_cap";
    bits local_port / set_local_port: u8 = 0[23:16], "local_port";
    bits plane_ind / set_plane_ind: u8 = 0[7:4], "plane_ind";
    bits proto_mask / set_proto_mask: u8 = 0[2:0], "proto_mask";
    bits an_status / set_an_status: u8 = 1[31:28], "an_status";
    bits data_rate_oper / set_data_rate_oper: u16 = 1[15:0], "data_rate_oper";
    bits ext_eth_proto_capability / set_ext_eth_proto_capability: u32 = 2[31:0], "ext_eth_proto_capability";
    bits eth_proto_capability / set_eth_proto_capability: u32 = 3[31:0], "eth_proto_capability";
    bits ib_link_width_capability / set_ib_link_width_capability: u16 = 4[31:16], "ib_link_width_capability";
    bits ib_proto_capability / set_ib_proto_capability: u16 = 4[15:0], "ib_proto_capability";
    bits ext_eth_proto_admin / set_ext_eth_proto_admin: u32 = 5[31:0], "ext_eth_proto_admin";
    bits eth_proto_admin / set_eth_proto_admin: u32 = 6[31:0], "eth_proto_admin";
    bits ib_link_width_admin / set_ib_link_width_admin: u16 = 7[31:16], "ib_link_width_admin";
    bits ib_proto_admin / set_ib_proto_admin: u16 = 7[15:0], "ib_proto_admin";
    bits ext_eth_proto_oper / set_ext_eth_proto_oper: u32 = 8[31:0], "ext_eth_proto_oper";
    bits eth_proto_oper / set_eth_proto_oper: u32 = 9[31:0], "eth_proto_oper";
    bits ib_link_width_oper / set_ib_link_width_oper: u16 = 10[31:16], "ib_link_width_oper";
    bits ib_proto_oper / set_ib_proto_oper: u16 = 10[15:0], "ib_proto_oper";
    bits connector_type / set_connector_type: u8 = 11[3:0], "connector_type";
    bits eth_proto_lp_advertise / set_eth_proto_lp_advertise: u32 = 12[31:0], "eth_proto_lp_advertise";
}

layout! {
    /// Register PAOS: administrative and operational state.
    pub struct PaosRegister, "paos_reg", 4;
    bits swid / set_swid: u8 = 0[31:24], "swid";
    bits local_port / set_local_port: u8 = 0[23:16], "local_port";
    bits admin_status / set_admin_status: u8 = 0[11:8], "admin_status";
    bits oper_status / set_oper_status: u8 = 0[3:0], "oper_status";
    bits ase / set_ase: bool = 1[31:31], "ase";
    bits ee / set_ee: bool = 1[30:30], "ee";
    bits e / set_e: u8 = 1[1:0], "e";
}

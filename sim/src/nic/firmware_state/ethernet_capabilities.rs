//! The capabilities of Ethernet ports.

use super::limits::{
    FLOW_TABLE_LEVELS, LOG_FLOW_COUNTERS, LOG_FLOW_DESTINATIONS, LOG_FLOW_TABLE_SIZE, LOG_FLOW_TABLES,
    LOG_MULTICAST, LOG_UNICAST, LOG_VLANS,
};
use crate::nic::RoceSupport;
use crate::nic::ethernet::send::LOG_LARGEST;
use bareverbs_prm::command::caps::GeneralCapabilities;
use bareverbs_prm::command::caps_ethernet::{
    EthernetCapabilities, FlowTableProperties, NicFlowTableCapabilities,
};
use bareverbs_prm::numbering::PortType;

/// log2 of the objects of one kind, of the entries of a queue, and of the entries of a receive queue table.
const LOG_OBJECTS: u8 = 16;
const LOG_QUEUE: u8 = 15;
const LOG_QUEUE_TABLE: u8 = 11;
/// `wqe_inline_mode`: no bytes of a packet need to be inline.
const INLINE_NOT_REQUIRED: u8 = 2;

/// Adds the features of an Ethernet port to the general page.
pub(super) fn extend(page: &mut GeneralCapabilities, roce: RoceSupport) {
    page.set_port_type(PortType::Ethernet).set_roce(roce != RoceSupport::OFF);
    page.set_eth_net_offloads(true).set_nic_flow_table(true).set_vport_counters(true);
    page.set_log_max_transport_domain(LOG_OBJECTS).set_log_max_tis(LOG_OBJECTS).set_log_max_tir(LOG_OBJECTS);
    page.set_log_max_sq(LOG_OBJECTS).set_log_max_rq(LOG_OBJECTS).set_log_max_wq_sz(LOG_QUEUE);
    page.set_log_max_rqt(LOG_OBJECTS).set_log_max_rqt_size(LOG_QUEUE_TABLE);
    page.set_log_max_current_uc_list(LOG_UNICAST).set_log_max_current_mc_list(LOG_MULTICAST);
    page.set_log_max_vlan_list(LOG_VLANS);
    page.set_qkv(true);
}

/// Checksums, VLAN tags, large sends and RSS. Tunnels, LRO and multi-packet WQEs are not offered.
pub(super) fn offloads() -> EthernetCapabilities {
    let mut page = EthernetCapabilities::new();
    page.set_csum_cap(true).set_cqe_checksum_full(true).set_vlan_cap(true).set_wqe_vlan_insert(true);
    page.set_max_lso_cap(LOG_LARGEST).set_rss_ind_tbl_cap(LOG_QUEUE_TABLE);
    page.set_self_lb_en_modifiable(true).set_wqe_inline_mode(INLINE_NOT_REQUIRED);
    page
}

/// Flow tables for received packets.
pub(super) fn flow_tables() -> NicFlowTableCapabilities {
    let mut page = NicFlowTableCapabilities::new();
    let properties = page.flow_table_properties_nic_receive_mut();
    properties.set_ft_support(true).set_flow_counter(true).set_flow_modify_en(true).set_modify_root(true);
    properties.set_identified_miss_table_mode(true).set_flow_table_modify(true).set_ignore_flow_level(true);
    properties
        .set_log_max_ft_size(LOG_FLOW_TABLE_SIZE)
        .set_max_ft_level(FLOW_TABLE_LEVELS)
        .set_log_max_ft_num(LOG_FLOW_TABLES);
    properties.set_log_max_flow_counter(LOG_FLOW_COUNTERS).set_log_max_destination(LOG_FLOW_DESTINATIONS);
    properties.set_log_max_flow(LOG_FLOW_TABLE_SIZE);
    set_fields(properties);
    page
}

/// The headers that flows can match: those of layers 2 to 4.
fn set_fields(page: &mut FlowTableProperties) {
    page.set_outer_dmac(true).set_outer_smac(true).set_outer_ether_type(true).set_outer_ip_version(true);
    page.set_outer_first_prio(true).set_outer_first_cfi(true).set_outer_first_vid(true);
    page.set_outer_ipv4_ttl(true).set_outer_sip(true).set_outer_dip(true).set_outer_frag(true);
    page.set_outer_ip_protocol(true).set_outer_ip_ecn(true).set_outer_ip_dscp(true);
    page.set_outer_udp_sport(true).set_outer_udp_dport(true);
    page.set_outer_tcp_sport(true).set_outer_tcp_dport(true).set_outer_tcp_flags(true);
}

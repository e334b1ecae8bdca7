//! Contexts: the state of an object in the device, as commands carry it.

use crate::ids::{Cqn, Pdn, Qpn, UarIndex, Xrcdn};
use crate::layout;
use crate::numbering::{
    EventQueueStatus, PathMigration, PathMtu, QpState, RoceL3Type, RoceVersion, ServiceType,
};
use crate::psn::Psn;

layout! {
    /// Address path of a queue pair.
    pub struct AddressPath, "ads", 11;
    bits fl / set_fl: bool = 0[31:31], "fl";
    bits free_ar / set_free_ar: bool = 0[30:30], "free_ar";
    bits pkey_index / set_pkey_index: u16 = 0[15:0], "pkey_index";
    bits plane_index / set_plane_index: u8 = 1[31:24], "plane_index";
    bits grh / set_grh: bool = 1[23:23], "grh";
    bits mlid / set_mlid: u8 = 1[22:16], "mlid";
    bits rlid / set_rlid: u16 = 1[15:0], "rlid";
    bits ack_timeout / set_ack_timeout: u8 = 2[31:27], "ack_timeout";
    bits src_addr_index / set_src_addr_index: u8 = 2[23:16], "src_addr_index";
    bits stat_rate / set_stat_rate: u8 = 2[11:8], "stat_rate";
    bits hop_limit / set_hop_limit: u8 = 2[7:0], "hop_limit";
    bits tclass / set_tclass: u8 = 3[27:20], "tclass";
    bits flow_label / set_flow_label: u32 = 3[19:0], "flow_label";
    bytes rgid_rip / set_rgid_rip: 16 = 4, "rgid_rip";
    bits f_dscp / set_f_dscp: bool = 8[27:27], "f_dscp";
    bits f_ecn / set_f_ecn: bool = 8[26:26], "f_ecn";
    bits f_eth_prio / set_f_eth_prio: bool = 8[24:24], "f_eth_prio";
    bits ecn / set_ecn: u8 = 8[23:22], "ecn";
    bits dscp / set_dscp: u8 = 8[21:16], "dscp";
    bits udp_sport / set_udp_sport: u16 = 8[15:0], "udp_sport";
    bits dei_cfi / set_dei_cfi: bool = 9[31:31], "dei_cfi";
    bits eth_prio / set_eth_prio: u8 = 9[30:28], "eth_prio";
    bits sl / set_sl: u8 = 9[27:24], "sl";
    bits vhca_port_num / set_vhca_port_num: u8 = 9[23:16], "vhca_port_num";
    bits rmac_47_32 / set_rmac_47_32: u16 = 9[15:0], "rmac_47_32";
    bits rmac_31_0 / set_rmac_31_0: u32 = 10[31:0], "rmac_31_0";
}

layout! {
    /// Queue pair context.
    pub struct QueuePairContext, "qpc", 58;
    bits state / set_state: QpState = 0[31:28], "state";
    bits lag_tx_port_affinity / set_lag_tx_port_affinity: u8 = 0[27:24], "lag_tx_port_affinity";
    bits st / set_st: ServiceType = 0[23:16], "st";
    bits isolate_vl_tc / set_isolate_vl_tc: bool = 0[13:13], "isolate_vl_tc";
    bits pm_state / set_pm_state: PathMigration = 0[12:11], "pm_state";
    bits req_e2e_credit_mode / set_req_e2e_credit_mode: u8 = 0[9:8], "req_e2e_credit_mode";
    bits offload_type / set_offload_type: u8 = 0[7:4], "offload_type";
    bits end_padding_mode / set_end_padding_mode: u8 = 0[3:2], "end_padding_mode";
    bits wq_signature / set_wq_signature: bool = 1[31:31], "wq_signature";
    bits block_lb_mc / set_block_lb_mc: bool = 1[30:30], "block_lb_mc";
    bits atomic_like_write_en / set_atomic_like_write_en: bool = 1[29:29], "atomic_like_write_en";
    bits latency_sensitive / set_latency_sensitive: bool = 1[28:28], "latency_sensitive";
    bits drain_sigerr / set_drain_sigerr: bool = 1[26:26], "drain_sigerr";
    bits pd / set_pd: Pdn = 1[23:0], "pd";
    bits mtu / set_mtu: PathMtu = 2[31:29], "mtu";
    bits log_msg_max / set_log_msg_max: u8 = 2[28:24], "log_msg_max";
    bits log_rq_size / set_log_rq_size: u8 = 2[22:19], "log_rq_size";
    bits log_rq_stride / set_log_rq_stride: u8 = 2[18:16], "log_rq_stride";
    bits no_sq / set_no_sq: bool = 2[15:15], "no_sq";
    bits log_sq_size / set_log_sq_size: u8 = 2[14:11], "log_sq_size";
    bits retry_mode / set_retry_mode: u8 = 2[9:8], "retry_mode";
    bits ts_format / set_ts_format: u8 = 2[7:6], "ts_format";
    bits rlky / set_rlky: bool = 2[4:4], "rlky";
    bits ulp_stateless_offload_mode / set_ulp_stateless_offload_mode: u8 = 2[3:0], "ulp_stateless_offload_mode";
    bits counter_set_id / set_counter_set_id: u8 = 3[31:24], "counter_set_id";
    bits uar_page / set_uar_page: UarIndex = 3[23:0], "uar_page";
    bits user_index / set_user_index: u32 = 4[23:0], "user_index";
    bits log_page_size / set_log_page_size: u8 = 5[28:24], "log_page_size";
    bits remote_qpn / set_remote_qpn: Qpn = 5[23:0], "remote_qpn";
    part primary_address_path / primary_address_path_mut: AddressPath = 6, "primary_address_path";
    part secondary_address_path / secondary_address_path_mut: AddressPath = 17, "secondary_address_path";
    bits log_ack_req_freq / set_log_ack_req_freq: u8 = 28[31:28], "log_ack_req_freq";
    bits log_sra_max / set_log_sra_max: u8 = 28[23:21], "log_sra_max";
    bits retry_count / set_retry_count: u8 = 28[18:16], "retry_count";
    bits rnr_retry / set_rnr_retry: u8 = 28[15:13], "rnr_retry";
    bits fre / set_fre: bool = 28[11:11], "fre";
    bits cur_rnr_retry / set_cur_rnr_retry: u8 = 28[10:8], "cur_rnr_retry";
    bits cur_retry_count / set_cur_retry_count: u8 = 28[7:5], "cur_retry_count";
    bits next_send_psn / set_next_send_psn: Psn = 30[23:0], "next_send_psn";
    bits log_num_dci_stream_channels / set_log_num_dci_stream_channels: u8 = 31[28:24], "log_num_dci_stream_channels";
    bits cqn_snd / set_cqn_snd: Cqn = 31[23:0], "cqn_snd";
    bits log_num_dci_errored_streams / set_log_num_dci_errored_streams: u8 = 32[28:24], "log_num_dci_errored_streams";
    bits deth_sqpn / set_deth_sqpn: Qpn = 32[23:0], "deth_sqpn";
    bits last_acked_psn / set_last_acked_psn: Psn = 34[23:0], "last_acked_psn";
    bits ssn / set_ssn: u32 = 35[23:0], "ssn";
    bits log_rra_max / set_log_rra_max: u8 = 36[23:21], "log_rra_max";
    bits atomic_mode / set_atomic_mode: u8 = 36[19:16], "atomic_mode";
    bits rre / set_rre: bool = 36[15:15], "rre";
    bits rwe / set_rwe: bool = 36[14:14], "rwe";
    bits rae / set_rae: bool = 36[13:13], "rae";
    bits page_offset / set_page_offset: u8 = 36[11:6], "page_offset";
    bits cd_slave_receive / set_cd_slave_receive: bool = 36[2:2], "cd_slave_receive";
    bits cd_slave_send / set_cd_slave_send: bool = 36[1:1], "cd_slave_send";
    bits cd_master / set_cd_master: bool = 36[0:0], "cd_master";
    bits min_rnr_nak / set_min_rnr_nak: u8 = 37[28:24], "min_rnr_nak";
    bits next_rcv_psn / set_next_rcv_psn: Psn = 37[23:0], "next_rcv_psn";
    bits xrcd / set_xrcd: Xrcdn = 38[23:0], "xrcd";
    bits cqn_rcv / set_cqn_rcv: Cqn = 39[23:0], "cqn_rcv";
    wide dbr_addr / set_dbr_addr: u64 = 40, "dbr_addr";
    bits q_key / set_q_key: u32 = 42[31:0], "q_key";
    bits rq_type / set_rq_type: u8 = 43[26:24], "rq_type";
    bits srqn_rmpn_xrqn / set_srqn_rmpn_xrqn: u32 = 43[23:0], "srqn_rmpn_xrqn";
    bits rmsn / set_rmsn: u32 = 44[23:0], "rmsn";
    bits hw_sq_wqebb_counter / set_hw_sq_wqebb_counter: u16 = 45[31:16], "hw_sq_wqebb_counter";
    bits sw_sq_wqebb_counter / set_sw_sq_wqebb_counter: u16 = 45[15:0], "sw_sq_wqebb_counter";
    bits hw_rq_counter / set_hw_rq_counter: u32 = 46[31:0], "hw_rq_counter";
    bits sw_rq_counter / set_sw_rq_counter: u32 = 47[31:0], "sw_rq_counter";
    bits cgs / set_cgs: bool = 49[16:16], "cgs";
    bits cs_req / set_cs_req: u8 = 49[15:8], "cs_req";
    bits cs_res / set_cs_res: u8 = 49[7:0], "cs_res";
    wide dc_access_key / set_dc_access_key: u64 = 50, "dc_access_key";
    bits dbr_umem_valid / set_dbr_umem_valid: bool = 52[28:28], "dbr_umem_valid";
    bits dbr_umem_id / set_dbr_umem_id: u32 = 57[31:0], "dbr_umem_id";
}

layout! {
    /// The extension of a queue pair's context, in commands that announce it (`qpc_ext`).
    pub struct QueuePairExtension, "qpc_ext", 48;
    /// The queue pair takes work requests for memory-to-memory operations (MMO).
    bits mmo / set_mmo: bool = 0[29:29], "mmo";
}

layout! {
    /// Completion queue context.
    pub struct CompletionQueueContext, "cqc", 16;
    bits status / set_status: u8 = 0[31:28], "status";
    bits dbr_umem_valid / set_dbr_umem_valid: bool = 0[25:25], "dbr_umem_valid";
    bits apu_cq / set_apu_cq: bool = 0[24:24], "apu_cq";
    bits cqe_sz / set_cqe_sz: u8 = 0[23:21], "cqe_sz";
    bits cc / set_cc: bool = 0[20:20], "cc";
    bits scqe_break_moderation_en / set_scqe_break_moderation_en: bool = 0[18:18], "scqe_break_moderation_en";
    bits oi / set_oi: bool = 0[17:17], "oi";
    bits cq_period_mode / set_cq_period_mode: u8 = 0[16:15], "cq_period_mode";
    bits cqe_comp_en / set_cqe_comp_en: bool = 0[14:14], "cqe_comp_en";
    bits mini_cqe_res_format / set_mini_cqe_res_format: u8 = 0[13:12], "mini_cqe_res_format";
    bits st / set_st: u8 = 0[11:8], "st";
    bits cqe_compression_layout / set_cqe_compression_layout: u8 = 0[1:0], "cqe_compression_layout";
    bits dbr_umem_id / set_dbr_umem_id: u32 = 1[31:0], "dbr_umem_id";
    bits page_offset / set_page_offset: u8 = 2[11:6], "page_offset";
    bits log_cq_size / set_log_cq_size: u8 = 3[28:24], "log_cq_size";
    bits uar_page / set_uar_page: UarIndex = 3[23:0], "uar_page";
    bits cq_period / set_cq_period: u16 = 4[27:16], "cq_period";
    bits cq_max_count / set_cq_max_count: u16 = 4[15:0], "cq_max_count";
    bits c_eqn_or_apu_element / set_c_eqn_or_apu_element: u32 = 5[31:0], "c_eqn_or_apu_element";
    bits log_page_size / set_log_page_size: u8 = 6[28:24], "log_page_size";
    bits last_notified_index / set_last_notified_index: u32 = 8[23:0], "last_notified_index";
    bits last_solicit_index / set_last_solicit_index: u32 = 9[23:0], "last_solicit_index";
    bits consumer_counter / set_consumer_counter: u32 = 10[23:0], "consumer_counter";
    bits producer_counter / set_producer_counter: u32 = 11[23:0], "producer_counter";
    wide dbr_addr / set_dbr_addr: u64 = 14, "dbr_addr";
}

layout! {
    /// Event queue context.
    pub struct EventQueueContext, "eqc", 16;
    bits status / set_status: EventQueueStatus = 0[31:28], "status";
    bits ec / set_ec: bool = 0[18:18], "ec";
    bits oi / set_oi: bool = 0[17:17], "oi";
    bits st / set_st: u8 = 0[11:8], "st";
    bits page_offset / set_page_offset: u8 = 2[11:6], "page_offset";
    bits log_eq_size / set_log_eq_size: u8 = 3[28:24], "log_eq_size";
    bits uar_page / set_uar_page: UarIndex = 3[23:0], "uar_page";
    bits intr / set_intr: u16 = 5[11:0], "intr";
    bits log_page_size / set_log_page_size: u8 = 6[28:24], "log_page_size";
    bits consumer_counter / set_consumer_counter: u32 = 10[23:0], "consumer_counter";
    bits producer_counter / set_producer_counter: u32 = 11[23:0], "producer_counter";
}

layout! {
    /// Memory key context.
    pub struct MkeyContext, "mkc", 16;
    bits free / set_free: bool = 0[30:30], "free";
    bits access_mode_4_2 / set_access_mode_4_2: u8 = 0[28:26], "access_mode_4_2";
    bits relaxed_ordering_write / set_relaxed_ordering_write: bool = 0[18:18], "relaxed_ordering_write";
    bits small_fence_on_rdma_read_response / set_small_fence_on_rdma_read_response: bool = 0[16:16], "small_fence_on_rdma_read_response";
    bits umr_en / set_umr_en: bool = 0[15:15], "umr_en";
    bits a / set_a: bool = 0[14:14], "a";
    bits rw / set_rw: bool = 0[13:13], "rw";
    bits rr / set_rr: bool = 0[12:12], "rr";
    bits lw / set_lw: bool = 0[11:11], "lw";
    bits lr / set_lr: bool = 0[10:10], "lr";
    bits access_mode_1_0 / set_access_mode_1_0: u8 = 0[9:8], "access_mode_1_0";
    bits ma_translation_mode / set_ma_translation_mode: u8 = 0[5:4], "ma_translation_mode";
    bits qpn / set_qpn: Qpn = 1[31:8], "qpn";
    bits mkey_7_0 / set_mkey_7_0: u8 = 1[7:0], "mkey_7_0";
    bits length64 / set_length64: bool = 3[31:31], "length64";
    bits bsf_en / set_bsf_en: bool = 3[30:30], "bsf_en";
    bits sync_umr / set_sync_umr: bool = 3[29:29], "sync_umr";
    bits expected_sigerr_count / set_expected_sigerr_count: bool = 3[26:26], "expected_sigerr_count";
    bits en_rinval / set_en_rinval: bool = 3[24:24], "en_rinval";
    bits pd / set_pd: Pdn = 3[23:0], "pd";
    wide start_addr / set_start_addr: u64 = 4, "start_addr";
    wide length / set_length: u64 = 6, "len";
    bits bsf_octword_size / set_bsf_octword_size: u32 = 8[31:0], "bsf_octword_size";
    bits crossing_target_vhca_id / set_crossing_target_vhca_id: u16 = 12[31:16], "crossing_target_vhca_id";
    bits translations_octword_size / set_translations_octword_size: u32 = 13[31:0], "translations_octword_size";
    bits relaxed_ordering_read / set_relaxed_ordering_read: bool = 14[6:6], "relaxed_ordering_read";
    bits log_page_size / set_log_page_size: u8 = 14[5:0], "log_page_size";
}

layout! {
    /// An entry of the RoCE address table.
    pub struct RoceAddress, "roce_addr_layout", 8;
    bytes source_l3_address / set_source_l3_address: 16 = 0, "source_l3_address";
    bits vlan_valid / set_vlan_valid: bool = 4[28:28], "vlan_valid";
    bits vlan_id / set_vlan_id: u16 = 4[27:16], "vlan_id";
    bits source_mac_47_32 / set_source_mac_47_32: u16 = 4[15:0], "source_mac_47_32";
    bits source_mac_31_0 / set_source_mac_31_0: u32 = 5[31:0], "source_mac_31_0";
    bits roce_l3_type / set_roce_l3_type: RoceL3Type = 6[11:8], "roce_l3_type";
    bits roce_version / set_roce_version: RoceVersion = 6[7:0], "roce_version";
}

layout! {
    /// A MAC address in two parts.
    pub struct MacAddressLayout, "mac_address_layout", 2;
    bits mac_addr_47_32 / set_mac_addr_47_32: u16 = 0[15:0], "mac_addr_47_32";
    bits mac_addr_31_0 / set_mac_addr_31_0: u32 = 1[31:0], "mac_addr_31_0";
}

layout! {
    /// Context of an Ethernet virtual port.
    pub struct NicVportContext, "nic_vport_context", 64;
    bits min_wqe_inline_mode / set_min_wqe_inline_mode: u8 = 0[26:24], "min_wqe_inline_mode";
    bits disable_mc_local_lb / set_disable_mc_local_lb: bool = 0[2:2], "disable_mc_local_lb";
    bits disable_uc_local_lb / set_disable_uc_local_lb: bool = 0[1:1], "disable_uc_local_lb";
    bits roce_en / set_roce_en: bool = 0[0:0], "roce_en";
    bits arm_change_event / set_arm_change_event: bool = 1[31:31], "arm_change_event";
    bits event_on_mtu / set_event_on_mtu: bool = 1[4:4], "event_on_mtu";
    bits event_on_promisc_change / set_event_on_promisc_change: bool = 1[3:3], "event_on_promisc_change";
    bits event_on_vlan_change / set_event_on_vlan_change: bool = 1[2:2], "event_on_vlan_change";
    bits event_on_mc_address_change / set_event_on_mc_address_change: bool = 1[1:1], "event_on_mc_address_change";
    bits event_on_uc_address_change / set_event_on_uc_address_change: bool = 1[0:0], "event_on_uc_address_change";
    bits vhca_id_type / set_vhca_id_type: bool = 2[31:31], "vhca_id_type";
    bits affiliation_criteria / set_affiliation_criteria: u8 = 2[19:16], "affiliation_criteria";
    bits affiliated_vhca_id / set_affiliated_vhca_id: u16 = 2[15:0], "affiliated_vhca_id";
    bits sd_group / set_sd_group: u8 = 8[30:28], "sd_group";
    bits mtu / set_mtu: u16 = 9[15:0], "mtu";
    wide system_image_guid / set_system_image_guid: u64 = 10, "system_image_guid";
    wide port_guid / set_port_guid: u64 = 12, "port_guid";
    wide node_guid / set_node_guid: u64 = 14, "node_guid";
    bits qkey_violation_counter / set_qkey_violation_counter: u16 = 26[31:16], "qkey_violation_counter";
    bits promisc_uc / set_promisc_uc: bool = 60[31:31], "promisc_uc";
    bits promisc_mc / set_promisc_mc: bool = 60[30:30], "promisc_mc";
    bits promisc_all / set_promisc_all: bool = 60[29:29], "promisc_all";
    bits allowed_list_type / set_allowed_list_type: u8 = 60[26:24], "allowed_list_type";
    bits allowed_list_size / set_allowed_list_size: u16 = 60[11:0], "allowed_list_size";
    part permanent_address / permanent_address_mut: MacAddressLayout = 61, "permanent_address";
}

impl NicVportContext {
    /// Byte offset of the variable-length `current_uc_mac_address`.
    pub const CURRENT_UC_MAC_ADDRESS_OFFSET: usize = 256;
}

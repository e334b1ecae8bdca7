//! Capability pages, which QUERY_HCA_CAP shows and SET_HCA_CAP changes. A bit is set only if the model
//! implements it.

use super::ethernet_capabilities;
use super::limits::{LOG_MAX_UCTX, LOG_MAX_UMEM, SOURCE_PORTS};
use crate::nic::completion::LONGEST_RUN;
use crate::nic::features::Features;
use crate::nic::mkey::MAX_INDIRECTION;
use crate::nic::multicast::{GROUP_MEMBERS, LOG_GROUPS};
use crate::nic::syndrome::{self, Refusal};
use crate::nic::wqe::LOG_MAX_DMA;
use crate::nic::{LinkLayer, NicConfig};
use bareverbs_prm::command::caps::{
    AtomicCapabilities, GeneralCapabilities, GeneralCapabilities2, RoceCapabilities,
};
use bareverbs_prm::command::general_object::{ALLOWED_MKEY, LOCAL_MKEY_TO_REMOTE_MKEY};
use bareverbs_prm::field::{FieldInfo, Layout};
use bareverbs_prm::numbering::{CapabilityType, PortType};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Bytes of a page.
pub(in crate::nic) const PAGE: usize = 256;
/// Counter sets: as many as `counter_set_id` has nonzero values.
const COUNTER_SETS: u16 = 255;
/// What `cmdif_checksum` offers; 3 signs everything.
const CHECKSUMS: u8 = 3;

/// The maximum and the current capabilities of the device.
#[derive(Debug)]
pub(crate) struct Capabilities {
    pub(crate) general: GeneralCapabilities,
    general_maximum: GeneralCapabilities,
    atomic: AtomicCapabilities,
    atomic_maximum: AtomicCapabilities,
    roce: RoceCapabilities,
    roce_maximum: RoceCapabilities,
    link_layer: LinkLayer,
    general2: GeneralCapabilities2,
    /// The current features that queue pairs depend on.
    features: Features,
}

impl Capabilities {
    pub(crate) fn new(config: &NicConfig) -> Self {
        let general_maximum = general(config);
        let mut general = general_maximum;
        general.set_cmdif_checksum(0);
        let (atomic_maximum, roce_maximum) = (atomic(), roce(config));
        let (mut atomic, mut roce) = (atomic_maximum, roce_maximum);
        atomic.set_supported_atomic_req_8b_endianness_mode_1(true);
        roce.set_sw_r_roce_src_udp_port(false);
        let features = features_of(&general, &atomic, &roce);
        Self {
            general,
            general_maximum,
            atomic,
            atomic_maximum,
            roce,
            roce_maximum,
            link_layer: config.link_layer,
            general2: general2(config),
            features,
        }
    }

    /// Whether command entries and mailboxes are signed.
    pub(crate) fn checksums(&self) -> bool {
        self.general.cmdif_checksum() != 0
    }

    /// The current features that queue pairs depend on.
    pub(crate) const fn features(&self) -> &Features {
        &self.features
    }

    fn adopt_features(&mut self) {
        self.features = features_of(&self.general, &self.atomic, &self.roce);
    }

    pub(in crate::nic) fn page(&self, kind: CapabilityType, current: bool) -> Option<[u8; PAGE]> {
        let (offloads, flow_tables) =
            (ethernet_capabilities::offloads(), ethernet_capabilities::flow_tables());
        let page: &[u8] = match (kind, current) {
            (CapabilityType::EthernetOffloads | CapabilityType::FlowTable, _)
                if self.link_layer == LinkLayer::InfiniBand =>
            {
                return None;
            }
            (CapabilityType::EthernetOffloads, _) => offloads.as_bytes(),
            (CapabilityType::FlowTable, _) => flow_tables.as_bytes(),
            (CapabilityType::General, true) => self.general.as_bytes(),
            (CapabilityType::General, false) => self.general_maximum.as_bytes(),
            (CapabilityType::General2, _) => self.general2.as_bytes(),
            (CapabilityType::Atomic, true) => self.atomic.as_bytes(),
            (CapabilityType::Atomic, false) => self.atomic_maximum.as_bytes(),
            (CapabilityType::Roce, true) => self.roce.as_bytes(),
            (CapabilityType::Roce, false) => self.roce_maximum.as_bytes(),
            _ => return None,
        };
        page.get(..PAGE)?.try_into().ok()
    }

    pub(in crate::nic) fn set_general(&mut self, page: &[u8]) -> Result<(), Refusal> {
        let requested = read_page::<GeneralCapabilities>(page);
        let adopted =
            adopt(requested.as_bytes(), self.general_maximum.as_bytes(), GeneralCapabilities::INFO.fields)?;
        self.general = read_page(&adopted);
        self.adopt_features();
        Ok(())
    }

    pub(in crate::nic) fn set_atomic(&mut self, page: &[u8]) -> Result<(), Refusal> {
        let mode = read_page::<AtomicCapabilities>(page).atomic_req_8b_endianness_mode();
        if mode > 1 {
            return Err(syndrome::CAPABILITY_ABOVE_MAXIMUM);
        }
        self.atomic.set_atomic_req_8b_endianness_mode(mode);
        self.adopt_features();
        Ok(())
    }

    pub(in crate::nic) fn set_roce(&mut self, page: &[u8]) {
        let requested = read_page::<RoceCapabilities>(page).sw_r_roce_src_udp_port();
        self.roce.set_sw_r_roce_src_udp_port(requested);
        self.adopt_features();
    }
}

fn features_of(
    general: &GeneralCapabilities,
    atomic: &AtomicCapabilities,
    roce: &RoceCapabilities,
) -> Features {
    Features {
        software_source_port: roce.sw_r_roce_src_udp_port(),
        host_order_atomics: atomic.atomic_req_8b_endianness_mode() == 1,
        fixed_page_size: general.umr_modify_entity_size_disabled(),
        fixed_atomic: general.umr_modify_atomic_disabled(),
        fixed_indirect: general.umr_indirect_mkey_disabled(),
    }
}

fn read_page<T: FromBytes + FromZeros + IntoBytes>(page: &[u8]) -> T {
    T::read_from_prefix(page).map_or_else(|_| T::new_zeroed(), |(page, _)| page)
}

/// The part of a page that SET_HCA_CAP adopts: features that are offered, and numbers up to their maximum. A
/// limit above its maximum is refused; undeclared bits are dropped.
fn adopt(requested: &[u8], maximum: &[u8], fields: &[FieldInfo]) -> Result<[u8; PAGE], Refusal> {
    let mut adopted = [0; PAGE];
    for field in fields {
        let (requested_value, allowed) = (bits(requested, field), bits(maximum, field));
        if field.path.starts_with("log_max_") && requested_value > allowed {
            return Err(syndrome::CAPABILITY_ABOVE_MAXIMUM);
        }
        let value =
            if field.bit_width == 1 { requested_value & allowed } else { requested_value.min(allowed) };
        set_bits(&mut adopted, field, value);
    }
    Ok(adopted)
}

fn bits(page: &[u8], field: &FieldInfo) -> u64 {
    let bits = field.bit_offset..field.bit_offset + field.bit_width;
    bits.fold(0, |value, bit| value << 1 | u64::from(page[bit as usize / 8] >> (7 - bit % 8) & 1))
}

fn set_bits(page: &mut [u8], field: &FieldInfo, value: u64) {
    for i in 0..field.bit_width {
        let bit = field.bit_offset + i;
        page[bit as usize / 8] |= ((value >> (field.bit_width - 1 - i) & 1) as u8) << (7 - bit % 8);
    }
}

fn general(config: &NicConfig) -> GeneralCapabilities {
    let limits = &config.limits;
    let mut page = GeneralCapabilities::new();
    page.set_log_max_qp(limits.log_max_qp).set_log_max_qp_sz(limits.log_max_qp_size);
    page.set_log_max_cq(limits.log_max_cq).set_log_max_cq_sz(limits.log_max_cq_size);
    page.set_log_max_eq(limits.log_max_eq).set_log_max_eq_sz(limits.log_max_eq_size);
    page.set_log_max_pd(limits.log_max_pd).set_log_max_mkey(limits.log_max_mkey);
    page.set_log_max_msg(limits.log_max_message).set_log_max_mrw_sz(64);
    page.set_log_max_ra_req_qp(limits.log_max_initiator_depth);
    page.set_log_max_ra_res_qp(limits.log_max_responder_resources);
    page.set_max_wqe_sz_sq(limits.max_send_wqe).set_max_wqe_sz_rq(limits.max_receive_wqe);
    page.set_gid_table_size(limits.gid_table_size).set_pkey_table_size(0);
    page.set_num_ports(1).set_native_port_num(config.card_port);
    page.set_local_ca_ack_delay(15).set_max_sgl_for_optimized_performance(4);
    page.set_hca_cap_2(true).set_atomic(true).set_rc(true).set_uc(true).set_ud(true);
    page.set_cq_oi(true).set_pkv(true).set_cqe_version(1);
    page.set_max_qp_cnt(COUNTER_SETS).set_out_of_seq_cnt(true).set_retransmission_q_counters(true);
    page.set_enhanced_error_q_counters(true).set_rts2rts_qp_counters_set_id(true);
    page.set_cc_query_allowed(true).set_pcam_reg(true);
    page.set_cqe_compression(true).set_cqe_compression_max_num(LONGEST_RUN as u16);
    page.set_umr_modify_entity_size_disabled(!config.translation_updates);
    page.set_bf(config.blue_flame);
    memory_keys(&mut page);
    page.set_cq_resize(true).set_cq_moderation(true).set_cq_period_mode_modify(true);
    page.set_cq_period_start_from_cqe(true).set_scqe_break_moderation(true).set_cq_eq_remap(true);
    page.set_log_pg_sz(12).set_log_bf_reg_size(9).set_driver_version(true);
    // The internal timer and the time stamps of completions count nanoseconds.
    page.set_device_frequency_mhz(1000).set_device_frequency_khz(1_000_000);
    page.set_cmdif_checksum(CHECKSUMS);
    // Without user contexts, only the device's own driver uses user memory objects.
    page.set_umem_uid_0(true).set_log_max_umem(LOG_MAX_UMEM);
    page.set_log_max_uctx(if config.user_contexts { LOG_MAX_UCTX } else { 0 });
    shared_receives(&mut page, config);
    if let Some(function) = &config.card {
        // Queue pairs copy memory by work requests if their extended context enables it.
        page.set_vhca_id(function.vhca_id).set_qpc_extension(true);
        page.set_dma_mmo_qp(true).set_log_dma_mmo_max_size(LOG_MAX_DMA);
    }
    page.set_log_max_mcg(LOG_GROUPS).set_max_qp_mcg(GROUP_MEMBERS).set_block_lb_mc(true);
    match config.link_layer {
        LinkLayer::Ethernet => ethernet_capabilities::extend(&mut page, config.roce),
        LinkLayer::InfiniBand => infiniband(&mut page),
    }
    page
}

/// What drivers of InfiniBand ports additionally need (Linux `drivers/infiniband/hw/mlx5/main.c`).
fn infiniband(page: &mut GeneralCapabilities) {
    page.set_port_type(PortType::Ib).set_ib_virt(true).set_vport_counters(true).set_qkv(true);
}

/// Memory windows, indirect keys, and all updates by work requests except signatures.
fn memory_keys(page: &mut GeneralCapabilities) {
    page.set_imaicl(true).set_max_indirection(MAX_INDIRECTION).set_fixed_buffer_size(true);
    page.set_log_max_klm_list_size(16).set_umr_extended_translation_offset(true);
    // Accesses are always in order, which is compatible with relaxed ordering.
    page.set_relaxed_ordering_write(true).set_relaxed_ordering_write_umr(true);
    page.set_relaxed_ordering_read(true).set_relaxed_ordering_read_umr(true);
}

/// Shared receive queues and XRC. Linux does not register a device without XRC domains.
fn shared_receives(page: &mut GeneralCapabilities, config: &NicConfig) {
    let limits = &config.limits;
    page.set_log_max_srq(limits.log_max_pd).set_log_max_srq_sz(limits.log_max_qp_size);
    page.set_log_max_rmp(limits.log_max_pd).set_xrc(true).set_log_max_xrcd(limits.log_max_pd);
}

/// Additional capabilities of a card's functions. The bits do not say whether indirect keys can be shared.
fn general2(config: &NicConfig) -> GeneralCapabilities2 {
    let mut page = GeneralCapabilities2::new();
    if config.card.is_some() {
        page.set_cross_vhca_object_to_object_supported(LOCAL_MKEY_TO_REMOTE_MKEY);
        page.set_allowed_object_for_other_vhca_access(ALLOWED_MKEY);
    }
    page
}

fn atomic() -> AtomicCapabilities {
    let mut page = AtomicCapabilities::new();
    page.set_supported_atomic_req_8b_endianness_mode_1(true);
    // Compare-and-swap, fetch-and-add, and the masked forms of both; 8 bytes only.
    page.set_atomic_operations(0xf).set_atomic_size_qp(0x8);
    page
}

fn roce(config: &NicConfig) -> RoceCapabilities {
    let mut page = RoceCapabilities::new();
    page.set_sw_r_roce_src_udp_port(true);
    // Version 2 over IPv4 and IPv6.
    page.set_roce_version(config.roce.versions()).set_l3_type(0x6);
    page.set_r_roce_dest_udp_port(crate::wire::ROCE_UDP_PORT);
    page.set_r_roce_min_src_udp_port(*SOURCE_PORTS.start()).set_r_roce_max_src_udp_port(*SOURCE_PORTS.end());
    page.set_roce_address_table_size(config.limits.roce_addresses);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_set_is_shown() {
        let mut capabilities = Capabilities::new(&NicConfig::default());
        let mut requested = capabilities.general;
        requested.set_log_max_qp(10).set_cmdif_checksum(0).set_roce_rw_supported(true);
        capabilities.set_general(requested.as_bytes()).unwrap();
        assert_eq!(capabilities.general.log_max_qp(), 10);
        assert!(!capabilities.general.roce_rw_supported(), "not offered");
        requested.set_log_max_qp(24);
        assert_eq!(capabilities.set_general(requested.as_bytes()), Err(syndrome::CAPABILITY_ABOVE_MAXIMUM));
        assert_eq!(capabilities.general.log_max_qp(), 10, "a refusal changes nothing");
    }
}

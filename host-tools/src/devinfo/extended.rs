//! Attributes that `ibv_query_device_ex` added: clocks, raw packets, rates, tag matching, memory on the device.

use super::fact::Fact;
use super::flags;
use super::pages::Pages;
use bareverbs_prm::command::caps::GeneralCapabilities;
use bareverbs_prm::numbering::PortType;

/// Completions carry time stamps of 63 bits (`mlx5_ib_query_device`).
const TIMESTAMP_MASK: u64 = u64::MAX >> 1;
/// `MLX5_MAX_CQ_COUNT` and `MLX5_MAX_CQ_PERIOD` (microseconds).
const MODERATED_COMPLETIONS: u32 = 0xffff;
const MODERATION_PERIOD: u32 = 0xfff;
/// `MLX5_RX_HASH_FUNC_TOEPLITZ`.
const TOEPLITZ: u64 = 1;
/// IPv4 and IPv6 addresses and TCP and UDP ports of both ends, also of a packet in a tunnel.
const HASHED_FIELDS: u64 = 0xff | 1 << 31;
/// `MLX5_TM_MAX_SGE`, `MLX5_TM_MAX_RNDV_MSG_SIZE` (bytes).
const TAGGED_SEGMENTS: u32 = 1;
const RENDEZVOUS_HEADER: u32 = 64;

/// Numbers of 64 bits are text: a reader of JSON may keep 53 of them only.
pub(super) fn wide(name: &str, number: u64) -> Fact {
    Fact::new(name, format!("{number:#x}"))
}

/// `mlx5_ib_query_device`.
pub(super) fn extended(pages: &Pages) -> Vec<Fact> {
    let mut facts = Vec::from(flags::on_demand_paging(pages));
    facts.push(wide("completion_timestamp_mask", TIMESTAMP_MASK));
    facts.push(clock(&pages.general));
    facts.push(flags::raw_packet(pages));
    facts.extend(raw_packet_sizes(pages));
    facts.extend(rates(pages));
    facts.extend(tag_matching(&pages.general));
    facts.extend(moderation(&pages.general));
    facts.push(device_memory(pages));
    facts
}

fn clock(general: &GeneralCapabilities) -> Fact {
    let kilohertz = general.device_frequency_khz();
    Fact::new("hca_core_clock_khz", kilohertz).shown(format!("{kilohertz} kHz"))
}

/// Segmentation, and receive queues that a hash chooses. All are for raw packets; libmlx5 receives them in its own part of the answer.
fn raw_packet_sizes(pages: &Pages) -> [Fact; 6] {
    let general = &pages.general;
    let raw = flags::raw_packets(general);
    let tables = raw && general.port_type() == PortType::Ethernet;
    let if_tables = |logarithm: u8| if tables { 1_u64 << logarithm } else { 0 };
    let offload = pages.ethernet.as_ref().filter(|_| raw);
    let hash = |value: u64| offload.map_or(0, |_| value);
    let largest = offload.map_or(0, |page| page.max_lso_cap());
    [
        Fact::new("max_tso", if largest == 0 { 0 } else { 1_u64 << largest }),
        Fact::new("max_rwq_indirection_tables", if_tables(general.log_max_rqt())),
        Fact::new("max_rwq_indirection_table_size", if_tables(general.log_max_rqt_size())),
        Fact::new("rx_hash_function", hash(TOEPLITZ)),
        wide("rx_hash_fields_mask", hash(HASHED_FIELDS)),
        Fact::new("max_wq_type_rq", if_tables(general.log_max_rq())),
    ]
}

/// Limits of the rate at which a queue pair for raw packets may be told to send.
fn rates(pages: &Pages) -> [Fact; 2] {
    let page = pages.quality_of_service.as_ref().filter(|page| page.packet_pacing());
    let page = page.filter(|_| flags::raw_packets(&pages.general));
    let rate = |name: &str, kilobits: u32| Fact::new(name, kilobits).shown(format!("{kilobits} kbit/s"));
    [
        rate("qp_rate_limit_min_kbps", page.map_or(0, |page| page.packet_pacing_min_rate())),
        rate("qp_rate_limit_max_kbps", page.map_or(0, |page| page.packet_pacing_max_rate())),
    ]
}

fn tag_matching(general: &GeneralCapabilities) -> Vec<Fact> {
    if !general.tag_matching() {
        return vec![Fact::new("max_num_tags", 0)];
    }
    let rendezvous = general.rndv_offload_rc();
    vec![
        Fact::new("max_num_tags", (1_u64 << general.log_tag_matching_list_sz()) - 1),
        Fact::new("max_ops", 1_u64 << general.log_max_qp_sz().min(63)),
        Fact::new("max_tag_sge", TAGGED_SEGMENTS),
        Fact::new("max_rndv_hdr_size", if rendezvous { RENDEZVOUS_HEADER } else { 0 }),
    ]
}

fn moderation(general: &GeneralCapabilities) -> [Fact; 2] {
    let if_moderated = |value: u32| if general.cq_moderation() { value } else { 0 };
    let period = if_moderated(MODERATION_PERIOD);
    [
        Fact::new("max_cq_count", if_moderated(MODERATED_COMPLETIONS)),
        Fact::new("max_cq_period_us", period).shown(format!("{period} us")),
    ]
}

fn device_memory(pages: &Pages) -> Fact {
    let page = pages.device_memory.as_ref().filter(|page| page.memic());
    let bytes = page.map_or(0, |page| page.max_memic_size());
    Fact::new("max_dm_size", bytes).shown(format!("{bytes} bytes"))
}

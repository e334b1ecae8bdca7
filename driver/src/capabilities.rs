//! The capabilities of the device that this driver uses, and those that it writes back at start.

use bareverbs_prm::command::caps::{AtomicCapabilities, GeneralCapabilities, RoceCapabilities};
use bareverbs_prm::ids::VhcaId;
use bareverbs_prm::numbering::{PortType, RoceVersion};

/// Limits and features of an open device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_query_device")]
pub struct Capabilities {
    /// Link layer.
    pub port_type: PortType,
    /// Number of ports.
    pub ports: u8,
    /// Largest number of queue pairs.
    pub max_queue_pairs: u32,
    /// Largest number of basic blocks of a send queue, and of entries of a receive queue.
    pub max_queue_size: u32,
    /// Largest number of shared receive queues.
    pub max_shared_receive_queues: u32,
    /// Largest number of entries of a shared receive queue, one of which is never posted.
    pub max_shared_receive_queue_size: u32,
    /// Largest number of completion queues.
    pub max_completion_queues: u32,
    /// Largest number of entries of a completion queue.
    pub max_completion_queue_entries: u32,
    /// Largest number of memory keys.
    pub max_memory_keys: u32,
    /// log2 of the longest message in bytes.
    pub log_max_message: u8,
    /// Largest send work queue entry, in bytes.
    pub max_send_entry: u32,
    /// Largest receive work queue entry, in bytes.
    pub max_receive_entry: u32,
    /// log2 of the RDMA READs and atomics that a queue pair may have outstanding.
    pub log_max_reads_as_requester: u8,
    /// log2 of the RDMA READs and atomics that a queue pair serves at a time.
    pub log_max_reads_as_responder: u8,
    /// RoCE is supported.
    pub roce: bool,
    /// RoCE version 1 (EtherType 0x8915) is supported.
    pub roce_v1: bool,
    /// RoCE version 2 (UDP) is supported.
    pub roce_v2: bool,
    /// Entries of the RoCE address table.
    pub roce_addresses: u16,
    /// UDP source ports that RoCEv2 may use, first and last.
    pub roce_source_ports: (u16, u16),
    /// 8-byte atomics: compare and swap, fetch and add.
    pub atomics: bool,
    /// Masked 8-byte atomics: compare and swap, fetch and add.
    pub masked_atomics: bool,
    /// Memory windows, fast registration, and invalidation by peers.
    pub memory_windows: bool,
    /// Largest number of pieces of an indirect region; zero if there are none.
    pub max_key_list: u32,
    /// A region can be registered with relaxed ordering of writes.
    pub relaxed_ordering: bool,
    /// Extended reliable connections (XRC).
    pub xrc: bool,
    /// Congestion control can be queried: its counters, and whether it is enabled.
    pub congestion_query: bool,
    /// The device says which registers its port has (register PCAM).
    pub port_register_list: bool,
    /// Work queue entries can be written to the doorbell register (BlueFlame).
    pub blue_flame: bool,
    /// log2 of the bytes of a BlueFlame register, both halves.
    pub log_blue_flame_size: u8,
    /// Version of completion entries; entries of version 1 carry the `user_index`.
    pub completion_version: u8,
    /// Completion queues can be resized.
    pub completion_queue_resize: bool,
    /// Events of completion queues can be moderated.
    pub completion_moderation: bool,
    /// Completion queues can be told to ignore overruns.
    pub completion_overrun_ignore: bool,
    /// Completions can be compressed.
    pub completion_compression: bool,
    /// Largest number of counter sets.
    pub counter_sets: u16,
    /// Number of this function among those of its card.
    pub vhca_id: VhcaId,
    /// Longest copy of a DMA work request in bytes; zero if there are none.
    pub max_dma_copy: u64,
    /// The device raises temperature warnings.
    pub temperature_events: bool,
    /// The device raises general notifications.
    pub general_events: bool,
    /// The device raises page faults: each page list entry then says whether its page is present.
    pub on_demand_paging: bool,
}

/// `atomic_operations` bit of compare and swap, and of fetch and add.
const ATOMIC_OPERATIONS: u16 = 0b11;
/// `atomic_operations` bits of their masked forms.
const MASKED_ATOMICS: u16 = 0b1100;
/// `atomic_size_qp` bit of eight bytes.
const ATOMIC_EIGHT_BYTES: u16 = 1 << 3;
/// `roce_version` bit of version 1.
const ROCE_V1: u8 = 1 << 0;
/// `roce_version` bit of version 2.
const ROCE_V2: u8 = 1 << 2;

impl Capabilities {
    /// Whether the device supports a version of RoCE.
    pub const fn speaks(&self, version: RoceVersion) -> bool {
        match version {
            RoceVersion::Version1 => self.roce_v1,
            RoceVersion::Version2 => self.roce_v2,
            _ => false,
        }
    }

    pub(crate) fn new(
        general: &GeneralCapabilities,
        atomic: &AtomicCapabilities,
        roce: &RoceCapabilities,
    ) -> Self {
        let atomics = atomic.atomic_operations() & ATOMIC_OPERATIONS == ATOMIC_OPERATIONS
            && atomic.atomic_size_qp() & ATOMIC_EIGHT_BYTES != 0;
        let masked = atomic.atomic_operations() & MASKED_ATOMICS == MASKED_ATOMICS
            && atomic.atomic_size_qp() & ATOMIC_EIGHT_BYTES != 0;
        Self {
            port_type: general.port_type(),
            ports: general.num_ports(),
            max_queue_pairs: 1 << general.log_max_qp(),
            max_queue_size: 1 << general.log_max_qp_sz().min(15),
            max_shared_receive_queues: 1 << general.log_max_srq().min(24),
            max_shared_receive_queue_size: 1 << general.log_max_srq_sz().min(15),
            max_completion_queues: 1 << general.log_max_cq(),
            max_completion_queue_entries: 1 << general.log_max_cq_sz().min(23),
            max_memory_keys: 1 << general.log_max_mkey().min(24),
            log_max_message: general.log_max_msg().min(31),
            max_send_entry: general.max_wqe_sz_sq() as u32,
            max_receive_entry: general.max_wqe_sz_rq() as u32,
            log_max_reads_as_requester: general.log_max_ra_req_qp().min(7),
            log_max_reads_as_responder: general.log_max_ra_res_qp().min(7),
            roce: general.roce(),
            roce_v1: roce.roce_version() & ROCE_V1 != 0,
            roce_v2: roce.roce_version() & ROCE_V2 != 0,
            roce_addresses: roce.roce_address_table_size(),
            roce_source_ports: source_ports(roce),
            atomics: general.atomic() && atomics,
            masked_atomics: general.atomic() && masked,
            memory_windows: general.imaicl(),
            max_key_list: match general.max_indirection() {
                0 => 0,
                _ => 1 << general.log_max_klm_list_size().min(24),
            },
            relaxed_ordering: general.relaxed_ordering_write(),
            xrc: general.xrc(),
            congestion_query: general.cc_query_allowed(),
            port_register_list: general.pcam_reg(),
            blue_flame: general.bf() && (7..=9).contains(&general.log_bf_reg_size()),
            log_blue_flame_size: general.log_bf_reg_size(),
            completion_version: general.cqe_version(),
            completion_queue_resize: general.cq_resize(),
            completion_moderation: general.cq_moderation(),
            completion_overrun_ignore: general.cq_oi(),
            completion_compression: general.cqe_compression(),
            counter_sets: general.max_qp_cnt(),
            vhca_id: general.vhca_id(),
            max_dma_copy: match (
                general.dma_mmo_qp() && general.qpc_extension(),
                general.log_dma_mmo_max_size(),
            ) {
                (false, _) => 0,
                (true, 0) => 1 << 31,
                (true, log) => 1 << log.min(31),
            },
            temperature_events: general.temp_warn_event(),
            general_events: general.general_notification_event(),
            on_demand_paging: general.pg(),
        }
    }
}

/// The UDP source ports. Dynamic ports carry the entropy of flows (RoCEv2 A17.9.4); a device may support a
/// narrower range.
fn source_ports(roce: &RoceCapabilities) -> (u16, u16) {
    match (roce.r_roce_min_src_udp_port(), roce.r_roce_max_src_udp_port()) {
        (min, max) if max != 0 && min <= max => (min, max),
        _ => (0xc000, 0xffff),
    }
}

/// The general page to write back: `current` with the same changes that Linux makes.
pub(crate) fn negotiate(
    current: &GeneralCapabilities,
    max: &GeneralCapabilities,
    checked: bool,
) -> GeneralCapabilities {
    let mut page = *current;
    page.set_pkey_table_size(0).set_log_max_qp(max.log_max_qp().min(18)).set_log_uar_page_sz(0);
    page.set_cmdif_checksum(if checked { max.cmdif_checksum() } else { 0 });
    if max.mkey_by_name() {
        page.set_mkey_by_name(true);
    }
    if max.roce_rw_supported() {
        page.set_roce(max.roce());
    }
    page
}

/// The atomic page to write back, if requests can use the host's byte order.
pub(crate) fn negotiate_atomic(max: &AtomicCapabilities) -> Option<AtomicCapabilities> {
    max.supported_atomic_req_8b_endianness_mode_1().then(|| {
        let mut page = *max;
        page.set_atomic_req_8b_endianness_mode(1);
        page
    })
}

/// The RoCE page to write back, if software may choose UDP source ports.
pub(crate) fn negotiate_roce(current: &RoceCapabilities, max: &RoceCapabilities) -> Option<RoceCapabilities> {
    max.sw_r_roce_src_udp_port().then(|| {
        let mut page = *current;
        page.set_sw_r_roce_src_udp_port(true);
        page
    })
}

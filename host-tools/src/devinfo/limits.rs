//! Limits under the names of `ibv_devinfo -v`, as Linux's `mlx5_ib` derives them from the capability pages.

use super::extended::{extended, wide};
use super::fact::Fact;
use super::flags;
use super::pages::Pages;
use bareverbs_core::capabilities::Capabilities;
use bareverbs_prm::command::caps::{AtomicCapabilities, GeneralCapabilities};
use bareverbs_prm::numbering::PortType;

/// Bytes of a data segment, a control segment and a remote address segment of a WQE.
const SEGMENT: u32 = 16;
/// `mlx5_ib` makes no longer send WQE, whatever the device could do.
const LONGEST_SEND_WQE: u32 = 512;
/// Entries of a P_Key table whose size code is 0.
const PARTITION_KEYS: u32 = 128;
/// Compare and swap, fetch and add.
const BASIC_ATOMICS: u16 = 0b11;
/// Bit of `atomic_size_qp` for 8 bytes.
const EIGHT_BYTES: u16 = 1 << 3;
/// `mlx5_ib` keeps address handles in its own memory and counts them in an `int`.
const MOST_ADDRESS_HANDLES: u32 = i32::MAX as u32;
/// Objects of IBTA that no mlx5 device has (reliable datagrams), and those that verbs or Linux gave up (raw queue pairs of
/// the first kind, fast memory regions): `mlx5_ib` leaves their numbers 0.
const NEVER_OFFERED: [&str; 8] = [
    "max_ee",
    "max_ee_rd_atom",
    "max_ee_init_rd_atom",
    "max_rdd",
    "max_raw_ipv6_qp",
    "max_raw_ethy_qp",
    "max_fmr",
    "max_map_per_fmr",
];

const fn power(logarithm: u8) -> u64 {
    if logarithm < 64 { 1 << logarithm } else { u64::MAX }
}

pub(super) fn limits(pages: &Pages, capabilities: &Capabilities) -> Vec<Fact> {
    let general = &pages.general;
    let mut facts = memory(general);
    facts.extend(flags::device(pages));
    facts.extend(queues(general, capabilities));
    facts.extend(shared_receives(general));
    facts.extend(groups(general));
    facts.push(atomics(pages.atomic.as_ref()));
    facts.extend(tables(general, capabilities));
    facts.push(Fact::new("max_ah", MOST_ADDRESS_HANDLES));
    facts.push(Fact::new("max_msg_sz", power(general.log_max_msg())));
    facts.push(Fact::new("local_ca_ack_delay", general.local_ca_ack_delay()));
    facts.extend(NEVER_OFFERED.map(|name| Fact::new(name, 0)));
    facts.extend(extended(pages));
    facts
}

fn memory(general: &GeneralCapabilities) -> Vec<Fact> {
    vec![
        // Linux names no limit; `log_max_mrw_sz` of the general page has that of the device.
        wide("max_mr_size", u64::MAX),
        wide("page_size_cap", !(power(general.log_pg_sz()) - 1)),
        Fact::new("max_mr", power(general.log_max_mkey())),
        Fact::new("max_mw", if general.imaicl() { power(general.log_max_mkey()) } else { 0 }),
        Fact::new("max_pd", power(general.log_max_pd())),
    ]
}

fn send_segments(general: &GeneralCapabilities) -> u32 {
    let longest = u32::from(general.max_wqe_sz_sq()).min(LONGEST_SEND_WQE);
    longest.saturating_sub(2 * SEGMENT) / SEGMENT
}

fn receive_segments(general: &GeneralCapabilities) -> u32 {
    u32::from(general.max_wqe_sz_rq()) / SEGMENT
}

fn queues(general: &GeneralCapabilities, capabilities: &Capabilities) -> Vec<Fact> {
    let queue_pairs = power(general.log_max_qp());
    let reads = power(capabilities.log_max_reads_as_requester);
    vec![
        Fact::new("max_qp", queue_pairs),
        Fact::new("max_qp_wr", power(general.log_max_qp_sz())),
        Fact::new("max_sge", receive_segments(general).min(send_segments(general))),
        Fact::new("max_sge_rd", (LONGEST_SEND_WQE - 2 * SEGMENT) / SEGMENT),
        Fact::new("max_cq", power(general.log_max_cq())),
        Fact::new("max_cqe", power(general.log_max_cq_sz()) - 1),
        Fact::new("max_qp_rd_atom", reads),
        Fact::new("max_res_rd_atom", reads.saturating_mul(queue_pairs)),
        Fact::new("max_qp_init_rd_atom", power(capabilities.log_max_reads_as_responder)),
    ]
}

fn shared_receives(general: &GeneralCapabilities) -> Vec<Fact> {
    vec![
        Fact::new("max_srq", power(general.log_max_srq())),
        Fact::new("max_srq_wr", power(general.log_max_srq_sz()) - 1),
        Fact::new("max_srq_sge", receive_segments(general).saturating_sub(1)),
    ]
}

fn groups(general: &GeneralCapabilities) -> Vec<Fact> {
    let (groups, members) = (power(general.log_max_mcg()), general.max_qp_mcg());
    vec![
        Fact::new("max_mcast_grp", groups),
        Fact::new("max_mcast_qp_attach", members),
        Fact::new("max_total_mcast_qp_attach", groups.saturating_mul(members.into())),
    ]
}

/// Numbers of `enum ibv_atomic_cap`. Atomics are offered if both operations work on 8 bytes in the byte order of the host.
fn atomics(atomic: Option<&AtomicCapabilities>) -> Fact {
    let offered = atomic.is_some_and(|page| {
        page.atomic_operations() & BASIC_ATOMICS == BASIC_ATOMICS
            && page.atomic_size_qp() & EIGHT_BYTES != 0
            && page.atomic_req_8b_endianness_mode() == 1
    });
    let text = if offered { "ATOMIC_HCA (1)" } else { "ATOMIC_NONE (0)" };
    Fact::new("atomic_cap", u8::from(offered)).shown(text.to_owned())
}

/// Tables of the port. On Ethernet there is one P_Key, and the GIDs are RoCE addresses.
fn tables(general: &GeneralCapabilities, capabilities: &Capabilities) -> [Fact; 3] {
    let (gids, keys) = match capabilities.port_type {
        PortType::Ethernet => (capabilities.roce_addresses.into(), 1),
        _ => (8_u32 << general.gid_table_size().min(4), PARTITION_KEYS << general.pkey_table_size().min(5)),
    };
    let most_keys = PARTITION_KEYS << general.pkey_table_size().min(16);
    [Fact::new("max_pkeys", most_keys), Fact::new("pkey_tbl_len", keys), Fact::new("gid_tbl_len", gids)]
}

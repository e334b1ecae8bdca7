//! Sets of flags under their names in `ibv_devinfo -v`, as Linux's `mlx5_ib` derives them from the capability pages.

use super::fact::Fact;
use super::pages::Pages;
use bareverbs_core::port::PortManagement;
use bareverbs_prm::command::caps::GeneralCapabilities;
use bareverbs_prm::command::caps_ethernet::FlowTableProperties;
use bareverbs_prm::command::caps_optional::{OdpCapabilities, OdpTransportCapabilities};
use bareverbs_prm::numbering::PortType;

/// Bits of `enum ibv_device_cap_flags` that `mlx5_ib` may set.
const BAD_PKEY_CNTR: u64 = 1 << 1;
const BAD_QKEY_CNTR: u64 = 1 << 2;
const AUTO_PATH_MIG: u64 = 1 << 4;
const CHANGE_PHY_PORT: u64 = 1 << 5;
const PORT_ACTIVE_EVENT: u64 = 1 << 10;
const SYS_IMAGE_GUID: u64 = 1 << 11;
const RC_RNR_NAK_GEN: u64 = 1 << 12;
const MEM_WINDOW: u64 = 1 << 17;
const UD_IP_CSUM: u64 = 1 << 18;
const XRC: u64 = 1 << 20;
const MEM_MGT_EXTENSIONS: u64 = 1 << 21;
const MEM_WINDOW_TYPE_2B: u64 = 1 << 24;
const RAW_IP_CSUM: u64 = 1 << 26;
const MANAGED_FLOW_STEERING: u64 = 1 << 29;
const RAW_SCATTER_FCS: u64 = 1 << 34;
const PCI_WRITE_END_PADDING: u64 = 1 << 36;

const DEVICE_NAMES: [(u64, &str); 16] = [
    (BAD_PKEY_CNTR, "BAD_PKEY_CNTR"),
    (BAD_QKEY_CNTR, "BAD_QKEY_CNTR"),
    (AUTO_PATH_MIG, "AUTO_PATH_MIG"),
    (CHANGE_PHY_PORT, "CHANGE_PHY_PORT"),
    (PORT_ACTIVE_EVENT, "PORT_ACTIVE_EVENT"),
    (SYS_IMAGE_GUID, "SYS_IMAGE_GUID"),
    (RC_RNR_NAK_GEN, "RC_RNR_NAK_GEN"),
    (MEM_WINDOW, "MEM_WINDOW"),
    (UD_IP_CSUM, "UD_IP_CSUM"),
    (XRC, "XRC"),
    (MEM_MGT_EXTENSIONS, "MEM_MGT_EXTENSIONS"),
    (MEM_WINDOW_TYPE_2B, "MEM_WINDOW_TYPE_2B"),
    (RAW_IP_CSUM, "RAW_IP_CSUM"),
    (MANAGED_FLOW_STEERING, "MANAGED_FLOW_STEERING"),
    (RAW_SCATTER_FCS, "RAW_SCATTER_FCS"),
    (PCI_WRITE_END_PADDING, "PCI_WRITE_END_PADDING"),
];

/// `enum ibv_raw_packet_caps`.
const CVLAN_STRIPPING: u64 = 1 << 0;
const SCATTER_FCS: u64 = 1 << 1;
const IP_CSUM: u64 = 1 << 2;
const DELAY_DROP: u64 = 1 << 3;

const RAW_PACKET_NAMES: [(u64, &str); 4] = [
    (CVLAN_STRIPPING, "C-VLAN stripping offload"),
    (SCATTER_FCS, "Scatter FCS offload"),
    (IP_CSUM, "IP csum offload"),
    (DELAY_DROP, "Delay drop"),
];

/// `enum ibv_odp_general_caps` and `enum ibv_odp_transport_cap_bits`.
const ODP_SUPPORT: u64 = 1 << 0;
const ODP_SUPPORT_IMPLICIT: u64 = 1 << 1;
const GENERAL_PAGING_NAMES: [(u64, &str); 2] =
    [(ODP_SUPPORT, "ODP_SUPPORT"), (ODP_SUPPORT_IMPLICIT, "ODP_SUPPORT_IMPLICIT")];
const PAGING_NAMES: [(u64, &str); 6] = [
    (1 << 0, "SUPPORT_SEND"),
    (1 << 1, "SUPPORT_RECV"),
    (1 << 2, "SUPPORT_WRITE"),
    (1 << 3, "SUPPORT_READ"),
    (1 << 4, "SUPPORT_ATOMIC"),
    (1 << 5, "SUPPORT_SRQ"),
];

/// `enum ib_uverbs_query_port_cap_flags`.
const PORT_CM_SUP: u32 = 1 << 16;
const PORT_CAP_MASK2_SUP: u32 = 1 << 15;
const PORT_IP_BASED_GIDS: u32 = 1 << 26;

/// The set bits that have names; zero bits say `none`.
fn named(flags: u64, names: &[(u64, &str)], none: &str) -> String {
    let set: Vec<&str> = names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { none.to_owned() } else { set.join(", ") }
}

/// Whether Linux offers raw packets: not on a function that shares its ports with another one (`mlx5_core_mp_enabled`).
pub(super) fn raw_packets(general: &GeneralCapabilities) -> bool {
    general.num_vhca_ports() <= 1 && general.affiliate_nic_vport_criteria() == 0
}

/// `mlx5_ib_query_device`.
pub(super) fn device(pages: &Pages) -> [Fact; 2] {
    let flags = object_flags(&pages.general) | packet_flags(pages);
    let (low, text) = (flags & u64::from(u32::MAX), named(flags, &DEVICE_NAMES, "none"));
    [
        Fact::new("device_cap_flags", low)
            .shown(format!("{low:#010x}: {}", named(low, &DEVICE_NAMES, "none"))),
        Fact::new("device_cap_flags_ex", format!("{flags:#x}")).shown(format!("{flags:#x}: {text}")),
    ]
}

fn object_flags(general: &GeneralCapabilities) -> u64 {
    let always = CHANGE_PHY_PORT | PORT_ACTIVE_EVENT | SYS_IMAGE_GUID | RC_RNR_NAK_GEN;
    let conditions = [
        (general.pkv(), BAD_PKEY_CNTR),
        (general.qkv(), BAD_QKEY_CNTR),
        (general.apm(), AUTO_PATH_MIG),
        (general.xrc(), XRC),
        (general.imaicl(), MEM_WINDOW | MEM_WINDOW_TYPE_2B),
        (!general.umr_modify_entity_size_disabled(), MEM_MGT_EXTENSIONS),
        (general.end_pad(), PCI_WRITE_END_PADDING),
    ];
    always | set(&conditions)
}

fn packet_flags(pages: &Pages) -> u64 {
    let general = &pages.general;
    let raw = pages.ethernet.as_ref().filter(|_| raw_packets(general));
    let checksums =
        general.ipoib_basic_offloads() || pages.ipoib.as_ref().is_some_and(|page| page.0.csum_cap());
    set(&[
        (raw.is_some_and(|page| page.csum_cap()), RAW_IP_CSUM),
        (raw.is_some_and(|page| page.scatter_fcs()), RAW_SCATTER_FCS),
        (checksums, UD_IP_CSUM),
        (steers(pages), MANAGED_FLOW_STEERING),
    ])
}

fn set(conditions: &[(bool, u64)]) -> u64 {
    conditions.iter().filter(|(holds, _)| *holds).fold(0, |flags, (_, bits)| flags | bits)
}

/// Whether Linux gives programs flow tables: it needs a root table (`mlx5_fs_core_init`) and tables behind it
/// (`FS_CHAINING_CAPS` of the priority `MLX5_FLOW_NAMESPACE_BYPASS`).
fn steers(pages: &Pages) -> bool {
    let root = match pages.general.port_type() {
        PortType::Ethernet => pages.general.nic_flow_table(),
        _ => pages.general.ipoib_enhanced_offloads(),
    };
    let chains = |page: &FlowTableProperties| {
        page.ft_support()
            && page.flow_modify_en()
            && page.modify_root()
            && page.identified_miss_table_mode()
            && page.flow_table_modify()
    };
    root && pages.flow_tables.as_ref().is_some_and(chains)
}

/// `mlx5_ib_query_device`, `raw_packet_caps`.
pub(super) fn raw_packet(pages: &Pages) -> Fact {
    let general = &pages.general;
    let raw = raw_packets(general);
    let offload = pages.ethernet.as_ref().filter(|_| raw);
    let flags = set(&[
        (offload.is_some_and(|page| page.vlan_cap()), CVLAN_STRIPPING),
        (offload.is_some_and(|page| page.scatter_fcs()), SCATTER_FCS),
        (offload.is_some_and(|page| page.csum_cap()), IP_CSUM),
        (raw && general.rq_delay_drop() && general.general_notification_event(), DELAY_DROP),
    ]);
    Fact::new("raw_packet_caps", flags).shown(named(flags, &RAW_PACKET_NAMES, "none"))
}

/// `mlx5_ib_internal_fill_odp_caps`. Linux pages on demand only if work requests can load page lists (`mlx5r_umr_can_load_pas`).
/// No transport can for UC: Linux offers none.
pub(super) fn on_demand_paging(pages: &Pages) -> [Fact; 5] {
    let general = &pages.general;
    let page = pages.on_demand_paging.as_ref().filter(|_| !general.umr_modify_entity_size_disabled());
    let implicit = general.fixed_buffer_size()
        && general.null_mkey()
        && general.umr_extended_translation_offset()
        && !general.umr_indirect_mkey_disabled();
    let flags = set(&[(page.is_some(), ODP_SUPPORT), (page.is_some() && implicit, ODP_SUPPORT_IMPLICIT)]);
    let [rc, ud, xrc] = page.map_or([0; 3], transports);
    let transport =
        |name: &str, flags: u64| Fact::new(name, flags).shown(named(flags, &PAGING_NAMES, "NO SUPPORT"));
    [
        Fact::new("general_odp_caps", flags).shown(named(flags, &GENERAL_PAGING_NAMES, "none")),
        transport("rc_odp_caps", rc),
        transport("uc_odp_caps", 0),
        transport("ud_odp_caps", ud),
        transport("xrc_odp_caps", xrc),
    ]
}

/// RC, UD and XRC under the scheme in force. UD has no operations of RDMA.
fn transports(page: &OdpCapabilities) -> [u64; 3] {
    let scheme = if page.mem_page_fault() { page.memory_scheme() } else { page.transport_scheme() };
    let ud = scheme.ud();
    [
        operations(scheme.rc()),
        set(&[(ud.send(), 1 << 0), (ud.srq_receive(), 1 << 5)]),
        operations(scheme.xrc()),
    ]
}

fn operations(transport: &OdpTransportCapabilities) -> u64 {
    set(&[
        (transport.send(), 1 << 0),
        (transport.receive(), 1 << 1),
        (transport.write(), 1 << 2),
        (transport.read(), 1 << 3),
        (transport.atomic(), 1 << 4),
        (transport.srq_receive(), 1 << 5),
    ])
}

/// On InfiniBand the masks of the port (`mlx5_query_hca_port`); on Ethernet what Linux always reports for RoCE
/// (`mlx5_query_port_roce`). Bit 26 says whether GIDs are IP addresses, whatever IBTA makes of it (`make_port_cap_flags`).
pub(super) fn port(management: &PortManagement, link_layer: PortType, roce: bool) -> [Fact; 2] {
    let mask = management.capability_mask;
    let flags = match (link_layer, roce) {
        (PortType::Ethernet, true) => PORT_CM_SUP | PORT_IP_BASED_GIDS,
        (PortType::Ethernet, false) => 0,
        _ => mask & !PORT_IP_BASED_GIDS,
    };
    let second = if mask & PORT_CAP_MASK2_SUP == 0 { 0 } else { management.capability_mask2 & 0xffff };
    [
        Fact::new("port_cap_flags", flags).shown(format!("{flags:#010x}")),
        Fact::new("port_cap_flags2", second).shown(format!("{second:#06x}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_core::capability_page::IpoibOffloads;
    use bareverbs_prm::command::caps_ethernet::EthernetCapabilities;
    use serde_json::{Value, json};

    /// An Ethernet card with every offload that these flags depend on.
    fn rich() -> Pages {
        let mut general = GeneralCapabilities::new();
        general
            .set_port_type(PortType::Ethernet)
            .set_nic_flow_table(true)
            .set_umr_modify_entity_size_disabled(true);
        general.set_apm(true).set_end_pad(true).set_rq_delay_drop(true).set_general_notification_event(true);
        let mut ethernet = EthernetCapabilities::new();
        ethernet.set_csum_cap(true).set_scatter_fcs(true).set_vlan_cap(true);
        let mut tables = FlowTableProperties::new();
        tables.set_ft_support(true).set_flow_modify_en(true).set_modify_root(true);
        tables.set_identified_miss_table_mode(true).set_flow_table_modify(true);
        Pages { general, ethernet: Some(ethernet), flow_tables: Some(tables), ..Pages::default() }
    }

    fn values<const N: usize>(facts: [Fact; N]) -> [Value; N] {
        facts.map(|fact| fact.value)
    }

    #[test]
    fn flags_above_32_bits_are_in_the_extended_ones_only() {
        let [low, high] = device(&rich());
        assert_eq!((low.value, high.value), (json!(0x2400_1c30_u64), json!("0x1424001c30")));
        assert!(high.text.contains("RAW_SCATTER_FCS, PCI_WRITE_END_PADDING"), "{}", high.text);
        assert!(!low.text.contains("RAW_SCATTER_FCS"), "{}", low.text);
    }

    #[test]
    fn a_function_that_shares_its_ports_has_no_raw_packets() {
        let mut pages = rich();
        assert_eq!(raw_packet(&pages).value, 0b1111);
        pages.general.set_num_vhca_ports(2);
        assert_eq!(values(device(&pages)), [json!(0x2000_1c30_u64), json!("0x1020001c30")]);
        assert_eq!(raw_packet(&pages).value, 0);
    }

    #[test]
    fn steering_needs_every_capability_of_its_tables() {
        let cut: [fn(&mut FlowTableProperties); 5] = [
            |page| {
                page.set_ft_support(false);
            },
            |page| {
                page.set_flow_modify_en(false);
            },
            |page| {
                page.set_modify_root(false);
            },
            |page| {
                page.set_identified_miss_table_mode(false);
            },
            |page| {
                page.set_flow_table_modify(false);
            },
        ];
        assert!(steers(&rich()));
        for cut in cut {
            let mut pages = rich();
            pages.flow_tables.as_mut().map(cut);
            assert!(!steers(&pages));
        }
        // On InfiniBand another bit brings the tables.
        let mut pages = rich();
        pages.general.set_port_type(PortType::Ib);
        assert!(!steers(&pages));
        pages.general.set_ipoib_enhanced_offloads(true);
        assert!(steers(&pages));
    }

    #[test]
    fn checksums_of_datagrams_come_from_either_way_of_ipoib() {
        let mut page = IpoibOffloads::default();
        page.0.set_csum_cap(true);
        let enhanced = Pages { ipoib: Some(page), ..Pages::default() };
        let mut basic = Pages::default();
        basic.general.set_ipoib_basic_offloads(true);
        for (pages, set) in [(enhanced, true), (basic, true), (Pages::default(), false)] {
            assert_eq!(packet_flags(&pages) & UD_IP_CSUM != 0, set);
        }
    }

    #[test]
    fn paging_is_that_of_the_scheme_in_force() {
        let mut page = OdpCapabilities::new();
        let old = page.transport_scheme_mut();
        old.rc_mut().set_send(true).set_receive(true).set_atomic(true);
        old.ud_mut().set_send(true).set_write(true).set_srq_receive(true);
        page.memory_scheme_mut().xrc_mut().set_read(true).set_srq_receive(true);
        let mut pages = Pages { on_demand_paging: Some(page), ..Pages::default() };
        pages
            .general
            .set_fixed_buffer_size(true)
            .set_null_mkey(true)
            .set_umr_extended_translation_offset(true);
        let masks =
            |pages: &Pages| values(on_demand_paging(pages)).map(|mask| mask.as_u64().expect("a number"));
        assert_eq!(masks(&pages), [3, 0b1_0011, 0, 0b10_0001, 0]);
        assert_eq!(on_demand_paging(&pages)[1].text, "SUPPORT_SEND, SUPPORT_RECV, SUPPORT_ATOMIC");
        pages.on_demand_paging = Some(*page.set_mem_page_fault(true));
        pages.general.set_null_mkey(false);
        assert_eq!(masks(&pages), [1, 0, 0, 0, 0b10_1000]);
        pages.general.set_umr_modify_entity_size_disabled(true);
        assert_eq!(masks(&pages), [0; 5]);
    }

    #[test]
    fn the_second_mask_of_a_port_counts_only_if_the_first_says_so() {
        let management = PortManagement {
            capability_mask: 0x0400_8002,
            capability_mask2: 0x21,
            ..PortManagement::default()
        };
        let number = |low: u32, high: u32| [json!(low), json!(high)];
        assert_eq!(values(port(&management, PortType::Ib, false)), number(0x8002, 0x21));
        let without = PortManagement { capability_mask: 2, ..management };
        assert_eq!(values(port(&without, PortType::Ib, false)), number(2, 0));
        let nothing = PortManagement::default();
        assert_eq!(values(port(&nothing, PortType::Ethernet, true)), number(0x0401_0000, 0));
        assert_eq!(values(port(&nothing, PortType::Ethernet, false)), number(0, 0));
    }
}

//! The rows: each program of infiniband-diags, and the values of the subnet that it must print.

use super::administration;
use super::built::{BuiltPort, BuiltSubnet, BuiltSwitch, FAR, LEAF, LEAF_PORTS, NEAR};
use super::ipoib;
use super::opensm;
use super::row::{BROADCAST, DiagnosticRow, Wanted, gid, row};
use bareverbs_sim::net::MANAGER_LID;

/// Checks that the kernel's log has no message of mlx5, the RDMA core or IPoIB at level warning or above.
const CLEAN_LOG: &str = "bad=$(dmesg --level=emerg,alert,crit,err,warn |
    sed '/judge: nobody administers/,/judge: administered again/{/multicast join failed for .* status -22/d}' |
    grep -iE 'mlx5|infiniband|ib_|ib[0-9]|rdma|umad|WARNING:|BUG:')
    test -z \"$bad\" && echo clean || { echo \"$bad\"; false; }";
/// The node description of the manager's switch.
const SPINE: &str = "bareverbs switch with the subnet's manager";
/// A link of four lanes of EDR, as `iblinkinfo` shows it.
const UP: &str = "==( 4X 25.78125 Gbps Active/ LinkUp)==>";

/// The drivers probe, and both ports become active.
pub(super) fn bring_up() -> DiagnosticRow {
    DiagnosticRow::new(
        "both ports are active",
        "bring_up",
        ["mlx5_0/ports/1/state:4: ACTIVE", "mlx5_1/ports/1/state:4: ACTIVE"].map(str::to_owned),
    )
}

/// All other rows, in order.
pub(super) fn all(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let mut rows = ports(built);
    rows.extend(discovery(built));
    rows.extend(routes(built));
    rows.extend(agent_of_port(built));
    rows.extend(agents_of_switches(built));
    rows.extend(counters(built));
    rows.extend(nodes_and_ports(built));
    rows.extend(tables(built));
    rows.extend(paths(built));
    rows.extend(administration::all(built));
    rows.extend(groups(built));
    rows.extend(pings(built));
    rows.extend(opensm::all(built));
    rows.push(kernel_log("kernel log"));
    rows.extend(ipoib::all(built));
    rows
}

/// The kernel's log has no complaint.
pub(super) fn kernel_log(name: &'static str) -> DiagnosticRow {
    row(name, CLEAN_LOG.to_owned(), ["clean".to_owned()])
}

/// The guest's ports, and their manager.
fn ports(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { spine, near, far, .. } = built;
    let port = |port: &BuiltPort| {
        [
            format!("Node GUID: {:#018x}", port.node_guid),
            format!("Port GUID: {:#018x}", port.guid),
            format!("Base lid: {}", port.lid),
            format!("SM lid: {MANAGER_LID}"),
            "State: Active".to_owned(),
            "Physical state: LinkUp".to_owned(),
            "Rate: 100".to_owned(),
            "Link layer: InfiniBand".to_owned(),
        ]
    };
    let address =
        |port: &BuiltPort| [format!("GID {}", gid(port)), format!("LID start {0:#x} end {0:#x}", port.lid)];
    vec![
        row("ibstat", "ibstat $near".to_owned(), port(near)),
        row("ibstat of the other port", "ibstat $far".to_owned(), port(far)),
        row(
            "sminfo",
            "sminfo".to_owned(),
            [
                format!("sminfo: sm lid {MANAGER_LID} sm guid {:#x}", spine.guid),
                "priority 0 state 3 SMINFO_MASTER".to_owned(),
            ],
        ),
        row("sminfo from the other port", "sminfo -C $far".to_owned(), ["state 3 SMINFO_MASTER".to_owned()]),
        row("ibaddr", "ibaddr".to_owned(), address(near)),
        row("ibaddr of the other port", format!("ibaddr {}", far.lid), address(far)),
    ]
}

/// Programs that discover the whole subnet by directed routes.
fn discovery(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { spine, leaf, near, far, .. } = built;
    let topology = |name, command: &str| DiagnosticRow {
        name,
        command: command.to_owned(),
        wanted: Wanted::Topology,
        is_needed: false,
    };
    let adapter = |port: &BuiltPort, name: &str| format!("Ca : {:#018x} ports 1 \"{name}\"", port.node_guid);
    let links = [
        format!("{} {}[ ] {UP} {} {}[ ] \"{LEAF}\"", spine.lid, spine.to_switch, leaf.lid, leaf.to_switch),
        format!("{} {}[ ] {UP} {} {}[ ] \"{SPINE}\"", leaf.lid, leaf.to_switch, spine.lid, spine.to_switch),
        format!("{} {}[ ] {UP} {} 1[ ]", spine.lid, spine.to_near, near.lid),
        format!("{} {}[ ] {UP} {} 1[ ]", leaf.lid, leaf.to_far, far.lid),
        format!("{} {LEAF_PORTS}[ ] ==( Down/ Polling)==> [ ]", leaf.lid),
    ];
    vec![
        topology("ibnetdiscover", "ibnetdiscover"),
        topology("ibnetdiscover from the other port", "ibnetdiscover -C $far"),
        row("iblinkinfo", "iblinkinfo".to_owned(), links),
        row(
            "ibswitches",
            "counted Switch ibswitches".to_owned(),
            [
                format!(
                    "Switch : {:#018x} ports 2 \"{SPINE}\" base port 0 lid {} lmc 0",
                    spine.guid, spine.lid
                ),
                format!(
                    "Switch : {:#018x} ports {LEAF_PORTS} \"{LEAF}\" base port 0 lid {} lmc 0",
                    leaf.guid, leaf.lid
                ),
                "lines with Switch: 2".to_owned(),
            ],
        ),
        row(
            "ibhosts",
            "counted Ca ibhosts".to_owned(),
            [adapter(near, NEAR), adapter(far, FAR), "lines with Ca: 2".to_owned()],
        ),
    ]
}

/// Forwarding tables, and the routes that follow from them.
fn routes(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { spine, leaf, near, far, .. } = built;
    let table = |switch: &BuiltSwitch| {
        let way = |to: &BuiltSwitch| if to == switch { 0 } else { switch.to_switch };
        let adapter = |lid: u16, port: u8, guid: u64| {
            format!("{lid:#06x} {port:03} : (Channel Adapter portguid {guid:#018x}:")
        };
        [
            format!("guid {:#018x}", switch.guid),
            adapter(near.lid, switch.to_near, near.guid),
            adapter(far.lid, switch.to_far, far.guid),
            format!(
                "{:#06x} {:03} : (Switch portguid {:#018x}: '{SPINE}')",
                spine.lid,
                way(spine),
                spine.guid
            ),
            format!("{:#06x} {:03} : (Switch portguid {:#018x}: '{LEAF}')", leaf.lid, way(leaf), leaf.guid),
            "4 valid lids dumped".to_owned(),
        ]
    };
    let hop = |switch: &BuiltSwitch, from: u8, ingress: u8, name: &str| {
        format!(
            "[{from}] -> switch port {{{:#018x}}}[{ingress}] lid {1}-{1} \"{name}\"",
            switch.guid, switch.lid
        )
    };
    let end = |word: &str, port: &BuiltPort| {
        format!("{word} ca {{{:#018x}}} portnum 1 lid {1}-{1}", port.node_guid, port.lid)
    };
    let last = |from: u8, port: &BuiltPort| {
        format!("[{from}] -> ca port {{{:#018x}}}[1] lid {1}-{1}", port.guid, port.lid)
    };
    vec![
        row("ibroute of the manager's switch", format!("ibroute {}", spine.lid), table(spine)),
        row("ibroute of the other switch", format!("ibroute {}", leaf.lid), table(leaf)),
        row(
            "ibtracert",
            format!("ibtracert {} {}", near.lid, far.lid),
            [
                end("From", near),
                hop(spine, 1, spine.to_near, SPINE),
                hop(leaf, spine.to_far, leaf.to_near, LEAF),
                last(leaf.to_far, far),
                end("To", far),
            ],
        ),
        row(
            "ibtracert back",
            format!("ibtracert {} {}", far.lid, near.lid),
            [
                end("From", far),
                hop(leaf, 1, leaf.to_far, LEAF),
                hop(spine, leaf.to_near, spine.to_far, SPINE),
                last(spine.to_near, near),
                end("To", near),
            ],
        ),
        row(
            "dump_fts",
            "counted 'valid lids dumped' dump_fts".to_owned(),
            [
                format!(
                    "{:#06x} {:03} : (Channel Adapter portguid {:#018x}:",
                    far.lid, leaf.to_far, far.guid
                ),
                "lines with valid lids dumped: 2".to_owned(),
            ],
        ),
    ]
}

/// What the agent of the far port answers, addressed by LID.
fn agent_of_port(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let far = &built.far;
    let query = |attribute: &str| format!("smpquery {attribute} {}", far.lid);
    let info = [
        format!("Lid: {}", far.lid),
        format!("SMLid: {MANAGER_LID}"),
        "LinkState: Active".to_owned(),
        "PhysLinkState: LinkUp".to_owned(),
        "LinkWidthActive: 4X".to_owned(),
        "LinkSpeedExtActive: 25.78125 Gbps".to_owned(),
        "NeighborMTU: 4096".to_owned(),
        "VLCap: VL0".to_owned(),
    ];
    let node = [
        format!("Guid: {:#018x}", far.node_guid),
        format!("PortGuid: {:#018x}", far.guid),
        "NodeType: Channel Adapter".to_owned(),
        "NumPorts: 1".to_owned(),
        "LocalPort: 1".to_owned(),
        "VendorId: 0x0002c9".to_owned(),
    ];
    let route = format!("0,1,{},{}", built.spine.to_far, built.leaf.to_far);
    vec![
        row("smpquery nodeinfo", query("nodeinfo"), node.clone()),
        row("smpquery nodeinfo by GUID", format!("smpquery -G nodeinfo {:#x}", far.guid), node.clone()),
        row(
            "smpquery nodeinfo along a directed route",
            format!("smpquery -D nodeinfo {route}"),
            node.clone(),
        ),
        row(
            "smpquery nodeinfo along a route of a LID and a port",
            format!("smpquery -c nodeinfo {} 0,{}", built.leaf.lid, built.leaf.to_far),
            node,
        ),
        row(
            "smpquery nodeinfo of the own port",
            "smpquery -D nodeinfo 0".to_owned(),
            [format!("PortGuid: {:#018x}", built.near.guid)],
        ),
        row("smpquery portinfo", query("portinfo"), info),
        row(
            "smpquery pkeys",
            query("pkeys"),
            ["0: 0xffff 0x0000 0x0000", "128 pkeys capacity for this port"].map(str::to_owned),
        ),
        row("smpquery sl2vl", query("sl2vl"), ["ports: in 0, out 0: | 0| 0| 0| 0| 0| 0| 0|".to_owned()]),
        row(
            "smpquery vlarb",
            query("vlarb"),
            [
                "LowCap 8 HighCap 8",
                "Low priority VL Arbitration Table:",
                "High priority VL Arbitration Table:",
            ]
            .map(str::to_owned),
        ),
        row(
            "smpquery guids",
            query("guidinfo"),
            [format!("0: {:#018x} 0x0000000000000000", far.guid), "guids capacity for this port".to_owned()],
        ),
    ]
}

/// What the agents of the switches answer.
fn agents_of_switches(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { spine, leaf, far, .. } = built;
    let info = ["LinearFdbCap: 49152", "McastFdbCap: 1024", "LinearFdbTop: 49151", "EnhancedPort0: 0"];
    let unplugged = ["LinkState: Down", "PhysLinkState: Polling"];
    vec![
        row(
            "smpquery switchinfo of the manager's switch",
            format!("smpquery switchinfo {}", spine.lid),
            info.map(str::to_owned),
        ),
        row(
            "smpquery switchinfo of the other switch",
            format!("smpquery switchinfo {}", leaf.lid),
            info.map(str::to_owned),
        ),
        row(
            "smpquery nodedesc of a switch",
            format!("smpquery nodedesc {}", leaf.lid),
            [format!("Node Description: {LEAF}")],
        ),
        row(
            "smpquery portinfo of a switch",
            format!("smpquery portinfo {} 0", leaf.lid),
            [format!("Lid: {}", leaf.lid), format!("SMLid: {MANAGER_LID}")],
        ),
        row(
            "smpquery portinfo of a switch's cable",
            format!("smpquery portinfo {} {}", leaf.lid, leaf.to_far),
            [format!("LocalPort: {}", leaf.to_near), "LinkState: Active".to_owned()],
        ),
        row(
            "smpquery portinfo of an empty port",
            format!("smpquery portinfo {} {LEAF_PORTS}", leaf.lid),
            unplugged.map(str::to_owned),
        ),
        row(
            "smpquery pkeys of a switch",
            format!("smpquery pkeys {}", leaf.lid),
            ["0: 0xffff 0x0000".to_owned(), "32 pkeys capacity for this port".to_owned()],
        ),
        row(
            "smpquery vlarb of a switch",
            format!("smpquery vlarb {}", leaf.lid),
            ["No VLArbitration tables (BSP0)".to_owned()],
        ),
        row(
            "ibportstate of a cable and its other end",
            format!("ibportstate {} {} query", leaf.lid, leaf.to_far),
            [
                "Switch PortInfo:".to_owned(),
                "Peer PortInfo:".to_owned(),
                format!("Lid: {}", far.lid),
                "LinkState: Active".to_owned(),
            ],
        ),
    ]
}

/// What the performance agents of the far port and of the switches answer.
fn counters(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { spine, leaf, far, .. } = built;
    let lid = far.lid;
    let silent = [
        "PortSelect: 1",
        "SymbolErrorCounter: 0",
        "LinkErrorRecoveryCounter: 0",
        "PortRcvErrors: 0",
        "PortXmitDiscards: 0",
        "VL15Dropped: 0",
        "PortXmitWait: 0",
    ];
    vec![
        row("perfquery", format!("perfquery {lid} 1"), silent.map(str::to_owned)),
        row("perfquery of all ports", format!("perfquery -a {lid}"), ["PortSelect: 255".to_owned()]),
        row("perfquery -x", format!("counters_rise {lid}"), ["as many words as packets have".to_owned()]),
        row("perfquery -r", format!("counters_clear '' {lid}"), ["lower than before".to_owned()]),
        row("perfquery -x -r", format!("counters_clear -x {lid}"), ["lower than before".to_owned()]),
        row(
            "perfquery of a switch",
            format!("perfquery {} {}", leaf.lid, leaf.to_far),
            [format!("PortSelect: {}", leaf.to_far), "PortXmitDiscards: 0".to_owned()],
        ),
        row(
            "perfquery -x of a switch",
            format!("counters_rise {} {}", leaf.lid, leaf.to_switch),
            ["as many words as packets have".to_owned()],
        ),
        row(
            "perfquery -a of a switch",
            format!("perfquery -a {}", spine.lid),
            ["PortSelect: 255".to_owned(), "PortRcvConstraintErrors: 0".to_owned()],
        ),
        row(
            "ibqueryerrors",
            "ibqueryerrors".to_owned(),
            ["4 nodes checked, 0 bad nodes found", "0 ports have errors beyond threshold"].map(str::to_owned),
        ),
    ]
}

/// Records of nodes, ports, switches and links that the subnet's administration has.
fn nodes_and_ports(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { spine, leaf, near, far, .. } = built;
    let guid = |guid: u64| format!("port_guid {guid:#018x}");
    vec![
        row(
            "saquery",
            "counted 'NodeRecord dump' saquery".to_owned(),
            [
                guid(near.guid),
                guid(far.guid),
                guid(spine.guid),
                guid(leaf.guid),
                "lines with NodeRecord dump: 4".to_owned(),
            ],
        ),
        row(
            "saquery -c",
            "saquery -c".to_owned(),
            ["Class version 2", "Capability mask 0x2200", "Response time value 0x12"].map(str::to_owned),
        ),
        row(
            "saquery -s",
            "counted EndPortLid saquery -s".to_owned(),
            [format!("EndPortLid {MANAGER_LID}"), "lines with EndPortLid: 1".to_owned()],
        ),
        row(
            "saquery PIR",
            format!("saquery PIR {}", far.lid),
            [
                format!("EndPortLid {}", far.lid),
                "PortNum 1".to_owned(),
                format!("SMLid: {MANAGER_LID}"),
                "LinkState: Active".to_owned(),
            ],
        ),
        row(
            "saquery PIR of a switch",
            format!("saquery PIR {}", leaf.lid),
            [format!("EndPortLid {}", leaf.lid), "PortNum 0".to_owned()],
        ),
        row(
            "saquery LR",
            format!("counted FromLID saquery LR {}/{}", leaf.lid, leaf.to_switch),
            [
                format!("ToLID {}", spine.lid),
                format!("ToPort {}", spine.to_switch),
                "lines with FromLID: 1".to_owned(),
            ],
        ),
        row(
            "saquery -x",
            "counted 'LinkRecord dump' saquery -x".to_owned(),
            ["lines with LinkRecord dump: 6".to_owned()],
        ),
        row(
            "saquery SWIR",
            "counted 'SwitchInfoRecord dump' saquery SWIR".to_owned(),
            [
                format!("LID {}", leaf.lid),
                "LinearFDBCap 0xC000".to_owned(),
                "lines with SwitchInfoRecord dump: 2".to_owned(),
            ],
        ),
        row(
            "saquery SMIR",
            "counted 'SMInfoRecord dump' saquery SMIR".to_owned(),
            [
                format!("GUID {:#018x}", spine.guid),
                "SMState 3".to_owned(),
                "lines with SMInfoRecord dump: 1".to_owned(),
            ],
        ),
    ]
}

/// Records of tables that the subnet's administration has.
fn tables(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { leaf, near, far, .. } = built;
    let keys = "0xffff 0x0000 0x0000 0x0000";
    vec![
        row(
            "saquery SL2VL",
            format!("counted 'SL2VLTableRecord dump' saquery SL2VL {}", far.lid),
            ["VL: 0| 0| 0| 0|", "OutPort 1", "lines with SL2VLTableRecord dump: 1"].map(str::to_owned),
        ),
        row(
            "saquery VLAR",
            format!("counted 'VLArbTableRecord dump' saquery VLAR {}", far.lid),
            [format!("LID {}", far.lid), "Block 1".to_owned(), "Block 3".to_owned()],
        ),
        row(
            "saquery PKTR",
            format!("saquery --smkey 1 PKTR {}", far.lid),
            [keys.to_owned(), format!("LID {}", far.lid)],
        ),
        row(
            "saquery PKTR without the key",
            "saquery PKTR; test $? -ne 0".to_owned(),
            ["SA_ERR_REQ_INVALID".to_owned()],
        ),
        row(
            "saquery LFTR",
            format!("saquery LFTR {}/0", leaf.lid),
            [
                format!("{} {}", far.lid, leaf.to_far),
                format!("{} {}", near.lid, leaf.to_near),
                format!("{} 0", leaf.lid),
            ],
        ),
        row("saquery GIR", format!("saquery GIR {}", far.lid), [format!("GUID 0 {:#018x}", far.guid)]),
        row("saquery IIR", "counted dump saquery IIR".to_owned(), ["lines with dump: 0".to_owned()]),
        row("saquery SR", "counted dump saquery SR".to_owned(), ["lines with dump: 0".to_owned()]),
    ]
}

/// Paths between the ports.
fn paths(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { near, far, .. } = built;
    let path = [
        format!("dgid {}", gid(far)),
        format!("sgid {}", gid(near)),
        format!("dlid {}", far.lid),
        format!("slid {}", near.lid),
        "num_path_revers 0x81".to_owned(),
        "pkey 0xFFFF".to_owned(),
        "sl 0x0".to_owned(),
        "mtu 0x85".to_owned(),
        "rate 0x90".to_owned(),
    ];
    vec![
        row(
            "saquery -p",
            "counted 'PathRecord dump' saquery -p".to_owned(),
            [
                format!("dlid {}", far.lid),
                format!("dlid {}", built.leaf.lid),
                "lines with PathRecord dump: 16".to_owned(),
            ],
        ),
        row("saquery --src-to-dst", format!("saquery --src-to-dst {}:{}", near.lid, far.lid), path.clone()),
        row("saquery --sgid-to-dgid", format!("saquery --sgid-to-dgid {}-{}", gid(near), gid(far)), path),
    ]
}

/// Multicast groups, which both ports join through IPoIB.
fn groups(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { spine, leaf, near, far, .. } = built;
    let joined = DiagnosticRow {
        is_needed: true,
        ..row(
            "IPoIB joins the group of broadcasts",
            "join_groups && saquery --smkey 1 -m".to_owned(),
            [format!("PortGid {}", gid(near)), format!("PortGid {}", gid(far))],
        )
    };
    vec![
        row(
            "saquery -g",
            "saquery -g".to_owned(),
            [
                format!("MGID {BROADCAST}"),
                "Mlid 0xC000".to_owned(),
                "Mtu 0x84".to_owned(),
                "Rate 0x83".to_owned(),
                "pkey 0xFFFF".to_owned(),
            ],
        ),
        joined,
        row(
            "saquery MFTR",
            format!("saquery MFTR {}", leaf.lid),
            [format!("0xc000 {:#06x}", 1_u16 << leaf.to_near | 1 << leaf.to_far)],
        ),
        row(
            "ibroute -M",
            format!("ibroute -M -n {}", spine.lid),
            [format!("0xc000 {:04x}", 1_u16 << spine.to_near | 1 << spine.to_far)],
        ),
        // One hop: with more, the program reads nodes that it has freed.
        row(
            "ibtracert -m",
            format!("ibtracert -m 0xc000 {} {}", spine.lid, near.lid),
            [format!("To ca {:#x} port 1 lid {1}-{1}", near.node_guid, near.lid)],
        ),
    ]
}

/// Vendors' classes, from port to port.
fn pings(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let (lid, guid) = (built.far.lid, built.far.guid);
    let ping = |arguments: String| {
        format!(
            "served_by 'ibping -S -C mlx5_1' 'ibping -f -c 1 {lid} | grep -q \" 0% packet loss\"' ibping -f -c 50 {arguments}"
        )
    };
    let all = ["50 packets transmitted, 50 received, 0% packet loss".to_owned()];
    vec![
        row("ibping", ping(lid.to_string()), all.clone()),
        row("ibping by GUID", ping(format!("-G {guid:#x}")), all),
        row(
            "ibsysstat",
            format!("served_by 'ibsysstat -S -C mlx5_1' 'ibsysstat {lid} ping' ibsysstat {lid} ping"),
            ["sysstat ping succeeded".to_owned()],
        ),
    ]
}

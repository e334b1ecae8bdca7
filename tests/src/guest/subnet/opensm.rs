//! OpenSM in the guest: as master and as standby beside the built-in manager, killed and restarted under
//! traffic, with partitions, and with a second OpenSM in a subnet without a manager.
//!
//! The order of the rows matters: each finds the managers as the rows before have left them, and the last
//! ones return the subnet to the built-in manager.

use super::built::{BuiltPort, BuiltSubnet};
use super::row::{BROADCAST, DiagnosticRow, Wanted, gid, row};
use bareverbs_sim::net::{MANAGER_LID, SubnetSwitchConfig};

/// The switch of the subnet without a manager.
const LONE_GUID: u64 = 0x0002_c903_0000_0061;
const LONE_PORTS: u8 = 2;

pub(super) fn lone_switch() -> SubnetSwitchConfig {
    SubnetSwitchConfig { guid: LONE_GUID, ports: LONE_PORTS, description: "lone".to_owned() }
}

/// All rows.
pub(super) fn all(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let mut rows = standby(built);
    rows.extend(mastership(built));
    rows.extend(administration(built));
    rows.extend(traffic(built));
    rows.extend(partitions(built));
    rows.extend(alone());
    rows.push(row("OpenSM logs no error", "opensm_errors".to_owned(), ["no error in".to_owned()]));
    rows
}

/// The command, with the GUID of the built-in manager in a variable.
fn with_manager(built: &BuiltSubnet, command: &str) -> String {
    format!("built_in={:#x}\n{command}", built.spine.guid)
}

fn sm_info(lid: u16, guid: u64) -> String {
    format!("sminfo: sm lid {lid} sm guid {guid:#x}")
}

/// OpenSM with the built-in manager's priority, but a greater GUID.
fn standby(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    vec![
        row(
            "OpenSM of the same priority stands by",
            "opensm_start near $near 0 && opensm_has near 'Entering STANDBY' && sminfo -D 0".to_owned(),
            [format!("sm guid {:#x}", built.near.guid), "priority 0 state 2 SMINFO_STANDBY".to_owned()],
        ),
        row(
            "the built-in manager stays the master",
            "sleep 3; sminfo && opensm_end near TERM".to_owned(),
            [sm_info(MANAGER_LID, built.spine.guid), "priority 0 state 3 SMINFO_MASTER".to_owned()],
        ),
    ]
}

fn mastership(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { spine, near, far, .. } = built;
    vec![
        row(
            "OpenSM of higher priority becomes the master",
            format!("opensm_masters near $near 15 && master_is $far {:#x} && sminfo -C $far", near.guid),
            [sm_info(near.lid, near.guid), "priority 15 state 3 SMINFO_MASTER".to_owned()],
        ),
        row(
            "the built-in manager stands by",
            "sminfo -D 0,1".to_owned(),
            [format!("sm guid {:#x}", spine.guid), "priority 0 state 2 SMINFO_STANDBY".to_owned()],
        ),
        row(
            "ports keep their LIDs",
            "ibstat $near && ibstat $far".to_owned(),
            [
                format!("Base lid: {}", near.lid),
                format!("Base lid: {}", far.lid),
                format!("SM lid: {}", near.lid),
            ],
        ),
        DiagnosticRow {
            name: "ibnetdiscover under OpenSM",
            command: "ibnetdiscover".to_owned(),
            wanted: Wanted::Topology,
            is_needed: false,
        },
    ]
}

/// OpenSM's administration, queried from the other port, and what OpenSM had written to a switch.
fn administration(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let BuiltSubnet { spine, leaf, near, far, .. } = built;
    let guid = |guid: u64| format!("port_guid {guid:#018x}");
    vec![
        row(
            "saquery of OpenSM",
            "counted 'NodeRecord dump' saquery -C $far".to_owned(),
            [
                guid(near.guid),
                guid(far.guid),
                guid(spine.guid),
                guid(leaf.guid),
                "lines with NodeRecord dump: 4".to_owned(),
            ],
        ),
        row(
            "saquery --src-to-dst of OpenSM",
            format!("saquery -C $far --src-to-dst {}:{}", far.lid, near.lid),
            [
                format!("dgid {}", gid(near)),
                format!("dlid {}", near.lid),
                format!("slid {}", far.lid),
                "pkey 0xFFFF".to_owned(),
                "mtu 0x85".to_owned(),
                "rate 0x90".to_owned(),
            ],
        ),
        row(
            "IPoIB joins OpenSM's group of broadcasts",
            joined(&[near, far]),
            [format!("MGID {BROADCAST}"), format!("PortGid {}", gid(near)), format!("PortGid {}", gid(far))],
        ),
        row(
            "saquery SMIR of OpenSM",
            "counted 'SMInfoRecord dump' saquery SMIR".to_owned(),
            [
                format!("GUID {:#018x}", near.guid),
                format!("GUID {:#018x}", spine.guid),
                "lines with SMInfoRecord dump: 2".to_owned(),
            ],
        ),
        row(
            "ibroute of the other switch under OpenSM",
            format!("ibroute {}", leaf.lid),
            [
                format!("{:#06x} {:03} : (Channel Adapter", near.lid, leaf.to_near),
                format!("{:#06x} {:03} : (Channel Adapter", far.lid, leaf.to_far),
            ],
        ),
        row(
            "ibroute -M under OpenSM",
            format!("ibroute -M -n {}", spine.lid),
            [format!("0xc000 {:04x}", 1_u16 << spine.to_near | 1 << spine.to_far)],
        ),
        row(
            "ibping under OpenSM",
            format!(
                "served_by 'ibping -S -C mlx5_1' 'ibping -f -c 1 {0} | grep -q \" 0% packet loss\"' ibping -f -c 50 {0}",
                far.lid
            ),
            ["50 packets transmitted, 50 received, 0% packet loss".to_owned()],
        ),
    ]
}

/// Checks that both ports are in the broadcast group; their interfaces join again when a new master takes
/// over.
fn joined(ports: &[&BuiltPort]) -> String {
    let gids: Vec<String> = ports.iter().map(|port| gid(port).to_string()).collect();
    format!(
        "within \"test \\$(saquery --smkey 1 -m | grep -A 1 'Mlid.*0xC000' | grep -cE 'PortGid.*({})') = {}\" && saquery --smkey 1 -m",
        gids.join("|"),
        gids.len()
    )
}

fn traffic(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    vec![
        row(
            "OpenSM is killed and started again under data",
            with_manager(built, "written_while $near $far 60 killed_and_back"),
            ["no verbs error".to_owned(), "SMINFO_MASTER".to_owned()],
        ),
        row(
            "the built-in manager stands by again",
            "sminfo -D 0,1".to_owned(),
            ["priority 0 state 2 SMINFO_STANDBY".to_owned()],
        ),
    ]
}

/// Partitions from OpenSM's file, and their effect on queue pairs.
fn partitions(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let keys = |name, device: &str| {
        row(
            name,
            format!("sort -u /sys/class/infiniband/{device}/ports/1/pkeys/*"),
            ["0x0000", "0x0002", "0x8001", "0xffff"].map(str::to_owned),
        )
    };
    vec![
        row(
            "OpenSM reads a file of partitions",
            with_manager(
                built,
                "partitions >/tmp/partitions && opensm_end near KILL && built_in_masters && opensm_masters near $near 15 /tmp/partitions && within 'key_at $far 0x8001'",
            ),
            ["SMINFO_MASTER".to_owned()],
        ),
        keys("P_Keys of the port with OpenSM", "$near"),
        keys("P_Keys of the other port", "$far"),
        row(
            "RDMA in a partition of full members",
            "written_by_key $near $far $(key_at $near 0x8001)".to_owned(),
            ["65536 50".to_owned()],
        ),
        row(
            "RDMA between limited members is refused",
            "refused_by_key $near $far $(key_at $near 0x0002)".to_owned(),
            ["refused".to_owned()],
        ),
        row(
            "the built-in manager has the subnet again",
            with_manager(
                built,
                "opensm_end near TERM && built_in_masters && within '! key_at $far 0x8001' && sminfo && cat /sys/class/infiniband/$far/ports/1/pkeys/0",
            ),
            [
                sm_info(MANAGER_LID, built.spine.guid),
                "priority 0 state 3 SMINFO_MASTER".to_owned(),
                "0xffff".to_owned(),
            ],
        ),
        DiagnosticRow {
            name: "ibnetdiscover after OpenSM",
            command: "ibnetdiscover".to_owned(),
            wanted: Wanted::Topology,
            is_needed: false,
        },
    ]
}

/// Two OpenSMs, and no manager in a switch.
fn alone() -> Vec<DiagnosticRow> {
    let discovered =
        |count: usize| [format!("lines with {LONE_GUID:x}: {count}"), "lid 1".to_owned(), "lid 2".to_owned()];
    vec![
        row(
            "OpenSM brings a subnet without manager up",
            "opensm_masters other $other 3 && sminfo -C $lone && cat /sys/class/infiniband/$lone/ports/1/state".to_owned(),
            ["priority 3 state 3 SMINFO_MASTER", "4: ACTIVE"].map(str::to_owned),
        ),
        row(
            "ibnetdiscover of OpenSM's subnet",
            format!("counted {LONE_GUID:x} ibnetdiscover -C $lone"),
            discovered(5),
        ),
        row(
            "OpenSM hands over to OpenSM",
            "opensm_masters lone $lone 9 && opensm_has other 'Entering STANDBY' && sminfo -C $other".to_owned(),
            ["priority 9 state 3 SMINFO_MASTER".to_owned()],
        ),
        row(
            "OpenSM takes over from OpenSM under data",
            "written_while $lone $other 30 killed_for_the_other && opensm_end other TERM".to_owned(),
            ["no verbs error".to_owned(), "SMINFO_MASTER".to_owned()],
        ),
    ]
}

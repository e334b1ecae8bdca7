//! Partitions: P_Key tables from a file, and enforcement by switch ports.

use super::*;
use crate::net::{Partitions, SubnetSwitchConfig};
use crate::wire::management::attributes::{Notice, SwitchInfo, SwitchKeyDetails};

const FILE: &str =
    "Default=0x7fff : ALL=limited, SELF=full; storage=0x8005 : 0xa=full, 0xb=limited; other=6 : 0xb=full;";

/// Two ports in the partitions of a file.
fn partitioned() -> (Switch, Vec<Agent>) {
    let partitions = Partitions::parse(FILE).expect("a file");
    let config = SubnetConfig { partitions, ..SubnetConfig::default() };
    subnet_of(config, vec![Agent::new(0xa), Agent::new(0xb)])
}

fn keys(table: &[u8]) -> Vec<u16> {
    let keys = table.chunks(2).map(|key| u16::from_be_bytes([key[0], key[1]]));
    keys.take_while(|key| *key != 0).collect()
}

/// A data packet from port `from` to the other one.
fn data(agents: &[Agent], from: usize, key: u16) -> FrameBuffer {
    general_frame_between([agents[from].lid, agents[1 - from].lid], &[0; SIZE], 1, key)
}

/// Whether a packet from an agent leaves the switch.
fn passes(switch: &mut Switch, agents: &[Agent], from: usize, key: u16) -> bool {
    switch.handle_frame(Time::ZERO, from, &data(agents, from, key));
    match switch.poll_exit() {
        Some(Egress::Forward { port }) => {
            assert_eq!(port, 1 - from);
            true
        }
        None => false,
        other => panic!("{other:?}"),
    }
}

/// Requirement: IBTA v1.4 §14.2.5.7: ports have the P_Keys that the manager assigned.
#[test]
fn ports_have_the_keys_that_the_file_gives_them() {
    let (_, agents) = partitioned();
    assert_eq!(keys(&agents[0].keys), [0x7fff, 0x8005]);
    assert_eq!(keys(&agents[1].keys), [0x7fff, 0x0005, 0x8006]);
}

/// Requirement: IBTA v1.4 §14.2.5.6: with `PartitionEnforcementInbound` and `-Outbound`, a switch port drops and counts
/// packets of partitions to which the port behind it does not belong.
#[test]
fn a_switch_passes_packets_of_members_only() {
    let (mut switch, agents) = partitioned();
    assert!(passes(&mut switch, &agents, 0, 0x8005), "from a full member to a limited one");
    assert!(passes(&mut switch, &agents, 1, 0x0005), "from a limited member to a full one");
    assert!(!passes(&mut switch, &agents, 1, 0x8005), "not a full member");
    assert!(!passes(&mut switch, &agents, 0, 0x7fff), "two limited members");
    assert!(!passes(&mut switch, &agents, 1, 0x8006), "the other port is not in this partition");
    assert!(!passes(&mut switch, &agents, 0, 0x8006), "the sender is not in this partition");
    let counters = switch.counters();
    assert_eq!((counters.forwarded, counters.filtered), (2, 4));
}

/// The SA only returns paths between ports that share a partition, with that partition's P_Key.
#[test]
fn paths_lead_to_ports_of_common_partitions() {
    use crate::wire::management::administration::{PathRecord, record};
    let (mut switch, agents) = partitioned();
    let mut query = PathRecord::new();
    query.set_sgid(gid(0xa)).set_dgid(gid(0xb));
    let (dgid, sgid) = (1 << 2, 1 << 3);
    let mask = dgid | sgid;
    let frame = general_frame(
        agents[0].lid,
        &request(GET, record::PATH, mask, &query).to_bytes(),
        GENERAL_SERVICES_QKEY,
        0x7fff,
    );
    switch.handle_frame(Time::ZERO, 0, &frame);
    let told = responses(&mut switch, 0);
    let path: PathRecord = told[0].record().expect("a record");
    assert_eq!((told[0].mad.status(), path.partition_key()), (0, 0x8005));
}

/// A switch without an SM whose port 2, counted from 1, has an adapter; port 3 leads to the SM.
fn enforcing_switch() -> Switch {
    let mut switch = further_switch::further_switch();
    further_switch::configure(&mut switch);
    while switch.poll().is_some() {}
    let mut table = [0_u8; 64];
    table[..4].copy_from_slice(&[0x7f, 0xff, 0x80, 5]);
    assert_eq!(further_switch::set(&mut switch, attribute::PARTITION_KEYS, 2 << 16, &table), status::OK);
    let mut port = PortInfo::new();
    port.set_partition_enforcement_inbound(true).set_partition_enforcement_outbound(true);
    assert_eq!(further_switch::set(&mut switch, attribute::PORT_INFO, 2, &port), status::OK);
    switch
}

/// Requirement: IBTA v1.4 §14.2.5.7: each external port of a switch has a P_Key table of `PartitionEnforcementCap`
/// entries; ports that do not exist have none.
#[test]
fn tables_of_ports_are_as_they_were_written() {
    let mut switch = enforcing_switch();
    let get = further_switch::get;
    let info: SwitchInfo = get(&mut switch, attribute::SWITCH_INFO, 0).read().unwrap();
    assert_eq!(info.partition_enforcement_cap(), 32);
    let mut shown = |port: u32| get(&mut switch, attribute::PARTITION_KEYS, port << 16);
    assert_eq!(keys(shown(2).data()), [0x7fff, 0x8005]);
    assert_eq!((keys(shown(1).data()), keys(shown(0).data())), (vec![0xffff], vec![0xffff]));
    assert_eq!(shown(5).status(), status::INVALID);
    assert_eq!(get(&mut switch, attribute::PARTITION_KEYS, 1).status(), status::INVALID, "one block");
    let port: PortInfo = get(&mut switch, attribute::PORT_INFO, 2).read().unwrap();
    assert!(port.partition_enforcement_inbound() && port.partition_enforcement_outbound());
    let mut own = [0_u8; 64];
    own[..2].copy_from_slice(&[0x80, 9]);
    assert_eq!(further_switch::set(&mut switch, attribute::PARTITION_KEYS, 0, &own), status::OK);
    assert_eq!(keys(get(&mut switch, attribute::PARTITION_KEYS, 0).data()), [0x8009]);
}

/// Requirement: IBTA v1.4 §14.2.5.1: trap 259 tells the manager of a packet that a switch blocked, with the packet's
/// addresses and the switch's LID and port, until it is repressed.
#[test]
fn a_switch_tells_the_manager_of_a_foreign_packet() {
    let mut switch = enforcing_switch();
    let foreign = general_frame_between([0x31, 9], &[0; SIZE], 1, 0x8006);
    switch.handle_frame(Time::ZERO, 1, &foreign);
    let Some(Egress::Own { port: 2, frame, .. }) = switch.poll() else { panic!("no trap") };
    assert_eq!(destination_lid(&frame), Some(9));
    let trap = SubnetPacket::of(&parse(&frame).expect("a packet")).expect("a subnet management packet");
    let notice: Notice = trap.read().expect("a notice");
    assert_eq!((trap.method(), notice.trap(), notice.kind(), notice.producer()), (Method::Trap, 259, 2, 2));
    let bytes = [&notice.lid().to_be_bytes()[..], &notice.details()[..50]].concat();
    let details = SwitchKeyDetails::read_from_bytes(&bytes).expect("details");
    assert_eq!((details.source_lid(), details.destination_lid(), details.key()), (0x31, 9, 0x8006));
    assert_eq!((details.source_qp(), details.destination_qp()), (ASKER, 1));
    assert_eq!((details.data_valid(), details.switch_lid(), details.port()), (0x3f, 7, 2));
    switch.handle_frame(Time::ZERO, 1, &foreign);
    assert_eq!(switch.poll(), None, "it sent a trap just now");
    let heard = SubnetPacket::lid_routed(Method::TrapRepress, attribute::NOTICE, trap.transaction());
    switch.handle_frame(Time::ZERO, 2, &heard.to_frame(9, 7).0);
    assert_eq!(switch.poll_timeout(), None);
}

/// The SM writes the P_Key tables of another switch's ports, and enables enforcement where an adapter is attached.
#[test]
fn the_manager_has_further_switches_look_at_keys() {
    let partitions = Partitions::parse(FILE).expect("a file");
    let mut spine = Switch::infiniband(SubnetConfig { partitions, ..SubnetConfig::default() });
    let config = SubnetSwitchConfig { guid: 0x51, ports: 4, description: "leaf".into() };
    let mut leaf = Switch::infiniband_without_manager(&config);
    let mut agent = Agent::new(0xb);
    spine.handle_link(Time::ZERO, 0, true);
    leaf.handle_link(Time::ZERO, 0, true);
    leaf.handle_link(Time::ZERO, 2, true);
    for _ in 0..200 {
        while let Some(Egress::Own { port: 0, frame, .. }) = spine.poll() {
            leaf.handle_frame(Time::ZERO, 0, &frame);
            while let Some(Egress::Own { port, frame, .. }) = leaf.poll() {
                match port {
                    0 => spine.handle_frame(Time::ZERO, 0, &frame),
                    _ => leaf.handle_frame(Time::ZERO, 2, &agent.answer(&frame)),
                }
            }
        }
    }
    assert_eq!(keys(&agent.keys), [0x7fff, 0x0005, 0x8006]);
    let shown = |leaf: &mut Switch, port: u32| {
        let mut request = SubnetPacket::request(Method::Get, attribute::PARTITION_KEYS, port << 16, 3);
        request.leave_by(1);
        leaf.handle_frame(Time::ZERO, 2, &request.to_frame(0, 0).0);
        let Some(Egress::Own { frame, .. }) = leaf.poll() else { panic!("no response") };
        keys(SubnetPacket::of(&parse(&frame).expect("a packet")).expect("a subnet management packet").data())
    };
    assert_eq!(shown(&mut leaf, 3), [0x7fff, 0x0005, 0x8006]);
    assert_eq!((shown(&mut leaf, 1), shown(&mut leaf, 0)), (vec![0xffff], vec![0x7fff]));
    let foreign = general_frame_between([agent.lid, MANAGER_LID], &[0; SIZE], 1, 0x8007);
    let filtered = leaf.counters().filtered;
    leaf.handle_frame(Time::ZERO, 2, &foreign);
    assert_eq!((leaf.poll_exit(), leaf.counters().filtered), (None, filtered + 1));
    let own = general_frame_between([agent.lid, MANAGER_LID], &[0; SIZE], 1, 0x7fff);
    leaf.handle_frame(Time::ZERO, 2, &own);
    assert_eq!(leaf.poll_exit(), Some(Egress::Forward { port: 0 }));
}

//! Records of nodes and ports, and what is refused.

use super::*;
use crate::wire::management::administration::{
    LinearForwardingTableRecord, NodeRecord, PortInfoRecord, SwitchInfoRecord, record, status as sa_status,
};
use crate::wire::management::attributes::ClassPortInfo;

const EMPTY: [u8; 0] = [];

/// Requirement: IBTA v1.4 §15.2.4.1: ClassPortInfo of the administration says its version and what it can do.
#[test]
fn the_administration_says_what_it_can() {
    let (mut switch, agents) = subnet(0);
    let answer = ask(&mut switch, &agents, 0, &request(GET, attribute::CLASS_PORT_INFO, 0, &EMPTY));
    let info: ClassPortInfo = answer.record().unwrap();
    assert_eq!((answer.mad.method(), answer.mad.status()), (0x81, 0));
    assert_eq!((info.base_version(), info.class_version()), (1, 2));
    assert_eq!((info.capability_mask(), info.capability_mask2()), (1 << 9 | 1 << 13, 1 << 12));
    assert_eq!(info.resp_time_value(), 18);
}

/// Requirement: IBTA v1.4 §15.2.5.2: there is a NodeRecord of each end port, with NodeInfo and NodeDescription of its node.
#[test]
fn there_is_a_record_of_each_node() {
    let (mut switch, agents) = subnet(1);
    let all = request(method::GET_TABLE, record::NODE, 0, &EMPTY);
    let (nodes, segments) = table::<NodeRecord>(&mut switch, &agents, 1, &all);
    assert_eq!(segments, 2, "three records of 112 bytes in segments of 200");
    let seen: Vec<_> = nodes
        .iter()
        .map(|node| (node.lid(), node.node_info().node_type(), node.node_info().port_guid()))
        .collect();
    assert_eq!(seen, [(2, 1, 0xa), (4, 1, 0xb), (MANAGER_LID, 2, SubnetConfig::default().guid)]);
    assert_eq!(&nodes[0].node_description()[..5], b"node\0");
    assert_eq!(nodes[2].node_info().num_ports(), 2);
}

/// Requirement: IBTA v1.4 §15.2.1.1: a record is found by the components that the mask chooses, and by no others.
#[test]
fn nodes_are_found_by_their_components() {
    let (mut switch, agents) = subnet(1);
    let mut wish = NodeRecord::new();
    wish.set_lid(5).node_info_mut().set_port_guid(0xa).set_node_type(1);
    let mut found = |mask| {
        let wanted = request(method::GET_TABLE, record::NODE, mask, &wish);
        let (nodes, _) = table::<NodeRecord>(&mut switch, &agents, 0, &wanted);
        nodes.iter().map(NodeRecord::lid).collect::<Vec<_>>()
    };
    assert_eq!(found(1), [4], "any LID of a port names it");
    assert_eq!(found(1 << 8), [2]);
    assert_eq!(found(1 << 4), [2, 4]);
    assert_eq!(found(1 | 1 << 8), []);
}

/// Requirement: IBTA v1.4 §15.4.1: a SubnAdmGet has one answer: none found, and more than one found, are errors.
#[test]
fn a_get_finds_one_record() {
    let (mut switch, agents) = subnet(0);
    let mut wish = NodeRecord::new();
    wish.set_lid(2);
    let mut status_of = |wish: &NodeRecord, mask| {
        ask(&mut switch, &agents, 0, &request(GET, record::NODE, mask, wish)).mad.status()
    };
    assert_eq!(status_of(&wish, 1), 0);
    assert_eq!(status_of(&wish, 0), sa_status::TOO_MANY_RECORDS);
    assert_eq!(status_of(wish.set_lid(7), 1), sa_status::NO_RECORDS);
}

/// Requirement: IBTA v1.4 §15.2.5.3: PortInfoRecord has the PortInfo of an end port; its M_Key is shown to nobody without the SM_Key.
#[test]
fn there_is_a_record_of_each_port() {
    let (mut switch, agents) = subnet(0);
    let mut wish = PortInfoRecord::new();
    wish.set_end_port_lid(2);
    let mut get = request(GET, record::PORT_INFO, 1, &wish);
    let mut port =
        |get: &AdministrationPacket| ask(&mut switch, &agents, 0, get).record::<PortInfoRecord>().unwrap();
    let shown = port(&get);
    assert_eq!((shown.end_port_lid(), shown.port_num(), shown.port_info().port_state()), (2, 1, 4));
    assert_eq!(shown.port_info().m_key(), 0);
    get.sa.set_sm_key(SM_KEY);
    assert_eq!(port(&get).port_info().m_key(), 0xaa);
}

/// Requirement: IBTA v1.4 §15.2.5.5: there is a SwitchInfoRecord of each switch.
#[test]
fn there_is_a_record_of_each_switch() {
    let (mut switch, agents) = subnet(0);
    let all = request(method::GET_TABLE, record::SWITCH_INFO, 0, &EMPTY);
    let (switches, _) = table::<SwitchInfoRecord>(&mut switch, &agents, 0, &all);
    assert_eq!((switches.len(), switches[0].lid()), (1, MANAGER_LID));
    assert_eq!(switches[0].switch_info().linear_cap(), 0xc000);
    let mut wish = SwitchInfoRecord::new();
    let adapter = request(GET, record::SWITCH_INFO, 1, wish.set_lid(agents[0].lid));
    assert_eq!(ask(&mut switch, &agents, 0, &adapter).mad.status(), sa_status::NO_RECORDS);
}

/// Requirement: IBTA v1.4 §15.2.5.6: there is a LinearForwardingTableRecord of each block of a switch's table that has entries.
#[test]
fn there_is_a_record_of_each_block_of_a_linear_table() {
    let (mut switch, agents) = subnet(0);
    let all = request(method::GET_TABLE, record::LINEAR_FORWARDING, 0, &EMPTY);
    let (blocks, _) = table::<LinearForwardingTableRecord>(&mut switch, &agents, 0, &all);
    let seen: Vec<_> = blocks.iter().map(|block| (block.lid(), block.block())).collect();
    assert_eq!(seen, [(MANAGER_LID, 0), (MANAGER_LID, MANAGER_LID / 64)]);
    assert_eq!(blocks[0].ports()[..4], [255, 1, 2, 255]);
    assert_eq!(blocks[1].ports()[63], 0, "the switch itself");
    let mut wish = LinearForwardingTableRecord::new();
    let one = request(GET, record::LINEAR_FORWARDING, 1 | 1 << 1, wish.set_lid(MANAGER_LID).set_block(0));
    let found: LinearForwardingTableRecord = ask(&mut switch, &agents, 0, &one).record().unwrap();
    assert_eq!(found.ports(), blocks[0].ports());
}

/// Requirement: IBTA v1.4 §15.2.5.3: with bit 31 of AttributeModifier, ports are found by bits of CapabilityMask that they have, whatever else they have.
#[test]
fn ports_are_found_by_bits_of_their_capabilities() {
    let (mut switch, agents) = subnet(0);
    let mut found = |modifier: u32, bits: u32| {
        let mut wish = PortInfoRecord::new();
        wish.port_info_mut().set_capability_mask(bits);
        let mut wanted = request(method::GET_TABLE, record::PORT_INFO, 1 << 7, &wish);
        wanted.mad.set_modifier(modifier);
        let (ports, _) = table::<PortInfoRecord>(&mut switch, &agents, 0, &wanted);
        ports.iter().map(PortInfoRecord::end_port_lid).collect::<Vec<_>>()
    };
    assert_eq!(found(1 << 31, 1 << 6), [1, 2, MANAGER_LID]);
    assert_eq!(
        found(1 << 31, 1 << 6 | 1 << 11),
        [MANAGER_LID],
        "ports of these adapters have no SystemImageGUID"
    );
    assert_eq!(found(1 << 31, 1 << 1), [MANAGER_LID], "the port that hosts the SM");
    assert_eq!(found(0, 1 << 6), []);
    assert_eq!(found(0, 1 << 14 | 1 << 6), [1, 2]);
}

/// Requirement: IBTA v1.4 §15.2.5.3: `Options` chooses no port; the answer repeats what was asked.
#[test]
fn options_of_a_port_record_are_those_of_the_request() {
    let (mut switch, agents) = subnet(0);
    let mut wish = PortInfoRecord::new();
    wish.set_options(0x80).set_end_port_lid(2);
    let mut options = |mask| {
        let answer = ask(&mut switch, &agents, 0, &request(GET, record::PORT_INFO, mask, &wish));
        answer.record::<PortInfoRecord>().expect("a record").options()
    };
    assert_eq!([options(1), options(1 | 1 << 2)], [0, 0x80]);
}

/// Requirement: IBTA v1.4 §13.4.7: the administration answers class, method and attribute that it does not have with a status.
#[test]
fn what_the_administration_does_not_have_is_refused() {
    let (mut switch, agents) = subnet(0);
    let refusals = [
        (request(SET, record::NODE, 0, &EMPTY), 0x81, status::UNSUPPORTED),
        (request(GET, 0x7777, 0, &EMPTY), 0x81, status::UNSUPPORTED),
        (request(method::DELETE, record::PATH, 0, &EMPTY), 0x95, status::UNSUPPORTED),
        (request(method::GET_MULTI, record::NODE, 0, &EMPTY), 0x94, status::UNSUPPORTED),
        (request(0x06, record::NODE, 0, &EMPTY), 0x86, status::BAD_METHOD),
    ];
    for (wish, method, expected) in refusals {
        let answer = ask(&mut switch, &agents, 0, &wish);
        assert_eq!((answer.mad.method(), answer.mad.status()), (method, expected), "{wish:?}");
    }
    for (class, version) in [(class::ADMINISTRATION, 1), (0x09, 1), (class::PERFORMANCE, 2)] {
        let mut wish = request(GET, record::NODE, 0, &EMPTY);
        wish.mad.set_class(class).set_class_version(version);
        assert_eq!(ask(&mut switch, &agents, 0, &wish).mad.status(), status::BAD_VERSION, "class {class}");
    }
}

/// Requirement: IBTA v1.4 §15.2.1.1: a request with an SM_Key that is not the manager's is ignored, and no answer shows the key.
#[test]
fn a_wrong_key_has_no_answer() {
    let (mut switch, agents) = subnet(0);
    let mut wish = request(GET, attribute::CLASS_PORT_INFO, 0, &EMPTY);
    wish.sa.set_sm_key(SM_KEY + 1);
    assert!(send(&mut switch, &agents, 0, &wish.to_bytes()).is_empty());
    wish.sa.set_sm_key(SM_KEY);
    assert_eq!(ask(&mut switch, &agents, 0, &wish).sa.sm_key(), 0);
}

/// Requirement: IBTA v1.4 §9.2.4: the administration hears the Q_Key of general services and its own partitions only, and nobody without
/// a LID of the subnet.
#[test]
fn strangers_are_not_heard() {
    let (mut switch, agents) = subnet(0);
    let bytes = request(GET, attribute::CLASS_PORT_INFO, 0, &EMPTY).to_bytes();
    let mut hears = |lid, q_key, partition_key| {
        switch.handle_frame(Time::ZERO, 0, &general_frame(lid, &bytes, q_key, partition_key));
        !answers(&mut switch, 0).is_empty()
    };
    let lid = agents[0].lid;
    assert!(hears(lid, GENERAL_SERVICES_QKEY, 0xffff) && hears(lid, GENERAL_SERVICES_QKEY, 0x0001));
    assert!(!hears(lid, GENERAL_SERVICES_QKEY, 0x8002));
    assert!(!hears(lid, 7, 0xffff));
    assert!(!hears(99, GENERAL_SERVICES_QKEY, 0xffff));
}

/// Requirement: IBTA v1.4 §15.4.1: nobody is told of ports with which it has no partition in common.
#[test]
fn limited_members_do_not_see_each_other() {
    let partitions = Partitions::of_all(&[0x0123]);
    let config = SubnetConfig { partitions, ..SubnetConfig::default() };
    let (mut switch, agents) = subnet_of(config, vec![Agent::new(0xa), Agent::new(0xb)]);
    let all = request(method::GET_TABLE, record::NODE, 0, &EMPTY).to_bytes();
    switch.handle_frame(Time::ZERO, 0, &general_frame(agents[0].lid, &all, GENERAL_SERVICES_QKEY, 0x0123));
    let [answer] = &answers(&mut switch, 0)[..] else { panic!("one segment") };
    assert_eq!(answer.rmpp.length(), 20 * 2 + 2 * 112, "the port itself and the SM's");
}

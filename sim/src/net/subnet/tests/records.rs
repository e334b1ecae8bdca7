//! Records of nodes and ports, and what is refused.

use super::*;
use crate::wire::management::administration::{
    LinearForwardingTableRecord, NodeRecord, PortInfoRecord, SwitchInfoRecord, record, status as sa_status,
};
use crate::wire::management::attributes::ClassPortInfo;

const EMPTY: [u8; 0] = [];

/// Requirement: IBTA v1.4 §15.2.4.1: ClassPortInfo of the administration has its version and capabilities.
#[test]
fn the_administration_says_what_it_can() {
    let (mut switch, agents) = subnet(0);
    let response = ask(&mut switch, &agents, 0, &request(GET, attribute::CLASS_PORT_INFO, 0, &EMPTY));
    let info: ClassPortInfo = response.record().unwrap();
    assert_eq!((response.mad.method(), response.mad.status()), (0x81, 0));
    assert_eq!((info.base_version(), info.class_version()), (1, 2));
    assert_eq!((info.capability_mask(), info.capability_mask2()), (1 << 9 | 1 << 13, 1 << 12));
    assert_eq!(info.resp_time_value(), 18);
}

/// Requirement: IBTA v1.4 §15.2.5.2: each end port has a NodeRecord, with NodeInfo and NodeDescription of its node.
#[test]
fn each_node_has_a_record() {
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

/// Requirement: IBTA v1.4 §15.2.1.1: only the components that the mask selects determine the matching records.
#[test]
fn nodes_are_found_by_their_components() {
    let (mut switch, agents) = subnet(1);
    let mut query = NodeRecord::new();
    query.set_lid(5).node_info_mut().set_port_guid(0xa).set_node_type(1);
    let mut found = |mask| {
        let wanted = request(method::GET_TABLE, record::NODE, mask, &query);
        let (nodes, _) = table::<NodeRecord>(&mut switch, &agents, 0, &wanted);
        nodes.iter().map(NodeRecord::lid).collect::<Vec<_>>()
    };
    assert_eq!(found(1), [4], "any LID of a port names it");
    assert_eq!(found(1 << 8), [2]);
    assert_eq!(found(1 << 4), [2, 4]);
    assert_eq!(found(1 | 1 << 8), []);
}

/// Requirement: IBTA v1.4 §15.4.1: a SubnAdmGet matches exactly one record: no match and several matches are errors.
#[test]
fn a_get_matches_exactly_one_record() {
    let (mut switch, agents) = subnet(0);
    let mut query = NodeRecord::new();
    query.set_lid(2);
    let mut status_of = |query: &NodeRecord, mask| {
        ask(&mut switch, &agents, 0, &request(GET, record::NODE, mask, query)).mad.status()
    };
    assert_eq!(status_of(&query, 1), 0);
    assert_eq!(status_of(&query, 0), sa_status::TOO_MANY_RECORDS);
    assert_eq!(status_of(query.set_lid(7), 1), sa_status::NO_RECORDS);
}

/// Requirement: IBTA v1.4 §15.2.5.3: PortInfoRecord has the PortInfo of an end port; its M_Key is shown only to
/// requesters with the SM_Key.
#[test]
fn each_port_has_a_record() {
    let (mut switch, agents) = subnet(0);
    let mut query = PortInfoRecord::new();
    query.set_end_port_lid(2);
    let mut get = request(GET, record::PORT_INFO, 1, &query);
    let mut port =
        |get: &AdministrationPacket| ask(&mut switch, &agents, 0, get).record::<PortInfoRecord>().unwrap();
    let shown = port(&get);
    assert_eq!((shown.end_port_lid(), shown.port_num(), shown.port_info().port_state()), (2, 1, 4));
    assert_eq!(shown.port_info().m_key(), 0);
    get.sa.set_sm_key(SM_KEY);
    assert_eq!(port(&get).port_info().m_key(), 0xaa);
}

/// Requirement: IBTA v1.4 §15.2.5.5: each switch has a SwitchInfoRecord.
#[test]
fn each_switch_has_a_record() {
    let (mut switch, agents) = subnet(0);
    let all = request(method::GET_TABLE, record::SWITCH_INFO, 0, &EMPTY);
    let (switches, _) = table::<SwitchInfoRecord>(&mut switch, &agents, 0, &all);
    assert_eq!((switches.len(), switches[0].lid()), (1, MANAGER_LID));
    assert_eq!(switches[0].switch_info().linear_cap(), 0xc000);
    let mut query = SwitchInfoRecord::new();
    let adapter = request(GET, record::SWITCH_INFO, 1, query.set_lid(agents[0].lid));
    assert_eq!(ask(&mut switch, &agents, 0, &adapter).mad.status(), sa_status::NO_RECORDS);
}

/// Requirement: IBTA v1.4 §15.2.5.6: each block of a switch's linear table that has entries has a
/// LinearForwardingTableRecord.
#[test]
fn each_block_of_a_linear_table_has_a_record() {
    let (mut switch, agents) = subnet(0);
    let all = request(method::GET_TABLE, record::LINEAR_FORWARDING, 0, &EMPTY);
    let (blocks, _) = table::<LinearForwardingTableRecord>(&mut switch, &agents, 0, &all);
    let seen: Vec<_> = blocks.iter().map(|block| (block.lid(), block.block())).collect();
    assert_eq!(seen, [(MANAGER_LID, 0), (MANAGER_LID, MANAGER_LID / 64)]);
    assert_eq!(blocks[0].ports()[..4], [255, 1, 2, 255]);
    assert_eq!(blocks[1].ports()[63], 0, "the switch itself");
    let mut query = LinearForwardingTableRecord::new();
    let one = request(GET, record::LINEAR_FORWARDING, 1 | 1 << 1, query.set_lid(MANAGER_LID).set_block(0));
    let found: LinearForwardingTableRecord = ask(&mut switch, &agents, 0, &one).record().unwrap();
    assert_eq!(found.ports(), blocks[0].ports());
}

/// Requirement: IBTA v1.4 §15.2.5.3: with bit 31 of AttributeModifier, a port matches if it has the requested bits of
/// CapabilityMask, whatever else it has.
#[test]
fn ports_are_found_by_bits_of_their_capabilities() {
    let (mut switch, agents) = subnet(0);
    let mut found = |modifier: u32, bits: u32| {
        let mut query = PortInfoRecord::new();
        query.port_info_mut().set_capability_mask(bits);
        let mut wanted = request(method::GET_TABLE, record::PORT_INFO, 1 << 7, &query);
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

/// Requirement: IBTA v1.4 §15.2.5.3: `Options` selects no ports; the response repeats the request's value.
#[test]
fn options_of_a_port_record_are_those_of_the_request() {
    let (mut switch, agents) = subnet(0);
    let mut query = PortInfoRecord::new();
    query.set_options(0x80).set_end_port_lid(2);
    let mut options = |mask| {
        let response = ask(&mut switch, &agents, 0, &request(GET, record::PORT_INFO, mask, &query));
        response.record::<PortInfoRecord>().expect("a record").options()
    };
    assert_eq!([options(1), options(1 | 1 << 2)], [0, 0x80]);
}

/// Requirement: IBTA v1.4 §13.4.7: the administration responds with a status to a class, method or attribute that it does
/// not have.
#[test]
fn the_administration_refuses_what_it_does_not_support() {
    let (mut switch, agents) = subnet(0);
    let refusals = [
        (request(SET, record::NODE, 0, &EMPTY), 0x81, status::UNSUPPORTED),
        (request(GET, 0x7777, 0, &EMPTY), 0x81, status::UNSUPPORTED),
        (request(method::DELETE, record::PATH, 0, &EMPTY), 0x95, status::UNSUPPORTED),
        (request(method::GET_MULTI, record::NODE, 0, &EMPTY), 0x94, status::UNSUPPORTED),
        (request(0x06, record::NODE, 0, &EMPTY), 0x86, status::BAD_METHOD),
    ];
    for (query, method, expected) in refusals {
        let response = ask(&mut switch, &agents, 0, &query);
        assert_eq!((response.mad.method(), response.mad.status()), (method, expected), "{query:?}");
    }
    for (class, version) in [(class::ADMINISTRATION, 1), (0x09, 1), (class::PERFORMANCE, 2)] {
        let mut query = request(GET, record::NODE, 0, &EMPTY);
        query.mad.set_class(class).set_class_version(version);
        assert_eq!(ask(&mut switch, &agents, 0, &query).mad.status(), status::BAD_VERSION, "class {class}");
    }
}

/// Requirement: IBTA v1.4 §15.2.1.1: a request with a wrong SM_Key is ignored, and no response shows the key.
#[test]
fn a_request_with_a_wrong_key_gets_no_response() {
    let (mut switch, agents) = subnet(0);
    let mut query = request(GET, attribute::CLASS_PORT_INFO, 0, &EMPTY);
    query.sa.set_sm_key(SM_KEY + 1);
    assert!(send(&mut switch, &agents, 0, &query.to_bytes()).is_empty());
    query.sa.set_sm_key(SM_KEY);
    assert_eq!(ask(&mut switch, &agents, 0, &query).sa.sm_key(), 0);
}

/// Requirement: IBTA v1.4 §9.2.4: the administration accepts only the Q_Key of general services and its own partitions,
/// and only senders with a LID of the subnet.
#[test]
fn packets_of_strangers_are_dropped() {
    let (mut switch, agents) = subnet(0);
    let bytes = request(GET, attribute::CLASS_PORT_INFO, 0, &EMPTY).to_bytes();
    let mut hears = |lid, q_key, partition_key| {
        switch.handle_frame(Time::ZERO, 0, &general_frame(lid, &bytes, q_key, partition_key));
        !responses(&mut switch, 0).is_empty()
    };
    let lid = agents[0].lid;
    assert!(hears(lid, GENERAL_SERVICES_QKEY, 0xffff) && hears(lid, GENERAL_SERVICES_QKEY, 0x0001));
    assert!(!hears(lid, GENERAL_SERVICES_QKEY, 0x8002));
    assert!(!hears(lid, 7, 0xffff));
    assert!(!hears(99, GENERAL_SERVICES_QKEY, 0xffff));
}

/// Requirement: IBTA v1.4 §15.4.1: a requester does not see ports with which it shares no partition.
#[test]
fn limited_members_do_not_see_each_other() {
    let partitions = Partitions::of_all(&[0x0123]);
    let config = SubnetConfig { partitions, ..SubnetConfig::default() };
    let (mut switch, agents) = subnet_of(config, vec![Agent::new(0xa), Agent::new(0xb)]);
    let all = request(method::GET_TABLE, record::NODE, 0, &EMPTY).to_bytes();
    switch.handle_frame(Time::ZERO, 0, &general_frame(agents[0].lid, &all, GENERAL_SERVICES_QKEY, 0x0123));
    let [response] = &responses(&mut switch, 0)[..] else { panic!("one segment") };
    assert_eq!(response.rmpp.length(), 20 * 2 + 2 * 112, "the port itself and the SM's");
}

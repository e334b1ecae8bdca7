//! A switch without an SM: the Gets and Sets of its agent, and its traps.

use super::*;
use crate::net::SubnetSwitchConfig;
use crate::net::subnet::remote_switch::{BlockPlace, Blocks, RemoteSwitch};
use crate::wire::DEFAULT_PARTITION_KEY;
use crate::wire::management::attributes::{Notice, SwitchInfo};
use bareverbs_prm::time::Duration;
use std::collections::BTreeMap;

/// A switch with four ports, three of them with a link.
pub(super) fn further_switch() -> Switch {
    let config = SubnetSwitchConfig { guid: 0x51, ports: 4, description: "rack 7".into() };
    let mut switch = Switch::infiniband_without_manager(&config);
    (0..3).for_each(|port| switch.handle_link(Time::ZERO, port, true));
    assert_eq!(switch.poll(), None, "it knows no SM");
    switch
}

/// The response to a directed route of one hop that arrives at port 2, counted from 1.
fn ask(switch: &mut Switch, mut request: SubnetPacket) -> SubnetPacket {
    request.leave_by(1);
    switch.handle_frame(Time::ZERO, 1, &request.to_frame(0, 0).0);
    let Some(Egress::Own { port: 1, frame, .. }) = switch.poll() else { panic!("no response") };
    SubnetPacket::of(&parse(&frame).expect("a packet")).expect("a subnet management packet")
}

pub(super) fn get(switch: &mut Switch, number: u16, modifier: u32) -> SubnetPacket {
    ask(switch, SubnetPacket::request(Method::Get, number, modifier, 3))
}

pub(super) fn set(
    switch: &mut Switch,
    number: u16,
    modifier: u32,
    attribute: &(impl IntoBytes + Immutable),
) -> u16 {
    let mut packet = SubnetPacket::request(Method::Set, number, modifier, 4);
    packet.write(attribute);
    ask(switch, packet).status()
}

/// Assigns LID 7, and LID 9 to the SM behind its third port.
pub(super) fn configure(switch: &mut Switch) {
    let mut info = PortInfo::new();
    assert_eq!(set(switch, attribute::PORT_INFO, 0, info.set_lid(7).set_master_sm_lid(9)), status::OK);
    let mut block = [255_u8; 64];
    block[9] = 3;
    assert_eq!(set(switch, attribute::LINEAR_FORWARDING, 0, &block), status::OK);
}

/// Requirement: IBTA v1.4 §14.2.5.4: SwitchInfo describes the switch's tables and says that a port has changed, until 1
/// is written there.
#[test]
fn a_switch_says_that_a_port_has_changed() {
    let mut switch = further_switch();
    let mut info: SwitchInfo = get(&mut switch, attribute::SWITCH_INFO, 0).read().unwrap();
    assert_eq!((info.linear_cap(), info.multicast_cap(), info.random_cap()), (0xc000, 1024, 0));
    assert!(info.port_state_change());
    info.set_port_state_change(false).set_linear_top(40);
    assert_eq!(set(&mut switch, attribute::SWITCH_INFO, 0, &info), status::OK);
    let mut info: SwitchInfo = get(&mut switch, attribute::SWITCH_INFO, 0).read().unwrap();
    assert_eq!((info.port_state_change(), info.linear_top()), (true, 40), "0 changes nothing");
    assert_eq!(set(&mut switch, attribute::SWITCH_INFO, 0, info.set_port_state_change(true)), status::OK);
    let mut info: SwitchInfo = get(&mut switch, attribute::SWITCH_INFO, 0).read().unwrap();
    assert!(!info.port_state_change());
    assert_eq!(set(&mut switch, attribute::SWITCH_INFO, 0, info.set_linear_top(0xc000)), status::INVALID);
}

/// Requirement: IBTA v1.4 §14.2.5.6: a switch port becomes Active through Armed, and a port without a link has no next
/// state.
#[test]
fn ports_have_states() {
    let mut switch = further_switch();
    let state_of = |switch: &mut Switch, port| {
        get(switch, attribute::PORT_INFO, port).read::<PortInfo>().unwrap().port_state()
    };
    let raise = |switch: &mut Switch, port, state| {
        set(switch, attribute::PORT_INFO, port, PortInfo::new().set_port_state(state))
    };
    assert_eq!((state_of(&mut switch, 1), state_of(&mut switch, 4)), (2, 1));
    assert_eq!(raise(&mut switch, 1, 4), status::INVALID);
    assert_eq!((raise(&mut switch, 1, 3), raise(&mut switch, 1, 4), state_of(&mut switch, 1)), (0, 0, 4));
    assert_eq!((raise(&mut switch, 1, 1), state_of(&mut switch, 1)), (0, 2), "the link trains again");
    assert_eq!((raise(&mut switch, 4, 3), raise(&mut switch, 5, 3)), (status::INVALID, status::INVALID));
    assert_eq!(get(&mut switch, attribute::PORT_INFO, 5).status(), status::INVALID);
}

/// Requirement: IBTA v1.4 §14.2.5.6: LocalPortNum of every port is the ingress port of the request. `ibnetdiscover`
/// follows all others.
#[test]
fn every_port_says_by_which_one_it_was_asked() {
    let mut switch = further_switch();
    for port in 0..=4 {
        let info: PortInfo = get(&mut switch, attribute::PORT_INFO, port).read().unwrap();
        assert_eq!(info.local_port_num(), 2, "port {port}");
    }
    let mut raise = SubnetPacket::request(Method::Set, attribute::PORT_INFO, 1, 4);
    raise.write(PortInfo::new().set_port_state(3));
    assert_eq!(ask(&mut switch, raise).read::<PortInfo>().unwrap().local_port_num(), 2);
}

#[test]
fn a_switch_shows_its_name_guid_and_keys() {
    let mut switch = further_switch();
    assert!(get(&mut switch, attribute::NODE_DESCRIPTION, 0).data().starts_with(b"rack 7\0"));
    let node: NodeInfo = get(&mut switch, attribute::NODE_INFO, 0).read().unwrap();
    assert_eq!((node.node_guid(), node.num_ports(), node.local_port_num()), (0x51, 4, 2));
    assert_eq!(get(&mut switch, attribute::GUID_INFO, 0).data()[..8], 0x51_u64.to_be_bytes());
    assert_eq!(get(&mut switch, attribute::PARTITION_KEYS, 0).data()[..4], [0xff, 0xff, 0, 0]);
    assert_eq!(get(&mut switch, attribute::GUID_INFO, 1).status(), status::INVALID);
    assert_eq!(get(&mut switch, attribute::PARTITION_KEYS, 5 << 16).status(), status::INVALID);
    assert_eq!(get(&mut switch, attribute::SM_INFO, 0).status(), status::UNSUPPORTED, "no SM here");
}

/// Requirement: IBTA v1.4 §18.2.4.3: a switch forwards a packet by the port that its tables have for the LID or the
/// group.
#[test]
fn packets_go_where_the_tables_say() {
    let mut switch = further_switch();
    configure(&mut switch);
    switch.handle_frame(Time::ZERO, 0, &[0, 2, 0, 9, 0, 0, 0, 0]);
    assert_eq!(switch.poll(), Some(Egress::Forward { port: 2 }));
    let mut groups = [0; 64];
    groups[3] = 0b1110;
    assert_eq!(set(&mut switch, attribute::MULTICAST_FORWARDING, 0, &groups), status::OK);
    assert_eq!(get(&mut switch, attribute::MULTICAST_FORWARDING, 0).data(), groups);
    switch.handle_frame(Time::ZERO, 0, &[0, 3, 0xc0, 1, 0, 0, 0, 0]);
    assert_eq!(
        (switch.poll(), switch.poll()),
        (Some(Egress::Copy { port: 1 }), Some(Egress::Copy { port: 2 }))
    );
    for (number, modifier) in [(attribute::LINEAR_FORWARDING, 768), (attribute::MULTICAST_FORWARDING, 0x200)]
    {
        assert_eq!(get(&mut switch, number, modifier).status(), status::INVALID);
    }
}

/// Requirement: IBTA v1.4 §7.6.6: a port drops and counts a packet whose service level has no data lane at the egress
/// port; subnet management packets have their own lane, whatever the table says.
#[test]
fn a_service_level_without_a_lane_is_dropped() {
    let mut switch = further_switch();
    configure(&mut switch);
    let mapping = |switch: &mut Switch| get(switch, attribute::SL_TO_VL, 0x0103).data()[..8].to_vec();
    assert_eq!(mapping(&mut switch), [0; 8]);
    // From port 1 to port 3, SLs 0 to 2 map to VL 0 and the others to VL 15.
    let table = [0, 0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(set(&mut switch, attribute::SL_TO_VL, 0x0103, &table), status::OK);
    assert_eq!(mapping(&mut switch), table);
    let mut passes = |port: usize, lane: u8, level: u8| {
        switch.handle_frame(Time::ZERO, port, &[lane << 4, level << 4 | 2, 0, 9, 0, 0, 0, 0]);
        switch.poll().is_some()
    };
    assert_eq!([0, 1, 2, 3, 15].map(|level| passes(0, 0, level)), [true, true, true, false, false]);
    assert_eq!([3, 15].map(|level| passes(1, 0, level)), [true, true], "from another port");
    let asked = SubnetPacket::lid_routed(Method::Get, attribute::NODE_INFO, 3).to_frame(5, 9).0;
    switch.handle_frame(Time::ZERO, 0, &asked);
    assert_eq!(switch.poll(), Some(Egress::Forward { port: 2 }), "on lane 15");
    assert_eq!(switch.counters().filtered, 2);
    let arbitration = [[0_u8, 64], [0, 0]];
    assert_eq!(set(&mut switch, attribute::VL_ARBITRATION, 1 << 16 | 3, &arbitration), status::OK);
    assert_eq!(get(&mut switch, attribute::VL_ARBITRATION, 1 << 16 | 3).data()[..4], [0, 64, 0, 0]);
    for (number, modifier) in [(attribute::SL_TO_VL, 0x0105), (attribute::VL_ARBITRATION, 2 << 16 | 3)] {
        assert_eq!(get(&mut switch, number, modifier).status(), status::INVALID);
    }
    let port: PortInfo = get(&mut switch, attribute::PORT_INFO, 3).read().unwrap();
    assert_eq!((port.vl_cap(), port.operational_vls()), (1, 1), "one data lane");
    assert_eq!((port.vl_arbitration_low_cap(), port.vl_arbitration_high_cap()), (8, 8));
}

/// A takeover clears the entries of an earlier master, although the new master never knew them.
#[test]
fn a_new_master_clears_the_tables_of_the_former_one() {
    let mut switch = further_switch();
    configure(&mut switch);
    let mut info: SwitchInfo = get(&mut switch, attribute::SWITCH_INFO, 0).read().unwrap();
    info.set_linear_top(200).set_multicast_top(0xc040);
    let node: NodeInfo = get(&mut switch, attribute::NODE_INFO, 0).read().unwrap();
    let mut wanted = [255; 64];
    wanted[9] = 3;
    let wanted = Blocks::from([(linear_place(0), wanted)]);
    let multicast = BlockPlace { attribute: attribute::MULTICAST_FORWARDING, modifier: 2 };
    for is_inherited in [false, true] {
        assert_eq!(set(&mut switch, attribute::SWITCH_INFO, 0, &info), status::OK);
        assert_eq!(set(&mut switch, attribute::LINEAR_FORWARDING, 3, &[1_u8; 64]), status::OK);
        assert_eq!(set(&mut switch, attribute::MULTICAST_FORWARDING, 2, &[0_u8, 2]), status::OK);
        let mut remote = RemoteSwitch::new(Time::ZERO, node, vec![DEFAULT_PARTITION_KEY], is_inherited);
        remote.lid = 7;
        let mut turn = |remote: &mut RemoteSwitch| {
            let response = ask(&mut switch, remote.request(1));
            assert_eq!(response.status(), status::OK);
            remote.accept(Time::ZERO, &response);
        };
        while !remote.is_configured() {
            turn(&mut remote);
        }
        remote.want(wanted.clone(), BTreeMap::new());
        while !remote.is_configured() {
            turn(&mut remote);
        }
        let block = |switch: &mut Switch, place: BlockPlace| {
            get(switch, place.attribute, place.modifier).data().to_vec()
        };
        assert_eq!(block(&mut switch, linear_place(0)), wanted[&linear_place(0)]);
        let is_left = [linear_place(3), multicast].map(|place| block(&mut switch, place))
            == [vec![1; 64], [&[0, 2][..], &[0; 62]].concat()];
        let is_empty = [linear_place(3), multicast].map(|place| block(&mut switch, place))
            == [vec![255; 64], vec![0; 64]];
        assert_eq!((is_left, is_empty), (!is_inherited, is_inherited));
    }
}

/// A node may claim as many ports as a byte counts; the manager must not count beyond.
#[test]
fn a_switch_with_every_port_number_is_configured() {
    let (mut node, mut info) = (NodeInfo::new(), SwitchInfo::new());
    node.set_num_ports(255).set_node_guid(0x52).set_port_guid(0x52);
    info.set_linear_top(MANAGER_LID);
    let mut remote = RemoteSwitch::new(Time::ZERO, node, vec![DEFAULT_PARTITION_KEY], false);
    while !remote.is_configured() {
        let mut response = remote.request(1);
        match response.attribute().0 {
            attribute::SWITCH_INFO => response.write(&info),
            attribute::PORT_INFO => response.write(PortInfo::new().set_port_state(1)),
            other => assert_eq!(other, attribute::NODE_DESCRIPTION),
        }
        remote.accept(Time::ZERO, &response);
    }
    let mut agent = SwitchAgent::of_manager(&SubnetConfig::default());
    agent.handle_link(Time::ZERO, 254, true);
    assert_eq!(agent.obey_own(&Partitions::of_all(&[0xffff])), [254]);
}

const fn linear_place(block: u32) -> BlockPlace {
    BlockPlace { attribute: attribute::LINEAR_FORWARDING, modifier: block }
}

/// Requirement: IBTA v1.4 §14.2.2: a directed route with a LID-routed part is first forwarded by LID to the switch where
/// its directed part begins, and back from there.
#[test]
fn a_directed_route_begins_where_lids_lead_to() {
    let mut switch = further_switch();
    configure(&mut switch);
    let mut bytes = *SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 3).bytes();
    // One hop through port 1, for LID 9.
    (bytes[7], bytes[129]) = (1, 1);
    bytes[32..34].copy_from_slice(&[0, 9]);
    let asked = SubnetPacket::from_payload(&bytes).expect("a datagram");
    switch.handle_frame(Time::ZERO, 0, &asked.to_frame(5, 9).0);
    assert_eq!(switch.poll(), Some(Egress::Forward { port: 2 }), "to another LID");
    let mut next = |port: usize, frame: &[u8]| {
        switch.handle_frame(Time::ZERO, port, frame);
        let Some(Egress::Own { port, frame, .. }) = switch.poll() else { panic!("the route continues") };
        (port, frame)
    };
    let (exit, frame) = next(2, &asked.to_frame(9, 7).0);
    let mut there = SubnetPacket::of(&parse(&frame).expect("a packet")).expect("a subnet management packet");
    assert_eq!((exit, &frame[2..4], there.arrive(1)), (0, &[0xff, 0xff][..], true));
    there.answer(status::OK);
    let (exit, frame) = next(0, &there.to_frame(0, 0).0);
    assert_eq!((exit, &frame[2..4], &frame[6..8]), (2, &[0, 9][..], &[0, 7][..]));
    let back = SubnetPacket::of(&parse(&frame).expect("a packet")).expect("a subnet management packet");
    assert!(back.is_returning() && back.bytes()[6] == 0);
    // A route without hops ends at the switch.
    bytes[7] = 0;
    let (exit, frame) = next(2, &SubnetPacket::from_payload(&bytes).expect("a datagram").to_frame(9, 7).0);
    assert_eq!((exit, &frame[2..4], &frame[6..8]), (2, &[0, 9][..], &[0, 7][..]));
}

/// Requirement: IBTA v1.4 §13.4.9: a trap is repeated until it is repressed, but only a few times.
#[test]
fn a_trap_is_sent_until_it_is_heard() {
    let mut switch = further_switch();
    configure(&mut switch);
    let trap = |switch: &mut Switch| {
        let Some(Egress::Own { port: 2, frame, .. }) = switch.poll() else { return None };
        SubnetPacket::of(&parse(&frame).expect("a packet"))
    };
    switch.handle_link(Time::ZERO, 0, false);
    let first = trap(&mut switch).expect("a trap");
    let notice: Notice = first.read().unwrap();
    assert_eq!((first.method(), notice.trap(), notice.issuer_lid(), notice.lid()), (Method::Trap, 128, 7, 7));
    let due = switch.poll_timeout().expect("the trap is repeated");
    assert_eq!(due, Time::ZERO + Duration::from_nanos(4_096 << 18));
    switch.handle_timeout(due);
    assert_eq!(trap(&mut switch), Some(first.clone()));
    let heard = SubnetPacket::lid_routed(Method::TrapRepress, attribute::NOTICE, first.transaction());
    switch.handle_frame(due, 2, &heard.to_frame(9, 7).0);
    assert_eq!((switch.poll(), switch.poll_timeout()), (None, None));
    switch.handle_link(due, 0, true);
    let mut sent = 0;
    while let Some(due) = switch.poll_timeout() {
        sent += u32::from(trap(&mut switch).is_some());
        switch.handle_timeout(due);
    }
    sent += u32::from(trap(&mut switch).is_some());
    assert_eq!((sent, switch.poll()), (5, None));
}

//! The performance management agents of switches: counters of port traffic.

use super::*;
use crate::wire::infiniband::VCRC;
use crate::wire::management::attributes::{PortCounters, PortCountersExtended};

/// Offset of the class's attribute.
const DATA: usize = 64;

fn request(method: u8, number: u16, attribute: &(impl IntoBytes + Immutable)) -> [u8; SIZE] {
    let (mut mad, mut header) = ([0; SIZE], MadHeader::new());
    header.set_base_version(1).set_class(class::PERFORMANCE).set_class_version(1);
    header.set_method(method).set_attribute(number).write_to(&mut mad);
    mad[DATA..][..attribute.as_bytes().len()].copy_from_slice(attribute.as_bytes());
    mad
}

/// The switch's response to a request that arrives at a port, which must leave through the same port.
fn answer<T: FromBytes>(switch: &mut Switch, from: usize, frame: &[u8]) -> (u16, T) {
    switch.handle_frame(Time::ZERO, from, frame);
    let Some(Egress::Own { port, frame, .. }) = switch.poll() else { panic!("no response") };
    let packet = parse(&frame).expect("an InfiniBand packet");
    assert_eq!((port, switch.poll()), (from, None));
    let mad: [u8; SIZE] = packet.payload.try_into().expect("a datagram");
    (MadHeader::of(&mad).status(), T::read_from_prefix(&mad[DATA..]).expect("an attribute").0)
}

fn counters(switch: &mut Switch, agents: &[Agent], port: u8) -> PortCounters {
    let mut select = PortCounters::new();
    let asked = request(GET, attribute::PORT_COUNTERS, select.set_port_select(port));
    let frame = general_frame(agents[0].lid, &asked, GENERAL_SERVICES_QKEY, 0xffff);
    let (refused, counters) = answer(switch, 0, &frame);
    assert_eq!(refused, status::OK);
    counters
}

/// A packet of 20 bytes to a LID.
fn packet_to(lid: u16) -> Vec<u8> {
    let mut bytes = vec![0; 20 + VCRC];
    bytes[1] = 2;
    bytes[2..4].copy_from_slice(&lid.to_be_bytes());
    bytes
}

/// Requirement: IBTA v1.4 §16.1.3.5: a switch counts packets and words at the ingress port and at each egress port; a
/// packet without another egress port is a relay error of its ingress port.
#[test]
fn a_switch_counts_what_crosses_its_ports() {
    let (mut switch, agents) = subnet(0);
    let before = [1, 2].map(|port| counters(&mut switch, &agents, port));
    for lid in [agents[1].lid, agents[0].lid, 0x3000] {
        switch.handle_frame(Time::ZERO, 0, &packet_to(lid));
        while switch.poll().is_some() {}
    }
    let second = counters(&mut switch, &agents, 2);
    assert_eq!(second.port_xmit_pkts() - before[1].port_xmit_pkts(), 1);
    assert_eq!(second.port_xmit_data() - before[1].port_xmit_data(), 5);
    assert_eq!(second.port_rcv_pkts(), before[1].port_rcv_pkts());
    let first = counters(&mut switch, &agents, 1);
    assert_eq!(first.port_rcv_switch_relay_errors() - before[0].port_rcv_switch_relay_errors(), 2);
    // Three packets, and three requests for counters.
    assert_eq!(first.port_rcv_pkts() - before[0].port_rcv_pkts(), 6);
}

/// Requirement: IBTA v1.4 §16.1.4.11: multicast packets are counted separately, at each egress port.
#[test]
fn packets_to_groups_are_counted_at_each_port() {
    let (mut switch, agents) = subnet(0);
    assert!(switch.set_multicast_ports(0xc123, PortSet::default().with(0).with(1)));
    switch.handle_frame(Time::ZERO, 0, &packet_to(0xc123));
    assert_eq!(switch.poll(), Some(Egress::Copy { port: 1 }));
    let mut select = PortCountersExtended::new();
    let asked = request(GET, attribute::PORT_COUNTERS_EXTENDED, select.set_port_select(2));
    let frame = general_frame(agents[0].lid, &asked, GENERAL_SERVICES_QKEY, 0xffff);
    let (_, told): (u16, PortCountersExtended) = answer(&mut switch, 0, &frame);
    assert_eq!((told.port_multicast_xmit_pkts(), told.port_multicast_rcv_pkts()), (1, 0));
    assert_eq!(told.port_unicast_xmit_pkts() + 1, told.port_xmit_pkts());
}

/// A frame for which the runner has no room counts as discarded, not as sent.
#[test]
fn a_packet_without_room_is_discarded_and_not_sent() {
    let (mut switch, agents) = subnet(0);
    let before = counters(&mut switch, &agents, 2);
    let packet = packet_to(agents[1].lid);
    switch.handle_frame(Time::ZERO, 0, &packet);
    assert_eq!(switch.poll(), Some(Egress::Forward { port: 1 }));
    switch.count_tail_drop(1, &packet);
    let after = counters(&mut switch, &agents, 2);
    assert_eq!(
        (after.port_xmit_pkts(), after.port_xmit_data()),
        (before.port_xmit_pkts(), before.port_xmit_data())
    );
    assert_eq!(after.port_xmit_discards(), 1);
}

/// Requirement: IBTA v1.4 §16.1.3.5: a switch counts lost links, and refuses ports that do not exist and foreign
/// partitions.
#[test]
fn links_that_go_are_counted_and_ports_that_are_not_there_refused() {
    let (mut switch, agents) = subnet(0);
    switch.handle_link(Time::ZERO, 1, false);
    while switch.poll().is_some() {}
    assert_eq!(counters(&mut switch, &agents, 2).link_downed_counter(), 1);
    let mut select = PortCounters::new();
    let asked = request(GET, attribute::PORT_COUNTERS, select.set_port_select(3));
    let frame = general_frame(agents[0].lid, &asked, GENERAL_SERVICES_QKEY, 0xffff);
    assert_eq!(answer::<PortCounters>(&mut switch, 0, &frame).0, status::INVALID);
    for (q_key, partition_key) in [(1, 0xffff), (GENERAL_SERVICES_QKEY, 0x0123)] {
        let frame = general_frame(agents[0].lid, &asked, q_key, partition_key);
        switch.handle_frame(Time::ZERO, 0, &frame);
        assert_eq!(switch.poll(), None);
    }
}

/// A switch without an SM responds at its assigned LID, through the port towards the requester or the ingress port.
#[test]
fn a_switch_without_a_manager_has_a_performance_agent() {
    let mut switch = further_switch::further_switch();
    further_switch::configure(&mut switch);
    let mut select = PortCounters::new();
    let asked = request(SET, attribute::PORT_COUNTERS, select.set_port_select(3).set_counter_select(1 << 15));
    let frame = general_frame_between([9, 7], &asked, GENERAL_SERVICES_QKEY, 0xffff);
    let (refused, told): (u16, PortCounters) = answer(&mut switch, 2, &frame);
    assert_eq!((refused, told.port_rcv_pkts()), (status::OK, 0), "it was set to 0");
}

/// A packet whose SL has no lane is discarded at its egress port.
#[test]
fn a_packet_without_a_lane_is_discarded() {
    let mut switch = further_switch::further_switch();
    further_switch::configure(&mut switch);
    assert_eq!(further_switch::set(&mut switch, attribute::SL_TO_VL, 0x0103, &[0xff_u8; 8]), status::OK);
    switch.handle_frame(Time::ZERO, 0, &packet_to(9));
    assert_eq!(switch.poll(), None);
    let mut select = PortCounters::new();
    let asked = request(GET, attribute::PORT_COUNTERS, select.set_port_select(3));
    let frame = general_frame_between([9, 7], &asked, GENERAL_SERVICES_QKEY, 0xffff);
    let (_, told): (u16, PortCounters) = answer(&mut switch, 2, &frame);
    assert_eq!((told.port_xmit_discards(), told.port_xmit_pkts()), (1, 0));
}

/// Requirement: IBTA v1.4 §13.4.7: a node without an agent of a class refuses its requests: baseboard management,
/// communication management, and administration without a manager. Packets that are no requests get no response.
#[test]
fn classes_without_an_agent_are_refused() {
    let mut switch = further_switch::further_switch();
    further_switch::configure(&mut switch);
    let (mut managed, agents) = subnet(0);
    for class in [class::BASEBOARD, class::COMMUNICATION, class::ADMINISTRATION, 0x21, 0x32] {
        for (method, is_asked) in [(GET, true), (SET, true), (3, false), (7, false), (0x81, false)] {
            let mut mad = request(method, 1, &[0_u8; 64]);
            mad[1] = class;
            let frame = general_frame_between([9, 7], &mad, GENERAL_SERVICES_QKEY, 0xffff);
            if is_asked {
                assert_eq!(answer::<[u8; 8]>(&mut switch, 2, &frame).0, status::BAD_VERSION, "{class:#x}");
            } else {
                switch.handle_frame(Time::ZERO, 0, &frame);
                assert_eq!(switch.poll(), None, "{class:#x} {method:#x}");
            }
            let told = send(&mut managed, &agents, 0, &mad);
            let refused: Vec<u16> = told.iter().map(|told| told.mad.status()).collect();
            assert_eq!(refused, vec![status::BAD_VERSION; usize::from(is_asked)], "{class:#x} {method:#x}");
        }
    }
}

/// Requirement: IBTA v1.4 §16.1.3.5: VL15Dropped of a port counts the packets on VL 15 that came in there and were
/// dropped for lack of room.
#[test]
fn management_packets_without_room_are_counted() {
    let (mut switch, agents) = subnet(0);
    let mut asked = SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 5);
    asked.leave_by(1);
    let flood = |switch: &mut Switch, port: usize, frame: &[u8]| {
        (0..WAITING + 6).for_each(|_| switch.handle_frame(Time::ZERO, port, frame));
        assert_eq!(core::iter::from_fn(|| switch.poll()).count(), WAITING);
    };
    flood(&mut switch, 1, &asked.to_frame(0, 0).0);
    assert_eq!([1, 2].map(|port| counters(&mut switch, &agents, port).vl15_dropped()), [0, 6]);
    // A directed route of two hops: here, and on through the first port.
    assert!(asked.leave_along(&[1, 1]));
    let before = switch.counters();
    flood(&mut switch, 1, &asked.to_frame(0, 0).0);
    let after = switch.counters();
    assert_eq!((after.forwarded - before.forwarded, after.managed - before.managed), (WAITING as u64, 0));
    assert_eq!((after.filtered - before.filtered, after.management_dropped), (0, 12));
    assert_eq!(counters(&mut switch, &agents, 2).vl15_dropped(), 12);
}

/// Responses of queue pair 1 leave on a data lane, so they count as discarded at their egress port.
#[test]
fn responses_of_agents_without_room_are_counted() {
    let (mut switch, agents) = subnet(0);
    let mut select = PortCounters::new();
    let performance = request(GET, attribute::PORT_COUNTERS, select.set_port_select(1));
    let mut administration = super::request(GET, attribute::CLASS_PORT_INFO, 0, &[0_u8; 0]).to_bytes();
    for (asked, room) in [(performance, WAITING), (administration, 256)] {
        let frame = general_frame(agents[0].lid, &asked, GENERAL_SERVICES_QKEY, 0xffff);
        (0..room + 6).for_each(|_| switch.handle_frame(Time::ZERO, 0, &frame));
        assert_eq!(core::iter::from_fn(|| switch.poll()).count(), room);
    }
    let told = counters(&mut switch, &agents, 1);
    assert_eq!((told.port_xmit_discards(), told.vl15_dropped()), (6, 0));
    assert_eq!(switch.counters().management_dropped, 12);
    // The requester leaves before its response does.
    administration[15] = 9;
    let frame = general_frame(agents[1].lid, &administration, GENERAL_SERVICES_QKEY, 0xffff);
    switch.handle_frame(Time::ZERO, 1, &frame);
    switch.handle_link(Time::ZERO, 1, false);
    assert_eq!((switch.poll(), switch.counters().management_dropped), (None, 13));
}

/// Requests to the SA that get no response because of their sender are counted; packets that ask for none are not.
#[test]
fn refused_requests_to_the_administration_are_counted() {
    let (mut switch, agents) = subnet(0);
    let mut asked = super::request(GET, attribute::CLASS_PORT_INFO, 0, &[0_u8; 0]);
    let mut refused = |lid: u16, asked: &AdministrationPacket| {
        let frame = general_frame(lid, &asked.to_bytes(), GENERAL_SERVICES_QKEY, 0xffff);
        switch.handle_frame(Time::ZERO, 0, &frame);
        (switch.poll().is_none(), switch.counters().refused)
    };
    assert_eq!(refused(agents[0].lid, &asked), (false, 0));
    assert_eq!(refused(0x3000, &asked), (true, 1), "an unknown sender");
    asked.sa.set_sm_key(SM_KEY + 1);
    assert_eq!(refused(agents[0].lid, &asked), (true, 2), "a wrong SM_Key");
    asked.mad.set_method(method::GET_TABLE | 0x80);
    assert_eq!([agents[0].lid, 0x3000].map(|lid| refused(lid, &asked)), [(true, 2); 2], "a response");
}

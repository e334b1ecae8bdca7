//! Port 0 of the switch: requests to its subnet management agent.

use super::*;
use crate::wire::management::attributes::SmInfo;

/// A LID-routed request from a port to the SM's LID.
fn request(method: Method, number: u16) -> SubnetPacket {
    let mut packet = SubnetPacket::request(method, number, 0, 5);
    let mut bytes = *packet.bytes();
    bytes[1] = class::LID_ROUTED;
    packet = SubnetPacket::from_payload(&bytes).expect("a datagram");
    packet
}

fn answer(switch: &mut Switch, port: usize, frame: &[u8]) -> Option<SubnetPacket> {
    switch.handle_frame(Time::ZERO, port, frame);
    let egress = switch.poll()?;
    let Egress::Own { port: exit, frame, .. } = egress else { panic!("{egress:?}") };
    assert_eq!(exit, port);
    SubnetPacket::of(&parse(&frame).expect("a packet"))
}

fn get(switch: &mut Switch, port: usize, lid: u16, request: &SubnetPacket) -> Option<SubnetPacket> {
    answer(switch, port, &request.to_frame(lid, MANAGER_LID).0)
}

/// Requirement: IBTA v1.4 §14.2.5.13: the manager's SMInfo says that it is the master, and shows its SM_Key to
/// authenticated requesters: to everybody while no M_Key is set. OpenSM ignores a manager that does not show its key.
#[test]
fn the_manager_says_that_it_is_the_master() {
    let (mut switch, agents) = subnet(0);
    let asked = request(Method::Get, attribute::SM_INFO);
    let told = get(&mut switch, 1, agents[1].lid, &asked).expect("a response");
    let info: SmInfo = told.read().unwrap();
    assert_eq!((told.method(), told.status(), told.transaction()), (Method::Response, 0, 5));
    assert_eq!((info.sm_state(), info.priority(), info.guid()), (3, 0, SubnetConfig::default().guid));
    assert!(info.sm_key() == SM_KEY && info.act_count() > 0);
}

/// Requirement: IBTA v1.4 §14.2.5.3: NodeInfo of a switch has the ingress port of the request.
#[test]
fn a_switch_says_what_it_is() {
    let (mut switch, agents) = subnet(0);
    let told = get(&mut switch, 1, agents[1].lid, &request(Method::Get, attribute::NODE_INFO)).unwrap();
    let info: NodeInfo = told.read().unwrap();
    assert_eq!((info.node_type(), info.num_ports(), info.local_port_num()), (2, 2, 2));
    let told = get(&mut switch, 0, agents[0].lid, &request(Method::Get, attribute::PORT_INFO)).unwrap();
    let info: PortInfo = told.read().unwrap();
    assert_eq!((info.lid(), info.master_sm_lid(), info.port_state()), (MANAGER_LID, MANAGER_LID, 4));
    assert_eq!(info.capability_mask() & 2, 2, "an SM is here");
    let told =
        get(&mut switch, 0, agents[0].lid, &request(Method::Get, attribute::NODE_DESCRIPTION)).unwrap();
    assert!(told.data().starts_with(b"bareverbs switch"));
}

/// Requirement: IBTA v1.4 §14.2.2: a directed route of one hop ends at the switch, and the response takes the same way
/// back.
#[test]
fn a_directed_route_ends_at_the_switch() {
    let (mut switch, _) = subnet(0);
    let mut asked = SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 8);
    asked.leave_by(1);
    let mut told = answer(&mut switch, 1, &asked.to_frame(0, 0).0).expect("a response");
    assert_eq!((told.status(), told.read::<NodeInfo>().unwrap().local_port_num()), (0, 2));
    assert!(told.arrive(1), "the route ends where it began");
}

#[test]
fn the_own_port_refuses_unsupported_requests() {
    let (mut switch, agents) = subnet(0);
    let lid = agents[0].lid;
    let mut status_of = |request: &SubnetPacket| get(&mut switch, 0, lid, request).map(|told| told.status());
    assert_eq!(status_of(&request(Method::Set, attribute::SM_INFO)), Some(status::INVALID));
    assert_eq!(status_of(&request(Method::Get, 0x7777)), Some(status::UNSUPPORTED));
    assert_eq!(status_of(&request(Method::Other(0x12), attribute::NODE_INFO)), Some(status::BAD_METHOD));
    assert_eq!(status_of(&request(Method::Trap, 2)), None);
    assert_eq!(status_of(&request(Method::TrapRepress, 2)), None);
    assert_eq!(status_of(&request(Method::Response, attribute::NODE_INFO)), None);
    let mut port = SubnetPacket::request(Method::Get, attribute::PORT_INFO, 9, 5);
    port.leave_by(1);
    let told = answer(&mut switch, 0, &port.to_frame(0, 0).0).expect("a response");
    assert_eq!(told.status(), status::INVALID);
}

/// Requirement: IBTA v1.4 §14.2.1.1: a LID-routed subnet management packet goes to the port with that LID.
#[test]
fn lid_routed_packets_reach_other_ports() {
    let (mut switch, agents) = subnet(0);
    let asked = request(Method::Get, attribute::NODE_INFO);
    switch.handle_frame(Time::ZERO, 0, &asked.to_frame(agents[0].lid, agents[1].lid).0);
    assert_eq!(switch.poll(), Some(Egress::Forward { port: 1 }));
    switch.handle_frame(Time::ZERO, 0, &asked.to_frame(agents[0].lid, 99).0);
    assert_eq!(switch.poll(), None);
}

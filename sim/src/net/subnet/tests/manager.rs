//! The SM against ports that respond, lose their state, or stay silent.

use super::{Agent, check_pending, converse, subnet};
use crate::net::switch::{Egress, Switch};
use crate::net::{MANAGER_LID, SubnetConfig};
use crate::wire::infiniband::parse;
use crate::wire::management::attributes::SmInfo;
use crate::wire::management::{PortState, SubnetPacket, attribute};
use bareverbs_prm::time::{Duration, Time};

/// The only port that a frame leaves through.
fn exit(switch: &mut Switch, now: Time, ingress: usize, frame: &[u8]) -> Option<usize> {
    switch.handle_frame(now, ingress, frame);
    match switch.poll_exit() {
        Some(Egress::Forward { port }) => Some(port),
        _ => None,
    }
}

fn packet_to(lid: u16) -> Vec<u8> {
    let [high, low] = lid.to_be_bytes();
    vec![0, 2, high, low, 0, 0, 0, 0]
}

/// Requirement: IBTA v1.4 §14.4.3: the subnet manager assigns every port its own LID and takes it through Armed to
/// Active.
#[test]
fn every_port_becomes_active_with_a_lid_of_its_own() {
    let (mut switch, agents) = subnet(0);
    assert!(agents.iter().all(|agent| agent.state == PortState::Active));
    assert_eq!((agents[0].lid, agents[1].lid), (1, 2));
    assert!(agents.iter().all(|agent| agent.manager_lid == MANAGER_LID));
    assert_eq!(agents[0].keys[..6], [0xff, 0xff, 0x80, 1, 0, 0]);
    assert_eq!(exit(&mut switch, Time::ZERO, 0, &packet_to(2)), Some(1));
    assert_eq!(exit(&mut switch, Time::ZERO, 1, &packet_to(1)), Some(0));
    for lid in [0, 1, 3, 0xc000, 0xffff] {
        assert_eq!(exit(&mut switch, Time::ZERO, 0, &packet_to(lid)), None, "LID {lid}");
    }
    assert_eq!((switch.counters().forwarded, switch.counters().filtered), (2, 5));
}

/// Requirement: IBTA v1.4 §4.1.3: with LID mask control n, a port has 2^n LIDs, and its base LID is a multiple of 2^n.
#[test]
fn a_mask_gives_a_port_several_lids() {
    let (mut switch, agents) = subnet(2);
    assert_eq!((agents[0].lid, agents[0].lmc, agents[1].lid), (4, 2, 8));
    assert_eq!(exit(&mut switch, Time::ZERO, 0, &packet_to(11)), Some(1));
    assert_eq!(exit(&mut switch, Time::ZERO, 0, &packet_to(12)), None);
}

#[test]
fn a_port_that_was_reset_gets_its_lid_again() {
    let (mut switch, mut agents) = subnet(0);
    agents[1] = Agent::new(0xb);
    let later = switch.poll_timeout().expect("a sweep is due");
    switch.handle_timeout(later);
    converse(&mut switch, &mut agents, later);
    assert_eq!((agents[1].state, agents[1].lid), (PortState::Active, 2));
    switch.handle_link(later, 1, false);
    assert_eq!(exit(&mut switch, later, 0, &packet_to(2)), None);
    switch.handle_link(later, 1, true);
    converse(&mut switch, &mut agents, later);
    assert_eq!(exit(&mut switch, later, 0, &packet_to(2)), Some(1));
}

fn own_port(switch: &mut Switch) -> Option<usize> {
    match switch.poll()? {
        Egress::Own { port, .. } => Some(port),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_silent_port_is_asked_again_and_never_gets_a_lid() {
    let mut switch = Switch::infiniband(SubnetConfig::default());
    switch.handle_link(Time::ZERO, 5, true);
    assert_eq!((own_port(&mut switch), own_port(&mut switch)), (Some(5), None));
    switch.handle_timeout(Time::ZERO + Duration::from_millis(200));
    assert_eq!(own_port(&mut switch), Some(5), "requested again");
    assert_eq!(switch.members().count(), 0);
    switch.handle_frame(Time::ZERO, 5, &[0xf0; 40]);
    assert_eq!(switch.counters().filtered, 1);
}

/// After a few attempts the SM leaves a silent port alone until the next sweep, so that the simulation can
/// come to rest.
#[test]
fn a_silent_port_is_given_up_until_the_next_sweep() {
    let mut switch = Switch::infiniband(SubnetConfig::default());
    switch.handle_link(Time::ZERO, 0, true);
    let (mut times, mut requests) = (Vec::new(), 0);
    while times.len() < 9 {
        requests += usize::from(own_port(&mut switch).is_some());
        let due = switch.poll_timeout().expect("a sweep");
        times.push(due.as_nanos() / 1_000_000);
        assert_eq!(switch.is_settled_since(Time::ZERO), times.len() > 4);
        switch.handle_timeout(due);
    }
    assert_eq!((times, requests), (vec![100, 200, 300, 400, 900, 1_000, 1_100, 1_200, 1_300], 8));
}

#[test]
fn a_subnet_is_settled_when_every_port_was_found_active() {
    let (mut switch, mut agents) = subnet(0);
    let sweep = switch.poll_timeout().expect("a sweep is due");
    assert!(!switch.is_settled_since(Time::ZERO));
    switch.handle_timeout(sweep);
    converse(&mut switch, &mut agents, sweep);
    assert!(switch.is_settled_since(Time::ZERO) && !switch.is_settled_since(sweep));
}

/// A port that confirms everything but does nothing is asked again, but neither at once nor forever.
#[test]
fn a_port_that_does_not_obey_keeps_nobody_busy() {
    let mut switch = Switch::infiniband(SubnetConfig::default());
    switch.handle_link(Time::ZERO, 0, true);
    let mut agent = Agent::new(7);
    let mut responses = 0;
    while let Some(Egress::Own { frame, .. }) = switch.poll() {
        let mut response = SubnetPacket::of(&parse(&agent.answer(&frame)).unwrap()).unwrap();
        response.data_mut()[32] = PortState::Initialize as u8;
        switch.handle_frame(Time::ZERO, 0, &response.to_frame(0, 0).0);
        responses += 1;
        assert!(responses < 10, "requested again at once");
    }
    assert!(switch.poll_timeout().is_some_and(|due| due > Time::ZERO));
}

/// When ports with ever new GUIDs use up all LIDs, the LIDs of ports that have left are reassigned.
#[test]
fn lids_of_ports_that_have_gone_are_given_again() {
    let (mut switch, mut agents) = subnet(7);
    for guid in 0..500 {
        switch.handle_link(Time::ZERO, 1, false);
        switch.handle_link(Time::ZERO, 1, true);
        agents[1] = Agent::new(0x100 + guid);
        converse(&mut switch, &mut agents, Time::ZERO);
        let lids: Vec<_> = switch.members().map(|member| member.lid).collect();
        assert!(lids[0] == 128 && lids[1] > 128 && lids[1] % 128 == 0 && lids[1] < 0xc000, "{lids:?}");
    }
}

#[test]
fn a_port_gets_the_lid_that_the_manager_knows_for_its_guid() {
    let known_lids = [(0xb, 7), (0xc, 0xc001), (0xe, MANAGER_LID), (0xd, 0)].into();
    let mut switch = Switch::infiniband(SubnetConfig { known_lids, ..SubnetConfig::default() });
    let mut agents: Vec<Agent> = [0xb, 0xa, 0xc, 0xe].map(Agent::new).into();
    (0..4).for_each(|port| switch.handle_link(Time::ZERO, port, true));
    converse(&mut switch, &mut agents, Time::ZERO);
    let lids: Vec<u16> = agents.iter().map(|agent| agent.lid).collect();
    assert_eq!(lids, [7, 8, 9, 10], "neither multicast LIDs nor the SM's LID are assigned");
}

/// The only packet that the SM sends.
fn only_request(switch: &mut Switch) -> Vec<u8> {
    let Some(Egress::Own { frame, .. }) = switch.poll() else { panic!("a request") };
    assert_eq!(switch.poll(), None);
    frame
}

fn replug(switch: &mut Switch) -> Vec<u8> {
    switch.handle_link(Time::ZERO, 0, false);
    switch.handle_link(Time::ZERO, 0, true);
    only_request(switch)
}

/// Another port may be behind a link that comes back, so a response that was on its way is not about that port.
#[test]
fn a_response_of_a_port_that_has_left_is_ignored() {
    let mut switch = Switch::infiniband(SubnetConfig::default());
    let (mut left, mut agents) = (Agent::new(0xa), [Agent::new(0xb)]);
    let late = left.answer(&replug(&mut switch));
    let request = replug(&mut switch);
    switch.handle_frame(Time::ZERO, 0, &late);
    assert_eq!(switch.poll(), None);
    switch.handle_frame(Time::ZERO, 0, &agents[0].answer(&request));
    converse(&mut switch, &mut agents, Time::ZERO);
    assert_eq!(switch.members().map(|member| member.guid).collect::<Vec<_>>(), [0xb]);
    for _ in 0..100 {
        replug(&mut switch);
        check_pending(&switch);
    }
}

#[test]
fn a_response_about_another_attribute_is_ignored() {
    let mut switch = Switch::infiniband(SubnetConfig::default());
    let response = Agent::new(0xa).answer(&replug(&mut switch));
    let packet = SubnetPacket::of(&parse(&response).unwrap()).unwrap();
    for (at, byte) in [(17, attribute::PORT_INFO as u8), (23, 1)] {
        let mut bytes = *packet.bytes();
        bytes[at] = byte;
        let other = SubnetPacket::from_payload(&bytes).unwrap();
        switch.handle_frame(Time::ZERO, 0, &other.to_frame(0, 0).0);
        assert_eq!(switch.poll(), None, "byte {at}");
    }
    switch.handle_frame(Time::ZERO, 0, &response);
    only_request(&mut switch);
}

/// The SM gives up an optional request after a few attempts, and its next one is about something else.
#[test]
fn a_response_to_an_optional_request_that_was_given_up_is_ignored() {
    let (mut switch, mut agent) = (Switch::infiniband(SubnetConfig::default()), Agent::new(0xa));
    agent.manager = Some(SmInfo::new());
    switch.handle_link(Time::ZERO, 0, true);
    let (mut now, mut late, mut asked) = (Time::ZERO, Vec::new(), 0);
    while asked < 4 || switch.members().all(|member| !member.is_active) {
        while let Some(Egress::Own { frame, .. }) = switch.poll() {
            let request = SubnetPacket::of(&parse(&frame).unwrap()).unwrap();
            if request.attribute().0 == attribute::SM_INFO {
                (late, asked) = (agent.answer(&frame), asked + 1);
            } else {
                switch.handle_frame(now, 0, &agent.answer(&frame));
            }
        }
        now = switch.poll_timeout().expect("a retry or a sweep");
        switch.handle_timeout(now);
    }
    check_pending(&switch);
    assert_eq!(switch.poll(), None, "given up");
    switch.handle_frame(now, 0, &late);
    assert_eq!(switch.poll(), None);
    assert!(switch.members().all(|member| member.is_active));
}

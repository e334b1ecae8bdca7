//! The manager against ports that answer, forget, and say nothing.

use super::*;
use crate::wire::management::{Method, PortState, attribute, status};
use bareverbs_prm::time::Duration;

/// A port that does what it is told.
struct Agent {
    guid: u64,
    lid: u16,
    lmc: u8,
    state: PortState,
    keys: [u8; 64],
}

impl Agent {
    fn new(guid: u64) -> Self {
        Self { guid, lid: 0, lmc: 0, state: PortState::Initialize, keys: [0; 64] }
    }

    fn answer(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut packet = SubnetPacket::of(&parse(frame).expect("a packet")).expect("of management");
        assert!(packet.arrive(1));
        match (packet.method(), packet.attribute().0) {
            (Method::Get, attribute::NODE_INFO) => {
                packet.data_mut()[20..28].copy_from_slice(&self.guid.to_be_bytes());
            }
            (Method::Set, attribute::PARTITION_KEYS) => self.keys.copy_from_slice(packet.data()),
            (Method::Set, attribute::PORT_INFO) => {
                let data = packet.data();
                self.lid = u16::from_be_bytes([data[16], data[17]]);
                self.lmc = data[34] & 7;
                self.state = PortState::from_raw(data[32] & 0xf).expect("a state");
            }
            (Method::Get, attribute::PORT_INFO) => packet.data_mut()[32] = self.state as u8,
            other => panic!("{other:?}"),
        }
        packet.answer(status::OK);
        packet.to_frame((0, 0)).0
    }
}

fn converse(switch: &mut SubnetSwitch, agents: &mut [Agent], now: Time) {
    while let Some((port, frame)) = switch.poll_transmit() {
        let answer = agents[port].answer(&frame);
        assert_eq!(switch.handle_frame(now, port, &answer), None);
    }
}

fn subnet(lmc: u8) -> (SubnetSwitch, Vec<Agent>) {
    let partition_keys = vec![0xffff, 0x8001];
    let mut switch = SubnetSwitch::new(SubnetConfig { lmc, partition_keys });
    let mut agents = vec![Agent::new(0xa), Agent::new(0xb)];
    for port in 0..2 {
        switch.handle_link_up(Time::ZERO, port);
    }
    converse(&mut switch, &mut agents, Time::ZERO);
    (switch, agents)
}

fn packet_to(lid: u16) -> Vec<u8> {
    let [high, low] = lid.to_be_bytes();
    vec![0, 2, high, low, 0, 0, 0, 0]
}

/// Requirement: IBTA v1.4 §14.4.3: the subnet's manager gives every port a LID of its own and brings it to active by way
/// of armed.
#[test]
fn every_port_becomes_active_with_a_lid_of_its_own() {
    let (mut switch, agents) = subnet(0);
    assert!(agents.iter().all(|agent| agent.state == PortState::Active));
    assert_eq!((agents[0].lid, agents[1].lid), (1, 2));
    assert_eq!(agents[0].keys[..6], [0xff, 0xff, 0x80, 1, 0, 0]);
    assert_eq!(switch.handle_frame(Time::ZERO, 0, &packet_to(2)), Some(1));
    assert_eq!(switch.handle_frame(Time::ZERO, 1, &packet_to(1)), Some(0));
    for lid in [0, 1, 3, 0xc000, 0xffff] {
        assert_eq!(switch.handle_frame(Time::ZERO, 0, &packet_to(lid)), None, "LID {lid}");
    }
    assert_eq!((switch.counters.forwarded, switch.counters.dropped), (2, 5));
}

/// Requirement: IBTA v1.4 §4.1.3: with LID mask control a port has 2 to its power LIDs, the first a multiple of that.
#[test]
fn a_mask_gives_a_port_several_lids() {
    let (mut switch, agents) = subnet(2);
    assert_eq!((agents[0].lid, agents[0].lmc, agents[1].lid), (4, 2, 8));
    assert_eq!(switch.handle_frame(Time::ZERO, 0, &packet_to(11)), Some(1));
    assert_eq!(switch.handle_frame(Time::ZERO, 0, &packet_to(12)), None);
}

#[test]
fn a_port_that_was_reset_gets_its_lid_again() {
    let (mut switch, mut agents) = subnet(0);
    agents[1] = Agent::new(0xb);
    let later = switch.poll_timeout().expect("a sweep is due");
    switch.handle_timeout(later);
    converse(&mut switch, &mut agents, later);
    assert_eq!((agents[1].state, agents[1].lid), (PortState::Active, 2));
    switch.handle_link_down(1);
    assert_eq!(switch.handle_frame(later, 0, &packet_to(2)), None);
    switch.handle_link_up(later, 1);
    converse(&mut switch, &mut agents, later);
    assert_eq!(switch.handle_frame(later, 0, &packet_to(2)), Some(1));
}

#[test]
fn a_silent_port_is_asked_again_and_never_gets_a_lid() {
    let mut switch = SubnetSwitch::new(SubnetConfig::default());
    switch.handle_link_up(Time::ZERO, 5);
    assert!(switch.poll_transmit().is_some() && switch.poll_transmit().is_none());
    switch.handle_timeout(Time::ZERO + Duration::from_millis(200));
    let (port, _) = switch.poll_transmit().expect("asked again");
    assert_eq!((port, switch.members().count()), (5, 0));
    switch.handle_frame(Time::ZERO, 5, &[0xf0; 40]);
    assert_eq!(switch.counters.dropped, 1);
}

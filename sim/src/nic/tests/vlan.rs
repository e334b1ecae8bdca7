//! RoCE in a VLAN: the tag comes from the RoCE address table, the priority from the address path.

use super::pair::Pair;
use super::verbs::{Node, remote};
use crate::nic::NicConfig;
use bareverbs_prm::command::port::{SetRoceAddressIn, SetRoceAddressOut};
use bareverbs_prm::numbering::{CommandOpcode, RoceL3Type, RoceVersion, WqeOpcode};

fn put_in_vlan(node: &mut Node, id: u16) {
    let mut input = SetRoceAddressIn::new();
    input.set_roce_address_index(1);
    let entry = input.roce_address_mut();
    entry.set_source_l3_address(node.gid.0).set_roce_l3_type(RoceL3Type::Ipv4);
    entry.set_roce_version(RoceVersion::Version2).set_vlan_valid(true).set_vlan_id(id);
    entry.set_source_mac_47_32(node.mac.high()).set_source_mac_31_0(node.mac.low());
    node.host.run::<_, SetRoceAddressOut>(CommandOpcode::SetRoceAddress, 0, input).unwrap();
}

fn pair(vlans: [u16; 2]) -> Pair {
    let mut pair =
        Pair { a: Node::new(1, NicConfig::default()), b: Node::new(2, NicConfig::default()), frames: 0 };
    put_in_vlan(&mut pair.a, vlans[0]);
    put_in_vlan(&mut pair.b, vlans[1]);
    let (to_b, to_a) = ((pair.b.qp.qpn, pair.b.gid, pair.b.mac), (pair.a.qp.qpn, pair.a.gid, pair.a.mac));
    let priority = |context: &mut bareverbs_prm::context::QueuePairContext| {
        context.primary_address_path_mut().set_eth_prio(3);
    };
    pair.a.connect(to_b, priority);
    pair.b.connect(to_a, priority);
    pair
}

fn write(pair: &mut Pair) -> Vec<Vec<u8>> {
    let segments = [remote(pair.b.mr.va, pair.b.mr.key), super::verbs::data(pair.a.mr.sge(0, 64))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
    let mut frames = Vec::new();
    pair.run_with(|_, frame| {
        frames.push(frame.to_vec());
        true
    });
    frames
}

/// Requirement: RoCEv2 A17.4.2: packets from an address in a VLAN carry its tag, with the priority of the path.
#[test]
fn packets_carry_the_tag_of_their_address() {
    let mut pair = pair([5, 5]);
    let frames = write(&mut pair);
    assert!(frames.len() >= 2, "a request and its acknowledgement");
    assert!(frames.iter().all(|frame| frame[12..18] == [0x81, 0, 0x60, 5, 8, 0]));
    pair.a.expect();
}

#[test]
fn packets_of_another_vlan_are_not_taken() {
    let mut pair = pair([5, 6]);
    assert_eq!(write(&mut pair).len(), 1, "there is no response");
    assert_eq!(pair.b.host.nic.counters().frames_unknown_gid, 1);
}

/// The port caches the last addresses that it accepted, but only until its table changes.
#[test]
fn packets_to_an_address_that_was_changed_are_not_taken() {
    let mut pair = pair([5, 5]);
    assert!(write(&mut pair).len() >= 2, "a request and its acknowledgement");
    put_in_vlan(&mut pair.b, 6);
    assert_eq!(write(&mut pair).len(), 1, "there is no response");
    assert_eq!(pair.b.host.nic.counters().frames_unknown_gid, 1);
}

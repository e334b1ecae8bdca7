//! Frames into a switch, and what comes out.

use super::*;
use proptest::prelude::*;

const NOW: Time = Time::ZERO;

fn frame(destination: u8, source: u8) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[5], bytes[11]) = (destination, source);
    bytes
}

fn exits(switch: &mut Switch, ingress: usize, frame: &[u8]) -> Vec<Egress> {
    switch.handle_frame(NOW, ingress, frame);
    core::iter::from_fn(|| switch.poll()).collect()
}

fn ethernet(ports: usize, config: &SwitchConfig) -> Switch {
    let mut switch = Switch::ethernet(config);
    (0..ports).for_each(|port| assert_eq!(switch.add_port(), port));
    switch
}

fn copies<const N: usize>(ports: [usize; N]) -> Vec<Egress> {
    ports.map(|port| Egress::Copy { port }).to_vec()
}

#[test]
fn learns_then_forwards() {
    let mut switch = ethernet(3, &SwitchConfig::default());
    assert_eq!(exits(&mut switch, 0, &frame(2, 1)), copies([1, 2]));
    assert_eq!(exits(&mut switch, 1, &frame(1, 2)), [Egress::Forward { port: 0 }]);
    assert_eq!(exits(&mut switch, 0, &frame(2, 1)), [Egress::Forward { port: 1 }]);
    assert_eq!(exits(&mut switch, 1, &frame(2, 3)), [], "back where it came from");
    let SwitchCounters { forwarded, flooded, filtered, .. } = switch.counters();
    assert_eq!((forwarded, flooded, filtered), (2, 1, 1));
}

#[test]
fn never_learns_a_group_address_and_filters_scraps() {
    let mut switch = ethernet(2, &SwitchConfig::default());
    let mut odd = frame(9, 1);
    odd[6] = 1;
    exits(&mut switch, 0, &odd);
    let mut to_group = frame(1, 7);
    to_group[0] = 1;
    assert_eq!(exits(&mut switch, 0, &to_group), copies([1]));
    assert_eq!(exits(&mut switch, 0, &[0; 11]), []);
}

/// IEEE 802.1D table 7-10.
#[test]
fn pause_frames_and_bridge_protocols_end_at_the_switch() {
    let mut switch = ethernet(3, &SwitchConfig::default());
    for (last, copied) in [(0, false), (1, false), (0xf, false), (0x10, true)] {
        let mut frame = frame(9, 1);
        frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, last]);
        assert_eq!(exits(&mut switch, 0, &frame).is_empty(), !copied, "{last:#x}");
    }
    assert_eq!((switch.counters().filtered, switch.counters().flooded), (3, 1));
}

#[test]
fn an_address_told_beforehand_is_never_flooded() {
    let mut switch = ethernet(3, &SwitchConfig::default());
    switch.set_static_address(MacAddress([0, 0, 0, 0, 0, 2]), 2);
    assert_eq!(exits(&mut switch, 0, &frame(2, 1)), [Egress::Forward { port: 2 }]);
    switch.handle_link(NOW, 2, false);
    assert_eq!(exits(&mut switch, 0, &frame(2, 1)), [Egress::Forward { port: 2 }], "static");
    switch.handle_link(NOW, 0, false);
    assert_eq!(exits(&mut switch, 1, &frame(1, 3)), copies([0, 2]), "learned at port 0");
}

#[test]
fn a_full_table_floods_and_counts() {
    let mut switch = ethernet(2, &SwitchConfig { address_limit: 1, ..SwitchConfig::default() });
    exits(&mut switch, 0, &frame(9, 1));
    exits(&mut switch, 1, &frame(9, 2));
    assert_eq!(exits(&mut switch, 0, &frame(2, 1)), copies([1]));
    assert_eq!(switch.counters().not_learned, 1);
}

/// Unpolled output of one frame does not leave with the next.
#[test]
fn unpolled_output_of_a_frame_is_discarded() {
    let mut switch = ethernet(4, &SwitchConfig::default());
    switch.set_static_address(MacAddress([0, 0, 0, 0, 0, 2]), 2);
    switch.handle_frame(NOW, 0, &frame(7, 1));
    assert_eq!(switch.poll(), Some(Egress::Copy { port: 1 }));
    assert_eq!(exits(&mut switch, 0, &frame(2, 1)), [Egress::Forward { port: 2 }]);
}

fn to_lid(lid: u16) -> Vec<u8> {
    let [high, low] = lid.to_be_bytes();
    vec![0, 2, high, low, 0, 0, 0, 0]
}

/// Requirement: IBTA v1.4 §18.2.4.3.3: a packet to a multicast LID leaves by every port of the group except its ingress
/// port.
#[test]
fn a_group_gets_a_copy_each_but_not_the_sender() {
    let mut switch = Switch::infiniband(SubnetConfig::default());
    (0..4).for_each(|port| assert_eq!(switch.add_port(), port));
    let ports = PortSet::default().with(0).with(2).with(3);
    assert!(switch.set_multicast_ports(0xc001, ports));
    assert_eq!(exits(&mut switch, 0, &to_lid(0xc001)), copies([2, 3]));
    assert_eq!(exits(&mut switch, 1, &to_lid(0xc001)), copies([0, 2, 3]));
    assert_eq!(exits(&mut switch, 1, &to_lid(0xc002)), [], "nobody joined");
    assert!(switch.set_multicast_ports(0xc001, PortSet::default()));
    assert_eq!(exits(&mut switch, 1, &to_lid(0xc001)), [], "all left");
    assert!(!switch.set_multicast_ports(0xbfff, ports) && !switch.set_multicast_ports(0xffff, ports));
    let SwitchCounters { flooded, filtered, .. } = switch.counters();
    assert_eq!((flooded, filtered), (2, 2));
}

const LIMIT: usize = 16;

proptest! {
    /// For arbitrary frames, an Ethernet switch sends them only to existing ports and never back, and its table stays
    /// within its limit.
    #[test]
    fn arbitrary_frames_leave_an_ethernet_switch_whole(
        frames in prop::collection::vec((0usize..5, prop::collection::vec(any::<u8>(), 0..32)), 0..100),
    ) {
        let config = SwitchConfig { address_limit: LIMIT, ..SwitchConfig::default() };
        let mut switch = ethernet(5, &config);
        for (ingress, bytes) in frames {
            for egress in exits(&mut switch, ingress, &bytes) {
                let (Egress::Forward { port } | Egress::Copy { port }) = egress else {
                    return Err(TestCaseError::fail("an Ethernet switch makes no frames"));
                };
                prop_assert!(port < 5 && port != ingress);
            }
            let Table::Ethernet(addresses) = &switch.table else { unreachable!() };
            prop_assert!(addresses.len() <= LIMIT);
        }
    }

    /// Arbitrary bytes at the ports of a subnet make nobody a member, and the SM's requests in between only go to ports
    /// with a cable.
    #[test]
    fn arbitrary_frames_leave_an_infiniband_switch_whole(
        frames in prop::collection::vec((0usize..300, prop::collection::vec(any::<u8>(), 0..300), any::<bool>()), 0..60),
    ) {
        let mut switch = Switch::infiniband(SubnetConfig::default());
        (0..3).for_each(|port| switch.handle_link(NOW, port, true));
        for (ingress, mut bytes, managed) in frames {
            if let (true, Some(first)) = (managed, bytes.first_mut()) {
                *first = 0xf0;
            }
            for egress in exits(&mut switch, ingress, &bytes) {
                let Egress::Own { port, .. } = egress else {
                    return Err(TestCaseError::fail("nobody has a LID"));
                };
                prop_assert!(port < 3);
            }
        }
        prop_assert_eq!(switch.members().count(), 0);
    }
}

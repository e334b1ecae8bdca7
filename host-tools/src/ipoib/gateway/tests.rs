use super::super::administration::Role;
use super::super::port::DatagramWay;
use super::*;
use bareverbs_prm::ids::Gid;
use bareverbs_sim::wire::management::administration::{AdministrationPacket, McMemberRecord};
use proptest::prelude::*;

const PORT: PortIdentity =
    PortIdentity { gid: Gid([0xfe; 16]), lid: 4, manager_lid: 9, partition_key: 0xffff };
const QPN: Qpn = Qpn::from_low_bits(0x42);

/// A gateway that has joined the broadcast group.
fn gateway() -> Gateway {
    let mut gateway = Gateway::new(QPN, 0);
    gateway.handle_port(Time::ZERO, Some(PORT));
    gateway.handle_timeout(Time::ZERO);
    let mut record = McMemberRecord::new();
    record.set_mtu(4).set_q_key(0xb1b).set_mlid(0xc000);
    gateway.subnet.take_membership(link::broadcast_group(0xffff), Role::Member, record);
    outputs(&mut gateway);
    gateway
}

fn outputs(gateway: &mut Gateway) -> Vec<GatewayOutput> {
    core::iter::from_fn(|| gateway.poll()).collect()
}

/// Requirement: RFC 4391 §5: an interface joins the broadcast group first, and takes its Q_Key and its MTU, less the
/// header, from it.
#[test]
fn the_group_of_broadcasts_comes_first() {
    let mut gateway = Gateway::new(QPN, 0);
    gateway.handle_timeout(Time::ZERO);
    assert_eq!(outputs(&mut gateway), [], "there is no port yet");
    gateway.handle_port(Time::ZERO, Some(PORT));
    gateway.handle_timeout(Time::ZERO);
    let requests = outputs(&mut gateway)
        .into_iter()
        .filter(|output| matches!(output, GatewayOutput::Interface(InterfaceOutput::Request(_))));
    assert_eq!(requests.count(), 1);
    let mut record = McMemberRecord::new();
    record.set_mtu(4).set_q_key(7);
    let group = link::broadcast_group(0xffff);
    gateway.subnet.take_membership(group, Role::Member, record);
    assert_eq!(
        outputs(&mut gateway),
        [InterfaceOutput::Ready { q_key: 7, mtu: 2044 }, InterfaceOutput::Attach(group)]
            .map(GatewayOutput::Interface)
    );
    gateway.handle_timeout(Time::ZERO + TICK);
    assert_eq!(outputs(&mut gateway).len(), 2, "224.0.0.1 and ff02::1");
    gateway.handle_port(Time::ZERO + TICK, None);
    assert_eq!(outputs(&mut gateway), [GatewayOutput::Interface(InterfaceOutput::Detach(group))]);
}

/// Requirement: IBTA v1.4 §15.2.5.17: a program that ends leaves its groups, so that the administration has no stale
/// members.
#[test]
fn a_gateway_that_ends_leaves_its_groups() {
    let mut gateway = gateway();
    gateway.leave(Time::ZERO);
    assert!(!gateway.has_left(), "a request is still to be sent");
    let group = link::broadcast_group(0xffff);
    let said = outputs(&mut gateway);
    let [GatewayOutput::Interface(detached), GatewayOutput::Interface(InterfaceOutput::Request(asked))] =
        &said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!(detached, &InterfaceOutput::Detach(group));
    assert!(!gateway.has_left(), "the answer is still missing");
    let mut answer = AdministrationPacket::of(asked);
    assert_eq!(
        (answer.mad.method(), answer.record().map(|record: McMemberRecord| record.mgid())),
        (0x15, Some(group.0))
    );
    answer.mad.set_method(0x95);
    gateway.handle_response(Time::ZERO, &answer.to_bytes());
    assert!(gateway.has_left());
}

#[test]
fn a_sender_does_not_receive_its_own_group_packets() {
    let mut gateway = gateway();
    let packet = link::wrap(IPV4, &[&[0x45; 12][..], &[10, 0, 0, 1, 224, 0, 0, 9]].concat());
    let group = Some(link::ipv4_group(0xffff, Ipv4Addr::new(224, 0, 0, 9)));
    gateway.handle_datagram(Time::ZERO, Arrival { lid: 4, qpn: QPN, group }, &packet);
    assert_eq!(outputs(&mut gateway), []);
    gateway.handle_datagram(Time::ZERO, Arrival { lid: 5, qpn: QPN, group }, &packet);
    let frame = [&[1, 0, 0x5e, 0, 0, 9][..], &OWN_MAC.0, &[8, 0], &packet[HEADER..]].concat();
    assert_eq!(
        outputs(&mut gateway),
        [GatewayOutput::Frame(frame)],
        "an interface that never announced its address"
    );
}

#[test]
fn a_broadcast_leaves_by_its_group() {
    let mut gateway = gateway();
    let packet = [&[0x45; 12][..], &[10, 0, 0, 1, 10, 0, 0, 255]].concat();
    let frame = [&EVERYBODY.0[..], &[2, 0, 0, 0, 0, 1], &[8, 0], &packet].concat();
    gateway.handle_frame(Time::ZERO, &frame);
    let sent = outputs(&mut gateway);
    let [GatewayOutput::Interface(InterfaceOutput::Datagram { way, qpn, q_key, packet: sent })] = &sent[..]
    else {
        panic!("{sent:?}")
    };
    let DatagramWay::Group { lane, gid, .. } = way else { panic!("{way:?}") };
    assert_eq!((lane.lid, *gid), (0xc000, link::broadcast_group(0xffff)));
    assert_eq!((qpn.value(), *q_key, sent), (0xff_ffff, 0xb1b, &link::wrap(IPV4, &packet)));
}

proptest! {
    /// Input from peers and the machine is untrusted: whatever it is, it results in an output or a counter.
    #[test]
    fn arbitrary_bytes_are_survived(
        packets in prop::collection::vec((any::<bool>(), prop::sample::select(vec![ARP, IPV4, IPV6]), prop::collection::vec(any::<u8>(), 0..120)), 0..20),
        lid in any::<u16>(), qpn in any::<u32>(), is_group in any::<bool>(),
    ) {
        let mut gateway = gateway();
        for (is_frame, kind, bytes) in &packets {
            if *is_frame {
                let frame = [&[bytes.len() as u8; 12][..], &kind.to_be_bytes(), bytes].concat();
                gateway.handle_frame(Time::ZERO, &frame);
                gateway.handle_frame(Time::ZERO, bytes);
            } else {
                let group = is_group.then(|| link::broadcast_group(0xffff));
                let from = Arrival { lid, qpn: Qpn::from_low_bits(qpn), group };
                gateway.handle_datagram(Time::ZERO, from, &link::wrap(*kind, bytes));
                gateway.handle_datagram(Time::ZERO, from, bytes);
            }
            gateway.handle_timeout(Time::ZERO + TICK);
        }
        let answer: [u8; SIZE] = core::array::from_fn(|at| packets.get(at % 8).map_or(3, |packet| packet.2.len() as u8));
        gateway.handle_response(Time::ZERO, &answer);
        prop_assert!(outputs(&mut gateway).len() <= 6 * packets.len() + 2);
    }
}

//! Unreliable datagrams between drivers in one world.

use bareverbs_core::address_handle::{AddressHandle, MULTICAST_QPN, OWN_Q_KEY, ROUTE_HEADER};
use bareverbs_core::queue_pair::{MulticastError, QueuePairAttributes};
use bareverbs_core::work_completion::{NetworkType, WorkCompletionStatus as Status};
use bareverbs_core::work_request::WorkRequest;
use bareverbs_prm::numbering::{CqeSyndrome, QpState};
use bareverbs_sim::net::fault::RandomFaults;
use bareverbs_tests::datagrams::{Datagrams, Q_KEY};
use bareverbs_tests::node::{NodeOptions, gid, mac};

const IPV4: NodeOptions = NodeOptions { ipv6: false, version_1: false, unforgiving: true };
const IPV6: NodeOptions = NodeOptions { ipv6: true, ..IPV4 };
const VERSION_1: NodeOptions = NodeOptions { version_1: true, ..IPV6 };

/// Sends bytes from one host to another.
#[track_caller]
fn send(world: &mut Datagrams, from: usize, to: usize, bytes: &[u8]) {
    let target = world.hosts[to].queue_pair.qpn();
    let destination = world.way(from, to).destination(target, Q_KEY);
    let host = &mut world.hosts[from];
    host.memory.copy_in(0, bytes).unwrap();
    let slice = [host.memory.slice(0, bytes.len()).unwrap()];
    host.queue_pair.post_send_to(&WorkRequest::send(1, &slice), &destination).unwrap();
}

/// Requirement: IBTA v1.4 §11.4.1.2: 40 bytes of each datagram receive are reserved for the global route header, and the
/// completion names the sending queue pair.
/// Requirement: RoCEv2 A17.4.5.2: with IPv4, the IP header is in the last 20 of these bytes.
#[test]
fn a_datagram_arrives_behind_its_route_header() {
    let kinds = [(IPV4, NetworkType::Ipv4), (IPV6, NetworkType::Ipv6), (VERSION_1, NetworkType::RoceV1)];
    for (options, kind) in kinds {
        let mut world = Datagrams::new(2, 1, options);
        world.post_receive(1, 4096, 256);
        send(&mut world, 0, 1, b"no connection");
        let [received] = world.received(1)[..] else { panic!("one receive") };
        assert!(received.is_success(), "{}", received.status);
        assert_eq!((received.wr_id, received.byte_count, received.immediate), (4096, 53, None));
        assert_eq!(received.origin.qpn(), world.hosts[0].queue_pair.qpn());
        assert_eq!(received.network_type(), Some(kind));
        assert_eq!(world.bytes(1, 4096 + ROUTE_HEADER, 14), b"no connection\0");
        let header = world.bytes(1, 4096, ROUTE_HEADER);
        if options.ipv6 {
            let next = if options.version_1 { 0x1b } else { 17 };
            assert_eq!((header[0] >> 4, header[6], header[7]), (6, next, 64));
            assert_eq!((&header[8..24], &header[24..]), (&gid(1, true).0[..], &gid(2, true).0[..]));
        } else {
            assert_eq!(header[..20], [0; 20], "nothing is written before an IPv4 header");
            assert_eq!((header[20], header[21], header[29]), (0x45, 0x6a, 17));
            assert_eq!(header[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let [sent] = world.sent(0)[..] else { panic!("one send") };
        assert!(sent.is_success());
    }
}

#[test]
fn the_reply_goes_to_the_datagrams_sender() {
    for options in [IPV4, IPV6, VERSION_1] {
        let mut world = Datagrams::new(2, 2, options);
        world.post_receive(1, 4096, 256);
        send(&mut world, 0, 1, b"ping");
        let [received] = world.received(1)[..] else { panic!("one receive") };
        let header: [u8; ROUTE_HEADER] = world.bytes(1, 4096, ROUTE_HEADER).try_into().unwrap();
        let device = &world.hosts[1].node.device;
        let back = AddressHandle::to_sender(device, &received, &header, mac(1)).unwrap();
        world.post_receive(0, 4096, 256);
        let request = WorkRequest::send_inline(2, b"pong").immediate(0xfeed).solicited();
        let destination = back.destination(received.origin.qpn(), Q_KEY);
        world.hosts[1].queue_pair.post_send_to(&request, &destination).unwrap();
        let [answer] = world.received(0)[..] else { panic!("one answer") };
        assert_eq!((answer.byte_count, answer.immediate), (44, Some(0xfeed)));
        assert_eq!(world.bytes(0, 4096 + ROUTE_HEADER, 4), b"pong");
    }
}

#[test]
fn pieces_become_one_datagram_and_one_datagram_becomes_pieces() {
    let mut world = Datagrams::new(2, 3, IPV4);
    let bytes: Vec<u8> = (0..3000).map(|i| ((i * 7) >> 3) as u8).collect();
    world.hosts[0].memory.copy_in(0, &bytes).unwrap();
    let receiver = &mut world.hosts[1];
    let parts =
        [(0, 40), (1000, 17), (8192, 2943 + 100)].map(|(at, n)| receiver.memory.slice(at, n).unwrap());
    receiver.queue_pair.post_receive(&bareverbs_core::ReceiveRequest::new(5, &parts)).unwrap();
    let target = receiver.queue_pair.qpn();
    let destination = world.way(0, 1).destination(target, Q_KEY);
    let sender = &mut world.hosts[0];
    let parts = [(0, 1), (1, 2000), (2001, 999)].map(|(at, n)| sender.memory.slice(at, n).unwrap());
    let mut batch = sender.queue_pair.send_batch();
    batch.post_to(&WorkRequest::send(1, &parts), &destination).unwrap();
    batch.ring();
    let [received] = world.received(1)[..] else { panic!("one receive") };
    assert_eq!(received.byte_count, 3040);
    let found = [world.bytes(1, 1000, 17), world.bytes(1, 8192, 2983)].concat();
    assert!(found == bytes);
}

/// Requirement: IBTA v1.4 §10.2.5: a datagram with another Q_Key than that of its destination is silently dropped; with
/// the controlled bit, the sender's own Q_Key is sent.
#[test]
fn a_wrong_key_is_dropped_and_counted() {
    let mut world = Datagrams::new(2, 4, IPV4);
    world.post_receive(1, 0, 256);
    let target = world.hosts[1].queue_pair.qpn();
    let way = world.way(0, 1);
    let post = |world: &mut Datagrams, q_key| {
        let request = WorkRequest::send_inline(1, b"x");
        world.hosts[0].queue_pair.post_send_to(&request, &way.destination(target, q_key)).unwrap();
    };
    post(&mut world, Q_KEY + 1);
    assert!(world.received(1).is_empty());
    let node = world.hosts[1].node.id;
    assert_eq!(world.world.with(|world| world.device(node).counters().datagrams_bad_qkey), 1);
    assert!(world.sent(0)[0].is_success(), "the sender is not told");
    post(&mut world, OWN_Q_KEY | 0x77);
    assert_eq!(world.received(1).len(), 1);
    world.post_receive(1, 0, 256);
    world.hosts[1].queue_pair.set_q_key(9).unwrap();
    post(&mut world, Q_KEY);
    assert!(world.received(1).is_empty());
    post(&mut world, 9);
    assert_eq!(world.received(1).len(), 1);
}

/// Requirement: IBTA v1.4 §9.8.3: a datagram without a posted receive is dropped, and the sender does not learn of it.
#[test]
fn without_a_receive_a_datagram_is_lost() {
    let mut world = Datagrams::new(2, 5, IPV6);
    send(&mut world, 0, 1, b"lost");
    assert!(world.received(1).is_empty() && world.sent(0)[0].is_success());
    world.post_receive(1, 0, 256);
    send(&mut world, 0, 1, b"found");
    assert_eq!(world.received(1).len(), 1);
    assert_eq!(world.bytes(1, 40, 5), b"found");
}

#[test]
fn a_receive_without_room_for_the_header_fails() {
    let mut world = Datagrams::new(2, 6, IPV4);
    world.post_receive(1, 0, 100);
    send(&mut world, 0, 1, &[7; 61]);
    let [received] = world.received(1)[..] else { panic!("one receive") };
    assert_eq!(received.status, Status::Failed(CqeSyndrome::LocalLength));
    assert_eq!(world.hosts[1].queue_pair.query().unwrap().state, QpState::Error);
}

/// Requirement: IBTA v1.4 §9.8.3.1: a datagram is one packet: its payload is at most the path MTU
#[test]
fn the_longest_datagram_is_one_packet() {
    let mut world = Datagrams::new(2, 7, IPV4);
    world.post_receive(1, 0, 4096 + ROUTE_HEADER);
    let bytes: Vec<u8> = (0..4096).map(|i| ((i * 13) >> 4) as u8).collect();
    send(&mut world, 0, 1, &bytes);
    let [received] = world.received(1)[..] else { panic!("one receive") };
    assert_eq!(received.byte_count, 4136);
    assert!(world.bytes(1, ROUTE_HEADER, 4096) == bytes);
}

/// Requirement: IBTA v1.4 §10.5.2: a datagram to a multicast group reaches every attached queue pair, including those of
/// the sender.
#[test]
fn every_member_of_a_group_gets_a_copy() {
    for options in [IPV4, IPV6] {
        let mut world = Datagrams::new(4, 8, options);
        let (group, other) = (world.group(1), world.group(2));
        for host in [0, 1, 2] {
            world.hosts[host].queue_pair.attach_multicast(group).unwrap();
        }
        world.hosts[3].queue_pair.attach_multicast(other).unwrap();
        (0..4).for_each(|host| world.post_receive(host, 4096, 256));
        let way = AddressHandle::multicast(&world.hosts[0].node.device, 0, group).unwrap();
        let request = WorkRequest::send_inline(1, b"to all").immediate(5);
        world.hosts[0].queue_pair.post_send_to(&request, &way.destination(MULTICAST_QPN, Q_KEY)).unwrap();
        for host in [0, 1, 2] {
            let [received] = world.received(host)[..] else { panic!("host {host}: one receive") };
            assert_eq!((received.byte_count, received.immediate), (46, Some(5)), "host {host}");
            assert_eq!(world.bytes(host, 4096 + ROUTE_HEADER, 6), b"to all");
        }
        assert!(world.received(3).is_empty(), "host 3 is in another group");
        world.hosts[1].queue_pair.detach_multicast(group).unwrap();
        (0..3).for_each(|host| world.post_receive(host, 4096, 256));
        world.hosts[2].queue_pair.post_send_to(&request, &way.destination(MULTICAST_QPN, Q_KEY)).unwrap();
        let counts: Vec<_> = (0..4).map(|host| world.received(host).len()).collect();
        assert_eq!(counts, [1, 0, 1, 0]);
        let again = world.hosts[1].queue_pair.detach_multicast(group);
        assert!(matches!(again, Err(MulticastError::Command(_))), "{again:?}");
    }
}

#[test]
fn a_datagram_to_the_own_port_comes_back() {
    let mut world = Datagrams::new(1, 9, IPV4);
    world.post_receive(0, 4096, 256);
    send(&mut world, 0, 0, b"to myself");
    let [received] = world.received(0)[..] else { panic!("one receive") };
    assert_eq!(received.origin.qpn(), world.hosts[0].queue_pair.qpn());
    assert_eq!(world.bytes(0, 4096 + ROUTE_HEADER, 9), b"to myself");
    let node = world.hosts[0].node.id;
    let counters = world.world.with(|world| world.device(node).counters());
    assert_eq!((counters.frames_looped_back, counters.frames_sent), (1, 0));
}

#[test]
fn lost_messages_are_gone_and_the_rest_is_whole() {
    let mut world = Datagrams::new(2, 10, IPV4);
    world.world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(0.3)));
    for round in 0..40usize {
        world.post_receive(1, 1024 * (round + 1), 1024);
        send(&mut world, 0, 1, &[round as u8 + 1; 900]);
        assert!(world.sent(0).iter().all(|sent| sent.is_success()));
    }
    let received = world.received(1);
    assert!((10..40).contains(&received.len()), "{} of 40", received.len());
    let mut last = 0;
    for completion in received {
        let payload = world.bytes(1, completion.wr_id as usize + ROUTE_HEADER, 900);
        let number = payload[0];
        assert!(number > last && payload.iter().all(|byte| *byte == number), "{number} after {last}");
        last = number;
    }
}

/// Requirement: IBTA v1.4 §11.2.5.2: a datagram queue pair has no path, access rights or retries to modify.
#[test]
fn attributes_that_datagrams_lack_cannot_be_modified() {
    let mut world = Datagrams::new(1, 11, IPV4);
    let attributes = QueuePairAttributes { min_rnr_timer: Some(3), ..QueuePairAttributes::default() };
    let refused = world.hosts[0].queue_pair.modify(QpState::Rts, &attributes).unwrap_err();
    assert!(refused.to_string().contains("do not give"), "{refused}");
}

/// A NOP is not sent, so it has no address.
#[test]
fn a_nop_takes_its_place_among_datagrams() {
    let mut world = Datagrams::new(2, 12, IPV4);
    let destination = world.way(0, 1).destination(world.hosts[1].queue_pair.qpn(), Q_KEY);
    let host = &mut world.hosts[0];
    let mut batch = host.queue_pair.send_batch();
    batch.post_to(&WorkRequest::nop(1), &destination).unwrap();
    batch.post_to(&WorkRequest::send_inline(2, b"x"), &destination).unwrap();
    batch.ring();
    host.queue_pair.post_send_to(&WorkRequest::nop(3), &destination).unwrap();
    let ends: Vec<_> = world.sent(0).iter().map(|sent| (sent.wr_id, sent.is_success())).collect();
    assert_eq!(ends, [(1, true), (2, true), (3, true)]);
}

//! Queue pairs of unreliable connections and datagrams against plain memory.

use crate::support::objects::{Rig, Shape, peer};
use bareverbs_core::address_handle::{
    AddressHandleError, GENERAL_SERVICES_Q_KEY, MULTICAST_QPN, OWN_Q_KEY, ROUTE_HEADER,
};
use bareverbs_core::queue_pair::{
    AddressVector, ConnectOptions, MulticastError, PostError, QueuePairAttributes, QueuePairBuilder, Uc, Ud,
};
use bareverbs_core::work_completion::NetworkType;
use bareverbs_core::{
    AddressHandle, MemorySlice, RemoteSlice, WorkCompletion, WorkCompletionOpcode, WorkRequest,
};
use bareverbs_prm::ids::{Gid, MacAddress, Mkey, Qpn};
use bareverbs_prm::numbering::{CqeOpcode, PathMtu, QpState, ServiceType, WqeOpcode};
use bareverbs_prm::wqe::{AddressVector as Segment, ControlSegment, DataSegment, InlineHeader};
use zerocopy::FromBytes;

const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const Q_KEY: u32 = 0x1122_3344;

fn read<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).unwrap_or_else(|_| panic!("too short")).0
}

fn vector() -> AddressVector {
    AddressVector {
        gid_index: 0,
        gid: Gid::from_ipv4([10, 0, 0, 2]),
        mac: PEER,
        hop_limit: 33,
        traffic_class: 0x6a,
        flow_label: 0x5_4321,
        service_level: 5,
        udp_source_port: 0xc123,
        lid: 0,
    }
}

fn to(number: u32) -> Qpn {
    Qpn::from_low_bits(number)
}

#[test]
fn a_datagram_carries_its_address() {
    let mut rig = Rig::datagram(Shape { inline: 60, ..Shape::default() });
    let handle = AddressHandle::new(&rig.device, &vector()).unwrap();
    let slice = [rig.region.slice(64, 100).unwrap()];
    let request = WorkRequest::send(7, &slice).immediate(0xabcd);
    rig.pair.post_send_to(&request, &handle.destination(to(0x77), Q_KEY)).unwrap();
    let bytes = rig.send_bytes(0, 128);
    let control: ControlSegment = read(&bytes);
    assert_eq!((control.opcode(), control.ds(), control.immediate()), (WqeOpcode::SendImm, 5, 0xabcd));
    let address: Segment = read(&bytes[16..]);
    let mut expected = Segment::new();
    expected.set_qkey(Q_KEY).set_extended(true).set_dqpn(to(0x77)).set_roce_sl(5).set_udp_sport(0xc123);
    expected.set_remote_mac(PEER).set_tclass(0x6a).set_hop_limit(33).set_rgid(vector().gid.0);
    expected.set_grh(true).set_flow_label(0x5_4321);
    assert_eq!(address, expected);
    let data: DataSegment = read(&bytes[64..]);
    assert_eq!((data.byte_count(), data.address()), (100, rig.region.address() + 64));
    assert_eq!(rig.record(), (0, 2), "an address and data take two blocks");
}

#[test]
fn datagrams_of_a_batch_have_addresses_of_their_own() {
    let mut rig = Rig::datagram(Shape { inline: 60, ..Shape::default() });
    let handle = AddressHandle::new(&rig.device, &vector()).unwrap();
    let mut batch = rig.pair.send_batch();
    for number in 1..=3 {
        let request = WorkRequest::send_inline(u64::from(number), b"inline");
        batch.post_to(&request, &handle.destination(to(number), OWN_Q_KEY)).unwrap();
    }
    let refused = batch.post_to(&WorkRequest::send_inline(4, &[0; 61]), &handle.destination(to(4), 0));
    assert_eq!(refused, Err(PostError::InlineTooLong { length: 61, limit: 60 }));
    assert_eq!(batch.posted(), 3);
    batch.ring();
    for number in 1..=3 {
        let bytes = rig.send_bytes((number - 1) * 2, 128);
        let address: Segment = read(&bytes[16..]);
        assert_eq!((address.extended(), address.dqpn(), address.qkey()), (true, to(number), OWN_Q_KEY));
        let header: InlineHeader = read(&bytes[64..]);
        assert_eq!((header.inline(), &bytes[68..74]), (true, &b"inline"[..]));
    }
    assert_eq!(rig.record(), (0, 6));
}

/// Requirement: IBTA v1.4 §9.8.3: unreliable datagrams are SENDs of at most one packet.
#[test]
fn datagrams_only_send_and_fit_a_packet() {
    let mut rig = Rig::datagram(Shape::default());
    let destination = AddressHandle::new(&rig.device, &vector()).unwrap().destination(to(1), Q_KEY);
    let slice = [rig.region.slice(0, 8).unwrap()];
    let remote = RemoteSlice::default();
    for (request, kind) in [
        (WorkRequest::write(1, &slice, remote), WorkCompletionOpcode::RdmaWrite),
        (WorkRequest::read(1, &slice, remote), WorkCompletionOpcode::RdmaRead),
        (WorkRequest::fetch_add(1, &slice, remote, 1), WorkCompletionOpcode::FetchAdd),
    ] {
        let refused = PostError::NotOffered { kind, service: ServiceType::Ud };
        assert_eq!(rig.pair.post_send_to(&request, &destination), Err(refused));
    }
    let long = [rig.region.slice(0, 4097).unwrap()];
    let refused = rig.pair.post_send_to(&WorkRequest::send(1, &long), &destination);
    assert_eq!(refused, Err(PostError::MessageTooLong { length: 4097, limit: 4096 }));
    assert_eq!(rig.record(), (0, 0));
    let context = rig.hal.firmware().pairs[&rig.pair.qpn().value()].context;
    assert_eq!((context.st(), context.state()), (ServiceType::Ud, QpState::Rts));
}

#[test]
fn a_full_queue_refuses_before_it_writes() {
    let mut rig = Rig::datagram(Shape { sends: 2, ..Shape::default() });
    let destination = AddressHandle::new(&rig.device, &vector()).unwrap().destination(to(1), Q_KEY);
    let post = |rig: &mut Rig<_>| rig.pair.post_send_to(&WorkRequest::send_inline(1, b"x"), &destination);
    assert_eq!((post(&mut rig), post(&mut rig)), (Ok(()), Ok(())));
    assert_eq!(post(&mut rig), Err(PostError::QueueFull { needed: 2, size: 4 }));
}

#[test]
fn a_completion_tells_where_a_datagram_came_from() {
    let mut rig = Rig::datagram(Shape::default());
    let slice = [rig.region.slice(0, 256).unwrap()];
    rig.pair.post_receive(&bareverbs_core::ReceiveRequest::new(3, &slice)).unwrap();
    let mut entry = rig.entry(CqeOpcode::ResponderSendImmediate, 0);
    entry.set_remote_qpn(to(0x4242)).set_grh(1).set_service_level(2).set_byte_count(140).set_immediate(9);
    rig.complete_receive(entry);
    let completion = rig.receive.poll_one().unwrap().unwrap();
    assert_eq!((completion.wr_id, completion.byte_count, completion.immediate), (3, 140, Some(9)));
    assert_eq!((completion.origin.qpn(), completion.network_type()), (to(0x4242), Some(NetworkType::Ipv4)));
    let mut header = [0; ROUTE_HEADER];
    header[20..].copy_from_slice(&[0x45, 0x68, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1]);
    let back = AddressHandle::to_sender(&rig.device, &completion, &header, PEER).unwrap();
    let wanted = AddressVector {
        gid: Gid::from_ipv4([10, 0, 0, 9]),
        hop_limit: 255,
        traffic_class: 0x68,
        flow_label: 0,
        service_level: 0,
        udp_source_port: 0,
        ..vector()
    };
    assert_eq!(back, AddressHandle::new(&rig.device, &wanted).unwrap());
    header[39] = 77;
    let stranger = AddressHandle::to_sender(&rig.device, &completion, &header, PEER);
    assert_eq!(stranger, Err(AddressHandleError::NotOurs { gid: Gid::from_ipv4([10, 0, 0, 77]) }));
    let other = AddressHandle::to_sender(&rig.device, &WorkCompletion::EMPTY, &header, PEER);
    assert_eq!(other, Err(AddressHandleError::NoRouteHeader));
}

#[test]
fn addresses_that_lead_nowhere_are_refused() {
    let rig = Rig::datagram(Shape::default());
    let new = |vector| AddressHandle::new(&rig.device, &vector);
    let six = Gid([0xfd; 16]);
    let own = Gid::from_ipv4([10, 0, 0, 1]);
    assert_eq!(
        new(AddressVector { gid: six, ..vector() }),
        Err(AddressHandleError::Family { own, peer: six })
    );
    let empty = AddressVector { gid_index: 3, ..vector() };
    assert_eq!(new(empty), Err(AddressHandleError::NoAddress { gid_index: 3 }));
    assert_eq!(
        new(AddressVector { mac: MacAddress::default(), ..vector() }),
        Err(AddressHandleError::NoPeer)
    );
    assert_eq!(new(AddressVector { lid: 7, ..vector() }), Err(AddressHandleError::LidOnEthernet { lid: 7 }));
    let long = new(AddressVector { flow_label: 1 << 20, ..vector() });
    assert!(matches!(long, Err(AddressHandleError::Limit { name: "flow_label", .. })));
}

#[test]
fn groups_have_addresses_of_their_own() {
    let mut rig = Rig::datagram(Shape::default());
    let group = Gid::from_ipv4([239, 1, 2, 3]);
    let handle = AddressHandle::multicast(&rig.device, 0, group).unwrap();
    let slices: [MemorySlice; 0] = [];
    let destination = handle.destination(MULTICAST_QPN, Q_KEY);
    rig.pair.post_send_to(&WorkRequest::send(1, &slices), &destination).unwrap();
    let address: Segment = read(&rig.send_bytes(0, 64)[16..]);
    assert_eq!(address.remote_mac(), MacAddress([1, 0, 0x5e, 1, 2, 3]));
    assert_eq!((address.extended(), address.dqpn()), (true, MULTICAST_QPN));
    let gid = Gid::from_ipv4([10, 0, 0, 2]);
    assert_eq!(
        AddressHandle::multicast(&rig.device, 0, gid).err(),
        Some(AddressHandleError::NotMulticast { gid })
    );
    assert_eq!(rig.pair.attach_multicast(gid), Err(MulticastError::NotMulticast { gid }));
}

#[test]
fn an_unreliable_connection_writes_and_does_not_read() {
    let connect = |prepared: bareverbs_core::PreparedQueuePair<_, Uc>| {
        prepared.connect(&peer(), ConnectOptions::default()).unwrap()
    };
    let mut rig = Rig::with(Shape::default(), connect);
    let slice = [rig.region.slice(0, 8).unwrap()];
    let remote = RemoteSlice::from_raw(8, 8, Mkey::new(3));
    rig.pair.post_send(&WorkRequest::write(1, &slice, remote)).unwrap();
    let control: ControlSegment = read(&rig.send_bytes(0, 16));
    assert_eq!((control.opcode(), control.ds()), (WqeOpcode::RdmaWrite, 3));
    let refused = PostError::NotOffered { kind: WorkCompletionOpcode::RdmaRead, service: ServiceType::Uc };
    assert_eq!(rig.pair.post_send(&WorkRequest::read(1, &slice, remote)), Err(refused));
    let mut batch = rig.pair.send_batch();
    assert_eq!(batch.post(&WorkRequest::read(1, &slice, remote)), Err(refused));
    batch.ring();
    let context = rig.hal.firmware().pairs[&rig.pair.qpn().value()].context;
    assert_eq!((context.st(), context.state()), (ServiceType::Uc, QpState::Rts));
    assert_eq!((context.retry_count(), context.log_rra_max(), context.rre()), (0, 0, false));
    let other = QueuePairAttributes { q_key: Some(1), ..QueuePairAttributes::default() };
    assert!(rig.pair.modify(QpState::Rts, &other).is_err(), "a connection has no Q_Key");
}

#[test]
fn general_services_are_queue_pair_1_for_management_datagrams() {
    let rig = Rig::datagram(Shape::default());
    let builder = QueuePairBuilder::new(&rig.domain, &rig.send, &rig.receive).service::<Ud>();
    let pair = builder.q_key(7).general_services().build().unwrap().ready_to_send().unwrap();
    let firmware = rig.hal.firmware();
    let made = &firmware.pairs[&pair.qpn().value()];
    let [init, receiving] = [0, 1].map(|step| &made.modified[step].2);
    assert_eq!((made.context.st(), init.q_key()), (ServiceType::Qp1, GENERAL_SERVICES_Q_KEY));
    assert_eq!((receiving.mtu(), receiving.log_msg_max()), (PathMtu::Mtu256, 8));
    let other = &firmware.pairs[&rig.pair.qpn().value()];
    let receiving = &other.modified[1].2;
    assert_eq!(
        (other.context.st(), receiving.mtu(), receiving.log_msg_max()),
        (ServiceType::Ud, PathMtu::Mtu4096, 12)
    );
}

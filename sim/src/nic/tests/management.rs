//! The agents of an InfiniBand port: requests by command, over the link, and from queue pairs of their own
//! host.

use super::commands::refused;
use super::host::{CommandResult, Host};
use super::verbs::{Node, create_qp, data, vector_to};
use crate::nic::syndrome;
use crate::nic::{NicConfig, SubnetMembership};
use crate::wire::infiniband::parse;
use crate::wire::management::attributes::{NodeInfo, PortCounters, PortCountersExtended, PortInfo};
use crate::wire::management::{
    GENERAL_SERVICES_QKEY, MadHeader, Method, SIZE, SubnetPacket, attribute, class,
};
use crate::wire::{
    BthOpcode, Deth, Extension, FrameBuffer, FrameWriter, HeaderTemplate, LocalRoute, PacketHeader,
    ServiceClass, ServiceHeader,
};
use bareverbs_prm::command::ib_port::{QueryHcaVportContextIn, QueryHcaVportContextOut};
use bareverbs_prm::command::mad::{MadIfcIn, MadIfcOut};
use bareverbs_prm::ids::{MacAddress, Qpn};
use bareverbs_prm::numbering::{
    CommandOpcode as Op, CqeOpcode, EventType, PortChange, ServiceType, WqeOpcode,
};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::wqe::OWN_QKEY;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

pub(super) type Mad = [u8; SIZE];

const GRH: u64 = 40;
const HOP_POINTER: usize = 6;
const HOP_COUNT: usize = 7;
/// LID of the requester, and of the port once it has one.
const ASKER: u16 = 9;
const LID: u16 = 7;

fn config() -> NicConfig {
    NicConfig::infiniband(MacAddress::default())
}

fn mad(class: u8, method: u8, number: u16, modifier: u32) -> Mad {
    let mut header = MadHeader::new();
    header.set_base_version(1).set_class(class).set_class_version(1).set_method(method);
    header.set_transaction(77).set_attribute(number).set_modifier(modifier);
    let mut mad = [0; SIZE];
    header.write_to(&mut mad);
    mad
}

fn ask(host: &mut Host, mad: &Mad) -> CommandResult<MadIfcOut> {
    let mut input = MadIfcIn::new();
    input.set_port(1).set_mad(*mad);
    host.run(Op::MadIfc, 3, input)
}

fn answer(host: &mut Host, mad: &Mad) -> Mad {
    ask(host, mad).expect("the command succeeds").0.response_mad_packet()
}

fn status(mad: &Mad) -> u16 {
    MadHeader::of(mad).status()
}

fn data_of<T: FromBytes>(mad: &Mad) -> T {
    T::read_from_prefix(&mad[64..]).expect("it fits").0
}

/// A port of a managed subnet, active with LID 7.
fn managed() -> Node {
    let mut node = Node::new(1, NicConfig { subnet: SubnetMembership::Managed, ..config() });
    for state in [3, 4] {
        let mut requested = PortInfo::new();
        requested.set_lid(LID).set_master_sm_lid(ASKER).set_port_state(state);
        let mut request = mad(class::LID_ROUTED, 2, attribute::PORT_INFO, 1);
        request[64..128].copy_from_slice(requested.as_bytes());
        assert_eq!(status(&answer(&mut node.host, &request)), 0);
    }
    node
}

/// Requirement: IBTA v1.4 §14.2.2.2: when software hands its own port a directed route, the hop pointer is already past
/// the end; the response keeps it, and a route that continues is refused.
#[test]
fn a_directed_route_of_the_own_host_ends_behind_its_last_hop() {
    let mut host = Host::booted(config());
    for hops in [0u8, 1, 3] {
        let mut request = mad(class::DIRECTED_ROUTE, 1, attribute::NODE_INFO, 0);
        (request[HOP_POINTER], request[HOP_COUNT]) = (hops + 1, hops);
        let response = answer(&mut host, &request);
        assert_eq!((response[3], status(&response), response[HOP_POINTER]), (0x81, 1 << 15, hops + 1));
        let node: NodeInfo = data_of(&response);
        assert_eq!((node.node_type(), node.num_ports(), node.local_port_num()), (1, 1, 1));
    }
    let mut request = mad(class::DIRECTED_ROUTE, 1, attribute::NODE_INFO, 0);
    (request[HOP_POINTER], request[HOP_COUNT]) = (1, 2);
    assert_eq!(status(&answer(&mut host, &request)), 1 << 15 | 7 << 2);
}

/// Requirement: IBTA v1.4 §13.4.7: the agent responds with a status to a class, version, method, attribute or value that
/// it does not support.
#[test]
fn unsupported_requests_get_a_status() {
    let mut host = Host::booted(config());
    let refusals = [
        (mad(0x09, 1, 0x10, 0), 1 << 2),
        (mad(0x21, 2, 1, 0), 1 << 2),
        (mad(class::LID_ROUTED, 0x12, attribute::NODE_INFO, 0), 2 << 2),
        (mad(class::LID_ROUTED, 1, 0x7777, 0), 3 << 2),
        (mad(class::LID_ROUTED, 2, attribute::NODE_INFO, 0), 3 << 2),
        (mad(class::LID_ROUTED, 1, attribute::PORT_INFO, 2), 7 << 2),
        (mad(class::LID_ROUTED, 1, attribute::PARTITION_KEYS, 4), 7 << 2),
        (mad(class::LID_ROUTED, 1, attribute::VL_ARBITRATION, 2 << 16 | 1), 7 << 2),
        (mad(class::PERFORMANCE, 1, 0x7777, 0), 3 << 2),
        (mad(class::PERFORMANCE, 1, attribute::PORT_COUNTERS, 0), 7 << 2),
    ];
    for (request, expected) in refusals {
        let response = answer(&mut host, &request);
        assert_eq!(status(&response), expected, "class {:#x} attribute {:?}", request[1], &request[16..18]);
        assert_eq!(response[3] & 0x80, 0x80);
    }
    let mut version = mad(class::LID_ROUTED, 1, attribute::NODE_INFO, 0);
    version[2] = 9;
    assert_eq!(status(&answer(&mut host, &version)), 1 << 2);
    version[0] = 2;
    refused(ask(&mut host, &version), syndrome::MAD_VERSION);
    for silent in [0x81, 0x03, 0x05] {
        refused(
            ask(&mut host, &mad(class::LID_ROUTED, silent, attribute::NODE_INFO, 0)),
            syndrome::MAD_METHOD,
        );
    }
    assert!(ask(&mut host, &mad(class::LID_ROUTED, 7, 2, 0)).is_ok(), "a TrapRepress has no response");
}

/// Requirement: IBTA v1.4 §14.2.5: the agent has tables of service levels and lanes, GUIDs and P_Keys, and returns what
/// was set.
#[test]
fn tables_of_a_port_are_set_and_shown() {
    let mut host = Host::booted(config());
    let vl_low = 1 << 16 | 1;
    for (number, modifier, length) in [
        (attribute::SL_TO_VL, 0, 8),
        (attribute::VL_ARBITRATION, vl_low, 16),
        (attribute::PARTITION_KEYS, 1, 64),
    ] {
        let mut requested = mad(class::LID_ROUTED, 2, number, modifier);
        requested[64..64 + length].fill(0x5a);
        assert_eq!(status(&answer(&mut host, &requested)), 0);
        let shown = answer(&mut host, &mad(class::LID_ROUTED, 1, number, modifier));
        assert_eq!(shown[64..128], requested[64..128], "attribute {number:#x}");
    }
    let own = answer(&mut host, &mad(class::LID_ROUTED, 1, attribute::GUID_INFO, 0));
    let mut requested = mad(class::LID_ROUTED, 2, attribute::GUID_INFO, 0);
    requested[64..80].fill(0x77);
    let shown = answer(&mut host, &requested);
    assert_eq!(
        (&shown[64..72], &shown[72..80]),
        (&own[64..72], &[0x77; 8][..]),
        "the first GUID is the port's own"
    );
    let out: (QueryHcaVportContextOut, _) =
        host.run(Op::QueryHcaVportContext, 0, QueryHcaVportContextIn::new()).unwrap();
    assert!(out.0.hca_vport_context().has_smi(), "Linux requires this to send subnet management packets");
}

/// Requirement: IBTA v1.4 §14.2.5.6: the response to a Set of PortInfo repeats ClientReregister, a later Get does not;
/// states follow the order of §7.2.7.
#[test]
fn port_info_is_set_in_the_order_of_states() {
    let mut node = Node::new(1, NicConfig { subnet: SubnetMembership::Managed, ..config() });
    let set = |host: &mut Host, edit: &dyn Fn(&mut PortInfo)| {
        let mut requested = PortInfo::new();
        requested.set_lid(LID);
        edit(&mut requested);
        let mut request = mad(class::LID_ROUTED, 2, attribute::PORT_INFO, 1 << 31);
        request[64..128].copy_from_slice(requested.as_bytes());
        answer(host, &request)
    };
    let early = set(&mut node.host, &|requested| {
        requested.set_port_state(4);
    });
    assert_eq!(status(&early), 7 << 2, "a port must be armed before it becomes active");
    let disabled = set(&mut node.host, &|requested| {
        requested.set_port_physical_state(3);
    });
    assert_eq!(status(&disabled), 7 << 2, "links cannot be disabled, and the response says so");
    let answered = set(&mut node.host, &|requested| {
        requested.set_port_state(3).set_client_reregister(true).set_subnet_timeout(18);
    });
    let info: PortInfo = data_of(&answered);
    assert_eq!((info.port_state(), info.client_reregister(), info.lid()), (3, true, LID));
    let info: PortInfo =
        data_of(&answer(&mut node.host, &mad(class::LID_ROUTED, 1, attribute::PORT_INFO, 0)));
    assert_eq!((info.client_reregister(), info.subnet_timeout(), info.port_physical_state()), (false, 18, 5));
    assert_eq!((info.link_speed_ext_active(), info.link_width_active(), info.guid_cap() > 0), (2, 2, true));
    assert_ne!(info.capability_mask() & 1 << 14, 0, "extended speeds are supported");
    let shown = answer(&mut node.host, &mad(class::LID_ROUTED, 1, attribute::VENDOR_PORT_INFO, 1));
    assert_eq!((status(&shown), &shown[64..128]), (0, &[0; 64][..]), "no FDR10");
}

/// Requirement: IBTA v1.4 §7.2.7: a port that the manager takes down retrains, and the host learns that the port is no
/// longer active.
///
/// IPoIB leaves off then, and joins its groups again when the port is active.
#[test]
fn a_port_that_retrains_raises_an_event() {
    let mut node = managed();
    let state = |node: &mut Node, state: u8| {
        let mut requested = PortInfo::new();
        requested.set_lid(LID).set_master_sm_lid(ASKER).set_port_state(state);
        let mut request = mad(class::LID_ROUTED, 2, attribute::PORT_INFO, 1);
        request[64..128].copy_from_slice(requested.as_bytes());
        data_of::<PortInfo>(&answer(&mut node.host, &request)).port_state()
    };
    let changes = |node: &mut Node| -> Vec<u8> {
        let events = core::iter::from_fn(|| node.poll_event());
        events.filter(|event| event.kind() == EventType::PortChange).map(|event| event.sub_type()).collect()
    };
    changes(&mut node);
    assert_eq!(state(&mut node, 1), 2, "it is initialized, not down");
    assert_eq!(changes(&mut node), [PortChange::Initialized.raw()]);
    assert_eq!((state(&mut node, 1), changes(&mut node)), (2, vec![]), "no change from before");
    assert_eq!((state(&mut node, 3), state(&mut node, 4)), (3, 4));
    assert_eq!(changes(&mut node), [PortChange::Active.raw()]);
}

/// Replaces the node's queue pair with a management queue pair that is ready to send.
pub(super) fn make_management(node: &mut Node, service: ServiceType) {
    node.qp = create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |c| {
        c.set_st(service);
    })
    .unwrap();
    for step in [Op::ResetToInitQp, Op::InitToRtrQp, Op::RtrToRtsQp] {
        node.modify(step, |c| {
            c.set_q_key(GENERAL_SERVICES_QKEY).set_log_msg_max(12);
        })
        .unwrap();
    }
}

pub(super) fn post_mad(node: &mut Node, lid: u16, qpn: u32, mad: &Mad) {
    node.host.memory.put(node.mr.iova, mad);
    let qkey = if qpn == 1 { OWN_QKEY } else { GENERAL_SERVICES_QKEY & !OWN_QKEY };
    let mut vector = vector_to(Qpn::from_low_bits(qpn), qkey);
    vector.set_rlid(lid);
    let segments = [vector.as_bytes(), &data(node.mr.sge(0, SIZE as u32))].concat();
    node.post(WqeOpcode::Send, &segments);
}

pub(super) fn post_receive(node: &mut Node) {
    let sge = node.mr.sge(0x1000, 40 + SIZE as u32);
    node.post_receive(&[sge]);
}

/// The contents of the latest receive, if there is one.
pub(super) fn received(node: &mut Node) -> Option<Mad> {
    let entry = core::iter::from_fn(|| node.poll()).find(|entry| entry.opcode() == CqeOpcode::ResponderSend);
    entry.map(|_| node.host.memory.slice(node.mr.iova + 0x1000 + GRH, SIZE).try_into().expect("a datagram"))
}

fn transmit(node: &mut Node) -> Option<FrameBuffer> {
    let Host { nic, memory, now, .. } = &mut node.host;
    let mut frame = FrameBuffer::new();
    nic.poll_transmit(*now, memory, &mut frame).map(|_| frame)
}

fn deliver(node: &mut Node, frame: &[u8]) {
    let Host { nic, memory, now, .. } = &mut node.host;
    nic.handle_frame(*now, memory, frame);
}

/// Requirement: IBTA v1.4 §14.2.1.1: a port without a LID sends subnet management packets, over virtual lane 15, to the
/// other end of the link.
#[test]
fn queue_pair_0_sends_before_the_port_is_active() {
    let mut node = Node::new(1, NicConfig { subnet: SubnetMembership::Managed, ..config() });
    make_management(&mut node, ServiceType::Qp0);
    let mut request = SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 5);
    request.leave_by(1);
    post_mad(&mut node, 0xffff, 0, request.bytes());
    let frame = transmit(&mut node).expect("a packet");
    let packet = parse(&frame).expect("an InfiniBand packet");
    assert_eq!(SubnetPacket::of(&packet), Some(request), "on the management lane, for queue pair 0");
    assert_eq!(&frame[2..8], [0xff, 0xff, 0, 72, 0xff, 0xff], "permissive LIDs");
}

/// Requirement: IBTA v1.4 §14.2.2: responses, SMInfo and traps go to the manager on the host, and every other request to
/// the agent, never to both.
#[test]
fn the_host_receives_responses_and_packets_for_its_manager() {
    let mut node = managed();
    make_management(&mut node, ServiceType::Qp0);
    for (method, number, to_host) in [
        (0x81, attribute::NODE_INFO, true),
        (0x01, attribute::SM_INFO, true),
        (0x05, 2, true),
        (0x01, attribute::NODE_INFO, false),
        (0x07, 2, false),
    ] {
        post_receive(&mut node);
        let asked = SubnetPacket::from_payload(&mad(class::LID_ROUTED, method, number, 0)).expect("a packet");
        deliver(&mut node, &asked.to_frame(ASKER, LID).0);
        assert_eq!(received(&mut node).is_some(), to_host, "method {method:#x} attribute {number:#x}");
        let answered = transmit(&mut node).is_some();
        assert_eq!(answered, !to_host && method == 1, "method {method:#x} attribute {number:#x}");
    }
    let elsewhere = SubnetPacket::from_payload(&mad(class::LID_ROUTED, 1, attribute::NODE_INFO, 0)).unwrap();
    deliver(&mut node, &elsewhere.to_frame(ASKER, LID + 1).0);
    assert!(transmit(&mut node).is_none(), "it is addressed to another port");
}

/// Requirement: IBTA v1.4 §14.2.1: subnet management packets to a port's own LID reach its agent, and the response comes
/// back.
#[test]
fn the_own_lid_leads_to_the_own_agents() {
    let mut node = managed();
    make_management(&mut node, ServiceType::Qp0);
    post_receive(&mut node);
    post_mad(&mut node, LID, 0, &mad(class::LID_ROUTED, 1, attribute::NODE_INFO, 0));
    assert!(transmit(&mut node).is_none(), "no frame leaves the port");
    let answered = received(&mut node).expect("a response");
    assert_eq!((answered[3], status(&answered), MadHeader::of(&answered).transaction()), (0x81, 0, 77));

    let mut node = managed();
    make_management(&mut node, ServiceType::Qp1);
    post_receive(&mut node);
    let mut request = mad(class::PERFORMANCE, 1, attribute::PORT_COUNTERS, 0);
    request[65] = 1;
    post_mad(&mut node, LID, 1, &request);
    assert!(transmit(&mut node).is_none(), "no frame leaves the port");
    let answered = received(&mut node).expect("a response");
    assert_eq!((answered[0], answered[1], answered[3], status(&answered)), (1, class::PERFORMANCE, 0x81, 0));
}

/// A datagram for queue pair 1 as it arrives over the link.
fn general_frame(mad: &Mad, q_key: u32, partition_key: u16) -> FrameBuffer {
    let local =
        LocalRoute { source: ASKER, destination: LID, service_level: 3, virtual_lane: 0, global: None };
    let template = HeaderTemplate::new(&local.into(), Qpn::from_low_bits(1), partition_key)
        .of_service(ServiceClass::UnreliableDatagram);
    let deth = Deth { q_key, source: Qpn::from_low_bits(0x55) };
    let header = PacketHeader {
        opcode: BthOpcode::SendOnly,
        psn: Psn::new(0),
        solicited: false,
        ack_request: false,
        service_header: ServiceHeader::Deth(deth),
        extension: Extension::None,
    };
    let mut frame = FrameBuffer::new();
    let mut writer = FrameWriter::begin(&mut frame, &template, &header, SIZE).expect("it fits");
    writer.payload_mut().copy_from_slice(mad);
    writer.finish();
    frame
}

fn remote(node: &mut Node, mad: &Mad) -> Mad {
    deliver(node, &general_frame(mad, GENERAL_SERVICES_QKEY, 0xffff));
    let frame = transmit(node).expect("a response");
    let packet = parse(&frame).expect("an InfiniBand packet");
    assert_eq!((packet.bth.destination.value(), packet.bth.partition_key), (0x55, 0xffff));
    assert_eq!(packet.service_header.deth().map(|deth| deth.q_key), Some(GENERAL_SERVICES_QKEY));
    packet.payload.try_into().expect("a datagram")
}

/// Requirement: IBTA v1.4 §16.1.3.5: PortCounters count data in words, stop at their maximum, and take the values that a
/// Set has for the selected ones.
#[test]
fn the_performance_agent_counts_and_is_cleared() {
    let mut node = managed();
    let mut get = mad(class::PERFORMANCE, 1, attribute::PORT_COUNTERS_EXTENDED, 0);
    get[65] = 1;
    let before: PortCountersExtended = data_of(&remote(&mut node, &get));
    let after: PortCountersExtended = data_of(&remote(&mut node, &get));
    let frame = general_frame(&get, GENERAL_SERVICES_QKEY, 0xffff);
    let words = (frame.len() as u64 - 2) / 4;
    assert_eq!(after.port_rcv_pkts() - before.port_rcv_pkts(), 1);
    assert_eq!(after.port_rcv_data() - before.port_rcv_data(), words);
    assert_eq!(after.port_xmit_data() - before.port_xmit_data(), words, "the response has the same length");

    let mut set = mad(class::PERFORMANCE, 2, attribute::PORT_COUNTERS, 0);
    let mut requested = PortCounters::new();
    requested
        .set_port_select(0xff)
        .set_counter_select(1 << 14 | 1 << 2 | 1 << 0)
        .set_port_xmit_pkts(u32::MAX);
    requested.set_symbol_error_counter(5);
    set[64..64 + PortCounters::SIZE].copy_from_slice(requested.as_bytes());
    let shown: PortCounters = data_of(&remote(&mut node, &set));
    assert_eq!((shown.port_xmit_pkts(), shown.symbol_error_counter()), (u32::MAX, 5));
    let mut get = mad(class::PERFORMANCE, 1, attribute::PORT_COUNTERS, 0);
    get[65] = 1;
    let shown: PortCounters = data_of(&remote(&mut node, &get));
    assert_eq!(shown.port_xmit_pkts(), u32::MAX, "the counter saturates");
    assert!(shown.port_rcv_pkts() > 0, "not selected");
    let info = remote(&mut node, &mad(class::PERFORMANCE, 1, attribute::CLASS_PORT_INFO, 0));
    assert_eq!(info[64..68], [1, 1, 0x13, 0]);
}

/// Requirement: IBTA v1.4 §9.2.4: general services have the Q_Key 0x80010000; a datagram with another Q_Key is dropped.
#[test]
fn the_performance_agent_hears_its_q_key_and_its_partitions_only() {
    let mut node = managed();
    let request = mad(class::PERFORMANCE, 1, attribute::CLASS_PORT_INFO, 0);
    deliver(&mut node, &general_frame(&request, 0x1234, 0xffff));
    deliver(&mut node, &general_frame(&request, GENERAL_SERVICES_QKEY, 0x8123));
    assert!(transmit(&mut node).is_none());
    let counters = node.host.nic.counters();
    assert_eq!((counters.datagrams_bad_qkey, counters.frames_bad_pkey), (1, 1));
}

/// A requester that never takes a response cannot fill memory.
#[test]
fn responses_that_nobody_fetches_are_dropped() {
    let mut node = managed();
    let asked = SubnetPacket::from_payload(&mad(class::LID_ROUTED, 1, attribute::NODE_INFO, 0)).unwrap();
    let frame = asked.to_frame(ASKER, LID).0;
    for _ in 0..1_000 {
        deliver(&mut node, &frame);
    }
    assert!(node.host.nic.counters().management_dropped > 500);
    assert!(core::iter::from_fn(|| transmit(&mut node)).count() < 500);
}

proptest! {
    /// Arbitrary management datagrams at queue pairs 0 and 1 never cause a panic, and only requests that have
    /// a response get one.
    #[test]
    fn arbitrary_datagrams_are_survived(
        header in any::<[u8; 8]>(), number in 0u16..0x40, body in proptest::collection::vec(any::<u8>(), SIZE - 24),
        subnet: bool,
    ) {
        let mut node = managed();
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&header);
        bytes[0] = 1;
        bytes[1] = [class::LID_ROUTED, class::DIRECTED_ROUTE, class::PERFORMANCE, header[1]][usize::from(header[0] & 3)];
        bytes[16..18].copy_from_slice(&number.to_be_bytes());
        bytes[24..].copy_from_slice(&body);
        match SubnetPacket::from_payload(&bytes).filter(|_| subnet) {
            Some(packet) => deliver(&mut node, &packet.to_frame(ASKER, LID).0),
            None => deliver(&mut node, &general_frame(&bytes, GENERAL_SERVICES_QKEY, 0xffff)),
        }
        let answered = transmit(&mut node).is_some();
        prop_assert!(!answered || Method::from_raw(bytes[3]).has_response());
        prop_assert!(transmit(&mut node).is_none(), "at most one response");
        let _ = ask(&mut node.host, &bytes);
        prop_assert!(node.host.nic.shared.port.hca_vport.lid() < 0xc000);
    }
}

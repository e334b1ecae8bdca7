//! How Ethernet queues handle work that fails, and work of the kinds that other tests omit.

use super::ethernet::{Station, checksums, datagram};
use super::verbs::{Sge, data, poll_cq};
use crate::nic::{NicConfig, syndrome, wqe};
use bareverbs_prm::command::ethernet_receive::{
    CreateRqtIn, CreateRqtOut, CreateTirIn, CreateTirOut, DestroyRqtIn, DestroyRqtOut, ModifyRqtIn,
    ModifyRqtOut, QueryRqIn, QueryRqOut, QueryRqtIn, QueryRqtOut,
};
use bareverbs_prm::command::ethernet_send::{
    AllocTransportDomainIn, AllocTransportDomainOut, QuerySqIn, QuerySqOut,
};
use bareverbs_prm::cqe::ErrorEntry;
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::{CommandOpcode as Op, CqeOpcode, WqeOpcode};
use bareverbs_prm::wqe::{EthernetSegment, InlineHeader};
use zerocopy::IntoBytes;

/// State of a stopped queue.
const ERROR: u8 = 3;
/// `disp_type` of a TIR with a table of queues.
const INDIRECT: u8 = 1;

/// The opcode, the WQE and the cause in an error entry.
fn error(entry: bareverbs_prm::cqe::CompletionEntry) -> (CqeOpcode, u16, u8) {
    let error: ErrorEntry = zerocopy::transmute!(entry);
    (error.opcode(), error.wqe_counter(), error.vendor_syndrome())
}

#[test]
fn a_receive_that_cannot_be_written_stops_its_queue_and_flushes_it() {
    let mut station = Station::new(2);
    station.post_receives(3);
    let stranger = Sge { address: 0, length: 2048, key: Mkey::new(0x77_7700) };
    station.node.host.memory.put(station.receive_ring, &data(stranger));
    let packet = datagram(&[0; 30]);
    let failed = station.take(&packet).expect("a completion");
    assert_eq!(error(failed), (CqeOpcode::ResponderError, 0, wqe::DATA_KEY.vendor));
    for index in 1..3 {
        let flushed = poll_cq(&mut station.node.host, &mut station.receives).expect("a completion");
        assert_eq!(error(flushed), (CqeOpcode::ResponderError, index, wqe::FLUSHED.vendor));
    }
    assert!(station.take(&packet).is_none(), "later packets are lost");
    assert_eq!(station.node.host.nic.counters().packets_at_stopped_queues, 1);
    let mut query = QueryRqIn::new();
    query.set_rqn(station.rqn);
    let (shown, _): (QueryRqOut, _) = station.node.host.run(Op::QueryRq, 0, query).unwrap();
    assert_eq!((shown.rq_context().state(), shown.rq_context().wq().hw_counter()), (ERROR, 3));
}

#[test]
fn a_packet_has_so_many_bytes_and_no_more() {
    let mut station = Station::new(1);
    let long = data(station.node.mr.sge(0, (1 << 18) + 1));
    station.post_raw(WqeOpcode::Send, &[checksums().as_bytes(), &long].concat());
    assert!(station.frames().is_empty());
    assert_eq!(error(station.node.expect()), (CqeOpcode::RequesterError, 0, wqe::MESSAGE.vendor));
    let mut query = QuerySqIn::new();
    query.set_sqn(station.sqn);
    let (shown, _): (QuerySqOut, _) = station.node.host.run(Op::QuerySq, 0, query).unwrap();
    assert_eq!(shown.sq_context().state(), ERROR);
}

#[test]
fn data_may_stand_in_the_work_request_itself() {
    let mut station = Station::new(1);
    let packet = datagram(&[0x5a; 30]);
    let mut header = InlineHeader::new();
    header.set_inline(true).set_byte_count(packet.len() as u16);
    let body = [EthernetSegment::new().as_bytes(), header.as_bytes(), &packet].concat();
    station.post_raw(WqeOpcode::Send, &body);
    assert_eq!(station.frames(), [packet]);
    assert_eq!(station.node.expect().opcode(), CqeOpcode::Requester);
}

#[test]
fn inline_data_end_with_their_work_request() {
    let mut station = Station::new(1);
    let mut header = InlineHeader::new();
    header.set_inline(true).set_byte_count(1000);
    let body = [EthernetSegment::new().as_bytes(), header.as_bytes(), &datagram(&[])].concat();
    station.post_raw(WqeOpcode::Send, &body);
    assert!(station.frames().is_empty());
    assert_eq!(error(station.node.expect()), (CqeOpcode::RequesterError, 0, wqe::SEGMENTS.vendor));
}

fn strict() -> Station {
    Station::with(NicConfig { strict: true, ..NicConfig::default() }, 1)
}

/// `mlx5e`, DPDK and libmlx5 clear all that they do not use of an Ethernet segment.
#[test]
fn reserved_bits_of_packets_are_refused_in_strict_mode() {
    let mut spoilt = checksums();
    let tag = EthernetSegment::FIELDS.insert_vlan;
    spoilt.as_mut_bytes()[tag.offset()] |= 1 << (tag.shift() - 1);
    let packet = datagram(&[1; 30]);
    let mut tolerant = Station::new(1);
    tolerant.post(WqeOpcode::Send, spoilt, &[], &packet);
    assert_eq!(tolerant.frames().len(), 1);
    let mut station = strict();
    let mut tagged = checksums();
    tagged.set_insert_vlan(true).set_insert_svlan(true).set_vlan_tci(0x6005);
    for good in [checksums(), tagged] {
        station.post(WqeOpcode::Send, good, &[], &packet);
        assert_eq!(station.frames().len(), 1);
        assert_eq!(station.node.expect().opcode(), CqeOpcode::Requester);
    }
    station.post(WqeOpcode::Send, spoilt, &[], &packet);
    assert!(station.frames().is_empty());
    assert_eq!(error(station.node.expect()), (CqeOpcode::RequesterError, 2, wqe::RESERVED.vendor));
}

#[test]
fn reserved_bits_of_a_send_record_are_refused_in_strict_mode() {
    let mut station = strict();
    let record = station.send_record;
    station.node.host.memory.put(record, &[0xff; 4]);
    station.post(WqeOpcode::Send, checksums(), &[], &datagram(&[1; 30]));
    assert_eq!(station.frames().len(), 1, "the half of the receives is not that of the sends");
    station.node.expect();
    station.node.host.memory.put(record + 4, &0x1_0001_u32.to_be_bytes());
    station.ring();
    assert_eq!(error(station.node.expect()), (CqeOpcode::RequesterError, 1, wqe::RESERVED.vendor));
}

#[test]
fn a_nop_sends_nothing() {
    let mut station = Station::new(1);
    station.post_raw(WqeOpcode::Nop, &[]);
    station.post(WqeOpcode::Send, checksums(), &[], &datagram(&[1; 30]));
    assert_eq!(station.frames().len(), 1);
    let opcodes = [(); 2].map(|()| station.node.expect().send_opcode());
    assert_eq!(opcodes, [WqeOpcode::Nop.raw(), WqeOpcode::Send.raw()]);
}

/// A table that contains the station's queue `count` times; the hash of a packet selects one of them.
fn spread(station: &mut Station, count: u16) -> bareverbs_prm::ids::Rqtn {
    let mut input = CreateRqtIn::new();
    input.rqt_context_mut().set_rqt_max_size(4).set_rqt_actual_size(count);
    let list = station.rqn.value().to_be_bytes().repeat(count.into());
    let host = &mut station.node.host;
    let (table, _): (CreateRqtOut, _) = host.command(Op::CreateRqt, 0, input, &list, 16).unwrap();
    let (domain, _): (AllocTransportDomainOut, _) =
        host.run(Op::AllocTransportDomain, 0, AllocTransportDomainIn::new()).unwrap();
    let mut tir = CreateTirIn::new();
    tir.ctx_mut().set_transport_domain(domain.transport_domain());
    tir.ctx_mut().set_disp_type(INDIRECT).set_indirect_table(table.rqtn());
    let (tir, _): (CreateTirOut, _) = host.run(Op::CreateTir, 0, tir).unwrap();
    station.tirn = tir.tirn();
    station.steer_all();
    table.rqtn()
}

#[test]
fn a_table_of_queues_names_the_queue_of_a_packet() {
    let mut station = Station::new(2);
    station.post_receives(2);
    let table = spread(&mut station, 4);
    let packet = datagram(&[3; 30]);
    let entry = station.take(&packet).expect("a completion");
    assert_eq!(entry.byte_count(), packet.len() as u32);
    let mut query = QueryRqtIn::new();
    query.set_rqtn(table);
    let length = size_of::<QueryRqtOut>() + 16;
    let (shown, list): (QueryRqtOut, _) =
        station.node.host.command(Op::QueryRqt, 0, query, &[], length).unwrap();
    assert_eq!(shown.rqt_context().rqt_actual_size(), 4);
    assert_eq!(list, [station.rqn.value().to_be_bytes(); 4].concat());
    let mut destroy = DestroyRqtIn::new();
    destroy.set_rqtn(table);
    let busy = station.node.host.run::<_, DestroyRqtOut>(Op::DestroyRqt, 0, destroy);
    assert_eq!(busy.unwrap_err(), (syndrome::RQT_BUSY.status, syndrome::RQT_BUSY.syndrome));
}

#[test]
fn a_table_names_queues_that_there_are() {
    let mut station = Station::new(2);
    let table = spread(&mut station, 1);
    let mut change = |count, queues: &[u32]| {
        let mut change = ModifyRqtIn::new();
        change.set_rqtn(table).set_bitmask_rqn_list(true).ctx_mut().set_rqt_actual_size(count);
        let list: Vec<u8> = queues.iter().flat_map(|queue| queue.to_be_bytes()).collect();
        let changed = station.node.host.command::<_, ModifyRqtOut>(Op::ModifyRqt, 0, change, &list, 16);
        changed.map(|_| ()).map_err(|(_, syndrome)| syndrome)
    };
    let known = station.rqn.value();
    assert_eq!(change(1, &[0xff_fff0]), Err(syndrome::RQ_UNKNOWN.syndrome));
    assert_eq!(change(2, &[known]), Err(syndrome::LIST_TOO_SHORT.syndrome));
    assert_eq!(change(0, &[]), Err(syndrome::RQT_SIZE.syndrome));
    assert_eq!(change(5, &[known; 5]), Err(syndrome::RQT_SIZE.syndrome));
    assert_eq!(change(2, &[known; 2]), Ok(()));
}

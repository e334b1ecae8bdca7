//! An Ethernet packet from the send queue of one device to the receive queue of another, driven by hand.

use super::host::Host;
use super::verbs::{Cq, Node, create_cq, data, poll_cq};
use crate::nic::ethernet::flow::HELD_BUDGET;
use crate::nic::syndrome;
use crate::nic::{NicConfig, wqe};
use bareverbs_prm::command::ethernet_receive::{
    CreateRqIn, CreateRqOut, CreateTirIn, CreateTirOut, DestroyRqIn, DestroyRqOut, DestroyTirIn,
    DestroyTirOut, ModifyRqIn, ModifyRqOut,
};
use bareverbs_prm::command::ethernet_send::{
    AllocTransportDomainIn, AllocTransportDomainOut, CreateSqIn, CreateSqOut, CreateTisIn, CreateTisOut,
    ModifySqIn, ModifySqOut,
};
use bareverbs_prm::command::flow::{
    CreateFlowGroupIn, CreateFlowGroupOut, CreateFlowTableIn, CreateFlowTableOut, DeleteFlowEntryIn,
    DeleteFlowEntryOut, FlowDestination, QueryFlowGroupIn, QueryFlowGroupOut, SetFlowEntryIn,
    SetFlowEntryOut, SetFlowTableRootIn, SetFlowTableRootOut,
};
use bareverbs_prm::command::port::{ModifyNicVportContextIn, ModifyNicVportContextOut};
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::doorbell::{send_doorbell, uar};
use bareverbs_prm::ids::{FlowTableId, Qpn, Rqn, Sqn, Tirn};
use bareverbs_prm::numbering::{CommandOpcode as Op, CqeOpcode, WqeOpcode};
use bareverbs_prm::wqe::{ControlSegment, EthernetSegment, completion_mode};
use proptest::prelude::*;
use zerocopy::IntoBytes;

const LOG_RING: u8 = 4;
const RESET: u8 = 0;
const READY: u8 = 1;
const CYCLIC: u8 = 1;
const TO_TABLE: u8 = 1;
const TO_TIR: u8 = 2;
const DROP: u16 = 2;
const FORWARD: u16 = 4;
const RECEIVE_SIZE: u32 = 2048;

/// A node with a send queue, and a receive queue that every packet reaches.
pub(super) struct Station {
    pub(super) node: Node,
    pub(super) sqn: Sqn,
    pub(super) rqn: Rqn,
    pub(super) tirn: Tirn,
    send_ring: u64,
    pub(super) send_record: u64,
    posted: u16,
    pub(super) receive_ring: u64,
    receive_record: u64,
    received: u16,
    pub(super) receives: Cq,
}

impl Station {
    pub(super) fn new(number: u8) -> Self {
        Self::with(NicConfig::default(), number)
    }

    pub(super) fn with(config: NicConfig, number: u8) -> Self {
        Self::blocking(config, number, 0)
    }

    /// A station whose TIR does not receive these packets of its own port (`self_lb_block`).
    fn blocking(config: NicConfig, number: u8, own: u8) -> Self {
        let mut node = Node::new(number, config);
        let host = &mut node.host;
        let (domain, _): (AllocTransportDomainOut, _) =
            host.run(Op::AllocTransportDomain, 0, AllocTransportDomainIn::new()).unwrap();
        let domain = domain.transport_domain();
        let mut tis = CreateTisIn::new();
        tis.ctx_mut().set_transport_domain(domain);
        let (tis, _): (CreateTisOut, _) = host.run(Op::CreateTis, 0, tis).unwrap();
        let receives = create_cq(host, node.uar, node.eq.eqn, 6).unwrap();
        let [send_ring, send_record, receive_ring, receive_record] =
            [64 << LOG_RING, 64, 16 << LOG_RING, 64].map(|length| host.memory.allocate(length));
        let mut sq = CreateSqIn::new();
        sq.ctx_mut()
            .set_cqn(node.cq.cqn)
            .set_tis_lst_sz(1)
            .set_tis_num_0(tis.tisn())
            .set_flush_in_error_en(true);
        let wq = sq.ctx_mut().wq_mut();
        wq.set_wq_type(CYCLIC).set_pd(node.pd).set_uar_page(node.uar).set_dbr_addr(send_record);
        wq.set_log_wq_stride(6).set_log_wq_sz(LOG_RING);
        let (sq, _): (CreateSqOut, _) =
            host.command(Op::CreateSq, 0, sq, &send_ring.to_be_bytes(), 16).unwrap();
        let mut rq = CreateRqIn::new();
        rq.ctx_mut().set_cqn(receives.cqn).set_flush_in_error_en(true);
        let wq = rq.ctx_mut().wq_mut();
        wq.set_wq_type(CYCLIC).set_pd(node.pd).set_dbr_addr(receive_record);
        wq.set_log_wq_stride(4).set_log_wq_sz(LOG_RING);
        let (rq, _): (CreateRqOut, _) =
            host.command(Op::CreateRq, 0, rq, &receive_ring.to_be_bytes(), 16).unwrap();
        let mut tir = CreateTirIn::new();
        tir.ctx_mut().set_transport_domain(domain).set_inline_rqn(rq.rqn()).set_self_lb_block(own);
        let (tir, _): (CreateTirOut, _) = host.run(Op::CreateTir, 0, tir).unwrap();
        let (sqn, rqn, tirn) = (sq.sqn(), rq.rqn(), tir.tirn());
        let mut station = Self {
            node,
            sqn,
            rqn,
            tirn,
            send_ring,
            send_record,
            posted: 0,
            receive_ring,
            receive_record,
            received: 0,
            receives,
        };
        station.start();
        station.steer_all();
        station
    }

    fn host(&mut self) -> &mut Host {
        &mut self.node.host
    }

    fn start(&mut self) {
        let mut sq = ModifySqIn::new();
        sq.set_sqn(self.sqn).set_sq_state(RESET).ctx_mut().set_state(READY);
        self.host().run::<_, ModifySqOut>(Op::ModifySq, 0, sq).unwrap();
        let mut rq = ModifyRqIn::new();
        rq.set_rqn(self.rqn).set_rq_state(RESET).ctx_mut().set_state(READY);
        self.host().run::<_, ModifyRqOut>(Op::ModifyRq, 0, rq).unwrap();
    }

    /// A root table whose only entry steers everything to the TIR.
    pub(super) fn steer_all(&mut self) {
        let tirn = self.tirn;
        let host = self.host();
        let (table, _): (CreateFlowTableOut, _) =
            host.run(Op::CreateFlowTable, 0, CreateFlowTableIn::new()).unwrap();
        let table: FlowTableId = table.table_id();
        let mut group = CreateFlowGroupIn::new();
        group.set_table_id(table);
        let (group, _): (CreateFlowGroupOut, _) = host.run(Op::CreateFlowGroup, 0, group).unwrap();
        let mut entry = SetFlowEntryIn::new();
        entry.set_table_id(table);
        let context = entry.flow_context_mut();
        context
            .set_group_id(group.group_id())
            .set_action(FORWARD)
            .set_destination_list_size(1)
            .set_flow_tag(0x77);
        let mut destination = FlowDestination::new();
        destination.set_destination_type(TO_TIR).set_destination_id(tirn.value());
        let list = destination.as_bytes();
        host.command::<_, SetFlowEntryOut>(Op::SetFlowTableEntry, 0, entry, list, 16).unwrap();
        let mut root = SetFlowTableRootIn::new();
        root.set_table_id(table);
        host.run::<_, SetFlowTableRootOut>(Op::SetFlowTableRoot, 0, root).unwrap();
    }

    /// Posts `count` receives of 2048 bytes, one after the other in the memory region.
    pub(super) fn post_receives(&mut self, count: u16) {
        for _ in 0..count {
            let slot = self.received % (1 << LOG_RING);
            let sge = self.node.mr.sge(u64::from(slot) * u64::from(RECEIVE_SIZE), RECEIVE_SIZE);
            let at = self.receive_ring + u64::from(slot) * 16;
            self.host().memory.put(at, &data(sge));
            self.received += 1;
        }
        let (record, count) = (self.receive_record, u32::from(self.received));
        self.host().memory.put(record, &count.to_be_bytes());
    }

    /// Posts a WQE of an Ethernet segment, its inline bytes, and a data segment with `payload`.
    pub(super) fn post(
        &mut self,
        opcode: WqeOpcode,
        ethernet: EthernetSegment,
        inline: &[u8],
        payload: &[u8],
    ) {
        let at = self.node.mr.iova + 0xf000;
        self.host().memory.put(at, payload);
        let mut body = ethernet.as_bytes().to_vec();
        body.extend_from_slice(inline);
        body.resize(body.len().next_multiple_of(16), 0);
        if !payload.is_empty() {
            body.extend(data(self.node.mr.sge(0xf000, payload.len() as u32)));
        }
        self.post_raw(opcode, &body);
    }

    pub(super) fn post_raw(&mut self, opcode: WqeOpcode, body: &[u8]) {
        let mut control = ControlSegment::new();
        control.set_opcode(opcode).set_wqe_index(self.posted).set_completion_mode(completion_mode::ALWAYS);
        control.set_qpn(Qpn::from_low_bits(self.sqn.value()));
        control.set_ds((1 + body.len().div_ceil(16)) as u8);
        let mut bytes = [control.as_bytes(), body].concat();
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        for block in bytes.chunks_exact(64) {
            let slot = u64::from(self.posted % (1 << LOG_RING));
            let at = self.send_ring + slot * 64;
            self.host().memory.put(at, block);
            self.posted += 1;
        }
        let (record, posted) = (self.send_record, u32::from(self.posted));
        self.host().memory.put(record + 4, &posted.to_be_bytes());
        self.ring();
    }

    /// Rings the doorbell of the send queue.
    pub(super) fn ring(&mut self) {
        let raw = send_doorbell(Qpn::from_low_bits(self.sqn.value()));
        let at = u64::from(self.node.uar.value()) * 4096 + uar::SEND as u64;
        self.host().write_bytes(at, &raw.to_be_bytes());
    }

    pub(super) fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut frame = crate::wire::FrameBuffer::new();
        let host = self.host();
        while host.nic.poll_transmit(host.now, &mut host.memory, &mut frame).is_some() {
            frames.push(frame.to_vec());
        }
        frames
    }

    pub(super) fn take(&mut self, frame: &[u8]) -> Option<CompletionEntry> {
        let host = &mut self.node.host;
        host.nic.handle_frame(host.now, &mut host.memory, frame);
        poll_cq(host, &mut self.receives)
    }

    fn memory(&mut self, receive: u64, length: usize) -> Vec<u8> {
        let at = self.node.mr.iova + receive * u64::from(RECEIVE_SIZE);
        self.host().memory.slice(at, length).to_vec()
    }
}

/// An Ethernet header from station 1 to station 2, an IPv4 header, a UDP header and `payload`.
pub(super) fn datagram(payload: &[u8]) -> Vec<u8> {
    let length = (20 + 8 + payload.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 0, 0, 0]);
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[38..40].copy_from_slice(&(length - 20).to_be_bytes());
    [frame, payload.to_vec()].concat()
}

pub(super) fn checksums() -> EthernetSegment {
    let mut segment = EthernetSegment::new();
    segment.set_l3_checksum(true).set_l4_checksum(true);
    segment
}

#[test]
fn a_packet_arrives_with_the_checksums_that_were_asked_for() {
    let (mut one, mut two) = (Station::new(1), Station::new(2));
    two.post_receives(2);
    let packet = datagram(&[0x5a; 101]);
    one.post(WqeOpcode::Send, checksums(), &[], &packet);
    let frames = one.frames();
    assert_eq!(frames.len(), 1);
    let sent = one.node.expect();
    assert_eq!((sent.opcode(), sent.wqe_counter()), (CqeOpcode::Requester, 0));
    let entry = two.take(&frames[0]).expect("a completion");
    assert_eq!((entry.opcode(), entry.byte_count()), (CqeOpcode::ResponderSend, packet.len() as u32));
    assert!(entry.l2_ok() && entry.l3_ok() && entry.l4_ok() && !entry.vlan_present());
    assert_eq!((entry.l3_header(), entry.l4_header(), entry.qpn().value()), (2, 2, 0x77));
    let landed = two.memory(0, packet.len());
    assert_eq!(landed[42..], packet[42..]);
    let sum = landed[14..]
        .chunks(2)
        .fold(0u32, |sum, word| sum + u32::from(word[0]) * 256 + u32::from(*word.get(1).unwrap_or(&0)));
    assert_eq!(u32::from(entry.checksum()), (sum & 0xffff) + (sum >> 16));
    // The same bytes with a wrong checksum.
    let mut spoilt = frames[0].clone();
    spoilt[50] ^= 1;
    assert!(!two.take(&spoilt).expect("a completion").l4_ok());
    assert!(two.take(&frames[0]).is_none(), "no receive is left");
}

#[test]
fn short_packets_are_padded_and_inline_headers_used() {
    let (mut one, mut two) = (Station::new(1), Station::new(2));
    two.post_receives(1);
    let packet = datagram(b"abc");
    let mut segment = checksums();
    segment.set_inline_size(18).set_inline_start(u16::from_be_bytes([packet[0], packet[1]]));
    one.post(WqeOpcode::Send, segment, &packet[2..18], &packet[18..]);
    let frames = one.frames();
    assert_eq!(frames[0].len(), 60);
    assert_eq!(two.take(&frames[0]).unwrap().byte_count(), 60);
    assert_eq!(two.memory(0, 45)[42..], *b"abc");
}

#[test]
fn tags_are_put_in_and_taken_out() {
    let (mut one, mut two) = (Station::new(1), Station::new(2));
    two.post_receives(2);
    let packet = datagram(&[1; 60]);
    let mut segment = checksums();
    segment.set_insert_vlan(true).set_vlan_tci(0x6005);
    one.post(WqeOpcode::Send, segment, &[], &packet);
    let frames = one.frames();
    assert_eq!(frames[0][12..18], [0x81, 0, 0x60, 5, 8, 0]);
    let entry = two.take(&frames[0]).unwrap();
    assert!(entry.vlan_present() && entry.l4_ok());
    assert_eq!((entry.vlan(), entry.byte_count()), (0x6005, packet.len() as u32));
    assert_eq!(two.memory(0, 14), packet[..14]);
    let mut keep = ModifyRqIn::new();
    keep.set_rqn(two.rqn).set_rq_state(READY).set_modify_bitmask(2);
    keep.ctx_mut().set_state(READY).set_vsd(true);
    two.host().run::<_, ModifyRqOut>(Op::ModifyRq, 0, keep).unwrap();
    let entry = two.take(&frames[0]).unwrap();
    assert!(!entry.vlan_present());
    assert_eq!(entry.byte_count(), packet.len() as u32 + 4);
}

/// The lists of the virtual port are meant for an e-switch. On a function without one, the flow tables see
/// everything on the wire: DPDK creates a rule for all packets and requests promiscuous mode in no other way,
/// unless it drives a virtual function.
#[test]
fn flow_tables_see_packets_to_every_address() {
    let mut two = Station::new(2);
    two.post_receives(8);
    let to = |destination: [u8; 6]| [&destination[..], &datagram(&[0; 20])[6..]].concat();
    for destination in [[2, 0, 0, 0, 0, 7], [1, 0, 0x5e, 0, 0, 7], [0xff; 6]] {
        assert!(two.take(&to(destination)).is_some(), "{destination:x?}");
    }
}

/// A port receives its own packets unless the TIR blocks them: unicast and multicast apart. What is blocked is counted.
#[test]
fn packets_of_the_own_port_that_a_tir_blocks_are_counted() {
    for (block, received) in [(0, 2), (1, 1), (2, 1), (3, 0)] {
        let mut station = Station::blocking(NicConfig::default(), 2, block);
        station.post_receives(2);
        for destination in [[2, 0, 0, 0, 0, 2], [1, 0, 0x5e, 0, 0, 7]] {
            let packet = [&destination[..], &datagram(&[0; 20])[6..]].concat();
            station.post(WqeOpcode::Send, checksums(), &[], &packet);
            station.frames();
        }
        let host = &mut station.node.host;
        let found = core::iter::from_fn(|| poll_cq(host, &mut station.receives)).count() as u64;
        let blocked = host.nic.counters().packets_blocked_from_self;
        assert_eq!((found, blocked), (received, 2 - received), "{block}");
    }
}

/// Posts a TCP segment to be segmented, with headers of 54 bytes.
fn post_large_send(one: &mut Station, mss: u16, payload: &[u8]) {
    let mut header = datagram(&[]);
    header.truncate(34);
    header[23] = 6;
    header.extend([0, 9, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    let mut segment = checksums();
    segment.set_mss(mss).set_inline_size(54).set_inline_start(u16::from_be_bytes([header[0], header[1]]));
    one.post(WqeOpcode::Lso, segment, &header[2..], payload);
}

#[test]
fn a_large_send_is_a_train_and_one_completion() {
    let mut one = Station::new(1);
    post_large_send(&mut one, 100, &[7; 250]);
    assert_eq!(one.frames().iter().map(Vec::len).collect::<Vec<_>>(), [154, 154, 104]);
    assert_eq!(one.node.expect().send_opcode(), WqeOpcode::Lso.raw());
    one.node.expect_none();
}

/// The PRM limits the bytes of a large send, but not its frames. Each frame is built when the wire takes it;
/// the rest of the payload waits unsegmented.
#[test]
fn a_large_send_is_cut_as_the_wire_takes_it() {
    const BYTES: usize = 2000;
    let mut one = Station::new(1);
    post_large_send(&mut one, 1, &[7; BYTES]);
    let mut frame = crate::wire::FrameBuffer::new();
    for made in 1..BYTES {
        let host = one.host();
        let before = host.nic.work_done();
        assert!(host.nic.poll_transmit(host.now, &mut host.memory, &mut frame).is_some());
        assert_eq!(host.nic.ethernet.outgoing.made(), made);
        assert!(host.nic.work_done() - before < 16, "the cost of a frame does not depend on what follows it");
    }
    assert_eq!(one.frames().len(), 1);
    assert!(one.host().nic.ethernet.outgoing.is_empty());
}

#[test]
fn a_bad_wqe_stops_the_queue_and_flushes_it() {
    let mut one = Station::new(1);
    let mut inner = EthernetSegment::new();
    inner.set_l4_inner_checksum(true);
    one.post(WqeOpcode::Send, inner, &[], &datagram(&[0; 30]));
    one.post(WqeOpcode::Send, checksums(), &[], &datagram(&[0; 30]));
    assert!(one.frames().is_empty());
    let error: ErrorEntry = zerocopy::transmute!(one.node.expect());
    assert_eq!((error.opcode(), error.vendor_syndrome()), (CqeOpcode::RequesterError, wqe::OFFLOAD.vendor));
    let flushed: ErrorEntry = zerocopy::transmute!(one.node.expect());
    assert_eq!((flushed.wqe_counter(), flushed.vendor_syndrome()), (1, wqe::FLUSHED.vendor));
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let mut station = Station::new(1);
    let mut rq = DestroyRqIn::new();
    rq.set_rqn(station.rqn);
    let result = station.host().run::<_, DestroyRqOut>(Op::DestroyRq, 0, rq);
    assert_eq!(result.unwrap_err().1, syndrome::RQ_BUSY.syndrome);
    let mut tir = DestroyTirIn::new();
    tir.set_tirn(station.tirn);
    let result = station.host().run::<_, DestroyTirOut>(Op::DestroyTir, 0, tir);
    assert_eq!(result.unwrap_err().1, syndrome::TIR_BUSY.syndrome);
}

#[test]
fn a_flow_group_is_shown_as_it_was_made() {
    let mut station = Station::new(1);
    let host = station.host();
    let mut table = CreateFlowTableIn::new();
    table.flow_table_context_mut().set_log_size(3);
    let (table, _): (CreateFlowTableOut, _) = host.run(Op::CreateFlowTable, 0, table).unwrap();
    let mut group = CreateFlowGroupIn::new();
    group.set_table_id(table.table_id()).set_start_flow_index(2).set_end_flow_index(5);
    group.set_match_criteria_enable(1).match_criteria_mut().outer_headers_mut().set_udp_dport(0xfff0);
    let (made, _): (CreateFlowGroupOut, _) = host.run(Op::CreateFlowGroup, 0, group).unwrap();
    let mut query = QueryFlowGroupIn::new();
    query.set_table_id(table.table_id()).set_group_id(made.group_id());
    let (shown, _): (QueryFlowGroupOut, _) = host.run(Op::QueryFlowGroup, 0, query).unwrap();
    assert_eq!((shown.start_flow_index(), shown.end_flow_index()), (2, 5));
    assert_eq!((shown.match_criteria_enable(), shown.match_criteria()), (1, group.match_criteria()));
    query.set_group_id(made.group_id() + 1);
    let refused = host.run::<_, QueryFlowGroupOut>(Op::QueryFlowGroup, 0, query).unwrap_err();
    assert_eq!(refused.1, syndrome::FLOW_GROUP_UNKNOWN.syndrome);
}

/// Requirement: RoCEv2 A17.3.2.2: packets to RoCE's port go to the transport, and no network device sees them while RoCE
/// is enabled.
#[test]
fn roce_packets_pass_the_flow_tables_by_while_roce_is_on() {
    let mut two = Station::new(2);
    two.post_receives(2);
    let mut packet = datagram(&[0; 40]);
    packet[36..38].copy_from_slice(&4791u16.to_be_bytes());
    assert!(two.take(&packet).is_some(), "RoCE is off");
    let mut on = ModifyNicVportContextIn::new();
    on.set_field_select_roce_en(true).nic_vport_context_mut().set_roce_en(true);
    two.host().run::<_, ModifyNicVportContextOut>(Op::ModifyNicVportContext, 0, on).unwrap();
    assert!(two.take(&packet).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_work_and_frames_harm_nothing(
        bodies in proptest::collection::vec((0u8..0x30, proptest::collection::vec(any::<u8>(), 16..120)), 1..6),
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..6),
    ) {
        let mut station = Station::new(2);
        station.post_receives(4);
        for (opcode, body) in bodies {
            station.post_raw(WqeOpcode::from_raw(opcode), &body);
            station.frames();
        }
        for mut frame in frames {
            station.take(&frame);
            if let Some(destination) = frame.get_mut(..6) {
                destination.fill(0xff);
            }
            station.take(&frame);
        }
        let host = station.host();
        prop_assert!(host.memory.faults.iter().all(|fault| !fault.write));
    }
}

#[test]
fn flow_entries_of_all_tables_have_a_budget() {
    let mut host = Host::booted(NicConfig::default());
    let mut create = CreateFlowTableIn::new();
    create.flow_table_context_mut().set_log_size(16);
    let (table, _): (CreateFlowTableOut, _) = host.run(Op::CreateFlowTable, 0, create).unwrap();
    let mut group = CreateFlowGroupIn::new();
    group.set_table_id(table.table_id()).set_end_flow_index(0xffff);
    let (group, _): (CreateFlowGroupOut, _) = host.run(Op::CreateFlowGroup, 0, group).unwrap();
    let set = |host: &mut Host, index: u32| {
        let mut entry = SetFlowEntryIn::new();
        entry.set_table_id(table.table_id()).set_flow_index(index);
        entry.flow_context_mut().set_group_id(group.group_id()).set_action(DROP);
        host.run::<_, SetFlowEntryOut>(Op::SetFlowTableEntry, 0, entry).map(drop)
    };
    // The group also counts against the budget.
    for index in 1..HELD_BUDGET {
        set(&mut host, index).unwrap();
    }
    let refused = Err((syndrome::FLOW_BUDGET.status, syndrome::FLOW_BUDGET.syndrome));
    assert_eq!(set(&mut host, HELD_BUDGET), refused);
    let mut delete = DeleteFlowEntryIn::new();
    delete.set_table_id(table.table_id()).set_flow_index(7);
    host.run::<_, DeleteFlowEntryOut>(Op::DeleteFlowTableEntry, 0, delete).unwrap();
    set(&mut host, HELD_BUDGET).unwrap();
    assert_eq!(set(&mut host, HELD_BUDGET + 1), refused);
}

#[test]
fn an_entry_leads_to_a_lower_level_only_if_it_ignores_levels() {
    let mut host = Host::booted(NicConfig::default());
    let table = |host: &mut Host, level: u8| {
        let mut create = CreateFlowTableIn::new();
        create.flow_table_context_mut().set_level(level);
        let (table, _): (CreateFlowTableOut, _) = host.run(Op::CreateFlowTable, 0, create).unwrap();
        table.table_id()
    };
    let (low, high) = (table(&mut host, 1), table(&mut host, 2));
    let mut group = CreateFlowGroupIn::new();
    group.set_table_id(high);
    let (group, _): (CreateFlowGroupOut, _) = host.run(Op::CreateFlowGroup, 0, group).unwrap();
    let mut set = |next: FlowTableId, ignore: bool| {
        let mut entry = SetFlowEntryIn::new();
        entry.set_table_id(high).set_ignore_flow_level(ignore);
        let context = entry.flow_context_mut();
        context.set_group_id(group.group_id()).set_action(FORWARD).set_destination_list_size(1);
        let mut destination = FlowDestination::new();
        destination.set_destination_type(TO_TABLE).set_destination_id(next.value());
        host.command::<_, SetFlowEntryOut>(Op::SetFlowTableEntry, 0, entry, destination.as_bytes(), 16)
            .map(drop)
    };
    let refusal = |refusal: syndrome::Refusal| Err((refusal.status, refusal.syndrome));
    assert_eq!(set(low, false), refusal(syndrome::FLOW_LEVEL));
    assert_eq!(set(FlowTableId::from_low_bits(0xfff), true), refusal(syndrome::FLOW_TABLE_UNKNOWN));
    set(low, true).unwrap();
}

#[test]
fn the_second_half_of_the_last_destination_may_be_left_out() {
    let mut station = Station::new(1);
    let tirn = station.tirn;
    let host = station.host();
    let (table, _): (CreateFlowTableOut, _) =
        host.run(Op::CreateFlowTable, 0, CreateFlowTableIn::new()).unwrap();
    let mut group = CreateFlowGroupIn::new();
    group.set_table_id(table.table_id());
    let (group, _): (CreateFlowGroupOut, _) = host.run(Op::CreateFlowGroup, 0, group).unwrap();
    let mut entry = SetFlowEntryIn::new();
    entry.set_table_id(table.table_id());
    let context = entry.flow_context_mut();
    context.set_group_id(group.group_id()).set_action(FORWARD).set_destination_list_size(1);
    let mut destination = FlowDestination::new();
    destination.set_destination_type(TO_TIR).set_destination_id(tirn.value());
    let mut set = |bytes: usize| {
        let list = &destination.as_bytes()[..bytes];
        host.command::<_, SetFlowEntryOut>(Op::SetFlowTableEntry, 0, entry, list, 16).map(drop)
    };
    let short = Err((syndrome::LIST_TOO_SHORT.status, syndrome::LIST_TOO_SHORT.syndrome));
    assert_eq!(set(0), short);
    set(4).unwrap();
}

//! The way in: from frames through flow tables and hashes to receive queues.

use super::filter::is_multicast;
use super::flow::Target;
use super::hash::{self, Hash};
use super::headers::{ETHERNET, Headers, Network, TAG, TCP, UDP};
use super::{checksum, queue_state};
use crate::nic::buffer::PagedBuffer;
use crate::nic::mkey::Accessor;
use crate::nic::queue_pair::ReceiveGeometry;
use crate::nic::receive_queue::{self, Landing, Taken, Taker};
use crate::nic::user_memory::Record;
use crate::nic::wqe::{self, WorkFault};
use crate::nic::{HostMemory, Nic};
use bareverbs_prm::command::ethernet_receive::ReceiveQueueContext;
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::ids::{MacAddress, Qpn, Rqn};
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_prm::time::Time;

/// `disp_type` of a TIR: one queue, or a table of queues.
pub(crate) const DIRECT: u8 = 0;
pub(crate) const INDIRECT: u8 = 1;
/// `self_lb_block` of a TIR: what of its own port's packets does not reach it.
const BLOCK_UNICAST: u8 = 1;
const BLOCK_MULTICAST: u8 = 2;
/// Bytes of the check sequence, which the wire has and frames here have not.
const CHECK_SEQUENCE: usize = 4;
const TCP_ACK: u8 = 0x10;

/// One receive queue.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) context: ReceiveQueueContext,
    queue: receive_queue::ReceiveQueue,
    landing: Landing,
    accessor: Accessor,
}

impl ReceiveQueue {
    pub(crate) fn new(
        number: u32,
        context: ReceiveQueueContext,
        (buffer, record): (PagedBuffer, Record),
    ) -> Self {
        let (wq, qpn) = (context.wq(), Qpn::from_low_bits(number));
        let geometry = ReceiveGeometry { log_size: wq.log_wq_sz(), log_stride: wq.log_wq_stride() };
        Self {
            queue: receive_queue::ReceiveQueue::new(buffer, geometry, record),
            landing: Landing::default(),
            accessor: Accessor { pd: wq.pd(), qpn },
            context,
        }
    }

    /// Back to where it was created.
    pub(crate) fn reset(&mut self) {
        self.queue.reset();
    }

    /// As QUERY_RQ shows it.
    pub(crate) fn shown(&self) -> ReceiveQueueContext {
        let mut context = self.context;
        let (taken, posted) = (self.queue.taken().into(), self.queue.posted().into());
        context.wq_mut().set_hw_counter(taken).set_sw_counter(posted);
        context
    }
}

/// A received packet, and what is known of it.
struct Arrival<'a> {
    frame: &'a [u8],
    headers: Headers,
    hash: Hash,
    tag: u32,
}

impl Arrival<'_> {
    /// The bytes that reach memory: without the tag if the queue takes tags out.
    fn parts(&self, strips: bool) -> (&[u8], &[u8]) {
        let (head, rest) = self.frame.split_at(12);
        (head, if strips { &rest[TAG..] } else { rest })
    }

    /// What a completion says of TCP and UDP.
    fn transport_kind(&self) -> u8 {
        let Some(at) = self.headers.transport_at else { return 0 };
        let flags = self.frame.get(at + 13).copied().unwrap_or(0);
        let header = self.frame.get(at + 12).map_or(0, |byte| usize::from(byte >> 4) * 4);
        match self.headers.protocol {
            UDP => 2,
            TCP if flags & TCP_ACK == 0 => 1,
            TCP if at + header >= self.headers.end => 3,
            TCP => 4,
            _ => 0,
        }
    }

    fn entry(&self, context: &ReceiveQueueContext, index: u16, strips: bool, now: Time) -> CompletionEntry {
        let (frame, headers) = (self.frame, &self.headers);
        let (head, rest) = self.parts(strips);
        let mut entry = CompletionEntry::new();
        entry.set_rss_hash(self.hash.value).set_rss_hash_type(self.hash.kind);
        // Behind the 14 bytes of the Ethernet header, of which two are in `rest`.
        entry.set_checksum(checksum::sum(&rest[ETHERNET - head.len()..]));
        entry.set_l2_ok(true).set_l3_ok(checksum::network_is_good(frame, headers));
        entry.set_l4_ok(checksum::transport_is_good(frame, headers)).set_l4_header(self.transport_kind());
        entry.set_l3_header(match headers.network {
            Network::Other => 0,
            Network::V6 => 1,
            Network::V4 => 2,
        });
        if let Some(tag) = headers.vlan.filter(|_| strips) {
            entry.set_vlan_present(true).set_vlan(tag);
        }
        entry.set_user_index(context.user_index()).set_byte_count((head.len() + rest.len()) as u32);
        entry.set_timestamp(now.as_nanos()).set_qpn(Qpn::from_low_bits(self.tag));
        entry.set_wqe_counter(index).set_opcode(CqeOpcode::ResponderSend);
        entry
    }
}

impl Nic {
    /// Whether a frame of the wire is for this port: to its address, or to one that software asked for.
    pub(in crate::nic) fn accepts(&self, frame: &[u8]) -> bool {
        let Some(destination) = frame.first_chunk().map(|mac| MacAddress(*mac)) else { return false };
        self.ethernet.is_receiving()
            && self.port.is_up()
            && self.ethernet.lists.accept(&self.port.vport, self.port.mac(), destination)
    }

    /// Whether a frame is for the flow tables: nearly all that is not RoCE, if anybody has made flow tables.
    pub(in crate::nic) fn is_for_flow_tables(&self, frame: &[u8]) -> bool {
        if !self.ethernet.is_receiving() {
            return false;
        }
        let roce = self.port.vport.roce_en() && Headers::parse(frame).is_some_and(|h| h.is_roce(frame));
        !roce
    }

    /// A packet for the flow tables, from the wire or from this very port.
    pub(in crate::nic) fn receive_ethernet<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &[u8],
        looped_back: bool,
    ) {
        let Some(headers) = Headers::parse(frame) else {
            self.counters.frames_malformed += 1;
            return;
        };
        let traffic = &mut self.ethernet.traffic;
        if frame.len() + CHECK_SEQUENCE > usize::from(self.firmware.admin_mtu) {
            traffic.oversize += 1;
            return;
        }
        if looped_back {
            traffic.looped_back.packets += 1;
            traffic.looped_back.bytes += frame.len() as u64;
        } else {
            traffic.received.count(headers.destination, frame.len());
            self.count_received(frame);
        }
        let targets = self.ethernet.steering.steer(&headers.flow_headers(frame), frame.len());
        if targets.is_empty() {
            self.ethernet.traffic.not_steered += 1;
        }
        for target in targets {
            self.receive_at(now, memory, (frame, &headers), target, looped_back);
        }
    }

    /// A packet reaches a TIR.
    fn receive_at<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        (frame, headers): (&[u8], &Headers),
        target: Target,
        looped_back: bool,
    ) {
        let Some(tir) = self.ethernet.receive_interfaces.get(target.tir) else { return };
        let block = if is_multicast(headers.destination) { BLOCK_MULTICAST } else { BLOCK_UNICAST };
        if looped_back && tir.self_lb_block() & block != 0 {
            return;
        }
        let hash = hash::compute(tir, frame, headers);
        let queue = match tir.disp_type() {
            INDIRECT => self.ethernet.queue_tables.get(tir.indirect_table().value()).and_then(|table| {
                let index = hash.value as usize % table.queues.len().max(1);
                table.queues.get(index).copied()
            }),
            _ => Some(tir.inline_rqn()),
        };
        if let Some(queue) = queue {
            self.land(now, memory, queue, &Arrival { frame, headers: *headers, hash, tag: target.tag });
        }
    }

    /// A packet reaches a receive queue.
    fn land<M: HostMemory>(&mut self, now: Time, memory: &mut M, number: Rqn, arrival: &Arrival<'_>) {
        let Some(queue) = self.ethernet.receive_queues.get_mut(number.value()) else { return };
        if queue.context.state() != queue_state::READY {
            return;
        }
        let tagged = arrival.headers.vlan.is_some() && !arrival.headers.service_tag;
        let strips = tagged && !queue.context.vsd();
        let (head, rest) = arrival.parts(strips);
        let taker = Taker { mkeys: &self.mkeys, accessor: queue.accessor, strict: self.config.strict };
        match queue.queue.take(memory, taker, &mut queue.landing) {
            Taken::Empty => self.count_lost(number),
            Taken::Broken(fault) => self.fail_ethernet_receive(memory, number, (0, fault)),
            Taken::Receive { index, capacity } if capacity < (head.len() + rest.len()) as u64 => {
                self.fail_ethernet_receive(memory, number, (index, wqe::RECEIVE));
            }
            Taken::Receive { index, .. } => {
                let landing = &queue.landing;
                let written = landing
                    .scatter(memory, &self.mkeys, 0, head)
                    .and_then(|()| landing.scatter(memory, &self.mkeys, head.len() as u64, rest));
                if written.is_err() {
                    self.fail_ethernet_receive(memory, number, (index, wqe::DATA_KEY));
                    return;
                }
                let mut entry = arrival.entry(&queue.context, index, strips, now);
                let cqn = queue.context.cqn();
                self.completions.post(memory, &mut self.events, cqn, &mut entry, false);
            }
        }
    }

    fn count_lost(&mut self, number: Rqn) {
        self.ethernet.traffic.out_of_buffer += 1;
        let Some(queue) = self.ethernet.receive_queues.get(number.value()) else { return };
        let set = queue.context.counter_set_id().into();
        if let Some(counters) = self.counter_sets.get_mut(set) {
            counters.count_lost_packet();
        }
    }

    /// A receive failed: the queue stops.
    fn fail_ethernet_receive<M: HostMemory>(
        &mut self,
        memory: &mut M,
        number: Rqn,
        (index, fault): (u16, WorkFault),
    ) {
        let Some(queue) = self.ethernet.receive_queues.get_mut(number.value()) else { return };
        queue.context.set_state(queue_state::ERROR);
        self.post_ethernet_receive_error(memory, number, (index, fault));
        self.flush_ethernet_receives(memory, number);
    }

    /// Ends what is posted to a queue that stopped, if it was created so.
    pub(in crate::nic) fn flush_ethernet_receives<M: HostMemory>(&mut self, memory: &mut M, number: Rqn) {
        while let Some(queue) = self.ethernet.receive_queues.get_mut(number.value()) {
            if !queue.context.flush_in_error_en() {
                return;
            }
            let Some(index) = queue.queue.skip(memory) else { return };
            self.post_ethernet_receive_error(memory, number, (index, wqe::FLUSHED));
        }
    }

    fn post_ethernet_receive_error<M: HostMemory>(
        &mut self,
        memory: &mut M,
        number: Rqn,
        (index, fault): (u16, WorkFault),
    ) {
        let Some(queue) = self.ethernet.receive_queues.get(number.value()) else { return };
        let mut entry = ErrorEntry::new();
        entry.set_user_index(queue.context.user_index());
        entry.set_vendor_syndrome(fault.vendor).set_syndrome(fault.syndrome);
        entry.set_qpn(queue.accessor.qpn).set_wqe_counter(index).set_opcode(CqeOpcode::ResponderError);
        let mut entry = zerocopy::transmute!(entry);
        self.completions.post(memory, &mut self.events, queue.context.cqn(), &mut entry, true);
    }
}

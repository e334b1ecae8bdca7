//! The way in: from frames through flow tables and hashes to receive queues.

use super::filter::is_multicast;
use super::flow::Target;
use super::hash::{self, Hash};
use super::headers::{ETHERNET, Headers, NetworkProtocol, TAG, TCP, UDP};
use super::{checksum, queue_state};
use crate::nic::Nic;
use crate::nic::bus::Bus;
use crate::nic::cqe::CompletionOwner;
use crate::nic::memory::{DmaFault, HostMemory};
use crate::nic::mkey::Accessor;
use crate::nic::queue_pairs::Parts;
use crate::nic::receive_queue::{ReceiveQueue, ScatterList, Taken, Taker};
use crate::nic::wqe::{self, WorkFault};
use bareverbs_prm::command::ethernet_receive::ReceiveQueueContext;
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::ids::{MacAddress, Qpn};
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

/// One receive queue of packets.
#[derive(Debug)]
pub(crate) struct PacketReceiveQueue {
    pub(crate) context: ReceiveQueueContext,
    queue: ReceiveQueue,
    scatter: ScatterList,
    accessor: Accessor,
}

/// What became of a packet at a receive queue.
enum Delivery {
    /// It completed a receive, or stopped the queue.
    Done,
    /// It found no receive posted.
    OutOfBuffer,
}

impl PacketReceiveQueue {
    pub(crate) fn new(number: u32, context: ReceiveQueueContext, queue: ReceiveQueue) -> Self {
        let accessor = Accessor { pd: context.wq().pd(), qpn: Qpn::from_low_bits(number) };
        Self { context, queue, scatter: ScatterList::default(), accessor }
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

    fn owner(&self) -> CompletionOwner {
        CompletionOwner { user_index: self.context.user_index(), qpn: self.accessor.qpn }
    }

    /// A packet was steered here.
    fn on_packet<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, arrival: &Arrival<'_>) -> Delivery {
        if self.context.state() != queue_state::READY {
            bus.counters.packets_at_stopped_queues += 1;
            return Delivery::Done;
        }
        let tagged = arrival.headers.vlan.is_some() && !arrival.headers.service_tag;
        let strips = tagged && !self.context.vsd();
        let (head, rest) = arrival.parts(strips);
        let taker = Taker { mkeys: bus.mkeys, accessor: self.accessor, strict: bus.config.strict };
        match self.queue.take(bus.memory, taker, &mut self.scatter) {
            Taken::Empty => return Delivery::OutOfBuffer,
            Taken::Broken(fault) => self.fail(bus, 0, fault),
            Taken::Receive { index, capacity } if capacity < (head.len() + rest.len()) as u64 => {
                self.fail(bus, index, wqe::RECEIVE);
            }
            Taken::Receive { index, .. } => match self.write(bus, head, rest) {
                Err(_) => self.fail(bus, index, wqe::DATA_KEY),
                Ok(()) => {
                    let mut entry = arrival.entry(&self.context, index, strips, bus.now);
                    bus.complete(self.context.cqn(), &mut entry, false);
                }
            },
        }
        Delivery::Done
    }

    fn write<M: HostMemory>(&self, bus: &mut Bus<'_, M>, head: &[u8], rest: &[u8]) -> Result<(), DmaFault> {
        self.scatter.write(bus.memory, bus.mkeys, 0, head)?;
        self.scatter.write(bus.memory, bus.mkeys, head.len() as u64, rest)
    }

    /// A receive failed: the queue stops.
    fn fail<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, index: u16, fault: WorkFault) {
        self.context.set_state(queue_state::ERROR);
        bus.complete(self.context.cqn(), &mut self.owner().responder_error(index, fault), true);
        self.flush(bus);
    }

    /// Ends what is posted to a queue that stopped, if it was created so.
    pub(crate) fn flush<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        if !self.context.flush_in_error_en() {
            return;
        }
        while let Some(index) = self.queue.skip(bus.memory) {
            let mut entry = self.owner().responder_error(index, wqe::FLUSHED);
            bus.complete(self.context.cqn(), &mut entry, true);
        }
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
            NetworkProtocol::Other => 0,
            NetworkProtocol::V6 => 1,
            NetworkProtocol::V4 => 2,
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
        let Parts { ethernet, counter_sets, mut bus, .. } = self.parts(now, memory);
        let Some(tir) = ethernet.receive_interfaces.get(target.tir) else {
            bus.counters.packets_without_queue += 1;
            return;
        };
        let block = if is_multicast(headers.destination) { BLOCK_MULTICAST } else { BLOCK_UNICAST };
        if looped_back && tir.self_lb_block() & block != 0 {
            return;
        }
        let hash = hash::compute(tir, frame, headers);
        let chosen = match tir.disp_type() {
            INDIRECT => ethernet.queue_tables.get(tir.indirect_table().value()).and_then(|table| {
                let index = hash.value as usize % table.queues.len().max(1);
                table.queues.get(index).copied()
            }),
            _ => Some(tir.inline_rqn()),
        };
        let queue = chosen.and_then(|number| ethernet.receive_queues.get_mut(number.value()));
        let Some(queue) = queue else {
            bus.counters.packets_without_queue += 1;
            return;
        };
        let arrival = Arrival { frame, headers: *headers, hash, tag: target.tag };
        if let Delivery::OutOfBuffer = queue.on_packet(&mut bus, &arrival) {
            ethernet.traffic.out_of_buffer += 1;
            // A queue that counts nowhere names set 0, which does not exist.
            if let Some(counters) = counter_sets.get_mut(queue.context.counter_set_id().into()) {
                counters.count_lost_packet();
            }
        }
    }
}

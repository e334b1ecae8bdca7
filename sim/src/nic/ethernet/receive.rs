//! Receive queues of Ethernet: from a steered packet to its completion.

use super::hash::Hash;
use super::headers::{ETHERNET, Headers, NetworkProtocol, TAG, TCP, UDP};
use super::{checksum, queue_state};
use crate::nic::bus::Bus;
use crate::nic::cqe::CompletionOwner;
use crate::nic::memory::HostMemory;
use crate::nic::mkey::Accessor;
use crate::nic::receive_queue::{FetchedReceive, ReceiveAccess, ReceiveQueue, ScatterList};
use crate::nic::wqe::{self, WorkFault};
use bareverbs_prm::command::ethernet_receive::ReceiveQueueContext;
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_prm::time::Time;

/// `disp_type` of a TIR: one queue, or a table of queues.
pub(crate) const DIRECT: u8 = 0;
pub(crate) const INDIRECT: u8 = 1;
const TCP_ACK: u8 = 0x10;

/// One receive queue for packets.
#[derive(Debug)]
pub(crate) struct PacketReceiveQueue {
    pub(crate) context: ReceiveQueueContext,
    queue: ReceiveQueue,
    scatter: ScatterList,
    accessor: Accessor,
}

/// What happened to a packet at a receive queue.
pub(super) enum Delivery {
    /// It completed a receive, or stopped the queue.
    Done,
    /// It found no receive posted.
    OutOfBuffer,
}

impl PacketReceiveQueue {
    pub(crate) fn new(number: u32, context: ReceiveQueueContext, queue: ReceiveQueue) -> Self {
        let (pd, qpn) = (context.wq().pd(), Qpn::from_low_bits(number));
        let accessor = Accessor { pd, qpn, privileged: false, reserved_lkey: context.rlky() };
        Self { context, queue, scatter: ScatterList::default(), accessor }
    }

    /// Returns to the state after creation.
    pub(crate) fn reset(&mut self) {
        self.queue.reset();
    }

    /// The context as QUERY_RQ shows it.
    pub(crate) fn shown(&self) -> ReceiveQueueContext {
        let mut context = self.context;
        let (taken, posted) = (self.queue.taken().into(), self.queue.posted().into());
        context.wq_mut().set_hw_counter(taken).set_sw_counter(posted);
        context
    }

    fn owner(&self) -> CompletionOwner {
        CompletionOwner { user_index: self.context.user_index(), qpn: self.accessor.qpn }
    }

    /// Handles a packet that was steered here.
    pub(super) fn on_packet<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        arrival: &Arrival<'_>,
    ) -> Delivery {
        if self.context.state() != queue_state::READY {
            bus.shared.counters.packets_at_stopped_queues += 1;
            return Delivery::Done;
        }
        let tagged = arrival.headers.vlan.is_some() && !arrival.headers.service_tag;
        let strips = tagged && !self.context.vsd();
        let (head, rest) = arrival.parts(strips);
        let access =
            ReceiveAccess { mkeys: &bus.shared.mkeys, accessor: self.accessor, strict: bus.config.strict };
        match self.queue.take(bus.memory, access, &mut self.scatter) {
            FetchedReceive::Empty => return Delivery::OutOfBuffer,
            FetchedReceive::Broken(fault) => self.fail(bus, 0, fault),
            FetchedReceive::Receive { index, .. } => {
                let pieces = [(0, head), (head.len() as u64, rest)];
                match self.scatter.place(bus.memory, &bus.shared.mkeys, head.len() + rest.len(), pieces) {
                    Err(fault) => self.fail(bus, index, fault),
                    Ok(()) => {
                        let mut entry = arrival.entry(&self.context, index, strips, bus.now);
                        bus.complete(self.context.cqn(), &mut entry, false);
                    }
                }
            }
        }
        Delivery::Done
    }

    /// Stops the queue because a receive failed.
    fn fail<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, index: u16, fault: WorkFault) {
        self.context.set_state(queue_state::ERROR);
        bus.complete(self.context.cqn(), &mut self.owner().responder_error(index, fault), true);
        self.flush(bus);
    }

    /// Flushes the posted receives of a stopped queue, if it was created with that option.
    pub(crate) fn flush<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        if !self.context.flush_in_error_en() {
            return;
        }
        while let Some(index) = self.queue.skip(bus.memory) {
            let mut entry = self.owner().responder_error(index, wqe::FLUSHED);
            bus.complete(self.context.cqn(), &mut entry, true);
        }
    }
}

/// A received packet and its parsed properties.
pub(super) struct Arrival<'a> {
    pub(super) frame: &'a [u8],
    pub(super) headers: Headers,
    pub(super) hash: Hash,
    /// The tag that the flow assigned, for the completion.
    pub(super) tag: u32,
}

impl Arrival<'_> {
    /// The bytes that are written to memory: without the VLAN tag if the queue strips it.
    fn parts(&self, strips: bool) -> (&[u8], &[u8]) {
        let (head, rest) = self.frame.split_at(12);
        (head, if strips { &rest[TAG..] } else { rest })
    }

    /// What the completion says about TCP and UDP.
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
        // The sum starts after the 14-byte Ethernet header, two bytes of which are in `rest`.
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

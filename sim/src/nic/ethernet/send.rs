//! Transmission: send queues whose WQEs are packets (PRM, Ethernet send WQE).

use super::headers::{ETHERNET, Headers};
use super::packets::Packets;
use super::segment::SegmentedSend;
use super::{checksum, queue_state};
use crate::nic::NicConfig;
use crate::nic::bus::Bus;
use crate::nic::cqe::CompletionOwner;
use crate::nic::memory::HostMemory;
use crate::nic::mkey::{Accessor, MkeyTable};
use crate::nic::observer::{DeviceEvent, WorkName};
use crate::nic::work_queue::{CompletionRequest, RefusedWqe, WorkQueue, WqeName};
use crate::nic::wqe::{self, LocalBuffer, PieceList, SegmentReader, WorkFault};
use bareverbs_prm::command::ethernet_send::SendQueueContext;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{ControlSegment, EthernetSegment};

/// log2 of the bytes of a large send.
pub(crate) const LOG_LARGEST: u8 = 18;
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// One send queue for packets.
#[derive(Debug)]
pub(crate) struct PacketSendQueue {
    pub(crate) context: SendQueueContext,
    pub(super) number: Qpn,
    queue: WorkQueue,
    /// Whether the queue is in the list of queues with work.
    pub(super) queued: bool,
}

/// A WQE that was fetched from the ring.
struct FetchedPackets {
    name: WqeName,
    completion: CompletionRequest,
    packets: Packets,
}

impl PacketSendQueue {
    /// A queue whose ring is at the start of its buffer.
    pub(crate) const fn new(number: Qpn, context: SendQueueContext, queue: WorkQueue) -> Self {
        Self { context, number, queue, queued: false }
    }

    /// Returns to the state after creation.
    pub(crate) fn reset(&mut self) {
        self.queue.reset();
    }

    /// The context as QUERY_SQ shows it.
    pub(crate) fn shown(&self) -> SendQueueContext {
        let mut context = self.context;
        context
            .wq_mut()
            .set_hw_counter(self.queue.fetched().into())
            .set_sw_counter(self.queue.posted().into());
        context
    }

    fn owner(&self) -> CompletionOwner {
        CompletionOwner { user_index: self.context.user_index(), qpn: self.number }
    }

    /// Handles a doorbell. Returns whether the queue needs a turn at the port.
    pub(super) fn on_doorbell<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> bool {
        let read = self.queue.read_record(bus.memory, bus.config.strict);
        bus.observe(|| DeviceEvent::SendDoorbell { qpn: self.number, posted: self.queue.posted() });
        match (read, self.context.state()) {
            (Err(fault), queue_state::READY) => {
                self.fail(bus, &RefusedWqe { opcode: 0, fault });
                false
            }
            (Ok(()), queue_state::READY) => true,
            (Ok(()), queue_state::ERROR) => {
                self.flush(bus);
                false
            }
            // Nothing can be posted in the reset state, and a stopped queue only reports once that it
            // stopped.
            _ => false,
        }
    }

    /// The packets of one WQE; `None` if there is none or if it stopped the queue.
    pub(super) fn poll_packets<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Option<Packets> {
        self.queued = false;
        if self.context.state() != queue_state::READY || self.queue.pending() == 0 {
            return None;
        }
        match self.fetch(bus.memory, &bus.shared.mkeys, bus.config) {
            Ok(fetched) => {
                bus.shared.counters.wqes += 1;
                self.observe_fetch(bus, &fetched);
                if fetched.completion.signalled {
                    let mut entry = self.owner().requester(fetched.name, 0, bus.now);
                    bus.complete(self.context.cqn(), &mut entry, fetched.completion.event);
                }
                Some(fetched.packets)
            }
            Err(refused) => {
                self.fail(bus, &refused);
                None
            }
        }
    }

    /// Reports a WQE that was fetched and has ended to the observer, if there is one.
    #[inline]
    fn observe_fetch<M>(&self, bus: &mut Bus<'_, M>, fetched: &FetchedPackets) {
        let Some(observer) = &mut bus.shared.optional.observer else { return };
        let (qpn, work) = (self.number, WorkName::from(fetched.name));
        let bytes = fetched.packets.bytes() as u32;
        observer.push(bus.now, DeviceEvent::WqeFetched { qpn, work, bytes });
        observer.begin_packets(bus.now, qpn, work);
        if !fetched.completion.signalled {
            observer.push(bus.now, DeviceEvent::WqeEnded { qpn, wqe: work.index });
        }
    }

    /// Fetches the next WQE.
    fn fetch<M: HostMemory>(
        &mut self,
        memory: &mut M,
        mkeys: &MkeyTable,
        config: &NicConfig,
    ) -> Result<FetchedPackets, RefusedWqe> {
        let next = self.queue.read_next(memory, self.number, config.limits.max_send_wqe)?;
        let control = &next.control;
        let (pd, reserved_lkey) = (self.context.wq().pd(), self.context.rlky());
        let accessor = Accessor { pd, qpn: self.number, privileged: false, reserved_lkey };
        let queue = &self.queue;
        let cursor = SegmentReader::new(queue.segments(&next), queue.place(), config.strict);
        let builder = Builder { memory, mkeys, accessor, queue, cursor };
        let packets = builder.packets(control).map_err(|fault| next.refused(fault))?;
        let name = WqeName { index: self.queue.fetched(), opcode: control.opcode().raw() };
        self.queue.advance(next.blocks());
        Ok(FetchedPackets { name, completion: CompletionRequest::of(control), packets })
    }

    /// Stops the queue because its next WQE cannot be executed.
    fn fail<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, refused: &RefusedWqe) {
        let name = WqeName { index: self.queue.fetched(), opcode: refused.opcode };
        self.context.set_state(queue_state::ERROR);
        self.queue.skip(bus.memory);
        let mut entry = self.owner().requester_error(name, refused.fault);
        bus.complete(self.context.cqn(), &mut entry, true);
        self.flush(bus);
    }

    /// Flushes the posted WQEs of a stopped queue, if it was created with that option.
    pub(crate) fn flush<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        if !self.context.flush_in_error_en() {
            return;
        }
        while let Some(name) = self.queue.skip(bus.memory) {
            let mut entry = self.owner().requester_error(name, wqe::FLUSHED);
            bus.complete(self.context.cqn(), &mut entry, true);
        }
    }
}

/// Builds packets from the segments of a WQE.
struct Builder<'a, M> {
    memory: &'a mut M,
    mkeys: &'a MkeyTable,
    accessor: Accessor,
    queue: &'a WorkQueue,
    cursor: SegmentReader<'a>,
}

impl<'a, M: HostMemory> Builder<'a, M> {
    fn packets(mut self, control: &ControlSegment) -> Result<Packets, WorkFault> {
        self.cursor.check(control)?;
        match control.opcode() {
            _ if control.opmod() != 0 => Err(wqe::OPMOD),
            WqeOpcode::Nop => Ok(Packets::None),
            WqeOpcode::Send => self.packet(),
            WqeOpcode::Lso => self.segmented(),
            _ => Err(wqe::OPCODE),
        }
    }

    /// The Ethernet segment, which may only request offloads that the device offers.
    fn ethernet(&mut self) -> Result<&'a EthernetSegment, WorkFault> {
        let segment: &EthernetSegment = self.cursor.segment()?;
        let inner = segment.l3_inner_checksum() || segment.l4_inner_checksum();
        if inner || segment.swp_flags() != 0 { Err(wqe::OFFLOAD) } else { Ok(segment) }
    }

    /// The inline bytes: the first two are in the segment, the others follow it.
    fn inline(&mut self, segment: &EthernetSegment) -> Result<Vec<u8>, WorkFault> {
        if segment.insert_vlan() {
            return Ok(Vec::new());
        }
        let (size, start) = (usize::from(segment.inline_size()), segment.inline_start().to_be_bytes());
        let rest = self.cursor.inline_bytes(size.saturating_sub(start.len()))?;
        Ok([&start[..size.min(start.len())], rest].concat())
    }

    /// Appends the bytes of all data segments.
    fn gather(&mut self, into: &mut Vec<u8>) -> Result<(), WorkFault> {
        let mut pieces = PieceList::default();
        let longest = (1u64 << LOG_LARGEST).saturating_sub(into.len() as u64);
        let buffer = LocalBuffer { pieces: &mut pieces, longest, scatters: false };
        wqe::parse_data(&mut self.cursor, self.mkeys, &self.accessor, buffer)?;
        let from = into.len();
        into.resize(from + pieces.length() as usize, 0);
        let read = self.queue.gather(self.memory, self.mkeys, &pieces, 0, &mut into[from..]);
        read.map_err(|_| wqe::DATA_ACCESS)
    }

    /// One packet, with the requested checksums.
    fn packet(&mut self) -> Result<Packets, WorkFault> {
        let segment = self.ethernet()?;
        let mut packet = self.inline(segment)?;
        self.gather(&mut packet)?;
        insert_tag(segment, &mut packet)?;
        let headers = Headers::parse(&packet).ok_or(wqe::OFFLOAD)?;
        if segment.l3_checksum() {
            checksum::fill_network(&mut packet, &headers);
        }
        if segment.l4_checksum() {
            checksum::fill_transport(&mut packet, &headers);
        }
        Ok(Packets::One(packet))
    }

    /// A large send: the inline bytes are the headers of every segment.
    fn segmented(&mut self) -> Result<Packets, WorkFault> {
        let segment = self.ethernet()?;
        let header = self.inline(segment)?;
        let mut payload = Vec::new();
        self.gather(&mut payload)?;
        let send = SegmentedSend::new(header, payload, segment.mss().into()).map_err(|_| wqe::OFFLOAD)?;
        Ok(Packets::Segmented(Box::new(send)))
    }
}

/// Inserts the VLAN tag that the segment requests.
fn insert_tag(segment: &EthernetSegment, packet: &mut Vec<u8>) -> Result<(), WorkFault> {
    if !segment.insert_vlan() {
        return Ok(());
    }
    if packet.len() < ETHERNET {
        return Err(wqe::OFFLOAD);
    }
    let [a, b] = if segment.insert_svlan() { SERVICE_TAG } else { CUSTOMER_TAG }.to_be_bytes();
    let [c, d] = segment.vlan_tci().to_be_bytes();
    packet.splice(12..12, [a, b, c, d]);
    Ok(())
}

//! Transmission: send queues whose WQEs are packets (PRM, Ethernet send WQE).

use super::headers::{ETHERNET, Headers};
use super::packets::Packets;
use super::segment::SegmentedSend;
use super::{checksum, queue_state};
use crate::nic::bus::Bus;
use crate::nic::cqe::CompletionOwner;
use crate::nic::memory::HostMemory;
use crate::nic::mkey::{Access, Accessor, MkeyTable};
use crate::nic::observer::{DeviceEvent, WorkName};
use crate::nic::work_queue::{RefusedWqe, WorkQueue, WqeName};
use crate::nic::wqe::{self, WorkFault};
use bareverbs_prm::command::ethernet_send::SendQueueContext;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{
    ControlSegment, DataSegment, EthernetSegment, InlineHeader, SEGMENT, completion_mode,
};
use zerocopy::FromBytes;

/// Inline bytes start with the last two bytes of the Ethernet segment.
const INLINE_AT: usize = ControlSegment::SIZE + EthernetSegment::SIZE - 2;
/// Data segments start here if there are no further inline bytes.
const DATA_AT: usize = ControlSegment::SIZE + EthernetSegment::SIZE;
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
    signalled: bool,
    event: bool,
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
        let read = self.queue.read_record(bus.memory, false);
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
        match self.fetch(bus.memory, &bus.shared.mkeys, bus.config.limits.max_send_wqe) {
            Ok(fetched) => {
                bus.shared.counters.wqes += 1;
                self.observe_fetch(bus, &fetched);
                if fetched.signalled {
                    let mut entry = self.owner().requester(fetched.name, 0, bus.now);
                    bus.complete(self.context.cqn(), &mut entry, fetched.event);
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
        if !fetched.signalled {
            observer.push(bus.now, DeviceEvent::WqeEnded { qpn, wqe: work.index });
        }
    }

    /// Fetches the next WQE.
    fn fetch<M: HostMemory>(
        &mut self,
        memory: &mut M,
        mkeys: &MkeyTable,
        limit: u16,
    ) -> Result<FetchedPackets, RefusedWqe> {
        let next = self.queue.read_next(memory, self.number, limit)?;
        let control = &next.control;
        let (pd, reserved_lkey) = (self.context.wq().pd(), self.context.rlky());
        let accessor = Accessor { pd, qpn: self.number, privileged: false, reserved_lkey };
        let builder = Builder { memory, mkeys, accessor, bytes: self.queue.segments(&next) };
        let packets = builder.packets(control).map_err(|fault| next.refused(fault))?;
        let event = control.completion_mode() == completion_mode::ALWAYS_AND_EVENT;
        let signalled = control.completion_mode() == completion_mode::ALWAYS || event;
        let name = WqeName { index: self.queue.fetched(), opcode: control.opcode().raw() };
        self.queue.advance(next.blocks());
        Ok(FetchedPackets { name, signalled, event, packets })
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
    pub(crate) fn flush<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        if !self.context.flush_in_error_en() {
            return;
        }
        while let Some(name) = self.queue.skip(bus.memory) {
            let mut entry = self.owner().requester_error(name, wqe::FLUSHED);
            bus.complete(self.context.cqn(), &mut entry, true);
        }
    }
}

/// Builds packets from the bytes of a WQE.
struct Builder<'a, M> {
    memory: &'a mut M,
    mkeys: &'a MkeyTable,
    accessor: Accessor,
    bytes: &'a [u8],
}

impl<M: HostMemory> Builder<'_, M> {
    fn packets(mut self, control: &ControlSegment) -> Result<Packets, WorkFault> {
        match control.opcode() {
            _ if control.opmod() != 0 => Err(wqe::OPMOD),
            WqeOpcode::Nop => Ok(Packets::None),
            WqeOpcode::Send => self.packet(),
            WqeOpcode::Lso => self.segmented(),
            _ => Err(wqe::OPCODE),
        }
    }

    fn segment<T: FromBytes>(&self, at: usize) -> Result<T, WorkFault> {
        let rest = self.bytes.get(at..).ok_or(wqe::SEGMENTS)?;
        T::read_from_prefix(rest).map(|(segment, _)| segment).map_err(|_| wqe::SEGMENTS)
    }

    /// The Ethernet segment, which may only request offloads that the device offers.
    fn ethernet(&self) -> Result<EthernetSegment, WorkFault> {
        let segment: EthernetSegment = self.segment(ControlSegment::SIZE)?;
        let inner = segment.l3_inner_checksum() || segment.l4_inner_checksum();
        if inner || segment.swp_flags() != 0 { Err(wqe::OFFLOAD) } else { Ok(segment) }
    }

    /// The inline bytes, and the offset of the data segments.
    fn inline(&self, segment: &EthernetSegment) -> Result<(&[u8], usize), WorkFault> {
        if segment.insert_vlan() {
            return Ok((&[], DATA_AT));
        }
        let size = usize::from(segment.inline_size());
        let bytes = self.bytes.get(INLINE_AT..INLINE_AT + size).ok_or(wqe::SEGMENTS)?;
        Ok((bytes, DATA_AT + size.saturating_sub(2).next_multiple_of(SEGMENT)))
    }

    /// Bytes of all data segments from `at` on.
    fn gather(&mut self, mut at: usize, into: &mut Vec<u8>) -> Result<(), WorkFault> {
        self.mkeys.budget().begin_access();
        while at < self.bytes.len() {
            let data: DataSegment = self.segment(at)?;
            if data.byte_count() >> 31 != 0 {
                at = self.gather_inline(at, into)?;
                continue;
            }
            let length = wqe::byte_count(&data) as usize;
            if into.len() + length > 1 << LOG_LARGEST {
                return Err(wqe::MESSAGE);
            }
            let range = wqe::check_data(&data, self.mkeys, &self.accessor, Access::LocalRead)?;
            let from = into.len();
            into.resize(from + length, 0);
            let read = self.mkeys.read(self.memory, &range, 0, &mut into[from..]);
            read.map_err(|_| wqe::DATA_ACCESS)?;
            at += SEGMENT;
        }
        Ok(())
    }

    fn gather_inline(&self, at: usize, into: &mut Vec<u8>) -> Result<usize, WorkFault> {
        let header: InlineHeader = self.segment(at)?;
        let from = at + InlineHeader::SIZE;
        let end = from + usize::from(header.byte_count());
        into.extend_from_slice(self.bytes.get(from..end).ok_or(wqe::SEGMENTS)?);
        Ok(end.next_multiple_of(SEGMENT))
    }

    /// One packet, with the requested checksums.
    fn packet(&mut self) -> Result<Packets, WorkFault> {
        let segment = self.ethernet()?;
        let (inline, data_at) = self.inline(&segment)?;
        let mut packet = inline.to_vec();
        self.gather(data_at, &mut packet)?;
        insert_tag(&segment, &mut packet)?;
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
        let (inline, data_at) = self.inline(&segment)?;
        let header = inline.to_vec();
        let mut payload = Vec::new();
        self.gather(data_at, &mut payload)?;
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

//! The way out: send queues whose WQEs are packets (PRM, Ethernet send WQE).

use super::filter::is_multicast;
use super::headers::{ETHERNET, Headers};
use super::{Ethernet, checksum, queue_state, segment};
use crate::nic::buffer::PagedBuffer;
use crate::nic::mkey::{Access, Accessor, MkeyTable};
use crate::nic::transmit::{Transmit, TransmitClass};
use crate::nic::user_memory::Record;
use crate::nic::wqe::{self, WorkFault};
use crate::nic::{DmaFault, HostMemory, Nic};
use bareverbs_prm::command::ethernet_send::SendQueueContext;
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::doorbell::QueuePairRecord;
use bareverbs_prm::ids::{MacAddress, Qpn, UarIndex};
use bareverbs_prm::numbering::{CqeOpcode, WqeOpcode};
use bareverbs_prm::time::Time;
use bareverbs_prm::wqe::{
    BASIC_BLOCK, ControlSegment, DataSegment, EthernetSegment, InlineHeader, SEGMENT, completion_mode,
    ethernet_insert,
};
use zerocopy::{FromBytes, IntoBytes};

/// Half of the doorbell record that counts sends.
const RECORD_SEND: u64 = 4;
/// Bits of the inline size that are a size.
const INLINE_SIZE: u16 = 0x3ff;
/// Inline bytes begin with the last two of the Ethernet segment.
const INLINE_AT: usize = ControlSegment::SIZE + EthernetSegment::SIZE - 2;
/// Data segments begin here if nothing more is inline.
const DATA_AT: usize = ControlSegment::SIZE + EthernetSegment::SIZE;
/// Ethernet pads packets to this many bytes, without the check sequence.
const SHORTEST: usize = 60;
/// Bytes of a large send, logarithm.
pub(crate) const LOG_LARGEST: u8 = 18;
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// One send queue.
#[derive(Debug)]
pub(crate) struct SendQueue {
    pub(crate) context: SendQueueContext,
    number: Qpn,
    buffer: PagedBuffer,
    record: Record,
    posted: u16,
    fetched: u16,
    /// Whether the number stands in the list of queues with work.
    ready: bool,
}

/// A WQE that was taken from the ring.
struct Work {
    index: u16,
    opcode: u8,
    signalled: bool,
    event: bool,
    packets: Vec<Vec<u8>>,
}

impl SendQueue {
    pub(crate) fn new(
        number: u32,
        context: SendQueueContext,
        (buffer, record): (PagedBuffer, Record),
    ) -> Self {
        let number = Qpn::from_low_bits(number);
        Self { context, number, buffer, record, posted: 0, fetched: 0, ready: false }
    }

    fn is_ready(&self) -> bool {
        self.context.state() == queue_state::READY
    }

    /// Back to where it was created.
    pub(crate) fn reset(&mut self) {
        self.posted = 0;
        self.fetched = 0;
    }

    /// As QUERY_SQ shows it.
    pub(crate) fn shown(&self) -> SendQueueContext {
        let mut context = self.context;
        context.wq_mut().set_hw_counter(self.fetched.into()).set_sw_counter(self.posted.into());
        context
    }

    const fn pending(&self) -> u16 {
        self.posted.wrapping_sub(self.fetched)
    }

    fn blocks(&self) -> u32 {
        1 << self.context.wq().log_wq_sz()
    }

    /// Reads how many blocks are posted.
    fn ring<M: HostMemory>(&mut self, memory: &mut M) -> Result<(), WorkFault> {
        let mut word = [0; 4];
        let record = self.record.address.wrapping_add(RECORD_SEND);
        memory.read(record, &mut word).map_err(|_| wqe::FETCH)?;
        let mut both = QueuePairRecord::new();
        both.as_mut_bytes()[RECORD_SEND as usize..].copy_from_slice(&word);
        self.posted = both.send_counter();
        if u32::from(self.pending()) > self.blocks() { Err(wqe::COUNTER) } else { Ok(()) }
    }

    /// Reads from the ring, around its end.
    fn read<M: HostMemory>(&self, memory: &mut M, bytes: &mut [u8]) -> Result<(), DmaFault> {
        let ring = u64::from(self.blocks()) * BASIC_BLOCK as u64;
        let mut at = (u64::from(self.fetched) * BASIC_BLOCK as u64) & (ring - 1);
        let mut rest = bytes;
        while !rest.is_empty() {
            let take = rest.len().min((ring - at) as usize);
            let (now, later) = rest.split_at_mut(take);
            self.buffer.read(memory, at, now)?;
            rest = later;
            at = 0;
        }
        Ok(())
    }

    /// Takes the next WQE out. A fault comes with the opcode of the WQE, as far as that is known.
    fn fetch<M: HostMemory>(
        &mut self,
        memory: &mut M,
        mkeys: &MkeyTable,
        limit: u16,
    ) -> Result<Work, (u8, WorkFault)> {
        let mut head = [0; ControlSegment::SIZE];
        self.read(memory, &mut head).map_err(|_| (0, wqe::FETCH))?;
        let control = ControlSegment::read_from_bytes(&head).map_err(|_| (0, wqe::FETCH))?;
        let opcode = control.opcode().raw();
        let length = wqe::check_control(&control, self.number, self.fetched, self.pending(), limit)
            .map_err(|fault| (opcode, fault))?;
        let mut bytes = vec![0; length];
        self.read(memory, &mut bytes).map_err(|_| (opcode, wqe::FETCH))?;
        let accessor = Accessor { pd: self.context.wq().pd(), qpn: self.number };
        let packets = match control.opcode() {
            _ if control.opmod() != 0 => Err(wqe::OPMOD),
            WqeOpcode::Nop => Ok(Vec::new()),
            WqeOpcode::Send => Builder { memory, mkeys, accessor, bytes: &bytes }.packet(),
            WqeOpcode::Lso => Builder { memory, mkeys, accessor, bytes: &bytes }.train(),
            _ => Err(wqe::OPCODE),
        };
        let packets = packets.map_err(|fault| (opcode, fault))?;
        let mode = control.completion_mode();
        let event = mode == completion_mode::ALWAYS_AND_EVENT;
        let signalled = mode == completion_mode::ALWAYS || event;
        let index = self.fetched;
        self.fetched = self.fetched.wrapping_add(length.div_ceil(BASIC_BLOCK) as u16);
        Ok(Work { index, opcode, signalled, event, packets })
    }

    /// Counter and opcode of the next posted WQE, which is taken out unread, for flushing.
    fn skip<M: HostMemory>(&mut self, memory: &mut M) -> Option<(u16, u8)> {
        if self.pending() == 0 || u32::from(self.pending()) > self.blocks() {
            self.fetched = self.posted;
            return None;
        }
        let mut head = [0; ControlSegment::SIZE];
        let known = self.read(memory, &mut head).is_ok();
        let control = ControlSegment::read_from_bytes(&head).unwrap_or_default();
        let blocks = (u16::from(control.ds()) * SEGMENT as u16).div_ceil(BASIC_BLOCK as u16);
        let index = self.fetched;
        let sane = known && blocks != 0 && blocks <= self.pending();
        self.fetched = if sane { self.fetched.wrapping_add(blocks) } else { self.posted };
        Some((index, control.opcode().raw()))
    }
}

/// Makes packets of the bytes of a WQE.
struct Builder<'a, M> {
    memory: &'a mut M,
    mkeys: &'a MkeyTable,
    accessor: Accessor,
    bytes: &'a [u8],
}

impl<M: HostMemory> Builder<'_, M> {
    fn segment<T: FromBytes>(&self, at: usize) -> Result<T, WorkFault> {
        let rest = self.bytes.get(at..).ok_or(wqe::SEGMENTS)?;
        T::read_from_prefix(rest).map(|(segment, _)| segment).map_err(|_| wqe::SEGMENTS)
    }

    /// The Ethernet segment, which may ask for what is offered only.
    fn ethernet(&self) -> Result<EthernetSegment, WorkFault> {
        let segment: EthernetSegment = self.segment(ControlSegment::SIZE)?;
        let inner = segment.l3_inner_checksum() || segment.l4_inner_checksum();
        if inner || segment.swp_flags() != 0 { Err(wqe::OFFLOAD) } else { Ok(segment) }
    }

    /// Inline bytes, and where data segments begin.
    fn inline(&self, segment: &EthernetSegment) -> Result<(&[u8], usize), WorkFault> {
        if segment.inline_size() & ethernet_insert::VLAN != 0 {
            return Ok((&[], DATA_AT));
        }
        let size = usize::from(segment.inline_size() & INLINE_SIZE);
        let bytes = self.bytes.get(INLINE_AT..INLINE_AT + size).ok_or(wqe::SEGMENTS)?;
        Ok((bytes, DATA_AT + size.saturating_sub(2).next_multiple_of(SEGMENT)))
    }

    /// Bytes of all data segments from `at` on.
    fn gather(&mut self, mut at: usize, into: &mut Vec<u8>) -> Result<(), WorkFault> {
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
            let range = wqe::check_data(&data, self.mkeys, self.accessor, Access::LocalRead)?;
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

    /// One packet, with the checksums that were asked for.
    fn packet(&mut self) -> Result<Vec<Vec<u8>>, WorkFault> {
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
        Ok(vec![packet])
    }

    /// A large send: the inline bytes are the headers of every piece.
    fn train(&mut self) -> Result<Vec<Vec<u8>>, WorkFault> {
        let segment = self.ethernet()?;
        let (inline, data_at) = self.inline(&segment)?;
        let header = inline.to_vec();
        let mut payload = Vec::new();
        self.gather(data_at, &mut payload)?;
        segment::segments(&header, &payload, segment.mss().into()).map_err(|_| wqe::OFFLOAD)
    }
}

/// Puts the VLAN tag in that the segment asks for.
fn insert_tag(segment: &EthernetSegment, packet: &mut Vec<u8>) -> Result<(), WorkFault> {
    let insert = segment.inline_size();
    if insert & ethernet_insert::VLAN == 0 {
        return Ok(());
    }
    if packet.len() < ETHERNET {
        return Err(wqe::OFFLOAD);
    }
    let service = insert & ethernet_insert::SERVICE_TAG != 0;
    let [a, b] = if service { SERVICE_TAG } else { CUSTOMER_TAG }.to_be_bytes();
    let [c, d] = segment.inline_start().to_be_bytes();
    packet.splice(12..12, [a, b, c, d]);
    Ok(())
}

impl Ethernet {
    /// Puts a queue at the end of the turn, unless it waits already.
    fn wake(&mut self, number: u32) {
        if let Some(queue) = self.send_queues.get_mut(number).filter(|queue| !queue.ready) {
            queue.ready = true;
            self.ready.push_back(number);
        }
    }
}

impl Nic {
    /// A doorbell of a send queue.
    pub(in crate::nic) fn ring_ethernet_queue<M: HostMemory>(
        &mut self,
        memory: &mut M,
        page: UarIndex,
        number: Qpn,
    ) {
        let queues = &mut self.ethernet.send_queues;
        let known = queues.get_mut(number.value()).filter(|queue| queue.context.wq().uar_page() == page);
        let Some(queue) = known else {
            self.counters.doorbells_ignored += 1;
            return;
        };
        self.counters.send_doorbells += 1;
        match (queue.ring(memory), queue.context.state()) {
            (Err(fault), queue_state::READY) => self.fail_ethernet_send(memory, number.value(), (0, fault)),
            (Ok(()), queue_state::READY) => self.ethernet.wake(number.value()),
            (Ok(()), queue_state::ERROR) => self.flush_ethernet_sends(memory, number.value()),
            _ => {}
        }
    }

    /// Writes the next packet of Ethernet to `frame`.
    pub(in crate::nic) fn transmit_ethernet<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut Vec<u8>,
    ) -> Option<Transmit> {
        loop {
            let Some(packet) = self.ethernet.outgoing.pop_front() else {
                let number = self.ethernet.ready.pop_front()?;
                self.work_off_ethernet(now, memory, number);
                continue;
            };
            if self.send_packet(now, memory, &packet) {
                frame.clear();
                frame.extend_from_slice(&packet);
                frame.resize(frame.len().max(SHORTEST), 0);
                self.count_sent(frame);
                return Some(Transmit { class: TransmitClass::Request, qpn: Qpn::from_low_bits(0), icrc: 0 });
            }
        }
    }

    /// Counts a packet and loops it back if it is for this very port. Whether it goes to the wire.
    fn send_packet<M: HostMemory>(&mut self, now: Time, memory: &mut M, packet: &[u8]) -> bool {
        let Some(destination) = packet.first_chunk().map(|mac| MacAddress(*mac)) else { return false };
        self.ethernet.traffic.sent.count(destination, packet.len());
        let group = is_multicast(destination);
        let own = destination == self.port.mac() || self.ethernet.lists.unicast.contains(&destination);
        if own || group {
            self.receive_ethernet(now, memory, packet, true);
        }
        !own && self.port.is_up()
    }

    /// One WQE of a send queue; the queue comes again if there are more.
    fn work_off_ethernet<M: HostMemory>(&mut self, now: Time, memory: &mut M, number: u32) {
        let limit = self.config.limits.max_send_wqe;
        let Some(queue) = self.ethernet.send_queues.get_mut(number) else { return };
        queue.ready = false;
        if !queue.is_ready() || queue.pending() == 0 {
            return;
        }
        match queue.fetch(memory, &self.mkeys, limit) {
            Ok(work) => {
                self.counters.wqes += 1;
                self.end_ethernet_send(now, memory, number, &work);
                self.ethernet.outgoing.extend(work.packets);
                self.ethernet.wake(number);
            }
            Err(fault) => self.fail_ethernet_send(memory, number, fault),
        }
    }

    fn end_ethernet_send<M: HostMemory>(&mut self, now: Time, memory: &mut M, number: u32, work: &Work) {
        let Some(queue) = self.ethernet.send_queues.get(number).filter(|_| work.signalled) else { return };
        let mut entry = CompletionEntry::new();
        entry.set_user_index(queue.context.user_index()).set_timestamp(now.as_nanos());
        entry.set_send_opcode(work.opcode).set_qpn(queue.number).set_wqe_counter(work.index);
        entry.set_opcode(CqeOpcode::Requester);
        self.completions.post(memory, &mut self.events, queue.context.cqn(), &mut entry, work.event);
    }

    /// The WQE that would be next cannot be executed: the queue stops.
    fn fail_ethernet_send<M: HostMemory>(
        &mut self,
        memory: &mut M,
        number: u32,
        (opcode, fault): (u8, WorkFault),
    ) {
        let Some(queue) = self.ethernet.send_queues.get_mut(number) else { return };
        let index = queue.fetched;
        queue.context.set_state(queue_state::ERROR);
        queue.skip(memory);
        self.post_ethernet_send_error(memory, number, (index, opcode), fault);
        self.flush_ethernet_sends(memory, number);
    }

    /// Ends what is posted to a queue that stopped, if it was created so.
    pub(in crate::nic) fn flush_ethernet_sends<M: HostMemory>(&mut self, memory: &mut M, number: u32) {
        while let Some(queue) = self.ethernet.send_queues.get_mut(number) {
            if !queue.context.flush_in_error_en() {
                return;
            }
            let Some(which) = queue.skip(memory) else { return };
            self.post_ethernet_send_error(memory, number, which, wqe::FLUSHED);
        }
    }

    fn post_ethernet_send_error<M: HostMemory>(
        &mut self,
        memory: &mut M,
        number: u32,
        (index, opcode): (u16, u8),
        fault: WorkFault,
    ) {
        let Some(queue) = self.ethernet.send_queues.get(number) else { return };
        let mut entry = ErrorEntry::new();
        entry.set_user_index(queue.context.user_index());
        entry.set_vendor_syndrome(fault.vendor).set_syndrome(fault.syndrome).set_send_opcode(opcode);
        entry.set_qpn(queue.number).set_wqe_counter(index).set_opcode(CqeOpcode::RequesterError);
        let mut entry = zerocopy::transmute!(entry);
        self.completions.post(memory, &mut self.events, queue.context.cqn(), &mut entry, true);
    }
}

//! A send work queue of a queue pair or of Ethernet: its basic blocks, posted and fetched counters, and batched reading
//! of WQEs (PRM, work queues).

use super::buffer::PagedBuffer;
use super::doorbell_record::DoorbellRecord;
use super::memory::{DmaFault, HostMemory};
use super::mkey::MkeyTable;
use super::observer::WorkName;
use super::wqe::{self, Piece, PieceList, RingPlace, WorkFault};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{BASIC_BLOCK, ControlSegment, SEGMENT, completion_mode};
use zerocopy::FromBytes;

/// Blocks read from the ring at once; enough for a batch of 32 WQEs of two blocks.
const FETCH_BLOCKS: usize = 64;

/// The name of a send WQE in completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WqeName {
    /// Counter of its first block.
    pub(crate) index: u16,
    /// Its opcode.
    pub(crate) opcode: u8,
}

impl From<WqeName> for WorkName {
    fn from(name: WqeName) -> Self {
        Self { index: name.index, opcode: WqeOpcode::from_raw(name.opcode) }
    }
}

/// A WQE that cannot be executed, with its opcode if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RefusedWqe {
    pub(crate) opcode: u8,
    pub(crate) fault: WorkFault,
}

/// Which completion a WQE requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompletionRequest {
    /// Whether it writes a CQE when it succeeds.
    pub(crate) signalled: bool,
    /// Whether that CQE triggers a completion queue armed for solicited events.
    pub(crate) event: bool,
}

impl CompletionRequest {
    #[inline]
    pub(crate) fn of(control: &ControlSegment) -> Self {
        let mode = control.completion_mode();
        let event = mode == completion_mode::ALWAYS_AND_EVENT;
        Self { signalled: mode == completion_mode::ALWAYS || event, event }
    }
}

/// The next WQE of a queue. It was read, and its control segment was checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextWqe {
    pub(crate) control: ControlSegment,
    /// Bytes of all its segments.
    length: usize,
}

impl NextWqe {
    /// The same WQE, refused because of a fault.
    pub(crate) fn refused(&self, fault: WorkFault) -> RefusedWqe {
        RefusedWqe { opcode: self.control.opcode().raw(), fault }
    }

    /// Basic blocks that it occupies.
    pub(crate) const fn blocks(&self) -> u16 {
        self.length.div_ceil(BASIC_BLOCK) as u16
    }
}

/// A work queue of sends.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    buffer: PagedBuffer,
    /// Offset of the ring in the buffer.
    base: u64,
    record: DoorbellRecord,
    /// Bytes of the ring, a power of two; 0 without a send queue.
    ring: u32,
    posted: u16,
    fetched: u16,
    /// Blocks read ahead: `ahead_from` is the counter of the first.
    ahead: Vec<u8>,
    ahead_from: u16,
}

impl WorkQueue {
    /// A queue of `1 << log_blocks` basic blocks, or none at all.
    pub(crate) const fn new(
        buffer: PagedBuffer,
        base: u64,
        record: DoorbellRecord,
        log_blocks: Option<u8>,
    ) -> Self {
        let ring = match log_blocks {
            Some(log) => (BASIC_BLOCK as u32) << log,
            None => 0,
        };
        Self { buffer, base, record, ring, posted: 0, fetched: 0, ahead: Vec::new(), ahead_from: 0 }
    }

    pub(crate) const fn posted(&self) -> u16 {
        self.posted
    }

    pub(crate) const fn fetched(&self) -> u16 {
        self.fetched
    }

    pub(crate) fn reset(&mut self) {
        self.posted = 0;
        self.fetched = 0;
        self.ahead.clear();
    }

    /// Blocks posted and not fetched.
    pub(crate) const fn pending(&self) -> u16 {
        self.posted.wrapping_sub(self.fetched)
    }

    /// Bytes of the ring, a power of two; 0 without a send queue.
    pub(crate) const fn bytes(&self) -> u32 {
        self.ring
    }

    fn holds_pending(&self) -> bool {
        u32::from(self.pending()) * BASIC_BLOCK as u32 <= self.bytes()
    }

    /// Offset of the next WQE in the ring.
    fn next_offset(&self) -> u32 {
        (u32::from(self.fetched) * BASIC_BLOCK as u32) & self.bytes().saturating_sub(1)
    }

    /// Where the next WQE is in the ring.
    pub(crate) fn place(&self) -> RingPlace {
        RingPlace { ring: self.bytes(), at: self.next_offset() }
    }

    /// Blocks were fetched.
    pub(crate) const fn advance(&mut self, blocks: u16) {
        self.fetched = self.fetched.wrapping_add(blocks);
    }

    /// Handles a doorbell: reads how many blocks are posted.
    pub(crate) fn read_record<M: HostMemory>(
        &mut self,
        memory: &mut M,
        strict: bool,
    ) -> Result<(), WorkFault> {
        if self.ring == 0 {
            return Ok(());
        }
        let posted = self.record.read_sends(memory).map_err(|_| wqe::FETCH)?;
        self.posted = posted.counter;
        if !self.holds_pending() {
            Err(wqe::COUNTER)
        } else if strict && !posted.reserved_clear {
            Err(wqe::RESERVED)
        } else {
            Ok(())
        }
    }

    /// Reads the next posted WQE of queue `number` and checks its control segment. It remains the next one
    /// until [`Self::advance`].
    #[inline(always)] // One caller for RDMA, one for Ethernet.
    pub(crate) fn read_next<M: HostMemory>(
        &mut self,
        memory: &mut M,
        number: Qpn,
        limit: u16,
    ) -> Result<NextWqe, RefusedWqe> {
        let unread = |_: DmaFault| RefusedWqe { opcode: 0, fault: wqe::FETCH };
        self.read_ahead(memory, 1).map_err(unread)?;
        let (control, _) = ControlSegment::read_from_prefix(self.next_bytes()).unwrap_or_default();
        let length = wqe::check_control(&control, number, self.fetched, self.pending(), limit);
        let length = length.map_err(|fault| RefusedWqe { opcode: control.opcode().raw(), fault })?;
        let next = NextWqe { control, length };
        self.read_ahead(memory, next.blocks()).map_err(|_| next.refused(wqe::FETCH))?;
        Ok(next)
    }

    /// The segments of the next WQE; empty if it is not the one that was read.
    #[inline]
    pub(crate) fn segments(&self, next: &NextWqe) -> &[u8] {
        self.next_bytes().get(..next.length).unwrap_or_default()
    }

    /// The read-ahead bytes from the next WQE on.
    #[inline]
    fn next_bytes(&self) -> &[u8] {
        self.ahead.get(self.ahead_offset()..).unwrap_or_default()
    }

    /// Offset of the next WQE in the read-ahead bytes.
    #[inline]
    fn ahead_offset(&self) -> usize {
        usize::from(self.fetched.wrapping_sub(self.ahead_from)) * BASIC_BLOCK
    }

    /// Ensures that `blocks` blocks from the next WQE on are read. Blocks are read at most once and many at a
    /// time.
    #[inline]
    fn read_ahead<M: HostMemory>(&mut self, memory: &mut M, blocks: u16) -> Result<(), DmaFault> {
        let have = self.next_bytes().len() / BASIC_BLOCK;
        if have >= usize::from(blocks) { Ok(()) } else { self.read_batch(memory, blocks) }
    }

    fn read_batch<M: HostMemory>(&mut self, memory: &mut M, blocks: u16) -> Result<(), DmaFault> {
        let count = usize::from(self.pending()).min(FETCH_BLOCKS).max(usize::from(blocks));
        let mut ahead = core::mem::take(&mut self.ahead);
        ahead.resize(count * BASIC_BLOCK, 0);
        let read = self.read(memory, self.next_offset(), &mut ahead);
        if read.is_err() {
            ahead.clear();
        }
        self.ahead = ahead;
        self.ahead_from = self.fetched;
        read
    }

    /// Reads from an offset of the ring, across its end if necessary. Called only if there is a ring.
    pub(crate) fn read<M: HostMemory + ?Sized>(
        &self,
        memory: &mut M,
        offset: u32,
        bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        let ring = self.bytes();
        let mut at = offset & ring.saturating_sub(1);
        let mut rest = bytes;
        while !rest.is_empty() {
            let take = rest.len().min((ring - at) as usize);
            let (now, later) = rest.split_at_mut(take);
            self.buffer.read(memory, self.base + u64::from(at), now)?;
            rest = later;
            at = 0;
        }
        Ok(())
    }

    /// Reads payload from the local buffer of a WQE of this queue.
    pub(crate) fn gather<M: HostMemory>(
        &self,
        memory: &mut M,
        mkeys: &MkeyTable,
        pieces: &PieceList,
        offset: u32,
        mut bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        let missing = DmaFault { iova: 0, length: bytes.len(), write: false };
        for (piece, start, take) in pieces.cover(offset.into(), bytes.len()) {
            let (now, rest) = bytes.split_at_mut(take);
            match piece {
                Piece::Memory(range) => mkeys.read(memory, range, start, now)?,
                Piece::Inline { offset, .. } => self.read(memory, offset.wrapping_add(start as u32), now)?,
            }
            bytes = rest;
        }
        if bytes.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// Takes the next posted WQE without reading all of it, for flushing. A WQE with an invalid size ends the
    /// flush, because the start of the next one is unknown.
    pub(crate) fn skip<M: HostMemory + ?Sized>(&mut self, memory: &mut M) -> Option<WqeName> {
        // Counters wrap, so after a flush the read-ahead could match a different WQE. Discard it.
        if !mutated("stale_read_ahead") {
            self.ahead.clear();
        }
        if self.pending() == 0 || !self.holds_pending() {
            self.fetched = self.posted;
            return None;
        }
        let mut head = [0; ControlSegment::SIZE];
        let known = self.read(memory, self.next_offset(), &mut head).is_ok();
        let control = ControlSegment::read_from_bytes(&head).unwrap_or_default();
        let blocks = (u16::from(control.ds()) * SEGMENT as u16).div_ceil(BASIC_BLOCK as u16);
        let name = WqeName { index: self.fetched, opcode: control.opcode().raw() };
        let sane = known && blocks != 0 && blocks <= self.pending();
        self.fetched = if sane { self.fetched.wrapping_add(blocks) } else { self.posted };
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::page_list::PageBudget;
    use crate::nic::user_memory::PageRun;
    use bareverbs_prm::doorbell::QueuePairRecord;
    use bareverbs_prm::numbering::WqeOpcode;
    use zerocopy::IntoBytes;

    const LOG_BLOCKS: u8 = 6;
    const BLOCKS: u16 = 1 << LOG_BLOCKS;
    const RECORD: u64 = 0x10_0000;
    const NUMBER: Qpn = Qpn::from_low_bits(0x40);
    const LIMIT: u16 = 1024;

    /// A ring at address 0 and its doorbell record.
    struct Host {
        ring: Vec<u8>,
        posted: u16,
    }

    impl HostMemory for Host {
        fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
            if iova >= RECORD {
                let mut record = QueuePairRecord::new();
                record.set_send_counter(self.posted);
                buffer.copy_from_slice(&record.as_bytes()[(iova - RECORD) as usize..][..buffer.len()]);
            } else {
                buffer.copy_from_slice(&self.ring[iova as usize..][..buffer.len()]);
            }
            Ok(())
        }

        fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
            Err(DmaFault { iova, length: bytes.len(), write: true })
        }
    }

    impl Host {
        /// A WQE of one block.
        fn post(&mut self, opcode: WqeOpcode) {
            let mut control = ControlSegment::new();
            control.set_opcode(opcode).set_wqe_index(self.posted).set_qpn(NUMBER).set_ds(1);
            let at = usize::from(self.posted % BLOCKS) * BASIC_BLOCK;
            self.ring[at..at + ControlSegment::SIZE].copy_from_slice(control.as_bytes());
            self.posted = self.posted.wrapping_add(1);
        }
    }

    fn queue() -> (Host, WorkQueue) {
        let length = usize::from(BLOCKS) * BASIC_BLOCK;
        let pages: Vec<u64> = (0..length as u64).step_by(4096).collect();
        let run = PageRun { pages, log_page: 12, lead: 0 };
        let buffer = PagedBuffer::new(&PageBudget::default(), run, length as u64).unwrap();
        let queue = WorkQueue::new(buffer, 0, DoorbellRecord::at(RECORD), Some(LOG_BLOCKS));
        (Host { ring: vec![0; length], posted: 0 }, queue)
    }

    #[test]
    fn a_batch_is_read_at_once() {
        let (mut host, mut queue) = queue();
        (0..3).for_each(|_| host.post(WqeOpcode::Nop));
        queue.read_record(&mut host, true).unwrap();
        assert!(queue.read_next(&mut host, NUMBER, LIMIT).is_ok());
        queue.advance(1);
        host.ring.fill(0xff);
        let next =
            queue.read_next(&mut host, NUMBER, LIMIT).expect("it was read together with the first one");
        assert_eq!((next.control.wqe_index(), queue.segments(&next).len()), (1, ControlSegment::SIZE));
        assert_eq!(queue.pending(), 2);
    }

    /// Counters have 16 bits. After 65,536 blocks are flushed unread, the next WQE has the same counter as
    /// one that was read long ago.
    #[test]
    fn entries_read_ahead_are_read_again_after_a_flush() {
        let (mut host, mut queue) = queue();
        (0..2).for_each(|_| host.post(WqeOpcode::Nop));
        queue.read_record(&mut host, false).unwrap();
        assert!(queue.read_next(&mut host, NUMBER, LIMIT).is_ok());
        queue.advance(1);
        let mut flushed = 0;
        while flushed <= u32::from(u16::MAX) {
            if queue.pending() == 0 {
                host.post(WqeOpcode::Nop);
                queue.read_record(&mut host, false).unwrap();
            }
            assert_eq!(queue.skip(&mut host).map(|name| name.index), Some(1u16.wrapping_add(flushed as u16)));
            flushed += 1;
        }
        host.post(WqeOpcode::Send);
        queue.read_record(&mut host, false).unwrap();
        let next = queue.read_next(&mut host, NUMBER, LIMIT).unwrap();
        assert_eq!((next.control.wqe_index(), next.control.opcode()), (1, WqeOpcode::Send));
    }
}

//! The receive queue engine. Receives have no doorbell register: the device reads the doorbell record when a
//! message needs a receive.

use super::buffer::PagedBuffer;
use super::doorbell_record::DoorbellRecord;
use super::mkey::{Access, Accessor, MkeyTable};
use super::send_queue::write_pieces;
use super::wqe::{self, Piece, PieceList, WorkFault};
use super::{DmaFault, HostMemory, strict};
use bareverbs_prm::field::Layout;
use bareverbs_prm::wqe::{DataSegment, INVALID_LKEY, SEGMENT, SharedReceiveSegment};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the longest receive WQE.
const MAX_STRIDE: usize = 1 << 11;

/// The layout of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceiveGeometry {
    pub(crate) log_size: u8,
    pub(crate) log_stride: u8,
}

impl ReceiveGeometry {
    /// Bytes of the queue.
    pub(crate) const fn bytes(self) -> u64 {
        1 << (self.log_size + self.log_stride)
    }
}

/// A receive taken from a queue, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchedReceive {
    /// A receive: its counter and the bytes of its scatter list.
    Receive { index: u16, capacity: u64 },
    /// None is posted.
    Empty,
    /// The queue is broken.
    Broken(WorkFault),
}

/// The scatter list of the receive that a queue pair took last.
#[derive(Debug, Default)]
pub(crate) struct ScatterList {
    pieces: PieceList,
    /// The fault of the first refused segment, if any. It takes effect when a write reaches that segment.
    refused: Option<(u64, WorkFault)>,
}

/// With which keys and rights a receive is read, and under which rules.
#[derive(Clone, Copy)]
pub(crate) struct ReceiveAccess<'a> {
    pub(crate) mkeys: &'a MkeyTable,
    pub(crate) accessor: Accessor,
    pub(crate) strict: bool,
}

/// A receive queue. One that belongs to a queue pair is consumed in order; a shared one is a linked list of
/// entries.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    geometry: ReceiveGeometry,
    buffer: PagedBuffer,
    record: DoorbellRecord,
    /// Receives taken out, modulo 2^16.
    taken: u16,
    /// Receives posted, as last read from the record.
    posted: u16,
    /// In a linked list, the next entry.
    next: Option<u16>,
}

impl ReceiveQueue {
    pub(crate) fn new(buffer: PagedBuffer, geometry: ReceiveGeometry, record: DoorbellRecord) -> Self {
        Self { geometry, buffer, record, taken: 0, posted: 0, next: None }
    }

    /// A shared queue. Its first entry is 0.
    pub(crate) fn shared(buffer: PagedBuffer, geometry: ReceiveGeometry, record: DoorbellRecord) -> Self {
        Self { next: Some(0), ..Self::new(buffer, geometry, record) }
    }

    /// Receives that are posted and not taken, read from the record now.
    pub(crate) fn available<M: HostMemory + ?Sized>(&mut self, memory: &mut M) -> u16 {
        // A record that cannot be read or is inconsistent is reported when the next receive is taken.
        let _ = self.read_record(memory, false);
        self.posted.wrapping_sub(self.taken)
    }

    /// Bytes of the queue.
    pub(crate) const fn bytes(&self) -> u64 {
        self.geometry.bytes()
    }

    pub(crate) const fn taken(&self) -> u16 {
        self.taken
    }

    pub(crate) const fn posted(&self) -> u16 {
        self.posted
    }

    pub(crate) fn reset(&mut self) {
        self.taken = 0;
        self.posted = 0;
        self.next = self.next.map(|_| 0);
    }

    /// Reads how many receives are posted, but only once all known ones are taken.
    fn look<M: HostMemory + ?Sized>(&mut self, memory: &mut M, strict: bool) -> Result<(), WorkFault> {
        if self.posted == self.taken { self.read_record(memory, strict) } else { Ok(()) }
    }

    fn read_record<M: HostMemory + ?Sized>(&mut self, memory: &mut M, strict: bool) -> Result<(), WorkFault> {
        let posted = self.record.read_receives(memory).map_err(|_| wqe::FETCH)?;
        if strict && !posted.reserved_clear {
            return Err(wqe::RESERVED);
        }
        if u32::from(posted.counter.wrapping_sub(self.taken)) > 1 << self.geometry.log_size {
            return Err(wqe::COUNTER);
        }
        self.posted = posted.counter;
        Ok(())
    }

    /// Takes the next receive.
    pub(crate) fn take<M: HostMemory>(
        &mut self,
        memory: &mut M,
        access: ReceiveAccess<'_>,
        scatter: &mut ScatterList,
    ) -> FetchedReceive {
        if let Err(fault) = self.look(memory, access.strict) {
            return FetchedReceive::Broken(fault);
        }
        if self.posted == self.taken {
            return FetchedReceive::Empty;
        }
        let mut bytes = [0; MAX_STRIDE];
        let stride = 1usize << self.geometry.log_stride;
        let bytes = &mut bytes[..stride];
        let index = self.next.unwrap_or(self.taken);
        let mask = (1u64 << self.geometry.log_size) - 1;
        let at = (u64::from(index) & mask) << self.geometry.log_stride;
        if self.buffer.read(memory, at, bytes).is_err() {
            return FetchedReceive::Broken(wqe::FETCH);
        }
        let segments = if self.next.is_some() { bytes.get(SEGMENT..).unwrap_or_default() } else { &*bytes };
        if let Err(fault) = scatter.parse(segments, access) {
            return FetchedReceive::Broken(fault);
        }
        self.advance(bytes);
        FetchedReceive::Receive { index, capacity: scatter.capacity() }
    }

    /// Moves past a taken receive. An entry of a linked list begins with the number of the next one.
    fn advance(&mut self, entry: &[u8]) {
        self.taken = self.taken.wrapping_add(1);
        let link = SharedReceiveSegment::ref_from_prefix(entry);
        if let (Some(next), Ok((link, _))) = (&mut self.next, link) {
            *next = link.next_wqe_index();
        }
    }

    /// Takes the next posted receive without reading it, for flushing, and returns its counter.
    pub(crate) fn skip<M: HostMemory + ?Sized>(&mut self, memory: &mut M) -> Option<u16> {
        self.look(memory, false).ok()?;
        if self.posted == self.taken {
            return None;
        }
        let index = self.next.unwrap_or(self.taken);
        let mut link = [0; SharedReceiveSegment::SIZE];
        let mask = (1u64 << self.geometry.log_size) - 1;
        if self.next.is_some() {
            self.buffer
                .read(memory, (u64::from(index) & mask) << self.geometry.log_stride, &mut link)
                .ok()?;
        }
        self.advance(&link);
        Some(index)
    }
}

impl ScatterList {
    fn capacity(&self) -> u64 {
        let refused = self.refused.map_or(0, |(length, _)| length);
        self.pieces.length().saturating_add(refused)
    }

    /// Parses data segments up to the end or the one that terminates the list. After a refused segment only
    /// the lengths count.
    fn parse(&mut self, bytes: &[u8], access: ReceiveAccess<'_>) -> Result<(), WorkFault> {
        let ReceiveAccess { mkeys, accessor, strict } = access;
        self.pieces.clear();
        self.refused = None;
        mkeys.budget().begin_access();
        for segment in bytes.chunks_exact(SEGMENT) {
            let segment = DataSegment::read_from_bytes(segment).map_err(|_| wqe::SEGMENTS)?;
            if segment.lkey() == INVALID_LKEY {
                break;
            }
            if strict && !strict::is_clear(&DataSegment::INFO, segment.as_bytes(), 0..0) {
                return Err(wqe::RESERVED);
            }
            let length = u64::from(wqe::byte_count(&segment));
            match (wqe::check_data(&segment, mkeys, &accessor, Access::LocalWrite), &mut self.refused) {
                (_, Some((total, _))) => *total = total.saturating_add(length),
                (Ok(range), None) => self.pieces.push(Piece::Memory(range)),
                (Err(fault), none) => *none = Some((length, fault)),
            }
        }
        Ok(())
    }

    /// Writes a whole message of `length` bytes, given as pieces with offsets, into the receive that was
    /// taken last.
    pub(crate) fn place<M: HostMemory>(
        &self,
        memory: &mut M,
        mkeys: &MkeyTable,
        length: usize,
        pieces: [(u64, &[u8]); 2],
    ) -> Result<(), WorkFault> {
        if self.capacity() < length as u64 {
            return Err(wqe::RECEIVE);
        }
        for (offset, bytes) in pieces {
            self.write(memory, mkeys, offset, bytes).map_err(|_| wqe::DATA_KEY)?;
        }
        Ok(())
    }

    /// Writes payload into the receive that was taken last.
    pub(crate) fn write<M: HostMemory>(
        &self,
        memory: &mut M,
        mkeys: &MkeyTable,
        offset: u64,
        payload: &[u8],
    ) -> Result<(), DmaFault> {
        write_pieces(memory, mkeys, &self.pieces, offset, payload)
    }
}

//! The receive queue engine: receives have no doorbell register; the record is read when a message wants one.

use super::buffer::PagedBuffer;
use super::mkey::{Access, Accessor, MkeyTable};
use super::queue_pair::ReceiveGeometry;
use super::send_queue::write_pieces;
use super::wqe::{self, Piece, PieceList, WorkFault};
use super::{DmaFault, HostMemory, strict};
use bareverbs_prm::doorbell::QueuePairRecord;
use bareverbs_prm::field::Layout;
use bareverbs_prm::wqe::{DataSegment, INVALID_LKEY, SEGMENT};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the longest receive WQE.
const MAX_STRIDE: usize = 1 << 11;

/// What the next receive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A receive: its counter and the bytes of its scatter list.
    Receive { index: u16, capacity: u64 },
    /// None is posted.
    Empty,
    /// The queue is broken.
    Broken(WorkFault),
}

/// The receive queue of one queue pair.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) geometry: ReceiveGeometry,
    buffer: PagedBuffer,
    record: u64,
    /// Receives taken out, modulo 2^16.
    taken: u16,
    /// Receives posted, as the record last said.
    posted: u16,
    /// Scatter list of the receive that was taken last.
    pieces: PieceList,
    /// What is wrong with that list, if a segment was refused; it matters when the list is written to.
    refused: Option<(u64, WorkFault)>,
}

impl ReceiveQueue {
    pub(crate) fn new(buffer: PagedBuffer, geometry: ReceiveGeometry, record: u64) -> Self {
        Self { geometry, buffer, record, taken: 0, posted: 0, pieces: PieceList::default(), refused: None }
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
        self.pieces.clear();
        self.refused = None;
    }

    /// Reads how many receives are posted, if all that were known are taken.
    fn look<M: HostMemory>(&mut self, memory: &mut M, strict: bool) -> Result<(), WorkFault> {
        if self.posted != self.taken {
            return Ok(());
        }
        let mut word = [0; 4];
        memory.read(self.record, &mut word).map_err(|_| wqe::FETCH)?;
        let mut record = QueuePairRecord::new();
        record.as_mut_bytes()[..4].copy_from_slice(&word);
        if strict && word[..2] != [0, 0] {
            return Err(wqe::RESERVED);
        }
        if u32::from(record.receive_counter().wrapping_sub(self.taken)) > 1 << self.geometry.log_size {
            return Err(wqe::COUNTER);
        }
        self.posted = record.receive_counter();
        Ok(())
    }

    /// Takes the next receive.
    pub(crate) fn take<M: HostMemory>(
        &mut self,
        memory: &mut M,
        mkeys: &MkeyTable,
        accessor: Accessor,
        strict: bool,
    ) -> Taken {
        if let Err(fault) = self.look(memory, strict) {
            return Taken::Broken(fault);
        }
        if self.posted == self.taken {
            return Taken::Empty;
        }
        let mut bytes = [0; MAX_STRIDE];
        let stride = 1usize << self.geometry.log_stride;
        let bytes = &mut bytes[..stride];
        let mask = (1u64 << self.geometry.log_size) - 1;
        let at = (u64::from(self.taken) & mask) << self.geometry.log_stride;
        if self.buffer.read(memory, at, bytes).is_err() {
            return Taken::Broken(wqe::FETCH);
        }
        if let Err(fault) = self.parse(bytes, mkeys, accessor, strict) {
            return Taken::Broken(fault);
        }
        let index = self.taken;
        self.taken = self.taken.wrapping_add(1);
        let refused = self.refused.map_or(0, |(length, _)| length);
        Taken::Receive { index, capacity: self.pieces.length().saturating_add(refused) }
    }

    /// Data segments up to the end or to the one that closes the list. After a refused segment only lengths count.
    fn parse(
        &mut self,
        bytes: &[u8],
        mkeys: &MkeyTable,
        accessor: Accessor,
        strict: bool,
    ) -> Result<(), WorkFault> {
        self.pieces.clear();
        self.refused = None;
        for segment in bytes.chunks_exact(SEGMENT) {
            let segment = DataSegment::read_from_bytes(segment).map_err(|_| wqe::SEGMENTS)?;
            if segment.lkey() == INVALID_LKEY {
                break;
            }
            if strict && !strict::is_clear(&DataSegment::INFO, segment.as_bytes(), 0..0) {
                return Err(wqe::RESERVED);
            }
            let length = u64::from(wqe::byte_count(&segment));
            match (wqe::check_data(&segment, mkeys, accessor, Access::LocalWrite), &mut self.refused) {
                (_, Some((total, _))) => *total = total.saturating_add(length),
                (Ok(range), None) => self.pieces.push(Piece::Memory(range)),
                (Err(fault), none) => *none = Some((length, fault)),
            }
        }
        Ok(())
    }

    /// Writes payload into the receive that was taken last.
    pub(crate) fn scatter<M: HostMemory>(
        &self,
        memory: &mut M,
        mkeys: &MkeyTable,
        offset: u64,
        payload: &[u8],
    ) -> Result<(), DmaFault> {
        write_pieces(memory, mkeys, &self.pieces, offset, payload)
    }

    /// Counter of the next posted receive, which is taken out unread, for flushing.
    pub(crate) fn skip<M: HostMemory>(&mut self, memory: &mut M) -> Option<u16> {
        self.look(memory, false).ok()?;
        if self.posted == self.taken {
            return None;
        }
        let index = self.taken;
        self.taken = self.taken.wrapping_add(1);
        Some(index)
    }
}

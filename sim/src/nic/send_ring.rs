//! The ring of a send queue, of a queue pair or of Ethernet: where its basic blocks lie, how many are posted and how many fetched.

use super::buffer::PagedBuffer;
use super::memory::{DmaFault, HostMemory};
use super::user_memory::Record;
use super::wqe::{self, WorkFault};
use bareverbs_prm::doorbell::QueuePairRecord;
use bareverbs_prm::wqe::{BASIC_BLOCK, ControlSegment, SEGMENT};
use zerocopy::{FromBytes, IntoBytes};

/// Half of the doorbell record that counts sends.
const RECORD_SEND: u64 = 4;

/// How a completion names a send WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WqeName {
    /// Counter of its first block.
    pub(crate) index: u16,
    /// Its opcode.
    pub(crate) opcode: u8,
}

/// The ring of a send queue.
#[derive(Debug)]
pub(crate) struct SendRing {
    buffer: PagedBuffer,
    /// Offset of the ring in the buffer.
    base: u64,
    record: Record,
    /// `None` without a send queue.
    log_blocks: Option<u8>,
    posted: u16,
    fetched: u16,
}

impl SendRing {
    pub(crate) const fn new(buffer: PagedBuffer, base: u64, record: Record, log_blocks: Option<u8>) -> Self {
        Self { buffer, base, record, log_blocks, posted: 0, fetched: 0 }
    }

    pub(crate) const fn posted(&self) -> u16 {
        self.posted
    }

    pub(crate) const fn fetched(&self) -> u16 {
        self.fetched
    }

    pub(crate) const fn reset(&mut self) {
        self.posted = 0;
        self.fetched = 0;
    }

    /// Blocks posted and not fetched.
    pub(crate) const fn pending(&self) -> u16 {
        self.posted.wrapping_sub(self.fetched)
    }

    /// Bytes of the ring, a power of two; 0 without a send queue.
    pub(crate) fn bytes(&self) -> u32 {
        self.log_blocks.map_or(0, |log| (BASIC_BLOCK as u32) << log)
    }

    fn holds_pending(&self) -> bool {
        u32::from(self.pending()) * BASIC_BLOCK as u32 <= self.bytes()
    }

    /// Offset in the ring of the WQE to be fetched.
    pub(crate) fn next_offset(&self) -> u32 {
        (u32::from(self.fetched) * BASIC_BLOCK as u32) & self.bytes().saturating_sub(1)
    }

    /// Blocks were fetched.
    pub(crate) const fn advance(&mut self, blocks: u16) {
        self.fetched = self.fetched.wrapping_add(blocks);
    }

    /// The doorbell was rung: reads how many blocks are posted.
    pub(crate) fn read_record<M: HostMemory>(
        &mut self,
        memory: &mut M,
        strict: bool,
    ) -> Result<(), WorkFault> {
        if self.log_blocks.is_none() {
            return Ok(());
        }
        let mut word = [0; 4];
        let address = self.record.address.wrapping_add(RECORD_SEND);
        memory.read(address, &mut word).map_err(|_| wqe::FETCH)?;
        let mut both = QueuePairRecord::new();
        both.as_mut_bytes()[RECORD_SEND as usize..].copy_from_slice(&word);
        self.posted = both.send_counter();
        if !self.holds_pending() {
            Err(wqe::COUNTER)
        } else if strict && word[..2] != [0, 0] {
            Err(wqe::RESERVED)
        } else {
            Ok(())
        }
    }

    /// Reads from an offset of the ring on, around its end. Only a ring that exists is ever read.
    pub(crate) fn read<M: HostMemory>(
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

    /// The next posted WQE, which is taken out unread, for flushing. A WQE whose size is nonsense ends the walk: nobody can say
    /// where the next one begins.
    pub(crate) fn skip<M: HostMemory>(&mut self, memory: &mut M) -> Option<WqeName> {
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

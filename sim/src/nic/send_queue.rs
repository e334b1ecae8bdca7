//! The send queue engine: doorbell counters, fetching WQEs, remembering them until their CQE (contract §5.5 and §5.8).

use super::DmaFault;
use super::HostMemory;
use super::buffer::PagedBuffer;
use super::mkey::{KeyUpdate, MkeyTable};
use super::wqe::{self, Piece, PieceList, Work, WorkFault, WqeRules};
use bareverbs_prm::doorbell::QueuePairRecord;
use bareverbs_prm::wqe::{BASIC_BLOCK, ControlSegment, completion_mode, fence_mode};
use std::collections::VecDeque;
use zerocopy::{FromBytes, IntoBytes};

/// WQEs that are taken from the ring before their completion; more wait in the ring.
const WINDOW: usize = 512;
/// Blocks read from the ring in one go; enough for a batch of 32 WQEs of two blocks.
const FETCH_BLOCKS: usize = 64;
/// Half of the doorbell record that counts sends.
const RECORD_SEND: u64 = 4;

/// A WQE that was taken from the ring.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Counter of its first block.
    pub(crate) index: u16,
    /// Its opcode, as the CQE repeats it.
    pub(crate) opcode: u8,
    /// Whether it writes a CQE when it succeeds.
    pub(crate) signalled: bool,
    /// Whether its CQE satisfies an arming for solicited completions.
    pub(crate) event: bool,
    /// Whether it is with the requester; a NOP is not.
    pub(crate) submitted: bool,
    /// Its local buffer.
    pub(crate) pieces: PieceList,
}

/// A WQE that cannot be executed; it fails when everything before it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) index: u16,
    pub(crate) opcode: u8,
    pub(crate) fault: WorkFault,
}

/// What a fetch brought.
pub(crate) enum Fetched {
    /// A message for the requester.
    Request(crate::transport::Request),
    /// A datagram, by the token of its WQE.
    Datagram { token: u64, envelope: wqe::Envelope, solicited: bool },
    /// A change of a memory key. It stays the next WQE until [`SendQueue::end_update`] or [`SendQueue::hold_update`].
    KeyUpdate(PendingUpdate),
    /// A NOP, which only takes its place in the order.
    Nop,
    /// Nothing more at present.
    Nothing,
}

/// A change of a memory key that is fetched and not done.
#[derive(Clone, Copy)]
pub(crate) struct PendingUpdate {
    /// Of its WQE, by which its translation entries are gathered.
    pub(crate) token: u64,
    pub(crate) update: KeyUpdate,
    pub(crate) control: ControlSegment,
    blocks: u16,
}

/// What fetching needs of the device.
pub(crate) struct FetchContext<'a> {
    pub(crate) mkeys: &'a MkeyTable,
    pub(crate) accessor: super::mkey::Accessor,
    pub(crate) log_max_message: u8,
    pub(crate) max_wqe: u16,
    pub(crate) strom: bool,
    pub(crate) strict: bool,
    pub(crate) format: wqe::Format,
    pub(crate) names_queue: bool,
}

/// The send queue of one queue pair.
#[derive(Debug)]
pub(crate) struct SendQueue {
    buffer: PagedBuffer,
    base: u64,
    /// `None` without a send queue.
    log_blocks: Option<u8>,
    posted: u16,
    fetched: u16,
    slots: VecDeque<Slot>,
    /// Token of the first slot; tokens count WQEs.
    first_token: u64,
    pub(crate) stopped: Option<Stopped>,
    /// Fence mode of the change of a memory key that waits for what was posted before it.
    pub(crate) held: Option<u8>,
    /// The WQE before the next one changed a memory key.
    behind_update: bool,
    /// Blocks read ahead: `ahead_from` is the counter of the first.
    ahead: Vec<u8>,
    ahead_from: u16,
}

impl SendQueue {
    pub(crate) const fn new(buffer: PagedBuffer, base: u64, log_blocks: Option<u8>) -> Self {
        Self {
            buffer,
            base,
            log_blocks,
            posted: 0,
            fetched: 0,
            slots: VecDeque::new(),
            first_token: 0,
            stopped: None,
            held: None,
            behind_update: false,
            ahead: Vec::new(),
            ahead_from: 0,
        }
    }

    pub(crate) const fn posted(&self) -> u16 {
        self.posted
    }

    pub(crate) const fn fetched(&self) -> u16 {
        self.fetched
    }

    /// Counters from zero, nothing remembered. Tokens go on, so that no old token names a new WQE.
    pub(crate) fn reset(&mut self) {
        self.first_token += self.slots.len() as u64;
        self.slots.clear();
        self.posted = 0;
        self.fetched = 0;
        self.stopped = None;
        self.held = None;
        self.behind_update = false;
        self.ahead.clear();
    }

    fn blocks(&self) -> u32 {
        self.log_blocks.map_or(0, |log| 1 << log)
    }

    /// Reads the doorbell record. A counter beyond the size of the queue stops it.
    pub(crate) fn ring<M: HostMemory>(
        &mut self,
        memory: &mut M,
        record: u64,
        strict: bool,
    ) -> Result<(), DmaFault> {
        if self.log_blocks.is_none() {
            return Ok(());
        }
        let mut word = [0; 4];
        memory.read(record.wrapping_add(RECORD_SEND), &mut word)?;
        let mut both = QueuePairRecord::new();
        both.as_mut_bytes()[RECORD_SEND as usize..].copy_from_slice(&word);
        self.posted = both.send_counter();
        if u32::from(self.pending_blocks()) > self.blocks() {
            self.stop(0, wqe::COUNTER);
        } else if strict && word[..2] != [0, 0] {
            self.stop(0, wqe::RESERVED);
        }
        Ok(())
    }

    /// Blocks posted and not fetched.
    pub(crate) const fn pending_blocks(&self) -> u16 {
        self.posted.wrapping_sub(self.fetched)
    }

    /// Whether [`Self::fetch`] may bring something.
    pub(crate) fn wants_fetch(&self) -> bool {
        self.pending_blocks() != 0 && self.stopped.is_none() && self.slots.len() < WINDOW
    }

    /// Stops the queue at the WQE that would be fetched next.
    pub(crate) fn stop(&mut self, opcode: u8, fault: WorkFault) {
        if self.stopped.is_none() {
            self.stopped = Some(Stopped { index: self.fetched, opcode, fault });
        }
    }

    /// Takes the next WQE out of the ring, if there is one and the window has room.
    pub(crate) fn fetch<M: HostMemory>(&mut self, memory: &mut M, context: &FetchContext<'_>) -> Fetched {
        if !self.wants_fetch() {
            return Fetched::Nothing;
        }
        let Ok(()) = self.read_ahead(memory, 1) else { return self.refuse(0, wqe::FETCH) };
        let control = self.control();
        let checked = wqe::check_control(
            &control,
            context.accessor.qpn,
            self.fetched,
            self.pending_blocks(),
            context.max_wqe,
        );
        let length = match checked {
            Ok(length) => length,
            Err(fault) => return self.refuse(control.opcode().raw(), fault),
        };
        let blocks = length.div_ceil(BASIC_BLOCK) as u16;
        let Ok(()) = self.read_ahead(memory, blocks) else { return self.refuse(0, wqe::FETCH) };
        if context.strict && self.behind_update && !is_fenced(&control) {
            return self.refuse(control.opcode().raw(), wqe::UNFENCED);
        }
        match self.parse(&control, length, context) {
            Ok(Work::KeyUpdate(update)) => {
                let token = self.first_token + self.slots.len() as u64 - 1;
                Fetched::KeyUpdate(PendingUpdate { token, update, control, blocks })
            }
            Ok(work) => self.accept(&control, work, blocks),
            Err(fault) => {
                self.slots.pop_back();
                self.refuse(control.opcode().raw(), fault)
            }
        }
    }

    fn refuse(&mut self, opcode: u8, fault: WorkFault) -> Fetched {
        self.stop(opcode, fault);
        Fetched::Nothing
    }

    /// Offset in the read-ahead bytes of the WQE to be fetched.
    fn ahead_offset(&self) -> usize {
        usize::from(self.fetched.wrapping_sub(self.ahead_from)) * BASIC_BLOCK
    }

    fn control(&self) -> ControlSegment {
        let bytes = self.ahead.get(self.ahead_offset()..).unwrap_or(&[]);
        ControlSegment::read_from_prefix(bytes).map(|(control, _)| control).unwrap_or_default()
    }

    /// Parses a WQE into a new slot at the end.
    fn parse(
        &mut self,
        control: &ControlSegment,
        length: usize,
        context: &FetchContext<'_>,
    ) -> Result<Work, WorkFault> {
        let (start, ring) = (self.ahead_offset(), self.blocks() * BASIC_BLOCK as u32);
        self.slots.push_back(Slot::default());
        let slot = self.slots.back_mut().ok_or(wqe::FETCH)?;
        let bytes = self.ahead.get(start..start + length).ok_or(wqe::FETCH)?;
        let rules = WqeRules {
            mkeys: context.mkeys,
            accessor: context.accessor,
            log_max_message: context.log_max_message,
            strom: context.strom,
            strict: context.strict,
            format: context.format,
            names_queue: context.names_queue,
            ring,
            at: (u32::from(self.fetched) * BASIC_BLOCK as u32) & (ring - 1),
        };
        wqe::parse(bytes, control, &rules, &mut slot.pieces)
    }

    /// Makes sure that `blocks` blocks from the next WQE on are read. Blocks are read at most once, in large strides.
    fn read_ahead<M: HostMemory>(&mut self, memory: &mut M, blocks: u16) -> Result<(), DmaFault> {
        let have = (self.ahead.len() / BASIC_BLOCK).saturating_sub(self.ahead_offset() / BASIC_BLOCK);
        if have >= usize::from(blocks) {
            return Ok(());
        }
        let count = usize::from(self.pending_blocks()).min(FETCH_BLOCKS).max(usize::from(blocks));
        self.ahead.clear();
        self.ahead.resize(count * BASIC_BLOCK, 0);
        self.ahead_from = self.fetched;
        let mut ahead = core::mem::take(&mut self.ahead);
        let at = u32::from(self.fetched) * BASIC_BLOCK as u32;
        let read = self.read_ring(memory, at, &mut ahead);
        self.ahead = ahead;
        if read.is_err() {
            self.ahead.clear();
        }
        read
    }

    /// Reads from the ring, around its end. Only a ring that exists is ever read.
    fn read_ring<M: HostMemory>(&self, memory: &mut M, at: u32, bytes: &mut [u8]) -> Result<(), DmaFault> {
        let ring = self.blocks() * BASIC_BLOCK as u32;
        let mut at = at & ring.saturating_sub(1);
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

    fn accept(&mut self, control: &ControlSegment, work: Work, blocks: u16) -> Fetched {
        let mode = control.completion_mode();
        let event = mode == completion_mode::ALWAYS_AND_EVENT;
        let (token, index) = (self.first_token + self.slots.len() as u64 - 1, self.fetched);
        let Some(slot) = self.slots.back_mut() else { return Fetched::Nothing };
        slot.index = index;
        slot.opcode = control.opcode().raw();
        slot.signalled = mode == completion_mode::ALWAYS || event;
        slot.event = event;
        self.behind_update = matches!(work, Work::KeyUpdate(_));
        slot.submitted = !matches!(work, Work::Nop | Work::KeyUpdate(_));
        let length = slot.pieces.length() as u32;
        self.fetched = self.fetched.wrapping_add(blocks);
        match work {
            Work::Nop | Work::KeyUpdate(_) => Fetched::Nop,
            Work::Datagram(envelope) => Fetched::Datagram { token, envelope, solicited: control.solicited() },
            Work::Request(operation, service_header) => Fetched::Request(crate::transport::Request {
                operation,
                length,
                token,
                solicited: control.solicited(),
                fence: control.fence_mode() >= 2,
                service_header,
            }),
        }
    }

    /// A change of a memory key was done, or refused, which stops the queue at it.
    pub(crate) fn end_update(&mut self, pending: &PendingUpdate, result: Result<(), WorkFault>) {
        self.held = None;
        if let Err(fault) = result {
            self.slots.pop_back();
            self.stop(pending.control.opcode().raw(), fault);
            return;
        }
        self.accept(&pending.control, Work::KeyUpdate(pending.update), pending.blocks);
    }

    /// A change of a memory key has to wait; it is fetched again.
    pub(crate) fn hold_update(&mut self, pending: &PendingUpdate) {
        self.slots.pop_back();
        self.held = Some(pending.control.fence_mode());
    }

    /// The slot of a token.
    pub(crate) fn slot(&self, token: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(token.checked_sub(self.first_token)?).ok()?)
    }

    /// The oldest slot.
    pub(crate) fn front(&self) -> Option<&Slot> {
        self.slots.front()
    }

    /// Takes the oldest slot out.
    pub(crate) fn pop(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        self.first_token += 1;
        Some(slot)
    }

    /// Index and opcode of the next posted WQE that was not fetched, for flushing. A WQE whose size is nonsense ends
    /// the walk: nobody can say where the next one begins.
    pub(crate) fn skip<M: HostMemory>(&mut self, memory: &mut M) -> Option<(u16, u8)> {
        if self.pending_blocks() == 0 || u32::from(self.pending_blocks()) > self.blocks() {
            self.fetched = self.posted;
            return None;
        }
        let index = self.fetched;
        let known = self.read_ahead(memory, 1).is_ok();
        let control = self.control();
        let blocks = (u16::from(control.ds()) * 16).div_ceil(BASIC_BLOCK as u16);
        if !known || blocks == 0 || blocks > self.pending_blocks() {
            self.fetched = self.posted;
        } else {
            self.fetched = self.fetched.wrapping_add(blocks);
        }
        Some((index, control.opcode().raw()))
    }

    /// Reads payload from the local buffer of a slot.
    #[inline]
    pub(crate) fn gather<M: HostMemory>(
        &self,
        memory: &mut M,
        mkeys: &MkeyTable,
        token: u64,
        offset: u32,
        mut bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        let missing = DmaFault { iova: 0, length: bytes.len(), write: false };
        let slot = self.slot(token).ok_or(missing)?;
        for (piece, start, take) in slot.pieces.cover(offset.into(), bytes.len()) {
            let (now, rest) = bytes.split_at_mut(take);
            match piece {
                Piece::Memory(range) => mkeys.read(memory, range, start, now)?,
                Piece::Inline { offset, .. } => {
                    self.read_ring(memory, offset.wrapping_add(start as u32), now)?
                }
            }
            bytes = rest;
        }
        if bytes.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// Writes the payload of a response into the local buffer of a slot.
    pub(crate) fn scatter<M: HostMemory>(
        &self,
        memory: &mut M,
        mkeys: &MkeyTable,
        token: u64,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), DmaFault> {
        let missing = DmaFault { iova: 0, length: bytes.len(), write: true };
        let slot = self.slot(token).ok_or(missing)?;
        write_pieces(memory, mkeys, &slot.pieces, offset.into(), bytes)
    }
}

/// Whether a WQE waits for changes of memory keys before it. Hardware that is not asked to wait may still use the old key;
/// this model always waits, and says what is missing in strict mode.
fn is_fenced(control: &ControlSegment) -> bool {
    use fence_mode::{INITIATOR_SMALL, SMALL_AND_FENCE, STRONG_ORDERING};
    matches!(control.fence_mode(), INITIATOR_SMALL | SMALL_AND_FENCE | STRONG_ORDERING)
}

/// Writes bytes into a list of checked ranges.
#[inline]
pub(crate) fn write_pieces<M: HostMemory>(
    memory: &mut M,
    mkeys: &MkeyTable,
    pieces: &PieceList,
    offset: u64,
    mut bytes: &[u8],
) -> Result<(), DmaFault> {
    for (piece, start, take) in pieces.cover(offset, bytes.len()) {
        let (now, rest) = bytes.split_at(take);
        let Piece::Memory(range) = piece else { break };
        mkeys.write(memory, range, start, now)?;
        bytes = rest;
    }
    if bytes.is_empty() { Ok(()) } else { Err(DmaFault { iova: 0, length: bytes.len(), write: true }) }
}

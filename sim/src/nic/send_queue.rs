//! The send queue engine: doorbell counters, fetching WQEs, remembering them until their CQE (PRM, work queues; Linux
//! `drivers/infiniband/hw/mlx5/wr.c`).

use super::memory::{DmaFault, HostMemory};
use super::mkey::{KeyUpdate, MkeyTable};
use super::send_ring::{SendRing, WqeName};
use super::wqe::{self, Piece, PieceList, WorkFault, WqeRequest, WqeRules};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::wqe::{BASIC_BLOCK, ControlSegment, completion_mode, fence_mode};
use std::collections::VecDeque;
use zerocopy::FromBytes;

/// WQEs that are taken from the ring before their completion; more wait in the ring.
const WINDOW: usize = 512;
/// Blocks read from the ring in one go; enough for a batch of 32 WQEs of two blocks.
const FETCH_BLOCKS: usize = 64;

/// A WQE that was taken from the ring and has not completed.
#[derive(Debug, Default)]
pub(crate) struct OutstandingWqe {
    pub(crate) name: WqeName,
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
pub(crate) struct StoppedWqe {
    pub(crate) name: WqeName,
    pub(crate) fault: WorkFault,
}

/// What a fetch brought.
pub(crate) enum Fetched {
    /// A message for the requester.
    Request(crate::transport::Request),
    /// A datagram.
    Datagram(FetchedDatagram),
    /// A change of a memory key. It stays the next WQE until [`SendQueue::end_update`] or [`SendQueue::hold_update`].
    KeyUpdate(PendingUpdate),
    /// A NOP, which only takes its place in the order.
    Nop,
    /// Nothing more at present.
    Nothing,
}

/// A datagram that is fetched and not sent.
pub(crate) struct FetchedDatagram {
    /// Of its WQE, by which its payload is gathered.
    pub(crate) token: u64,
    pub(crate) address: wqe::DatagramAddress,
    pub(crate) solicited: bool,
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
    ring: SendRing,
    outstanding: VecDeque<OutstandingWqe>,
    /// Token of the oldest outstanding WQE; tokens count WQEs.
    first_token: u64,
    stopped: Option<StoppedWqe>,
    /// Fence mode of the change of a memory key that waits for what was posted before it.
    held: Option<u8>,
    /// The WQE before the next one changed a memory key.
    behind_update: bool,
    /// Blocks read ahead: `ahead_from` is the counter of the first.
    ahead: Vec<u8>,
    ahead_from: u16,
}

impl SendQueue {
    pub(crate) const fn new(ring: SendRing) -> Self {
        Self {
            ring,
            outstanding: VecDeque::new(),
            first_token: 0,
            stopped: None,
            held: None,
            behind_update: false,
            ahead: Vec::new(),
            ahead_from: 0,
        }
    }

    /// Its ring, for the counters that QUERY_QP shows.
    pub(crate) const fn ring(&self) -> &SendRing {
        &self.ring
    }

    /// Counters from zero, nothing remembered. Tokens go on, so that no old token names a new WQE.
    pub(crate) fn reset(&mut self) {
        self.first_token += self.outstanding.len() as u64;
        self.outstanding.clear();
        self.ring.reset();
        self.stopped = None;
        self.held = None;
        self.behind_update = false;
        self.ahead.clear();
    }

    /// The WQE at which the queue stopped.
    pub(crate) const fn stopped(&self) -> Option<StoppedWqe> {
        self.stopped
    }

    /// The queue goes on behind the WQE at which it stopped.
    pub(crate) const fn clear_stop(&mut self) {
        self.stopped = None;
    }

    /// Fence mode of the change of a memory key that waits.
    pub(crate) const fn held(&self) -> Option<u8> {
        self.held
    }

    /// The doorbell was rung. A record that cannot be read, or counts beyond the size of the queue, stops it.
    pub(crate) fn on_doorbell<M: HostMemory>(&mut self, memory: &mut M, strict: bool) {
        if let Err(fault) = self.ring.read_record(memory, strict) {
            self.stop(0, fault);
        }
    }

    /// Whether [`Self::fetch`] may bring something.
    pub(crate) fn wants_fetch(&self) -> bool {
        self.ring.pending() != 0 && self.stopped.is_none() && self.outstanding.len() < WINDOW
    }

    /// Stops the queue at the WQE that would be fetched next.
    pub(crate) fn stop(&mut self, opcode: u8, fault: WorkFault) {
        if self.stopped.is_none() {
            let name = WqeName { index: self.ring.fetched(), opcode };
            self.stopped = Some(StoppedWqe { name, fault });
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
            self.ring.fetched(),
            self.ring.pending(),
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
            Ok(WqeRequest::KeyUpdate(update)) => {
                let token = self.first_token + self.outstanding.len() as u64 - 1;
                Fetched::KeyUpdate(PendingUpdate { token, update, control, blocks })
            }
            Ok(work) => self.accept(&control, work, blocks),
            Err(fault) => {
                self.outstanding.pop_back();
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
        usize::from(self.ring.fetched().wrapping_sub(self.ahead_from)) * BASIC_BLOCK
    }

    fn control(&self) -> ControlSegment {
        let bytes = self.ahead.get(self.ahead_offset()..).unwrap_or(&[]);
        ControlSegment::read_from_prefix(bytes).map(|(control, _)| control).unwrap_or_default()
    }

    /// Parses a WQE, which becomes the youngest outstanding one.
    fn parse(
        &mut self,
        control: &ControlSegment,
        length: usize,
        context: &FetchContext<'_>,
    ) -> Result<WqeRequest, WorkFault> {
        let (start, ring) = (self.ahead_offset(), self.ring.bytes());
        if self.outstanding.capacity() == 0 {
            // Most queues of a program with very many have one request under way.
            self.outstanding.reserve_exact(1);
        }
        self.outstanding.push_back(OutstandingWqe::default());
        let outstanding = self.outstanding.back_mut().ok_or(wqe::FETCH)?;
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
            at: self.ring.next_offset(),
        };
        wqe::parse(bytes, control, &rules, &mut outstanding.pieces)
    }

    /// Makes sure that `blocks` blocks from the next WQE on are read. Blocks are read at most once, in large strides.
    fn read_ahead<M: HostMemory>(&mut self, memory: &mut M, blocks: u16) -> Result<(), DmaFault> {
        let have = (self.ahead.len() / BASIC_BLOCK).saturating_sub(self.ahead_offset() / BASIC_BLOCK);
        if have >= usize::from(blocks) {
            return Ok(());
        }
        let count = usize::from(self.ring.pending()).min(FETCH_BLOCKS).max(usize::from(blocks));
        self.ahead.resize(count * BASIC_BLOCK, 0);
        self.ahead_from = self.ring.fetched();
        let mut ahead = core::mem::take(&mut self.ahead);
        let at = self.ring.next_offset();
        let read = self.ring.read(memory, at, &mut ahead);
        self.ahead = ahead;
        if read.is_err() {
            self.ahead.clear();
        }
        read
    }

    fn accept(&mut self, control: &ControlSegment, work: WqeRequest, blocks: u16) -> Fetched {
        let mode = control.completion_mode();
        let event = mode == completion_mode::ALWAYS_AND_EVENT;
        let (token, index) = (self.first_token + self.outstanding.len() as u64 - 1, self.ring.fetched());
        let Some(outstanding) = self.outstanding.back_mut() else { return Fetched::Nothing };
        outstanding.name = WqeName { index, opcode: control.opcode().raw() };
        outstanding.signalled = mode == completion_mode::ALWAYS || event;
        outstanding.event = event;
        self.behind_update = matches!(work, WqeRequest::KeyUpdate(_));
        outstanding.submitted = !matches!(work, WqeRequest::Nop | WqeRequest::KeyUpdate(_));
        let length = outstanding.pieces.length() as u32;
        self.ring.advance(blocks);
        match work {
            WqeRequest::Nop | WqeRequest::KeyUpdate(_) => Fetched::Nop,
            WqeRequest::Datagram(address) => {
                Fetched::Datagram(FetchedDatagram { token, address, solicited: control.solicited() })
            }
            WqeRequest::Request(operation, service_header) => Fetched::Request(crate::transport::Request {
                operation,
                length,
                token,
                solicited: control.solicited(),
                fence: waits_for_reads(control),
                service_header,
            }),
        }
    }

    /// A change of a memory key was done, or refused, which stops the queue at it.
    pub(crate) fn end_update(&mut self, pending: &PendingUpdate, result: Result<(), WorkFault>) {
        self.held = None;
        if let Err(fault) = result {
            self.outstanding.pop_back();
            self.stop(pending.control.opcode().raw(), fault);
            return;
        }
        self.accept(&pending.control, WqeRequest::KeyUpdate(pending.update), pending.blocks);
    }

    /// A change of a memory key has to wait; it is fetched again.
    pub(crate) fn hold_update(&mut self, pending: &PendingUpdate) {
        self.outstanding.pop_back();
        self.held = Some(pending.control.fence_mode());
    }

    /// Bytes of the local buffer of a WQE.
    pub(crate) fn length_of(&self, token: u64) -> usize {
        self.outstanding_wqe(token).map_or(0, |outstanding| outstanding.pieces.length()) as usize
    }

    /// The outstanding WQE of a token.
    fn outstanding_wqe(&self, token: u64) -> Option<&OutstandingWqe> {
        self.outstanding.get(usize::try_from(token.checked_sub(self.first_token)?).ok()?)
    }

    /// The oldest outstanding WQE.
    pub(crate) fn front(&self) -> Option<&OutstandingWqe> {
        self.outstanding.front()
    }

    /// Takes the oldest outstanding WQE out.
    pub(crate) fn pop(&mut self) -> Option<OutstandingWqe> {
        let outstanding = self.outstanding.pop_front()?;
        self.first_token += 1;
        Some(outstanding)
    }

    /// The next posted WQE that was not fetched, for flushing; see [`SendRing::skip`].
    pub(crate) fn skip<M: HostMemory>(&mut self, memory: &mut M) -> Option<WqeName> {
        self.ring.skip(memory)
    }

    /// Reads payload from the local buffer of an outstanding WQE.
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
        let outstanding = self.outstanding_wqe(token).ok_or(missing)?;
        for (piece, start, take) in outstanding.pieces.cover(offset.into(), bytes.len()) {
            let (now, rest) = bytes.split_at_mut(take);
            match piece {
                Piece::Memory(range) => mkeys.read(memory, range, start, now)?,
                Piece::Inline { offset, .. } => {
                    self.ring.read(memory, offset.wrapping_add(start as u32), now)?
                }
            }
            bytes = rest;
        }
        if bytes.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// Writes the payload of a response into the local buffer of an outstanding WQE.
    pub(crate) fn scatter<M: HostMemory>(
        &self,
        memory: &mut M,
        mkeys: &MkeyTable,
        token: u64,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), DmaFault> {
        let missing = DmaFault { iova: 0, length: bytes.len(), write: true };
        let outstanding = self.outstanding_wqe(token).ok_or(missing)?;
        write_pieces(memory, mkeys, &outstanding.pieces, offset.into(), bytes)
    }
}

/// Whether a WQE waits for changes of memory keys before it. Hardware that is not asked to wait may still use the old key;
/// this model always waits, and says what is missing in strict mode.
fn is_fenced(control: &ControlSegment) -> bool {
    use fence_mode::{INITIATOR_SMALL, SMALL_AND_FENCE, STRONG_ORDERING};
    matches!(control.fence_mode(), INITIATOR_SMALL | SMALL_AND_FENCE | STRONG_ORDERING)
}

/// Whether a WQE waits for the RDMA READs and atomics before it (IBTA v1.4 §10.8.3.3).
fn waits_for_reads(control: &ControlSegment) -> bool {
    let mode = control.fence_mode();
    mode >= fence_mode::FENCE && !(mutated("no_fence") && mode == fence_mode::FENCE)
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

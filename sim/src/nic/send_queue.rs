//! The send queue of a queue pair: it fetches WQEs and keeps them until their CQE (Linux
//! `drivers/infiniband/hw/mlx5/wr.c`).

use super::card::DmaCopy;
use super::memory::{DmaFault, HostMemory};
use super::mkey::{KeyUpdate, MkeyTable};
use super::observer::WorkName;
use super::work_queue::{CompletionRequest, NextWqe, RefusedWqe, WorkQueue, WqeName};
use super::wqe::{self, FetchContext, Piece, PieceList, SegmentReader, WorkFault, WqeRequest};
use crate::transport::{Operation, Request};
use crate::wire::ServiceHeader;
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::wqe::{ControlSegment, fence_mode};
use std::collections::VecDeque;

/// The maximum number of fetched WQEs without a completion; further ones wait in the ring.
const WINDOW: usize = 512;

/// What executes a WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkCarrier {
    /// Nothing: a NOP, or a memory-key update that is done.
    Nobody,
    /// The requester.
    Requester,
    /// The card, under this tag.
    Card(u64),
    /// The card, which has finished it.
    Ended(Result<(), WorkFault>),
}

/// A WQE that was fetched and has not completed.
#[derive(Debug)]
pub(crate) struct OutstandingWqe {
    pub(crate) name: WqeName,
    /// Whether it writes a CQE when it succeeds.
    pub(crate) signalled: bool,
    /// Whether its CQE triggers a completion queue armed for solicited events.
    pub(crate) event: bool,
    /// What executes it.
    pub(crate) carrier: WorkCarrier,
    /// Its local buffer.
    pub(crate) pieces: PieceList,
}

impl OutstandingWqe {
    /// An outstanding WQE with what its control segment says. Its queue counts it as `index`.
    fn new(control: &ControlSegment, index: u16) -> Self {
        let CompletionRequest { signalled, event } = CompletionRequest::of(control);
        Self {
            name: WqeName { index, opcode: control.opcode().raw() },
            signalled,
            event,
            carrier: WorkCarrier::Requester,
            pieces: PieceList::default(),
        }
    }
}

/// A WQE that cannot be executed. It fails once everything before it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoppedWqe {
    pub(crate) name: WqeName,
    pub(crate) fault: WorkFault,
}

/// The result of a fetch.
pub(crate) enum Fetched {
    /// A message, which went to the requester.
    Request,
    /// A datagram.
    Datagram(FetchedDatagram),
    /// A memory-key update. It remains the next WQE until [`SendQueue::end_update`].
    KeyUpdate(Box<PendingUpdate>),
    /// A copy. The caller requests it from the card and passes the tag to [`SendQueue::hand_to_card`].
    Dma(Box<DmaCopy>),
    /// A NOP, which only takes its place in the queue.
    Nop,
    /// Nothing at present.
    Nothing,
}

/// A datagram that was fetched and not sent yet.
pub(crate) struct FetchedDatagram {
    /// Token of its WQE, which locates its payload.
    pub(crate) token: u64,
    pub(crate) address: wqe::DatagramAddress,
    pub(crate) solicited: bool,
}

/// A memory-key update that was fetched and not executed yet.
pub(crate) struct PendingUpdate {
    pub(crate) update: Box<KeyUpdate>,
    pub(crate) control: ControlSegment,
    /// The outstanding WQE that it becomes. Its pieces hold the translation entries.
    wqe: OutstandingWqe,
    blocks: u16,
}

impl PendingUpdate {
    /// The location of its translation entries.
    pub(crate) const fn pieces(&self) -> &PieceList {
        &self.wqe.pieces
    }
}

/// The send queue of one queue pair.
#[derive(Debug)]
pub(crate) struct SendQueue {
    queue: WorkQueue,
    outstanding: VecDeque<OutstandingWqe>,
    /// Token of the oldest outstanding WQE; tokens count WQEs.
    first_token: u64,
    stopped: Option<StoppedWqe>,
    /// Fence mode of the memory-key update that waits for earlier requests.
    held: Option<u8>,
    /// The previous WQE was a memory-key update.
    behind_update: bool,
    /// Copies that the card has not finished.
    copies: u16,
    /// The next WQE has a fence and follows copies or is itself a copy: it waits until nothing is
    /// outstanding.
    fenced: bool,
}

impl SendQueue {
    pub(crate) const fn new(queue: WorkQueue) -> Self {
        Self {
            queue,
            outstanding: VecDeque::new(),
            first_token: 0,
            stopped: None,
            held: None,
            behind_update: false,
            copies: 0,
            fenced: false,
        }
    }

    /// Its work queue, whose counters QUERY_QP shows.
    pub(crate) const fn queue(&self) -> &WorkQueue {
        &self.queue
    }

    /// Clears the counters and all WQEs. Tokens continue, so that no old token names a new WQE.
    pub(crate) fn reset(&mut self) {
        self.first_token += self.outstanding.len() as u64;
        self.outstanding.clear();
        self.queue.reset();
        self.stopped = None;
        self.held = None;
        self.behind_update = false;
        (self.copies, self.fenced) = (0, false);
    }

    /// The WQE at which the queue stopped.
    pub(crate) const fn stopped(&self) -> Option<StoppedWqe> {
        self.stopped
    }

    /// Lets the queue continue after the WQE at which it stopped.
    pub(crate) const fn clear_stop(&mut self) {
        self.stopped = None;
    }

    /// Fence mode of the memory-key update that waits.
    pub(crate) const fn held(&self) -> Option<u8> {
        self.held
    }

    /// Handles a doorbell. A record that cannot be read, or that exceeds the size of the queue, stops the
    /// queue.
    pub(crate) fn on_doorbell<M: HostMemory>(&mut self, memory: &mut M, strict: bool) {
        if let Err(fault) = self.queue.read_record(memory, strict) {
            self.stop(RefusedWqe { opcode: 0, fault });
        }
    }

    /// Whether [`Self::fetch`] may return something.
    pub(crate) fn wants_fetch(&self) -> bool {
        let may_fetch = self.stopped.is_none() && self.outstanding.len() < WINDOW;
        self.queue.pending() != 0 && may_fetch && (!self.fenced || self.outstanding.is_empty())
    }

    /// Stops the queue at the next WQE.
    fn stop(&mut self, refused: RefusedWqe) {
        if self.stopped.is_none() {
            let name = WqeName { index: self.queue.fetched(), opcode: refused.opcode };
            self.stopped = Some(StoppedWqe { name, fault: refused.fault });
        }
    }

    /// Fetches the next WQE from the ring, if there is one and the window has room. A message goes to `submit`: it is
    /// larger than everything else, and each move of it costs as much as a check.
    #[inline(always)] // One caller for connections, one for datagrams.
    pub(crate) fn fetch<M: HostMemory>(
        &mut self,
        memory: &mut M,
        context: &FetchContext<'_>,
        submit: impl FnOnce(Request),
    ) -> Fetched {
        if !self.wants_fetch() {
            return Fetched::Nothing;
        }
        self.take_next(memory, context, submit).unwrap_or_else(|refused| {
            self.stop(refused);
            Fetched::Nothing
        })
    }

    #[inline(always)]
    fn take_next<M: HostMemory>(
        &mut self,
        memory: &mut M,
        context: &FetchContext<'_>,
        submit: impl FnOnce(Request),
    ) -> Result<Fetched, RefusedWqe> {
        let next = self.queue.read_next(memory, context.accessor.qpn, context.max_wqe)?;
        let control = next.control;
        if context.strict && self.behind_update && !is_fenced(&control) {
            return Err(next.refused(wqe::UNFENCED));
        }
        let token = self.next_token();
        let mut wqe = OutstandingWqe::new(&control, self.queue.fetched());
        let mut request = blank_request(&control, token);
        let work = match self.parse(&next, context, &mut wqe.pieces, &mut request) {
            Ok(work) => work,
            Err(fault) => return Err(next.refused(fault)),
        };
        if self.waits_for_copies(&control, &work) {
            self.fenced = true;
            return Ok(Fetched::Nothing);
        }
        self.fenced = false;
        let fetched = match work {
            WqeRequest::KeyUpdate(update) => {
                let blocks = next.blocks();
                wqe.carrier = WorkCarrier::Nobody;
                return Ok(Fetched::KeyUpdate(Box::new(PendingUpdate { update, control, wqe, blocks })));
            }
            WqeRequest::Nop => {
                wqe.carrier = WorkCarrier::Nobody;
                Fetched::Nop
            }
            WqeRequest::Dma(copy) => {
                wqe.carrier = WorkCarrier::Nobody;
                Fetched::Dma(copy)
            }
            WqeRequest::Datagram(address) => {
                Fetched::Datagram(FetchedDatagram { token, address, solicited: control.solicited() })
            }
            WqeRequest::Request => {
                submit(request);
                Fetched::Request
            }
        };
        self.behind_update = false;
        self.remember(wqe, next.blocks());
        Ok(fetched)
    }

    /// Whether a fenced WQE has to wait until everything before it has ended. It does if copies are
    /// outstanding or if it is itself a copy, because the requester only tracks READs and atomics.
    fn waits_for_copies(&self, control: &ControlSegment, work: &WqeRequest) -> bool {
        let concerned = self.copies > 0 || matches!(work, WqeRequest::Dma(_));
        concerned && waits_for_reads(control) && !self.outstanding.is_empty()
    }

    /// Records the tag of the last fetched copy, which the card now executes.
    pub(crate) fn hand_to_card(&mut self, tag: u64) {
        if let Some(wqe) = self.outstanding.back_mut() {
            wqe.carrier = WorkCarrier::Card(tag);
            self.copies += 1;
        }
    }

    /// Whether the card is executing copies of this queue.
    pub(crate) const fn has_copies(&self) -> bool {
        self.copies > 0
    }

    /// Handles the end of a copy and returns whether a WQE was waiting for it.
    pub(crate) fn end_dma(&mut self, tag: u64, result: Result<(), WorkFault>) -> bool {
        let mut waiting = self.outstanding.iter_mut();
        let Some(wqe) = waiting.find(|wqe| wqe.carrier == WorkCarrier::Card(tag)) else { return false };
        wqe.carrier = WorkCarrier::Ended(result);
        self.copies -= 1;
        true
    }

    /// Parses the segments of a WQE.
    #[inline(always)] // Moving its result costs more than its code, as for `fetch`.
    fn parse(
        &self,
        next: &NextWqe,
        context: &FetchContext<'_>,
        pieces: &mut PieceList,
        request: &mut Request,
    ) -> Result<WqeRequest, WorkFault> {
        let reader = SegmentReader::new(self.queue.segments(next), self.queue.place(), context.strict);
        wqe::parse(&next.control, reader, context, pieces, request)
    }

    /// The token of the next WQE.
    fn next_token(&self) -> u64 {
        self.first_token + self.outstanding.len() as u64
    }

    /// Removes the next WQE from the ring and keeps it until it ends.
    #[inline(always)]
    fn remember(&mut self, wqe: OutstandingWqe, blocks: u16) {
        if self.outstanding.capacity() == 0 {
            // In a program with very many queues, most have only one request outstanding.
            self.outstanding.reserve_exact(1);
        }
        self.outstanding.push_back(wqe);
        self.queue.advance(blocks);
    }

    /// Ends a memory-key update. A refused one stops the queue at its WQE.
    pub(crate) fn end_update(&mut self, pending: PendingUpdate, result: Result<(), WorkFault>) {
        self.held = None;
        match result {
            Ok(()) => {
                self.behind_update = true;
                self.remember(pending.wqe, pending.blocks);
            }
            Err(fault) => self.stop(RefusedWqe { opcode: pending.control.opcode().raw(), fault }),
        }
    }

    /// Delays a memory-key update until earlier requests have ended; it will be fetched again.
    pub(crate) fn hold_update(&mut self, pending: &PendingUpdate) {
        self.held = Some(pending.control.fence_mode());
    }

    /// Bytes of the local buffer of a WQE.
    pub(crate) fn length_of(&self, token: u64) -> usize {
        self.outstanding_wqe(token).map_or(0, |outstanding| outstanding.pieces.length()) as usize
    }

    /// The outstanding WQE of a token.
    #[inline]
    fn outstanding_wqe(&self, token: u64) -> Option<&OutstandingWqe> {
        self.outstanding.get(usize::try_from(token.checked_sub(self.first_token)?).ok()?)
    }

    /// The last fetched WQE and the length of its local buffer.
    pub(crate) fn newest(&self) -> Option<(WorkName, u32)> {
        let wqe = self.outstanding.back()?;
        Some((wqe.name.into(), u32::try_from(wqe.pieces.length()).unwrap_or(u32::MAX)))
    }

    /// The name of an outstanding WQE in completions.
    pub(crate) fn work_of(&self, token: u64) -> Option<WorkName> {
        self.outstanding_wqe(token).map(|wqe| wqe.name.into())
    }

    /// The oldest outstanding WQE.
    pub(crate) fn front(&self) -> Option<&OutstandingWqe> {
        self.outstanding.front()
    }

    /// Removes the oldest outstanding WQE if it asked for no completion of a success.
    #[inline]
    pub(crate) fn pop_unsignalled(&mut self) -> Option<WqeName> {
        let name = self.outstanding.front().filter(|front| !front.signalled)?.name;
        self.pop();
        Some(name)
    }

    /// Removes the oldest outstanding WQE.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<OutstandingWqe> {
        let outstanding = self.outstanding.pop_front()?;
        self.first_token += 1;
        self.copies -= u16::from(matches!(outstanding.carrier, WorkCarrier::Card(_)));
        Some(outstanding)
    }

    /// Takes the next posted WQE without fetching it, for flushing; see [`WorkQueue::skip`].
    pub(crate) fn skip<M: HostMemory + ?Sized>(&mut self, memory: &mut M) -> Option<WqeName> {
        self.queue.skip(memory)
    }

    /// Reads payload from the local buffer of an outstanding WQE.
    #[inline(always)] // For every frame with payload.
    pub(crate) fn gather<M: HostMemory>(
        &self,
        memory: &mut M,
        mkeys: &MkeyTable,
        token: u64,
        offset: u32,
        bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        let missing = DmaFault { iova: 0, length: bytes.len(), write: false };
        let outstanding = self.outstanding_wqe(token).ok_or(missing)?;
        self.gather_pieces(memory, mkeys, &outstanding.pieces, offset, bytes)
    }

    /// Reads payload from the local buffer of a WQE of this queue.
    #[inline(always)] // For every frame with payload.
    pub(crate) fn gather_pieces<M: HostMemory>(
        &self,
        memory: &mut M,
        mkeys: &MkeyTable,
        pieces: &PieceList,
        offset: u32,
        bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        if let Some(range) = pieces.only_range() {
            return mkeys.read(memory, range, offset.into(), bytes);
        }
        self.queue.gather(memory, mkeys, pieces, offset, bytes)
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

/// A message with what its control segment says. The other segments fill in the rest.
#[inline]
fn blank_request(control: &ControlSegment, token: u64) -> Request {
    Request {
        operation: Operation::Send { immediate: None, invalidate: None },
        length: 0,
        token,
        solicited: control.solicited(),
        fence: waits_for_reads(control),
        service_header: ServiceHeader::None,
    }
}

/// Whether a WQE waits for the memory-key updates before it. Hardware may still use the old key if a WQE does
/// not request the wait; this model always waits, and strict mode reports the missing request.
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
    if let Some(range) = pieces.only_range() {
        return mkeys.write(memory, range, offset, bytes);
    }
    for (piece, start, take) in pieces.cover(offset, bytes.len()) {
        let (now, rest) = bytes.split_at(take);
        let Piece::Memory(range) = piece else { break };
        mkeys.write(memory, range, start, now)?;
        bytes = rest;
    }
    if bytes.is_empty() { Ok(()) } else { Err(DmaFault { iova: 0, length: bytes.len(), write: true }) }
}

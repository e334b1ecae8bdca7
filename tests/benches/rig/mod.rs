//! The workload of the data-path measurements, both for the clock and for the instruction counter.
//!
//! Plain memory stands for rings and UAR; a fake device writes completions and reads nothing. One reliable
//! connection in RTS: 1024 basic blocks of send queue, 1024 receives of one slice, two completion queues of
//! 1024 entries, 220 bytes inline, a BlueFlame register. A chunk is 256 work requests; retiring them is not
//! part of the measurement. Requests are built once and posted repeatedly, read through `black_box` each
//! time; all checks of the driver are enabled.
#![allow(dead_code, reason = "each user takes its own part")]

#[path = "../../../driver/tests/integration/support/mod.rs"]
pub mod support;

use bareverbs_core::{
    CompletionQueue, MemorySlice, QueuePair, ReceiveRequest, RemoteSlice, SharedReceiveQueue, WorkCompletion,
    WorkRequest,
};
use bareverbs_prm::cqe::{CompletionEntry, MiniEntry};
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::CqeOpcode;
use std::hint::black_box;
use support::objects::{Handle, Rig, Shape};

/// Work requests of a chunk.
pub const CHUNK: usize = 256;
/// Work requests of a batch.
pub const BATCH: usize = 32;
/// Queue pairs that complete in turn.
const PAIRS: usize = 32;

const REMOTE: RemoteSlice = RemoteSlice::from_raw(0x7f00_0000_1000, 1 << 20, Mkey::new(0x1234_5600));

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// RDMA WRITE of 8 bytes inline, signalled, one call each.
    Write8,
    /// The same, 32 per doorbell.
    Write8Batch,
    /// RDMA WRITE of 4 KiB from one slice, not signalled, one call each.
    Write4K,
    /// The same, 32 per doorbell.
    Write4KBatch,
    /// A receive of one slice, one call each.
    Receive,
    /// The same, 32 per doorbell record.
    ReceiveBatch,
    /// SEND of 64 bytes inline, signalled, two basic blocks, one call each.
    Send64,
    /// The same, 32 per doorbell.
    Send64Batch,
    /// RDMA READ of 4 KiB into one slice, not signalled, one call each.
    Read4K,
    /// The same, 32 per doorbell.
    Read4KBatch,
    /// Fetch and add, not signalled, one call each.
    FetchAdd,
    /// The same, 32 per doorbell.
    FetchAddBatch,
    /// RDMA WRITE of 8 bytes inline, built and posted, one call each.
    MakeWrite8,
    /// SEND of 64 bytes inline, built and posted, one call each.
    MakeSend64,
    /// Successful completions of a requester, one call each.
    Poll,
    /// The same, 32 per call.
    PollBatch,
    /// Successful completions of 32 requesters in turn, one call each.
    PollTurns,
    /// The same, 32 per call.
    PollTurnsBatch,
    /// Successful completions of a responder, one call each.
    PollReceive,
    /// The same, 32 per call.
    PollReceiveBatch,
    /// Successful completions of a requester, which the device wrote as runs of 32, 32 per call.
    PollCompressed,
    /// An empty completion queue that had completions.
    PollEmpty,
    /// A receive of one slice into a shared receive queue, one call each.
    SharedReceive,
    /// The same, 32 per doorbell record.
    SharedReceiveBatch,
    /// Completions of a shared receive queue, one call each.
    SharedPoll,
    /// The same, 32 per call.
    SharedPollBatch,
}

impl Row {
    /// All rows with their names and the instructions that libmlx5 of rdma-core 65 needs without locks.
    /// libmlx5 has no code for compressed completions, so that row is compared with its plain one.
    /// `tests/peers/data_path.c` counted READ, atomics, requests that are made and posted, shared receive
    /// queues and queue pairs in turn, with the loop around the call and the copy of the entry to the register.
    pub const ALL: [(Self, &'static str, Option<u32>); 26] = [
        (Self::Write8, "post_send write 8 B inline x1", Some(379)),
        (Self::Write8Batch, "post_send write 8 B inline x32", Some(221)),
        (Self::Write4K, "post_send write 4 KiB x1", Some(349)),
        (Self::Write4KBatch, "post_send write 4 KiB x32", Some(188)),
        (Self::Send64, "post_send send 64 B inline x1", Some(391)),
        (Self::Send64Batch, "post_send send 64 B inline x32", Some(209)),
        (Self::Read4K, "post_send read 4 KiB x1", Some(308)),
        (Self::Read4KBatch, "post_send read 4 KiB x32", Some(177)),
        (Self::FetchAdd, "post_send fetch and add x1", Some(312)),
        (Self::FetchAddBatch, "post_send fetch and add x32", Some(181)),
        (Self::MakeWrite8, "make and post write 8 B inline x1", Some(361)),
        (Self::MakeSend64, "make and post send 64 B inline x1", Some(370)),
        (Self::Receive, "post_receive x1", Some(129)),
        (Self::ReceiveBatch, "post_receive x32", Some(73)),
        (Self::Poll, "poll requester x1", Some(179)),
        (Self::PollBatch, "poll requester x32", Some(108)),
        (Self::PollTurns, "poll 32 queue pairs in turn x1", Some(178)),
        (Self::PollTurnsBatch, "poll 32 queue pairs in turn x32", Some(116)),
        (Self::PollReceive, "poll responder x1", Some(241)),
        (Self::PollReceiveBatch, "poll responder x32", Some(170)),
        (Self::PollCompressed, "poll requester compressed x32", Some(108)),
        (Self::PollEmpty, "poll empty", Some(81)),
        (Self::SharedReceive, "SRQ receive: post x1", Some(142)),
        (Self::SharedReceiveBatch, "SRQ receive: post x32", Some(85)),
        (Self::SharedPoll, "SRQ receive: poll x1", Some(242)),
        (Self::SharedPollBatch, "SRQ receive: poll x32", Some(169)),
    ];

    /// Basic blocks of a send, if it is one.
    const fn blocks(self) -> Option<u16> {
        match self {
            Self::Write8 | Self::Write8Batch | Self::Write4K | Self::Write4KBatch => Some(1),
            Self::Read4K | Self::Read4KBatch | Self::FetchAdd | Self::FetchAddBatch => Some(1),
            Self::MakeWrite8 => Some(1),
            Self::Send64 | Self::Send64Batch | Self::MakeSend64 => Some(2),
            _ => None,
        }
    }
}

/// The queue pair, and its position in the queue.
pub struct Bench {
    pub rig: Rig,
    entry: CompletionEntry,
    sent: u16,
    received: u16,
    slice: [MemorySlice; 1],
    word: [MemorySlice; 1],
    /// A shared receive queue, and a queue pair that receives from it.
    shared: (SharedReceiveQueue<Handle>, QueuePair<Handle>),
    /// The entry that the device takes next.
    head: u16,
    /// Queue pairs that complete in turn, and the entries of their completions.
    turns: Vec<(QueuePair<Handle>, CompletionEntry)>,
    /// Requests that each of them has posted.
    turned: u16,
}

impl Bench {
    pub fn new() -> Self {
        let shape =
            Shape { sends: 256, receives: 1024, slices: 1, inline: 220, entries: 1024, blue_flame: true };
        let rig = Rig::new(shape);
        let entry = rig.entry(CqeOpcode::Requester, 0);
        let slice = [rig.region.slice(0, 4096).unwrap()];
        let word = [rig.region.slice(0, 8).unwrap()];
        let shared = rig.share(1023);
        let turns = (0..PAIRS).map(|_| in_turn(&rig, entry)).collect();
        Self { rig, entry, sent: 0, received: 0, slice, word, shared, head: 0, turns, turned: 0 }
    }

    /// The device completes the send at `counter`.
    fn complete(&mut self, counter: u16) {
        self.entry.set_wqe_counter(counter);
        self.rig.complete_send(self.entry);
    }

    fn complete_receive(&mut self) {
        let mut entry = self.entry;
        entry.set_opcode(CqeOpcode::ResponderSend).set_wqe_counter(self.received).set_byte_count(64);
        self.received = self.received.wrapping_add(1);
        self.rig.complete_receive(entry);
    }

    /// The device completes sends from `first` on, as runs of one batch each.
    fn complete_in_runs(&mut self, first: u16) {
        for start in (0..CHUNK as u16).step_by(BATCH) {
            let minis: [MiniEntry; BATCH] = core::array::from_fn(|index| {
                let mut mini = MiniEntry::new();
                mini.set_wqe_counter(first.wrapping_add(start + index as u16));
                mini
            });
            let cqn = self.rig.send.number().value();
            self.rig.hal.firmware().complete_run(&self.rig.hal.world.memory, cqn, self.entry, &minis);
        }
    }

    /// The device completes the receives of a chunk, in the order of the list.
    fn complete_shared(&mut self) {
        let mut entry = self.entry;
        let (queue, pair) = &self.shared;
        entry.set_opcode(CqeOpcode::ResponderSend).set_byte_count(64);
        entry.set_qpn(pair.qpn()).set_user_index(self.rig.user_index(pair));
        for _ in 0..CHUNK {
            entry.set_wqe_counter(self.head);
            self.rig.complete_receive(entry);
            self.head = self.rig.shared_bytes(queue, self.head).1;
        }
    }

    /// All queue pairs post the same number of requests, and the device completes one of each in turn.
    fn complete_in_turn(&mut self) {
        let each = (CHUNK / PAIRS) as u16;
        let request = WorkRequest::write(7, &self.slice, REMOTE);
        for (pair, _) in &mut self.turns {
            (0..each).for_each(|_| pair.post_send(&request).unwrap());
        }
        for counter in (0..each).map(|index| self.turned.wrapping_add(index)) {
            for (_, entry) in &mut self.turns {
                entry.set_wqe_counter(counter);
                self.rig.complete_send(*entry);
            }
        }
        self.turned = self.turned.wrapping_add(each);
    }

    /// Prepares the queues for a chunk.
    pub fn prepare(&mut self, row: Row) {
        match row {
            Row::Poll | Row::PollBatch | Row::PollCompressed => {
                self.run(Row::Write4KBatch, |work| work());
                let first = self.sent.wrapping_sub(CHUNK as u16);
                if row == Row::PollCompressed {
                    return self.complete_in_runs(first);
                }
                (0..CHUNK as u16).for_each(|i| self.complete(first.wrapping_add(i)));
            }
            Row::PollReceive | Row::PollReceiveBatch => {
                self.run(Row::ReceiveBatch, |work| work());
                (0..CHUNK).for_each(|_| self.complete_receive());
            }
            Row::PollTurns | Row::PollTurnsBatch => self.complete_in_turn(),
            Row::SharedPoll | Row::SharedPollBatch => {
                self.run(Row::SharedReceiveBatch, |work| work());
                self.complete_shared();
            }
            Row::PollEmpty if self.sent == 0 => {
                self.run(Row::Write4KBatch, |work| work());
                self.retire(Row::Write4KBatch);
            }
            _ => (),
        }
    }

    /// Runs the chunk and returns how long it took by `clock`. The requests were built before.
    pub fn run<T>(&mut self, row: Row, clock: impl FnOnce(&mut dyn FnMut()) -> T) -> T {
        let slice = self.slice;
        let write8 = [WorkRequest::write_inline(7, b"8 bytes!", REMOTE); BATCH];
        let write4k = [WorkRequest::write(7, &slice, REMOTE).signalled(false); BATCH];
        let receives = [ReceiveRequest::new(7, &slice); BATCH];
        let sends = [WorkRequest::send_inline(7, &[7; 64]); BATCH];
        let reads = [WorkRequest::read(7, &slice, REMOTE).signalled(false); BATCH];
        let adds = [WorkRequest::fetch_add(7, &self.word, REMOTE, 1).signalled(false); BATCH];
        let Rig { pair, send, receive, .. } = &mut self.rig;
        let queue = &mut self.shared.0;
        let taken = match row {
            Row::Send64 => clock(&mut || timed_send(pair, &sends[0])),
            Row::Send64Batch => clock(&mut || timed_batch_of_sends(pair, &sends)),
            Row::Read4K => clock(&mut || timed_send(pair, &reads[0])),
            Row::Read4KBatch => clock(&mut || timed_batch_of_sends(pair, &reads)),
            Row::FetchAdd => clock(&mut || timed_send(pair, &adds[0])),
            Row::FetchAddBatch => clock(&mut || timed_batch_of_sends(pair, &adds)),
            Row::Write8 => clock(&mut || timed_send(pair, &write8[0])),
            Row::Write8Batch => clock(&mut || timed_batch_of_sends(pair, &write8)),
            Row::Write4K => clock(&mut || timed_send(pair, &write4k[0])),
            Row::Write4KBatch => clock(&mut || timed_batch_of_sends(pair, &write4k)),
            Row::Receive => clock(&mut || timed_receive(pair, &receives[0])),
            Row::ReceiveBatch => clock(&mut || timed_batch_of_receives(pair, &receives)),
            Row::MakeWrite8 => clock(&mut || timed_making_of_writes(pair, b"8 bytes!")),
            Row::MakeSend64 => clock(&mut || timed_making_of_sends(pair, &[7; 64])),
            Row::Poll | Row::PollTurns => clock(&mut || timed_poll(send)),
            Row::PollBatch | Row::PollCompressed | Row::PollTurnsBatch => {
                clock(&mut || timed_batch_of_polls(send))
            }
            Row::PollReceive => clock(&mut || timed_poll(receive)),
            Row::PollReceiveBatch => clock(&mut || timed_batch_of_polls(receive)),
            Row::PollEmpty => clock(&mut || timed_empty_poll(send)),
            Row::SharedReceive => clock(&mut || timed_shared_receive(queue, &receives[0])),
            Row::SharedReceiveBatch => clock(&mut || timed_batch_of_shared_receives(queue, &receives)),
            Row::SharedPoll => clock(&mut || timed_poll(receive)),
            Row::SharedPollBatch => clock(&mut || timed_batch_of_polls(receive)),
        };
        let blocks = row.blocks().unwrap_or(0);
        self.sent = self.sent.wrapping_add(blocks * CHUNK as u16);
        taken
    }

    /// Retires what the chunk left.
    pub fn retire(&mut self, row: Row) {
        if let Some(blocks) = row.blocks() {
            self.complete(self.sent.wrapping_sub(blocks));
            // One completion retires all signalled requests here; nobody checks which it is.
            assert!(self.rig.send.poll_one().unwrap().is_some());
        }
        match row {
            Row::Receive | Row::ReceiveBatch => (0..CHUNK).for_each(|_| self.complete_receive()),
            Row::SharedReceive | Row::SharedReceiveBatch => self.complete_shared(),
            _ => return self.check_empty(),
        }
        let mut found = [WorkCompletion::EMPTY; CHUNK];
        assert_eq!(self.rig.receive.poll(&mut found), Ok(CHUNK));
        assert!(found.iter().all(|completion| completion.is_success() && completion.wr_id == 7));
        self.check_empty();
    }

    fn check_empty(&self) {
        assert_eq!(self.shared.0.outstanding(), 0);
        assert_eq!((self.rig.pair.sends_outstanding(), self.rig.pair.receives_outstanding()), (0, 0));
        assert!(self.turns.iter().all(|(pair, _)| pair.sends_outstanding() == 0));
    }
}

/// A queue pair that completes in turn with others, and the entry of its completions, which is like `entry`.
fn in_turn(rig: &Rig, mut entry: CompletionEntry) -> (QueuePair<Handle>, CompletionEntry) {
    let pair = rig.another(64);
    entry.set_qpn(pair.qpn()).set_user_index(rig.user_index(&pair));
    (pair, entry)
}

#[inline(never)]
fn timed_send(pair: &mut QueuePair<Handle>, request: &WorkRequest<'_>) {
    for _ in 0..CHUNK {
        pair.post_send(black_box(request)).unwrap();
    }
}

/// The compiler must not know the bytes or their number.
#[inline(never)]
fn timed_making_of_writes(pair: &mut QueuePair<Handle>, bytes: &[u8]) {
    for id in 0..CHUNK as u64 {
        pair.post_send(&WorkRequest::write_inline(id, black_box(bytes), REMOTE)).unwrap();
    }
}

/// As [`timed_making_of_writes`].
#[inline(never)]
fn timed_making_of_sends(pair: &mut QueuePair<Handle>, bytes: &[u8]) {
    for id in 0..CHUNK as u64 {
        pair.post_send(&WorkRequest::send_inline(id, black_box(bytes))).unwrap();
    }
}

#[inline(never)]
fn timed_batch_of_sends(pair: &mut QueuePair<Handle>, requests: &[WorkRequest<'_>; BATCH]) {
    for _ in 0..CHUNK / BATCH {
        let mut batch = pair.send_batch();
        for request in black_box(requests) {
            batch.post(request).unwrap();
        }
        batch.ring();
    }
}

#[inline(never)]
fn timed_receive(pair: &mut QueuePair<Handle>, request: &ReceiveRequest<'_>) {
    for _ in 0..CHUNK {
        pair.post_receive(black_box(request)).unwrap();
    }
}

#[inline(never)]
fn timed_batch_of_receives(pair: &mut QueuePair<Handle>, requests: &[ReceiveRequest<'_>; BATCH]) {
    for _ in 0..CHUNK / BATCH {
        let mut batch = pair.receive_batch();
        for request in black_box(requests) {
            batch.post(request).unwrap();
        }
        batch.ring();
    }
}

#[inline(never)]
fn timed_shared_receive(queue: &mut SharedReceiveQueue<Handle>, request: &ReceiveRequest<'_>) {
    for _ in 0..CHUNK {
        queue.post_receive(black_box(request)).unwrap();
    }
}

#[inline(never)]
fn timed_batch_of_shared_receives(
    queue: &mut SharedReceiveQueue<Handle>,
    requests: &[ReceiveRequest<'_>; BATCH],
) {
    for _ in 0..CHUNK / BATCH {
        let mut batch = queue.receive_batch();
        for request in black_box(requests) {
            batch.post(request).unwrap();
        }
        batch.ring();
    }
}

#[inline(never)]
fn timed_poll(queue: &mut CompletionQueue<Handle>) {
    let mut found = [WorkCompletion::EMPTY];
    for _ in 0..CHUNK {
        assert_eq!(queue.poll(&mut found), Ok(1));
        black_box(&found);
    }
}

#[inline(never)]
fn timed_batch_of_polls(queue: &mut CompletionQueue<Handle>) {
    let mut found = [WorkCompletion::EMPTY; BATCH];
    for _ in 0..CHUNK / BATCH {
        assert_eq!(queue.poll(&mut found), Ok(BATCH));
        black_box(&found);
    }
}

#[inline(never)]
fn timed_empty_poll(queue: &mut CompletionQueue<Handle>) {
    let mut found = [WorkCompletion::EMPTY];
    for _ in 0..CHUNK {
        assert_eq!(queue.poll(&mut found), Ok(0));
        black_box(&found);
    }
}

//! The workload of the data-path measurements, for the clock and for the instruction counter alike.
//!
//! Plain memory stands for rings and UAR; a fake device writes completions and reads nothing. One reliable connection in
//! RTS: 1024 basic blocks of send queue, 1024 receives of one slice, two completion queues of 1024 entries, 220 bytes
//! inline, a BlueFlame register. A chunk is 256 work requests; what retires them is outside the measured part. Requests
//! are made once and posted again, read through `black_box` each time; all checks of the driver are in place.
#![allow(dead_code, reason = "each user takes its own part")]

#[path = "../../../driver/tests/support/mod.rs"]
pub mod support;

use bareverbs::{
    CompletionQueue, MemorySlice, QueuePair, ReceiveRequest, RemoteSlice, SharedReceiveQueue, WorkCompletion,
    WorkRequest,
};
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::CqeOpcode;
use std::hint::black_box;
use support::objects::{Handle, Rig, Shape};

/// Work requests of a chunk.
pub const CHUNK: usize = 256;
/// Work requests of a batch.
pub const BATCH: usize = 32;

const REMOTE: RemoteSlice = RemoteSlice { address: 0x7f00_0000_1000, rkey: Mkey::new(0x1234_5600) };

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// RDMA WRITE of 8 bytes inline, signalled, one call each.
    Write8,
    /// The same, 32 a doorbell.
    Write8Batch,
    /// RDMA WRITE of 4 KiB from one slice, not signalled, one call each.
    Write4K,
    /// The same, 32 a doorbell.
    Write4KBatch,
    /// A receive of one slice, one call each.
    Receive,
    /// The same, 32 a doorbell record.
    ReceiveBatch,
    /// A requester's success, one call each.
    Poll,
    /// The same, 32 a call.
    PollBatch,
    /// An empty completion queue.
    PollEmpty,
    /// A receive of one slice into a shared receive queue, one call each.
    SharedReceive,
    /// The same, 32 a doorbell record.
    SharedReceiveBatch,
    /// A receive of a shared receive queue that completed, one call each.
    SharedPoll,
    /// The same, 32 a call.
    SharedPollBatch,
}

impl Row {
    /// All rows with their name and what libmlx5 needs: instructions without locks, nanoseconds without locks.
    ///
    /// For shared receive queues nobody measured the peer: its figures are those of queues of one queue pair.
    pub const ALL: [(Self, &'static str, u32, f64); 13] = [
        (Self::Write8, "post_send write 8 B inline x1", 379, 14.4),
        (Self::Write8Batch, "post_send write 8 B inline x32", 221, 8.52),
        (Self::Write4K, "post_send write 4 KiB x1", 349, 13.4),
        (Self::Write4KBatch, "post_send write 4 KiB x32", 188, 7.14),
        (Self::Receive, "post_receive x1", 129, 4.68),
        (Self::ReceiveBatch, "post_receive x32", 73, 2.27),
        (Self::Poll, "poll requester x1", 179, 16.3),
        (Self::PollBatch, "poll requester x32", 108, 11.5),
        (Self::PollEmpty, "poll empty", 81, 3.11),
        (Self::SharedReceive, "SRQ receive: post x1", 129, 4.68),
        (Self::SharedReceiveBatch, "SRQ receive: post x32", 73, 2.27),
        (Self::SharedPoll, "SRQ receive: poll x1", 241, 17.1),
        (Self::SharedPollBatch, "SRQ receive: poll x32", 170, 14.5),
    ];
}

/// The queue pair, and where it is.
pub struct Bench {
    pub rig: Rig,
    entries: u64,
    entry: CompletionEntry,
    sent: u16,
    received: u16,
    slice: [MemorySlice; 1],
    /// A shared receive queue, and a queue pair that receives from it.
    shared: (SharedReceiveQueue<Handle>, QueuePair<Handle>),
    /// The entry that the device takes next.
    head: u16,
}

impl Bench {
    pub fn new() -> Self {
        let shape =
            Shape { sends: 256, receives: 1024, slices: 1, inline: 220, entries: 1024, blue_flame: true };
        let rig = Rig::new(shape);
        let entry = rig.entry(CqeOpcode::Requester, 0);
        let slice = [rig.region.slice(0, 4096).unwrap()];
        let shared = rig.share(1023);
        Self { rig, entries: 0, entry, sent: 0, received: 0, slice, shared, head: 0 }
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

    /// The device completes the receives of a chunk, in the order of the list.
    fn complete_shared(&mut self) {
        let mut entry = self.entry;
        let (queue, pair) = &self.shared;
        let user_index = self.rig.hal.firmware().pairs[&pair.qpn().value()].context.user_index();
        entry.set_opcode(CqeOpcode::ResponderSend).set_byte_count(64);
        entry.set_qpn(pair.qpn()).set_user_index(user_index);
        for _ in 0..CHUNK {
            entry.set_wqe_counter(self.head);
            self.rig.complete_receive(entry);
            self.head = self.rig.shared_bytes(queue, self.head).1;
        }
    }

    /// Makes the queues ready for a chunk.
    pub fn prepare(&mut self, row: Row) {
        if let Row::SharedPoll | Row::SharedPollBatch = row {
            self.run(Row::SharedReceiveBatch, |work| work());
            self.complete_shared();
        }
        if let Row::Poll | Row::PollBatch = row {
            self.run(Row::Write4KBatch, |work| work());
            let first = self.sent.wrapping_sub(CHUNK as u16);
            (0..CHUNK as u16).for_each(|i| self.complete(first.wrapping_add(i)));
        }
    }

    /// Runs the chunk and says how long it took by `clock`. Requests are made before.
    pub fn run<T>(&mut self, row: Row, clock: impl FnOnce(&mut dyn FnMut()) -> T) -> T {
        let slice = self.slice;
        let write8 = [WorkRequest::write_inline(7, b"8 bytes!", REMOTE); BATCH];
        let write4k = [WorkRequest::write(7, &slice, REMOTE).signalled(false); BATCH];
        let receives = [ReceiveRequest::new(7, &slice); BATCH];
        let Rig { pair, send, receive, .. } = &mut self.rig;
        let queue = &mut self.shared.0;
        let taken = match row {
            Row::Write8 => clock(&mut || timed_send(pair, &write8[0])),
            Row::Write8Batch => clock(&mut || timed_batch_of_sends(pair, &write8)),
            Row::Write4K => clock(&mut || timed_send(pair, &write4k[0])),
            Row::Write4KBatch => clock(&mut || timed_batch_of_sends(pair, &write4k)),
            Row::Receive => clock(&mut || timed_receive(pair, &receives[0])),
            Row::ReceiveBatch => clock(&mut || timed_batch_of_receives(pair, &receives)),
            Row::Poll => clock(&mut || timed_poll(send)),
            Row::PollBatch => clock(&mut || timed_batch_of_polls(send)),
            Row::PollEmpty => clock(&mut || timed_empty_poll(send)),
            Row::SharedReceive => clock(&mut || timed_shared_receive(queue, &receives[0])),
            Row::SharedReceiveBatch => clock(&mut || timed_batch_of_shared_receives(queue, &receives)),
            Row::SharedPoll => clock(&mut || timed_poll(receive)),
            Row::SharedPollBatch => clock(&mut || timed_batch_of_polls(receive)),
        };
        if matches!(row, Row::Write8 | Row::Write8Batch | Row::Write4K | Row::Write4KBatch) {
            self.sent = self.sent.wrapping_add(CHUNK as u16);
        }
        taken
    }

    /// Retires what the chunk left.
    pub fn retire(&mut self, row: Row) {
        match row {
            Row::Write8 | Row::Write8Batch | Row::Write4K | Row::Write4KBatch => {
                self.complete(self.sent.wrapping_sub(1));
                assert!(self.rig.send.poll_one().unwrap().is_some());
            }
            Row::Receive | Row::ReceiveBatch => {
                (0..CHUNK).for_each(|_| self.complete_receive());
                let mut found = [WorkCompletion::EMPTY; CHUNK];
                assert_eq!(self.rig.receive.poll(&mut found), Ok(CHUNK));
            }
            Row::SharedReceive | Row::SharedReceiveBatch => {
                self.complete_shared();
                let mut found = [WorkCompletion::EMPTY; CHUNK];
                assert_eq!(self.rig.receive.poll(&mut found), Ok(CHUNK));
                assert!(found.iter().all(|completion| completion.is_success() && completion.wr_id == 7));
            }
            Row::Poll | Row::PollBatch | Row::PollEmpty | Row::SharedPoll | Row::SharedPollBatch => (),
        }
        assert_eq!(self.shared.0.outstanding(), 0);
        assert_eq!((self.rig.pair.sends_outstanding(), self.rig.pair.receives_outstanding()), (0, 0));
    }
}

#[inline(never)]
fn timed_send(pair: &mut QueuePair<Handle>, request: &WorkRequest<'_>) {
    for _ in 0..CHUNK {
        pair.post_send(black_box(request)).unwrap();
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

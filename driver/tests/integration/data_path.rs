//! Posting and polling against plain memory: every byte that goes to the device is decoded with the layouts of the PRM,
//! every completion is one that the test wrote.

use crate::support::objects::{Rig, Shape};
use bareverbs_core::completion_queue::PollError;
use bareverbs_core::completion_queue::{Arming, Notify};
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::{
    MemorySlice, ReceiveRequest, RemoteSlice, WorkCompletion, WorkCompletionOpcode as Opcode, WorkRequest,
};
use bareverbs_core::{QueuePairBuilder, WorkCompletionStatus as Status};
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::{CqeOpcode, CqeSyndrome, WqeOpcode};
use bareverbs_prm::wqe::{
    AtomicSegment, ControlSegment, DataSegment, INVALID_LKEY, InlineHeader, RemoteAddressSegment,
    completion_mode, strom_opmod,
};
use zerocopy::FromBytes;

const REMOTE: RemoteSlice = RemoteSlice::from_raw(0x1122_3344_5566_7788, 1 << 20, Mkey::new(0xaabb_ccdd));

fn read<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).unwrap_or_else(|_| panic!("too short")).0
}

#[test]
fn inline_write() {
    let mut rig = Rig::new(Shape::default());
    rig.pair.post_send(&WorkRequest::write_inline(7, b"8 bytes!", REMOTE)).unwrap();
    let bytes = rig.send_bytes(0, 64);
    let control: ControlSegment = read(&bytes);
    assert_eq!((control.opcode(), control.wqe_index(), control.ds()), (WqeOpcode::RdmaWrite, 0, 3));
    assert_eq!((control.qpn(), control.completion_mode()), (rig.pair.qpn(), completion_mode::ALWAYS));
    let remote: RemoteAddressSegment = read(&bytes[16..]);
    assert_eq!((remote.address(), remote.rkey()), (REMOTE.address, REMOTE.rkey));
    let header: InlineHeader = read(&bytes[32..]);
    assert_eq!((header.inline(), header.byte_count(), &bytes[36..44]), (true, 8, &b"8 bytes!"[..]));
    assert_eq!(rig.record(), (0, 1));
    // A single small request is written to the BlueFlame register as a whole, halves in turn.
    assert_eq!(rig.hal.burst(0x10a00)[..], bytes);
    rig.pair.post_send(&WorkRequest::write_inline(8, b"more", REMOTE)).unwrap();
    assert_eq!(rig.hal.burst(0x10b00)[..], rig.send_bytes(1, 64));
}

#[test]
fn without_blue_flame_the_doorbell_is_the_start_of_the_last_entry() {
    let mut rig = Rig::new(Shape { blue_flame: false, ..Shape::default() });
    rig.pair.post_send(&WorkRequest::send_inline(1, b"a")).unwrap();
    let first: [u8; 8] = rig.send_bytes(0, 8).try_into().unwrap();
    assert_eq!(rig.hal.register64(0x10800), u64::from_be_bytes(first));
    let mut batch = rig.pair.send_batch();
    (2..5).for_each(|id| batch.post(&WorkRequest::send_inline(id, b"b")).unwrap());
    batch.ring();
    let last: [u8; 8] = rig.send_bytes(3, 8).try_into().unwrap();
    assert_eq!(rig.hal.register64(0x10800), u64::from_be_bytes(last));
    assert_eq!(rig.record(), (0, 4));
}

#[test]
fn a_batch_rings_once_and_dropping_it_rings() {
    let mut rig = Rig::new(Shape::default());
    let mut batch = rig.pair.send_batch();
    batch.post(&WorkRequest::send_inline(1, b"a")).unwrap();
    batch.post(&WorkRequest::send_inline(2, b"b")).unwrap();
    assert_eq!(batch.posted(), 2);
    drop(batch);
    assert_eq!(rig.record(), (0, 2));
    drop(rig.pair.send_batch());
    assert_eq!(rig.record(), (0, 2), "an empty batch rings nothing");
}

#[test]
fn slices_immediate_fence_and_solicited() {
    let mut rig = Rig::new(Shape { slices: 3, ..Shape::default() });
    let slices = [
        rig.region.slice(0, 100).unwrap(),
        rig.region.slice(4096, 5).unwrap(),
        rig.region.slice(9, 1).unwrap(),
    ];
    let request = WorkRequest::send(1, &slices).immediate(0xcafe_f00d).solicited().fence().signalled(false);
    rig.pair.post_send(&request).unwrap();
    let bytes = rig.send_bytes(0, 64);
    let control: ControlSegment = read(&bytes);
    assert_eq!((control.opcode(), control.immediate(), control.ds()), (WqeOpcode::SendImm, 0xcafe_f00d, 4));
    assert_eq!((control.solicited(), control.fence_mode(), control.completion_mode()), (true, 2, 0));
    for (slice, at) in slices.iter().zip([16, 32, 48]) {
        let data: DataSegment = read(&bytes[at..]);
        assert_eq!(
            (data.byte_count(), data.lkey(), data.address()),
            (slice.length, slice.lkey, slice.address)
        );
    }
}

#[test]
fn reads_atomics_and_rpc() {
    let mut rig = Rig::new(Shape { inline: 64, ..Shape::default() });
    let eight = [rig.region.slice(64, 8).unwrap()];
    rig.pair.post_send(&WorkRequest::read(1, &eight, REMOTE)).unwrap();
    rig.pair.post_send(&WorkRequest::compare_swap(2, &eight, REMOTE, 3, 4)).unwrap();
    rig.pair.post_send(&WorkRequest::fetch_add(3, &eight, REMOTE, 5)).unwrap();
    rig.pair.post_send(&WorkRequest::rpc_params(4, 0x77, Mkey::new(9), &[1; 32])).unwrap();
    let entry = |counter: u32| rig.send_bytes(counter, 64);
    assert_eq!(read::<ControlSegment>(&entry(0)).opcode(), WqeOpcode::RdmaRead);
    assert_eq!(read::<ControlSegment>(&entry(1)).opcode(), WqeOpcode::AtomicCompareSwap);
    let atomic: AtomicSegment = read(&entry(1)[32..]);
    assert_eq!((atomic.swap_add(), atomic.compare()), (4, 3));
    assert_eq!(read::<DataSegment>(&entry(1)[48..]).address(), eight[0].address);
    assert_eq!(read::<AtomicSegment>(&entry(2)[32..]).swap_add(), 5);
    let control: ControlSegment = read(&entry(3));
    assert_eq!((control.opmod(), control.opcode()), (strom_opmod::RPC_PARAMS, WqeOpcode::RdmaWrite));
    let remote: RemoteAddressSegment = read(&entry(3)[16..]);
    assert_eq!((remote.address(), remote.rkey()), (0x77, Mkey::new(9)));
}

#[test]
fn long_entries_wrap_around_the_end_of_the_ring() {
    let mut rig = Rig::new(Shape { sends: 3, inline: 200, ..Shape::default() });
    let data: Vec<u8> = (0..200).collect();
    let mut counter = 0u16;
    for id in 0..40u64 {
        let length = 30 + (id as usize * 37) % 170;
        rig.pair.post_send(&WorkRequest::write_inline(id, &data[..length], REMOTE)).unwrap();
        let bytes = rig.send_bytes(counter as u32, 36 + length);
        let control: ControlSegment = read(&bytes);
        assert_eq!((control.wqe_index(), control.ds() as usize), (counter, 2 + (4 + length).div_ceil(16)));
        assert_eq!(&bytes[36..], &data[..length]);
        rig.complete_send(rig.entry(CqeOpcode::Requester, counter));
        counter += (control.ds() as u16).div_ceil(4);
        assert_eq!(rig.send.poll_one().unwrap().unwrap().wr_id, id);
        assert_eq!(rig.record().1, counter as u32);
    }
}

/// Sends `data` inline and checks every byte of the entry at `counter`; returns the basic blocks that it takes.
fn check_inline(rig: &mut Rig, counter: u16, data: &[u8], remote: bool) -> u16 {
    let id = 1000 + counter as u64;
    let request = match remote {
        true => WorkRequest::write_inline(id, data, REMOTE).immediate(0x0102_0304),
        false => WorkRequest::send_inline(id, data).immediate(0x0102_0304).solicited(),
    };
    rig.pair.post_send(&request).unwrap();
    let start = if remote { 32 } else { 16 };
    let bytes = rig.send_bytes(counter as u32, start + 4 + data.len());
    let control: ControlSegment = read(&bytes);
    let opcode = if remote { WqeOpcode::RdmaWriteImm } else { WqeOpcode::SendImm };
    assert_eq!((control.opcode(), control.wqe_index(), control.immediate()), (opcode, counter, 0x0102_0304));
    assert_eq!((control.solicited(), control.completion_mode()), (!remote, completion_mode::ALWAYS));
    assert_eq!(control.ds() as usize, (start + 4 + data.len()).div_ceil(16));
    if remote {
        let segment: RemoteAddressSegment = read(&bytes[16..]);
        assert_eq!((segment.address(), segment.rkey()), (REMOTE.address, REMOTE.rkey));
    }
    let header: InlineHeader = read(&bytes[start..]);
    assert_eq!((header.inline(), header.byte_count() as usize), (true, data.len()));
    assert_eq!(&bytes[start + 4..], data, "{} bytes at block {counter}", data.len());
    let blocks = (control.ds() as u16).div_ceil(4);
    assert_eq!(rig.record().1, (counter + blocks) as u32);
    rig.complete_send(rig.entry(CqeOpcode::Requester, counter));
    assert_eq!(rig.send.poll_one().unwrap().map(|done| done.wr_id), Some(id));
    blocks
}

#[test]
fn inline_data_of_every_length_at_every_place_of_the_ring() {
    let mut rig = Rig::new(Shape { sends: 2, inline: 300, ..Shape::default() });
    let data: Vec<u8> = (0..300u32).map(|at| (at * 7 + 1) as u8).collect();
    let mut counter = 0;
    for length in 1..=300 {
        for remote in [false, true] {
            counter += check_inline(&mut rig, counter, &data[..length], remote);
        }
    }
}

#[test]
fn a_long_entry_touches_no_block_but_its_own() {
    let mut rig = Rig::new(Shape { sends: 8, inline: 200, ..Shape::default() });
    let size = 1u16 << rig.hal.firmware().pairs[&rig.pair.qpn().value()].context.log_sq_size();
    for counter in 0..size {
        rig.pair.post_send(&WorkRequest::write_inline(9, b"was here before", REMOTE)).unwrap();
        rig.complete_send(rig.entry(CqeOpcode::Requester, counter));
        assert!(rig.send.poll_one().unwrap().is_some());
    }
    let before = rig.send_bytes(0, size as usize * 64);
    // 44 bytes fill a block to the end, 45 need one byte of the next, 108 fill two.
    for (length, blocks, at) in [(44, 1, 0), (45, 2, 1), (108, 2, 3), (109, 3, 5)] {
        rig.pair.post_send(&WorkRequest::send_inline(20, &vec![0xee; length])).unwrap();
        let after = rig.send_bytes(0, size as usize * 64);
        assert_eq!(after[(at + blocks) * 64..], before[(at + blocks) * 64..], "{length} bytes");
        assert_eq!(rig.record().1 as usize, size as usize + at + blocks);
    }
}

#[test]
fn a_batch_mixes_forms_and_knows_what_a_request_needs() {
    let mut rig = Rig::new(Shape { sends: 4, inline: 100, slices: 1, ..Shape::default() });
    let word = [rig.region.slice(64, 8).unwrap()];
    let mut batch = rig.pair.send_batch();
    batch.post(&WorkRequest::send_inline(1, &[1; 100])).unwrap();
    batch.post(&WorkRequest::nop(2)).unwrap();
    batch.post(&WorkRequest::fetch_add(3, &word, REMOTE, 1)).unwrap();
    batch.post(&WorkRequest::write_inline(4, &[4; 90], REMOTE)).unwrap();
    batch.post(&WorkRequest::send(5, &word)).unwrap();
    assert_eq!(batch.post(&WorkRequest::send_inline(6, &[0; 101])), too_long(101, 100));
    drop(batch);
    let counters = [0, 2, 3, 4, 6];
    assert_eq!(rig.record(), (0, 7));
    for (counter, id) in counters.into_iter().zip(1..) {
        rig.complete_send(rig.entry(CqeOpcode::Requester, counter));
        assert_eq!(rig.send.poll_one().unwrap().map(|done| done.wr_id), Some(id));
    }
    let full = (0..).find_map(|id| rig.pair.post_send(&WorkRequest::send_inline(id, &[0; 100])).err());
    assert!(matches!(full, Some(PostError::QueueFull { needed: 2, .. })), "{full:?}");
}

fn too_long(length: usize, limit: u32) -> Result<(), PostError> {
    Err(PostError::InlineTooLong { length, limit })
}

#[test]
fn atomics_are_one_block_and_only_of_a_word() {
    let mut rig = Rig::new(Shape { blue_flame: false, ..Shape::default() });
    let word = [rig.region.slice(64, 8).unwrap()];
    rig.pair.post_send(&WorkRequest::compare_swap(1, &word, REMOTE, 3, 4).fence()).unwrap();
    rig.pair.post_send(&WorkRequest::fetch_add(2, &word, REMOTE, 5).signalled(false)).unwrap();
    for (counter, opcode, swap_add, compare) in
        [(0, WqeOpcode::AtomicCompareSwap, 4, 3), (1, WqeOpcode::AtomicFetchAdd, 5, 0)]
    {
        let bytes = rig.send_bytes(counter, 64);
        let control: ControlSegment = read(&bytes);
        assert_eq!((control.opcode(), control.ds(), control.wqe_index()), (opcode, 4, counter as u16));
        assert_eq!((control.fence_mode() == 2, control.completion_mode() == 0), (counter == 0, counter == 1));
        assert_eq!(read::<RemoteAddressSegment>(&bytes[16..]).rkey(), REMOTE.rkey);
        let atomic: AtomicSegment = read(&bytes[32..]);
        assert_eq!((atomic.swap_add(), atomic.compare()), (swap_add, compare));
        let data: DataSegment = read(&bytes[48..]);
        assert_eq!((data.byte_count(), data.lkey(), data.address()), (8, word[0].lkey, word[0].address));
    }
    let seven = [rig.region.slice(64, 7).unwrap()];
    let error = rig.pair.post_send(&WorkRequest::compare_swap(3, &seven, REMOTE, 1, 2)).unwrap_err();
    assert_eq!(error, PostError::SliceLength { index: 0, length: 7 });
    assert_eq!(rig.record(), (0, 2));
}

#[test]
fn refused_requests_change_nothing() {
    let mut rig = Rig::new(Shape { sends: 2, ..Shape::default() });
    let before = rig.send_bytes(0, 128);
    let slice = rig.region.slice(0, 8).unwrap();
    let empty = MemorySlice::from_raw(slice.address, 0, slice.lkey);
    let huge = MemorySlice::from_raw(slice.address, (1 << 30) + 1, slice.lkey);
    let (two, none, long) = ([slice; 2], [empty], [huge]);
    let cases = [
        (WorkRequest::send(1, &two), PostError::TooManySlices { count: 2, limit: 1 }),
        (WorkRequest::send_inline(1, &[0; 29]), PostError::InlineTooLong { length: 29, limit: 28 }),
        (WorkRequest::send(1, &none), PostError::SliceLength { index: 0, length: 0 }),
        (WorkRequest::send(1, &long), PostError::MessageTooLong { length: (1 << 30) + 1, limit: 1 << 30 }),
    ];
    for (request, expected) in cases {
        let error = rig.pair.post_send(&request).unwrap_err();
        assert_eq!(error, expected);
        assert!(!error.to_string().is_empty());
    }
    assert_eq!((rig.send_bytes(0, 128), rig.record()), (before, (0, 0)));
    let nine = [rig.region.slice(0, 9).unwrap()];
    let error = rig.pair.post_send(&WorkRequest::fetch_add(1, &nine, REMOTE, 1)).unwrap_err();
    assert_eq!(error, PostError::SliceLength { index: 0, length: 9 });
    rig.region.slice(65536, 1).unwrap_err();
    rig.region.slice(usize::MAX, 2).unwrap_err();
    let full = (0..).find_map(|id| rig.pair.post_send(&WorkRequest::send_inline(id, b"x")).err());
    assert_eq!(full, Some(PostError::QueueFull { needed: 1, size: 2 }));
    let receive = ReceiveRequest::new(1, &none);
    assert_eq!(rig.pair.post_receive(&receive).unwrap_err(), PostError::SliceLength { index: 0, length: 0 });
}

#[test]
fn receives_and_their_completions() {
    let mut rig = Rig::new(Shape { slices: 3, ..Shape::default() });
    let slices = [rig.region.slice(0, 64).unwrap(), rig.region.slice(64, 32).unwrap()];
    rig.pair.post_receive(&ReceiveRequest::new(10, &slices)).unwrap();
    let mut batch = rig.pair.receive_batch();
    (11..14).for_each(|id| batch.post(&ReceiveRequest::new(id, &slices[..1])).unwrap());
    batch.ring();
    assert_eq!(rig.record(), (4, 0));
    let bytes = rig.receive_bytes(0);
    assert_eq!(bytes.len(), 64, "three slices take four segments");
    assert_eq!(read::<DataSegment>(&bytes[16..]).byte_count(), 32);
    assert_eq!(read::<DataSegment>(&bytes[32..]).lkey(), INVALID_LKEY);
    let mut entry = rig.entry(CqeOpcode::ResponderSend, 0);
    entry.set_byte_count(90);
    rig.complete_receive(entry);
    let mut entry = rig.entry(CqeOpcode::ResponderWriteImmediate, 1);
    entry.set_immediate(0xdead_beef).set_byte_count(4096);
    rig.complete_receive(entry);
    rig.complete_receive(rig.error(CqeOpcode::ResponderError, 2, CqeSyndrome::LocalLength));
    let mut found = [WorkCompletion::EMPTY; 8];
    assert_eq!(rig.receive.poll(&mut found), Ok(3));
    assert_eq!((found[0].wr_id, found[0].opcode, found[0].byte_count), (10, Opcode::Receive, 90));
    assert_eq!((found[0].immediate, found[0].status), (None, Status::Success));
    assert_eq!((found[1].wr_id, found[1].opcode), (11, Opcode::ReceiveRdmaWithImmediate));
    assert_eq!((found[1].immediate, found[1].byte_count), (Some(0xdead_beef), 4096));
    assert_eq!((found[2].wr_id, found[2].status), (12, Status::Failed(CqeSyndrome::LocalLength)));
    assert_eq!(rig.pair.receives_outstanding(), 1);
}

/// Posts receives `ids` of one slice.
fn post_receives(rig: &mut Rig, ids: std::ops::Range<u64>) {
    let slice = [rig.region.slice(0, 64).unwrap()];
    ids.for_each(|id| rig.pair.post_receive(&ReceiveRequest::new(id, &slice)).unwrap());
}

#[test]
fn receives_of_every_kind_one_by_one_and_many_at_once() {
    for at_once in [1, 3, 16] {
        let mut rig = Rig::new(Shape { receives: 16, entries: 16, ..Shape::default() });
        let mut done = 0u64;
        // More than a pass of both rings.
        for _ in 0..7 {
            post_receives(&mut rig, done..done + 5);
            for (counter, opcode) in (done as u16..).zip([
                CqeOpcode::ResponderSend,
                CqeOpcode::ResponderSendImmediate,
                CqeOpcode::ResponderWriteImmediate,
                CqeOpcode::ResponderSendInvalidate,
                CqeOpcode::ResponderSend,
            ]) {
                let mut entry = rig.entry(opcode, counter);
                entry.set_immediate(0x1000 + counter as u32).set_byte_count(counter as u32 + 1);
                entry.set_solicited(counter % 2 == 0);
                rig.complete_receive(entry);
            }
            let mut found = vec![];
            while found.len() < 5 {
                let mut some = vec![WorkCompletion::EMPTY; at_once];
                let count = rig.receive.poll(&mut some).unwrap();
                assert!(count > 0);
                found.extend_from_slice(&some[..count]);
            }
            let kinds = [
                Opcode::Receive,
                Opcode::Receive,
                Opcode::ReceiveRdmaWithImmediate,
                Opcode::ReceiveWithInvalidate,
                Opcode::Receive,
            ];
            for (index, (completion, kind)) in found.iter().zip(kinds).enumerate() {
                let id = done + index as u64;
                assert_eq!((completion.wr_id, completion.opcode, completion.qpn), (id, kind, rig.pair.qpn()));
                assert_eq!((completion.byte_count, completion.is_success()), (id as u32 + 1, true));
                assert_eq!(completion.immediate, (1..4).contains(&index).then_some(0x1000 + id as u32));
            }
            done += 5;
            assert_eq!((rig.pair.receives_outstanding(), rig.receive.poll_one()), (0, Ok(None)));
        }
    }
}

#[test]
fn an_error_between_successes_does_not_stop_later_completions() {
    let mut rig = Rig::new(Shape { receives: 16, ..Shape::default() });
    post_receives(&mut rig, 0..9);
    for counter in 0..9 {
        let entry = match counter {
            4 => rig.error(CqeOpcode::ResponderError, counter, CqeSyndrome::LocalLength),
            _ => rig.entry(CqeOpcode::ResponderSend, counter),
        };
        rig.complete_receive(entry);
    }
    let mut found = [WorkCompletion::EMPTY; 16];
    assert_eq!(rig.receive.poll(&mut found), Ok(9));
    for (id, completion) in (0..).zip(&found[..9]) {
        let status = if id == 4 { Status::Failed(CqeSyndrome::LocalLength) } else { Status::Success };
        assert_eq!((completion.wr_id, completion.status), (id, status));
        assert_eq!(completion.vendor_syndrome, if id == 4 { 0x88 } else { 0 });
    }
}

/// A batch of a cached queue pair goes on until the first error, and no further.
#[test]
fn errors_behind_successes_of_a_batch_are_reported() {
    let mut rig = Rig::new(Shape { sends: 16, entries: 16, ..Shape::default() });
    (0..10).for_each(|id| rig.pair.post_send(&WorkRequest::nop(id)).unwrap());
    let mut found = [WorkCompletion::EMPTY; 16];
    (0..4).for_each(|counter| rig.complete_send(rig.entry(CqeOpcode::Requester, counter)));
    assert_eq!(rig.send.poll(&mut found), Ok(4), "these cache the queue pair");
    (4..6).for_each(|counter| rig.complete_send(rig.entry(CqeOpcode::Requester, counter)));
    rig.complete_send(rig.error(CqeOpcode::RequesterError, 6, CqeSyndrome::RemoteAccess));
    (7..10).for_each(|counter| {
        rig.complete_send(rig.error(CqeOpcode::RequesterError, counter, CqeSyndrome::WorkRequestFlushed))
    });
    assert_eq!(rig.send.poll(&mut found), Ok(6));
    let statuses = found[..6].iter().map(|completion| (completion.wr_id, completion.status));
    let failed = |id| if id == 6 { CqeSyndrome::RemoteAccess } else { CqeSyndrome::WorkRequestFlushed };
    assert!(
        statuses
            .eq((4..10).map(|id| (id, if id < 6 { Status::Success } else { Status::Failed(failed(id)) })))
    );
}

#[test]
fn invalid_receive_completions_are_reported_on_every_path() {
    let mut rig = Rig::new(Shape::default());
    post_receives(&mut rig, 0..4);
    // The first makes the queue pair known; then one of the past, one of the future, and a stranger.
    for counter in [0, 0, 3, 1] {
        rig.complete_receive(rig.entry(CqeOpcode::ResponderSend, counter));
    }
    let mut stranger = rig.entry(CqeOpcode::ResponderSend, 2);
    stranger.set_user_index(0x12_3456);
    rig.complete_receive(stranger);
    rig.complete_receive(rig.entry(CqeOpcode::ResponderSend, 2));
    let mut found = [WorkCompletion::EMPTY; 8];
    let (qpn, refused) = (rig.pair.qpn(), |counter, qpn| Err(PollError::NotOutstanding { qpn, counter }));
    assert_eq!(rig.receive.poll(&mut found), Ok(1));
    assert_eq!(rig.receive.poll(&mut found), refused(0, qpn));
    assert_eq!(rig.receive.poll(&mut found), refused(3, qpn));
    assert_eq!(rig.receive.poll(&mut found), Ok(2));
    assert_eq!((found[0].wr_id, found[1].wr_id, rig.receive.discarded()), (1, 2, 1));
    assert_eq!(rig.pair.receives_outstanding(), 1);
    // Nothing is outstanding but the fourth: the same once more, one at a time.
    rig.complete_receive(rig.entry(CqeOpcode::ResponderSend, 2));
    rig.complete_receive(rig.entry(CqeOpcode::ResponderSend, 3));
    assert_eq!(rig.receive.poll_one(), Err(PollError::NotOutstanding { qpn, counter: 2 }));
    assert_eq!(rig.receive.poll_one().unwrap().map(|done| done.wr_id), Some(3));
}

#[test]
fn sends_and_receives_of_two_pairs_share_a_completion_queue() {
    let mut rig = Rig::new(Shape { entries: 64, ..Shape::default() });
    let build = |domain| {
        QueuePairBuilder::new(domain, &rig.send, &rig.send)
            .build()
            .unwrap()
            .connect(&crate::support::objects::peer(), Default::default())
            .unwrap()
    };
    let mut pairs = [build(&rig.domain), build(&rig.domain)];
    let slice = [rig.region.slice(0, 64).unwrap()];
    let mut expected = vec![];
    for (number, pair) in pairs.iter_mut().enumerate() {
        for id in 0..8 {
            pair.post_receive(&ReceiveRequest::new(200 + 10 * number as u64 + id, &slice)).unwrap();
            pair.post_send(&WorkRequest::nop(100 + 10 * number as u64 + id)).unwrap();
        }
    }
    // Runs and turns of every kind.
    let mut counters = [[0u16; 2]; 2];
    for (number, side, count) in [
        (0, 0, 3),
        (0, 1, 3),
        (1, 1, 2),
        (1, 0, 1),
        (0, 1, 1),
        (0, 0, 1),
        (1, 1, 6),
        (0, 1, 4),
        (1, 0, 7),
        (0, 0, 4),
    ] {
        let context = rig.hal.firmware().pairs[&pairs[number].qpn().value()].context;
        for _ in 0..count {
            let opcode = if side == 0 { CqeOpcode::Requester } else { CqeOpcode::ResponderSend };
            let mut entry = rig.entry(opcode, counters[number][side]);
            entry.set_qpn(pairs[number].qpn()).set_user_index(context.user_index());
            rig.complete_send(entry);
            expected.push(100 * (side as u64 + 1) + 10 * number as u64 + counters[number][side] as u64);
            counters[number][side] += 1;
        }
    }
    let mut found = vec![];
    for at_once in [1, 1, 1, 5, 2, 1, 1, 7, 64] {
        let mut some = vec![WorkCompletion::EMPTY; at_once];
        let count = rig.send.poll(&mut some).unwrap();
        found.extend(some[..count].iter().map(|completion| completion.wr_id));
    }
    assert_eq!((found, rig.send.poll_one()), (expected, Ok(None)));
    assert!(pairs.iter().all(|pair| (pair.sends_outstanding(), pair.receives_outstanding()) == (0, 0)));
}

#[test]
fn every_syndrome_is_a_status_and_flushes_follow() {
    let mut rig = Rig::new(Shape::default());
    for raw in 0..=255u8 {
        let counter = raw as u16 * 2;
        rig.pair.post_send(&WorkRequest::send_inline(raw as u64, b"x")).unwrap();
        rig.pair.post_send(&WorkRequest::nop(1000 + raw as u64)).unwrap();
        rig.complete_send(rig.error(CqeOpcode::RequesterError, counter, CqeSyndrome::from_raw(raw)));
        rig.complete_send(rig.error(CqeOpcode::RequesterError, counter + 1, CqeSyndrome::WorkRequestFlushed));
        let mut found = [WorkCompletion::EMPTY; 4];
        assert_eq!(rig.send.poll(&mut found), Ok(2));
        assert_eq!(
            (found[0].wr_id, found[0].status),
            (raw as u64, Status::Failed(CqeSyndrome::from_raw(raw)))
        );
        assert_eq!(
            (found[0].vendor_syndrome, found[0].opcode, found[0].qpn),
            (0x88, Opcode::Send, rig.pair.qpn())
        );
        assert_eq!((found[1].wr_id, found[1].opcode), (1000 + raw as u64, Opcode::Nop));
        assert!(!found[0].status.to_string().is_empty());
    }
}

#[test]
fn one_completion_retires_what_was_not_signalled() {
    let mut rig = Rig::new(Shape::default());
    for id in 0..7 {
        rig.pair.post_send(&WorkRequest::send_inline(id, b"x").signalled(false)).unwrap();
    }
    rig.pair.post_send(&WorkRequest::write_inline(7, b"x", REMOTE)).unwrap();
    assert!(rig.pair.post_send(&WorkRequest::nop(8)).is_err());
    assert_eq!(rig.send.poll_one(), Ok(None));
    rig.complete_send(rig.entry(CqeOpcode::Requester, 7));
    let done = rig.send.poll_one().unwrap().unwrap();
    assert_eq!((done.wr_id, done.opcode, done.is_success()), (7, Opcode::RdmaWrite, true));
    assert_eq!(rig.pair.sends_outstanding(), 0);
    rig.pair.post_send(&WorkRequest::nop(8)).unwrap();
}

#[test]
fn invalid_completions_are_reported_once_and_the_queue_continues() {
    let mut rig = Rig::new(Shape::default());
    (0..3).for_each(|id| rig.pair.post_send(&WorkRequest::nop(id)).unwrap());
    rig.complete_send(rig.entry(CqeOpcode::Requester, 0));
    rig.complete_send(rig.entry(CqeOpcode::Requester, 0));
    rig.complete_send(rig.entry(CqeOpcode::Requester, 5));
    rig.complete_send(rig.entry(CqeOpcode::ResizeCq, 1));
    let mut stranger = rig.entry(CqeOpcode::Requester, 1);
    stranger.set_user_index(0x12_3456);
    rig.complete_send(stranger);
    rig.complete_send(rig.entry(CqeOpcode::ResponderSend, 0));
    rig.complete_send(rig.entry(CqeOpcode::Requester, 2));
    let mut found = [WorkCompletion::EMPTY; 8];
    let qpn = rig.pair.qpn();
    assert_eq!(rig.send.poll(&mut found), Ok(1), "the true one is not lost");
    assert_eq!(rig.send.poll(&mut found), Err(PollError::NotOutstanding { qpn, counter: 0 }));
    assert_eq!(rig.send.poll(&mut found), Err(PollError::NotOutstanding { qpn, counter: 5 }));
    let unexpected = PollError::UnexpectedOpcode { opcode: CqeOpcode::ResizeCq, qpn };
    assert_eq!(rig.send.poll(&mut found), Err(unexpected));
    assert_eq!(rig.send.poll(&mut found), Ok(1));
    assert_eq!((found[0].wr_id, rig.send.discarded()), (2, 2), "a stranger and a receive of another queue");
}

#[test]
fn one_queue_serves_many_pairs_and_forgets_those_that_are_gone() {
    let mut rig = Rig::new(Shape { entries: 64, ..Shape::default() });
    let build = || {
        QueuePairBuilder::new(&rig.domain, &rig.send, &rig.receive)
            .build()
            .unwrap()
            .connect(&crate::support::objects::peer(), Default::default())
            .unwrap()
    };
    let mut pairs: Vec<_> = (0..10).map(|_| build()).collect();
    let entry = |pair: &bareverbs_core::QueuePair<_>, counter| {
        let context = rig.hal.firmware().pairs[&pair.qpn().value()].context;
        let mut entry = rig.entry(CqeOpcode::Requester, counter);
        entry.set_qpn(pair.qpn()).set_user_index(context.user_index());
        entry
    };
    for (i, pair) in pairs.iter_mut().enumerate() {
        pair.post_send(&WorkRequest::nop(100 + i as u64)).unwrap();
    }
    let entries: Vec<_> = pairs.iter().map(|pair| entry(pair, 0)).collect();
    entries.iter().for_each(|&entry| rig.complete_send(entry));
    drop(pairs.remove(3));
    let replacement = build();
    let mut found = [WorkCompletion::EMPTY; 16];
    assert_eq!(rig.send.poll(&mut found), Ok(9));
    let ids: Vec<u64> = found[..9].iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, [100, 101, 102, 104, 105, 106, 107, 108, 109]);
    assert_eq!((rig.send.discarded(), replacement.sends_outstanding()), (1, 0));
}

#[test]
fn the_consumer_index_and_the_arm_word() {
    let mut rig = Rig::new(Shape { entries: 4, ..Shape::default() });
    let ring = rig.hal.firmware().completion_queues[&rig.send.number().value()].clone();
    for round in 0..9u32 {
        rig.pair.post_send(&WorkRequest::nop(round as u64)).unwrap();
        rig.complete_send(rig.entry(CqeOpcode::Requester, round as u16));
        assert_eq!(rig.send.poll_one().unwrap().unwrap().wr_id, round as u64);
        let record = rig.hal.world.memory.read(ring.base + 4 * 64, 4);
        assert_eq!(record, (round + 1).to_be_bytes());
    }
    assert_eq!(rig.send.arm(Notify::Solicited), Arming::Armed);
    let arm = 1u64 << 56 | 9u64 << 32 | rig.send.number().value() as u64;
    assert_eq!(rig.hal.register64(0x10020), arm);
    rig.send.acknowledge_event();
    assert_eq!(rig.send.arm(Notify::Next), Arming::Armed);
    assert_eq!(rig.hal.register64(0x10020), 1u64 << 60 | 9u64 << 32 | rig.send.number().value() as u64);
}

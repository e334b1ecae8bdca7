//! The encoder produces the same bytes as the setters of the layouts, for any request.

extern crate std;

use super::head::QueuePairBits;
use super::receive::{ReceivePath, store_next_entry, store_segment};
use super::send::{EncodePath, SendEncoder, SendPlace};
use super::{MAX_SLICE, inline_segments, segment};
use crate::dma::{BLOCK, Dma};
use crate::memory_region::{MemorySlice, RemoteSlice};
use crate::test_memory::Boxed;
use crate::work_completion::WorkCompletionOpcode;
use crate::work_request::{MaskedCompareSwap, MaskedFetchAdd, ReceiveRequest, WorkRequest};
use bareverbs_prm::ids::{Mkey, Qpn, Srqn};
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{
    AtomicSegment, ControlSegment, DataSegment, INVALID_LKEY, InlineHeader, MaskedAtomicSegment,
    RemoteAddressSegment, SharedReceiveSegment, XrcSegment, completion_mode, fence_mode, masked_opmod,
    strom_opmod,
};
use proptest::prelude::*;
use std::vec::Vec;
use zerocopy::{FromBytes, IntoBytes};

const QPN: u32 = 0xab_cdef;
/// Blocks of the ring in these tests: as many as the longest entry has.
const BLOCKS: u32 = 16;

fn control(request: &WorkRequest<'_>) -> ControlSegment {
    let head = request.entry.head;
    let first = head.control(0x1_2345, QueuePairBits::new(Qpn::from_low_bits(QPN)));
    let words = [first.to_be(), head.rest()[0]];
    ControlSegment::read_from_bytes(words.as_bytes()).unwrap()
}

#[test]
fn control_segment() {
    let c = control(
        &WorkRequest::write(1, &[], RemoteSlice::default()).immediate(0x1122_3344).solicited().fence(),
    );
    assert_eq!((c.opcode(), c.opmod(), c.wqe_index()), (WqeOpcode::RdmaWriteImm, 0, 0x2345));
    assert_eq!((c.qpn(), c.immediate()), (Qpn::from_low_bits(QPN), 0x1122_3344));
    assert_eq!((c.fence_mode(), c.completion_mode(), c.solicited()), (2, completion_mode::ALWAYS, true));
    let c = control(&WorkRequest::send(1, &[]).signalled(false));
    assert_eq!(
        (c.opcode(), c.completion_mode(), c.solicited()),
        (WqeOpcode::Send, completion_mode::ON_ERROR, false)
    );
    let c = control(&WorkRequest::rpc_params(1, 9, Mkey::new(4), &[]));
    assert_eq!((c.opcode(), c.opmod()), (WqeOpcode::RdmaWrite, strom_opmod::RPC_PARAMS));
}

#[test]
fn requests_after_a_key_change_wait_for_it() {
    let mode = |mut request: WorkRequest<'_>| {
        request.entry.head = request.entry.head.behind_key_update();
        let segment = control(&request);
        assert_eq!((segment.completion_mode(), segment.solicited()), (completion_mode::ALWAYS, true));
        segment.fence_mode()
    };
    let send = || WorkRequest::send(1, &[]).solicited();
    assert_eq!(mode(send()), fence_mode::INITIATOR_SMALL);
    assert_eq!(mode(send().fence()), fence_mode::SMALL_AND_FENCE);
    assert_eq!(mode(send().fence().strong_ordering()), fence_mode::STRONG_ORDERING);
}

#[test]
fn keys_travel_where_immediate_data_do() {
    let c = control(&WorkRequest::send(1, &[]).invalidating(Mkey::new(0x1234_5678)));
    assert_eq!((c.opcode(), c.immediate()), (WqeOpcode::SendInval, 0x1234_5678));
    let c = control(&WorkRequest::write(1, &[], RemoteSlice::default()).invalidating(Mkey::new(1)));
    assert_eq!((c.opcode(), c.immediate()), (WqeOpcode::RdmaWrite, 0));
    let c = control(&WorkRequest::update(1, WorkCompletionOpcode::BindWindow, Mkey::new(0x99), &[0; 14]));
    assert_eq!((c.opcode(), c.immediate(), c.opmod()), (WqeOpcode::Umr, 0x99, 0));
}

#[test]
fn requests_with_a_fast_path_know_their_segments() {
    let slice = [MemorySlice::from_raw(1, 2, Mkey::new(3))];
    let segments = |request: &WorkRequest<'_>| request.entry.head.entry_segments();
    assert_eq!(segments(&WorkRequest::send(1, &slice)), 2);
    assert_eq!(segments(&WorkRequest::read(1, &slice, RemoteSlice::default())), 3);
    assert_eq!(segments(&WorkRequest::send_inline(1, &[0; 12])), 2);
    assert_eq!(segments(&WorkRequest::write_inline(1, &[0; 13], RemoteSlice::default())), 4);
    assert_eq!(segments(&WorkRequest::fetch_add(1, &slice, RemoteSlice::default(), 1)), 0, "two bytes");
    let two = [slice[0]; 2];
    assert_eq!(segments(&WorkRequest::send(1, &two)), 0);
    let word = [MemorySlice::from_raw(1, 8, Mkey::new(3))];
    assert_eq!(segments(&WorkRequest::fetch_add(1, &word, RemoteSlice::default(), 1)), 4);
    assert_eq!(segments(&WorkRequest::compare_swap(1, &word, RemoteSlice::default(), 1, 2)), 4);
}

#[test]
fn requests_with_a_fast_path_know_their_blocks() {
    const LONGEST: usize = 61 * 16 - 4;
    let data = [0; 1000];
    for length in 1..=LONGEST {
        let bytes = &data[..length];
        let send = WorkRequest::send_inline(1, bytes);
        let write = WorkRequest::write_inline(1, bytes, RemoteSlice::default());
        for (request, before) in [(send, 16), (write, 32)] {
            assert!(encoder().admits(&request.entry));
            let segments = (before + 4 + length).div_ceil(16);
            assert_eq!(request.entry.head.entry_segments() as usize, segments, "{length}");
            assert_eq!(request.posted.slots() as usize, segments.div_ceil(4), "{length}");
            assert_eq!(request.blocks, request.posted.slots());
        }
    }
    for refused in [WorkRequest::send_inline(1, &data[..=LONGEST]), WorkRequest::send_inline(1, &[])] {
        assert!(!encoder().admits(&refused.entry));
    }
    assert!(
        !encoder().admits(&WorkRequest::send(1, &[]).entry) && !encoder().admits(&WorkRequest::nop(1).entry)
    );
    let named = WorkRequest::send_inline(1, &data[..100]).for_shared_queue(Srqn::default());
    assert_eq!((named.entry.path(), named.entry.head.entry_segments()), (EncodePath::General, 0));
}

/// Each length ends in another way: in the block of the head, in the one behind it, or after whole blocks.
#[test]
fn inline_bytes_of_each_length_are_written_and_nothing_beyond_their_blocks() {
    let data: Vec<u8> = (0..400).map(|i| i as u8 ^ 0x5a).collect();
    // Miri would take minutes for every length.
    let step = if cfg!(miri) { 23 } else { 1 };
    let lengths = (17..=data.len()).step_by(step);
    for (length, counter) in lengths.flat_map(|length| [(length, 0), (length, BLOCKS - 1)]) {
        let bytes = &data[..length];
        let send = WorkRequest::send_inline(1, bytes);
        let write = WorkRequest::write_inline(1, bytes, RemoteSlice::default());
        for (request, head) in [(send, 16), (write, 32)] {
            let memory = Dma::new(Boxed::new(BLOCKS as usize * BLOCK));
            memory.fill(0, memory.len(), 0xee).unwrap();
            let place = SendPlace { ring: memory.run(0, BLOCKS - 1).unwrap(), counter };
            encoder().write_long_inline(place, &request.entry);
            let ring = ring_bytes(&memory, counter, memory.len());
            let (header, rest) = InlineHeader::read_from_prefix(&ring[head..]).unwrap();
            assert_eq!((header.inline(), header.byte_count() as usize), (true, length));
            assert_eq!(&rest[..length], bytes, "{length} bytes from {counter}");
            let behind = request.blocks as usize * BLOCK;
            assert!(ring[behind..].iter().all(|&byte| byte == 0xee), "{length} bytes from {counter}");
        }
    }
}

#[test]
fn reads_and_atomics_have_no_immediate() {
    let c = control(&WorkRequest::read(1, &[], RemoteSlice::default()).immediate(5));
    assert_eq!((c.opcode(), c.immediate()), (WqeOpcode::RdmaRead, 0));
}

/// The ingredients of a request.
#[derive(Debug, Clone)]
struct Sample {
    kind: u8,
    slices: Vec<MemorySlice>,
    bytes: Vec<u8>,
    remote: RemoteSlice,
    operands: [u64; 4],
    immediate: u32,
    flags: [bool; 5],
    shared_queue: Option<u32>,
    /// Words of a key update.
    update: Vec<[u64; 2]>,
}

fn slices() -> impl Strategy<Value = Vec<MemorySlice>> {
    let length = prop_oneof![Just(8), 1..=MAX_SLICE];
    let slice = (any::<u64>(), length, any::<u32>())
        .prop_map(|(address, length, key)| MemorySlice::from_raw(address, length, Mkey::new(key)));
    prop::collection::vec(slice, 0..8)
}

fn sample() -> impl Strategy<Value = Sample> {
    let remote = (any::<u64>(), any::<u32>())
        .prop_map(|(address, key)| RemoteSlice::from_raw(address, 0, Mkey::new(key)));
    let bytes = prop::collection::vec(any::<u8>(), 0..900);
    let shared_queue = prop::option::of(0u32..1 << 24);
    let update = prop::collection::vec(any::<[u64; 2]>(), 0..55);
    (
        0u8..10,
        slices(),
        bytes,
        remote,
        any::<[u64; 4]>(),
        any::<u32>(),
        any::<[bool; 5]>(),
        shared_queue,
        update,
    )
        .prop_map(|(kind, slices, bytes, remote, operands, immediate, flags, shared_queue, update)| {
            Sample { kind, slices, bytes, remote, operands, immediate, flags, shared_queue, update }
        })
}

/// The bytes that the setters of the layouts produce for a request.
#[derive(Default)]
struct Reference {
    control: ControlSegment,
    bytes: Vec<u8>,
}

impl Reference {
    fn push(&mut self, segment: &(impl IntoBytes + zerocopy::Immutable)) {
        self.bytes.extend_from_slice(segment.as_bytes());
    }

    fn push_remote(&mut self, remote: RemoteSlice) {
        self.push(RemoteAddressSegment::new().set_address(remote.address).set_rkey(remote.rkey));
    }

    fn push_slices(&mut self, slices: &[MemorySlice]) {
        for slice in slices {
            let mut data = DataSegment::new();
            self.push(data.set_byte_count(slice.length).set_lkey(slice.lkey).set_address(slice.address));
        }
    }

    fn push_inline(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.push(InlineHeader::new().set_inline(true).set_byte_count(bytes.len() as u16));
            self.bytes.extend_from_slice(bytes);
            self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        }
    }

    /// The entry at `counter`.
    fn finish(mut self, counter: u32) -> Vec<u8> {
        let segments = 1 + self.bytes.len() / 16;
        self.control.set_ds(segments as u8).set_wqe_index(counter as u16).set_qpn(Qpn::from_low_bits(QPN));
        let mut entry = Vec::from(self.control.as_bytes());
        entry.extend_from_slice(&self.bytes);
        entry
    }
}

/// Passes the request of a sample to `then`, along with what the setters produce. A request that may not name
/// a shared queue has none.
fn with_request<T>(sample: &Sample, then: impl FnOnce(WorkRequest<'_>, Reference) -> T) -> T {
    let Sample { kind, slices, bytes, remote, operands: [a, b, c, d], .. } = sample;
    let word = [MemorySlice {
        length: 8,
        ..slices.first().copied().unwrap_or(MemorySlice::from_raw(1, 8, Mkey::new(2)))
    }];
    let update: Vec<u64> = sample.update.iter().flatten().copied().collect();
    let (swap, add) = (MaskedCompareSwap::new(*b, *d, *a, *c), MaskedFetchAdd::new(*a, *b));
    let mut reference = Reference::default();
    if let (Some(queue), true) = (sample.shared_queue, *kind < 9) {
        reference.push(XrcSegment::new().set_srqn(queue));
    }
    if (2..9).contains(kind) {
        reference.push_remote(*remote);
    }
    let (request, opcode) = match kind {
        0 => (WorkRequest::send(1, slices), WqeOpcode::Send),
        1 => (WorkRequest::send_inline(1, bytes), WqeOpcode::Send),
        2 => (WorkRequest::write(1, slices, *remote), WqeOpcode::RdmaWrite),
        3 => (WorkRequest::write_inline(1, bytes, *remote), WqeOpcode::RdmaWrite),
        4 => (WorkRequest::read(1, slices, *remote), WqeOpcode::RdmaRead),
        5 => (WorkRequest::compare_swap(1, &word, *remote, *b, *a), WqeOpcode::AtomicCompareSwap),
        6 => (WorkRequest::fetch_add(1, &word, *remote, *a), WqeOpcode::AtomicFetchAdd),
        7 => (WorkRequest::masked_compare_swap(1, &word, *remote, &swap), WqeOpcode::AtomicMaskedCompareSwap),
        8 => (WorkRequest::masked_fetch_add(1, &word, *remote, &add), WqeOpcode::AtomicMaskedFetchAdd),
        _ => (
            WorkRequest::update(1, WorkCompletionOpcode::FastRegister, Mkey::new(sample.immediate), &update),
            WqeOpcode::Umr,
        ),
    };
    match kind {
        0 | 2 | 4 => reference.push_slices(slices),
        1 | 3 => reference.push_inline(bytes),
        5 => reference.push(AtomicSegment::new().set_swap_add(*a).set_compare(*b)),
        6 => reference.push(AtomicSegment::new().set_swap_add(*a)),
        7 => {
            let mut segment = MaskedAtomicSegment::new();
            reference
                .push(segment.set_swap_add(*a).set_compare(*b).set_swap_add_mask(*c).set_compare_mask(*d));
        }
        8 => {
            let mut segment = MaskedAtomicSegment::new();
            reference.bytes.extend_from_slice(&segment.set_swap_add(*a).set_compare(*b).as_bytes()[..16]);
        }
        _ => update.iter().for_each(|word| reference.push(word)),
    }
    if (5..9).contains(kind) {
        reference.push_slices(&word);
    }
    reference.control.set_opcode(opcode);
    if matches!(kind, 7 | 8) {
        reference.control.set_opmod(masked_opmod::EIGHT_BYTES);
    }
    if *kind == 9 {
        reference.control.set_immediate(sample.immediate);
    }
    let request = with_flags(sample, request, &mut reference.control);
    then(request, reference)
}

fn with_flags<'a>(
    sample: &Sample,
    mut request: WorkRequest<'a>,
    control: &mut ControlSegment,
) -> WorkRequest<'a> {
    let [immediate, signalled, solicited, fence, strong] = sample.flags;
    if immediate && sample.kind < 4 {
        request = request.immediate(sample.immediate);
        let opcode = if sample.kind < 2 { WqeOpcode::SendImm } else { WqeOpcode::RdmaWriteImm };
        control.set_opcode(opcode).set_immediate(sample.immediate);
    }
    request = request.signalled(signalled);
    control.set_completion_mode(if signalled { completion_mode::ALWAYS } else { completion_mode::ON_ERROR });
    if solicited {
        request = request.solicited();
        control.set_solicited(true);
    }
    if fence {
        request = request.fence();
        control.set_fence_mode(fence_mode::FENCE);
    }
    if strong {
        request = request.strong_ordering();
        control.set_fence_mode(fence_mode::STRONG_ORDERING);
    }
    match sample.shared_queue {
        Some(queue) if sample.kind < 9 => request.for_shared_queue(Srqn::from_low_bits(queue)),
        _ => request,
    }
}

/// The bytes of the ring from `counter` on.
fn ring_bytes(memory: &Dma<Boxed>, counter: u32, length: usize) -> Vec<u8> {
    let mut bytes = std::vec![0; BLOCKS as usize * BLOCK];
    memory.copy_out(0, &mut bytes).unwrap();
    bytes.rotate_left((counter % BLOCKS) as usize * BLOCK);
    bytes.truncate(length);
    bytes
}

/// An encoder that admits every entry with a fast path.
fn encoder() -> SendEncoder {
    SendEncoder::new(QueuePairBits::new(Qpn::from_low_bits(QPN)), MAX_SLICE, 4096)
}

proptest! {
    #[test]
    fn encoded_sends_agree_with_the_layouts(sample in sample(), counter: u32) {
        with_request(&sample, |request, reference| {
            let expected = reference.finish(counter);
            let memory = Dma::new(Boxed::new(BLOCKS as usize * BLOCK));
            let place = SendPlace { ring: memory.run(0, BLOCKS - 1).unwrap(), counter };
            let named = request.shared_queue.map(segment::shared_queue);
            let address = named.as_ref().map_or(&[][..], |segment| segment);
            let control = encoder().write_segments(place, &request.entry, address);
            prop_assert_eq!(&ring_bytes(&memory, counter, expected.len()), &expected, "segment by segment");
            prop_assert_eq!(control.to_be_bytes(), &expected[..8], "the value for the doorbell");
            Ok(())
        })?;
    }

    #[test]
    fn fast_paths_write_what_the_general_one_writes(sample in sample(), counter: u32, only: bool) {
        with_request(&sample, |request, reference| {
            if !encoder().admits(&request.entry) {
                let needs_checks = sample.shared_queue.is_some()
                    || !matches!((sample.kind, sample.slices.len(), sample.bytes.len()), (0 | 2 | 4, 1, _) | (1 | 3, _, 1..) | (5 | 6 | 8, ..));
                prop_assert!(needs_checks, "this request has a fast path");
                return Ok(());
            }
            let expected = reference.finish(counter);
            prop_assert_eq!(request.posted.slots() as usize, expected.len().div_ceil(BLOCK));
            let memory = Dma::new(Boxed::new(BLOCKS as usize * BLOCK));
            let place = SendPlace { ring: memory.run(0, BLOCKS - 1).unwrap(), counter };
            let entry = &request.entry;
            let (control, block) = match entry.path() {
                EncodePath::LongInline => (encoder().write_long_inline(place, entry), None),
                EncodePath::ShortInline => {
                    let mut written = (0, None);
                    let then = |control, block: &[u64; 8]| written = (control, Some(*block));
                    match only {
                        true => encoder().write_short_inline::<true>(place, entry, then),
                        false => encoder().write_short_inline::<false>(place, entry, then),
                    }
                    written
                }
                _ => {
                    let mut written = (0, None);
                    let then = |control, block: &[u64; 8]| written = (control, Some(*block));
                    match only {
                        true => encoder().write_block::<true>(place, entry, then),
                        false => encoder().write_block::<false>(place, entry, then),
                    }
                    written
                }
            };
            prop_assert_eq!(&ring_bytes(&memory, counter, expected.len()), &expected);
            prop_assert_eq!(control.to_be_bytes(), &expected[..8]);
            if let Some(block) = block {
                prop_assert_eq!(&block.as_bytes()[..expected.len()], &expected, "the block for the register");
            }
            Ok(())
        })?;
    }

    #[test]
    fn encoded_receives_agree_with_the_layouts(slices in slices(), index in 0u32..64, next: u16) {
        let memory = Dma::new(Boxed::new(BLOCKS as usize * BLOCK));
        let (segments, room) = (memory.run(0, 4 * BLOCKS - 1).unwrap(), 8);
        let request = ReceiveRequest::new(1, &slices);
        request.list.write(segments, index, room);
        let mut expected = Reference::default();
        expected.push_slices(&slices);
        if slices.len() < room as usize {
            expected.push(DataSegment::new().set_lkey(INVALID_LKEY));
        }
        let written = |index: u32, length: usize| {
            let mut bytes = std::vec![0; BLOCKS as usize * BLOCK];
            memory.copy_out(0, &mut bytes).unwrap();
            bytes.rotate_left(index as usize * 16);
            bytes.truncate(length);
            bytes
        };
        prop_assert_eq!(&written(index, expected.bytes.len()), &expected.bytes);
        prop_assert_eq!(request.list.path == ReceivePath::OneSlice, slices.len() == 1);
        if request.list.path == ReceivePath::OneSlice {
            store_segment(segments, index, request.list.first);
            prop_assert_eq!(&written(index, 16), &expected.bytes[..16]);
        }
        memory.fill(0, 16, 0).unwrap();
        store_next_entry(segments, 0, next.into());
        let mut first = SharedReceiveSegment::new();
        prop_assert_eq!(written(0, 16), first.set_next_wqe_index(next).as_bytes());
    }
}

#[test]
fn inline_segments_count_their_header() {
    assert_eq!([0, 12, 13, 28, 29].map(inline_segments), [1, 1, 2, 2, 3]);
}

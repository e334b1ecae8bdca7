use super::*;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::wqe::{ControlSegment, InlineHeader};
use zerocopy::{FromBytes, IntoBytes};

fn control(request: &WorkRequest<'_>) -> ControlSegment {
    let words = [(request.control(0x1_2345, 0xabcdef << 8) | 3).to_be(), request.flags()];
    ControlSegment::read_from_bytes(words.as_bytes()).unwrap()
}

#[test]
fn control_segment() {
    let c = control(
        &WorkRequest::write(1, &[], RemoteSlice::default()).immediate(0x1122_3344).solicited().fence(),
    );
    assert_eq!((c.opcode(), c.opmod(), c.wqe_index(), c.ds()), (WqeOpcode::RdmaWriteImm, 0, 0x2345, 3));
    assert_eq!((c.qpn(), c.immediate()), (Qpn::from_low_bits(0xabcdef), 0x1122_3344));
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
fn what_follows_a_change_of_a_key_waits_for_it() {
    let mode = |request: WorkRequest<'_>| {
        let words = [(request.control(0, 0) | 3).to_be(), request.flags_behind_update()];
        let segment = ControlSegment::read_from_bytes(words.as_bytes()).unwrap();
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
    let c = control(&WorkRequest::update(1, WorkCompletionOpcode::BindWindow, Mkey::new(0x99), &[0; 112]));
    assert_eq!((c.opcode(), c.immediate(), c.opmod()), (WqeOpcode::Umr, 0x99, 0));
}

#[test]
fn forms_know_their_segments() {
    let slice = [MemorySlice::from_raw(1, 2, Mkey::new(3))];
    let segments = |request: &WorkRequest<'_>| request.control(0, 0) & 0x3f;
    assert_eq!(segments(&WorkRequest::send(1, &slice)), 2);
    assert_eq!(segments(&WorkRequest::read(1, &slice, RemoteSlice::default())), 3);
    assert_eq!(segments(&WorkRequest::send_inline(1, &[0; 12])), 2);
    assert_eq!(segments(&WorkRequest::write_inline(1, &[0; 13], RemoteSlice::default())), 4);
    assert_eq!(segments(&WorkRequest::fetch_add(1, &slice, RemoteSlice::default(), 1)), 0, "two bytes");
    assert_eq!(segments(&WorkRequest::send(1, &[])), 0);
    let word = [MemorySlice::from_raw(1, 8, Mkey::new(3))];
    assert_eq!(segments(&WorkRequest::fetch_add(1, &word, RemoteSlice::default(), 1)), 4);
    assert_eq!(segments(&WorkRequest::compare_swap(1, &word, RemoteSlice::default(), 1, 2)), 4);
}

#[test]
fn forms_know_their_blocks() {
    let data = [0; 1000];
    for length in 1..=MAX_LONG {
        let bytes = &data[..length];
        let send = WorkRequest::send_inline(1, bytes);
        let write = WorkRequest::write_inline(1, bytes, RemoteSlice::default());
        for (request, before) in [(send, 16), (write, 32)] {
            assert_ne!(request.form, Form::Other);
            let segments = (before + 4 + length).div_ceil(16);
            assert_eq!((request.control(0, 0) & 0x3f) as usize, segments, "{length}");
            assert_eq!(request.posted().slots() as usize, segments.div_ceil(4), "{length}");
        }
    }
    let longer = WorkRequest::send_inline(1, &data[..=MAX_LONG]);
    assert_eq!((longer.form, longer.control(0, 0) & 0x3f), (Form::Other, 0));
    let named = WorkRequest::send_inline(1, &data[..100]).for_shared_queue(Srqn::default());
    assert_eq!((named.form, named.control(0, 0) & 0x3f), (Form::Other, 0));
}

#[test]
fn reads_and_atomics_have_no_immediate() {
    let c = control(&WorkRequest::read(1, &[], RemoteSlice::default()).immediate(5));
    assert_eq!((c.opcode(), c.immediate()), (WqeOpcode::RdmaRead, 0));
}

#[test]
fn inline_bytes_follow_their_header() {
    let bytes: [u8; 60] = core::array::from_fn(|i| i as u8 + 1);
    for length in 0..=60 {
        let mut words = [0; 8];
        let mut at = 0;
        inline_words(&bytes[..length], |word| {
            words[at] = word;
            at += 1;
        });
        let memory = words.as_bytes();
        let (header, data) = InlineHeader::read_from_prefix(memory).unwrap();
        if length <= 16 {
            assert_eq!(short_inline(&bytes[..length]), words[..3]);
        }
        assert_eq!((header.inline(), header.byte_count() as usize), (true, length));
        assert_eq!(data[..length], bytes[..length]);
        assert!(data[length..].iter().all(|&b| b == 0));
        assert!(4 + length <= inline_segments(length as u32) as usize * 16);
    }
}

//! The first exchange between two drivers: one of each operation, with a comparison of all bytes.

use bareverbs_core::work_completion::WorkCompletionOpcode;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_tests::pair::{Pair, PairOptions};

#[test]
fn a_send_fills_a_receive() {
    let mut pair = Pair::new(&PairOptions::default());
    let slice = pair.b.memory.slice(4096, 100).unwrap();
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(7, &[slice])).unwrap();
    pair.a.memory.copy_in(0, b"first light").unwrap();
    let data = [pair.a.memory.slice(0, 11).unwrap()];
    pair.a.queue_pair.post_send(&WorkRequest::send(1, &data).immediate(0xfeed)).unwrap();

    let received = pair.received();
    assert!(received.is_success(), "{}", received.status);
    assert_eq!((received.wr_id, received.byte_count, received.immediate), (7, 11, Some(0xfeed)));
    assert_eq!(received.opcode, WorkCompletionOpcode::Receive);
    let sent = pair.sent();
    assert!(sent.is_success() && sent.wr_id == 1, "{sent:?}");
    let mut bytes = [0; 12];
    pair.b.memory.copy_out(4096, &mut bytes).unwrap();
    assert_eq!(&bytes, b"first light\0");
}

#[test]
fn a_write_and_a_read_move_bytes_there_and_back() {
    let mut pair = Pair::new(&PairOptions::default());
    let bytes: Vec<u8> = (0..5000).map(|i| ((i * 31) >> 3) as u8).collect();
    pair.a.memory.copy_in(100, &bytes).unwrap();
    let there = [pair.a.memory.slice(100, 3000).unwrap(), pair.a.memory.slice(3100, 2000).unwrap()];
    let back = [pair.a.memory.slice(20_000, 5000).unwrap()];
    let remote = pair.b.memory.remote(7);
    let mut batch = pair.a.queue_pair.send_batch();
    batch.post(&WorkRequest::write(1, &there, remote)).unwrap();
    batch.post(&WorkRequest::read(2, &back, remote)).unwrap();
    batch.ring();
    for (id, opcode) in [(1, WorkCompletionOpcode::RdmaWrite), (2, WorkCompletionOpcode::RdmaRead)] {
        let completion = pair.sent();
        assert!(completion.is_success(), "{}", completion.status);
        assert_eq!((completion.wr_id, completion.opcode), (id, opcode));
    }
    for (memory, at) in [(&pair.b.memory, 7), (&pair.a.memory, 20_000)] {
        let mut found = vec![0; 5000];
        memory.copy_out(at, &mut found).unwrap();
        assert!(found == bytes);
    }
}

#[test]
fn a_write_with_immediate_data_takes_a_receive() {
    let mut pair = Pair::new(&PairOptions::default());
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(9, &[])).unwrap();
    let remote = pair.b.memory.remote(0);
    let request = WorkRequest::write_inline(1, b"by name", remote).immediate(0x1234_5678);
    pair.a.queue_pair.post_send(&request).unwrap();
    let received = pair.received();
    assert_eq!((received.wr_id, received.byte_count, received.immediate), (9, 7, Some(0x1234_5678)));
    assert_eq!(received.opcode, WorkCompletionOpcode::ReceiveRdmaWithImmediate);
    assert!(pair.sent().is_success());
}

/// Requirement: IBTA v1.4 §9.4.5: compare-and-swap and fetch-and-add change memory once and return the old value.
#[test]
fn atomics_change_memory_once_and_give_back_what_was_there() {
    let mut pair = Pair::new(&PairOptions::default());
    pair.b.memory.store_u64(64, 40).unwrap();
    let (old, remote) = ([pair.a.memory.slice(0, 8).unwrap()], pair.b.memory.remote(64));
    let requests = [
        (WorkRequest::fetch_add(1, &old, remote, 2), 40, 42),
        (WorkRequest::compare_swap(2, &old, remote, 42, 7), 42, 7),
        (WorkRequest::compare_swap(3, &old, remote, 42, 8), 7, 7),
    ];
    for (request, before, after) in requests {
        pair.a.queue_pair.post_send(&request).unwrap();
        let completion = pair.sent();
        assert!(completion.is_success(), "{}", completion.status);
        assert_eq!((pair.a.memory.load_u64(0), pair.b.memory.load_u64(64)), (Ok(before), Ok(after)));
    }
}

#[test]
fn the_device_closes_when_the_last_object_is_gone() {
    let Pair { a, world, .. } = Pair::new(&PairOptions::default());
    let node = a.node.id;
    let bareverbs_tests::pair::Side { queue_pair, sends, receives, channel, memory, node: host } = a;
    drop((queue_pair, sends, receives, channel, memory, host.domain));
    assert_eq!(host.device.leaked_objects(), 0);
    let device = std::rc::Rc::into_inner(host.device).expect("nobody else holds the device");
    device.close().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(world.with(|world| world.device(node).live_objects()), [0; 6]);
}

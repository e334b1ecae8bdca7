//! Unreliable connections between two drivers in one world.

use bareverbs_core::hal::Hal;
use bareverbs_core::queue_pair::{PostError, Uc};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::numbering::ServiceType;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::fault::RandomFaults;
use bareverbs_tests::node::{NodeOptions, all_access};
use bareverbs_tests::pair::{Pair, PairOptions};

fn options(seed: u64) -> PairOptions {
    let node = NodeOptions { ipv6: seed % 2 == 1, unforgiving: true, ..NodeOptions::default() };
    PairOptions { seed, node, memory: 1 << 18, ..PairOptions::default() }
}

/// Runs the world until it is idle.
fn settle(pair: &Pair<Uc>) {
    let end = pair.world.now() + Duration::from_millis(1);
    pair.world.run_until(end);
    for side in [&pair.a, &pair.b] {
        side.node.device.hal().relax(end);
    }
}

fn received(pair: &mut Pair<Uc>) -> Vec<WorkCompletion> {
    settle(pair);
    core::iter::from_fn(|| pair.b.receives.poll_one().unwrap()).collect()
}

/// Requirement: IBTA v1.4 §9.8.2: an unreliable connection carries SENDs and RDMA WRITEs of any length, with or without
/// immediate data.
#[test]
fn sends_and_writes_arrive() {
    for seed in [1, 2] {
        let mut pair = Pair::<Uc>::of_service(&options(seed));
        let bytes: Vec<u8> = (0..70_000).map(|i| ((i * 31) >> 5) as u8).collect();
        pair.a.memory.copy_in(0, &bytes).unwrap();
        let whole = [pair.a.memory.slice(0, 30_000).unwrap(), pair.a.memory.slice(30_000, 40_000).unwrap()];
        let there = [pair.b.memory.slice(100, 70_000).unwrap()];
        pair.b.queue_pair.post_receive(&ReceiveRequest::new(7, &there)).unwrap();
        pair.b.queue_pair.post_receive(&ReceiveRequest::new(8, &[])).unwrap();
        let remote = pair.b.memory.remote(100_000);
        let mut batch = pair.a.queue_pair.send_batch();
        batch.post(&WorkRequest::send(1, &whole).immediate(11)).unwrap();
        batch.post(&WorkRequest::write(2, &whole, remote)).unwrap();
        batch.post(&WorkRequest::write_inline(3, b"done", pair.b.memory.remote(8)).immediate(12)).unwrap();
        batch.ring();
        let ends: Vec<_> = (0..3).map(|_| pair.sent()).map(|c| (c.wr_id, c.is_success())).collect();
        assert_eq!(ends, [(1, true), (2, true), (3, true)]);
        let got = received(&mut pair);
        let seen: Vec<_> = got.iter().map(|c| (c.wr_id, c.byte_count, c.immediate, c.opcode)).collect();
        assert_eq!(
            seen,
            [
                (7, 70_000, Some(11), WorkCompletionOpcode::Receive),
                (8, 4, Some(12), WorkCompletionOpcode::ReceiveRdmaWithImmediate),
            ]
        );
        for at in [100, 100_000] {
            let mut found = vec![0; 70_000];
            pair.b.memory.copy_out(at, &mut found).unwrap();
            assert!(found == bytes, "at {at}");
        }
        let node = pair.b.node.id;
        assert_eq!(pair.world.with(|world| world.device(node).counters().frames_sent), 0, "no answers");
    }
}

/// Requirement: IBTA v1.4 §9.8.2: an unreliable connection has no RDMA READs and no atomics.
#[test]
fn operations_that_need_a_response_are_refused() {
    let mut pair = Pair::<Uc>::of_service(&options(3));
    let (slice, remote) = ([pair.a.memory.slice(0, 8).unwrap()], pair.b.memory.remote(0));
    for (request, kind) in [
        (WorkRequest::read(1, &slice, remote), WorkCompletionOpcode::RdmaRead),
        (WorkRequest::fetch_add(1, &slice, remote, 1), WorkCompletionOpcode::FetchAdd),
        (WorkRequest::compare_swap(1, &slice, remote, 1, 2), WorkCompletionOpcode::CompareSwap),
    ] {
        let refused = PostError::NotOffered { kind, service: ServiceType::Uc };
        assert_eq!(pair.a.queue_pair.post_send(&request), Err(refused));
    }
}

/// Requirement: IBTA v1.4 §9.8.2.2.1: a message that lost a packet is not delivered at all, and later messages arrive.
#[test]
fn messages_arrive_whole_and_in_order() {
    let mut pair = Pair::<Uc>::of_service(&options(4));
    pair.world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(0.05)));
    const LENGTH: usize = 4000;
    for number in 1..=50u8 {
        let slice = [pair.b.memory.slice(usize::from(number) * LENGTH, LENGTH).unwrap()];
        pair.b.queue_pair.post_receive(&ReceiveRequest::new(u64::from(number), &slice)).unwrap();
    }
    for number in 1..=50u8 {
        pair.a.memory.copy_in(0, &[number; LENGTH]).unwrap();
        let slice = [pair.a.memory.slice(0, LENGTH).unwrap()];
        pair.a.queue_pair.post_send(&WorkRequest::send(u64::from(number), &slice)).unwrap();
        assert!(pair.sent().is_success(), "the sender is not told of a loss");
    }
    let got = received(&mut pair);
    assert!((20..50).contains(&got.len()), "{} of 50", got.len());
    let mut last = 0;
    for (place, completion) in got.iter().enumerate() {
        assert_eq!(completion.wr_id, place as u64 + 1, "a receive of a lost message took the next one");
        let mut bytes = vec![0; LENGTH];
        pair.b.memory.copy_out(completion.wr_id as usize * LENGTH, &mut bytes).unwrap();
        assert!(bytes[0] > last && bytes.iter().all(|byte| *byte == bytes[0]));
        last = bytes[0];
    }
}

/// Requirement: IBTA v1.4 §9.9.3.1: without a receive, with one that is too short, without permission or with a wrong
/// key, a message is dropped; both ends keep their state.
#[test]
fn messages_that_cannot_be_received_are_silently_dropped() {
    let mut pair = Pair::<Uc>::of_service(&PairOptions { memory_access: all_access(), ..options(5) });
    let slice = [pair.a.memory.slice(0, 200).unwrap()];
    let short = [pair.b.memory.slice(0, 100).unwrap()];
    let wrong = bareverbs_core::RemoteSlice { address: 0x10, ..pair.b.memory.remote(0) };
    pair.a.queue_pair.post_send(&WorkRequest::send(1, &slice)).unwrap();
    assert!(pair.sent().is_success() && received(&mut pair).is_empty(), "no receive");
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(5, &short)).unwrap();
    for (id, request) in [(2, WorkRequest::send(2, &slice)), (3, WorkRequest::write(3, &slice, wrong))] {
        pair.a.queue_pair.post_send(&request).unwrap();
        assert!(pair.sent().is_success() && received(&mut pair).is_empty(), "{id}");
    }
    pair.a.queue_pair.post_send(&WorkRequest::send_inline(4, b"fits")).unwrap();
    let [got] = received(&mut pair)[..] else { panic!("one receive") };
    assert_eq!((got.wr_id, got.byte_count), (5, 4));
}

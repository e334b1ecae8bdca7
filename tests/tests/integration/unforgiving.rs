//! A whole conversation with memory that exposes missing barriers and a device that insists on zero reserved
//! bits.
//!
//! `.ci/mutations` runs these tests with a barrier of the driver removed, and expects them to fail.

use bareverbs_core::hal::{Barrier, Hal};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::time::Duration;
use bareverbs_tests::node::NodeOptions;
use bareverbs_tests::pair::{Pair, PairOptions, Side};

const ROUNDS: u64 = 200;
const LENGTH: usize = 600;

fn unforgiving(seed: u64) -> Pair {
    let node = NodeOptions { unforgiving: true, ..NodeOptions::default() };
    Pair::new(&PairOptions { seed, node, depth: 16, memory: 8192, ..PairOptions::default() })
}

/// The bytes that a round writes.
fn pattern(round: u64) -> [u8; LENGTH] {
    std::array::from_fn(|i| (round * 31 + i as u64 * 7) as u8)
}

#[track_caller]
fn expect(completion: WorkCompletion, id: u64) {
    assert!(completion.is_success(), "{completion:?}: {}", completion.status);
    assert_eq!(completion.wr_id, id);
}

#[track_caller]
fn expect_bytes(side: &Side, at: usize, wanted: &[u8]) {
    // A WRITE of the peer raises no completion here, so no completion brings the barrier.
    side.node.device.hal().barrier(Barrier::FromDevice);
    let mut found = vec![0; wanted.len()];
    side.memory.copy_out(at, &mut found).unwrap();
    let differing = found.iter().zip(wanted).filter(|(found, wanted)| found != wanted).count();
    assert_eq!(differing, 0, "bytes at {at}: found {:02x?}…", &found[..8.min(found.len())]);
}

/// SEND into a receive, WRITE, inline WRITE and READ, each with memory of its own; all bytes are compared.
fn round(pair: &mut Pair, number: u64) {
    let pattern = pattern(number);
    let buffer = [pair.b.memory.slice(0, LENGTH).unwrap()];
    pair.a.memory.copy_in(0, &pattern).unwrap();
    // What the peer will read must become visible too: posting the receive brings the barrier.
    pair.b.memory.copy_in(4096, &pattern).unwrap();
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(number, &buffer)).unwrap();
    let data = [pair.a.memory.slice(0, LENGTH).unwrap()];
    let destination = [pair.a.memory.slice(1024, LENGTH).unwrap()];
    let (written, inline, read) =
        (pair.b.memory.remote(1024), pair.b.memory.remote(2048), pair.b.memory.remote(4096));
    let mut batch = pair.a.queue_pair.send_batch();
    batch.post(&WorkRequest::send(4 * number, &data)).unwrap();
    batch.post(&WorkRequest::write(4 * number + 1, &data, written)).unwrap();
    batch.ring();
    pair.a.queue_pair.post_send(&WorkRequest::write_inline(4 * number + 2, &pattern[..90], inline)).unwrap();
    pair.a.queue_pair.post_send(&WorkRequest::read(4 * number + 3, &destination, read)).unwrap();
    (0..4).for_each(|index| expect(pair.sent(), 4 * number + index));
    expect(pair.received(), number);
    expect_bytes(&pair.b, 0, &pattern);
    expect_bytes(&pair.b, 1024, &pattern);
    expect_bytes(&pair.b, 2048, &pattern[..90]);
    expect_bytes(&pair.a, 1024, &pattern);
}

#[test]
fn a_long_conversation_needs_every_barrier() {
    let mut pair = unforgiving(11);
    (0..ROUNDS).for_each(|number| round(&mut pair, number));
    for side in [&pair.a, &pair.b] {
        let counters = pair.world.with(|world| world.device(side.node.id).counters());
        assert_eq!(
            (counters.strict_violations, counters.commands_refused, counters.deliveries_refused),
            (0, 0, 0)
        );
    }
}

#[test]
fn a_small_write_alone_needs_every_barrier() {
    let mut pair = unforgiving(12);
    let remote = pair.b.memory.remote(0);
    for number in 0..ROUNDS {
        let bytes = (number ^ 0x5a5a_5a5a_5a5a).to_le_bytes();
        pair.a.queue_pair.post_send(&WorkRequest::write_inline(number, &bytes, remote)).unwrap();
        expect(pair.sent(), number);
        expect_bytes(&pair.b, 0, &bytes);
    }
}

/// A receive is posted while its message is in flight, so the device looks at ring and record while the
/// stores are still leaving the processor. The buffers have another period than the ring, so that an entry of
/// the last lap is noticed.
#[test]
fn a_receive_at_the_last_moment_needs_its_barrier() {
    const BUFFERS: u64 = 7;
    let mut pair = unforgiving(14);
    for number in 0..4 * ROUNDS {
        let (pattern, at) = (pattern(number), (number % BUFFERS) as usize * 1024);
        pair.a.memory.copy_in(0, &pattern).unwrap();
        let data = [pair.a.memory.slice(0, LENGTH).unwrap()];
        pair.a.queue_pair.post_send(&WorkRequest::send(number, &data)).unwrap();
        let deadline = pair.world.now() + Duration::from_secs(1);
        (0..number % 3).for_each(|_| pair.a.node.device.hal().relax(deadline));
        let buffer = [pair.b.memory.slice(at, LENGTH).unwrap()];
        pair.b.queue_pair.post_receive(&ReceiveRequest::new(number, &buffer)).unwrap();
        pair.b.node.device.hal().relax(deadline);
        expect(pair.received(), number);
        expect_bytes(&pair.b, at, &pattern);
        expect(pair.sent(), number);
    }
}

#[test]
fn memory_without_barriers_shows_old_bytes() {
    let mut pair = unforgiving(13);
    let remote = pair.b.memory.remote(0);
    pair.a.queue_pair.post_send(&WorkRequest::write_inline(1, b"unforgiving", remote)).unwrap();
    let later = pair.world.now() + Duration::from_micros(100);
    pair.world.run_until(later);
    let mut bytes = [0; 11];
    pair.b.memory.copy_out(0, &mut bytes).unwrap();
    assert_ne!(&bytes, b"unforgiving", "without a barrier the processor must not see what the device wrote");
    expect(pair.sent(), 1);
}

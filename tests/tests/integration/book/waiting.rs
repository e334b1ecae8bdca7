//! Snippets of the chapter about waiting.

use bareverbs::{CompletionChannel, CompletionQueue, DeviceRef, QueuePairBuilder, WorkRequest};
use bareverbs_core::hal::Hal;
use bareverbs_prm::time::Duration;
use bareverbs_tests::pair::{Pair, PairOptions};
use std::error::Error;

// ANCHOR: wait_one
fn bytes_of_next<D: DeviceRef>(queue: &mut CompletionQueue<D>) -> Result<u32, Box<dyn Error>> {
    let deadline = queue.device().device().hal().now() + Duration::from_secs(1);
    let completion = queue.wait_one(deadline)?.into_result()?;
    Ok(completion.byte_count)
}
// ANCHOR_END: wait_one

// ANCHOR: turn
/// One turn of an event loop: handles what there is, and asks for the next interrupt.
fn turn<D: DeviceRef>(
    channel: &mut CompletionChannel<D>,
    queue: &mut CompletionQueue<D>,
    done: &mut u64,
) -> Result<(), Box<dyn Error>> {
    queue.handle_and_arm(channel, |completion| {
        completion.into_result()?;
        *done += 1;
        Ok(())
    })
}
// ANCHOR_END: turn

#[test]
fn a_read_says_how_many_bytes_came() {
    let mut pair = Pair::new(&PairOptions::default());
    let into = [pair.a.memory.slice(0, 48).unwrap()];
    pair.a.queue_pair.post_send(&WorkRequest::read(1, &into, pair.b.memory.remote(0))).unwrap();
    assert_eq!(bytes_of_next(&mut pair.a.sends).unwrap(), 48);
}

/// Between two turns there is an interrupt, and none is missed.
#[test]
fn a_loop_of_turns_sees_everything() {
    let pair = Pair::new(&PairOptions::default());
    let (a, b) = (&pair.a.node, &pair.b.node);
    let mut channel = CompletionChannel::create(a.device.clone(), 1, 2).unwrap();
    let mut queue = CompletionQueue::builder(a.device.clone()).channel(&channel).create().unwrap();
    let prepared = QueuePairBuilder::new(&a.domain, &queue, &queue).build().unwrap();
    let other = QueuePairBuilder::new(&b.domain, &pair.b.sends, &pair.b.sends).build().unwrap();
    let (here, there) = (prepared.endpoint(0).unwrap(), other.endpoint(0).unwrap());
    let mut sender = prepared.connect(&there, Default::default()).unwrap();
    let _receiver = other.connect(&here, Default::default()).unwrap();
    let mut seen = 0;
    turn(&mut channel, &mut queue, &mut seen).unwrap();
    for round in 1..=20 {
        sender.post_send(&WorkRequest::write_inline(round, &[1; 8], pair.b.memory.remote(0))).unwrap();
        let end = pair.world.now() + Duration::from_micros(50);
        while pair.world.now() < end {
            if a.device.hal().take_interrupts(1) > 0 {
                turn(&mut channel, &mut queue, &mut seen).unwrap();
            }
            a.device.hal().relax(end);
        }
        assert_eq!(seen, round);
    }
}

//! Waiting: channels that an event loop arms, vectors that do not exist, deadlines, a device that is lost
//! meanwhile.

use bareverbs_core::command::DeviceLoss;
use bareverbs_core::completion_queue::{Arming, Notify};
use bareverbs_core::hal::Hal;
use bareverbs_core::work_request::WorkRequest;
use bareverbs_core::{
    ChannelError, CompletionChannel, CompletionQueue, PollError, WaitError, WorkCompletion,
};
use bareverbs_prm::time::Duration;
use bareverbs_tests::node::Handle;
use bareverbs_tests::pair::{Pair, PairOptions};

const SECOND: Duration = Duration::from_secs(1);

fn pair() -> Pair {
    Pair::new(&PairOptions { seed: 71, depth: 32, memory: 4096, ..PairOptions::default() })
}

fn write(pair: &mut Pair, id: u64) {
    let remote = pair.b.memory.remote(0);
    pair.a.queue_pair.post_send(&WorkRequest::write_inline(id, &[1; 8], remote)).unwrap();
}

fn channel_error(pair: &Pair, vector: u16) -> Option<ChannelError> {
    CompletionChannel::create(pair.a.node.device.clone(), vector, 2).err()
}

#[test]
fn a_vector_that_nobody_serves_is_refused_with_its_number() {
    let pair = pair();
    assert_eq!(channel_error(&pair, 63), None);
    let error = channel_error(&pair, 64).unwrap();
    assert_eq!(error, ChannelError::Vector { vector: 64, vectors: 64 });
    assert!(error.to_string().contains("64 vectors are connected"), "{error}");
}

#[test]
fn a_wait_ends_with_the_completion_or_at_its_deadline() {
    let mut pair = pair();
    write(&mut pair, 5);
    let deadline = pair.world.now() + SECOND;
    let completion = pair.a.sends.wait_one(deadline).unwrap().into_result().unwrap();
    assert_eq!(completion.wr_id, 5);
    assert!(pair.world.now() < deadline);

    let (start, cqn) = (pair.world.now(), pair.a.sends.number());
    let error = pair.a.sends.wait_one(start + SECOND).unwrap_err();
    assert_eq!(error, WaitError::Deadline { cqn, waited: SECOND });
    assert_eq!(pair.world.now(), start + SECOND);
}

#[test]
fn a_failed_work_request_is_an_error_that_names_it() {
    let mut pair = pair();
    let remote = bareverbs_core::RemoteSlice { address: 8, ..pair.b.memory.remote(0) };
    pair.a.queue_pair.post_send(&WorkRequest::write_inline(77, &[1; 8], remote)).unwrap();
    let deadline = pair.world.now() + SECOND;
    let error = pair.a.sends.wait_one(deadline).unwrap().into_result().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("work request 77") && text.contains("the peer refused access"), "{text}");
}

/// Waits that would last an hour end when the device is lost, with and without a channel.
#[test]
fn a_wait_for_a_lost_device_ends_at_once() {
    let mut pair = pair();
    let device = pair.a.node.device.clone();
    let mut channel = CompletionChannel::create(device.clone(), 3, 2).unwrap();
    let mut queue = CompletionQueue::builder(device.clone()).channel(&channel).create().unwrap();
    pair.world.with(|world| world.with_device(pair.a.node.id, |nic, _, now| nic.reset(now)));
    let start = pair.world.now();
    let hour = start + Duration::from_secs(3600);
    let lost = PollError::DeviceLost(DeviceLoss::Reset);
    assert_eq!(pair.a.sends.wait_one(hour), Err(WaitError::Poll(lost)));
    assert_eq!(queue.wait(&mut channel, &mut [WorkCompletion::EMPTY], hour), Err(lost));
    assert_eq!(device.check_presence(), Err(DeviceLoss::Reset));
    assert!(pair.world.now().since(start) < Duration::from_millis(20));
}

/// An event loop that follows the order of `CompletionChannel::arm`: between two interrupts it does nothing,
/// and it misses nothing.
#[test]
fn an_event_loop_sleeps_between_interrupts_and_misses_nothing() {
    let pair = pair();
    let device: Handle = pair.b.node.device.clone();
    let mut channel = CompletionChannel::create(device.clone(), 5, 2).unwrap();
    assert_eq!(channel.vector(), 5);
    let mut queue = CompletionQueue::builder(device.clone()).channel(&channel).create().unwrap();
    let builder = bareverbs_core::QueuePairBuilder::new(&pair.b.node.domain, &queue, &queue);
    let prepared = builder.build().unwrap();
    let mut back = bareverbs_core::QueuePairBuilder::new(&pair.a.node.domain, &pair.a.sends, &pair.a.sends);
    back = back.receive_queue(1);
    let other = back.build().unwrap();
    let (here, there) = (prepared.endpoint(0).unwrap(), other.endpoint(0).unwrap());
    let mut sender = prepared.connect(&there, Default::default()).unwrap();
    let _receiver = other.connect(&here, Default::default()).unwrap();

    let remote = pair.a.memory.remote(0);
    let (mut seen, mut interrupts) = (0, 0);
    for round in 0..40u64 {
        // Sometimes two, so that the second comes between polling and arming.
        for id in 0..1 + round % 2 {
            sender.post_send(&WorkRequest::write_inline(round * 2 + id, &[2; 8], remote)).unwrap();
        }
        let end = pair.world.now() + Duration::from_micros(50);
        while pair.world.now() < end {
            let fired = device.hal().take_interrupts(5);
            if fired > 0 || round == 0 {
                interrupts += fired;
                while channel.poll().is_some() {
                    queue.acknowledge_event();
                }
                while {
                    while queue.poll_one().unwrap().is_some() {
                        seen += 1;
                    }
                    queue.arm(Notify::Next) == Arming::Ready
                } {}
                channel.arm();
            }
            device.hal().relax(end);
        }
        assert_eq!(seen, (0..=round).map(|round| 1 + round % 2).sum::<u64>(), "round {round}");
    }
    assert!((1..=120).contains(&interrupts), "{interrupts}");
}

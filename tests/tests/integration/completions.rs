//! Completion queues between two drivers: size, form, events, moderation, overrun, and counters.

use bareverbs_core::completion_channel::CompletionChannel;
use bareverbs_core::completion_queue::{Arming, Moderation, Notify, PeriodStart};
use bareverbs_core::counter_set::CounterSet;
use bareverbs_core::events::{AsyncEvent, QueuePairFault};
use bareverbs_core::hal::{Barrier, Hal};
use bareverbs_core::queue_pair::QueuePairBuilder;
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::ids::Cqn;
use bareverbs_prm::numbering::CqErrorSyndrome;
use bareverbs_prm::time::Duration;
use bareverbs_tests::node::{Handle, NodeOptions};
use bareverbs_tests::pair::{CompletionForm, Pair, PairOptions};

fn options(seed: u64) -> PairOptions {
    let node = NodeOptions { unforgiving: true, ..NodeOptions::default() };
    PairOptions { seed, node, depth: 32, memory: 8192, ..PairOptions::default() }
}

/// Posts signalled WRITEs of 8 bytes with these identifiers, with one doorbell.
fn write(pair: &mut Pair, ids: std::ops::Range<u64>) {
    let remote = pair.b.memory.remote(0);
    let mut batch = pair.a.queue_pair.send_batch();
    for id in ids {
        batch.post(&WorkRequest::write_inline(id, &id.to_le_bytes(), remote)).unwrap();
    }
    batch.ring();
}

fn send(pair: &mut Pair, id: u64) {
    post_receive(pair, id);
    pair.a.queue_pair.post_send(&WorkRequest::send_inline(id, &[1; 8])).unwrap();
}

/// Posts a receive. Its record is visible when this returns, so that the peer finds it.
fn post_receive(pair: &mut Pair, id: u64) {
    let buffer = [pair.b.memory.slice(0, 64).unwrap()];
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(id, &buffer)).unwrap();
    pair.b.node.device.hal().barrier(Barrier::ToDevice);
}

/// Runs the world until it is idle.
fn rest(pair: &Pair, span: Duration) {
    let until = pair.world.now() + span;
    while pair.world.now() < until {
        pair.a.node.device.hal().relax(until);
        pair.b.node.device.hal().relax(pair.world.now());
    }
}

/// The next event that the device has written, even if it is still in flight to the processor.
fn event(pair: &Pair, channel: &mut CompletionChannel<Handle>) -> Option<Cqn> {
    pair.b.node.device.hal().barrier(Barrier::FromDevice);
    channel.poll()
}

#[track_caller]
fn expect_sent(pair: &mut Pair, ids: std::ops::Range<u64>) {
    for id in ids {
        let completion = pair.sent();
        assert!(completion.is_success(), "{completion:?}");
        assert_eq!((completion.wr_id, completion.opcode), (id, WorkCompletionOpcode::RdmaWrite));
    }
}

#[test]
fn completions_that_were_not_polled_survive_a_change_of_size() {
    let mut pair = Pair::new(&options(31));
    for (round, size) in [64, 16, 512, 32, 128].into_iter().enumerate() {
        let first = round as u64 * 100;
        write(&mut pair, first..first + 12);
        rest(&pair, Duration::from_micros(100));
        expect_sent(&mut pair, first..first + 3);
        pair.a.sends.resize(size).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(pair.a.sends.entries(), size);
        write(&mut pair, first + 12..first + 18);
        expect_sent(&mut pair, first + 3..first + 18);
        assert_eq!(pair.a.sends.poll_one(), Ok(None));
    }
    assert_eq!(pair.a.queue_pair.sends_outstanding(), 0);
}

#[test]
fn a_resize_below_the_outstanding_completions_is_refused() {
    let mut pair = Pair::new(&options(32));
    write(&mut pair, 0..9);
    rest(&pair, Duration::from_micros(100));
    let error = pair.a.sends.resize(8).expect_err("nine completions do not fit eight places");
    assert!(error.to_string().contains("BAD_SIZE_OUTS_CQES_ERR"), "{error}");
    expect_sent(&mut pair, 0..9);
    pair.a.sends.resize(8).unwrap();
    write(&mut pair, 9..17);
    expect_sent(&mut pair, 9..17);
    assert!(pair.a.sends.resize(0).is_err() && pair.a.sends.resize(1 << 30).is_err());
}

#[test]
fn wide_completions_are_completions() {
    let mut pair = Pair::new(&PairOptions { completions: CompletionForm::Wide, ..options(33) });
    for round in 0..20 {
        write(&mut pair, round * 20..round * 20 + 20);
        expect_sent(&mut pair, round * 20..round * 20 + 20);
        send(&mut pair, round);
        assert_eq!((pair.received().wr_id, pair.sent().wr_id), (round, round));
    }
    pair.a.sends.resize(64).unwrap();
    write(&mut pair, 0..20);
    expect_sent(&mut pair, 0..20);
}

#[test]
fn compressed_completions_are_completions() {
    let mut pair = Pair::new(&PairOptions { completions: CompletionForm::Compressed, ..options(34) });
    let mut found = [WorkCompletion::EMPTY; 7];
    for round in 0..40u64 {
        let ids = round * 30..round * 30 + 27;
        write(&mut pair, ids.clone());
        let mut next = ids.start;
        while next < ids.end {
            let completion = pair.sent();
            assert_eq!((completion.wr_id, completion.is_success()), (next, true));
            let count = pair.a.sends.poll(&mut found).unwrap();
            for (completion, wanted) in found[..count].iter().zip(next + 1..) {
                assert_eq!((completion.wr_id, completion.opcode), (wanted, WorkCompletionOpcode::RdmaWrite));
            }
            next += 1 + count as u64;
        }
        if round % 8 == 3 {
            write(&mut pair, 0..11);
            rest(&pair, Duration::from_micros(100));
            pair.a.sends.resize(128 << (round & 1)).unwrap();
            expect_sent(&mut pair, 0..11);
        }
    }
    let counters = pair.world.with(|world| world.device(pair.a.node.id).counters());
    assert!(counters.completions_compressed > 800, "{counters:?}");
}

#[test]
fn an_error_ends_a_compressed_run() {
    let mut pair = Pair::new(&PairOptions { completions: CompletionForm::Compressed, ..options(35) });
    let (good, mut bad) = (pair.b.memory.remote(0), pair.b.memory.remote(0));
    bad.address += 1 << 40;
    let mut batch = pair.a.queue_pair.send_batch();
    for id in 0..20u64 {
        let remote = if id == 13 { bad } else { good };
        batch.post(&WorkRequest::write_inline(id, &[1; 8], remote)).unwrap();
    }
    batch.ring();
    for id in 0..20u64 {
        let completion = pair.sent();
        assert_eq!((completion.wr_id, completion.is_success()), (id, id < 13), "{completion:?}");
    }
    let counters = pair.world.with(|world| world.device(pair.a.node.id).counters());
    assert_eq!(counters.completions_compressed, 13);
}

#[test]
fn waiters_on_a_channel_are_woken() {
    let mut pair = Pair::new(&PairOptions { channels: true, ..options(36) });
    let mut found = [WorkCompletion::EMPTY; 4];
    let mut channel = pair.b.channel.take().unwrap();
    for round in 0..50 {
        send(&mut pair, round);
        let deadline = pair.world.now() + Duration::from_secs(1);
        let count = pair.b.receives.wait(&mut channel, &mut found, deadline).unwrap();
        assert_eq!((count, found[0].wr_id), (1, round));
        assert!(pair.world.now() < deadline, "the wait slept until its deadline");
        assert_eq!(pair.sent().wr_id, round);
    }
    let deadline = pair.world.now() + Duration::from_millis(1);
    assert_eq!(pair.b.receives.wait(&mut channel, &mut found, deadline), Ok(0));
    assert!(pair.world.now() >= deadline);
    let interrupts = pair.world.with(|world| world.device(pair.b.node.id).counters().interrupts);
    assert!(interrupts >= 40, "{interrupts} interrupts");
}

#[test]
fn completions_before_the_arming_are_announced_at_once() {
    let mut pair = Pair::new(&PairOptions { channels: true, ..options(37) });
    let mut channel = pair.b.channel.take().unwrap();
    send(&mut pair, 1);
    rest(&pair, Duration::from_micros(100));
    assert_eq!(pair.b.receives.arm(Notify::Next), Arming::Ready, "the first completion was not polled");
    assert_eq!(event(&pair, &mut channel), Some(pair.b.receives.number()), "the device reports it too");
    assert_eq!(pair.b.receives.arm(Notify::Next), Arming::Ready, "the completion is still not polled");
    assert_eq!(event(&pair, &mut channel), None, "the device reports it only once");
    assert_eq!(pair.received().wr_id, 1);
    assert_eq!(pair.b.receives.arm(Notify::Solicited), Arming::Armed);
    send(&mut pair, 2);
    rest(&pair, Duration::from_micros(100));
    assert_eq!(event(&pair, &mut channel), None, "the message was not solicited");
    post_receive(&mut pair, 3);
    pair.a.queue_pair.post_send(&WorkRequest::send_inline(3, &[1]).solicited()).unwrap();
    let deadline = pair.world.now() + Duration::from_secs(1);
    assert_eq!(channel.wait(deadline), Some(pair.b.receives.number()));
}

#[test]
fn a_moderated_queue_wakes_once_for_many() {
    let mut pair = Pair::new(&PairOptions { channels: true, ..options(38) });
    let mut channel = pair.b.channel.take().unwrap();
    let moderation =
        Moderation { completions: 5, period: Duration::from_micros(500), from: PeriodStart::LastCompletion };
    pair.b.receives.set_moderation(moderation).unwrap();
    assert_eq!(pair.b.receives.arm(Notify::Next), Arming::Armed);
    (0..4).for_each(|id| send(&mut pair, id));
    rest(&pair, Duration::from_micros(50));
    assert_eq!(event(&pair, &mut channel), None, "four of five");
    send(&mut pair, 4);
    rest(&pair, Duration::from_micros(50));
    assert!(event(&pair, &mut channel).is_some());
    (0..5).for_each(|id| assert_eq!(pair.received().wr_id, id));
    assert_eq!(pair.b.receives.arm(Notify::Next), Arming::Armed);
    send(&mut pair, 5);
    rest(&pair, Duration::from_micros(100));
    assert_eq!(event(&pair, &mut channel), None);
    rest(&pair, Duration::from_micros(600));
    assert!(event(&pair, &mut channel).is_some(), "the period is over");
    let long = Moderation { period: Duration::from_millis(5), ..moderation };
    assert!(pair.b.receives.set_moderation(long).is_err());
}

/// Requirement: IBTA v1.4 §11.2.8.1: a completion that finds its queue full raises an asynchronous error, and the queue
/// pairs of that queue enter the error state.
#[test]
fn a_queue_that_overruns_takes_its_queue_pairs_with_it() {
    let mut pair = Pair::new(&options(39));
    pair.a.sends.resize(8).unwrap();
    let set = CounterSet::create(pair.a.node.device.clone()).unwrap();
    let _counting = QueuePairBuilder::new(&pair.a.node.domain, &pair.a.sends, &pair.a.receives)
        .counter_set(&set)
        .build()
        .unwrap();
    write(&mut pair, 0..12);
    rest(&pair, Duration::from_micros(200));
    let device = pair.a.node.device.clone();
    let events: Vec<_> = std::iter::from_fn(|| device.poll_event().unwrap()).collect();
    let (cqn, qpn) = (pair.a.sends.number(), pair.a.queue_pair.qpn());
    let broken = AsyncEvent::CompletionQueueError { cqn, syndrome: CqErrorSyndrome::CqOverrun };
    assert!(events.contains(&broken), "{events:?}");
    let fatal = |event: &AsyncEvent| matches!(event, AsyncEvent::QueuePairError { qpn: found, cause: QueuePairFault::Catastrophic, .. } if *found == qpn);
    assert!(events.iter().any(fatal), "{events:?}");
    assert_eq!(set.read().unwrap().cq_overflow, 1);
}

#[test]
fn counters_tell_what_happened() {
    let mut pair = Pair::new(&options(40));
    let set = CounterSet::create(pair.b.node.device.clone()).unwrap();
    let (sends, receives) = (&pair.b.sends, &pair.b.receives);
    let prepared =
        QueuePairBuilder::new(&pair.b.node.domain, sends, receives).counter_set(&set).build().unwrap();
    let partner =
        QueuePairBuilder::new(&pair.a.node.domain, &pair.a.sends, &pair.a.receives).build().unwrap();
    let (of_a, of_b) = (partner.endpoint(0).unwrap(), prepared.endpoint(0).unwrap());
    let mut partner = partner.connect(&of_b, Default::default()).unwrap();
    let counted = prepared.connect(&of_a, Default::default()).unwrap();
    let remote = pair.b.memory.remote(0);
    (0..3).for_each(|id| partner.post_send(&WorkRequest::write_inline(id, &[1; 8], remote)).unwrap());
    let destination = [pair.a.memory.slice(0, 8).unwrap()];
    partner.post_send(&WorkRequest::read(3, &destination, remote)).unwrap();
    (0..4).for_each(|id| assert_eq!(pair.sent().wr_id, id));
    let counters = set.read_and_clear().unwrap();
    let nonzero: Vec<_> = counters.by_name().filter(|&(_, value)| value != 0).collect();
    assert_eq!(nonzero, [("rx_write_requests", 3), ("rx_read_requests", 1)]);
    assert_eq!(set.read().unwrap(), Default::default());
    assert_eq!(
        pair.b.node.device.congestion_counters(false).unwrap(),
        Default::default(),
        "no switch marked"
    );
    drop(counted);
    drop(partner);
}

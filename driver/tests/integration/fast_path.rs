//! Which way completions take through polling: what they say is the same on each, so these tests count what the ways differ
//! in. The fast ones wait once for each entry and give all entries back at once; runs are not written out.

use crate::support::FakeHal;
use crate::support::objects::{Handle, Rig, Shape};
use bareverbs_core::completion_queue::PollError;
use bareverbs_core::{
    QueuePair, QueuePairBuilder, ReceiveRequest, SharedReceiveQueue, WorkCompletion, WorkRequest,
};
use bareverbs_prm::cqe::{CompletionEntry, MiniEntry};
use bareverbs_prm::ids::Cqn;
use bareverbs_prm::numbering::{CqeOpcode, CqeSyndrome};
use std::cell::Cell;
use std::rc::Rc;

/// The barriers that `work` executes.
fn barriers<T>(hal: &FakeHal, work: impl FnOnce() -> T) -> (T, u32) {
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    *hal.world.device.borrow_mut() = Some(Box::new(move || counted.set(counted.get() + 1)));
    let result = work();
    hal.world.device.borrow_mut().take();
    (result, count.get())
}

fn rig() -> Rig {
    Rig::new(Shape { sends: 64, receives: 64, entries: 64, ..Shape::default() })
}

/// A completion of `pair`.
fn entry(rig: &Rig, pair: &QueuePair<Handle>, opcode: CqeOpcode, counter: u16) -> CompletionEntry {
    let mut entry = rig.entry(opcode, counter);
    *entry.set_qpn(pair.qpn()).set_user_index(rig.user_index(pair))
}

/// The barriers of each of `count` polls for one completion.
fn singles(rig: &mut Rig, receives: bool, count: usize) -> Vec<u32> {
    let Rig { hal, send, receive, .. } = rig;
    let queue = if receives { receive } else { send };
    (0..count)
        .map(|_| {
            let (found, cost) = barriers(hal, || queue.poll_one());
            assert!(found.unwrap().is_some());
            cost
        })
        .collect()
}

/// One barrier behind the owner byte, one before the entry is the device's again.
#[test]
fn a_single_completion_costs_two_barriers() {
    let mut rig = rig();
    let slice = [rig.region.slice(0, 64).unwrap()];
    for id in 0..4 {
        rig.pair.post_send(&WorkRequest::nop(id)).unwrap();
        rig.pair.post_receive(&ReceiveRequest::new(id, &slice)).unwrap();
        rig.complete_send(rig.entry(CqeOpcode::Requester, id as u16));
        rig.complete_receive(rig.entry(CqeOpcode::ResponderSend, id as u16));
    }
    assert_eq!(singles(&mut rig, false, 4), [2; 4]);
    assert_eq!(singles(&mut rig, true, 4), [2; 4]);
    let (empty, cost) = barriers(&rig.hal, || rig.send.poll_one());
    assert_eq!((empty, cost), (Ok(None), 1));
}

/// They cost no more if queue pairs alternate, since nothing is kept of them.
#[test]
fn single_completions_of_queue_pairs_that_alternate_cost_no_more() {
    let mut rig = rig();
    let mut other = rig.another(8);
    for id in 0..4 {
        rig.pair.post_send(&WorkRequest::nop(id)).unwrap();
        other.post_send(&WorkRequest::nop(id)).unwrap();
        rig.complete_send(rig.entry(CqeOpcode::Requester, id as u16));
        rig.complete_send(entry(&rig, &other, CqeOpcode::Requester, id as u16));
    }
    assert_eq!(singles(&mut rig, false, 8), [2; 8]);
}

/// Another queue pair of a shared receive queue.
fn sibling(rig: &Rig, queue: &SharedReceiveQueue<Handle>) -> QueuePair<Handle> {
    let builder = QueuePairBuilder::new(&rig.domain, &rig.send, &rig.receive).shared_receive_queue(queue);
    builder.build().unwrap().connect(&crate::support::objects::peer(), Default::default()).unwrap()
}

/// A queue pair of the same shared queue takes the place of the cached one.
#[test]
fn a_single_completion_of_a_sibling_takes_its_place_in_the_cache() {
    let mut rig = rig();
    let (mut queue, first) = rig.share(31);
    let second = sibling(&rig, &queue);
    let slice = [rig.region.slice(0, 64).unwrap()];
    let pairs = [&first, &first, &first, &second, &second, &first];
    for (id, pair) in pairs.into_iter().enumerate() {
        queue.post_receive(&ReceiveRequest::new(id as u64, &slice)).unwrap();
        rig.complete_receive(entry(&rig, pair, CqeOpcode::ResponderSend, id as u16));
    }
    let costs = singles(&mut rig, true, 6);
    assert_eq!(costs[1..], [2, 2, 3, 2, 3]);
}

/// The first entry of the other queue pair is read three times: at the end of one stretch, for the change, and at the
/// start of the next. The sibling that ends the batch is cached.
#[test]
fn a_batch_that_goes_over_to_a_sibling_costs_two_barriers_more() {
    let mut rig = rig();
    let (mut queue, first) = rig.share(63);
    let second = sibling(&rig, &queue);
    let slice = [rig.region.slice(0, 64).unwrap()];
    let mut found = [WorkCompletion::EMPTY; 64];
    let mut next = 0u16;
    let mut poll = |pairs: &[&QueuePair<Handle>]| {
        for pair in pairs {
            queue.post_receive(&ReceiveRequest::new(next.into(), &slice)).unwrap();
            rig.complete_receive(entry(&rig, pair, CqeOpcode::ResponderSend, next));
            next += 1;
        }
        let (polled, cost) = barriers(&rig.hal, || rig.receive.poll(&mut found[..pairs.len()]));
        assert_eq!(polled, Ok(pairs.len()));
        cost - pairs.len() as u32
    };
    poll(&[&first; 4]);
    let alone = poll(&[&first; 4]);
    let changing = poll(&[&first, &first, &second, &second]);
    assert_eq!((changing, poll(&[&second; 4])), (alone + 2, alone));
}

/// A batch of a shared queue goes on until the first error, and the receive behind it is a success again.
#[test]
fn an_error_behind_successes_of_a_shared_queue_is_reported() {
    let mut rig = rig();
    let (mut queue, pair) = rig.share(31);
    let slice = [rig.region.slice(0, 64).unwrap()];
    let mut found = [WorkCompletion::EMPTY; 16];
    let mut statuses = vec![];
    // The first batch caches the queue pair.
    for batch in [0..4u16, 4..8] {
        for id in batch.clone() {
            queue.post_receive(&ReceiveRequest::new(id.into(), &slice)).unwrap();
            let mut done = entry(&rig, &pair, CqeOpcode::ResponderSend, id);
            if id == 6 {
                done = rig.error(CqeOpcode::ResponderError, id, CqeSyndrome::LocalLength);
                done.set_qpn(pair.qpn()).set_user_index(rig.user_index(&pair));
            }
            rig.complete_receive(done);
        }
        assert_eq!(rig.receive.poll(&mut found), Ok(batch.len()));
        statuses.extend(found[..batch.len()].iter().map(|done| (done.wr_id, done.is_success())));
    }
    assert!(statuses.into_iter().eq((0..8).map(|id| (id, id != 6))));
}

/// Barriers of a poll that finds `count` completions, which `post` posts and completes, after others of the same kind.
fn cost_of(count: usize, receives: bool, post: impl Fn(&mut Rig, u16)) -> u32 {
    let mut rig = rig();
    let mut found = [WorkCompletion::EMPTY; 64];
    let mut next = 0;
    let mut poll = |count: usize| {
        for _ in 0..count {
            post(&mut rig, next);
            next += 1;
        }
        let Rig { hal, send, receive, .. } = &mut rig;
        let queue = if receives { receive } else { send };
        let (polled, cost) = barriers(hal, || queue.poll(&mut found));
        assert_eq!(polled, Ok(count));
        cost
    };
    // Six in a row, so that their queue pair is cached.
    poll(6);
    poll(count)
}

/// Each further completion costs the barrier behind its owner byte, and nothing else.
#[test]
fn completions_of_one_queue_pair_are_given_back_at_once() {
    let send = |rig: &mut Rig, counter: u16| {
        rig.pair.post_send(&WorkRequest::nop(counter.into())).unwrap();
        rig.complete_send(rig.entry(CqeOpcode::Requester, counter));
    };
    let receive = |rig: &mut Rig, counter: u16| {
        let slice = [rig.region.slice(0, 64).unwrap()];
        rig.pair.post_receive(&ReceiveRequest::new(counter.into(), &slice)).unwrap();
        rig.complete_receive(rig.entry(CqeOpcode::ResponderSend, counter));
    };
    // 50 of 64 wrap around the end of the ring.
    for count in [2, 12, 50, 58] {
        let count_of = |receives| match receives {
            false => cost_of(count, false, send) - cost_of(1, false, send),
            true => cost_of(count, true, receive) - cost_of(1, true, receive),
        };
        let further = count as u32 - 1;
        assert_eq!([false, true].map(count_of), [further; 2], "{count} completions");
    }
}

#[test]
fn completions_of_a_shared_queue_are_given_back_at_once() {
    let cost = |count: u16| {
        let mut rig = rig();
        let (mut queue, pair) = rig.share(63);
        let slice = [rig.region.slice(0, 64).unwrap()];
        let mut found = [WorkCompletion::EMPTY; 64];
        let mut poll = |range: std::ops::Range<u16>| {
            let count = range.len();
            for counter in range {
                queue.post_receive(&ReceiveRequest::new(counter.into(), &slice)).unwrap();
                rig.complete_receive(entry(&rig, &pair, CqeOpcode::ResponderSend, counter));
            }
            let (polled, cost) = barriers(&rig.hal, || rig.receive.poll(&mut found));
            assert_eq!(polled, Ok(count));
            cost
        };
        poll(0..1);
        poll(1..1 + count)
    };
    assert_eq!([2, 12, 50].map(|count| cost(count) - cost(1)), [1, 11, 49]);
}

/// Neither do queue pairs that take turns, in sends or in receives.
#[test]
fn completions_in_turns_are_given_back_at_once() {
    let cost = |count: u16| {
        let mut rig = rig();
        let mut pairs = [rig.another(64), rig.another(64), rig.another(64)];
        for id in 0..count {
            let pair = &mut pairs[usize::from(id) % 3];
            pair.post_send(&WorkRequest::nop(id.into())).unwrap();
            let done = entry(&rig, &pairs[usize::from(id) % 3], CqeOpcode::Requester, id / 3);
            rig.complete_send(done);
        }
        let mut found = [WorkCompletion::EMPTY; 64];
        let (polled, cost) = barriers(&rig.hal, || rig.send.poll(&mut found));
        assert_eq!(polled, Ok(count.into()));
        cost
    };
    assert_eq!([2, 12, 60].map(|count| cost(count) - cost(1)), [1, 11, 59]);
}

/// Queue pairs that take turns are expected to go on with it, until one of them ends a poll twice in a row: neither way tries
/// the other one first.
#[test]
fn a_poll_begins_with_the_way_of_the_one_before() {
    let mut rig = rig();
    let mut pairs = [rig.another(64), rig.another(64)];
    let mut posted = [0u16; 2];
    let mut found = [WorkCompletion::EMPTY; 8];
    let mut costs = vec![];
    let rounds: [&[usize]; 5] =
        [&[0, 1, 0, 1], &[0, 1, 0, 1], &[1, 0, 1, 1, 0, 0], &[0, 0, 0, 0], &[0, 0, 0, 0]];
    for turns in rounds {
        for (id, &turn) in turns.iter().enumerate() {
            pairs[turn].post_send(&WorkRequest::nop(id as u64)).unwrap();
            rig.complete_send(entry(&rig, &pairs[turn], CqeOpcode::Requester, posted[turn]));
            posted[turn] += 1;
        }
        let count = turns.len();
        let (polled, cost) = barriers(&rig.hal, || rig.send.poll(&mut found[..count]));
        assert_eq!(polled, Ok(count));
        assert!(found[..count].iter().map(|done| done.wr_id).eq(0..count as u64));
        costs.push(cost - count as u32);
    }
    // Each entry costs a barrier, and giving them back another one. The first call tries the cached queue pair in vain.
    assert_eq!(costs[1..], [1, 1, 2, 2]);
    assert!(costs[0] > 1, "{costs:?}");
}

/// The bytes of a completion queue's ring without the last word of each entry, which changes its owner.
fn contents(rig: &Rig, queue: Cqn) -> Vec<Vec<u8>> {
    let ring = rig.hal.firmware().completion_queues[&queue.value()].clone();
    (0..1 << ring.log_size).map(|slot| rig.hal.world.memory.read(ring.place(slot), 56)).collect()
}

/// A run for which there is room is retired from its mini entries, if its queue pair is cached or a sibling of the cached one:
/// its slots change owner, and nothing else is written into them.
#[test]
fn a_run_of_a_cached_queue_pair_is_not_written_out() {
    let mut rig = rig();
    let mut found = [WorkCompletion::EMPTY; 64];
    let mini = |counter: u16| {
        let mut mini = MiniEntry::new();
        *mini.set_wqe_counter(counter).set_byte_count(7)
    };
    let mut next = 0u16;
    // The first run is written out, which caches the queue pair.
    for (round, length) in [9, 2, 8, 16, 17, 3].into_iter().enumerate() {
        let range = next..next + length;
        range.clone().for_each(|id| rig.pair.post_send(&WorkRequest::nop(id.into())).unwrap());
        let minis: Vec<_> = range.clone().map(mini).collect();
        let title = rig.entry(CqeOpcode::Requester, next);
        rig.hal.firmware().complete_run(&rig.hal.world.memory, rig.send.number().value(), title, &minis);
        let before = contents(&rig, rig.send.number());
        assert_eq!(rig.send.poll(&mut found), Ok(range.len()));
        let ids = found[..range.len()].iter().map(|done| done.wr_id);
        assert!(ids.eq(range.clone().map(u64::from)), "run {round}");
        assert_eq!(contents(&rig, rig.send.number()) == before, round > 0, "run {round}");
        next = range.end;
    }
}

/// Its counters may be those of the cached queue pair, which has as many requests outstanding.
#[test]
fn a_run_of_another_queue_pair_is_not_retired_from_the_cached_one() {
    let mut rig = rig();
    let mut other = rig.another(64);
    let mut found = [WorkCompletion::EMPTY; 8];
    for id in 0..8 {
        rig.pair.post_send(&WorkRequest::nop(id)).unwrap();
        other.post_send(&WorkRequest::nop(100 + id)).unwrap();
    }
    for counter in 0..4 {
        rig.complete_send(rig.entry(CqeOpcode::Requester, counter));
        rig.complete_send(entry(&rig, &other, CqeOpcode::Requester, counter));
    }
    assert_eq!(rig.send.poll(&mut found), Ok(8));
    // One queue pair alone is cached.
    (4..6).for_each(|counter| rig.complete_send(rig.entry(CqeOpcode::Requester, counter)));
    assert_eq!(rig.send.poll(&mut found), Ok(2));
    let minis: Vec<_> =
        (4..8).map(|counter| *MiniEntry::new().set_wqe_counter(counter).set_byte_count(7)).collect();
    let title = entry(&rig, &other, CqeOpcode::Requester, 4);
    rig.hal.firmware().complete_run(&rig.hal.world.memory, rig.send.number().value(), title, &minis[..2]);
    assert_eq!(rig.send.poll(&mut found), Ok(2));
    assert_eq!([found[0].wr_id, found[1].wr_id], [104, 105]);
    let title = rig.entry(CqeOpcode::Requester, 6);
    rig.hal.firmware().complete_run(&rig.hal.world.memory, rig.send.number().value(), title, &minis[2..]);
    assert_eq!(rig.send.poll(&mut found), Ok(2));
    assert_eq!([found[0].wr_id, found[1].wr_id], [6, 7]);
}

#[test]
fn runs_of_receives_are_not_written_out() {
    let mut rig = rig();
    let (mut queue, shared) = rig.share(63);
    let slice = [rig.region.slice(0, 64).unwrap()];
    let mut found = [WorkCompletion::EMPTY; 64];
    let (mut own, mut of_shared) = (0u16, 0u16);
    // All in one pass: a run that wraps around the end of the ring is written out.
    for round in 0..5 {
        for is_shared in [false, true] {
            let length = 3 + round;
            let (pair, next) = if is_shared { (&shared, &mut of_shared) } else { (&rig.pair, &mut own) };
            let title = entry(&rig, pair, CqeOpcode::ResponderSend, *next);
            for id in *next..*next + length {
                let request = ReceiveRequest::new(u64::from(id), &slice);
                if is_shared {
                    queue.post_receive(&request).unwrap();
                } else {
                    rig.pair.post_receive(&request).unwrap();
                }
            }
            *next += length;
            let minis = vec![MiniEntry::new(); length.into()];
            let cqn = rig.receive.number();
            rig.hal.firmware().complete_run(&rig.hal.world.memory, cqn.value(), title, &minis);
            let before = contents(&rig, cqn);
            assert_eq!(rig.receive.poll(&mut found), Ok(length.into()), "round {round}");
            assert_eq!(contents(&rig, cqn) == before, round > 0, "round {round}, shared {is_shared}");
        }
    }
}

/// A mini entry that lies ends the fast path in the middle of an array. The rest of the run is written out from there on.
#[test]
fn a_compressed_run_is_written_out_from_its_invalid_entry_on() {
    let mut rig = rig();
    for id in 0..2 {
        rig.pair.post_send(&WorkRequest::nop(id)).unwrap();
        rig.complete_send(rig.entry(CqeOpcode::Requester, id as u16));
    }
    let mut found = [WorkCompletion::EMPTY; 32];
    assert_eq!(rig.send.poll(&mut found), Ok(2), "the queue pair is cached");
    (2..19).for_each(|id| rig.pair.post_send(&WorkRequest::nop(id)).unwrap());
    let minis: Vec<_> = (2..19)
        .map(|counter| *MiniEntry::new().set_wqe_counter(if counter == 12 { 70 } else { counter }))
        .collect();
    let title = rig.entry(CqeOpcode::Requester, 2);
    rig.hal.firmware().complete_run(&rig.hal.world.memory, rig.send.number().value(), title, &minis);
    assert_eq!(rig.send.poll(&mut found), Ok(10));
    assert!(found[..10].iter().map(|done| done.wr_id).eq(2..12));
    let lie = PollError::NotOutstanding { qpn: rig.pair.qpn(), counter: 70 };
    assert_eq!(rig.send.poll(&mut found), Err(lie));
    assert_eq!(rig.send.poll(&mut found), Ok(6));
    assert!(found[..6].iter().map(|done| done.wr_id).eq(13..19));
}

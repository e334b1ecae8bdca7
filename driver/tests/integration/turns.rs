//! Queue pairs that take turns in one completion queue.

use crate::support::objects::{Rig, Shape};
use bareverbs_core::completion_queue::PollError;
use bareverbs_core::{WorkCompletion, WorkRequest};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::CqeOpcode;
use proptest::prelude::*;
use std::collections::VecDeque;

/// Queue pairs that take turns are retired in the ledger behind the back of what is cached; so that must not be believed any more.
#[test]
fn no_request_completes_twice_where_queue_pairs_take_turns() {
    let mut rig = Rig::new(Shape::default());
    let mut other = rig.another(8);
    let mut others = rig.entry(CqeOpcode::Requester, 0);
    others.set_qpn(other.qpn()).set_user_index(rig.user_index(&other));
    for id in 0..8 {
        rig.pair.post_send(&WorkRequest::nop(id)).unwrap();
        other.post_send(&WorkRequest::nop(100 + id)).unwrap();
    }
    let own = |counter| rig.entry(CqeOpcode::Requester, counter);
    let turn = |counter| {
        let mut entry = others;
        *entry.set_wqe_counter(counter)
    };
    [own(0), own(1), turn(0), own(2), turn(1), own(3), turn(2)]
        .into_iter()
        .for_each(|entry| rig.complete_send(entry));
    // Two requests were retired while another queue pair was cached: completing them again is reported.
    [own(2), turn(2), own(3), own(4)].into_iter().for_each(|entry| rig.complete_send(entry));
    let mut found = vec![];
    let mut refused = vec![];
    for at_once in [1, 1, 8, 8, 8, 8, 8] {
        let mut some = vec![WorkCompletion::EMPTY; at_once];
        match rig.send.poll(&mut some) {
            Ok(count) => found.extend(some[..count].iter().map(|completion| completion.wr_id)),
            Err(error) => refused.push(error),
        }
    }
    assert_eq!(found, [0, 1, 100, 2, 101, 3, 102, 4]);
    let lie = |qpn, counter| PollError::NotOutstanding { qpn, counter };
    assert_eq!(refused, [lie(rig.pair.qpn(), 2), lie(other.qpn(), 2), lie(rig.pair.qpn(), 3)]);
    assert_eq!((rig.pair.sends_outstanding(), other.sends_outstanding()), (3, 5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Single polls and polls of several go different ways, and cache and forget queue pairs; what they find is the same.
    #[test]
    fn completions_come_in_their_order_however_they_are_polled(
        runs in prop::collection::vec((0usize..3, 1usize..6), 1..12),
        sizes in prop::collection::vec(1usize..7, 60),
    ) {
        let mut rig = Rig::new(Shape { entries: 16, ..Shape::default() });
        let mut pairs = [rig.another(64), rig.another(64), rig.another(64)];
        let entries = pairs.each_ref().map(|pair| {
            let mut entry = rig.entry(CqeOpcode::Requester, 0);
            *entry.set_qpn(pair.qpn()).set_user_index(rig.user_index(pair))
        });
        let turns = runs.into_iter().flat_map(|(pair, length)| std::iter::repeat_n(pair, length));
        let (mut posted, mut waiting) = ([0u16; 3], VecDeque::new());
        let mut sizes = sizes.into_iter().cycle();
        for (id, turn) in turns.enumerate() {
            pairs[turn].post_send(&WorkRequest::nop(id as u64)).unwrap();
            let mut entry = entries[turn];
            rig.complete_send(*entry.set_wqe_counter(posted[turn]));
            posted[turn] += 1;
            waiting.push_back((id as u64, pairs[turn].qpn()));
            if waiting.len() == 8 {
                poll(&mut rig, &mut waiting, sizes.next().unwrap());
            }
        }
        while !waiting.is_empty() {
            poll(&mut rig, &mut waiting, sizes.next().unwrap());
        }
        prop_assert_eq!(rig.send.poll_one(), Ok(None));
        prop_assert!(pairs.iter().all(|pair| pair.sends_outstanding() == 0));
    }
}

/// Polls up to `size` completions, which have to be the first that are waited for.
fn poll(rig: &mut Rig, waiting: &mut VecDeque<(u64, Qpn)>, size: usize) {
    let mut some = vec![WorkCompletion::EMPTY; size];
    let count = rig.send.poll(&mut some).unwrap();
    assert_eq!(count, size.min(waiting.len()));
    let expected: Vec<_> = waiting.drain(..count).collect();
    assert_eq!(some[..count].iter().map(|done| (done.wr_id, done.qpn)).collect::<Vec<_>>(), expected);
}

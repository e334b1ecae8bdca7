//! Queue pairs that take turns in one completion queue.

mod support;

use bareverbs_core::completion_queue::PollError;
use bareverbs_core::{WorkCompletion, WorkRequest};
use bareverbs_prm::numbering::CqeOpcode;
use support::objects::{Rig, Shape};

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
    // Two requests were retired while another queue pair was cached: a device that completes them again is told so.
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

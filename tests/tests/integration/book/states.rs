//! Snippets of the chapter about queue pairs.

use bareverbs::prelude::*;
use bareverbs_prm::numbering::{CqeSyndrome, QpState};
use bareverbs_tests::pair::{Pair, PairOptions};

#[test]
fn an_error_ends_everything_behind_it() {
    let mut pair = Pair::new(&PairOptions::default());
    let beyond = RemoteSlice { address: 8, ..pair.b.memory.remote(0) };
    // ANCHOR: error
    for id in 1..=3 {
        pair.a.queue_pair.post_send(&WorkRequest::write_inline(id, b"beyond", beyond)).unwrap();
    }
    assert_eq!(pair.sent().status, WorkCompletionStatus::Failed(CqeSyndrome::RemoteAccess));
    assert_eq!(pair.sent().status, WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed));
    assert_eq!(pair.sent().status, WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed));
    assert_eq!(pair.a.queue_pair.query().unwrap().state, QpState::Error);
    // ANCHOR_END: error
}

//! Requests whose reply never arrives.

use super::*;

impl Scene {
    /// Lets the server answer all requests, and hides the answers from the client.
    fn lose_answers(&mut self) {
        self.far.own.borrow_mut().refuses = SLOTS;
        while self.serve() {}
        self.far.own.borrow_mut().refuses = 0;
        // A kernel in the NIC writes its answer to memory and posts nothing.
        self.near.own.borrow_mut().memory.fill(0);
    }
}

/// A reply that cannot be posted is lost for good; once, its slot was lost too.
#[test]
fn a_request_whose_reply_was_lost_is_withdrawn_and_both_ends_have_their_slots_back() {
    for kind in [Kind::Dpu, Kind::Nic] {
        let mut scene = Scene::new(kind);
        for round in 0..3 {
            for _ in 0..SLOTS {
                scene.start(&[1, 1, 2]).expect("a slot");
            }
            // The client sees none of the server's answers.
            scene.lose_answers();
            scene.now += Duration::from_secs(1);
            for _ in 0..SLOTS {
                assert_eq!(
                    scene.poll().map(|result| result.ended),
                    Some(Ended::TimedOut),
                    "{kind:?} {round}"
                );
            }
            while scene.serve() {}
            assert_eq!(scene.poll(), None);
        }
        let (result, found) = scene.lookup(&[2, 1, 2]);
        assert_eq!((result.ended, found), (Ended::Found, value(2)), "{kind:?}");
    }
}

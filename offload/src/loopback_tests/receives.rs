//! Receives: too few of them, and those that malformed messages consume.

use super::*;

#[test]
fn a_receive_queue_without_room_for_the_answers_is_named_until_it_has_room() {
    let mut scene = Scene::new(Kind::Dpu);
    scene.near.own.borrow_mut().receive_depth = Some(2 * SLOTS - 1);
    for _ in 0..2 {
        let error = scene.start(&[1, 1, 2]).expect_err("one receive is missing");
        assert_eq!(error, StartError::ReceiveQueueFull { posted: 7, needed: 8 });
        assert!(error.to_string().contains("took 7 of 8 receives"), "{error}");
    }
    scene.near.own.borrow_mut().receive_depth = Some(2 * SLOTS);
    assert_eq!(scene.lookup(&[1, 1, 2]).0.ended, Ended::Found);
}

#[test]
fn malformed_messages_reach_nobody_but_return_their_receive() {
    let mut scene = Scene::new(Kind::Dpu);
    for n in 0..100 {
        scene.near.post(0, 7, Work::Send(&vec![n; usize::from(n) % 512])).expect("posted");
        scene.serve();
    }
    assert_eq!(scene.lookup(&[1, 1, 2]).0.ended, Ended::Found);
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    assert_eq!(dpu.runtime().counters().dropped, 100);
}

//! Connections that end, are taken over by others, or belong to a server that drains.

use super::*;

#[test]
fn a_request_that_cannot_be_copied_returns_its_receive() {
    let mut scene = Scene::new(Kind::Dpu);
    for _ in 0..3 * RECEIVES {
        scene.far.own.borrow().unreadable.set(1);
        scene.near.post(0, 7, Work::Send(&[0; 64])).expect("posted");
        scene.serve();
    }
    assert_eq!(scene.lookup(&[1, 1, 2]).0.ended, Ended::Found);
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    assert_eq!(dpu.counters().unreadable, 3 * RECEIVES as u64);
}

#[test]
fn a_draining_server_answers_running_requests_and_refuses_new_ones() {
    let mut scene = Scene::new(Kind::Dpu);
    scene.start(&[1, 1, 2]).expect("a slot");
    scene.serve();
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    dpu.runtime().drain();
    assert!(!dpu.is_idle());
    scene.start(&[2, 1, 2]).expect("a slot");
    let ends = [scene.finish().ended, scene.finish().ended];
    assert!(ends.contains(&Ended::Found) && ends.contains(&Ended::Status(Status::ShuttingDown)), "{ends:?}");
    while scene.serve() {}
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    assert!(dpu.is_idle());
}

#[test]
fn a_dismissed_client_is_no_longer_served() {
    let mut scene = Scene::new(Kind::Dpu);
    scene.start(&[1, 1, 2]).expect("a slot");
    scene.serve();
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    assert!(dpu.is_served(0));
    dpu.dismiss(0);
    assert!(!dpu.is_served(0));
    while scene.serve() {}
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    assert_eq!((dpu.is_idle(), dpu.counters().replies), (true, 0));
    assert_eq!(scene.poll(), None);
}

#[test]
fn the_next_tenant_of_a_connection_inherits_neither_requests_nor_credits() {
    let mut scene = Scene::new(Kind::Dpu);
    scene.far.own.borrow_mut().room = Some(0);
    (0..SLOTS).for_each(|_| assert!(scene.start(&[2, 1, 2]).is_ok()));
    scene.serve();
    scene.far.done(1 << 62, Outcome::Failed);
    scene.far.own.borrow_mut().room = None;
    while scene.serve() {}
    scene.far.own.borrow_mut().receives.clear();
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    let window = ResponseWindow { address: WINDOW, length: STRIDE * SLOTS as u64, rkey: 1 };
    let id = dpu.runtime().connect(window, SLOTS as u16).expect("room");
    dpu.serve(&mut scene.far, 0, id).expect("receives fit");
    let accepted = dpu.runtime().counters().accepted;
    while scene.serve() {}
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    assert_eq!((dpu.runtime().counters().accepted, dpu.counters().replies), (accepted, 0));
}

//! Streams that end badly, and what is left of them.

use super::*;

const BYTES: usize = 24_000;

fn parameters() -> [u8; 8] {
    (BYTES as u64).to_be_bytes()
}

impl Scene {
    /// A stream of which some was sent and some written.
    fn begun(&mut self) -> (u64, usize) {
        let bytes = bytes_of(&values(7, BYTES / 8));
        let call = self.open(0, COUNT, &parameters(), &bytes);
        let mut sent = 0;
        while self.host.writes < 4 {
            sent += self.send(0, call, sent, BYTES / 2).expect("open");
            self.serve();
            assert!(self.poll(0).is_none());
        }
        (call, sent)
    }

    /// A whole stream of tenant 0 works, as if nothing had been.
    #[track_caller]
    fn works(&mut self) {
        let values = values(9, BYTES / 8);
        let (result, _) = self.stream(0, COUNT, &parameters(), &bytes_of(&values));
        assert_eq!(result.ended, Ended::Found);
        assert_eq!(self.region(0)[..BYTES], bytes_of(&values));
        while self.serve() {}
        assert!(self.server.is_idle());
    }
}

#[test]
fn no_byte_is_written_after_the_grant_was_revoked() {
    let mut scene = Scene::new();
    let (call, sent) = scene.begun();
    let (id, region) = (scene.tenants[0].id, scene.tenants[0].region);
    let before = scene.host.memory.clone();
    scene.host.asked.clear();
    scene.server.runtime().revoke(id, region);
    let (result, _) = scene.go_on(0, call, sent, BYTES);
    assert_eq!(result.ended, Ended::Status(Status::Revoked));
    assert_eq!(scene.host.memory, before);
    let call = scene.open(0, COUNT, &parameters(), &[0; BYTES]);
    assert_eq!(scene.go_on(0, call, 0, BYTES).0.ended, Ended::Status(Status::Revoked), "refused at once");
}

#[test]
fn a_stream_that_goes_wrong_ends_with_its_status_and_the_next_one_works() {
    let mut scene = Scene::new();
    let bytes = bytes_of(&values(7, BYTES / 8));
    let shuffled = shuffled(&values(7, BYTES / 8));
    let mut narrow = shuffled;
    narrow.partitions[3].length = 128.into();
    let mut outside = shuffled;
    outside.partitions[3].offset = (REGION as u64).into();
    let cases: [(Opcode, &[u8], Status); 6] = [
        (COUNT, &(BYTES as u64 - 8).to_be_bytes(), Status::BadParameters),
        (COUNT, &(REGION as u64 + 8).to_be_bytes(), Status::OutOfBounds),
        (COUNT, &[1; 3], Status::BadParameters),
        (SHUFFLE, narrow.as_bytes(), Status::OutOfBounds),
        (SHUFFLE, outside.as_bytes(), Status::OutOfBounds),
        (Opcode(5), &[0; 8], Status::NoKernel),
    ];
    for (opcode, parameters, status) in cases {
        let (result, answer) = scene.stream(0, opcode, parameters, &bytes);
        assert_eq!((result.ended, answer), (Ended::Status(status), vec![]), "{opcode}");
        scene.works();
    }
    let (id, grant) = (scene.tenants[0].id, Grant::new(HOST, REGION as u64).expect("no wrap"));
    let (own, read_only) = (scene.tenants[0].region, scene.server.runtime().grant(id, grant).expect("room"));
    scene.tenants[0].region = read_only;
    let (result, _) = scene.stream(0, COUNT, &parameters(), &bytes);
    assert_eq!(result.ended, Ended::Status(Status::ReadOnly));
    scene.tenants[0].region = own;
    scene.works();
}

#[test]
fn a_call_that_has_ended_takes_no_more_and_its_pieces_free_their_slots() {
    let mut scene = Scene::new();
    let too_short = (BYTES as u64 / 2 - 8).to_be_bytes();
    let call = scene.open(0, COUNT, &too_short, &[1; BYTES]);
    let (result, _) = scene.go_on(0, call, 0, BYTES / 2);
    assert_eq!(result.ended, Ended::Status(Status::BadParameters));
    let ended = Err(StartError::Refused(Status::NoStream));
    assert_eq!(scene.send(0, call, 0, BYTES), ended);
    assert_eq!(scene.send(0, 4711, 0, BYTES), ended, "no call has this id");
    for _ in 0..10 {
        scene.serve();
        assert!(scene.poll(0).is_none());
    }
    scene.works();
    assert_eq!(scene.tenants[0].client.stale(), 0);
}

#[test]
fn a_connection_has_one_stream_at_a_time_and_it_counts_as_a_request() {
    let mut scene = Scene::new();
    let (call, sent) = scene.begun();
    let second = scene.open(0, COUNT, &parameters(), &bytes_of(&values(7, BYTES / 8)));
    for _ in 0..3 {
        scene.serve();
    }
    let (result, _) = scene.poll(0).expect("it is refused");
    assert_eq!((result.request_id, result.ended), (second, Ended::Status(Status::Busy)));
    // One place is left of the connection's share of two.
    let id = scene.tenants[0].id;
    assert_eq!(scene.server.runtime().take_share(id), Ok(()));
    assert_eq!(scene.server.runtime().take_share(id), Err(Status::Busy));
    scene.server.runtime().release_share(id);
    assert_eq!(scene.go_on(0, call, sent, BYTES).0.ended, Ended::Found);
    while scene.serve() {}
    assert_eq!([(); 2].map(|()| scene.server.runtime().take_share(id)), [Ok(()); 2]);
    let call = scene.open(0, COUNT, &parameters(), &[0; BYTES]);
    assert_eq!(scene.go_on(0, call, 0, BYTES).0.ended, Ended::Status(Status::Busy), "the share is used up");
}

#[test]
fn a_client_that_gives_up_withdraws_its_stream() {
    let mut scene = Scene::new();
    let (call, _) = scene.begun();
    scene.host.may_end = Some(0);
    while scene.serve() {}
    scene.now = scene.now + TIMEOUT + TIMEOUT;
    let (result, _) = scene.poll(0).expect("its time is over");
    assert_eq!((result.request_id, result.ended), (call, Ended::TimedOut));
    // The withdrawals follow pieces that wait for room. Writes in flight keep their place until they end.
    scene.host.may_end = Some(1);
    for _ in 0..20 {
        scene.serve();
        assert!(scene.poll(0).is_none());
    }
    assert!(!scene.server.is_idle(), "writes are in flight");
    scene.host.may_end = None;
    for _ in 0..20 {
        scene.serve();
        assert!(scene.poll(0).is_none());
    }
    assert!(scene.server.is_idle());
    scene.works();
}

#[test]
fn pieces_without_an_answer_are_withdrawn_with_their_call() {
    let mut scene = Scene::new();
    let call = scene.open(0, COUNT, &parameters(), &[1; MAX_PIECE]);
    assert_eq!(scene.send(0, call, 0, MAX_PIECE), Ok(MAX_PIECE));
    assert_eq!(scene.tenants[0].client.poll_timeout(), Some(Time::ZERO + TIMEOUT), "that of the call");
    scene.now += TIMEOUT;
    assert_eq!(
        scene.poll(0).map(|(result, _)| (result.request_id, result.ended)),
        Some((call, Ended::TimedOut))
    );
    assert!(scene.poll(0).is_none(), "a piece is no call");
    let messages = scene.far.wires[0].borrow().completions.len();
    assert_eq!(messages, 4, "the call, its piece, and a withdrawal of each");
    for _ in 0..3 {
        scene.serve();
        assert!(scene.poll(0).is_none());
    }
    scene.works();
}

/// The stream ends while a piece waits for room, and no write ever ends.
#[test]
fn pieces_that_wait_are_answered_when_their_stream_has_ended() {
    let mut scene = Scene::new();
    scene.host.may_end = Some(0);
    let call = scene.open(0, COUNT, &parameters(), &bytes_of(&values(7, BYTES / 8)));
    let mut sent = 0;
    for _ in 0..20 {
        sent += scene.send(0, call, sent, BYTES).expect("open");
        scene.serve();
        assert!(scene.poll(0).is_none());
    }
    let (id, region) = (scene.tenants[0].id, scene.tenants[0].region);
    scene.server.runtime().revoke(id, region);
    let (result, _) = scene.go_on(0, call, sent, BYTES);
    assert_eq!(result.ended, Ended::Status(Status::Revoked));
    for _ in 0..10 {
        scene.serve();
        assert!(scene.poll(0).is_none());
    }
    assert!(!scene.host.asked.is_empty() && scene.host.writes == 0);
    for _ in 0..CALLS {
        scene.open(0, Opcode(5), &[], &[]);
    }
}

#[test]
fn a_stream_that_rests_too_long_ends() {
    let mut scene = Scene::new();
    let (call, sent) = scene.begun();
    while scene.serve() {}
    let last = scene.now;
    scene.now = last + Duration::from_millis(999);
    scene.serve();
    assert!(!scene.server.is_idle());
    scene.now = last + Duration::from_secs(1);
    while scene.serve() {}
    assert!(scene.server.is_idle());
    let _ = scene.send(0, call, sent, BYTES);
    // The client has given up long before.
    assert_eq!(scene.poll(0).expect("an end").0.request_id, call);
}

#[test]
fn a_connection_that_ends_leaves_its_place_when_its_writes_have_ended() {
    let mut scene = Scene::new();
    scene.begun();
    scene.host.may_end = Some(0);
    let id = scene.tenants[0].id;
    scene.serve();
    assert!(!scene.host.asked.is_empty(), "writes are in flight");
    scene.server.dismiss(0);
    assert!(!scene.server.is_idle());
    scene.host.may_end = None;
    while scene.serve() {}
    assert!(scene.server.is_idle());
    let window = ResponseWindow { address: WINDOW, length: STRIDE * CALLS as u64, rkey: 1 };
    assert_eq!(scene.server.runtime().connect(window, 1), Ok(id), "in the place of the old one");
    assert_eq!(scene.server.runtime().take_share(id), Ok(()), "which has given its share back");
}

#[test]
fn flushed_writes_are_submitted_again_and_a_fault_ends_the_stream() {
    let mut scene = Scene::new();
    let values = values(7, BYTES / 8);
    scene.host.ends = [DmaEnd::Done, DmaEnd::Flushed, DmaEnd::Flushed, DmaEnd::Done, DmaEnd::Flushed].into();
    let (result, _) = scene.stream(0, COUNT, &parameters(), &bytes_of(&values));
    assert_eq!((result.ended, scene.host.ends.len()), (Ended::Found, 0));
    assert_eq!(scene.region(0)[..BYTES], bytes_of(&values));
    for (fault, status) in [(DmaFault::TakenBack, Status::TakenBack), (DmaFault::Memory, Status::DmaFault)] {
        scene.host.ends = [DmaEnd::Done, DmaEnd::Fault(fault)].into();
        let (result, _) = scene.stream(0, COUNT, &parameters(), &bytes_of(&values));
        assert_eq!(result.ended, Ended::Status(status));
        scene.works();
    }
    for (refusal, status) in
        [(PostError::Broken, Status::TakenBack), (PostError::BadRequest, Status::DmaFault)]
    {
        scene.host.refuses = Some(refusal);
        let (result, _) = scene.stream(0, COUNT, &parameters(), &bytes_of(&values));
        assert_eq!(result.ended, Ended::Status(status));
        scene.host.refuses = None;
        scene.works();
    }
}

#[test]
fn a_server_that_is_shut_down_finishes_streams_and_begins_none() {
    let mut scene = Scene::new();
    let (call, sent) = scene.begun();
    scene.server.runtime().drain();
    let (result, _) = scene.go_on(0, call, sent, BYTES);
    assert_eq!(result.ended, Ended::Found);
    assert_eq!(scene.region(0)[..BYTES], bytes_of(&values(7, BYTES / 8)));
    let (result, _) = scene.stream(0, COUNT, &parameters(), &[0; BYTES]);
    assert_eq!(result.ended, Ended::Status(Status::ShuttingDown));
}

//! What the owner of a runtime asks besides messages, DMAs and replies: to withdraw, to drain, to limit, to open streams,
//! and when to come back.

use super::*;
use crate::wire::WITHDRAW;

/// Two lookups that are running, of requests 1 and 2.
fn with_two_lookups() -> (KvWorld, Vec<u8>) {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    for id in [1, 2] {
        assert_eq!(world.send(&world.request(id, &hit)), Admission::Accepted);
    }
    (world, hit)
}

/// A connection beside the first one, with a grant of the same memory.
fn neighbour(world: &mut KvWorld) -> (ConnectionId, RegionHandle) {
    let other = world.runtime.connect(WINDOW, 4).expect("room");
    let grant = Grant::new(BASE, world.memory.len() as u64).expect("no wrap");
    (other, world.runtime.grant(other, grant).expect("room"))
}

#[track_caller]
fn refused(admission: Admission) -> Status {
    let Admission::Refused(reply) = admission else { panic!("{admission:?}") };
    assert_eq!((reply.ticket, reply.body, reply.trailer.length), (None, None, 0));
    reply.trailer.status
}

fn answered(world: &mut KvWorld) -> Vec<u64> {
    world.run().iter().map(|(reply, _)| reply.trailer.request_id).collect()
}

#[test]
fn a_withdrawn_request_has_no_other_reply() {
    let (mut world, hit) = with_two_lookups();
    let (other, region) = neighbour(&mut world);
    let mut buffer = [0; 512];
    let of_other = Request { region, ..world.request(1, &hit) };
    let bytes = of_other.encode_message(&mut buffer).expect("fits");
    assert_eq!(world.runtime.handle_message(world.now, other, bytes), Admission::Accepted);
    let withdraw = Request { opcode: WITHDRAW, ..world.request(1, &[]) };
    assert_eq!(refused(world.send(&withdraw)), Status::Withdrawn);
    assert_eq!(world.runtime.running(), 2);
    let answers: Vec<_> =
        world.run().iter().map(|(reply, _)| (reply.connection, reply.trailer.request_id)).collect();
    assert_eq!(answers, [(world.connection, 2), (other, 1)]);
    let counters = world.runtime.counters();
    assert_eq!((counters.accepted, counters.refused, counters.withdrawn), (3, 0, 1));
}

/// A reply that is being sent still uses its buffer, so its slot stays.
#[test]
fn a_reply_in_flight_is_not_withdrawn() {
    let (mut world, _) = with_two_lookups();
    for _ in 0..30 {
        while let Some(dma) = world.runtime.poll_dma(world.now) {
            world.carry_out(&dma);
        }
        world.now += Duration::from_nanos(100);
    }
    let reply = world.runtime.poll_reply(world.now).expect("both are answered");
    let withdraw = Request { opcode: WITHDRAW, ..world.request(reply.trailer.request_id, &[]) };
    assert_eq!(refused(world.send(&withdraw)), Status::Withdrawn);
    assert_eq!(world.runtime.running(), 2);
    world.runtime.reply_done(reply.ticket.expect("polled"));
    world.runtime.reply_done(reply.ticket.expect("polled"));
    assert_eq!(world.runtime.running(), 1, "once");
}

/// Its slot has another request by then, which is not disturbed.
#[test]
fn a_flush_that_comes_too_late_is_counted() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let mut reads = vec![];
    for id in [1, 2] {
        assert_eq!(world.send(&world.request(id, &hit)), Admission::Accepted);
        world.now = world.runtime.poll_timeout().expect("due");
        reads.push(world.runtime.poll_dma(world.now).expect("due"));
        if id == 1 {
            world.carry_out(&reads[0]);
            assert_eq!(answered(&mut world), [1]);
        }
    }
    assert_eq!(reads[0].tag.buffer(), reads[1].tag.buffer());
    world.runtime.handle_dma_flushed(reads[0].tag);
    assert_eq!(world.runtime.counters().stale_completions, 1);
    assert_eq!(world.runtime.poll_dma(world.now), None, "nothing is read again");
    world.runtime.handle_dma_flushed(reads[1].tag);
    assert_eq!(world.runtime.poll_dma(world.now), Some(reads[1]));
    assert_eq!(world.runtime.counters().stale_completions, 1);
}

#[test]
fn a_draining_runtime_answers_running_requests_and_refuses_new_ones() {
    let (mut world, hit) = with_two_lookups();
    world.runtime.drain();
    assert_eq!(refused(world.send(&world.request(3, &hit))), Status::ShuttingDown);
    assert_eq!(world.runtime.counters().refused, 1);
    assert_eq!(answered(&mut world), [1, 2]);
}

#[test]
fn progress_names_the_oldest_that_runs() {
    let (mut world, hit) = with_two_lookups();
    assert_eq!(world.runtime.progress(), ReaderProgress { begun: 2, oldest: 0 });
    let withdraw = Request { opcode: WITHDRAW, ..world.request(1, &[]) };
    assert_eq!(refused(world.send(&withdraw)), Status::Withdrawn);
    assert_eq!(world.runtime.progress(), ReaderProgress { begun: 2, oldest: 1 });
    assert_eq!(answered(&mut world), [2]);
    assert_eq!(world.runtime.progress(), ReaderProgress { begun: 2, oldest: 2 });
    assert_eq!(world.send(&world.request(3, &hit)), Admission::Accepted);
    assert_eq!(world.runtime.progress(), ReaderProgress { begun: 3, oldest: 2 });
}

#[test]
fn a_tenant_over_its_allowance_is_busy_until_its_time_comes() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let connection = world.connection;
    assert_eq!(world.runtime.request_at(connection), Time::ZERO);
    let per_request = Duration::from_micros(10);
    world.runtime.limit(connection, Allowance { per_request, ..Allowance::UNLIMITED }).expect("it is open");
    assert_eq!(world.send(&world.request(1, &hit)), Admission::Accepted);
    assert_eq!(world.runtime.request_at(connection), micros(10));
    world.now = Time::ZERO + Duration::from_nanos(9_999);
    assert_eq!(refused(world.send(&world.request(2, &hit))), Status::Busy);
    let withdraw = Request { opcode: WITHDRAW, ..world.request(1, &[]) };
    assert_eq!(refused(world.send(&withdraw)), Status::Withdrawn, "it frees what the tenant uses");
    world.now = micros(10);
    assert_eq!(world.send(&world.request(2, &hit)), Admission::Accepted);
}

/// Reads wait for the allowance of their tenant, and those of others do not.
#[test]
fn dmas_wait_for_the_allowance_of_their_tenant() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[1; 8]);
    let connection = world.connection;
    let per_dma = Duration::from_micros(50);
    world.runtime.limit(connection, Allowance { per_dma, ..Allowance::UNLIMITED }).expect("it is open");
    assert_eq!(world.send(&world.request(1, &hit)), Admission::Accepted);
    world.now = world.runtime.poll_timeout().expect("due");
    let first = world.runtime.poll_dma(world.now).expect("the first read");
    let next = world.now + per_dma;
    world.carry_out(&first);
    assert_eq!(world.runtime.poll_timeout(), Some(next));
    assert_eq!(world.runtime.poll_dma(Time::from_picos(next.as_picos() - 1)), None);
    let (other, region) = neighbour(&mut world);
    let mut buffer = [0; 512];
    let of_other = Request { region, ..world.request(2, &hit) };
    let bytes = of_other.encode_message(&mut buffer).expect("fits");
    assert_eq!(world.runtime.handle_message(world.now, other, bytes), Admission::Accepted);
    let due = world.runtime.poll_timeout().expect("due");
    assert!(due < next);
    assert!(world.runtime.poll_dma(due).is_some(), "the neighbour's");
    assert!(world.runtime.poll_dma(due).is_none() && world.runtime.poll_dma(next).is_some());
}

#[test]
fn the_timeout_after_a_time_ignores_steps_due_by_then() {
    let (mut world, _) = with_two_lookups();
    let due = world.runtime.poll_timeout().expect("due");
    assert_eq!(world.runtime.poll_timeout_after(Time::from_picos(due.as_picos() - 1)), Some(due));
    let deadline = world.runtime.poll_timeout_after(due).expect("the time of the requests ends");
    assert!(deadline > due);
    world.now = deadline;
    let statuses: Vec<Status> = world.run().iter().map(|(reply, _)| reply.trailer.status).collect();
    assert_eq!(statuses, [Status::Deadline; 2]);
}

/// The owner may look for replies without looking for reads first.
#[test]
fn a_request_whose_time_is_over_is_answered_without_a_read() {
    let (mut world, _) = with_two_lookups();
    let due = world.runtime.poll_timeout().expect("due");
    let deadline = world.runtime.poll_timeout_after(due).expect("the time of the requests ends");
    assert_eq!(world.runtime.poll_reply(Time::from_picos(deadline.as_picos() - 1)), None);
    let reply = world.runtime.poll_reply(deadline).expect("its time is over");
    assert_eq!((reply.trailer.status, reply.trailer.request_id), (Status::Deadline, 1));
}

/// A connection that takes no reply now stops no other.
#[test]
fn replies_wait_for_their_own_connection() {
    let (mut world, hit) = with_two_lookups();
    let (other, region) = neighbour(&mut world);
    let mut buffer = [0; 512];
    let of_other = Request { region, ..world.request(3, &hit) };
    let bytes = of_other.encode_message(&mut buffer).expect("fits");
    assert_eq!(world.runtime.handle_message(world.now, other, bytes), Admission::Accepted);
    for _ in 0..30 {
        while let Some(dma) = world.runtime.poll_dma(world.now) {
            world.carry_out(&dma);
        }
        world.now += Duration::from_nanos(100);
    }
    let slow = world.connection;
    let to_others =
        |world: &mut KvWorld| world.runtime.poll_reply_to(world.now, |connection| connection != slow);
    assert_eq!(to_others(&mut world).map(|reply| reply.trailer.request_id), Some(3));
    assert_eq!(to_others(&mut world), None);
    let rest = [world.runtime.poll_reply(world.now), world.runtime.poll_reply(world.now)];
    assert_eq!(rest.map(|reply| reply.map(|reply| reply.trailer.request_id)), [Some(1), Some(2)]);
}

/// A stream is opened like a request, but takes no slot.
#[test]
fn a_stream_is_opened_where_its_tenant_may() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let (connection, region) = (world.connection, world.region);
    let good = world.request(9, &hit);
    let open = |world: &mut KvWorld, connection, request: &Request<'_>| {
        let mut buffer = [0; 512];
        let block = request.encode_strom(&mut buffer).expect("fits").to_vec();
        let opened =
            world.runtime.open_stream(world.now, connection, request.opcode, request.region.0, &block);
        opened.map(|(request, grant)| (request.request_id, grant))
    };
    let grant = Grant::new(BASE, world.memory.len() as u64).expect("no wrap");
    assert_eq!(open(&mut world, connection, &good), Ok((9, grant)));
    assert_eq!((world.runtime.counters().accepted, world.runtime.running()), (1, 0));
    let unknown = RegionHandle(region.0 ^ 0x0100);
    let nowhere = open(&mut world, connection, &Request { region: unknown, ..good }).map_err(refused);
    assert_eq!(nowhere, Err(Status::OutOfBounds));
    let beside = ReplyTo { rkey: 1, ..good.reply };
    let dropped = |reason| Err(Admission::Dropped(reason));
    let outside = open(&mut world, connection, &Request { reply: beside, ..good });
    assert_eq!(outside, dropped(DropReason::ReplyWindow));
    let cut = world.runtime.open_stream(world.now, connection, good.opcode, region.0, b"short");
    assert!(matches!(cut, Err(Admission::Dropped(DropReason::Unintelligible))));
    let per_request = Duration::from_micros(10);
    world.runtime.limit(connection, Allowance { per_request, ..Allowance::UNLIMITED }).expect("it is open");
    assert_eq!(open(&mut world, connection, &good), Ok((9, grant)));
    assert_eq!(open(&mut world, connection, &good).map_err(refused), Err(Status::Busy));
    assert_eq!(world.runtime.check_stream(connection, region), Ok(()));
    world.runtime.revoke(connection, region);
    assert_eq!(world.runtime.check_stream(connection, region), Err(Status::Revoked));
    world.now = micros(10);
    world.runtime.drain();
    assert_eq!(open(&mut world, connection, &good).map_err(refused), Err(Status::ShuttingDown));
    world.runtime.disconnect(connection);
    assert_eq!(open(&mut world, connection, &good), dropped(DropReason::NoConnection));
    let counters = world.runtime.counters();
    assert_eq!((counters.accepted, counters.refused, counters.dropped), (2, 3, 3));
}

#[test]
fn a_stream_ends_with_its_answer_or_its_status() {
    let (mut world, _) = kv_world();
    let to = ReplyTo { max_response: 64, ..world.request(1, &[]).reply };
    let connection = world.connection;
    let mut end = |outcome| {
        let reply = world.runtime.stream_reply(connection, 5, &to, outcome).expect("it fits");
        assert_eq!((reply.ticket, reply.connection, reply.body), (None, connection, None));
        assert_eq!((reply.rkey, reply.slot, reply.trailer.request_id), (to.rkey, to.slot, 5));
        (reply.address - to.address, reply.trailer.status, reply.trailer.length)
    };
    assert_eq!(end(Ok(64)), (0, Status::Ok, 64));
    assert_eq!(end(Ok(8)), (56, Status::Ok, 8));
    assert_eq!(end(Ok(65)), (64, Status::Truncated, 65), "the size that it would need");
    assert_eq!(end(Err(Status::Revoked)), (64, Status::Revoked, 0));
    let nowhere = ReplyTo { address: u64::MAX - 8, ..to };
    assert_eq!(world.runtime.stream_reply(connection, 5, &nowhere, Ok(0)), None);
}

/// A message that had to wait is handed in again, and is still one message.
#[test]
fn a_stream_message_counts_once_however_often_it_waits() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let connection = world.connection;
    let mut buffer = [0; 512];
    let message = world.request(9, &hit).encode_message(&mut buffer).expect("fits").to_vec();
    let first = world.runtime.handle_stream_message(world.now, connection, &message);
    assert_eq!(first.map(|(request, _)| request.request_id), Ok(9));
    let again = world.runtime.resume_stream_message(connection, &message);
    assert_eq!(again.map(|(request, _)| request.request_id), Ok(9));
    assert_eq!(world.runtime.counters().accepted, 1);
}

#[test]
fn streams_take_the_share_of_their_tenant_and_no_more() {
    let (mut world, _) = kv_world();
    let connection = world.connection;
    let taken = (0..64).take_while(|_| world.runtime.take_share(connection).is_ok()).count();
    assert_eq!((taken, world.runtime.take_share(connection)), (4, Err(Status::Busy)));
    world.runtime.release_share(connection);
    assert_eq!(world.runtime.take_share(connection), Ok(()));
    assert_eq!(world.runtime.take_share(connection), Err(Status::Busy));
}

/// Bytes that a stream wrote delay the reads of its tenant.
#[test]
fn a_stream_is_charged_to_its_tenant() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let connection = world.connection;
    let per_byte = Duration::from_nanos(1);
    world.runtime.limit(connection, Allowance { per_byte, ..Allowance::UNLIMITED }).expect("it is open");
    assert_eq!(world.runtime.dma_at(connection), Time::ZERO);
    world.runtime.charge_stream(world.now, connection, 7_000);
    assert_eq!(world.runtime.dma_at(connection), micros(7));
    assert_eq!(world.send(&world.request(1, &hit)), Admission::Accepted);
    assert_eq!(world.runtime.poll_timeout(), Some(micros(7)));
}

#[test]
fn connections_and_grants_that_cannot_be_are_refused_in_words() {
    let (mut world, _) = kv_world();
    let connection = world.connection;
    let grant = Grant::new(BASE, 64).expect("no wrap");
    let handles: Vec<_> = (0..3).map(|_| world.runtime.grant(connection, grant).expect("room")).collect();
    assert_eq!(world.runtime.grant(connection, grant), Err(ConnectError::TooManyRegions { limit: 4 }));
    world.runtime.revoke(connection, handles[1]);
    assert!(world.runtime.grant(connection, grant).is_ok());
    world.runtime.disconnect(connection);
    let gone = ConnectError::NoConnection(connection);
    assert_eq!(world.runtime.grant(connection, grant), Err(gone));
    assert_eq!(world.runtime.limit(connection, Allowance::UNLIMITED), Err(gone));
    assert_eq!(world.runtime.allow_deployment(connection, true), Err(gone));
    let fault = Grant::new(u64::MAX, 2).expect_err("it wraps");
    let texts = [
        (ConnectError::TooManyConnections { limit: 2 }, "all its 2 connections"),
        (gone, "no connection 0"),
        (ConnectError::TooManyRegions { limit: 4 }, "all its 4 grants: revoke one"),
        (ConnectError::from(fault), &fault.to_string()),
    ];
    for (error, text) in texts {
        assert!(error.to_string().contains(text), "{error}");
    }
}

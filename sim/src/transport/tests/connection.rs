//! Both kinds of connection through the interface of their owner: what each half answers, and where a reliable connection
//! has something that an unreliable one does not.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;

fn request(token: u64, operation: Operation, length: u32) -> Request {
    let service_header = ServiceHeader::None;
    Request { operation, length, token, solicited: false, fence: false, service_header }
}

fn write(token: u64, length: u32) -> Request {
    request(token, Operation::Write { address: BASE, rkey: RKEY, immediate: None }, length)
}

/// A requester with these messages.
fn with(reliable: bool, requests: &[Request]) -> ConnectionRequester {
    let mut requester = ConnectionRequester::new(reliable, &parameters());
    requests.iter().for_each(|request| requester.submit(*request).unwrap());
    requester
}

/// Sends everything that may be sent; returns how many packets that was.
fn send(requester: &mut ConnectionRequester, now: Time) -> usize {
    core::iter::from_fn(|| requester.poll_transmit(now)).count()
}

fn ends(requester: &mut ConnectionRequester) -> Vec<(u64, Result<(), RequesterError>)> {
    core::iter::from_fn(|| requester.poll_completion()).map(|end| (end.token, end.result)).collect()
}

fn answer(requester: &mut ConnectionRequester, header: PacketHeader, payload: &[u8]) -> Placement {
    requester.handle_response(at(0), &packet(header, payload))
}

/// A message is outstanding until its end was polled. Reliable, it ends with its ACK, otherwise with its last packet.
#[test]
fn a_message_goes_out_and_ends() {
    for reliable in [true, false] {
        let mut requester = with(reliable, &[]);
        assert_eq!((requester.outstanding(), requester.next_psn()), (0, Psn::new(100)));
        assert!(requester.has_room() && requester.is_all_sent() && !requester.has_work());
        requester.submit(write(1, MTU + 1)).unwrap();
        assert!(requester.has_work() && !requester.is_all_sent());
        assert!(requester.poll_transmit(at(0)).is_some());
        assert!(!requester.is_all_sent(), "one packet of two");
        assert_eq!((send(&mut requester, at(0)), requester.outstanding()), (1, 1));
        assert!(requester.is_all_sent() && !requester.has_work() && !requester.awaits_data());
        assert_eq!((requester.next_psn(), requester.counters().packets), (Psn::new(102), 2));
        assert_eq!(requester.poll_timeout().is_some(), reliable);
        if reliable {
            assert_eq!(ends(&mut requester), []);
        }
        assert_eq!(answer(&mut requester, acknowledge(101, Syndrome::ACK), &[]), Placement::None);
        assert_eq!(ends(&mut requester), [(1, Ok(()))]);
        assert_eq!((requester.outstanding(), requester.poll_timeout()), (0, None));
    }
}

#[test]
fn a_read_waits_for_its_data() {
    let mut requester = with(true, &[request(1, Operation::Read { address: BASE, rkey: RKEY }, 3)]);
    assert!(requester.awaits_data());
    assert_eq!(send(&mut requester, at(0)), 1);
    let aeth = Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 });
    let placed = answer(&mut requester, header(BthOpcode::ReadResponseOnly, 100, aeth), &[1, 2, 3]);
    assert_eq!(placed, Placement::Payload { token: 1, offset: 0 });
    assert!(!requester.awaits_data());
    assert_eq!(ends(&mut requester), [(1, Ok(()))]);
    let unreliable = with(false, &[request(1, Operation::Read { address: BASE, rkey: RKEY }, 3)]);
    assert!(!unreliable.awaits_data(), "it has no READs");
}

#[test]
fn a_reliable_connection_sends_again_and_an_unreliable_does_not() {
    for reliable in [true, false] {
        let mut requester = with(reliable, &[write(1, 1)]);
        assert_eq!(send(&mut requester, at(0)), 1);
        let due = ack_timeout(parameters().ack_timeout).map(|timeout| at(0) + timeout).unwrap();
        assert_eq!(requester.poll_timeout(), reliable.then_some(due));
        requester.handle_timeout(due);
        assert_eq!(send(&mut requester, due), usize::from(reliable));
        assert_eq!(requester.counters().retransmissions, u64::from(reliable));
    }
}

#[test]
fn messages_fail_flush_and_fill_the_queue_in_either() {
    for reliable in [true, false] {
        let mut requester = with(reliable, &[write(1, 1), write(2, 1), write(3, 1)]);
        assert_eq!(send(&mut requester, at(0)), 3);
        requester.fail(2, RequesterError::LocalProtection);
        answer(&mut requester, acknowledge(100, Syndrome::ACK), &[]);
        let failed = (2, Err(RequesterError::LocalProtection));
        assert_eq!(ends(&mut requester), [(1, Ok(())), failed, (3, Err(RequesterError::Flushed))]);
        let mut requester = with(reliable, &[write(1, 1)]);
        requester.flush();
        assert_eq!(send(&mut requester, at(0)), 0);
        assert_eq!(ends(&mut requester), [(1, Err(RequesterError::Flushed))]);
        let full: Vec<Request> = (0..1024).map(|token| write(token, 1)).collect();
        let mut requester = with(reliable, &full[1..]);
        assert!(requester.has_room());
        requester.submit(full[0]).unwrap();
        assert!(!requester.has_room());
        assert_eq!((requester.submit(full[0]), requester.outstanding()), (Err(QueueFull), 1024));
    }
}

#[test]
fn a_message_that_fails_twice_ends_with_its_first_error() {
    for reliable in [true, false] {
        let mut requester = with(reliable, &[write(1, 1)]);
        requester.fail(1, RequesterError::LocalProtection);
        requester.fail(1, RequesterError::LocalLength);
        assert_eq!(ends(&mut requester), [(1, Err(RequesterError::LocalProtection))]);
    }
}

/// What stands before it goes out once and, reliable, requests its ACK.
#[test]
fn a_message_that_is_too_long_has_nothing_sent_again() {
    for reliable in [true, false] {
        let mut requester = with(reliable, &[write(1, 1), write(2, 1)]);
        assert!(requester.poll_transmit(at(0)).is_some_and(|first| !first.header.ack_request));
        requester.submit(write(3, (1 << 30) + 1)).unwrap();
        let rest: Vec<_> = core::iter::from_fn(|| requester.poll_transmit(at(0)))
            .map(|packet| (packet.header.psn, packet.header.ack_request))
            .collect();
        assert_eq!(rest, [(Psn::new(101), reliable)]);
        answer(&mut requester, acknowledge(101, Syndrome::ACK), &[]);
        let ended = [(1, Ok(())), (2, Ok(())), (3, Err(RequesterError::LocalLength))];
        assert_eq!(ends(&mut requester), ended);
    }
}

/// What has begun ends, and what has not waits until the queue resumes (IBTA v1.4 §10.3.1.5).
#[test]
fn reliable_and_unreliable_requesters_drain_and_resume() {
    for reliable in [true, false] {
        let mut requester = with(reliable, &[write(1, 1), write(2, MTU + 1), write(3, 1)]);
        // The first message has ended and is gone, the second has begun.
        assert!(requester.poll_transmit(at(0)).is_some() && requester.poll_transmit(at(0)).is_some());
        answer(&mut requester, acknowledge(100, Syndrome::ACK), &[]);
        assert_eq!(ends(&mut requester), [(1, Ok(()))]);
        assert!(!requester.is_drained());
        requester.drain();
        assert!(!requester.is_drained());
        assert_eq!(send(&mut requester, at(0)), 1, "the rest of the second message");
        answer(&mut requester, acknowledge(102, Syndrome::ACK), &[]);
        assert!(!requester.is_drained(), "its end was not polled");
        assert_eq!(ends(&mut requester), [(2, Ok(()))]);
        assert!(requester.is_drained() && !requester.has_work() && requester.outstanding() == 1);
        requester.resume();
        assert!(!requester.is_drained());
        assert_eq!(send(&mut requester, at(0)), 1);
    }
}

/// A message of which nothing was sent has not begun (IBTA v1.4 §10.3.1.5), so its packet cannot request the ACK of the
/// message before it. That one goes out again to do so.
#[test]
fn a_message_that_has_not_begun_waits_for_the_end_of_a_drain() {
    for reliable in [true, false] {
        let mut requester = with(reliable, &[write(1, 1), write(2, 1)]);
        assert!(requester.poll_transmit(at(0)).is_some_and(|first| !first.header.ack_request));
        requester.drain();
        let sent: Vec<_> = core::iter::from_fn(|| requester.poll_transmit(at(0)))
            .map(|packet| (packet.token, packet.header.ack_request, packet.retransmission))
            .collect();
        let again = [(1, true, Some(RetransmissionCause::Drain))];
        assert_eq!(sent, if reliable { &again[..] } else { &[] });
        answer(&mut requester, acknowledge(100, Syndrome::ACK), &[]);
        assert_eq!(ends(&mut requester), [(1, Ok(()))]);
        assert!(requester.is_drained() && requester.outstanding() == 1);
    }
}

#[test]
fn no_message_begins_while_the_queue_drains() {
    for reliable in [true, false] {
        let mut requester = with(reliable, &[write(1, 1), write(2, 1)]);
        requester.drain();
        requester.submit(write(3, 1)).unwrap();
        assert_eq!(send(&mut requester, at(0)), 0);
        assert!(requester.is_drained() && !requester.has_work());
        requester.resume();
        assert_eq!(send(&mut requester, at(0)), 3);
        answer(&mut requester, acknowledge(102, Syndrome::ACK), &[]);
        assert_eq!(ends(&mut requester), [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
        requester.drain();
        requester.submit(write(4, 1)).unwrap();
        assert_eq!(send(&mut requester, at(0)), 0, "everything before it has gone");
    }
}

/// SQD2RTS may change the timeout and the limit of READs.
#[test]
fn changed_parameters_hold_from_then_on() {
    let read = |token| request(token, Operation::Read { address: BASE, rkey: RKEY }, 1);
    let changed = ConnectionParameters { ack_timeout: 7, max_outstanding_reads: 1, ..parameters() };
    let mut requester = with(true, &[]);
    requester.drain();
    requester.change(&changed);
    requester.resume();
    (0..3).for_each(|token| requester.submit(read(token)).unwrap());
    assert_eq!(send(&mut requester, at(0)), 1);
    assert_eq!(requester.poll_timeout(), ack_timeout(7).map(|timeout| at(0) + timeout));
    let mut unreliable = with(false, &[write(1, 1)]);
    unreliable.change(&changed);
    assert_eq!((send(&mut unreliable, at(0)), unreliable.poll_timeout()), (1, None));
}

fn responder(reliable: bool) -> (ConnectionResponder<Range>, Host) {
    (ConnectionResponder::new(reliable, &parameters()), Host::new(4096))
}

#[test]
fn either_responder_carries_out_and_only_the_reliable_one_answers() {
    for reliable in [true, false] {
        let (mut responder, mut host) = responder(reliable);
        assert_eq!((responder.expected_psn(), responder.has_work()), (Psn::new(100), false));
        responder.handle_request(&packet(header(BthOpcode::WriteOnly, 100, reth(4, 2)), &[5, 6]), &mut host);
        assert_eq!(host.memory[3..7], [0, 5, 6, 0]);
        assert_eq!((responder.expected_psn(), responder.counters().packets), (Psn::new(101), 1));
        assert_eq!(responder.has_work(), reliable);
        let psn = responder.poll_transmit().map(|response| response.header.psn);
        assert_eq!(psn, reliable.then_some(Psn::new(100)));
        assert!(!responder.has_work());
        // A message that has begun has a receive, which comes back.
        host.post(1000);
        responder.handle_request(
            &packet(header(BthOpcode::SendFirst, 101, Extension::None), &[1; MTU as usize]),
            &mut host,
        );
        assert_eq!(responder.flush().map(|buffer| buffer.token), Some(0));
        responder.handle_request(&packet(header(BthOpcode::WriteOnly, 102, reth(0, 1)), &[7]), &mut host);
        assert_eq!((host.memory[0], responder.counters().dropped), (0, 1));
    }
}

#[test]
fn a_reliable_responder_takes_other_limits() {
    let (mut responder, mut host) = responder(true);
    responder.set_min_rnr_timer(9);
    responder.handle_request(&packet(header(BthOpcode::SendOnly, 100, Extension::None), &[]), &mut host);
    let syndrome = responder.poll_transmit().and_then(|rnr| rnr.header.extension.aeth()).map(|a| a.syndrome);
    assert_eq!(syndrome, Some(Syndrome::RnrNak(9)));
    // Two READs were agreed, then four.
    responder.set_max_remembered_reads(4);
    for psn in 100..104 {
        responder.handle_request(&packet(header(BthOpcode::ReadRequest, psn, reth(0, 1)), &[]), &mut host);
    }
    assert!(host.errors.is_empty());
    responder.fail_read(Psn::new(102), ResponderError::RemoteAccess, &mut host);
    assert_eq!(host.errors, [ResponderError::RemoteAccess]);
    let nak = responder.poll_transmit().map(|nak| nak.header.psn);
    assert_eq!((nak, responder.has_work()), (Some(Psn::new(102)), false));
    // An unreliable connection has none of this.
    let (mut unreliable, mut host) = self::responder(false);
    unreliable.set_min_rnr_timer(9);
    unreliable.set_max_remembered_reads(4);
    unreliable.fail_read(Psn::new(102), ResponderError::RemoteAccess, &mut host);
    assert!(host.errors.is_empty() && unreliable.poll_transmit().is_none());
}

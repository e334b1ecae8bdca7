//! Each event of a connection is counted once, in its counter and in no other.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::time::Time;
use std::collections::BTreeSet;

fn request(token: u64, operation: Operation) -> Request {
    let service_header = ServiceHeader::None;
    Request { operation, length: 1, token, solicited: false, fence: false, service_header }
}

struct Talk {
    requester: Requester,
    now: Time,
    expected: RequesterCounters,
}

impl Talk {
    fn submit(&mut self, operations: &[Operation]) -> &mut Self {
        operations.iter().for_each(|operation| self.requester.submit(request(0, *operation)).unwrap());
        self
    }

    /// Sends `packets`, of which `again` were on the wire before.
    #[track_caller]
    fn sends(&mut self, packets: u64, again: u64) -> &mut Self {
        let sent = core::iter::from_fn(|| self.requester.poll_transmit(self.now)).count();
        assert_eq!(sent as u64, packets);
        self.expected.packets += packets;
        self.expected.retransmissions += again;
        self
    }

    /// Handles a response, which changes the counters like `change`.
    #[track_caller]
    fn counts(&mut self, header: PacketHeader, change: impl Fn(&mut RequesterCounters)) -> &mut Self {
        self.requester.handle_response(self.now, &packet(header, &[]));
        change(&mut self.expected);
        assert_eq!(self.requester.counters(), self.expected);
        self
    }

    fn wait(&mut self) -> &mut Self {
        self.now = self.requester.poll_timeout().expect("a deadline");
        self.requester.handle_timeout(self.now);
        self
    }
}

#[test]
fn a_requester_counts_each_event_once() {
    let parameters = ConnectionParameters { retry_count: 7, rnr_retry: 6, ..parameters() };
    let (requester, expected) = (Requester::new(&parameters), RequesterCounters::default());
    let mut talk = Talk { requester, now: at(0), expected };
    let write = Operation::Write { address: BASE, rkey: RKEY, immediate: None };
    let read = Operation::Read { address: BASE, rkey: RKEY };
    let ack = |psn| acknowledge(psn, Syndrome::ACK);
    let nothing = |_: &mut RequesterCounters| ();
    let ghost = |counters: &mut RequesterCounters| counters.ghosts += 1;
    talk.submit(&[write; 3]).sends(3, 0).counts(ack(200), ghost).counts(ack(99), ghost);
    talk.counts(acknowledge(100, Syndrome::Unknown(0x7f)), ghost);
    // A response of a kind that is none.
    talk.counts(header(BthOpcode::WriteOnly, 100, reth(0, 1)), ghost);
    talk.counts(nak(100, NakCode::SequenceError), |counters| counters.sequence_naks += 1);
    talk.counts(nak(100, NakCode::SequenceError), ghost).sends(3, 3);
    talk.counts(ack(100), nothing).counts(nak(101, NakCode::SequenceError), |c| c.sequence_naks += 1);
    talk.sends(2, 2).counts(ack(102), nothing);
    // Two timeouts.
    talk.submit(&[write]).sends(1, 0);
    for _ in 0..2 {
        talk.wait().sends(1, 1);
        talk.expected.timeouts += 1;
    }
    talk.counts(ack(103), nothing);
    // A receiver that is not ready twice.
    talk.submit(&[write]).sends(1, 0);
    for _ in 0..2 {
        talk.counts(acknowledge(104, Syndrome::RnrNak(1)), |counters| counters.rnr_naks += 1);
        talk.counts(acknowledge(104, Syndrome::RnrNak(1)), ghost).sends(0, 0).wait().sends(1, 1);
    }
    talk.counts(ack(104), nothing);
    // A READ that a later ACK passes twice.
    talk.submit(&[read, write]).sends(2, 0);
    talk.counts(ack(106), |counters| counters.implied_naks += 1).counts(ack(106), ghost).sends(2, 2);
    talk.wait().sends(2, 2);
    talk.expected.timeouts += 1;
    talk.counts(ack(106), |counters| counters.implied_naks += 1);
}

/// A packet for a responder, and what it counts.
struct Step {
    header: PacketHeader,
    payload: &'static [u8],
    count: fn(&mut ResponderCounters),
}

fn step(header: PacketHeader, payload: &'static [u8], count: fn(&mut ResponderCounters)) -> Step {
    Step { header, payload, count }
}

/// An ACK that takes the place of one that was not sent.
fn merged(counters: &mut ResponderCounters) {
    counters.acks += 1;
    counters.merged_acks += 1;
}

#[test]
fn a_responder_counts_each_event_once() {
    let atomic = Extension::AtomicEth(AtomicEth { address: BASE, rkey: RKEY, swap_or_add: 1, compare: 0 });
    let steps = [
        step(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1], |c| {
            (c.packets, c.writes, c.acks) = (1, 1, 1);
        }),
        step(header(BthOpcode::WriteFirst, 101, reth(0, MTU + 1)), &[1; MTU as usize], |c| {
            (c.packets, c.writes) = (2, 2);
            merged(c);
        }),
        // The rest of a message is no further WRITE.
        step(header(BthOpcode::WriteLast, 102, Extension::None), &[1], |c| {
            c.packets = 3;
            merged(c);
        }),
        // A READ response takes the place of the ACK too.
        step(header(BthOpcode::ReadRequest, 103, reth(0, 1)), &[], |c| {
            (c.packets, c.reads) = (4, 1);
            c.merged_acks += 1;
        }),
        step(header(BthOpcode::FetchAdd, 104, atomic), &[], |c| (c.packets, c.atomics) = (5, 1)),
        step(header(BthOpcode::CompareSwap, 105, atomic), &[], |c| (c.packets, c.atomics) = (6, 2)),
        step(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1], |c| {
            c.duplicates = 1;
            c.acks += 1;
        }),
        // A READ that was never asked for.
        step(header(BthOpcode::ReadRequest, 100, reth(0, 9)), &[], |c| (c.duplicates, c.dropped) = (2, 1)),
        step(header(BthOpcode::WriteOnly, 110, reth(0, 1)), &[1], |c| (c.out_of_sequence, c.naks) = (1, 1)),
        step(header(BthOpcode::WriteOnly, 111, reth(0, 1)), &[1], |c| c.out_of_sequence = 2),
        step(header(BthOpcode::SendOnly, 106, Extension::None), &[1], |c| c.rnr_naks = 1),
        // No request at all.
        step(header(BthOpcode::Acknowledge, 106, Extension::None), &[], |c| c.dropped = 2),
    ];
    let (mut responder, mut host) = (Responder::new(&parameters()), Host::new(4096));
    let mut expected = ResponderCounters::default();
    for (number, Step { header, payload, count }) in steps.into_iter().enumerate() {
        responder.handle_request(&packet(header, payload), &mut host);
        count(&mut expected);
        assert_eq!(responder.counters(), expected, "step {number}");
    }
}

#[test]
fn errors_are_counted_by_their_kind() {
    for (header, payload, errors) in [
        (header(BthOpcode::WriteLast, 100, Extension::None), &[1][..], (1, 0)),
        (header(BthOpcode::WriteOnly, 100, reth(1 << 20, 1)), &[1], (0, 1)),
    ] {
        let (mut responder, mut host) = (Responder::new(&parameters()), Host::new(4096));
        responder.handle_request(&packet(header, payload), &mut host);
        let counters = responder.counters();
        assert_eq!(
            (counters.invalid_requests, counters.access_errors, counters.naks),
            (errors.0, errors.1, 1)
        );
    }
}

/// A responder answers from a bounded queue: two rounds of what it remembers, and eight more.
#[test]
fn a_peer_that_takes_no_answers_is_not_heard_for_ever() {
    let (mut responder, mut host) = (Responder::new(&parameters()), Host::new(4096));
    let atomic = Extension::AtomicEth(AtomicEth { address: BASE, rkey: RKEY, swap_or_add: 1, compare: 0 });
    (0..20).for_each(|psn| {
        responder.handle_request(&packet(header(BthOpcode::FetchAdd, 100 + psn, atomic), &[]), &mut host);
    });
    assert_eq!((responder.counters().atomics, responder.counters().dropped), (12, 8));
    responder.set_max_remembered_reads(4);
    (0..20).for_each(|psn| {
        responder.handle_request(&packet(header(BthOpcode::FetchAdd, 112 + psn, atomic), &[]), &mut host);
    });
    assert_eq!(responder.counters().atomics, 16);
    // Each answer that leaves makes room for one more.
    assert!(responder.poll_transmit().is_some());
    responder.handle_request(&packet(header(BthOpcode::FetchAdd, 116, atomic), &[]), &mut host);
    assert_eq!(responder.counters().atomics, 17);
}

/// What a responder forgets it cannot repeat: the earliest go first, and a smaller limit forgets at once.
#[test]
fn the_latest_operations_are_remembered() {
    let (mut responder, mut host) = (Responder::new(&parameters()), Host::new(4096));
    let atomic = Extension::AtomicEth(AtomicEth { address: BASE, rkey: RKEY, swap_or_add: 1, compare: 0 });
    let mut ask = |responder: &mut Responder<Range>, psn| {
        responder.handle_request(&packet(header(BthOpcode::FetchAdd, psn, atomic), &[]), &mut host);
        match responder.poll_transmit().map(|answer| answer.header.extension) {
            Some(Extension::AtomicAck(_, old)) => Some(old),
            _ => None,
        }
    };
    let first = [100, 101, 102].map(|psn| ask(&mut responder, psn));
    assert_eq!(first, [Some(0), Some(1), Some(2)]);
    assert_eq!([100, 101, 102].map(|psn| ask(&mut responder, psn)), [None, Some(1), Some(2)]);
    responder.set_max_remembered_reads(1);
    assert_eq!([101, 102].map(|psn| ask(&mut responder, psn)), [None, Some(2)]);
    responder.set_max_remembered_reads(3);
    assert_eq!([103, 104].map(|psn| ask(&mut responder, psn)), [Some(3), Some(4)]);
    assert_eq!([102, 103, 104].map(|psn| ask(&mut responder, psn)), [Some(2), Some(3), Some(4)]);
    assert_eq!((responder.counters().atomics, responder.counters().dropped), (5, 2));
}

/// Path MTUs are those of the specification; another one counts as the next smaller, at least 256.
#[test]
fn a_path_mtu_is_one_of_five() {
    use crate::transport::segment::{PathMtu, span};
    let bytes = [0, 256, 511, 512, 1500, 4096, u32::MAX].map(|bytes| PathMtu::new(bytes).bytes());
    assert_eq!(bytes, [256, 256, 256, 512, 1024, 4096, 4096]);
    let mtu = PathMtu::new(1024);
    assert_eq!([0, 1, 1024, 1025, 2048].map(|length| mtu.packets(length)), [1, 1, 1, 2, 2]);
    assert_eq!([0, 1023, 1024, 4096].map(|offset| mtu.index(offset)), [0, 0, 1, 4]);
    assert_eq!([0, 1, 4].map(|index| mtu.offset(index)), [0, 1024, 4096]);
    // The parameters of an RPC are one packet, and an atomic is one whatever its length says.
    let of = |operation, length| span(&Request { length, ..request(0, operation) }, mtu);
    let parameters = Operation::RpcParams { rpc_opcode: 5, region: 6 };
    assert_eq!([1024, 1025].map(|length| of(parameters, length)), [Some(1), None]);
    assert_eq!(of(fetch_add(BASE, 1), 5000), Some(1));
    let write = Operation::Write { address: BASE, rkey: RKEY, immediate: None };
    assert_eq!([1 << 30, (1 << 30) + 1].map(|length| of(write, length)), [Some(1 << 20), None]);
}

/// Whoever reads an error learns which one it is.
#[test]
fn errors_are_told_apart_by_their_words() {
    use RequesterError::*;
    let errors = [
        RetryExceeded,
        RnrRetryExceeded,
        RemoteInvalidRequest,
        RemoteAccess,
        RemoteOperational,
        BadResponse,
        LocalProtection,
        LocalLength,
        NotOffered,
        Flushed,
    ];
    let words: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
    assert!(words.len() == errors.len() && !words.contains(""), "{words:?}");
    assert!(QueueFull.to_string().contains("queue is full"));
}

#[test]
fn each_cause_of_a_retransmission_has_its_name() {
    let names = RetransmissionCause::ALL.map(RetransmissionCause::name);
    assert_eq!(names, ["timer", "NAK", "implied NAK", "RNR NAK", "local failure", "drain"]);
    assert_eq!(names.map(RetransmissionCause::from_name), RetransmissionCause::ALL.map(Some));
    assert_eq!(RetransmissionCause::ALL.map(|cause| cause.to_string()), names);
    assert_eq!(RetransmissionCause::from_name("NA"), None);
}

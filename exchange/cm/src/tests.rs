//! Two managers against each other, over a network that loses, duplicates and reorders messages.

use super::connection::Connection;
use super::manager::{Event, Manager, News, reason};
use super::message::{Kind, Message, reject, request, service_reply, service_request};
use super::parameters::{Acceptance, Extension, Offer, Refusal, ServiceOffer, ServiceReply};
use super::{CommunicationId, ConnectionState, Lids, Path, Service};
use alloc::vec;
use alloc::vec::Vec;
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};

const A: Gid = Gid::from_ipv4([198, 18, 0, 1]);
const B: Gid = Gid::from_ipv4([198, 18, 0, 2]);
/// Longer than any exchange over a network that delivers some messages.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Two sides and the messages in flight between them.
struct World {
    now: Time,
    sides: [Manager; 2],
    /// Messages in flight: destination side, arrival time, path, message.
    in_flight: Vec<(usize, Time, Path, Message)>,
    random: u64,
    /// Sixteenths of the messages that are lost, duplicated and delayed.
    faults: [u64; 3],
}

impl World {
    fn new(seed: u64, faults: [u64; 3]) -> Self {
        let sides = [Manager::new(0xa, 0, seed), Manager::new(0xb, 3, seed + 1)];
        Self { now: Time::ZERO, sides, in_flight: Vec::new(), random: seed, faults }
    }

    fn perfect() -> Self {
        Self::new(1, [0; 3])
    }

    fn chance(&mut self, parts: u64) -> bool {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.random >> 60 < parts
    }

    /// Takes both sides' outgoing messages.
    fn send(&mut self) {
        for from in 0..2 {
            while let Some((Path { local, remote, lids }, message)) = self.sides[from].poll_message() {
                assert_eq!(Message::parse(message.bytes()), Some(message.clone()));
                let path = Path { local: remote, remote: local, lids };
                let [lost, repeated, late] = self.faults;
                if self.chance(lost) {
                    continue;
                }
                for _ in 0..if self.chance(repeated) { 2 } else { 1 } {
                    let delay =
                        if self.chance(late) { Duration::from_millis(200) } else { Duration::from_millis(1) };
                    self.in_flight.push((1 - from, self.now + delay, path, message.clone()));
                }
            }
        }
    }

    /// Advances time to the next deadline or arrival. Returns false if there is none before `end`.
    fn step(&mut self, end: Time) -> bool {
        self.send();
        let arrivals = self.in_flight.iter().map(|(_, at, ..)| *at);
        let deadlines = self.sides.iter().filter_map(Manager::next_deadline);
        let Some(next) = arrivals.chain(deadlines).min().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(|(_, at, ..)| *at <= now);
        self.in_flight = later;
        for (to, _, path, message) in due {
            self.sides[to].handle(now, path, &message);
        }
        self.sides.iter_mut().for_each(|side| side.handle_timeout(now));
        self.send();
        self.sides.iter().for_each(check_deadlines);
        true
    }

    /// Waits for the next event of a side.
    fn event(&mut self, side: usize) -> Option<Event> {
        let end = self.now + TIMEOUT;
        loop {
            if let Some(event) = self.sides[side].poll_event() {
                return Some(event);
            }
            if !self.step(end) {
                return None;
            }
        }
    }

    fn state(&self, side: usize, id: CommunicationId) -> Option<ConnectionState> {
        self.sides[side].get(id).map(|connection| connection.state)
    }

    /// Side 0 sends a REQ. Returns its connection and the event on side 1.
    fn ask(&mut self) -> (CommunicationId, Event) {
        let now = self.now;
        let id = self.sides[0].connect(now, &offer()).unwrap();
        (id, self.event(1).unwrap())
    }

    /// Connects both sides. Returns their communication IDs.
    fn connect(&mut self) -> (CommunicationId, CommunicationId) {
        let (active, Event { id: passive, news }) = self.ask();
        assert!(matches!(news, News::Requested(_)));
        let now = self.now;
        self.sides[1].acknowledge(passive);
        self.sides[1].accept(now, passive, &acceptance()).unwrap();
        let replied = self.event(0).unwrap();
        assert!(replied.id == active && matches!(replied.news, News::Replied(_)), "{replied:?}");
        self.sides[0].ready(active).unwrap();
        assert_eq!(self.event(1), Some(Event { id: passive, news: News::Established }));
        (active, passive)
    }
}

/// A manager knows the deadlines of its connections, and no others.
fn check_deadlines(side: &Manager) {
    let of = |(id, connection): (&CommunicationId, &Connection)| Some((connection.deadline()?, *id));
    let mut deadlines: Vec<_> = side.connections.iter().filter_map(of).collect();
    deadlines.sort_unstable();
    assert!(side.deadlines.iter().eq(&deadlines), "{:?}", side.deadlines);
    assert_eq!(side.next_deadline(), deadlines.first().map(|(deadline, _)| *deadline));
}

fn offer() -> Offer {
    Offer {
        service_id: 0x0106_1c06,
        path: Path { local: A, remote: B, lids: None },
        service: Service::ReliableConnection,
        qpn: Qpn::from_low_bits(0x41),
        psn: None,
        shared_receives: false,
        responder_resources: 3,
        initiator_depth: 5,
        flow_control: true,
        retry_count: 7,
        rnr_retry: 6,
        ack_timeout: 17,
        path_mtu: 5,
        traffic_class: 0,
        extension: Extension { vendor_id: 0x15b3, options: 0x1234 },
        private: vec![7; 92],
    }
}

fn acceptance() -> Acceptance {
    Acceptance {
        qpn: Qpn::from_low_bits(0x0003_0042),
        psn: None,
        shared_receives: false,
        responder_resources: 2,
        initiator_depth: 1,
        flow_control: true,
        rnr_retry: 4,
        extension: Extension { vendor_id: 0x15b3, options: 1 },
        private: vec![8; 196],
    }
}

/// Requirement: IBTA v1.4 §12.9.6: both sides become established, each with the other's numbers.
#[test]
fn both_sides_agree_on_what_was_offered() {
    let mut world = World::perfect();
    let (active, passive) = world.connect();
    let (one, other) = (world.sides[0].get(active).unwrap(), world.sides[1].get(passive).unwrap());
    assert_eq!((one.state, other.state), (ConnectionState::Established, ConnectionState::Established));
    assert_eq!((one.remote_id, other.remote_id), (passive.0, active.0));
    assert_eq!(passive.0 >> 24, 3, "the number says which process");
    let (one, other) = (&one.terms, &other.terms);
    assert_eq!((one.local_qpn, one.remote_qpn), (other.remote_qpn, other.local_qpn));
    assert_eq!((one.send_psn, one.receive_psn), (other.receive_psn, other.send_psn));
    assert_ne!(one.send_psn, one.receive_psn);
    assert_eq!((one.responder_resources, one.initiator_depth), (1, 2), "what the other accepted");
    assert_eq!((other.responder_resources, other.initiator_depth), (2, 1));
    assert_eq!((one.rnr_retry, other.rnr_retry), (4, 6), "each has the other's");
}

/// Requirement: IBTA v1.4 §12.6.5: the `Starting PSN` of a REQ or REP is the one with which the receiver of the message
/// begins to send. Linux interprets it this way.
#[test]
fn the_starting_psn_is_the_senders_expected_psn() {
    let mut world = World::perfect();
    let (now, [one, other]) = (world.now, [0x55, 0x77].map(Psn::new));
    let active = world.sides[0].connect(now, &Offer { psn: Some(one), ..offer() }).unwrap();
    let passive = world.event(1).unwrap().id;
    let now = world.now;
    world.sides[1].accept(now, passive, &Acceptance { psn: Some(other), ..acceptance() }).unwrap();
    assert!(matches!(world.event(0), Some(Event { news: News::Replied(_), .. })));
    let terms = |side: usize, id| world.sides[side].get(id).unwrap().terms;
    let (active, passive) = (terms(0, active), terms(1, passive));
    assert_eq!((active.receive_psn, active.send_psn), (one, other));
    assert_eq!((passive.receive_psn, passive.send_psn), (other, one));
}

#[test]
fn private_data_of_programs_arrives() {
    let mut world = World::perfect();
    let (active, Event { id: passive, news }) = world.ask();
    let News::Requested(message) = news else { panic!("{news:?}") };
    assert_eq!(message.private(request::PRIVATE), [7; 92]);
    assert_eq!(Extension::of(&message), offer().extension);
    let refusal = Refusal { reason: reason::CONSUMER, private: vec![9; 148] };
    world.sides[1].reject(passive, &refusal).unwrap();
    let Some(Event { id, news: News::Rejected(message) }) = world.event(0) else { panic!() };
    assert_eq!((id, message.get(reject::REASON)), (active, u64::from(reason::CONSUMER)));
    assert_eq!(message.private(reject::PRIVATE), [9; 148]);
    assert_eq!((world.state(0, active), world.state(1, passive)), (None, None));
}

/// Requirement: IBTA v1.4 §12.9.8.4: after a disconnection both sides wait until no packet can be in flight.
#[test]
fn both_sides_see_the_disconnect_and_pass_through_time_wait() {
    let mut world = World::perfect();
    let (active, passive) = world.connect();
    let now = world.now;
    world.sides[0].disconnect(now, active).unwrap();
    assert_eq!(world.event(1), Some(Event { id: passive, news: News::Disconnected { timed_out: false } }));
    let now = world.now;
    world.sides[1].disconnect(now, passive).unwrap();
    assert_eq!(world.event(0), Some(Event { id: active, news: News::Disconnected { timed_out: false } }));
    let before = world.now;
    assert_eq!(world.event(0), Some(Event { id: active, news: News::TimeWaitOver }));
    assert!(world.now - before > Duration::from_millis(500), "the ACK timeout");
    assert_eq!(world.event(1), Some(Event { id: passive, news: News::TimeWaitOver }));
}

#[test]
fn a_killed_peer_is_disconnected_from_all_its_connections() {
    let mut world = World::perfect();
    let (active, passive) = world.connect();
    let now = world.now;
    let further = Offer { qpn: Qpn::from_low_bits(0x43), ..offer() };
    let half = world.sides[0].connect(now, &further).unwrap();
    let Event { id: asked, .. } = world.event(1).unwrap();
    let now = world.now;
    world.sides[0].handle_ended_peer(now, &[B], 4);
    world.sides[0].handle_ended_peer(now, &[A], 3);
    assert_eq!(world.sides[0].poll_event(), None, "another process, another host");
    world.sides[0].handle_ended_peer(now, &[B], 3);
    let news = News::Disconnected { timed_out: false };
    assert_eq!(world.sides[0].poll_event(), Some(Event { id: active, news: news.clone() }));
    assert_eq!(world.sides[0].poll_event(), None, "who would have answered the request is not known");
    assert_eq!(world.state(0, half), Some(ConnectionState::RequestSent));
    world.sides[0].disconnect(now, active).unwrap();
    assert_eq!(world.state(0, active), Some(ConnectionState::TimeWait));
    world.sides[1].disconnect(now, passive).unwrap();
    world.sides[1].handle_ended_peer(now, &[A], 0);
    let heard: Vec<Event> = core::iter::from_fn(|| world.sides[1].poll_event()).collect();
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(heard.contains(&Event { id: passive, news }), "the answer to its DREQ");
    assert!(heard.iter().any(|event| event.id == asked && matches!(event.news, News::Rejected(_))));
    assert_eq!(world.state(1, asked), None);
}

#[test]
fn a_peer_that_is_killed_in_the_middle_of_a_handshake_has_rejected() {
    for accepts_first in [false, true] {
        let mut world = World::perfect();
        let (active, Event { id: passive, .. }) = world.ask();
        let now = world.now;
        world.sides[1].accept(now, passive, &acceptance()).unwrap();
        let replied = world.event(0).unwrap();
        assert!(matches!(replied.news, News::Replied(_)), "{replied:?}");
        let (side, id, host, number) = if accepts_first { (0, active, B, 3) } else { (1, passive, A, 0) };
        world.sides[side].handle_ended_peer(now, &[host], number);
        let heard = world.sides[side].poll_event();
        assert!(matches!(&heard, Some(Event { news: News::Rejected(_), .. })), "{heard:?}");
        assert_eq!(world.state(side, id), None);
    }
}

/// Requirement: IBTA v1.4 §12.9.8.3: a DREQ without a reply still ends the connection.
#[test]
fn a_side_without_replies_gives_up() {
    let mut world = World::perfect();
    let (active, _) = world.connect();
    world.faults = [16, 0, 0];
    let now = world.now;
    world.sides[0].disconnect(now, active).unwrap();
    assert_eq!(world.event(0), Some(Event { id: active, news: News::Disconnected { timed_out: true } }));
    let now = world.now;
    let id = world.sides[0].connect(now, &offer()).unwrap();
    let unreachable = core::iter::from_fn(|| world.event(0)).find(|event| event.id == id);
    assert_eq!(unreachable, Some(Event { id, news: News::Unreachable }));
    assert!(world.now - now > Duration::from_secs(60) && world.now - now < Duration::from_secs(300));
}

/// Requirement: IBTA v1.4 §12.6.6: an MRA is not a reply; it makes the other side wait longer.
#[test]
fn an_mra_makes_the_other_side_wait_longer() {
    let mut world = World::perfect();
    let (active, Event { id: passive, .. }) = world.ask();
    let before = world.sides[0].next_deadline().unwrap();
    world.sides[1].acknowledge(passive);
    world.send();
    let now = world.now + Duration::from_millis(2);
    for (_, _, path, message) in core::mem::take(&mut world.in_flight) {
        assert_eq!(message.kind(), Kind::Receipt);
        world.sides[0].handle(now, path, &message);
    }
    assert_eq!(world.state(0, active), Some(ConnectionState::RequestSent));
    assert!(world.sides[0].next_deadline().unwrap() > before + Duration::from_secs(60));
}

/// Requirement: IBTA v1.4 §12.4.1: a peer that reuses the queue pair of a live connection has lost that connection.
#[test]
fn a_connection_that_the_peer_has_forgotten_ends() {
    let mut world = World::perfect();
    let (_, passive) = world.connect();
    // The peer has restarted.
    world.sides[0] = Manager::new(0xa, 0, 99);
    let now = world.now;
    let id = world.sides[0].connect(now, &offer()).unwrap();
    let Some(Event { id: rejected, news: News::Rejected(message) }) = world.event(0) else { panic!() };
    assert_eq!((rejected, message.get(reject::REASON)), (id, u64::from(reason::STALE_CONNECTION)));
    assert_eq!(world.event(1), Some(Event { id: passive, news: News::Disconnected { timed_out: false } }));
    let now = world.now;
    world.sides[0].connect(now, &offer()).unwrap();
    assert!(core::iter::from_fn(|| world.event(1)).any(|event| matches!(event.news, News::Requested(_))));
}

#[test]
fn destroying_an_end_notifies_the_peer() {
    let mut world = World::perfect();
    let (active, passive) = world.connect();
    let now = world.now;
    world.sides[0].destroy(now, active);
    assert_eq!(world.event(1), Some(Event { id: passive, news: News::Disconnected { timed_out: false } }));
    assert_eq!(world.event(0), None, "nobody is told of what was destroyed");
    let (active, Event { id: passive, .. }) = world.ask();
    let now = world.now;
    world.sides[1].destroy(now, passive);
    assert!(matches!(world.event(0), Some(Event { id, news: News::Rejected(_) }) if id == active));
    let (active, Event { id: passive, .. }) = world.ask();
    let now = world.now;
    world.sides[0].destroy(now, active);
    let Some(Event { id, news: News::Rejected(message) }) = world.event(1) else { panic!() };
    assert_eq!((id, message.get(reject::REASON)), (passive, u64::from(reason::TIMEOUT)));
}

#[test]
fn a_service_is_resolved() {
    let mut world = World::perfect();
    let path = Path { local: A, remote: B, lids: None };
    let service_offer = ServiceOffer { service_id: 0x0111_1234, path, private: vec![5; 216] };
    let now = world.now;
    let id = world.sides[0].resolve_service(now, &service_offer).unwrap();
    let Some(Event { id: asked, news: News::ServiceRequested(_) }) = world.event(1) else { panic!() };
    let reply =
        ServiceReply { status: 0, qpn: Qpn::from_low_bits(0x77), q_key: 0x0123_4567, private: vec![6; 136] };
    world.sides[1].answer_service(asked, &reply).unwrap();
    let Some(Event { id: resolved, news: News::ServiceResolved(message) }) = world.event(0) else { panic!() };
    assert_eq!(resolved, id);
    assert_eq!((message.get(service_reply::QPN), message.get(service_reply::Q_KEY)), (0x77, 0x0123_4567));
    assert_eq!(message.get(service_reply::SERVICE_ID), 0x0111_1234);
    assert_eq!(message.private(service_reply::PRIVATE), [6; 136]);
}

/// Messages about connections of other processes, or about none, change nothing. Only the process that owned a
/// connection answers that it has ended.
#[test]
fn messages_that_fit_nothing_change_nothing() {
    let mut world = World::perfect();
    let (active, _) = world.connect();
    let path = Path { local: A, remote: B, lids: None };
    for raw in 0x11..0x1c_u16 {
        let mut bytes = *Message::new(Kind::Request, 77).bytes();
        bytes[16..18].copy_from_slice(&raw.to_be_bytes());
        for ours in [active.0, active.0 ^ 1, 0x0900_0001] {
            bytes[28..32].copy_from_slice(&ours.to_be_bytes());
            let now = world.now;
            world.sides[0].handle(now, path, &Message::parse(&bytes).unwrap());
        }
    }
    let said: Vec<Kind> =
        core::iter::from_fn(|| world.sides[0].poll_message()).map(|(_, message)| message.kind()).collect();
    assert_eq!(said, [Kind::DisconnectReply; 2], "process 9 is not this one");
    assert_eq!(world.state(0, active), Some(ConnectionState::Established));
}

/// Requirement: IBTA v1.4 §12.9.6: connections are made and ended despite lost, repeated and late messages.
#[test]
fn a_bad_network_delays_connections_and_breaks_none() {
    for seed in 0..60 {
        let mut world = World::new(seed, [4, 4, 4]);
        let (active, passive) = world.connect();
        let now = world.now;
        world.sides[0].disconnect(now, active).unwrap();
        let heard = core::iter::from_fn(|| world.event(1)).next();
        assert_eq!(
            heard,
            Some(Event { id: passive, news: News::Disconnected { timed_out: false } }),
            "seed {seed}"
        );
        let now = world.now;
        world.sides[1].disconnect(now, passive).unwrap();
        let heard: Vec<Event> = core::iter::from_fn(|| world.event(0)).collect();
        let ends = heard.iter().filter(|event| matches!(event.news, News::Disconnected { .. })).count();
        assert_eq!((ends, heard.len()), (1, 2), "seed {seed}: {heard:?}");
        let passive_news: Vec<Event> = core::iter::from_fn(|| world.event(1)).collect();
        assert_eq!(passive_news, [Event { id: passive, news: News::TimeWaitOver }], "seed {seed}");
        assert!(
            world.sides.iter().all(|side| side.next_deadline().is_none()),
            "seed {seed}: something is left"
        );
    }
}

/// Arbitrary bytes change no connection, and only get answers that any stranger may see.
#[test]
fn arbitrary_messages_do_no_harm() {
    let mut world = World::perfect();
    let (active, passive) = world.connect();
    for _ in 0..20_000 {
        let mut bytes = *Message::new(Kind::Request, 0).bytes();
        for byte in &mut bytes[4..] {
            *byte = (0..8).fold(0, |byte, _| byte << 1 | u8::from(world.chance(4)));
        }
        bytes[16] = 0;
        bytes[17] = 0x10 + (world.random >> 50) as u8 % 11;
        let now = world.now;
        world.sides[0].handle(
            now,
            Path { local: A, remote: B, lids: None },
            &Message::parse(&bytes).unwrap(),
        );
        while world.sides[0].poll_message().is_some() {}
        while let Some(event) = world.sides[0].poll_event() {
            assert_ne!(event.id, active);
            world.sides[0].forget(event.id);
        }
    }
    assert_eq!(world.state(0, active), Some(ConnectionState::Established));
    assert_eq!(world.state(1, passive), Some(ConnectionState::Established));
}

/// Requirement: IBTA v1.4 §12.6.5: a REQ over InfiniBand has LID and GID of both ports, the partition and the service
/// level of the path, and says that the path stays within the subnet.
#[test]
fn a_request_over_infiniband_names_its_path() {
    let mut world = World::perfect();
    let lids = Lids { local: 0x11, remote: 0x22, partition_key: 0x8007, service_level: 5 };
    let path = Path { local: A, remote: B, lids: Some(lids) };
    world.sides[0].connect(Time::ZERO, &Offer { path, ..offer() }).expect("room");
    let (way, message) = world.sides[0].poll_message().expect("a REQ");
    assert_eq!((way, message.local_gid(), message.remote_gid()), (path, Some(A), Some(B)));
    let said =
        [request::LOCAL_LID, request::REMOTE_LID, request::PARTITION_KEY].map(|field| message.get(field));
    assert_eq!(said, [0x11, 0x22, 0x8007]);
    // After the common header of 24 bytes: P_Key, both LIDs, hop limit, and the byte with the service level and “subnet
    // local”.
    let bytes = &message.bytes()[24..];
    assert_eq!((&bytes[48..50], &bytes[52..56]), (&[0x80, 7][..], &[0, 0x11, 0, 0x22][..]));
    assert_eq!(bytes[93..95], [0, 5 << 4 | 1 << 3]);
    let asked = ServiceOffer { service_id: 0x0111_1c06, path, private: Vec::new() };
    world.sides[0].resolve_service(Time::ZERO, &asked).expect("room");
    let (_, message) = world.sides[0].poll_message().expect("a SIDR_REQ");
    assert_eq!(message.get(service_request::PARTITION_KEY), 0x8007);
    assert_eq!((message.local_gid(), message.remote_gid()), (None, None), "it has no GIDs");
}

//! The states of a queue pair, driver and NIC together: drain, modify, resume; and errors in connecting.

use bareverbs_core::events::AsyncEvent;
use bareverbs_core::queue_pair::transitions::{Attributes, TransitionError};
use bareverbs_core::queue_pair::{
    AddressError, ConnectError, ConnectOptions, Mismatch, ModifyError, QueuePair, QueuePairAttributes,
    QueuePairBuilder, RemoteEndpoint, Suspect,
};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionStatus};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_hal_sim::{MemoryConfig, SimWorld};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::{CqeSyndrome, PathMtu, QpState};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::fault::RandomFaults;
use bareverbs_sim::nic::{Nic, NicConfig};
use bareverbs_sim::run::Latency;
use bareverbs_tests::node::{Handle, Node, NodeOptions, gid, mac};
use bareverbs_tests::pair::{Pair, PairOptions, Side};

fn pair() -> Pair {
    Pair::new(&PairOptions::default())
}

fn run_for(pair: &Pair, time: Duration) {
    let until = pair.world.now() + time;
    pair.world.run_until(until);
}

/// How often a side received the event that its send queue has drained.
fn drained(side: &Side) -> usize {
    let next = || side.node.device.poll_event().expect("a working event queue");
    let ours = |event: &AsyncEvent| *event == AsyncEvent::SendQueueDrained { qpn: side.queue_pair.qpn() };
    std::iter::from_fn(next).filter(ours).count()
}

/// Requirement: IBTA v1.4 §10.3.1.5: a drained send queue keeps posted requests and sends them when it is resumed.
#[test]
fn drain_change_and_resume() {
    // One READ at a time, so those after the first have not begun.
    let connect = ConnectOptions { max_reads: 1, ack_timeout: 10, ..ConnectOptions::default() };
    let mut pair = Pair::new(&PairOptions { connect, ..PairOptions::default() });
    let (data, remote) = ([pair.a.memory.slice(0, 4096).unwrap()], pair.b.memory.remote(0));
    pair.world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(1.0)));
    for id in 1..=3 {
        pair.a.queue_pair.post_send(&WorkRequest::read(id, &data, remote)).unwrap();
    }
    run_for(&pair, Duration::from_micros(100));
    pair.a.queue_pair.drain().unwrap();
    assert_eq!(
        pair.a.queue_pair.modify(QpState::Rts, &QueuePairAttributes::default()),
        Err(ModifyError::Draining { to: QpState::Rts })
    );
    assert_eq!(drained(&pair.a), 0);
    pair.world.with(|world| world.set_random_faults_everywhere(RandomFaults::default()));
    assert_eq!(pair.sent().wr_id, 1);
    run_for(&pair, Duration::from_millis(1));
    assert_eq!(pair.a.queue_pair.query().unwrap().state, QpState::SqDrained);
    assert_eq!(drained(&pair.a), 1);
    assert_eq!((pair.a.sends.poll_one(), pair.a.queue_pair.sends_outstanding()), (Ok(None), 2));

    let slower = QueuePairAttributes {
        ack_timeout: Some(8),
        retry_count: Some(1),
        rnr_retry: Some(0),
        log_max_requester_reads: Some(0),
        ..QueuePairAttributes::default()
    };
    pair.a.queue_pair.modify(QpState::SqDrained, &slower).unwrap();
    pair.a.queue_pair.resume().unwrap();
    assert_eq!([pair.sent().wr_id, pair.sent().wr_id], [2, 3]);
    let found = pair.a.queue_pair.diagnose().unwrap();
    assert_eq!((found.ack_timeout, found.retry_count, found.rnr_retry), (8, 1, 0));
    pair.a.queue_pair.post_send(&WorkRequest::send(4, &[])).unwrap();
    let failed = WorkCompletionStatus::Failed(CqeSyndrome::RnrRetryExceeded);
    assert_eq!(pair.sent().status, failed, "no RNR retry is left");
}

/// Requirement: IBTA v1.4 §10.3.1.5: receives continue while the send queue is drained.
#[test]
fn a_drained_queue_pair_receives() {
    let mut pair = pair();
    pair.b.queue_pair.drain().unwrap();
    let slice = [pair.b.memory.slice(0, 64).unwrap()];
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(7, &slice)).unwrap();
    pair.a.queue_pair.post_send(&WorkRequest::send(1, &[pair.a.memory.slice(0, 64).unwrap()])).unwrap();
    assert!(pair.sent().is_success());
    assert_eq!(pair.received().wr_id, 7);
    pair.b.queue_pair.modify_to_error().unwrap();
    assert_eq!(pair.b.queue_pair.query().unwrap().state, QpState::Error);
}

#[test]
fn a_queue_pair_that_the_device_moved_is_asked_where_it_is() {
    let connect = ConnectOptions { retry_count: 1, ack_timeout: 8, ..ConnectOptions::default() };
    let mut pair = Pair::new(&PairOptions { connect, ..PairOptions::default() });
    pair.world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(1.0)));
    pair.a.queue_pair.post_send(&WorkRequest::write(1, &[], pair.b.memory.remote(0))).unwrap();
    assert_eq!(pair.sent().status, WorkCompletionStatus::Failed(CqeSyndrome::TransportRetryExceeded));
    let timer = QueuePairAttributes { min_rnr_timer: Some(3), ..QueuePairAttributes::default() };
    match pair.a.queue_pair.modify(QpState::Rts, &timer) {
        Err(ModifyError::State { believed: QpState::Rts, actual: QpState::Error, .. }) => (),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        pair.a.queue_pair.modify(QpState::Rts, &timer),
        Err(ModifyError::Transition(TransitionError::NoSuchTransition {
            from: QpState::Error,
            to: QpState::Rts
        }))
    ));
}

/// Requirement: IBTA v1.4 §11.2.5.2: attributes that may change in RTS do, and the error names those that may not.
#[test]
fn attributes_that_change_while_sending() {
    let mut pair = pair();
    let timer = QueuePairAttributes { min_rnr_timer: Some(1), ..QueuePairAttributes::default() };
    pair.b.queue_pair.modify(QpState::Rts, &timer).unwrap();
    let path = QueuePairAttributes { retry_count: Some(1), ..QueuePairAttributes::default() };
    let error = pair.a.queue_pair.modify(QpState::Rts, &path).unwrap_err();
    let (missing, forbidden) = (Attributes::NONE, Attributes::RETRY_COUNT);
    let (from, to) = (QpState::Rts, QpState::Rts);
    assert_eq!(
        error,
        ModifyError::Transition(TransitionError::WrongAttributes { from, to, missing, forbidden })
    );
    let vector = pair.a.queue_pair.diagnose().unwrap().path;
    let alternate = QueuePairAttributes { alternate_path: Some(vector), ..QueuePairAttributes::default() };
    assert_eq!(
        pair.a.queue_pair.modify(QpState::Rts, &alternate),
        Err(ModifyError::Transition(TransitionError::NoPathMigration))
    );
}

/// Connects a fresh queue pair of side A as `edit` says.
fn connect_wrongly(edit: impl Fn(&mut RemoteEndpoint, &mut ConnectOptions)) -> Result<(), ConnectError> {
    let pair = pair();
    let build = QueuePairBuilder::new(&pair.a.node.domain, &pair.a.sends, &pair.a.receives).build().unwrap();
    let mut options = ConnectOptions::default();
    let psn = build.endpoint(0).unwrap().psn;
    let qpn = pair.b.queue_pair.qpn();
    let mut remote = RemoteEndpoint { qpn, psn, gid: gid(2, false), mac: mac(2), version: None, lid: 0 };
    edit(&mut remote, &mut options);
    build.connect(&remote, options).map(|_| ())
}

/// Requirement: RoCEv2 A17.4.2: an address vector always has a global route: a path without one is refused
#[test]
fn mistakes_of_addresses_are_named_before_a_command_is_sent() {
    let own = gid(1, false);
    let address = |edit: fn(&mut RemoteEndpoint)| match connect_wrongly(|remote, _| edit(remote)) {
        Err(ConnectError::Address(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(address(|r| r.gid = Gid::default()), AddressError::NoGlobalAddress { gid_index: 0 });
    let remote = gid(2, true);
    assert_eq!(address(|r| r.gid = gid(2, true)), AddressError::Family { gid_index: 0, own, remote });
    assert_eq!(address(|r| r.lid = 7), AddressError::LidOnEthernet { lid: 7 });
    assert_eq!(address(|r| r.mac = MacAddress::default()), AddressError::Mac { mac: MacAddress::default() });
    let multicast = Gid([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(
        address(|r| r.gid = Gid([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])),
        AddressError::MulticastGid { remote: multicast }
    );
    assert_eq!(
        connect_wrongly(|_, options| options.gid_index = 3),
        Err(ConnectError::NoAddress { gid_index: 3 })
    );
    assert_eq!(connect_wrongly(|_, _| ()), Ok(()));
}

#[test]
fn more_reads_than_the_device_can_do_are_refused_not_cut() {
    for asked in [0, 3, 32] {
        assert_eq!(
            connect_wrongly(|_, options| options.max_reads = asked),
            Err(ConnectError::Reads { asked, limit: 16 })
        );
    }
}

/// Requirement: IBTA v1.4 §11.2.5.2: a path MTU that the port does not support is refused.
#[test]
fn a_path_mtu_beyond_the_ports_is_explained() {
    let world = SimWorld::new(1);
    let nic = Nic::new(NicConfig { mtu: 1500, ..NicConfig::new(mac(1)) });
    let id = world.add_node("narrow", nic, Latency::default(), MemoryConfig::default());
    let node = Node::open(&world, id, 1, NodeOptions::default());
    let queue = node.completion_queue(16);
    let prepared = QueuePairBuilder::new(&node.domain, &queue, &queue).build().unwrap();
    let (qpn, psn) = (prepared.qpn(), Psn::new(0));
    let remote = RemoteEndpoint { qpn, psn, gid: gid(2, false), mac: mac(2), version: None, lid: 0 };
    let options = ConnectOptions { path_mtu: PathMtu::Mtu4096, ..ConnectOptions::default() };
    match prepared.connect(&remote, options).map(|_| ()) {
        Err(ConnectError::Refused { suspect: Suspect::PathMtu { asked, fits, operational }, .. }) => {
            assert_eq!((asked, fits, operational), (PathMtu::Mtu4096, PathMtu::Mtu1024, 1500));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_that_does_not_answer_is_looked_into() {
    let connect = ConnectOptions { retry_count: 1, ack_timeout: 8, ..ConnectOptions::default() };
    let mut pair = Pair::new(&PairOptions { connect, ..PairOptions::default() });
    let b = pair.b.node.id;
    let a = pair.a.node.id;
    pair.world.with(|world| {
        world.with_device(a, |nic, _, _| nic.set_link_up(false));
        world.with_device(b, |nic, _, _| nic.set_link_up(false));
    });
    pair.a.queue_pair.post_send(&WorkRequest::write(1, &[], pair.b.memory.remote(0))).unwrap();
    let failed: WorkCompletion = pair.sent();
    assert_eq!(failed.status, WorkCompletionStatus::Failed(CqeSyndrome::TransportRetryExceeded));
    let diagnosis = pair.a.queue_pair.diagnose().unwrap();
    let suspects: Vec<Suspect> = diagnosis.suspects().collect();
    assert!(matches!(suspects[..], [Suspect::State(QpState::Error), Suspect::PortDown(_)]), "{suspects:?}");
    assert!(diagnosis.to_string().contains("plug the cable in"), "{diagnosis}");
}

/// Connects a fresh queue pair of each side; `edit` changes what each believes about the other.
fn connect_apart(
    pair: &Pair,
    edit: impl Fn(&mut [RemoteEndpoint; 2], &mut [ConnectOptions; 2]),
) -> [QueuePair<Handle>; 2] {
    let build =
        |side: &Side| QueuePairBuilder::new(&side.node.domain, &side.sends, &side.receives).build().unwrap();
    let (a, b) = (build(&pair.a), build(&pair.b));
    let mut ends = [b.endpoint(0).unwrap(), a.endpoint(0).unwrap()];
    let mut options = [ConnectOptions::default(); 2];
    edit(&mut ends, &mut options);
    [a.connect(&ends[0], options[0]).unwrap(), b.connect(&ends[1], options[1]).unwrap()]
}

#[test]
fn comparing_two_diagnoses_finds_different_path_mtus() {
    let mut pair = pair();
    let [mut a, mut b] = connect_apart(&pair, |_, options| options[0].path_mtu = PathMtu::Mtu2048);
    let from = [pair.a.memory.slice(0, 1500).unwrap()];
    a.post_send(&WorkRequest::write(1, &from, pair.b.memory.remote(0))).unwrap();
    let failed = pair.sent();
    assert_eq!(failed.status, WorkCompletionStatus::Failed(CqeSyndrome::RemoteInvalidRequest));
    let (at_a, at_b) = (a.diagnose().unwrap(), b.diagnose().unwrap());
    let (here, there) = (PathMtu::Mtu2048, PathMtu::Mtu1024);
    let found: Vec<Mismatch> = at_a.mismatches(&at_b).collect();
    assert_eq!(found, [Mismatch::PathMtu { here, there }]);
    let text = found[0].to_string();
    assert!(text.contains("2K_BYTES(0x4) here and 1K_BYTES(0x3) there"), "{text}");
}

#[test]
fn comparing_two_diagnoses_finds_wrong_peers() {
    let pair = pair();
    let other = pair.b.queue_pair.qpn();
    let [mut a, mut b] = connect_apart(&pair, |ends, _| {
        ends[0].qpn = other;
        ends[1].gid = gid(7, false);
    });
    let (at_a, at_b) = (a.diagnose().unwrap(), b.diagnose().unwrap());
    let found: Vec<Mismatch> = at_a.mismatches(&at_b).collect();
    assert_eq!(found, [Mismatch::QueuePair { believed: other, is: b.qpn() }]);
    let found: Vec<Mismatch> = at_b.mismatches(&at_a).collect();
    assert_eq!(found, [Mismatch::Address { believed: gid(7, false), is: gid(1, false) }]);
    let good = connect_apart(&pair, |_, _| ()).map(|mut end| end.diagnose().unwrap());
    assert_eq!(good[0].mismatches(&good[1]).chain(good[1].mismatches(&good[0])).next(), None);
}

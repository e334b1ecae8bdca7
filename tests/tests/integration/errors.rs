//! Each completion status by its real cause: at the requester, at the responder, and in the requests flushed
//! after it.

use bareverbs_core::memory_region::{AccessFlags, MemoryRegion, MemorySlice, RemoteSlice};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{ConnectOptions, QueuePair, QueuePairBuilder, Uc};
use bareverbs_core::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionStatus};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::{CqeSyndrome, PathMtu, QpState};
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::fault::{Action, RandomFaults, ScriptedFault, Trigger};
use bareverbs_tests::node::{Handle, all_access};
use bareverbs_tests::pair::{Pair, PairOptions, Side};

const LENGTH: usize = 64;
/// BTH op-codes (IBTA v1.4 §9.2.1, table 38).
const WRITE_LAST_WITH_IMMEDIATE: u8 = 0x09;
const UC_SEND_MIDDLE: u8 = 0x21;

/// Checks that a work request fails as it should, the requests after it are flushed, and the queue pair is
/// then in ERROR.
#[track_caller]
fn fails(pair: &mut Pair, request: &WorkRequest<'_>, syndrome: CqeSyndrome) -> WorkCompletion {
    pair.a.queue_pair.post_send(request).unwrap();
    pair.a.queue_pair.post_send(&WorkRequest::nop(99)).unwrap();
    let failed = pair.sent();
    assert_eq!(failed.status, WorkCompletionStatus::Failed(syndrome), "{}", failed.status);
    let flushed = pair.sent();
    assert_eq!(
        (flushed.wr_id, flushed.status),
        (99, WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed))
    );
    assert_eq!(pair.a.queue_pair.query().unwrap().state, QpState::Error);
    assert_eq!(pair.a.queue_pair.sends_outstanding(), 0);
    failed
}

fn own(pair: &Pair) -> [MemorySlice; 1] {
    [pair.a.memory.slice(0, LENGTH).unwrap()]
}

fn pair() -> Pair {
    Pair::new(&PairOptions::default())
}

/// A region of side A or B in a protection domain that its queue pair does not belong to. The domain is kept alive.
fn foreign(device: &Handle) -> (MemoryRegion<Handle>, ProtectionDomain<Handle>) {
    let domain = ProtectionDomain::allocate(device.clone()).unwrap();
    (MemoryRegion::allocate(&domain, 4096, all_access()).unwrap(), domain)
}

/// Requirement: IBTA v1.4 §11.6.2: a cause of "local protection error": an unknown L_Key.
#[test]
fn a_local_key_that_does_not_exist() {
    let mut pair = pair();
    let data = [MemorySlice { lkey: Mkey::new(0x00ab_cd01), ..own(&pair)[0] }];
    let remote = pair.b.memory.remote(0);
    fails(&mut pair, &WorkRequest::write(1, &data, remote), CqeSyndrome::LocalProtection);
}

#[test]
fn a_local_key_with_another_variant() {
    let mut pair = pair();
    let key = pair.a.memory.lkey();
    let data = [MemorySlice { lkey: Mkey::new(key.value() ^ 1), ..own(&pair)[0] }];
    fails(&mut pair, &WorkRequest::send(1, &data), CqeSyndrome::LocalProtection);
}

/// Requirement: IBTA v1.4 §11.6.2: a cause of "local protection error": a range outside the region.
#[test]
fn a_slice_beyond_the_end_of_its_region() {
    let mut pair = pair();
    let end = pair.a.memory.address() + pair.a.memory.len() as u64;
    let data = [MemorySlice::from_raw(end - 1, 2, pair.a.memory.lkey())];
    let remote = pair.b.memory.remote(0);
    fails(&mut pair, &WorkRequest::write(1, &data, remote), CqeSyndrome::LocalProtection);
}

/// Requirement: IBTA v1.4 §11.6.2: a cause of "local protection error": another protection domain.
#[test]
fn a_region_of_another_protection_domain() {
    let mut pair = pair();
    let (region, _domain) = foreign(&pair.a.node.device);
    let data = [region.slice(0, LENGTH).unwrap()];
    let remote = pair.b.memory.remote(0);
    fails(&mut pair, &WorkRequest::write(1, &data, remote), CqeSyndrome::LocalProtection);
}

/// Requirement: IBTA v1.4 §11.6.2: a cause of "local protection error": no local write access.
#[test]
fn a_read_into_memory_that_may_not_be_written() {
    let mut pair = pair();
    let region = pair.a.node.memory(4096, AccessFlags::LOCAL_READ);
    let data = [region.slice(0, LENGTH).unwrap()];
    let remote = pair.b.memory.remote(0);
    fails(&mut pair, &WorkRequest::read(1, &data, remote), CqeSyndrome::LocalProtection);
}

#[test]
fn an_operation_that_the_device_does_not_have() {
    let mut pair = pair();
    let request = WorkRequest::rpc_params(1, 0x17, Mkey::new(0), b"parameters");
    fails(&mut pair, &request, CqeSyndrome::LocalQpOperation);
}

/// The peer must refuse a WRITE and a READ of `remote`, and its memory must not change.
fn remote_access_fails(options: &PairOptions, remote: impl Fn(&Pair) -> RemoteSlice, syndrome: CqeSyndrome) {
    for read in [false, true] {
        let mut pair = Pair::new(options);
        pair.a.memory.fill(0, LENGTH, 0xee).unwrap();
        let (data, remote) = (own(&pair), remote(&pair));
        let request =
            if read { WorkRequest::read(1, &data, remote) } else { WorkRequest::write(1, &data, remote) };
        fails(&mut pair, &request, syndrome);
        let (mut mine, mut peers) = ([0; LENGTH], [1; LENGTH]);
        pair.a.memory.copy_out(0, &mut mine).unwrap();
        pair.b.memory.copy_out(0, &mut peers).unwrap();
        assert_eq!((mine, peers), ([0xee; LENGTH], [0; LENGTH]), "bytes moved (read: {read})");
    }
}

/// Requirement: IBTA v1.4 §11.6.2: a cause of "remote access error": an unknown R_Key.
#[test]
fn a_remote_key_that_does_not_exist() {
    let wrong = |pair: &Pair| RemoteSlice { rkey: Mkey::new(0x00ab_cd01), ..pair.b.memory.remote(0) };
    remote_access_fails(&PairOptions::default(), wrong, CqeSyndrome::RemoteAccess);
}

/// Requirement: IBTA v1.4 §11.6.2: a cause of "remote access error": a range outside the region.
#[test]
fn a_remote_address_beyond_the_end_of_its_region() {
    let beyond = |pair: &Pair| pair.b.memory.remote(pair.b.memory.len() as u64 - 1);
    remote_access_fails(&PairOptions::default(), beyond, CqeSyndrome::RemoteAccess);
}

/// Requirement: IBTA v1.4 §11.6.2: a cause of "remote access error": no access right.
#[test]
fn remote_memory_without_the_right() {
    let options = PairOptions { memory_access: AccessFlags::LOCAL_WRITE, ..PairOptions::default() };
    remote_access_fails(&options, |pair| pair.b.memory.remote(0), CqeSyndrome::RemoteAccess);
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "remote invalid request error": the queue pair does not permit the
/// operation.
#[test]
fn a_remote_queue_pair_without_the_right() {
    let options = PairOptions { queue_pair_access: AccessFlags::LOCAL_WRITE, ..PairOptions::default() };
    remote_access_fails(&options, |pair| pair.b.memory.remote(0), CqeSyndrome::RemoteInvalidRequest);
}

/// Requirement: IBTA v1.4 §11.6.2: a cause of "remote access error": another protection domain.
#[test]
fn remote_memory_of_another_protection_domain() {
    let mut pair = pair();
    let (region, _domain) = foreign(&pair.b.node.device);
    let data = own(&pair);
    fails(&mut pair, &WorkRequest::write(1, &data, region.remote(0)), CqeSyndrome::RemoteAccess);
}

/// Requirement: IBTA v1.4 §11.6.2: a cause of "remote access error": deregistered memory.
#[test]
fn remote_memory_that_was_deregistered() {
    let mut pair = pair();
    let region = pair.b.node.memory(4096, all_access());
    let remote = region.remote(0);
    drop(region);
    let data = own(&pair);
    fails(&mut pair, &WorkRequest::write(1, &data, remote), CqeSyndrome::RemoteAccess);
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of the responder's "local length error" and the requester's "remote invalid
/// request error": a message longer than its receive.
#[test]
fn a_message_longer_than_the_receive() {
    let mut pair = pair();
    let slice = pair.b.memory.slice(0, LENGTH - 1).unwrap();
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(5, &[slice])).unwrap();
    let data = own(&pair);
    fails(&mut pair, &WorkRequest::send(1, &data), CqeSyndrome::RemoteInvalidRequest);
    let received = pair.received();
    assert_eq!(
        (received.wr_id, received.status),
        (5, WorkCompletionStatus::Failed(CqeSyndrome::LocalLength))
    );
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "remote operational error": a receive that the responder cannot write.
#[test]
fn a_receive_into_memory_that_may_not_be_written() {
    let mut pair = pair();
    let region = pair.b.node.memory(4096, AccessFlags::LOCAL_READ);
    let slice = region.slice(0, LENGTH).unwrap();
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(5, &[slice])).unwrap();
    let data = own(&pair);
    fails(&mut pair, &WorkRequest::send(1, &data), CqeSyndrome::RemoteOperation);
    let received = pair.received();
    assert_eq!(
        (received.wr_id, received.status),
        (5, WorkCompletionStatus::Failed(CqeSyndrome::LocalProtection))
    );
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "local access error": memory is deregistered during an RDMA WRITE with
/// immediate data.
#[test]
fn memory_goes_away_before_the_immediate_data_come() {
    let mut pair = pair();
    let region = pair.b.node.memory(4096, all_access());
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(5, &[])).unwrap();
    pair.world.with(|world| {
        let last = Trigger::Opcode { opcode: WRITE_LAST_WITH_IMMEDIATE, nth: 1 };
        let late = ScriptedFault { when: last, action: Action::Delay(Duration::from_micros(100)) };
        world.script_fault(pair.a.node.id, pair.b.node.id, late).unwrap();
    });
    let data = [pair.a.memory.slice(0, 2048).unwrap()];
    pair.a.queue_pair.post_send(&WorkRequest::write(1, &data, region.remote(0)).immediate(7)).unwrap();
    let soon = pair.world.now() + Duration::from_micros(50);
    pair.world.run_until(soon);
    drop(region);
    assert_eq!(pair.sent().status, WorkCompletionStatus::Failed(CqeSyndrome::RemoteAccess));
    let received = pair.received();
    assert_eq!(
        (received.wr_id, received.status),
        (5, WorkCompletionStatus::Failed(CqeSyndrome::LocalAccess))
    );
}

/// Connects another queue pair of each side, each with a path MTU of its own.
fn connect_with_mtus(pair: &Pair, mtus: [PathMtu; 2]) -> [QueuePair<Handle>; 2] {
    let build =
        |side: &Side| QueuePairBuilder::new(&side.node.domain, &side.sends, &side.receives).build().unwrap();
    let (a, b) = (build(&pair.a), build(&pair.b));
    let (of_a, of_b) = (a.endpoint(0).unwrap(), b.endpoint(0).unwrap());
    let [mtu_a, mtu_b] = mtus.map(|path_mtu| ConnectOptions { path_mtu, ..ConnectOptions::default() });
    [a.connect(&of_b, mtu_a).unwrap(), b.connect(&of_a, mtu_b).unwrap()]
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "bad response error": the responses to a READ have another path MTU.
#[test]
fn a_peer_that_answers_in_packets_of_another_size() {
    let mut pair = pair();
    let [mut asks, _answers] = connect_with_mtus(&pair, [PathMtu::Mtu1024, PathMtu::Mtu2048]);
    let data = [pair.a.memory.slice(0, 4096).unwrap()];
    asks.post_send(&WorkRequest::read(1, &data, pair.b.memory.remote(0))).unwrap();
    asks.post_send(&WorkRequest::nop(2)).unwrap();
    let outcomes = [pair.sent(), pair.sent()].map(|completion| (completion.wr_id, completion.status));
    let failed = WorkCompletionStatus::Failed;
    assert_eq!(
        outcomes,
        [(1, failed(CqeSyndrome::BadResponse)), (2, failed(CqeSyndrome::WorkRequestFlushed))]
    );
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "remote aborted error": a message to a shared receive queue is lost
/// half-way.
#[test]
fn a_message_that_is_forgotten_after_it_took_a_shared_receive() {
    let pair = Pair::<Uc>::of_service(&PairOptions::default());
    let Pair { a, b, world, .. } = pair;
    let config = SharedReceiveQueueConfig { receives: 3, slices: 1 };
    let mut queue = SharedReceiveQueue::create(&b.node.domain, config).unwrap();
    let (mut ends, receives) = (b.node.completion_queue(16), b.node.completion_queue(16));
    let sender =
        QueuePairBuilder::new(&a.node.domain, &a.sends, &a.receives).service::<Uc>().build().unwrap();
    let receiver = QueuePairBuilder::new(&b.node.domain, &receives, &ends).shared_receive_queue(&queue);
    let receiver = receiver.service::<Uc>().build().unwrap();
    let (of_a, of_b) = (sender.endpoint(0).unwrap(), receiver.endpoint(0).unwrap());
    let mut sender = sender.connect(&of_b, ConnectOptions::default()).unwrap();
    let _receiver = receiver.connect(&of_a, ConnectOptions::default()).unwrap();
    for id in [5, 6] {
        let slice = [b.memory.slice(id * 4096, 4096).unwrap()];
        queue.post_receive(&ReceiveRequest::new(id as u64, &slice)).unwrap();
    }
    world.with(|world| {
        let middle = Trigger::Opcode { opcode: UC_SEND_MIDDLE, nth: 1 };
        let lost = ScriptedFault { when: middle, action: Action::Drop };
        world.script_fault(a.node.id, b.node.id, lost).unwrap();
    });
    let data = [a.memory.slice(0, 4096).unwrap()];
    for id in [1, 2] {
        sender.post_send(&WorkRequest::send(id, &data)).unwrap();
    }
    let end = world.now() + Duration::from_millis(1);
    world.run_until(end);
    let outcomes: Vec<_> =
        std::iter::from_fn(|| ends.poll_one().unwrap()).map(|end| (end.wr_id, end.status)).collect();
    let aborted = WorkCompletionStatus::Failed(CqeSyndrome::RemoteAborted);
    assert_eq!(outcomes, [(5, aborted), (6, WorkCompletionStatus::Success)]);
}

/// A complete list for the reader: a status that gets a name needs a test of its cause. The statuses of
/// reliable datagrams have none, because no device of this kind has that service. This test proves nothing
/// about the device.
#[test]
fn the_device_has_no_other_status_than_those_with_a_cause_here() {
    use CqeSyndrome::*;
    let causes = [
        (LocalLength, "a_message_longer_than_the_receive"),
        (LocalQpOperation, "an_operation_that_the_device_does_not_have"),
        (LocalProtection, "a_local_key_that_does_not_exist"),
        (WorkRequestFlushed, "a_queue_pair_moved_to_error_flushes_its_requests_in_order"),
        (MemoryWindowBind, "a_binding_that_the_device_refuses_is_reported"),
        (BadResponse, "a_peer_that_answers_in_packets_of_another_size"),
        (LocalAccess, "memory_goes_away_before_the_immediate_data_come"),
        (RemoteInvalidRequest, "a_remote_queue_pair_without_the_right"),
        (RemoteAccess, "a_remote_key_that_does_not_exist"),
        (RemoteOperation, "a_receive_into_memory_that_may_not_be_written"),
        (TransportRetryExceeded, "a_cable_that_loses_everything"),
        (RnrRetryExceeded, "a_peer_that_posts_no_receive"),
        (RemoteAborted, "a_message_that_is_forgotten_after_it_took_a_shared_receive"),
    ];
    let sources = [include_str!("errors.rs"), include_str!("memory.rs")].concat();
    for raw in 0..=u8::MAX {
        let status = CqeSyndrome::from_raw(raw);
        let cause = causes.iter().find(|(known, _)| *known == status);
        match (status, cause) {
            (Unknown(_), None) => {}
            (_, Some((_, test))) => assert!(sources.contains(&format!("fn {test}()")), "{status}: {test}"),
            (_, None) => panic!("no test causes {status}"),
        }
    }
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "RNR retry counter exceeded".
#[test]
fn a_peer_that_posts_no_receive() {
    let connect = ConnectOptions { rnr_retry: 2, ..ConnectOptions::default() };
    let mut pair = Pair::new(&PairOptions { connect, ..PairOptions::default() });
    let data = own(&pair);
    fails(&mut pair, &WorkRequest::send(1, &data), CqeSyndrome::RnrRetryExceeded);
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: the requester waits for a receive that is posted late.
#[test]
fn a_peer_that_posts_its_receive_late_is_waited_for() {
    let mut pair = pair();
    let data = own(&pair);
    pair.a.queue_pair.post_send(&WorkRequest::send(1, &data)).unwrap();
    let later = pair.world.now() + Duration::from_millis(20);
    pair.world.run_until(later);
    assert_eq!(pair.a.sends.poll_one(), Ok(None));
    let slice = pair.b.memory.slice(0, LENGTH).unwrap();
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(5, &[slice])).unwrap();
    assert!(pair.sent().is_success() && pair.received().is_success());
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "transport retry counter exceeded".
#[test]
fn a_cable_that_loses_everything() {
    let connect = ConnectOptions { retry_count: 3, ack_timeout: 8, ..ConnectOptions::default() };
    let mut pair = Pair::new(&PairOptions { connect, ..PairOptions::default() });
    pair.world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(1.0)));
    let (data, remote) = (own(&pair), pair.b.memory.remote(0));
    fails(&mut pair, &WorkRequest::write(1, &data, remote), CqeSyndrome::TransportRetryExceeded);
    assert_eq!(pair.frames_lost(), 4, "the first and three retries");
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "work request flushed"; flushes come in posting order.
#[test]
fn a_queue_pair_moved_to_error_flushes_its_requests_in_order() {
    let mut pair = pair();
    let slice = [pair.b.memory.slice(0, LENGTH).unwrap()];
    for id in 0..10 {
        pair.b.queue_pair.post_receive(&ReceiveRequest::new(id, &slice)).unwrap();
    }
    pair.b.queue_pair.modify_to_error().unwrap();
    for id in 0..10 {
        let flushed = pair.received();
        assert_eq!((flushed.wr_id, flushed.is_success()), (id, false));
        assert_eq!(flushed.status, WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed));
    }
    assert_eq!(pair.b.queue_pair.receives_outstanding(), 0);
}

/// Requirement: IBTA v1.4 §10.8.5: completions come in posting order, and those before an error are good.
#[test]
fn requests_before_the_failing_one_succeed() {
    let mut pair = pair();
    let (data, good) = (own(&pair), pair.b.memory.remote(0));
    let bad = RemoteSlice { rkey: Mkey::new(0x00ab_cd01), ..good };
    let mut batch = pair.a.queue_pair.send_batch();
    batch.post(&WorkRequest::write(1, &data, good)).unwrap();
    batch.post(&WorkRequest::write(2, &data, good).signalled(false)).unwrap();
    batch.post(&WorkRequest::write(3, &data, bad)).unwrap();
    batch.post(&WorkRequest::write(4, &data, good).signalled(false)).unwrap();
    batch.ring();
    let outcomes: Vec<_> = (0..3).map(|_| pair.sent()).map(|c| (c.wr_id, c.status)).collect();
    let failed = WorkCompletionStatus::Failed;
    assert_eq!(
        outcomes,
        [
            (1, WorkCompletionStatus::Success),
            (3, failed(CqeSyndrome::RemoteAccess)),
            (4, failed(CqeSyndrome::WorkRequestFlushed)),
        ]
    );
}

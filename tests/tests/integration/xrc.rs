//! Extended reliable connections between two drivers: messages go to the shared receive queue that they name (IBTA v1.4 annex
//! A14).

use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::device::Device;
use bareverbs_core::events::AsyncEvent;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{MemoryRegion, MemorySlice};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::transitions::{Attributes, TransitionError};
use bareverbs_core::queue_pair::{
    BuildError, ConnectOptions, ModifyError, PostError, QueuePair, QueuePairAttributes, QueuePairBuilder,
    XrcInitiator, XrcTarget,
};
use bareverbs_core::shared_receive_queue::{
    SharedReceiveQueue, SharedReceiveQueueConfig, SharedReceiveQueueStatus,
};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_core::xrc_domain::XrcDomain;
use bareverbs_hal_sim::{SimHal, SimWorld};
use bareverbs_prm::ids::Srqn;
use bareverbs_prm::numbering::{CqeSyndrome, QpState};
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::LinkConfig;
use bareverbs_sim::net::fault::RandomFaults;
use bareverbs_sim::nic::Nic;
use bareverbs_sim::run::StallReason;
use bareverbs_tests::node::{Handle, Node, NodeOptions, all_access};

const PIECE: usize = 4096;
const RECEIVES: u32 = 15;

/// A shared receive queue with its completion queue and memory, in a protection domain of its own or a shared
/// one.
struct Inbox {
    queue: SharedReceiveQueue<Handle>,
    completions: CompletionQueue<Handle>,
    memory: MemoryRegion<Handle>,
}

/// Host A with initiators, host B with a target for each and two inboxes. Fields are dropped in order.
struct Setting {
    initiators: Vec<QueuePair<Handle, XrcInitiator>>,
    targets: Vec<QueuePair<Handle, XrcTarget>>,
    inboxes: Vec<Inbox>,
    sends: CompletionQueue<Handle>,
    source: MemoryRegion<Handle>,
    xrc: XrcDomain<Handle>,
    /// What is needed to create initiators.
    own: (Inbox, XrcDomain<Handle>),
    a: Node,
    b: Node,
    world: SimWorld<Nic>,
}

impl Inbox {
    fn new(node: &Node, domain: &ProtectionDomain<Handle>, xrc: &XrcDomain<Handle>) -> Self {
        let completions = node.completion_queue(64);
        let config = SharedReceiveQueueConfig { receives: RECEIVES, slices: 1 };
        let queue = SharedReceiveQueue::create_xrc(domain, xrc, &completions, config).unwrap();
        let memory = MemoryRegion::allocate(domain, PIECE * RECEIVES as usize, all_access()).unwrap();
        Self { queue, completions, memory }
    }

    fn post(&mut self, id: u64) {
        let slices = [self.memory.slice(id as usize % RECEIVES as usize * PIECE, PIECE).unwrap()];
        self.queue.post_receive(&ReceiveRequest::new(id, &slices)).unwrap();
    }

    fn bytes(&self, completion: &WorkCompletion) -> Vec<u8> {
        let mut bytes = vec![0; completion.byte_count as usize];
        self.memory.copy_out(completion.wr_id as usize % RECEIVES as usize * PIECE, &mut bytes).unwrap();
        bytes
    }
}

impl Setting {
    fn new(connections: usize, node: NodeOptions) -> Self {
        let world = SimWorld::new(7);
        let ids = [1, 2].map(|number| Node::add(&world, number, node));
        world.connect(ids[0], ids[1], LinkConfig::gigabits(100)).unwrap();
        let [a, b] = [0, 1].map(|i| Node::open(&world, ids[i], i as u8 + 1, node));
        let [own, xrc] = [&a, &b].map(|node| XrcDomain::allocate(node.device.clone()).unwrap());
        let own = (Inbox::new(&a, &a.domain, &own), own);
        let inboxes = vec![Inbox::new(&b, &b.domain, &xrc), Inbox::new(&b, &b.domain, &xrc)];
        let sends = a.completion_queue(256);
        let source = a.memory(PIECE * connections, all_access());
        let (initiators, targets) = (Vec::new(), Vec::new());
        let mut setting = Self { initiators, targets, inboxes, sends, source, xrc, own, a, b, world };
        (0..connections).for_each(|_| setting.connect());
        setting
    }

    fn connect(&mut self) {
        let options = ConnectOptions { rnr_retry: 7, ..ConnectOptions::default() };
        let (inbox, domain) = &self.own;
        let initiator = QueuePairBuilder::xrc_initiator(&self.a.domain, domain, &inbox.queue, &self.sends)
            .build()
            .unwrap();
        let Inbox { queue, completions, .. } = &self.inboxes[0];
        let target =
            QueuePairBuilder::xrc_target(&self.b.domain, &self.xrc, queue, completions).build().unwrap();
        let (of_initiator, of_target) = (initiator.endpoint(0).unwrap(), target.endpoint(0).unwrap());
        self.initiators.push(initiator.connect(&of_target, options).unwrap());
        self.targets.push(target.connect(&of_initiator, options).unwrap());
    }

    /// The memory of an initiator.
    fn data(&self, index: usize, length: usize) -> [MemorySlice; 1] {
        [self.source.slice(index * PIECE, length).unwrap()]
    }

    fn send(&mut self, index: usize, to: Srqn, bytes: &[u8]) {
        self.source.copy_in(index * PIECE, bytes).unwrap();
        let data = self.data(index, bytes.len());
        let request = WorkRequest::send(index as u64, &data).for_shared_queue(to);
        self.initiators[index].post_send(&request).unwrap();
    }

    #[track_caller]
    fn wait<T>(&mut self, mut poll: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = self.world.now() + Duration::from_secs(10);
        loop {
            if let Some(found) = poll(self) {
                return found;
            }
            if self.world.now() >= deadline {
                panic!("{}", self.world.with(|world| world.stalled(StallReason::Deadline)));
            }
            hal(&self.a).relax(deadline);
            hal(&self.b).relax(self.world.now());
        }
    }

    #[track_caller]
    fn sent(&mut self) -> WorkCompletion {
        self.wait(|setting| setting.sends.poll_one().unwrap())
    }

    #[track_caller]
    fn received(&mut self, inbox: usize) -> WorkCompletion {
        self.wait(|setting| setting.inboxes[inbox].completions.poll_one().unwrap())
    }

    fn number(&self, inbox: usize) -> Srqn {
        self.inboxes[inbox].queue.number()
    }
}

fn hal(node: &Node) -> &SimHal<Nic> {
    Device::hal(&node.device)
}

#[track_caller]
fn succeeded(completion: &WorkCompletion) {
    assert!(completion.is_success(), "{completion:?}: {}", completion.status);
}

/// What message `number` of an initiator says.
fn message(from: usize, number: usize) -> Vec<u8> {
    let length = 1 + (number * 1009 + from * 131) % 4000;
    (0..length).map(|i| (i * 11 + number * 37 + from * 101) as u8).collect()
}

/// Requirement: XRC A14: messages of many initiators go to the shared receive queue that they name, and complete in its
/// completion queue.
#[test]
fn many_initiators_reach_one_queue_under_loss() {
    const EACH: usize = 30;
    let mut setting = Setting::new(3, NodeOptions { unforgiving: true, ..NodeOptions::default() });
    setting.world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(0.03)));
    let to = setting.number(0);
    (0..u64::from(RECEIVES)).for_each(|id| setting.inboxes[0].post(id));
    let (mut sent, mut received) = ([1; 3], [0; 3]);
    (0..3).for_each(|index| setting.send(index, to, &message(index, 0)));
    while received.iter().sum::<usize>() < 3 * EACH {
        let completion = setting.received(0);
        succeeded(&completion);
        let from = setting.targets.iter().position(|target| target.qpn() == completion.qpn).unwrap();
        assert_eq!(setting.inboxes[0].bytes(&completion), message(from, received[from]), "in send order");
        received[from] += 1;
        setting.inboxes[0].post(completion.wr_id + u64::from(RECEIVES));
        let done = setting.sent();
        succeeded(&done);
        let index = done.wr_id as usize;
        if sent[index] < EACH {
            setting.send(index, to, &message(index, sent[index]));
            sent[index] += 1;
        }
    }
    assert_eq!(setting.inboxes[0].queue.outstanding(), RECEIVES, "all receives are posted again");
}

/// Requirement: XRC A14: one connection reaches every shared receive queue of the domain
#[test]
fn one_connection_reaches_several_queues() {
    let mut setting = Setting::new(1, NodeOptions::default());
    (0..2).for_each(|inbox| setting.inboxes[inbox].post(10 + inbox as u64));
    for inbox in [1, 0] {
        let to = setting.number(inbox);
        setting.send(0, to, &message(inbox, 3));
        succeeded(&setting.sent());
        let received = setting.received(inbox);
        succeeded(&received);
        assert_eq!((received.wr_id, received.qpn), (10 + inbox as u64, setting.targets[0].qpn()));
        assert_eq!(setting.inboxes[inbox].bytes(&received), message(inbox, 3));
    }
}

/// Requirement: XRC A14: a request for a shared receive queue that does not exist or is of another XRC domain gets a NAK
/// "invalid request".
#[test]
fn a_queue_that_the_target_does_not_have_breaks_the_connection() {
    let mut setting = Setting::new(2, NodeOptions::default());
    let other = XrcDomain::allocate(setting.b.device.clone()).unwrap();
    let foreign = Inbox::new(&setting.b, &setting.b.domain, &other);
    for (index, to) in [(0, Srqn::from_low_bits(0x1234)), (1, foreign.queue.number())] {
        setting.send(index, to, b"to nobody");
        let failed = setting.sent();
        assert_eq!(failed.status, WorkCompletionStatus::Failed(CqeSyndrome::RemoteInvalidRequest));
        assert_eq!(setting.targets[index].query().unwrap().state, QpState::Error);
    }
}

/// Requirement: XRC A14: keys of RDMA and atomics are looked up in the protection domain of the shared receive
/// queue that the request names
#[test]
fn memory_is_reached_through_the_domain_of_the_queue() {
    let mut setting = Setting::new(2, NodeOptions::default());
    let other = ProtectionDomain::allocate(setting.b.device.clone()).unwrap();
    let inbox = Inbox::new(&setting.b, &other, &setting.xrc);
    setting.inboxes.push(inbox);
    let (to, remote) = (setting.number(2), setting.inboxes[2].memory.remote(64));
    setting.inboxes[2].post(5);
    setting.source.copy_in(0, b"written with immediate, read").unwrap();
    let (data, back) = (setting.data(0, 28), [setting.source.slice(1000, 28).unwrap()]);
    let old = [setting.source.slice(2000, 8).unwrap()];
    let initiator = &mut setting.initiators[0];
    let mut batch = initiator.send_batch();
    batch.post(&WorkRequest::write(1, &data, remote).immediate(77).for_shared_queue(to)).unwrap();
    batch.post(&WorkRequest::read(2, &back, remote).for_shared_queue(to)).unwrap();
    batch.post(&WorkRequest::fetch_add(3, &old, remote, 1).for_shared_queue(to)).unwrap();
    batch.post(&WorkRequest::write_inline(4, b"in line", remote).for_shared_queue(to)).unwrap();
    batch.post(&WorkRequest::nop(5)).unwrap();
    batch.ring();
    for id in 1..6 {
        let completion = setting.sent();
        succeeded(&completion);
        assert_eq!(completion.wr_id, id);
    }
    let received = setting.received(2);
    assert_eq!((received.wr_id, received.immediate, received.byte_count), (5, Some(77), 28));
    assert_eq!(received.opcode, WorkCompletionOpcode::ReceiveRdmaWithImmediate);
    let mut bytes = [0; 28];
    setting.source.copy_out(1000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"written with immediate, read");
    let mut old = [0; 8];
    setting.source.copy_out(2000, &mut old).unwrap();
    assert_eq!(&old, b"written ");
    let mut bytes = [0; 7];
    setting.inboxes[2].memory.copy_out(64, &mut bytes).unwrap();
    assert_eq!(&bytes, b"in line");
    // The same key, and a queue of another protection domain.
    let (wrong, data) = (setting.number(0), setting.data(1, 8));
    setting.initiators[1].post_send(&WorkRequest::write(6, &data, remote).for_shared_queue(wrong)).unwrap();
    assert_eq!(setting.sent().status, WorkCompletionStatus::Failed(CqeSyndrome::RemoteAccess));
}

/// Requirement: IBTA v1.4 §10.2.9.1: an XRC shared receive queue has a limit; while it is empty, initiators wait.
#[test]
fn an_xrc_queue_runs_low_and_dry() {
    let mut setting = Setting::new(1, NodeOptions::default());
    let to = setting.number(0);
    setting.inboxes[0].post(0);
    setting.inboxes[0].post(1);
    setting.inboxes[0].queue.arm(2).unwrap();
    assert_eq!(setting.inboxes[0].queue.query(), Ok(SharedReceiveQueueStatus { limit: 2, works: true }));
    for number in 0..3 {
        setting.send(0, to, &message(0, number));
        if number < 2 {
            succeeded(&setting.sent());
        }
    }
    let event = setting.wait(|setting| setting.b.device.poll_event().unwrap());
    assert_eq!(event, AsyncEvent::SharedReceiveQueueLimit { srqn: to });
    (0..2).for_each(|_| succeeded(&setting.received(0)));
    let later = setting.world.now() + Duration::from_millis(10);
    setting.world.run_until(later);
    assert_eq!(setting.sends.poll_one().unwrap(), None, "it waits");
    setting.inboxes[0].post(2);
    succeeded(&setting.sent());
    let received = setting.received(0);
    assert_eq!((received.wr_id, setting.inboxes[0].bytes(&received)), (2, message(0, 2)));
}

#[test]
fn malformed_input_is_refused_before_anything_is_written() {
    let mut setting = Setting::new(1, NodeOptions::default());
    let to = setting.number(0);
    let data = setting.data(0, 8);
    let nameless = setting.initiators[0].post_send(&WorkRequest::send(1, &data));
    assert_eq!(nameless, Err(PostError::SharedReceiveQueue { named: false }));
    let target = setting.targets[0].post_send(&WorkRequest::send(1, &data).for_shared_queue(to));
    assert!(matches!(target, Err(PostError::NotOffered { .. })));
    let receive = setting.initiators[0].post_receive(&ReceiveRequest::new(1, &data));
    assert_eq!(receive, Err(PostError::NoReceiveQueue));
    let completions = &setting.inboxes[0].completions;
    let queue = &setting.inboxes[0].queue;
    let basic = QueuePairBuilder::new(&setting.b.domain, completions, completions);
    let error = basic.shared_receive_queue(queue).build().unwrap_err();
    assert!(matches!(error, BuildError::SharedQueueKind { .. }), "{error}");
    let nowhere = QueuePairBuilder::new(&setting.b.domain, completions, completions).service::<XrcTarget>();
    assert_eq!(nowhere.build().unwrap_err(), BuildError::XrcDomain { given: false });
    let reliable = QueuePairBuilder::new(&setting.a.domain, &setting.sends, &setting.sends).build().unwrap();
    let remote = setting.targets[0].qpn();
    let mut endpoint = reliable.endpoint(0).unwrap();
    endpoint.qpn = remote;
    let mut reliable = reliable.connect(&endpoint, ConnectOptions::default()).unwrap();
    let named = reliable.post_send(&WorkRequest::send(1, &data).for_shared_queue(to));
    assert_eq!(named, Err(PostError::SharedReceiveQueue { named: true }));
}

/// Requirement: IBTA v1.4 §11.2.5.2: an XRC initiator has no responder attributes to modify, an XRC target no requester
/// attributes, and both connect without them.
#[test]
fn each_end_has_its_half_of_the_attributes() {
    let mut setting = Setting::new(1, NodeOptions::default());
    let nothing = QueuePairAttributes::default();
    let responder = QueuePairAttributes { min_rnr_timer: Some(3), ..nothing };
    let requester = QueuePairAttributes { retry_count: Some(3), rnr_retry: Some(2), ..nothing };
    let wrong = |state, forbidden| {
        let (from, to, missing) = (state, state, Attributes::NONE);
        Err(ModifyError::Transition(TransitionError::WrongAttributes { from, to, missing, forbidden }))
    };
    let (initiator, target) = (&mut setting.initiators[0], &mut setting.targets[0]);
    assert_eq!(initiator.modify(QpState::Rts, &responder), wrong(QpState::Rts, Attributes::MIN_RNR_TIMER));
    assert_eq!(target.modify(QpState::Rts, &responder), Ok(()));
    initiator.drain().unwrap();
    target.drain().unwrap();
    let later = setting.world.now() + Duration::from_millis(1);
    setting.world.run_until(later);
    let asked = Attributes::RETRY_COUNT | Attributes::RNR_RETRY;
    let (initiator, target) = (&mut setting.initiators[0], &mut setting.targets[0]);
    assert_eq!(target.modify(QpState::SqDrained, &requester), wrong(QpState::SqDrained, asked));
    let served = QueuePairAttributes { log_max_responder_reads: Some(1), ..nothing };
    assert_eq!(
        initiator.modify(QpState::SqDrained, &served),
        wrong(QpState::SqDrained, Attributes::MAX_RESPONDER_READS)
    );
    assert_eq!(target.modify(QpState::SqDrained, &served), Ok(()));
    assert_eq!(initiator.modify(QpState::SqDrained, &requester), Ok(()));
    let (asks, serves) = (initiator.diagnose().unwrap(), target.diagnose().unwrap());
    assert_eq!(
        ((asks.retry_count, asks.rnr_retry), (serves.retry_count, serves.rnr_retry)),
        ((3, 2), (0, 0))
    );
}

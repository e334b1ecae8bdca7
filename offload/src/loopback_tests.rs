//! Client, DPU and a kernel in the NIC over a scripted network, for cases that a reliable network rarely
//! produces.

mod connections;
mod fallback;
mod receives;
mod withdrawn;

use crate::budget::Limits;
use crate::client::slots::SlotLayout;
use crate::client::{ClientConfig, Ended, KvClient, LookupResult, StartError, Way};
use crate::cost::KernelCost;
use crate::dpu::{DpuServer, RECEIVE_SIZE, memory_size};
use crate::endpoint::{Completion, Endpoint, Outcome, Part, PostError, Remote, Work};
use crate::grant::{Grant, HostRegion};
use crate::host_dma::{DmaEnd, HostDma, HostDmaDone};
use crate::kernel::{CompiledIn, Opcode};
use crate::kernels::kv_layout::{LINE_SIZE, Line, MAX_OBJECT, chain_of};
use crate::kernels::kv_lookup::KvLookup;
use crate::runtime::{Admission, ConnectionId, DmaFault, Reply, ResponseWindow, Runtime};
use crate::status::Status;
use crate::table::{TableConfig, TableDescriptor, TablePolicy, TableWriter};
use crate::wire::RegionHandle;
use bareverbs_prm::time::{Duration, Time};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

pub(crate) const SLOTS: usize = 4;
pub(crate) const RECEIVES: usize = 4;
const HOST: u64 = 0x4000_0000;
pub(crate) const WINDOW: u64 = 0x9_0000;
const MAX_VALUE: u32 = 65_536;
const STRIDE: u64 = ClientConfig::stride(MAX_VALUE);

/// One side of a wire; a WRITE or SEND arrives at the other at once.
#[derive(Default)]
pub(crate) struct Side {
    pub(crate) memory: Vec<u8>,
    base: u64,
    pub(crate) completions: VecDeque<Completion>,
    receives: VecDeque<(u64, Part)>,
    calls: Vec<(u64, u32, Vec<u8>)>,
    room: Option<usize>,
    /// Length of the receive queue, if it has an end.
    receive_depth: Option<usize>,
    /// Number of requests that will be refused.
    refuses: usize,
    /// Number of copies that will fail.
    unreadable: Cell<usize>,
}

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) own: Rc<RefCell<Side>>,
    peer: Rc<RefCell<Side>>,
    host: Rc<RefCell<Vec<u8>>>,
}

pub(crate) fn fabric(host: &Rc<RefCell<Vec<u8>>>) -> (Fake, Fake) {
    let client = Side { memory: vec![0; STRIDE as usize * SLOTS], base: WINDOW, ..Side::default() };
    let server = Side { memory: vec![0; memory_size(RECEIVES, SLOTS)], ..Side::default() };
    let (a, b) = (Rc::new(RefCell::new(client)), Rc::new(RefCell::new(server)));
    let fake = |own: &Rc<RefCell<Side>>, peer: &Rc<RefCell<Side>>| Fake {
        own: own.clone(),
        peer: peer.clone(),
        host: host.clone(),
    };
    (fake(&a, &b), fake(&b, &a))
}

impl Fake {
    fn bytes(&self, part: Part) -> Vec<u8> {
        self.own.borrow().memory[part.offset..][..part.length as usize].to_vec()
    }

    fn write(&self, to: Remote, bytes: &[u8]) {
        let mut peer = self.peer.borrow_mut();
        let at = (to.address - peer.base) as usize;
        peer.memory[at..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Consumes a receive of the peer; a message without one fails the test.
    fn deliver(&self, bytes: &[u8], immediate: Option<u32>) {
        let mut peer = self.peer.borrow_mut();
        let (id, into) = peer.receives.pop_front().expect("receiver not ready: flow control failed");
        if immediate.is_none() {
            peer.memory[into.offset..][..bytes.len()].copy_from_slice(bytes);
        }
        let outcome = Outcome::Received { length: bytes.len() as u32, immediate };
        peer.completions.push_back(Completion { connection: 0, id, outcome });
    }

    fn read(&self, into: Part, from: Remote) {
        let at = (from.address - HOST) as usize;
        let bytes = self.host.borrow()[at..][..into.length as usize].to_vec();
        self.own.borrow_mut().memory[into.offset..][..bytes.len()].copy_from_slice(&bytes);
    }

    fn done(&self, id: u64, outcome: Outcome) {
        self.own.borrow_mut().completions.push_back(Completion { connection: 0, id, outcome });
    }
}

impl Endpoint for Fake {
    fn post(&mut self, connection: usize, id: u64, work: Work<'_>) -> Result<(), PostError> {
        assert_eq!(connection, 0);
        if !self.has_room(connection) {
            return Err(PostError::Full);
        }
        let refuses = self.own.borrow().refuses;
        if refuses > 0 {
            self.own.borrow_mut().refuses = refuses - 1;
            return Err(PostError::BadRequest);
        }
        match work {
            Work::Send(bytes) => self.deliver(bytes, None),
            Work::RpcParameters { opcode, region, bytes } => {
                self.peer.borrow_mut().calls.push((opcode, region, bytes.to_vec()));
            }
            // Nobody takes streams here.
            Work::RpcWrite { .. } => return Err(PostError::BadRequest),
            Work::Read { into, from } => self.read(into, from),
            Work::WriteImmediate { from, to, immediate } => {
                self.write(to, &self.bytes(from));
                self.deliver(&[], Some(immediate));
            }
            Work::WriteBytesImmediate { bytes, to, immediate } => {
                self.write(to, bytes);
                self.deliver(&[], Some(immediate));
            }
        }
        self.done(id, Outcome::Done);
        Ok(())
    }
    fn has_room(&self, _connection: usize) -> bool {
        self.own.borrow().room != Some(0)
    }
    fn post_receive(&mut self, _connection: usize, id: u64, into: Part) -> Result<(), PostError> {
        let mut own = self.own.borrow_mut();
        if own.receive_depth.is_some_and(|depth| own.receives.len() >= depth) {
            return Err(PostError::Full);
        }
        own.receives.push_back((id, into));
        Ok(())
    }
    fn poll(&mut self) -> Option<Completion> {
        self.own.borrow_mut().completions.pop_front()
    }
    fn refresh(&self) {}
    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PostError> {
        let mut own = self.own.borrow_mut();
        own.memory.get_mut(offset..offset + bytes.len()).ok_or(PostError::BadRequest)?.copy_from_slice(bytes);
        Ok(())
    }
    fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), PostError> {
        let own = self.own.borrow();
        if own.unreadable.get() > 0 {
            own.unreadable.set(own.unreadable.get() - 1);
            return Err(PostError::BadRequest);
        }
        buffer.copy_from_slice(own.memory.get(offset..offset + buffer.len()).ok_or(PostError::BadRequest)?);
        Ok(())
    }
}

/// A DMA engine that completes the latest read first.
struct Dma {
    host: Rc<RefCell<Vec<u8>>>,
    reads: Vec<(u64, u64, Part)>,
    stuck: bool,
}

impl HostDma for Dma {
    fn has_room(&self) -> bool {
        self.reads.len() < 2
    }
    fn submit_read(&mut self, tag: u64, _: HostRegion, address: u64, into: Part) -> Result<(), PostError> {
        self.reads.push((tag, address, into));
        Ok(())
    }
    fn submit_write(&mut self, _: u64, _: HostRegion, _: u64, _: Part) -> Result<(), PostError> {
        Err(PostError::BadRequest)
    }
    fn poll(&mut self, memory: &mut impl Endpoint) -> Option<HostDmaDone> {
        if self.stuck {
            return None;
        }
        let (tag, address, into) = self.reads.pop()?;
        let at = (address - HOST) as usize;
        memory.copy_in(into.offset, &self.host.borrow()[at..][..into.length as usize]).expect("inside");
        Some(HostDmaDone { tag, end: DmaEnd::Done })
    }
}

/// The server on the other side.
enum Server {
    Dpu(Box<DpuServer<CompiledIn<KvLookup>, SLOTS, 1, RECEIVES>>, Dma),
    Nic(Box<Runtime<CompiledIn<KvLookup>, SLOTS, 1>>, ConnectionId),
    Nobody,
}

struct Scene {
    client: KvClient<SLOTS>,
    near: Fake,
    far: Fake,
    server: Server,
    table: TableDescriptor,
    host: Rc<RefCell<Vec<u8>>>,
    now: Time,
    buffer: Vec<u8>,
}

fn value(n: u8) -> Vec<u8> {
    vec![n; [0, 1, 100, 5000, 65_536][usize::from(n) % 5]]
}

fn table() -> (Vec<u8>, TableDescriptor) {
    let mut memory = vec![0; 1 << 20];
    let config = TableConfig { buckets: 2, overflow_lines: 8, seed: [9; 16], policy: TablePolicy::default() };
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config).expect("fits");
    for n in 0..20_u8 {
        writer.insert(Time::ZERO, &[n, 1, 2], &value(n)).expect("room");
    }
    let descriptor = *writer.descriptor();
    (memory, descriptor)
}

fn runtime(
    host_length: usize,
    share: u16,
) -> (Runtime<CompiledIn<KvLookup>, SLOTS, 1>, ConnectionId, RegionHandle) {
    let mut runtime = Runtime::new(Limits::default(), KernelCost::FREE);
    let window = ResponseWindow { address: WINDOW, length: STRIDE * SLOTS as u64, rkey: 1 };
    let id = runtime.connect(window, share).expect("room");
    let region = runtime.grant(id, Grant::new(HOST, host_length as u64).expect("no wrap")).expect("room");
    (runtime, id, region)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Dpu,
    Nic,
    Read,
}

const KINDS: [Kind; 3] = [Kind::Dpu, Kind::Nic, Kind::Read];

impl Scene {
    fn new(kind: Kind) -> Self {
        Self::with_share(kind, SLOTS as u16)
    }

    /// A server that runs `share` requests of the client at a time.
    fn with_share(kind: Kind, share: u16) -> Self {
        let (memory, table) = table();
        let host = Rc::new(RefCell::new(memory));
        let (near, mut far) = fabric(&host);
        let length = host.borrow().len();
        let (runtime, id, region) = runtime(length, share);
        let (server, way) = match kind {
            Kind::Dpu => {
                let mut dpu = Box::new(DpuServer::new(runtime));
                dpu.serve(&mut far, 0, id).expect("receives fit");
                (
                    Server::Dpu(dpu, Dma { host: host.clone(), reads: vec![], stuck: false }),
                    Way::KernelDpu(region),
                )
            }
            Kind::Nic => (Server::Nic(Box::new(runtime), id), Way::KernelNic(region)),
            Kind::Read => {
                let region = Grant::new(HOST, length as u64).expect("no wrap");
                (Server::Nobody, Way::Read { rkey: 2, region })
            }
        };
        let layout = SlotLayout { address: WINDOW, rkey: 1, stride: STRIDE, max_response: MAX_VALUE };
        let config = ClientConfig {
            way,
            table,
            layout,
            credits: RECEIVES as u32,
            timeout: Duration::from_millis(5),
            limits: Limits::default(),
        };
        let client = KvClient::new(config);
        let buffer = vec![0; client.buffer_size()];
        Self { client, near, far, server, table, host, now: Time::ZERO, buffer }
    }

    fn start(&mut self, key: &[u8]) -> Result<u64, StartError> {
        self.client.start(self.now, &mut self.near, key)
    }

    /// Lets the server do what it can now; returns whether it did anything.
    fn serve(&mut self) -> bool {
        let mut scratch = vec![0; MAX_OBJECT as usize];
        match &mut self.server {
            Server::Dpu(dpu, dma) => dpu.poll(self.now, &mut self.far, dma, &mut scratch),
            Server::Nic(runtime, id) => {
                let calls = std::mem::take(&mut self.far.own.borrow_mut().calls);
                calls.into_iter().for_each(|(opcode, region, bytes)| {
                    let admission = runtime.handle_strom(self.now, *id, Opcode(opcode), region, &bytes);
                    if let Admission::Refused(reply) = admission {
                        self.far.answer(&reply, &[]);
                    }
                });
                run_in_nic(runtime, self.now, &self.host.borrow(), &self.far)
            }
            Server::Nobody => false,
        }
    }

    fn poll(&mut self) -> Option<LookupResult> {
        self.client.poll(self.now, &mut self.near, &mut self.buffer)
    }

    /// Runs until a lookup ends.
    #[track_caller]
    fn finish(&mut self) -> LookupResult {
        for _ in 0..1000 {
            let active = self.serve();
            if let Some(result) = self.poll() {
                return result;
            }
            if !active {
                self.now = self.client.poll_timeout().unwrap_or(self.now).max(self.now);
            }
        }
        panic!("the lookup never ended");
    }

    #[track_caller]
    fn lookup(&mut self, key: &[u8]) -> (LookupResult, Vec<u8>) {
        let id = self.start(key).expect("begins");
        let result = self.finish();
        assert_eq!(result.request_id, id);
        let length = if result.ended == Ended::Found { result.length as usize } else { 0 };
        (result, self.buffer[..length].to_vec())
    }
}

impl Fake {
    fn answer(&self, reply: &Reply, body: &[u8]) {
        let bytes = [body, &reply.trailer.encode()].concat();
        self.write(Remote { address: reply.address, rkey: reply.rkey }, &bytes);
    }
}

fn run_in_nic(
    runtime: &mut Runtime<CompiledIn<KvLookup>, SLOTS, 1>,
    now: Time,
    host: &[u8],
    far: &Fake,
) -> bool {
    let mut staging = vec![vec![]; SLOTS];
    let mut active = false;
    while let Some(dma) = runtime.poll_dma(now) {
        let at = (dma.address - HOST) as usize;
        let bytes = host.get(at..at + dma.length as usize).ok_or(DmaFault::Memory);
        staging[dma.tag.buffer()] = bytes.unwrap_or_default().to_vec();
        runtime.handle_dma_done(now, dma.tag, bytes);
        active = true;
    }
    while let Some(reply) = runtime.poll_reply(now) {
        let body = reply
            .body
            .map_or(&[][..], |body| &staging[body.buffer][body.offset as usize..][..body.length as usize]);
        far.answer(&reply, body);
        runtime.reply_done(reply.ticket.expect("polled"));
        active = true;
    }
    active
}

#[test]
fn every_key_comes_back_on_every_way() {
    for kind in KINDS {
        let mut scene = Scene::new(kind);
        for n in 0..20_u8 {
            let (result, found) = scene.lookup(&[n, 1, 2]);
            assert_eq!((result.ended, found == value(n)), (Ended::Found, true), "{kind:?} {n}");
            let trips = if kind == Kind::Read { result.hops } else { 1 };
            assert_eq!(result.round_trips, trips);
            assert!(result.hops >= 2 && result.retries == 0 && result.version > 0);
        }
        let (miss, _) = scene.lookup(b"nobody");
        assert_eq!(miss.ended, Ended::Status(Status::NotFound), "{kind:?}");
    }
}

#[test]
fn a_window_of_lookups_is_answered_whatever_the_order() {
    for kind in KINDS {
        let mut scene = Scene::new(kind);
        for round in 0..10_u8 {
            let ids: Vec<u64> =
                (0..SLOTS as u8).map(|n| scene.start(&[(round + n) % 20, 1, 2]).expect("a slot")).collect();
            let full = scene.start(&[0, 1, 2]);
            assert!(matches!(full, Err(StartError::NoSlot(_))), "{full:?}");
            let mut done: Vec<u64> = (0..SLOTS).map(|_| scene.finish().request_id).collect();
            done.sort_unstable();
            assert_eq!(done, ids, "{kind:?}");
        }
    }
}

#[test]
fn broken_structures_get_the_same_status_on_every_way() {
    for kind in KINDS {
        let mut scene = Scene::new(kind);
        for (astray, status) in [(None, Status::HopLimit), (Some(1 << 40), Status::OutOfBounds)] {
            for bucket in 0..2 {
                let at = (scene.table.lines as usize) + bucket * LINE_SIZE as usize;
                let line = Line { next: astray.unwrap_or(at as u64), ..Line::default() };
                scene.host.borrow_mut()[at..at + 64]
                    .copy_from_slice(&line.encode(chain_of(bucket as u32, scene.table.buckets)));
            }
            let (result, _) = scene.lookup(&[3, 1, 2]);
            assert_eq!(result.ended, Ended::Status(status), "{kind:?}");
        }
    }
}

#[test]
fn keys_of_invalid_length_are_refused_and_take_no_slot() {
    for kind in KINDS {
        let mut scene = Scene::new(kind);
        for key in [&[][..], &[0; 65]] {
            for _ in 0..2 * SLOTS {
                let refused = scene.start(key);
                assert_eq!(refused, Err(StartError::Refused(Status::BadParameters)), "{kind:?}");
            }
        }
        assert_eq!(scene.lookup(&[1, 1, 2]).0.ended, Ended::Found);
    }
}

#[test]
fn a_late_response_is_dropped_and_its_slot_is_reused() {
    let mut scene = Scene::new(Kind::Dpu);
    let Server::Dpu(_, dma) = &mut scene.server else { unreachable!() };
    dma.stuck = true;
    for _ in 0..SLOTS {
        scene.start(&[1, 1, 2]).expect("a slot");
    }
    scene.serve();
    scene.now += Duration::from_millis(5);
    for _ in 0..SLOTS {
        assert_eq!(scene.poll().map(|result| result.ended), Some(Ended::TimedOut));
    }
    assert_eq!(scene.poll(), None);
    // The client has withdrawn them; the runtime only has to confirm that.
    while scene.serve() {}
    assert_eq!(scene.poll(), None, "four answers, and no request waits for them");
    assert_eq!(scene.client.stale(), 0);
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    assert_eq!(dpu.runtime().counters().withdrawn, SLOTS as u64);
    let Server::Dpu(_, dma) = &mut scene.server else { unreachable!() };
    dma.stuck = false;
    let (result, found) = scene.lookup(&[2, 1, 2]);
    assert_eq!((result.ended, found), (Ended::Found, value(2)));
}

#[test]
fn a_dpu_whose_send_queue_is_full_waits_and_loses_nothing() {
    let mut scene = Scene::new(Kind::Dpu);
    scene.far.own.borrow_mut().room = Some(0);
    for _ in 0..SLOTS {
        scene.start(&[2, 1, 2]).expect("a slot");
    }
    scene.serve();
    assert_eq!(scene.poll(), None);
    scene.far.own.borrow_mut().room = None;
    for _ in 0..SLOTS {
        assert_eq!(scene.finish().ended, Ended::Found);
    }
    let Server::Dpu(dpu, _) = &scene.server else { unreachable!() };
    assert_eq!((dpu.counters().replies, dpu.counters().lost_replies), (4, 0));
}

#[test]
fn a_broken_connection_ends_all_lookups() {
    for kind in KINDS {
        let mut scene = Scene::new(kind);
        scene.start(&[1, 1, 2]).expect("a slot");
        scene.near.own.borrow_mut().completions.clear();
        scene.near.done(1, Outcome::Failed);
        assert_eq!(scene.poll().map(|result| result.ended), Some(Ended::Disconnected), "{kind:?}");
        assert_eq!(scene.start(&[1, 1, 2]), Err(StartError::Post(PostError::Broken)));
    }
    let mut scene = Scene::new(Kind::Dpu);
    scene.start(&[1, 1, 2]).expect("a slot");
    scene.far.done(1 << 62, Outcome::Failed);
    while scene.serve() {}
    let Server::Dpu(dpu, _) = &mut scene.server else { unreachable!() };
    assert_eq!((dpu.counters().broken, dpu.runtime().running()), (1, 0));
}

/// A DMA channel that follows a script.
struct Scripted {
    asked: Vec<(u64, Part)>,
    done: VecDeque<HostDmaDone>,
    refuses: Option<PostError>,
}

impl Scripted {
    fn new() -> Self {
        Self { asked: vec![], done: VecDeque::new(), refuses: None }
    }
}

impl HostDma for Scripted {
    fn has_room(&self) -> bool {
        true
    }
    fn submit_read(&mut self, tag: u64, _: HostRegion, _: u64, into: Part) -> Result<(), PostError> {
        self.refuses.map_or(Ok(()), Err)?;
        self.asked.push((tag, into));
        Ok(())
    }
    fn submit_write(&mut self, _: u64, _: HostRegion, _: u64, _: Part) -> Result<(), PostError> {
        Err(PostError::BadRequest)
    }
    fn poll(&mut self, _: &mut impl Endpoint) -> Option<HostDmaDone> {
        self.done.pop_front()
    }
}

/// A lookup in progress over a DMA channel that follows a script.
fn scripted() -> (Scene, impl FnMut(&mut Scene, &mut Scripted)) {
    let mut scene = Scene::new(Kind::Dpu);
    scene.start(&[2, 1, 2]).expect("a slot");
    let Server::Dpu(mut dpu, _) = std::mem::replace(&mut scene.server, Server::Nobody) else {
        unreachable!()
    };
    let mut scratch = vec![0; MAX_OBJECT as usize];
    let turn = move |scene: &mut Scene, dma: &mut Scripted| {
        for _ in 0..100 {
            if !dpu.poll(scene.now, &mut scene.far, dma, &mut scratch) {
                return;
            }
        }
        panic!("the server does not come to rest");
    };
    (scene, turn)
}

#[test]
fn completions_of_unknown_dma_tags_change_nothing() {
    let (mut scene, mut turn) = scripted();
    let mut dma = Scripted::new();
    turn(&mut scene, &mut dma);
    let (tag, into) = dma.asked[0];
    assert_eq!(into, Part { offset: RECEIVES * RECEIVE_SIZE, length: LINE_SIZE });
    for other in [tag + 256, tag + 1, u64::MAX] {
        dma.done.push_back(HostDmaDone { tag: other, end: DmaEnd::Done });
        turn(&mut scene, &mut dma);
        assert_eq!((dma.asked.len(), scene.poll()), (1, None), "tag {other:#x}");
    }
}

#[test]
fn the_client_learns_the_outcome_of_a_read() {
    let faults = [(DmaFault::Memory, Status::DmaFault), (DmaFault::TakenBack, Status::TakenBack)];
    for (fault, status) in faults {
        let (mut scene, mut turn) = scripted();
        let mut dma = Scripted::new();
        turn(&mut scene, &mut dma);
        dma.done.push_back(HostDmaDone { tag: dma.asked[0].0, end: DmaEnd::Fault(fault) });
        turn(&mut scene, &mut dma);
        assert_eq!(scene.poll().map(|result| result.ended), Some(Ended::Status(status)));
    }
    for (refused, status) in
        [(PostError::BadRequest, Status::DmaFault), (PostError::Broken, Status::TakenBack)]
    {
        let (mut scene, mut turn) = scripted();
        turn(&mut scene, &mut Scripted { refuses: Some(refused), ..Scripted::new() });
        assert_eq!(scene.poll().map(|result| result.ended), Some(Ended::Status(status)));
    }
}

#[test]
fn a_read_that_was_flushed_is_asked_for_again_under_its_tag() {
    let (mut scene, mut turn) = scripted();
    let mut dma = Scripted::new();
    turn(&mut scene, &mut dma);
    for _ in 0..3 {
        dma.done.push_back(HostDmaDone { tag: dma.asked[0].0, end: DmaEnd::Flushed });
        turn(&mut scene, &mut dma);
    }
    assert_eq!(dma.asked, [dma.asked[0]; 4]);
}

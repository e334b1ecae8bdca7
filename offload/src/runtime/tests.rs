//! The runtime as its owner sees it, with plain memory for the host and staging buffers for the DMA.

use super::*;
use crate::kernel::{CompiledIn, Emission, Kernel, KernelSet, Opcode, Step};
use crate::kernels::kv_layout::{Line, chain_of};
use crate::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use crate::table::{TableConfig, TableDescriptor, TablePolicy, TableWriter};
use crate::wire::{Trailer, slot_size};
use bareverbs_prm::time::Duration;
use proptest::prelude::*;

mod answers;
mod at_once;
mod owner;
mod transfers;

const BASE: u64 = 0x7000_0000;
const WINDOW: ResponseWindow = ResponseWindow { address: 0x9000, length: 0x1000, rkey: 0xabcd };
const COST: KernelCost = KernelCost {
    dispatch: Duration::from_nanos(100),
    per_dma: Duration::from_nanos(30),
    per_fuel: Duration::ZERO,
    one_core: false,
};

fn micros(n: u64) -> Time {
    Time::ZERO + Duration::from_micros(n)
}

struct World<S: KernelSet, const SLOTS: usize> {
    runtime: Runtime<CompiledIn<S>, SLOTS, 2>,
    memory: Vec<u8>,
    staging: Vec<Vec<u8>>,
    connection: ConnectionId,
    region: RegionHandle,
    now: Time,
}

/// A reply with the bytes of its body.
type Response = (Reply, Vec<u8>);

impl<S: KernelSet, const SLOTS: usize> World<S, SLOTS> {
    fn new(memory: Vec<u8>) -> Self {
        Self::charging(COST, memory)
    }

    fn charging(cost: KernelCost, memory: Vec<u8>) -> Self {
        let mut runtime = Runtime::new(Limits::default(), cost);
        let connection = runtime.connect(WINDOW, SLOTS as u16).expect("room");
        let grant = Grant::new(BASE, memory.len() as u64).expect("no wrap");
        let region = runtime.grant(connection, grant).expect("room");
        Self { runtime, memory, staging: vec![vec![]; SLOTS], connection, region, now: Time::ZERO }
    }

    fn request<'a>(&self, id: u64, parameters: &'a [u8]) -> Request<'a> {
        let slot = (id % 4) as u16;
        let reply = ReplyTo {
            address: WINDOW.address + u64::from(slot) * slot_size(256),
            rkey: WINDOW.rkey,
            max_response: 256,
            slot,
        };
        Request {
            opcode: KvLookup::OPCODE,
            request_id: id,
            reply,
            deadline: Duration::ZERO,
            hop_limit: 0,
            region: self.region,
            parameters,
            payload: &[],
        }
    }

    fn send(&mut self, request: &Request<'_>) -> Admission {
        let mut buffer = [0; 512];
        let bytes = request.encode_message(&mut buffer).expect("fits");
        self.runtime.handle_message(self.now, self.connection, bytes)
    }

    /// Carries out what is due now; returns whether anything was.
    fn turn(&mut self, responses: &mut Vec<Response>) -> bool {
        if let Some(dma) = self.runtime.poll_dma(self.now) {
            self.carry_out(&dma);
            return true;
        }
        let Some(reply) = self.runtime.poll_reply(self.now) else { return false };
        let body = reply.body.map_or(vec![], |body| match self.runtime.computed(&reply) {
            Some(computed) => computed.to_vec(),
            None => self.staging[body.buffer][body.offset as usize..][..body.length as usize].to_vec(),
        });
        self.runtime.reply_done(reply.ticket.expect("polled replies have one"));
        responses.push((reply, body));
        true
    }

    /// Acts as the device: reads into the staging buffer, or writes the memory.
    fn carry_out(&mut self, dma: &DmaRequest) {
        let memory = &mut self.memory[(dma.address - BASE) as usize..][..dma.length as usize];
        let before = memory.to_vec();
        let bytes = match dma.action {
            DmaAction::Read => before,
            DmaAction::Write { .. } => {
                memory.copy_from_slice(self.runtime.to_be_written(dma).expect("a write"));
                vec![]
            }
            DmaAction::CompareAndSwap { expected, desired } => {
                if before == expected.to_be_bytes() {
                    memory.copy_from_slice(&desired.to_be_bytes());
                }
                before
            }
        };
        let staging = &mut self.staging[dma.tag.buffer()];
        let (begin, end) = (dma.offset as usize, dma.offset as usize + bytes.len());
        staging.resize(staging.len().max(end), 0);
        staging[begin..end].copy_from_slice(&bytes);
        self.runtime.handle_dma_done(self.now, dma.tag, Ok(&bytes));
    }

    /// Runs until nothing is left to do.
    fn run(&mut self) -> Vec<Response> {
        let mut responses = vec![];
        for _ in 0..10_000 {
            if self.turn(&mut responses) {
                continue;
            }
            let Some(next) = self.runtime.poll_timeout() else { return responses };
            assert!(next > self.now, "due at {next} and nothing done at {}", self.now);
            self.now = next;
        }
        panic!("the runtime never came to rest");
    }
}

type KvWorld = World<KvLookup, 4>;

fn table() -> (Vec<u8>, TableDescriptor) {
    let mut memory = vec![0; 8192];
    let config = TableConfig { buckets: 1, overflow_lines: 8, seed: [3; 16], policy: TablePolicy::default() };
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config).expect("fits");
    for n in 0..12_u8 {
        writer.insert(Time::ZERO, &[n + 1; 8], &[n; 100]).expect("room");
    }
    let descriptor = *writer.descriptor();
    (memory, descriptor)
}

fn kv_world() -> (KvWorld, TableDescriptor) {
    let (memory, descriptor) = table();
    (KvWorld::new(memory), descriptor)
}

fn lookup(descriptor: &TableDescriptor, key: &[u8]) -> Vec<u8> {
    let mut buffer = [0; MAX_PARAMETERS];
    descriptor.lookup(key).encode(&mut buffer).expect("fits").to_vec()
}

/// Sends one request and returns the status of its only reply.
#[track_caller]
fn status_of(world: &mut KvWorld, request: &Request<'_>) -> Status {
    match world.send(request) {
        Admission::Refused(reply) => {
            assert_eq!(reply.trailer.request_id, request.request_id);
            reply.trailer.status
        }
        Admission::Accepted => {
            let responses = world.run();
            assert_eq!(responses.len(), 1);
            assert_eq!(responses[0].0.trailer.request_id, request.request_id);
            responses[0].0.trailer.status
        }
        Admission::Dropped(reason) => panic!("dropped: {reason:?}"),
    }
}

#[test]
fn a_hit_is_answered_with_its_value_and_what_it_took() {
    let (mut world, descriptor) = kv_world();
    let parameters = lookup(&descriptor, &[6; 8]);
    let request = world.request(77, &parameters);
    assert_eq!(world.send(&request), Admission::Accepted);
    let responses = world.run();
    let [(reply, body)] = responses.as_slice() else { panic!("one reply") };
    assert_eq!(body.as_slice(), &[5; 100]);
    assert_eq!((reply.trailer.status, reply.trailer.length), (Status::Ok, 100));
    assert_eq!(reply.trailer.hops, 5, "four lines of three and the object");
    assert_eq!(reply.address + 100 + 32, request.reply.address + slot_size(256), "ends with the slot");
    // Dispatch, plus five DMAs, each charged before the next step.
    assert_eq!(reply.trailer.server_nanos, 100 + 5 * 30);
    assert_eq!(world.runtime.running(), 0);
}

#[test]
fn on_one_core_a_lookup_waits_for_the_steps_of_the_other() {
    // A hit in the first line: two DMAs.
    let times = |cost| {
        let (memory, descriptor) = table();
        let mut world = KvWorld::charging(cost, memory);
        let parameters = lookup(&descriptor, &[1; 8]);
        for id in 0..2 {
            assert_eq!(world.send(&world.request(id, &parameters)), Admission::Accepted);
        }
        world.run().iter().map(|(reply, _)| reply.trailer.server_nanos).collect::<Vec<_>>()
    };
    assert_eq!(times(COST), [160, 160]);
    // The second one's start comes before the first one's steps.
    assert_eq!(times(KernelCost { one_core: true, ..COST }), [290, 320]);
}

#[test]
fn both_channels_give_the_same_response() {
    let (mut world, descriptor) = kv_world();
    let parameters = lookup(&descriptor, &[2; 8]);
    let request = world.request(5, &parameters);
    assert_eq!(world.send(&request), Admission::Accepted);
    let by_message = world.run();
    let mut buffer = [0; 256];
    let block = request.encode_strom(&mut buffer).expect("fits");
    let region = world.region.0;
    let admission = world.runtime.handle_strom(world.now, world.connection, request.opcode, region, block);
    assert_eq!(admission, Admission::Accepted);
    let by_strom = world.run();
    assert_eq!(by_message[0].1, by_strom[0].1);
    assert_eq!(by_message[0].0.trailer, by_strom[0].0.trailer);
    assert_eq!(by_message[0].0.address, by_strom[0].0.address);
}

#[test]
fn every_refusal_has_its_status() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let miss = lookup(&descriptor, b"nobody");
    let good = world.request(1, &hit);
    let region = RegionHandle(good.region.0 ^ 0x0100);
    let [small, just_enough] = [99, 100].map(|max_response| ReplyTo { max_response, ..good.reply });
    let cases = [
        (Request { parameters: &miss, ..good }, Status::NotFound),
        (Request { opcode: Opcode(1), ..good }, Status::NoKernel),
        (Request { parameters: b"short", ..good }, Status::BadParameters),
        (Request { payload: b"unwanted", ..good }, Status::BadParameters),
        (Request { region, ..good }, Status::OutOfBounds),
        (Request { hop_limit: 3, ..good }, Status::HopLimit),
        (Request { reply: small, ..good }, Status::Truncated),
        (Request { reply: just_enough, ..good }, Status::Ok),
        (good, Status::Ok),
    ];
    for (request, expected) in cases {
        assert_eq!(status_of(&mut world, &request), expected);
    }
}

#[test]
fn a_truncated_response_has_its_full_size() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let mut request = world.request(1, &hit);
    request.reply.max_response = 8;
    assert_eq!(world.send(&request), Admission::Accepted);
    let (reply, body) = world.run().remove(0);
    assert_eq!((reply.trailer.status, reply.trailer.length), (Status::Truncated, 100));
    assert!(reply.body.is_none() && body.is_empty());
}

#[test]
fn replies_go_into_the_registered_window_or_nowhere() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let good = world.request(1, &hit);
    let beyond = WINDOW.address + WINDOW.length - slot_size(256) + 1;
    for reply in [
        ReplyTo { address: WINDOW.address - 1, ..good.reply },
        ReplyTo { address: beyond, ..good.reply },
        ReplyTo { rkey: 1, ..good.reply },
        ReplyTo { max_response: u32::MAX, ..good.reply },
        ReplyTo { address: u64::MAX - 8, ..good.reply },
    ] {
        let admission = world.send(&Request { reply, ..good });
        assert_eq!(admission, Admission::Dropped(DropReason::ReplyWindow), "{reply:?}");
    }
    assert_eq!(world.runtime.counters().dropped, 5);
    let edge = ReplyTo { address: beyond - 1, ..good.reply };
    assert_eq!(status_of(&mut world, &Request { reply: edge, ..good }), Status::Ok);
}

#[test]
fn malformed_messages_are_answered_if_they_say_where() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let mut buffer = [0; 512];
    let bytes = world.request(9, &hit).encode_message(&mut buffer).expect("fits").to_vec();
    let cut = world.runtime.handle_message(world.now, world.connection, &bytes[..bytes.len() - 1]);
    let Admission::Refused(reply) = cut else { panic!("{cut:?}") };
    assert_eq!((reply.trailer.status, reply.trailer.request_id), (Status::BadParameters, 9));
    let short = world.runtime.handle_message(world.now, world.connection, &bytes[..63]);
    assert_eq!(short, Admission::Dropped(DropReason::Unintelligible));
}

#[test]
fn a_full_runtime_answers_busy_until_a_slot_is_free() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    for id in 0..4 {
        let request = world.request(id, &hit);
        assert_eq!(world.send(&request), Admission::Accepted);
    }
    let request = world.request(4, &hit);
    let Admission::Refused(reply) = world.send(&request) else { panic!("full") };
    assert_eq!(reply.trailer.status, Status::Busy);
    assert_eq!(world.run().len(), 4);
    assert_eq!(status_of(&mut world, &request), Status::Ok);
}

#[test]
fn a_connection_cannot_take_more_than_its_share() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let length = world.memory.len() as u64;
    let second = world.runtime.connect(WINDOW, 1).expect("room");
    let region = world.runtime.grant(second, Grant::new(BASE, length).expect("no wrap")).expect("room");
    assert!(matches!(world.runtime.connect(WINDOW, 1), Err(ConnectError::TooManyConnections { limit: 2 })));
    let mut buffer = [0; 512];
    let request = Request { region, ..world.request(1, &hit) };
    let bytes = request.encode_message(&mut buffer).expect("fits");
    assert_eq!(world.runtime.handle_message(world.now, second, bytes), Admission::Accepted);
    let refused = world.runtime.handle_message(world.now, second, bytes);
    assert!(matches!(
        refused,
        Admission::Refused(Reply { trailer: Trailer { status: Status::Busy, .. }, .. })
    ));
}

#[test]
fn steps_are_taken_in_turn() {
    let (mut world, descriptor) = kv_world();
    let long = lookup(&descriptor, b"a miss walks the whole chain");
    let short = lookup(&descriptor, &[1; 8]);
    for (id, parameters) in [(1, &long), (2, &long), (3, &short)] {
        let request = world.request(id, parameters);
        assert_eq!(world.send(&request), Admission::Accepted);
    }
    let order: Vec<u64> = world.run().iter().map(|(reply, _)| reply.trailer.request_id).collect();
    assert_eq!(order, [3, 1, 2], "the short walk does not wait for the long ones");
}

#[test]
fn revoking_a_grant_ends_the_requests_on_it() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let request = world.request(1, &hit);
    assert_eq!(world.send(&request), Admission::Accepted);
    world.now = micros(1);
    let dma = world.runtime.poll_dma(world.now).expect("due");
    let (connection, region) = (world.connection, world.region);
    world.runtime.revoke(connection, region);
    world.runtime.handle_dma_done(world.now, dma.tag, Ok(&vec![0; dma.length as usize]));
    let responses = world.run();
    assert_eq!(responses[0].0.trailer.status, Status::Revoked);
    let again = world.runtime.grant(connection, Grant::new(BASE, 64).expect("no wrap")).expect("room");
    assert_ne!(again, region, "an old handle stays invalid");
    assert_eq!(status_of(&mut world, &request), Status::Revoked);
}

#[test]
fn no_handle_means_two_grants() {
    let (mut world, _) = kv_world();
    let connection = world.connection;
    let grant = Grant::new(BASE, 64).expect("no wrap");
    let mut handles = std::collections::BTreeSet::from([world.region.0]);
    for _ in 0..1000 {
        let region = world.runtime.grant(connection, grant).expect("room");
        assert!(handles.insert(region.0), "{region:?} was granted before");
        world.runtime.revoke(connection, region);
    }
}

/// The right bytes arrive each time, so only the revoked grant can be the reason.
#[test]
fn bytes_that_come_after_the_grant_was_revoked_are_not_used() {
    let (memory, descriptor) = table();
    let hit = lookup(&descriptor, &[6; 8]);
    let reads = {
        let mut world = KvWorld::new(memory.clone());
        assert_eq!(world.send(&world.request(1, &hit)), Admission::Accepted);
        assert_eq!(world.run()[0].0.trailer.status, Status::Ok);
        world.runtime.counters().dma_requests
    };
    assert!(reads > 1, "lines and an object");
    for revoked_at in 0..reads {
        let mut world = KvWorld::new(memory.clone());
        assert_eq!(world.send(&world.request(1, &hit)), Admission::Accepted);
        for read in 0..=revoked_at {
            world.now = world.runtime.poll_timeout().expect("a read is due");
            let dma = world.runtime.poll_dma(world.now).expect("a read is due");
            if read == revoked_at {
                let (connection, region) = (world.connection, world.region);
                world.runtime.revoke(connection, region);
            }
            let at = (dma.address - BASE) as usize;
            world.staging[dma.tag.buffer()] = memory[at..at + dma.length as usize].to_vec();
            world.runtime.handle_dma_done(world.now, dma.tag, Ok(&memory[at..at + dma.length as usize]));
        }
        let responses = world.run();
        let [(reply, body)] = responses.as_slice() else { panic!("one reply") };
        assert_eq!((reply.trailer.status, body.len()), (Status::Revoked, 0), "read {revoked_at} of {reads}");
        assert_eq!(world.runtime.counters().dma_requests, revoked_at + 1, "no reads after the revocation");
    }
}

#[test]
fn a_completion_of_an_earlier_invocation_is_not_one_of_this() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let mut tags = vec![];
    for id in 1..=2 {
        assert_eq!(world.send(&world.request(id, &hit)), Admission::Accepted);
        world.now += Duration::from_micros(1);
        let dma = world.runtime.poll_dma(world.now).expect("due");
        tags.push(dma.tag);
        if id == 1 {
            world.runtime.handle_dma_done(world.now, dma.tag, Err(DmaFault::Memory));
            assert_eq!(world.run().len(), 1);
        }
    }
    assert_eq!(tags[0].buffer(), tags[1].buffer(), "the same slot");
    world.runtime.handle_dma_done(world.now, tags[0], Err(DmaFault::Memory));
    assert_eq!(world.runtime.counters().stale_completions, 1);
    assert_eq!(world.runtime.poll_reply(micros(1000)), None, "the second still waits for its own bytes");
}

#[test]
fn faults_and_short_reads_are_typed() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    for (bytes, status) in [
        (Err(DmaFault::Memory), Status::DmaFault),
        (Ok(&[0_u8; 63][..]), Status::DmaFault),
        (Err(DmaFault::TakenBack), Status::TakenBack),
        (Err(DmaFault::NoCompareAndSwap), Status::NoAtomics),
    ] {
        let request = world.request(1, &hit);
        assert_eq!(world.send(&request), Admission::Accepted);
        world.now += Duration::from_micros(1);
        let dma = world.runtime.poll_dma(world.now).expect("due");
        world.runtime.handle_dma_done(world.now, dma.tag, bytes);
        assert_eq!(world.run()[0].0.trailer.status, status);
    }
}

#[test]
fn a_dma_that_never_ends_keeps_its_buffer_but_not_its_client() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let request = Request { deadline: Duration::from_micros(5), ..world.request(1, &hit) };
    assert_eq!(world.send(&request), Admission::Accepted);
    world.now = micros(1);
    let dma = world.runtime.poll_dma(world.now).expect("due");
    let responses = world.run();
    assert_eq!(responses[0].0.trailer.status, Status::Deadline);
    assert_eq!(world.now, micros(5));
    assert_eq!(world.runtime.running(), 1, "the DMA may still write to the staging buffer");
    world.runtime.handle_dma_done(world.now, dma.tag, Ok(&vec![0; dma.length as usize]));
    assert_eq!(world.runtime.running(), 0);
    world.runtime.handle_dma_done(world.now, dma.tag, Ok(&[]));
    assert_eq!(world.runtime.counters().stale_completions, 1);
    assert_eq!(Tag::from_bits(dma.tag.to_bits()), dma.tag);
}

#[test]
fn a_forgotten_connection_gets_no_reply() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let request = world.request(1, &hit);
    assert_eq!(world.send(&request), Admission::Accepted);
    let connection = world.connection;
    world.runtime.disconnect(connection);
    assert!(world.run().is_empty());
    assert_eq!(world.runtime.running(), 0);
    assert_eq!(world.send(&request), Admission::Dropped(DropReason::NoConnection));
}

#[test]
fn an_endless_chain_ends_at_the_hop_limit() {
    let (memory, descriptor) = table();
    let mut world = KvWorld::new(memory);
    let bite = Line { next: descriptor.lines, ..Line::default() }.encode(chain_of(0, 1));
    world.memory[descriptor.lines as usize..][..64].copy_from_slice(&bite);
    let hit = lookup(&descriptor, &[6; 8]);
    let request = world.request(1, &hit);
    assert_eq!(status_of(&mut world, &request), Status::HopLimit);
    assert_eq!(world.runtime.counters().dma_requests, 64);
}

/// Answers with a part of what it read; the payload says which part.
struct Slice(u32, u32);

impl Kernel for Slice {
    const OPCODE: Opcode = Opcode(2);
    fn start(_parameters: &[u8], _grant: &Grant) -> Result<(Self, Step), Status> {
        Ok((Self(0, 0), Step::AwaitPayload))
    }
    fn dma_done(&mut self, _bytes: &[u8], _grant: &Grant) -> Step {
        Step::Emit(Emission { offset: self.0, length: self.1, version: 0 })
    }
    fn payload(&mut self, chunk: &[u8], last: bool, grant: &Grant) -> Step {
        assert!(last, "a message carries its payload whole");
        let &[offset, length] = chunk else { return Step::AwaitPayload };
        (self.0, self.1) = (offset.into(), length.into());
        grant.check(0, 16).map_or(Step::Done(Status::OutOfBounds), Step::Fetch)
    }
}

#[test]
fn kernels_receive_payload_and_emit_only_bytes_that_they_read() {
    let mut world = World::<Slice, 2>::new((0..16).collect());
    let mut ask = |payload: &[u8]| {
        let request = Request { opcode: Opcode(2), payload, ..world.request(1, &[]) };
        assert_eq!(world.send(&request), Admission::Accepted);
        let (reply, body) = world.run().remove(0);
        (reply.trailer.status, body, reply.body.map(|body| (body.offset, body.place)))
    };
    assert_eq!(ask(&[3, 2]), (Status::Ok, vec![3, 4], Some((3, 3))), "they lie where they were read");
    assert_eq!(ask(&[16, 0]), (Status::Ok, vec![], None));
    assert_eq!(ask(&[16, 1]), (Status::OutOfBounds, vec![], None));
    assert_eq!(ask(&[]), (Status::BadParameters, vec![], None), "no more payload follows");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn arbitrary_messages_and_memory_always_come_to_rest(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..8),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..60),
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
    ) {
        let (mut world, descriptor) = kv_world();
        for (at, value) in noise {
            let at = at.index(world.memory.len());
            world.memory[at] = value;
        }
        let hit = lookup(&descriptor, &[6; 8]);
        let mut buffer = [0; 512];
        let good = world.request(1, &hit).encode_message(&mut buffer).expect("fits").to_vec();
        for (at, value) in flips {
            let mut bad = good.clone();
            bad[at.index(good.len())] = value;
            let _ = world.runtime.handle_message(world.now, world.connection, &bad);
        }
        for message in messages {
            let _ = world.runtime.handle_message(world.now, world.connection, &message);
            let _ = world.runtime.handle_strom(world.now, world.connection, KvLookup::OPCODE, 0, &message);
        }
        world.run();
        prop_assert_eq!(world.runtime.running(), 0);
    }
}

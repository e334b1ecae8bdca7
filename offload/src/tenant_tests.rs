//! Several tenants share one DPU; what one does must not affect the others.

use crate::budget::{Limits, MAX_READ};
use crate::cost::KernelCost;
use crate::dpu::{DpuServer, memory_size};
use crate::endpoint::{Completion, Endpoint, Outcome, Part, PostError, Remote, Work};
use crate::grant::{Grant, HostRegion};
use crate::host_dma::{DmaEnd, DmaFault, HostDma, HostDmaDone, HostRead};
use crate::kernel::{CompiledIn, Kernel, Opcode};
use crate::kernels::BuiltInKernels;
use crate::kernels::aggregate::{Aggregate, Totals};
use crate::kernels::field::{ByteOrder, Field, Predicate};
use crate::kernels::publish::{Publish, PublishParameters};
use crate::kernels::scan::ScanQuery;
use crate::kernels::traversal::{Action, KEYS, Length, ROWS, Row, Traversal, TraversalTable, Value};
use crate::runtime::{ConnectionId, ResponseWindow, Runtime};
use crate::status::Status;
use crate::wire::{RegionHandle, ReplyTo, Request, TRAILER_SIZE, Trailer};
use bareverbs_prm::time::{Duration, Time};
use std::collections::VecDeque;

const TENANTS: usize = 2;
const RECEIVES: usize = 8;
const SLOTS: usize = 8;
const HOST: u64 = 0x4000_0000;
const WINDOW: ResponseWindow = ResponseWindow { address: 0x9000, length: 0x10_0000, rkey: 7 };

/// The memory and queues of the DPU. Writes to a peer are recorded, and complete at once or never.
struct Queues {
    memory: Vec<u8>,
    receives: [VecDeque<(u64, Part)>; TENANTS],
    completions: VecDeque<Completion>,
    /// What each tenant was sent.
    written: [Vec<Vec<u8>>; TENANTS],
    /// Sends that each queue still accepts. A tenant that takes its answers frees each place at once.
    room: [usize; TENANTS],
    ready: [bool; TENANTS],
}

impl Queues {
    fn new() -> Self {
        Self {
            memory: vec![0; memory_size(TENANTS * RECEIVES, SLOTS)],
            receives: Default::default(),
            completions: VecDeque::new(),
            written: Default::default(),
            room: [4; TENANTS],
            ready: [true; TENANTS],
        }
    }

    /// A tenant sends a message, if a receive is posted for it.
    fn arrive(&mut self, tenant: usize, bytes: &[u8]) -> bool {
        let Some((id, into)) = self.receives[tenant].pop_front() else { return false };
        self.memory[into.offset..][..bytes.len()].copy_from_slice(bytes);
        let outcome = Outcome::Received { length: bytes.len() as u32, immediate: None };
        self.completions.push_back(Completion { connection: tenant, id, outcome });
        true
    }

    fn trailers(&self, tenant: usize) -> Vec<Trailer> {
        let trailer = |bytes: &Vec<u8>| Trailer::parse(bytes.last_chunk::<TRAILER_SIZE>()?);
        self.written[tenant].iter().map(|bytes| trailer(bytes).expect("a trailer")).collect()
    }
}

impl Endpoint for Queues {
    fn post(&mut self, connection: usize, id: u64, work: Work<'_>) -> Result<(), PostError> {
        if !self.has_room(connection) {
            return Err(PostError::Full);
        }
        let bytes = match work {
            Work::WriteImmediate { from, to: Remote { .. }, .. } => {
                self.memory[from.offset..][..from.length as usize].to_vec()
            }
            Work::WriteBytesImmediate { bytes, .. } => bytes.to_vec(),
            other => panic!("a DPU does not post {other:?}"),
        };
        self.written[connection].push(bytes);
        if self.ready[connection] {
            self.completions.push_back(Completion { connection, id, outcome: Outcome::Done });
        } else {
            self.room[connection] -= 1;
        }
        Ok(())
    }
    fn has_room(&self, connection: usize) -> bool {
        self.room[connection] > 0
    }
    fn post_receive(&mut self, connection: usize, id: u64, into: Part) -> Result<(), PostError> {
        self.receives[connection].push_back((id, into));
        Ok(())
    }
    fn poll(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }
    fn refresh(&self) {}
    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PostError> {
        let part = self.memory.get_mut(offset..offset + bytes.len()).ok_or(PostError::BadRequest)?;
        part.copy_from_slice(bytes);
        Ok(())
    }
    fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), PostError> {
        buffer.copy_from_slice(self.memory.get(offset..offset + buffer.len()).ok_or(PostError::BadRequest)?);
        Ok(())
    }
}

/// An access to the host's memory.
#[derive(Clone, Copy)]
enum Asked {
    Read,
    Write,
    CompareAndSwap([u64; 2]),
}

/// The memory of the host; each request completes at the next poll, or a read at once.
struct Host {
    memory: Vec<u8>,
    asked: VecDeque<(u64, u64, Part, Asked)>,
    compares_and_swaps: bool,
    at_once: bool,
}

impl HostDma for Host {
    fn has_room(&self) -> bool {
        true
    }
    fn submit_read(&mut self, tag: u64, _: HostRegion, address: u64, into: Part) -> Result<(), PostError> {
        self.asked.push_back((tag, address, into, Asked::Read));
        Ok(())
    }
    fn submit_write(&mut self, tag: u64, _: HostRegion, address: u64, from: Part) -> Result<(), PostError> {
        self.asked.push_back((tag, address, from, Asked::Write));
        Ok(())
    }
    fn compares_and_swaps(&self) -> bool {
        self.compares_and_swaps
    }
    fn submit_compare_and_swap(
        &mut self,
        tag: u64,
        _: HostRegion,
        address: u64,
        words: [u64; 2],
        into: Part,
    ) -> Result<(), PostError> {
        self.asked.push_back((tag, address, into, Asked::CompareAndSwap(words)));
        Ok(())
    }
    fn reads_at_once(&self) -> bool {
        self.at_once
    }
    fn read_at_once<'b>(
        &'b mut self,
        read: &HostRead,
        memory: &mut impl Endpoint,
        _: &'b mut [u8],
    ) -> Option<Result<&'b [u8], DmaFault>> {
        let bytes = &self.memory[(read.address - HOST) as usize..][..read.into.length as usize];
        self.at_once
            .then(|| memory.copy_in(read.into.offset, bytes).map_or(Err(DmaFault::Memory), |()| Ok(bytes)))
    }
    fn poll(&mut self, memory: &mut impl Endpoint) -> Option<HostDmaDone> {
        let (tag, address, part, asked) = self.asked.pop_front()?;
        let here = &mut self.memory[(address - HOST) as usize..][..part.length as usize];
        let copied = match asked {
            Asked::Write => memory.copy_out(part.offset, here),
            Asked::Read | Asked::CompareAndSwap(_) => memory.copy_in(part.offset, here),
        };
        copied.expect("inside");
        if let Asked::CompareAndSwap([expected, desired]) = asked
            && *here == expected.to_be_bytes()
        {
            here.copy_from_slice(&desired.to_be_bytes());
        }
        Some(HostDmaDone { tag, end: DmaEnd::Done })
    }
}

struct Scene {
    queues: Queues,
    host: Host,
    dpu: DpuServer<CompiledIn<BuiltInKernels>, SLOTS, TENANTS, RECEIVES>,
    ids: [ConnectionId; TENANTS],
    regions: [RegionHandle; TENANTS],
    scratch: Vec<u8>,
}

impl Scene {
    /// Two tenants who may run `share` invocations each, on a host with 1,000 records of 8 bytes: 0, 1, 2 and so on.
    fn new(share: u16) -> Self {
        let memory: Vec<u8> = (0..1000_u64).flat_map(u64::to_le_bytes).collect();
        let grant = Grant::new(HOST, memory.len() as u64).expect("no wrap");
        let mut dpu = DpuServer::new(Runtime::new(Limits::default(), KernelCost::FREE));
        let mut queues = Queues::new();
        let ids = [0, 1].map(|tenant| {
            let id = dpu.runtime().connect(WINDOW, share).expect("room");
            dpu.serve(&mut queues, tenant, id).expect("receives fit");
            id
        });
        let regions = ids.map(|id| dpu.runtime().grant(id, grant).expect("room"));
        let host = Host { memory, asked: VecDeque::new(), compares_and_swaps: false, at_once: false };
        Self { queues, host, dpu, ids, regions, scratch: vec![0; MAX_READ as usize] }
    }

    fn poll(&mut self) {
        while self.dpu.poll(Time::ZERO, &mut self.queues, &mut self.host, &mut self.scratch) {}
    }

    /// Requests the sum of the first `records` records.
    fn ask(&mut self, tenant: usize, request_id: u64, records: u32) -> bool {
        let parameters = ScanQuery {
            start: 0,
            records,
            stride: 8,
            order: ByteOrder::LittleEndian,
            compared: Field::word(0),
            predicate: Predicate::Always,
            operand: 0,
            column: Field::word(0),
        };
        let opcode = Aggregate::OPCODE;
        self.send(tenant, request_id, opcode, &parameters.encode())
    }

    fn send(&mut self, tenant: usize, request_id: u64, opcode: Opcode, parameters: &[u8]) -> bool {
        let reply = ReplyTo { address: WINDOW.address, rkey: WINDOW.rkey, max_response: 64, slot: 0 };
        let request = Request {
            opcode,
            request_id,
            reply,
            deadline: Duration::ZERO,
            hop_limit: 0,
            region: self.regions[tenant],
            parameters,
            payload: &[],
        };
        let mut buffer = [0; 512];
        let bytes = request.encode_message(&mut buffer).expect("fits");
        self.queues.arrive(tenant, bytes)
    }
}

#[test]
fn a_kernel_can_reply_with_computed_bytes() {
    let mut scene = Scene::new(4);
    assert!(scene.ask(0, 11, 1000));
    scene.poll();
    let [response] = scene.queues.written[0].as_slice() else { panic!("one answer") };
    let (body, trailer) = response.split_at(response.len() - TRAILER_SIZE);
    let totals = Totals { count: 1000, sum: 499_500, least: 0, greatest: 999 };
    assert_eq!(Totals::parse(body), Some(totals));
    let trailer = Trailer::parse(trailer.try_into().expect("32 bytes")).expect("a trailer");
    assert_eq!((trailer.status, trailer.request_id, trailer.length), (Status::Ok, 11, 40));
    assert_eq!(trailer.hops, 2, "4,096 bytes, then the rest");
    assert_eq!(scene.dpu.runtime().running(), 0);
}

#[test]
fn a_kernel_on_a_dpu_writes_and_compares_only_if_its_channel_can() {
    let mut scene = Scene::new(4);
    let grant = Grant::new(HOST, 4096).expect("no wrap").writable();
    scene.regions[0] = scene.dpu.runtime().grant(scene.ids[0], grant).expect("room");
    let words = [0, 0x1234_5678].map(Into::into);
    let parameters =
        PublishParameters { value: 2048.into(), word: 0.into(), expected: words[0], desired: words[1] };
    let mut buffer = [0; 128];
    let parameters = parameters.encode(b"a value", &mut buffer).expect("fits").to_vec();
    for (compares_and_swaps, status) in [(false, Status::NoAtomics), (true, Status::Ok)] {
        scene.host.memory[2048..2056].fill(0);
        scene.host.compares_and_swaps = compares_and_swaps;
        assert!(scene.send(0, 1, Publish::OPCODE, &parameters));
        scene.poll();
        assert_eq!(scene.queues.trailers(0).last().map(|trailer| trailer.status), Some(status));
        assert_eq!(&scene.host.memory[2048..2056], b"a value\0", "written in either case");
        let word = if compares_and_swaps { 0x1234_5678_u64 } else { 0 };
        assert_eq!(scene.host.memory[..8], word.to_be_bytes());
    }
    assert!(scene.send(1, 2, Publish::OPCODE, &parameters), "the other tenant may only read");
    scene.poll();
    assert_eq!(scene.queues.trailers(1).last().map(|trailer| trailer.status), Some(Status::ReadOnly));
}

/// Regression: 64 bad requests of a tenant that posts no receives stopped every other tenant for good.
#[test]
fn a_tenant_that_takes_no_responses_blocks_nobody_else() {
    for refused in [true, false] {
        let mut scene = Scene::new(4);
        scene.queues.ready[0] = false;
        let mut sent = 0;
        for id in 0..64 {
            let opcode = if refused { Opcode(1) } else { Aggregate::OPCODE };
            let all_at_once = if refused { scene.send(0, id, opcode, &[]) } else { scene.ask(0, id, 8) };
            sent += usize::from(all_at_once);
            scene.poll();
        }
        assert_eq!(scene.queues.room[0], 0, "its queue is full");
        assert!(sent < 64, "a tenant that takes no answers is throttled: {sent}");
        for id in 100..200 {
            assert!(scene.ask(1, id, 10), "the other tenant's receives come back");
            scene.poll();
        }
        let trailers = scene.queues.trailers(1);
        let ids: Vec<u64> = trailers.iter().map(|trailer| trailer.request_id).collect();
        assert_eq!(ids, (100..200).collect::<Vec<_>>(), "refused: {refused}");
        assert!(trailers.iter().all(|trailer| trailer.status == Status::Ok));
        assert_eq!(scene.dpu.counters().lost_replies, 0);
    }
}

#[test]
fn a_tenant_whose_queue_moves_again_gets_what_is_due_to_it() {
    let mut scene = Scene::new(4);
    scene.queues.ready[0] = false;
    let sent = (0..64)
        .filter(|id| {
            let sent = scene.ask(0, *id, 8);
            scene.poll();
            sent
        })
        .count();
    scene.queues.ready[0] = true;
    scene.queues.room[0] = 4;
    scene.poll();
    // The four earlier answers are in flight and still hold their slots.
    let answered = scene.queues.trailers(0);
    assert_eq!(answered.len(), sent);
    assert_eq!(scene.dpu.counters().lost_replies, 0);
}

#[test]
fn requests_are_taken_of_all_tenants_in_turn() {
    let mut scene = Scene::new(SLOTS as u16);
    for id in 0..8 {
        assert!(scene.ask(0, id, 10));
    }
    for id in 100..104 {
        assert!(scene.ask(1, id, 10));
    }
    scene.poll();
    let accepted = |tenant| {
        let trailers = scene.queues.trailers(tenant);
        trailers.iter().filter(|trailer| trailer.status == Status::Ok).count()
    };
    assert_eq!(accepted(1), 4, "eight slots, and the other tenant was first with its eight requests");
    assert_eq!(accepted(0), 4);
}

#[test]
fn reads_at_once_lead_to_the_answers_of_polled_ones() {
    let both = [false, true].map(|at_once| {
        let mut scene = Scene::new(4);
        (scene.host.at_once, scene.host.compares_and_swaps) = (at_once, true);
        for (id, records) in [1000, 1, 999, 1001].into_iter().enumerate() {
            assert!([0, 1].into_iter().all(|tenant| scene.ask(tenant, id as u64, records)));
        }
        scene.poll();
        [0, 1].map(|tenant| {
            let answers = scene.queues.written[tenant].iter().zip(scene.queues.trailers(tenant));
            let body = |bytes: &Vec<u8>| bytes[..bytes.len() - TRAILER_SIZE].to_vec();
            let mut answers: Vec<_> = answers
                .map(|(bytes, trailer)| (trailer.request_id, Trailer { credits: 0, ..trailer }, body(bytes)))
                .collect();
            answers.sort_by_key(|(id, ..)| *id);
            answers
        })
    });
    assert!(both[0].iter().all(|answers| answers.len() == 4));
    assert_eq!(both[0], both[1]);
}

/// An element that points to itself is followed until no hop is left.
#[test]
fn long_walks_that_are_read_at_once_do_not_delay_a_short_request() {
    let mut scene = Scene::new(4);
    scene.host.at_once = true;
    scene.host.memory[8..16].copy_from_slice(&8_u64.to_le_bytes());
    let mut rows = [Row::END; ROWS];
    rows[0] = Row::otherwise(Action::Follow).pointer(Field::word(0));
    let walk = TraversalTable {
        start: 8,
        pointer_base: 0,
        element: 8,
        order: ByteOrder::LittleEndian,
        value: Value::Inline(Field::word(0)),
        length: Length::Fixed(8),
        rows,
        keys: [0; KEYS],
        key_count: 1,
    };
    for id in 0..3 {
        assert!(scene.send(0, id, Traversal::OPCODE, &walk.encode()));
    }
    assert!(scene.ask(1, 9, 1));
    assert!(scene.dpu.poll(Time::ZERO, &mut scene.queues, &mut scene.host, &mut scene.scratch));
    assert_eq!((scene.queues.written[0].len(), scene.queues.written[1].len()), (0, 1));
    scene.poll();
    let ends: Vec<_> =
        scene.queues.trailers(0).iter().map(|trailer| (trailer.status, trailer.hops)).collect();
    assert_eq!(ends, [(Status::HopLimit, Limits::default().hops); 3]);
}

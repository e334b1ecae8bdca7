//! What an answer holds and where it lies, and what a deployment is asked and charged for.

use super::*;
use crate::budget::MAX_READ;
use crate::kernel::{Caller, Event, Ranges};
use crate::wire::TRAILER_SIZE;

/// Answers at once if its parameter is empty; otherwise it reads the first bytes twice and gives their version.
struct Versioned {
    again: bool,
}

const VERSION: u64 = 0x0102_0304_0506_0708;

impl Kernel for Versioned {
    const OPCODE: Opcode = Opcode(9);
    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let step = match parameters {
            [] => Step::Emit(Emission { offset: 0, length: 8, version: 0 }),
            _ => Step::Fetch(grant.check(0, 8)?),
        };
        Ok((Self { again: true }, step))
    }
    fn dma_done(&mut self, _: &[u8], grant: &Grant) -> Step {
        match core::mem::take(&mut self.again) {
            true => grant.check(0, 8).map_or(Step::Done(Status::OutOfBounds), |range| Step::Refetch {
                range,
                otherwise: Status::DmaFault,
            }),
            false => Step::Emit(Emission { offset: 0, length: 8, version: VERSION }),
        }
    }
}

fn versioned(world: &mut World<Versioned, 2>, parameters: &[u8]) -> Response {
    let request = Request { opcode: Opcode(9), parameters, ..world.request(1, &[]) };
    assert_eq!(world.send(&request), Admission::Accepted);
    world.run().remove(0)
}

#[test]
fn a_trailer_has_the_version_and_the_retries_of_its_answer() {
    let mut world = World::<Versioned, 2>::new(vec![7; 8]);
    let (reply, body) = versioned(&mut world, &[1]);
    let Trailer { status, hops, retries, version, length, .. } = reply.trailer;
    assert_eq!((status, hops, retries, version, length), (Status::Ok, 2, 1, VERSION, 8));
    assert_eq!(body, [7; 8]);
}

#[test]
fn an_answer_has_no_bytes_that_an_earlier_request_left() {
    let mut world = World::<Versioned, 2>::new(vec![7; 8]);
    assert_eq!(versioned(&mut world, &[1]).0.trailer.status, Status::Ok);
    let (reply, body) = versioned(&mut world, &[]);
    assert_eq!((reply.trailer.status, body.len()), (Status::OutOfBounds, 0));
}

/// Asks for as much as fits at once, and answers as soon as the second part is there with as many computed bytes as its
/// parameter says.
struct Eager {
    length: u32,
    bytes: [u8; 200],
}

impl Kernel for Eager {
    const OPCODE: Opcode = Opcode(10);
    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let length = u32::from(*parameters.first().ok_or(Status::BadParameters)?);
        let ranges = [MAX_READ - 3, 1, 1, 1].map(|length| grant.check(0, length).expect("inside"));
        Ok((Self { length, bytes: [3; 200] }, Step::FetchEach(Ranges::of(&ranges).expect("four"))))
    }
    fn dma_done(&mut self, _: &[u8], _: &Grant) -> Step {
        Step::Done(Status::BadParameters)
    }
    fn resumed(&mut self, _: Event<'_>, _: &Grant) -> Step {
        Step::Reply(Emission { offset: 0, length: self.length, version: 0 })
    }
    fn computed(&self) -> &[u8] {
        &self.bytes
    }
}

/// The world with a request for this many bytes, and its reads.
fn eager(length: u32) -> (World<Eager, 2>, Vec<DmaRequest>) {
    let mut world = World::new(vec![0; MAX_READ as usize]);
    let parameters = [length as u8];
    let request = Request { opcode: Opcode(10), parameters: &parameters, ..world.request(1, &[]) };
    assert_eq!(world.send(&request), Admission::Accepted);
    world.now = world.runtime.poll_timeout().expect("due");
    let reads = std::iter::from_fn(|| world.runtime.poll_dma(world.now)).collect();
    (world, reads)
}

/// A computed answer is sent with its trailer from the staging buffer, beside the reads that nobody awaits any more.
#[test]
fn a_computed_answer_waits_for_room_beside_the_reads_in_flight() {
    let after = |read: &DmaRequest| (read.offset + read.length + TRAILER_SIZE as u32).next_multiple_of(64);
    let room = STAGING - after(&eager(0).1[3]) - TRAILER_SIZE as u32;
    assert!((1..200).contains(&room), "{room}");
    for (length, at_once) in [(room, true), (room + 1, false)] {
        let (mut world, reads) = eager(length);
        world.carry_out(&reads[1]);
        world.now += Duration::from_micros(1);
        let mut reply = world.runtime.poll_reply(world.now);
        assert_eq!(reply.is_some(), at_once, "{length} bytes");
        let mut last = &reads[3];
        if !at_once {
            world.carry_out(last);
            last = &reads[2];
            reply = world.runtime.poll_reply(world.now);
        }
        let body = reply.and_then(|reply| reply.body).expect("there is room now");
        assert_eq!((body.source, body.place, body.length), (Source::Computed, after(last), length));
    }
}

/// Op-code 20 reads the first bytes of its region, 21 needs no region. Each step uses fuel.
#[derive(Default)]
struct Metered {
    callers: Vec<Caller>,
    ended: usize,
}

impl Deployment for Metered {
    /// Fuel used.
    type Invocation = u32;
    fn needs_region(&self, opcode: Opcode) -> bool {
        opcode == Opcode(20)
    }
    fn start(
        &mut self,
        place: &mut Option<u32>,
        opcode: Opcode,
        call: &KernelCall<'_>,
    ) -> Result<Step, Status> {
        self.callers.push(call.caller);
        *place = Some(3);
        match opcode {
            Opcode(20) => Ok(Step::Fetch(call.grant.check(0, 8)?)),
            _ => Ok(Step::Reply(Emission { offset: 1, length: 4, version: 0 })),
        }
    }
    fn dma_done(&self, fuel: &mut u32, _: &[u8], _: &Grant) -> Step {
        *fuel += 5;
        Step::Emit(Emission { offset: 0, length: 8, version: 0 })
    }
    fn payload(&self, _: &mut u32, _: &[u8], _: &Grant) -> Step {
        Step::Done(Status::BadParameters)
    }
    fn resumed(&self, _: &mut u32, _: Event<'_>, _: &Grant) -> Step {
        Step::Done(Status::BadParameters)
    }
    fn computed<'a>(&'a self, _: &'a u32) -> &'a [u8] {
        b"hello"
    }
    fn fuel_used(&self, fuel: &u32) -> u32 {
        *fuel
    }
    fn ended(&mut self, _: &u32) {
        self.ended += 1;
    }
}

type MeteredRuntime = Runtime<Metered, 2, 1>;

/// A runtime whose fuel costs 10 ns, and a request for this op-code.
fn metered(opcode: Opcode) -> (MeteredRuntime, ConnectionId, Request<'static>) {
    let cost = KernelCost { per_fuel: Duration::from_nanos(10), ..COST };
    let mut runtime = MeteredRuntime::new(Limits::default(), cost);
    let connection = runtime.connect(WINDOW, 2).expect("room");
    let region = runtime.grant(connection, Grant::new(BASE, 64).expect("no wrap")).expect("room");
    let reply = ReplyTo { address: WINDOW.address, rkey: WINDOW.rkey, max_response: 16, slot: 0 };
    let (deadline, parameters, payload) = (Duration::ZERO, &[], &[]);
    let request =
        Request { opcode, request_id: 1, reply, deadline, hop_limit: 0, region, parameters, payload };
    (runtime, connection, request)
}

fn admit(runtime: &mut MeteredRuntime, connection: ConnectionId, request: &Request<'_>) -> Admission {
    let mut buffer = [0; 256];
    let bytes = request.encode_message(&mut buffer).expect("fits");
    runtime.handle_message(Time::ZERO, connection, bytes)
}

#[test]
fn only_kernels_that_need_no_region_run_without_one() {
    let nowhere = RegionHandle(0xff);
    let (mut runtime, connection, request) = metered(Opcode(20));
    let refused = admit(&mut runtime, connection, &Request { region: nowhere, ..request });
    assert!(
        matches!(refused, Admission::Refused(Reply { trailer, .. }) if trailer.status == Status::OutOfBounds)
    );
    let (mut runtime, connection, request) = metered(Opcode(21));
    let admission = admit(&mut runtime, connection, &Request { region: nowhere, ..request });
    assert_eq!(admission, Admission::Accepted);
    let reply = runtime.poll_reply(micros(1)).expect("due");
    assert_eq!((reply.trailer.status, runtime.computed(&reply)), (Status::Ok, Some(&b"ello"[..])));
}

#[test]
fn fuel_is_charged_for_the_step_that_used_it() {
    let (mut runtime, connection, request) = metered(Opcode(20));
    assert_eq!(admit(&mut runtime, connection, &request), Admission::Accepted);
    let start = runtime.poll_timeout().expect("due");
    assert_eq!(start, Time::ZERO + Duration::from_nanos(100 + 3 * 10));
    let dma = runtime.poll_dma(start).expect("due");
    runtime.handle_dma_done(start, dma.tag, Ok(&[0; 8]));
    assert_eq!(runtime.poll_timeout(), Some(start + Duration::from_nanos(30 + 5 * 10)));
}

/// Also one that was started with a payload that it does not take.
#[test]
fn a_deployment_learns_who_calls_and_that_each_invocation_has_ended() {
    let (mut runtime, connection, request) = metered(Opcode(21));
    runtime.allow_deployment(connection, true).expect("it is open");
    let refused = admit(&mut runtime, connection, &Request { payload: b"unwanted", ..request });
    assert!(matches!(refused, Admission::Refused(_)));
    assert_eq!((runtime.deployment().ended, runtime.running()), (1, 0));
    assert_eq!(admit(&mut runtime, connection, &request), Admission::Accepted);
    let reply = runtime.poll_reply(micros(1)).expect("due");
    assert_eq!(runtime.deployment().ended, 1, "its answer is in flight");
    runtime.reply_done(reply.ticket.expect("polled"));
    let caller = Caller { connection: 0, may_deploy: true };
    assert_eq!((runtime.deployment().ended, &runtime.deployment().callers[..]), (2, &[caller; 2][..]));
}

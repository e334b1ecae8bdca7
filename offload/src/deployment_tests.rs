//! Programs are deployed, listed, replaced and removed by requests while other requests run.

use crate::budget::Limits;
use crate::cost::KernelCost;
use crate::grant::Grant;
use crate::kernel::{Kernel, Opcode};
use crate::kernels::BuiltInKernels;
use crate::kernels::aggregate::Aggregate;
use crate::program::control::{ControlOutcome, LIST, PUT, REMOVE, SET, encode_put, encode_set, parse_list};
use crate::program::{DeployError, Deployed, Fuel, Instruction, Program, StoreError, WithPrograms};
use crate::runtime::{Admission, ConnectionId, Reply, ResponseWindow, Runtime};
use crate::status::Status;
use crate::wire::{RegionHandle, ReplyTo, Request};
use bareverbs_prm::time::{Duration, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

const PLACES: usize = 3;
const MINE: Opcode = Opcode(0x11);
const OTHER: Opcode = Opcode(0x22);
const MEMORY: [u8; 64] = [0x5a; 64];
const WINDOW: ResponseWindow = ResponseWindow { address: 0x9000, length: 0x1000, rkey: 7 };

/// A program that fetches once and replies with its number, so that the answer tells which version it is.
fn program(number: u16) -> Vec<u8> {
    let code = [
        // r6 = the state; if the event is "start": store the number there and fetch 8 bytes.
        Instruction::new(0x79, 6, 1, 8, 0),
        Instruction::new(0x61, 2, 1, 40, 0),
        Instruction::new(0x55, 2, 0, 4, 0),
        Instruction::new(0x6a, 6, 0, 0, number.into()),
        Instruction::new(0x62, 1, 0, 64, 8),
        Instruction::new(0xb7, 0, 0, 0, 1),
        Instruction::new(0x95, 0, 0, 0, 0),
        // Otherwise: reply with the number.
        Instruction::new(0x62, 1, 0, 64, 2),
        Instruction::new(0xb7, 0, 0, 0, 4),
        Instruction::new(0x95, 0, 0, 0, 0),
    ];
    code.as_bytes().to_vec()
}

fn digest(program: &[u8]) -> [u8; 32] {
    Program::verify(program).expect("verified").digest()
}

type Response = (u64, Status, Vec<u8>);

struct Scene {
    runtime: Runtime<WithPrograms<BuiltInKernels, PLACES>, 8, 2>,
    operator: ConnectionId,
    tenant: ConnectionId,
    region: RegionHandle,
    last_id: u64,
    /// Answers that the test has not taken yet.
    answered: Vec<Response>,
}

impl Scene {
    fn new() -> Self {
        let deployment = WithPrograms::new(Fuel::default());
        let mut runtime = Runtime::with(deployment, Limits::default(), KernelCost::FREE);
        let operator = runtime.connect(WINDOW, 4).expect("room");
        // Two slots are left for the operator, whatever the tenant does.
        let tenant = runtime.connect(WINDOW, 6).expect("room");
        runtime.allow_deployment(operator, true).expect("it is there");
        let grant = Grant::new(0x1000, MEMORY.len() as u64).expect("no wrap");
        let region = runtime.grant(tenant, grant).expect("room");
        Self { runtime, operator, tenant, region, last_id: 0, answered: vec![] }
    }

    /// Sends a request. A refusal counts as an answer.
    fn send(&mut self, from: ConnectionId, opcode: Opcode, parameters: &[u8]) -> Result<u64, Status> {
        self.last_id += 1;
        let reply = ReplyTo { address: WINDOW.address, rkey: WINDOW.rkey, max_response: 256, slot: 0 };
        let request = Request {
            opcode,
            request_id: self.last_id,
            reply,
            deadline: Duration::ZERO,
            hop_limit: 0,
            region: self.region,
            parameters,
            payload: &[],
        };
        let mut buffer = [0; 600];
        let bytes = request.encode_message(&mut buffer).expect("fits");
        match self.runtime.handle_message(Time::ZERO, from, bytes) {
            Admission::Accepted => Ok(self.last_id),
            Admission::Refused(Reply { trailer, .. }) => Err(trailer.status),
            Admission::Dropped(reason) => panic!("{reason:?}"),
        }
    }

    fn read(&mut self) -> bool {
        let Some(dma) = self.runtime.poll_dma(Time::ZERO) else { return false };
        let at = (dma.address - 0x1000) as usize;
        self.runtime.handle_dma_done(Time::ZERO, dma.tag, Ok(&MEMORY[at..at + dma.length as usize]));
        true
    }

    fn collect(&mut self) {
        while let Some(reply) = self.runtime.poll_reply(Time::ZERO) {
            let body = self.runtime.computed(&reply).unwrap_or_default().to_vec();
            self.answered.push((reply.trailer.request_id, reply.trailer.status, body));
            self.runtime.reply_done(reply.ticket.expect("polled"));
        }
    }

    fn responses(&mut self) -> Vec<Response> {
        self.collect();
        std::mem::take(&mut self.answered)
    }

    /// Sends a deployment request and returns its outcome.
    fn control(&mut self, opcode: Opcode, parameters: &[u8]) -> (ControlOutcome, Vec<u8>) {
        let operator = self.operator;
        let id = self.send(operator, opcode, parameters).expect("accepted");
        self.collect();
        let at = self.answered.iter().position(|(request, ..)| *request == id).expect("answered at once");
        let response = self.answered.remove(at);
        assert_eq!(response.1, Status::Ok);
        let (outcome, rest) = ControlOutcome::parse(&response.2).expect("an outcome");
        (outcome, rest.to_vec())
    }

    fn put(&mut self, program: &[u8], offset: usize, length: usize) -> ControlOutcome {
        let mut buffer = [0; 448];
        let parameters = encode_put(program, offset, length, &mut buffer).expect("fits").to_vec();
        self.control(PUT, &parameters).0
    }

    /// Sends a program in pieces and deploys it.
    fn deploy(&mut self, opcode: Opcode, program: &[u8]) -> (ControlOutcome, Vec<u8>) {
        for offset in (0..program.len()).step_by(48) {
            let length = (program.len() - offset).min(48);
            assert_eq!(self.put(program, offset, length), ControlOutcome::Done);
        }
        self.control(SET, &encode_set(opcode, digest(program)))
    }

    fn list(&mut self) -> Vec<Deployed> {
        let mut listed: Vec<Deployed> = vec![];
        loop {
            let from = listed.last().map_or(0, |last| last.version + 1);
            let (_, rest) = self.control(LIST, &from.to_be_bytes());
            let before = listed.len();
            listed.extend(parse_list(&rest));
            if listed.len() == before {
                return listed;
            }
        }
    }

    fn run(&mut self) -> Vec<Response> {
        while self.read() {}
        self.responses()
    }
}

#[test]
fn a_program_is_deployed_listed_called_and_removed() {
    let mut scene = Scene::new();
    let tenant = scene.tenant;
    assert_eq!(scene.send(tenant, MINE, &[]), Err(Status::NoKernel));
    let (outcome, version) = scene.deploy(MINE, &program(300));
    assert_eq!((outcome, version), (ControlOutcome::Done, 1_u64.to_be_bytes().to_vec()));
    let id = scene.send(tenant, MINE, &[]).expect("accepted");
    let listed = scene.list();
    let expected = Deployed {
        opcode: MINE,
        version: 1,
        digest: digest(&program(300)),
        instructions: 10,
        running: 1,
        current: true,
    };
    assert_eq!(listed, [expected]);
    assert_eq!(scene.run(), [(id, Status::Ok, 300_u16.to_le_bytes().to_vec())]);
    assert_eq!(scene.control(REMOVE, &MINE.0.to_be_bytes()).0, ControlOutcome::Done);
    assert_eq!(scene.control(REMOVE, &MINE.0.to_be_bytes()).0, ControlOutcome::Missing);
    assert_eq!(scene.send(tenant, MINE, &[]), Err(Status::NoKernel));
    assert!(scene.list().is_empty());
}

#[test]
fn compiled_in_kernels_stay_where_they_are() {
    let mut scene = Scene::new();
    let tenant = scene.tenant;
    for taken in [Aggregate::OPCODE, PUT, LIST] {
        assert_eq!(scene.deploy(taken, &program(1)).0, ControlOutcome::Taken);
        let verified = Program::verify(&program(1)).expect("verified");
        let refused = scene.runtime.deployment().deploy(taken, verified);
        assert_eq!(refused, Err(StoreError::Taken(taken)));
    }
    assert_eq!(scene.send(tenant, Aggregate::OPCODE, &[]), Err(Status::BadParameters));
}

#[test]
fn deployment_needs_the_right_to_deploy() {
    let mut scene = Scene::new();
    scene.deploy(MINE, &program(1));
    let tenant = scene.tenant;
    for opcode in [PUT, SET, REMOVE, LIST] {
        for parameters in [&MINE.0.to_be_bytes()[..], &[0; 40], &[]] {
            assert_eq!(scene.send(tenant, opcode, parameters), Err(Status::NotAllowed), "{opcode}");
        }
    }
    assert_eq!(scene.list().len(), 1);
    scene.runtime.allow_deployment(tenant, true).expect("it is there");
    assert!(scene.send(tenant, REMOVE, &MINE.0.to_be_bytes()).is_ok());
    scene.runtime.disconnect(tenant);
    let next = scene.runtime.connect(WINDOW, 8).expect("room");
    assert_eq!(
        scene.send(next, LIST, &[0; 8]),
        Err(Status::NotAllowed),
        "the right ended with its connection"
    );
}

#[test]
fn an_incomplete_upload_is_not_deployed() {
    let mut scene = Scene::new();
    let (wanted, other) = (program(1), program(2));
    let set = encode_set(MINE, digest(&wanted));
    assert_eq!(scene.control(SET, &set).0, ControlOutcome::Digest { bytes: 0 });
    assert_eq!(scene.put(&wanted, 0, 40), ControlOutcome::Done);
    assert_eq!(scene.put(&wanted, 48, 32), ControlOutcome::Gap { expected: 40 });
    assert_eq!(scene.control(SET, &set).0, ControlOutcome::Digest { bytes: 40 });
    assert_eq!(scene.put(&wanted, 40, 40), ControlOutcome::Done);
    assert_eq!(scene.control(SET, &encode_set(MINE, digest(&other))).0, ControlOutcome::Digest { bytes: 80 });
    assert_eq!(scene.control(SET, &set).0, ControlOutcome::Done);
    assert_eq!(scene.control(SET, &set).0, ControlOutcome::Digest { bytes: 0 }, "it was taken");
    // A second deployer does not add to what the first has sent.
    assert_eq!(scene.put(&wanted, 0, 40), ControlOutcome::Done);
    let tenant = scene.tenant;
    scene.runtime.allow_deployment(tenant, true).expect("it is there");
    let mut buffer = [0; 448];
    let piece = encode_put(&wanted, 40, 40, &mut buffer).expect("fits").to_vec();
    scene.send(tenant, PUT, &piece).expect("accepted");
    let outcome = ControlOutcome::parse(&scene.responses()[0].2).map(|(outcome, _)| outcome);
    assert_eq!(outcome, Some(ControlOutcome::Gap { expected: 40 }));
}

#[test]
fn the_verifier_names_the_refused_instruction() {
    let mut scene = Scene::new();
    let tenant = scene.tenant;
    let mut bad = program(1);
    bad[16 + 1] = 0x0b;
    assert_eq!(scene.put(&bad, 0, bad.len()), ControlOutcome::Done);
    let error = Program::verify(&bad).expect_err("there is no register r11");
    assert!(matches!(error, DeployError::Illegal { instruction: 2, .. }));
    let (outcome, _) = scene.control(SET, &encode_set(MINE, [0; 32]));
    assert_eq!(outcome, ControlOutcome::Refused(error));
    assert_eq!(scene.send(tenant, MINE, &[]), Err(Status::NoKernel));
}

#[test]
fn a_request_keeps_the_version_with_which_it_began() {
    let mut scene = Scene::new();
    let tenant = scene.tenant;
    scene.deploy(MINE, &program(1));
    let first = scene.send(tenant, MINE, &[]).expect("accepted");
    scene.deploy(MINE, &program(2));
    let second = scene.send(tenant, MINE, &[]).expect("accepted");
    scene.control(REMOVE, &MINE.0.to_be_bytes());
    assert_eq!(scene.send(tenant, MINE, &[]), Err(Status::NoKernel));
    let listed = scene.list();
    assert_eq!(
        listed.iter().map(|version| (version.version, version.current)).collect::<Vec<_>>(),
        [(1, false), (2, false)]
    );
    let responses = scene.run();
    assert_eq!(responses, [(first, Status::Ok, vec![1, 0]), (second, Status::Ok, vec![2, 0])]);
    assert!(scene.list().is_empty(), "both versions' places are free");
}

#[test]
fn a_full_store_replaces_only_idle_programs() {
    let mut scene = Scene::new();
    let tenant = scene.tenant;
    for opcode in [MINE, OTHER, Opcode(0x33)] {
        assert_eq!(scene.deploy(opcode, &program(1)).0, ControlOutcome::Done);
    }
    assert_eq!(scene.deploy(Opcode(0x44), &program(1)).0, ControlOutcome::Full { places: 3 });
    assert_eq!(scene.deploy(MINE, &program(2)).0, ControlOutcome::Done, "nothing runs on it");
    let running = scene.send(tenant, MINE, &[]).expect("accepted");
    assert_eq!(scene.deploy(MINE, &program(3)).0, ControlOutcome::Full { places: 3 });
    let still = scene.send(tenant, MINE, &[]).expect("the version before is in force");
    assert_eq!(scene.run(), [(running, Status::Ok, vec![2, 0]), (still, Status::Ok, vec![2, 0])]);
    assert_eq!(scene.deploy(MINE, &program(3)).0, ControlOutcome::Done);
}

#[test]
fn a_connection_that_leaves_gives_its_versions_back() {
    let mut scene = Scene::new();
    let tenant = scene.tenant;
    scene.deploy(MINE, &program(1));
    scene.send(tenant, MINE, &[]).expect("accepted");
    scene.control(REMOVE, &MINE.0.to_be_bytes());
    assert_eq!(scene.list().len(), 1);
    scene.runtime.disconnect(scene.tenant);
    assert!(scene.list().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Each request is answered once, by the version that was active when it began, and the store never loses
    /// a place.
    #[test]
    fn a_thousand_swaps_under_load_lose_and_repeat_nothing(choices in proptest::collection::vec(0_u8..8, 1000)) {
        let mut scene = Scene::new();
        let tenant = scene.tenant;
        let (mut waiting, mut swaps, mut answered) = (BTreeMap::new(), 0_u16, 0);
        for choice in choices {
            // A swap between any two events. It needs a place, which a version that is still running may
            // occupy.
            let wanted = program(swaps + 1);
            if scene.deploy(MINE, &wanted).0 == ControlOutcome::Done {
                swaps += 1;
            }
            match choice {
                0..4 => {
                    if let Ok(id) = scene.send(tenant, MINE, &[]) {
                        prop_assert!(waiting.insert(id, swaps).is_none());
                    }
                }
                4..7 => {
                    scene.read();
                }
                _ => {
                    for (id, status, body) in scene.responses() {
                        prop_assert_eq!(status, Status::Ok);
                        prop_assert_eq!(Some(body), waiting.remove(&id).map(|number: u16| number.to_le_bytes().to_vec()));
                        answered += 1;
                    }
                }
            }
        }
        for (id, status, body) in scene.run() {
            prop_assert_eq!(status, Status::Ok);
            prop_assert_eq!(Some(body), waiting.remove(&id).map(|number: u16| number.to_le_bytes().to_vec()));
            answered += 1;
        }
        prop_assert!(waiting.is_empty(), "every request was answered");
        prop_assert!(swaps > 100 && answered > 50, "{} swaps, {} answers", swaps, answered);
        prop_assert_eq!(scene.list().len(), 1);
    }

    #[test]
    fn arbitrary_requests_for_deployment_come_to_an_end(
        requests in proptest::collection::vec((0_usize..4, proptest::collection::vec(any::<u8>(), 0..100)), 0..30),
    ) {
        let mut scene = Scene::new();
        let operator = scene.operator;
        for (opcode, parameters) in requests {
            let _refused = scene.send(operator, [PUT, SET, REMOVE, LIST][opcode], &parameters);
            scene.responses();
        }
        prop_assert_eq!(scene.runtime.running(), 0);
    }
}

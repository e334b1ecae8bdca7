//! A deployer over a scripted network, talking to a server that runs programs.

use super::*;
use crate::budget::Limits;
use crate::cost::KernelCost;
use crate::dpu::DpuServer;
use crate::endpoint::{Completion, Remote};
use crate::grant::HostRegion;
use crate::host_dma::{HostDma, HostDmaDone};
use crate::kernel::Kernel;
use crate::kernels::BuiltInKernels;
use crate::kernels::aggregate::Aggregate;
use crate::loopback_tests::{Fake, RECEIVES, SLOTS, WINDOW, fabric};
use crate::program::{DeployError, Fuel, Illegal, Program, WithPrograms};
use crate::runtime::{ConnectionId, ResponseWindow, Runtime};
use std::cell::RefCell;
use std::rc::Rc;

const MINE: Opcode = Opcode(0x11);
const PLACES: usize = 5;
const TIMEOUT: Duration = Duration::from_millis(5);

/// Nothing is read.
struct NoDma;

impl HostDma for NoDma {
    fn has_room(&self) -> bool {
        false
    }
    fn submit_read(&mut self, _: u64, _: HostRegion, _: u64, _: Part) -> Result<(), PostError> {
        Err(PostError::Full)
    }
    fn submit_write(&mut self, _: u64, _: HostRegion, _: u64, _: Part) -> Result<(), PostError> {
        Err(PostError::Full)
    }
    fn poll(&mut self, _: &mut impl Endpoint) -> Option<HostDmaDone> {
        None
    }
}

struct Scene {
    deployer: Deployer,
    near: Fake,
    far: Fake,
    server: DpuServer<WithPrograms<BuiltInKernels, PLACES>, SLOTS, 2, RECEIVES>,
    operator: ConnectionId,
    other: ConnectionId,
    now: Time,
}

impl Scene {
    fn new() -> Self {
        let (near, mut far) = fabric(&Rc::new(RefCell::new(vec![])));
        // Only the runtime knows the second connection.
        far.own.borrow_mut().memory.resize(crate::dpu::memory_size(2 * RECEIVES, SLOTS), 0);
        let window = ResponseWindow { address: WINDOW, length: 0x1000, rkey: 1 };
        let mut runtime =
            Runtime::with(WithPrograms::new(Fuel::default()), Limits::default(), KernelCost::FREE);
        let [operator, other] = [(); 2].map(|()| runtime.connect(window, 2).expect("room"));
        for id in [operator, other] {
            runtime.allow_deployment(id, true).expect("it is there");
        }
        let mut server = DpuServer::new(runtime);
        server.serve(&mut far, 0, operator).expect("receives fit");
        let config = DeployerConfig { address: WINDOW, rkey: 1, credits: RECEIVES as u32, timeout: TIMEOUT };
        Self { deployer: Deployer::new(config), near, far, server, operator, other, now: Time::ZERO }
    }

    fn serve(&mut self) {
        while self.server.poll(self.now, &mut self.far, &mut NoDma, &mut []) {}
    }

    fn poll(&mut self) -> Option<DeployerEvent> {
        self.deployer.poll(self.now, &mut self.near)
    }

    #[track_caller]
    fn finish(&mut self) -> DeployerEvent {
        for _ in 0..1_000 {
            self.serve();
            if let Some(event) = self.poll() {
                return event;
            }
        }
        panic!("no end");
    }

    #[track_caller]
    fn deploy(&mut self, opcode: Opcode, program: &[u8]) -> DeployerEvent {
        self.deployer.deploy(self.now, &mut self.near, opcode, program).expect("begins");
        self.finish()
    }

    #[track_caller]
    fn list(&mut self) -> Vec<Deployed> {
        self.deployer.list(self.now, &mut self.near).expect("begins");
        let mut listed = vec![];
        loop {
            match self.finish() {
                DeployerEvent::Listed(deployed) => listed.push(deployed),
                DeployerEvent::ListEnd => return listed,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Another deployer begins to send a program.
    fn interfere(&mut self) {
        let mut parameters = [0; 64];
        let parameters = encode_put(&[0; 80], 0, 40, &mut parameters).expect("fits");
        let reply = crate::wire::ReplyTo { address: WINDOW, rkey: 1, max_response: 128, slot: 0 };
        let request = Request {
            opcode: control::PUT,
            request_id: 1 << 40,
            reply,
            deadline: Duration::ZERO,
            hop_limit: 0,
            region: RegionHandle::default(),
            parameters,
            payload: &[],
        };
        let mut message = [0; MAX_SEND];
        let bytes = request.encode_message(&mut message).expect("fits");
        let other = self.other;
        let _accepted = self.server.runtime().handle_message(self.now, other, bytes);
    }
}

/// This many `exit` instructions: each length is another program.
fn program(instructions: usize) -> Vec<u8> {
    [0x95, 0, 0, 0, 0, 0, 0, 0].repeat(instructions)
}

#[test]
fn programs_of_all_lengths_are_deployed_listed_and_removed() {
    let mut scene = Scene::new();
    for (version, length) in (1..).zip([1, 55, 56, 111, 512]) {
        let event = scene.deploy(Opcode(length as u64), &program(length));
        assert_eq!(event, DeployerEvent::Deployed { version });
    }
    let listed = scene.list();
    let digest = |length| Program::verify(&program(length)).expect("verified").digest();
    let expected = [1, 55, 56, 111, 512].map(|length| (length as u64, length, digest(length), true));
    let found = listed.iter().map(|one| (one.opcode.0, one.instructions, one.digest, one.current));
    assert!(found.eq(expected), "{listed:?}");
    assert_eq!(
        scene.deploy(MINE, &program(2)),
        DeployerEvent::Failed(DeployFailure::Refused(ControlOutcome::Full { places: 5 }))
    );
    assert_eq!(scene.deploy(Opcode(55), &program(2)), DeployerEvent::Deployed { version: 6 });
    for (opcode, event) in [
        (55, DeployerEvent::Removed { version: 6 }),
        (55, DeployerEvent::Failed(DeployFailure::Refused(ControlOutcome::Missing))),
    ] {
        scene.deployer.remove(scene.now, &mut scene.near, Opcode(opcode)).expect("begins");
        assert_eq!(scene.finish(), event);
    }
    assert_eq!(scene.list().len(), 4);
}

#[test]
fn verifier_messages_arrive_unchanged() {
    let mut scene = Scene::new();
    let mut bad = program(40);
    bad[33 * 8] = 0xff;
    let expected = Program::verify(&bad).expect_err("there is no such op-code");
    assert_eq!(expected, DeployError::Illegal { instruction: 33, reason: Illegal::Opcode(0xff) });
    let refused = DeployFailure::Refused(ControlOutcome::Refused(expected));
    assert_eq!(scene.deploy(MINE, &bad), DeployerEvent::Failed(refused));
    assert_eq!(
        refused.to_string(),
        "the verifier refuses the program: instruction 33: there is no op-code 0xff"
    );
    assert!(scene.list().is_empty());
    let taken = DeployFailure::Refused(ControlOutcome::Taken);
    assert_eq!(scene.deploy(Aggregate::OPCODE, &program(1)), DeployerEvent::Failed(taken));
    for length in [0, MAX_BYTES + 1] {
        let refused = scene.deployer.deploy(scene.now, &mut scene.near, MINE, &vec![0; length]);
        assert_eq!(refused, Err(DeployFailure::Length { bytes: length }));
    }
}

#[test]
fn a_client_without_the_right_cannot_deploy() {
    let mut scene = Scene::new();
    let operator = scene.operator;
    scene.server.runtime().allow_deployment(operator, false).expect("it is there");
    let refused = DeployerEvent::Failed(DeployFailure::Status(Status::NotAllowed));
    assert_eq!(scene.deploy(MINE, &program(3)), refused);
    scene.deployer.list(scene.now, &mut scene.near).expect("begins");
    assert_eq!(scene.finish(), refused);
    scene.server.runtime().allow_deployment(operator, true).expect("it is there");
    assert_eq!(scene.deploy(MINE, &program(3)), DeployerEvent::Deployed { version: 1 });
}

#[test]
fn a_deployer_that_another_one_disturbs_begins_again_and_gives_up_in_the_end() {
    for (disturbances, done) in [(10, true), (u32::MAX, false)] {
        let mut scene = Scene::new();
        scene.deployer.deploy(scene.now, &mut scene.near, MINE, &program(500)).expect("begins");
        let mut left = disturbances;
        let event = loop {
            scene.serve();
            if let Some(event) = scene.poll() {
                break event;
            }
            if left > 0 {
                left -= 1;
                scene.interfere();
            }
        };
        let gap = ControlOutcome::Gap { expected: 40 };
        let given_up = DeployerEvent::Failed(DeployFailure::Refused(gap));
        assert_eq!(event, if done { DeployerEvent::Deployed { version: 1 } } else { given_up });
    }
}

#[test]
fn a_deployer_runs_one_request_at_a_time_each_with_a_deadline() {
    let mut scene = Scene::new();
    scene.deployer.deploy(scene.now, &mut scene.near, MINE, &program(3)).expect("begins");
    let under_way = Err(DeployFailure::UnderWay);
    assert_eq!(scene.deployer.deploy(scene.now, &mut scene.near, MINE, &program(3)), under_way);
    assert_eq!(scene.deployer.remove(scene.now, &mut scene.near, MINE), under_way);
    assert_eq!(scene.deployer.list(scene.now, &mut scene.near), under_way);
    assert_eq!(scene.poll(), None);
    assert_eq!(scene.deployer.poll_timeout(), Some(scene.now + TIMEOUT));
    scene.now += TIMEOUT;
    assert_eq!(scene.poll(), Some(DeployerEvent::Failed(DeployFailure::TimedOut)));
    let early = scene.deployer.list(scene.now, &mut scene.near);
    assert!(matches!(early, Err(DeployFailure::NoSlot(NoSlot::AllLent { .. }))), "{early:?}");
    // The answer that was given up arrives, and nobody takes it.
    scene.serve();
    assert_eq!(scene.poll(), None);
    assert_eq!(scene.deploy(MINE, &program(3)), DeployerEvent::Deployed { version: 1 });
    scene.deployer.list(scene.now, &mut scene.near).expect("begins");
    let failed = Completion { connection: 0, id: 1, outcome: Outcome::Failed };
    scene.near.own.borrow_mut().completions.push_back(failed);
    assert_eq!(scene.poll(), Some(DeployerEvent::Failed(DeployFailure::Disconnected)));
    assert_eq!(scene.deployer.list(scene.now, &mut scene.near), Err(DeployFailure::Disconnected));
}

#[test]
fn malformed_responses_end_the_request() {
    let listed = [0; 64];
    let refused_without_value = [3, 0, 0, 0, 0, 0, 0, 1];
    let gap = [1, 0, 0, 0, 0, 0, 0, 7];
    // Version 0 after version 0; answers that are too short; an answer to another request.
    let unintelligible = DeployFailure::Unintelligible;
    let not_asked = DeployFailure::Refused(ControlOutcome::Gap { expected: 7 });
    let cases = [
        (true, &listed[..], unintelligible),
        (false, &refused_without_value, unintelligible),
        (false, &[0; 7], unintelligible),
        (false, &gap, not_asked),
    ];
    for (second, response, failure) in cases {
        let mut scene = Scene::new();
        scene.deployer.list(scene.now, &mut scene.near).expect("begins");
        if second {
            answer_with(&mut scene, 1, &listed);
            assert!(matches!(scene.poll(), Some(DeployerEvent::Listed(Deployed { version: 0, .. }))));
        }
        answer_with(&mut scene, 1 + u64::from(second), response);
        assert_eq!(scene.poll(), Some(DeployerEvent::Failed(failure)), "{response:02x?}");
    }
}

/// Writes a forged answer.
fn answer_with(scene: &mut Scene, request_id: u64, response: &[u8]) {
    let trailer = Trailer {
        status: Status::Ok,
        hops: 0,
        length: response.len() as u32,
        retries: 0,
        credits: 1,
        server_nanos: 0,
        version: 0,
        request_id,
    };
    let bytes = [response, &trailer.encode()].concat();
    let address = WINDOW + (DeployerConfig::MEMORY - bytes.len()) as u64;
    let work = Work::WriteBytesImmediate { bytes: &bytes, to: Remote { address, rkey: 1 }, immediate: 1 };
    scene.far.post(0, 9, work).expect("posted");
    scene.far.poll();
}

//! An echoing device between two ends of a socket pair.

use super::{FrameIo, RealTime, UnixDatagramIo};
use bareverbs_prm::doorbell::{init_segment, uar};
use bareverbs_prm::ids::{MacAddress, Qpn};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::net::fault::{Action, FaultId, Faults, RandomFaults, ScriptedFault, Trigger};
use bareverbs_sim::nic::{DmaFault, HostMemory, Nic, NicConfig};
use bareverbs_sim::run::Seed;
use bareverbs_sim::run::device::{Device, Transmit, TransmitClass};
use bareverbs_sim::wire::FrameBuffer;
use std::collections::VecDeque;
use std::path::PathBuf;

struct NoMemory;

impl HostMemory for NoMemory {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, length: buffer.len(), write: false })
    }
    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, length: bytes.len(), write: true })
    }
}

/// Returns every frame with its bytes reversed, and sends one frame when its timer expires.
#[derive(Default)]
struct Echo {
    frames: VecDeque<Vec<u8>>,
    timer: Option<Time>,
    up: bool,
    /// Number of calls that yield before there is nothing to do.
    yields: u32,
    yielded: bool,
    /// Frames waiting at each register write.
    waited: Vec<usize>,
    /// Cost of each received frame, and the total.
    cost: u64,
    work_done: u64,
}

impl Device for Echo {
    fn handle_mmio_read(&mut self, _: Time, offset: u64) -> u32 {
        offset as u32 + u32::from(self.up)
    }
    fn handle_mmio_write<M: HostMemory>(&mut self, now: Time, _: &mut M, _: u64, _: &[u8]) {
        self.timer = Some(now + Duration::from_millis(2));
        self.waited.push(self.frames.len());
    }
    fn handle_frame<M: HostMemory>(&mut self, _: Time, _: &mut M, frame: &[u8]) {
        self.frames.push_back(frame.iter().rev().copied().collect());
        self.work_done += self.cost;
    }
    fn handle_timeout<M: HostMemory>(&mut self, now: Time, _: &mut M) {
        if self.timer.take_if(|due| *due <= now).is_some() {
            self.frames.push_back(b"timer".to_vec());
        }
    }
    fn poll_transmit<M: HostMemory>(
        &mut self,
        _: Time,
        _: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        self.yielded = self.frames.is_empty() && self.yields > 0;
        self.yields -= u32::from(self.yielded);
        frame.replace(&self.frames.pop_front()?);
        Some(Transmit { class: TransmitClass::Request, qpn: Qpn::from_low_bits(0), icrc: 0 })
    }
    fn has_transmit(&self) -> bool {
        !self.frames.is_empty() || self.yields > 0
    }
    fn has_yielded(&self) -> bool {
        self.yielded
    }
    fn work_done(&self) -> u64 {
        self.work_done
    }
    fn poll_interrupt(&mut self) -> Option<u16> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.timer
    }
    fn set_link_up<M: HostMemory>(&mut self, _: Time, _: &mut M, up: bool) {
        self.up = up;
    }
    fn bar_length(&self) -> u64 {
        4096
    }
}

fn path(test: &str, end: &str) -> PathBuf {
    std::env::temp_dir().join(format!("bareverbs-{}-{test}.{end}", std::process::id()))
}

fn wire(test: &str) -> (RealTime<NoMemory, Echo, UnixDatagramIo>, UnixDatagramIo) {
    let (near, far) = (path(test, "near"), path(test, "far"));
    let io = UnixDatagramIo::bind(&near, &far).expect("near end");
    let far = UnixDatagramIo::bind(&far, &near).expect("far end");
    (RealTime::new(Echo::default(), NoMemory, io), far)
}

/// Steps until `count` frames have come back, for at most a second.
fn collect<M: HostMemory, D: Device>(
    runner: &mut RealTime<M, D, UnixDatagramIo>,
    far: &mut UnixDatagramIo,
    count: usize,
) -> Vec<Vec<u8>> {
    let (mut frames, mut frame) = (Vec::new(), Vec::new());
    let deadline = runner.now() + Duration::from_secs(1);
    while frames.len() < count && runner.now() < deadline {
        if !runner.step().expect("step") {
            runner.rest(deadline).expect("rest");
        }
        while far.receive(&mut frame).expect("receive") {
            frames.push(frame.clone());
        }
    }
    frames
}

#[test]
fn frames_reach_the_device_and_come_back() {
    let (mut runner, mut far) = wire("echo");
    for number in 0..5u8 {
        assert!(far.send(&[number, 1, 2]).expect("send"));
    }
    let frames = collect(&mut runner, &mut far, 5);
    assert_eq!(frames, (0..5u8).map(|number| vec![2, 1, number]).collect::<Vec<_>>());
    assert_eq!((runner.counters().received, runner.counters().sent), (5, 5));
    assert_eq!(runner.mmio_read(0x40), 0x41, "the link is up");
}

/// What the far end of a cable hears of this one.
#[derive(Default)]
struct Told(Vec<bool>);

impl FrameIo for Told {
    fn send(&mut self, _: &[u8]) -> std::io::Result<bool> {
        Ok(true)
    }
    fn receive(&mut self, _: &mut Vec<u8>) -> std::io::Result<bool> {
        Ok(false)
    }
    fn wait(&mut self, _: std::time::Duration) -> std::io::Result<()> {
        Ok(())
    }
    fn set_link_up(&mut self, up: bool) {
        self.0.push(up);
    }
}

#[test]
fn the_far_end_hears_of_every_change_of_the_link() {
    const NOTHING: [bool; 0] = [];
    let nic = Nic::new(NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1])));
    let mut runner = RealTime::new(nic, NoMemory, Told::default());
    let mut told = |change: fn(&mut RealTime<NoMemory, Nic, Told>)| {
        change(&mut runner);
        runner.step().expect("no wire fails");
        core::mem::take(&mut runner.io_mut().0)
    };
    assert_eq!(told(|_| ()), NOTHING, "it is up from the beginning");
    assert_eq!(told(|runner| runner.device_mut().reset(Time::ZERO)), [true], "it trains anew");
    assert_eq!(told(|runner| runner.set_link_up(false)), [false]);
    assert_eq!(told(|runner| runner.device_mut().reset(Time::ZERO)), NOTHING, "it was down already");
    assert_eq!(told(|runner| runner.set_link_up(true)), [true]);
    let flap = |runner: &mut RealTime<NoMemory, Nic, Told>| {
        runner.set_link_up(false);
        runner.set_link_up(true);
    };
    assert_eq!(told(flap), [false, true]);
    assert_eq!(told(|_| ()), NOTHING);
}

#[test]
fn a_timer_ends_without_a_frame() {
    let (mut runner, mut far) = wire("timer");
    runner.mmio_write(0, &[0; 4]);
    assert!(!runner.step().expect("step"), "not yet");
    assert_eq!(collect(&mut runner, &mut far, 1), [b"timer".to_vec()]);
}

/// A client that is faster than the device's thread delivers a doorbell and a command at once. rdma-core's
/// `test_resize_cq` posts six sends and then shrinks their completion queue below six entries, which must be refused.
#[test]
fn a_command_runs_after_earlier_doorbells() {
    let (mut runner, _far) = wire("command");
    let device = runner.device_mut();
    device.frames.extend((0..6).map(|number| vec![number]));
    device.yields = 1000;
    runner.mmio_write(uar::SEND as u64, &[0; 8]);
    runner.mmio_write(init_segment::COMMAND_DOORBELL as u64, &[0; 4]);
    assert_eq!(runner.device().waited, [6, 0]);
    assert_eq!(runner.device().yields, 999, "one turn, however much is left");
}

#[test]
fn a_device_that_yields_is_asked_once_a_step() {
    let (mut runner, _far) = wire("yields");
    runner.device_mut().yields = 3;
    for left in [2, 1, 0] {
        assert!(runner.step().expect("step"), "there is more to do, so nobody rests");
        assert_eq!(runner.device().yields, left);
    }
    assert!(!runner.step().expect("step"));
}

/// A peer's frames can be expensive for a device. Between any two of them its host is served, and none is lost.
#[test]
fn frames_that_cost_a_turn_are_taken_one_a_step() {
    let (mut runner, mut far) = wire("costly");
    runner.device_mut().cost = super::TURN;
    for number in 0..5u8 {
        assert!(far.send(&[number]).expect("send"));
    }
    for taken in 1..=5 {
        assert!(runner.step().expect("step"), "there is more to do, so nobody rests");
        assert_eq!(runner.device().work_done, taken * super::TURN);
        assert!(runner.is_spent());
    }
    assert_eq!(collect(&mut runner, &mut far, 5), (0..5u8).map(|number| vec![number]).collect::<Vec<_>>());
    assert_eq!(runner.counters().received, 5);
    assert!(!runner.is_spent());
}

#[test]
fn frames_for_a_slow_peer_are_not_lost() {
    let (mut runner, mut far) = wire("full");
    let count = 200usize;
    let mut sent = 0;
    let mut frames = Vec::new();
    while sent < count {
        if far.send(&[sent as u8, 7]).expect("send") {
            sent += 1;
        } else {
            runner.step().expect("step");
        }
    }
    frames.extend(collect(&mut runner, &mut far, count));
    assert_eq!(frames.len(), count);
    assert!(frames.iter().enumerate().all(|(number, frame)| frame[1] == number as u8), "in order");
    assert!(runner.counters().blocked > 0, "the other side was full now and then");
}

#[test]
fn faults_hit_both_directions() {
    let (mut runner, mut far) = wire("faults");
    let faults = |name| Faults::new(Seed(7).stream(name));
    let mut inbound = faults("inbound");
    inbound.arm(FaultId(0), ScriptedFault { when: Trigger::Frame(1), action: Action::Drop });
    inbound.arm(FaultId(1), ScriptedFault { when: Trigger::Frame(2), action: Action::HoldBehind(1) });
    let mut outbound = faults("outbound");
    outbound.arm(FaultId(2), ScriptedFault { when: Trigger::Frame(1), action: Action::Duplicate });
    runner.set_faults(Some(inbound), Some(outbound));
    for number in 1..=3u8 {
        assert!(far.send(&[number]).expect("send"));
    }
    assert_eq!(collect(&mut runner, &mut far, 3), [vec![3], vec![3], vec![2]]);
    assert_eq!(runner.counters().faults, 3);
}

#[test]
fn a_held_frame_does_not_wait_for_ever() {
    let (mut runner, mut far) = wire("held");
    let mut inbound = Faults::new(Seed(7).stream("inbound"));
    inbound.arm(FaultId(0), ScriptedFault { when: Trigger::Frame(1), action: Action::HoldBehind(100) });
    runner.set_faults(Some(inbound), None);
    assert!(far.send(&[9]).expect("send"));
    assert_eq!(collect(&mut runner, &mut far, 1), [vec![9]]);
}

#[test]
fn chance_loses_some_and_delays_some() {
    let (mut runner, mut far) = wire("chance");
    let mut inbound = Faults::new(Seed(11).stream("inbound"));
    inbound.set_random(RandomFaults::loss(0.5));
    runner.set_faults(Some(inbound), None);
    let mut frames = Vec::new();
    for number in 0..100u8 {
        assert!(far.send(&[number]).expect("send"));
        runner.step().expect("step");
        runner.step().expect("step");
        let mut frame = Vec::new();
        while far.receive(&mut frame).expect("receive") {
            frames.push(frame[0]);
        }
    }
    assert!((30..70).contains(&frames.len()), "{} of 100 arrived", frames.len());
    assert!(frames.is_sorted());
}

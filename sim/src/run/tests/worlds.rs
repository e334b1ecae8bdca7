use super::player::{Bytes, Player};
use crate::net::{Action, Fate, LinkConfig, RandomFaults, ScriptedFault, SwitchConfig, Trigger};
use crate::run::{Latency, NodeId, StallReason, Step, SwitchId, TopologyError, World};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::rc::Rc;

type TestWorld = World<Bytes, Player>;

const FOREVER: Time = Time::MAX;

fn node(world: &mut TestWorld, name: &str, mac: u8) -> NodeId {
    world.add_node(name, Player::new(mac), Bytes(vec![0; 64]), Latency::default())
}

fn pair(seed: u64) -> (TestWorld, NodeId, NodeId) {
    let mut world = World::new(seed);
    let (a, b) = (node(&mut world, "a", 1), node(&mut world, "b", 2));
    world.connect(a, b, LinkConfig::gigabits(100)).unwrap();
    (world, a, b)
}

fn send(world: &mut TestWorld, from: NodeId, to: u8, frames: usize) {
    (0..frames).for_each(|_| world.mmio_write(from, 100, &[0, 0, 0, to]));
}

/// Numbers of the frames that `node` received, in order.
fn received(world: &TestWorld, node: NodeId) -> Vec<u32> {
    let number = |bytes: &[u8]| u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    world.device(node).received.iter().map(|(_, bytes)| number(bytes)).collect()
}

#[test]
fn frames_arrive_at_the_rate_of_the_link() {
    let (mut world, a, b) = pair(1);
    send(&mut world, a, 2, 3);
    world.run_until_idle(FOREVER);
    let times: Vec<_> = world.device(b).received.iter().map(|(time, _)| time.as_picos()).collect();
    assert_eq!(times, [124 * 80 + 10_000, 2 * 124 * 80 + 10_000, 3 * 124 * 80 + 10_000]);
    assert_eq!(world.take_interrupts(b, 3), 3);
    assert_eq!(world.take_interrupts(b, 3), 0);
    assert_eq!(world.memory(b).0[..4], [0, 0, 0, 2]);
    let counters = world.link_counters(a, b).unwrap();
    assert_eq!((counters.frames, counters.bytes, counters.lost), (3, 300, 0));
}

#[test]
fn a_device_is_not_asked_for_more_than_the_pipeline_holds() {
    let (mut world, a, b) = pair(1);
    send(&mut world, a, 2, 1_000);
    let report = world.stalled(StallReason::Deadline);
    assert_eq!(report.frames, 2_000_000 / (124 * 80) + 1, "2 µs of wire time");
    assert!(report.nodes[0].has_transmit);
    world.run_until_idle(FOREVER);
    assert_eq!(received(&world, b), (0..1_000).collect::<Vec<_>>());
    assert_eq!(world.now().as_picos(), 1_000 * 124 * 80 + 10_000, "the wire was idle in between");
}

#[test]
fn the_same_seed_gives_the_same_digest() {
    let run = |seed| {
        let (mut world, a, b) = pair(seed);
        world.set_random_faults_everywhere(RandomFaults::loss(0.1));
        send(&mut world, a, 2, 200);
        send(&mut world, b, 1, 200);
        world.run_until_idle(FOREVER);
        (world.digest(), received(&world, b))
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).1, run(6).1);
    assert_ne!(run(5).0, run(6).0);
}

/// The ICRC leaves out fields that switches may change, so the digest must cover them.
#[test]
fn the_digest_covers_fields_that_the_icrc_masks() {
    // RoCEv2 over IPv4: ECN, TTL, FECN and BECN.
    let masked = [15 * 8 + 6, 15 * 8 + 7, 22 * 8 + 7, 46 * 8, 46 * 8 + 1];
    let digests = masked.map(|bit| after_fault(Action::FlipBit(bit), 3).1.digest());
    let different: BTreeSet<_> = digests.into_iter().collect();
    assert_eq!(different.len(), masked.len(), "{digests:x?}");
}

fn after_fault(action: Action, frames: usize) -> (Vec<u32>, TestWorld) {
    let (mut world, a, b) = pair(3);
    world.script_fault(a, b, ScriptedFault { when: Trigger::Frame(2), action }).unwrap();
    send(&mut world, a, 2, frames);
    world.run_until_idle(FOREVER);
    assert_eq!(world.check_faults_fired(), Ok(()));
    assert_eq!(world.stalled(StallReason::Idle).frames, 0, "a frame leaked");
    (received(&world, b), world)
}

#[test]
fn each_fault_does_what_it_says() {
    assert_eq!(after_fault(Action::Drop, 4).0, [0, 2, 3]);
    assert_eq!(after_fault(Action::Duplicate, 4).0, [0, 1, 1, 2, 3]);
    assert_eq!(after_fault(Action::Delay(Duration::from_nanos(15)), 4).0, [0, 2, 1, 3]);
    assert_eq!(after_fault(Action::HoldBehind(2), 5).0, [0, 2, 3, 1, 4]);
}

#[test]
fn a_held_frame_comes_even_if_no_other_follows() {
    let (numbers, world) = after_fault(Action::HoldBehind(5), 2);
    assert_eq!(numbers, [0, 1]);
    assert!(world.now() >= Time::ZERO + crate::net::fault::HOLD_LIMIT);
}

#[test]
fn a_flipped_bit_arrives_flipped() {
    let (_, world) = after_fault(Action::FlipBit(99 * 8 + 7), 3);
    let last_bytes: Vec<_> = world.device(NodeId(1)).received.iter().map(|(_, bytes)| bytes[99]).collect();
    assert_eq!(last_bytes, [0, 1, 0]);
}

#[test]
fn a_fault_that_never_fired_is_reported() {
    let (mut world, a, b) = pair(3);
    let fault = ScriptedFault { when: Trigger::Frame(9), action: Action::Drop };
    world.script_fault(a, b, fault).unwrap();
    send(&mut world, a, 2, 2);
    world.run_until_idle(FOREVER);
    let unfired = world.check_faults_fired().unwrap_err();
    assert_eq!(unfired.len(), 1);
    assert_eq!(unfired[0].to_string(), "fault #0 on a>b never fired: Drop at Frame(9) (2 frames passed)");
}

#[test]
fn waiting_in_an_idle_world_is_a_report() {
    let (mut world, a, _) = pair(42);
    send(&mut world, a, 2, 1);
    let stalled = world.run_while(|_| true, FOREVER).unwrap_err();
    assert_eq!(stalled.reason, StallReason::Idle);
    let text = stalled.to_string();
    assert!(
        text.contains("deadlock") && text.contains("seed 42") && text.contains("node a: has nothing to send")
    );
    assert_eq!(world.step(), Step::Idle);
}

#[test]
fn a_wait_beyond_its_deadline_is_reported_and_the_world_continues() {
    let (mut world, a, b) = pair(1);
    send(&mut world, a, 2, 2);
    let soon = Time::from_picos(20_000);
    let stalled = world.run_while(|_| true, soon).unwrap_err();
    assert_eq!((stalled.reason, stalled.events), (StallReason::Deadline, 1));
    assert_eq!(world.run_while(|world| received(world, b).len() < 2, FOREVER), Ok(()));
}

#[test]
fn a_device_cannot_stop_time() {
    let (mut world, a, _) = pair(1);
    let due = Time::from_picos(500);
    world.with_device(a, |device, _, _| device.stuck_timer = Some(due));
    world.run_until(Time::from_picos(10_000));
    assert_eq!(world.device(a).timeouts.len(), 10);
    assert_eq!(world.device(a).timeouts[0], due);
}

#[test]
fn a_cancelled_timer_does_not_move_time() {
    let (mut world, a, _) = pair(1);
    let armed = Time::from_picos(5_000);
    world.with_device(a, |device, _, _| device.stuck_timer = Some(armed));
    assert_eq!(world.next_event(), Some(armed));
    world.with_device(a, |device, _, _| device.stuck_timer = None);
    assert_eq!((world.step(), world.now()), (Step::Idle, Time::ZERO));
    world.with_device(a, |device, _, _| device.stuck_timer = Some(armed));
    world.with_device(a, |device, _, _| device.stuck_timer = Some(Time::from_picos(9_000)));
    assert_eq!(world.next_event(), Some(Time::from_picos(9_000)));
}

#[test]
fn a_wake_up_is_an_event() {
    let (mut world, ..) = pair(1);
    world.wake_at(Time::from_picos(7));
    assert_eq!((world.step(), world.now()), (Step::Progress, Time::from_picos(7)));
}

#[test]
fn a_pulled_cable_loses_frames_and_tells_the_devices() {
    let (mut world, a, b) = pair(1);
    let link = crate::run::LinkId(0);
    assert!(world.device(a).link_up && world.device(b).link_up);
    world.set_link_up(link, false).unwrap();
    send(&mut world, a, 2, 2);
    world.run_until_idle(FOREVER);
    assert!(!world.device(b).link_up);
    world.set_link_up(link, true).unwrap();
    send(&mut world, a, 2, 1);
    world.run_until_idle(FOREVER);
    assert_eq!(received(&world, b), [2]);
    assert_eq!(world.link_counters(a, b).unwrap().lost, 2);
}

fn star(config: SwitchConfig, gigabits: [u64; 3]) -> (TestWorld, [NodeId; 3], crate::run::SwitchId) {
    let mut world = World::new(1);
    let nodes = [("a", 1), ("b", 2), ("c", 3)].map(|(name, mac)| node(&mut world, name, mac));
    let switch = world.add_switch("switch", config);
    for (node, rate) in nodes.into_iter().zip(gigabits) {
        world.connect(node, switch, LinkConfig::gigabits(rate)).unwrap();
    }
    (world, nodes, switch)
}

#[test]
fn a_switch_stores_and_forwards() {
    let (mut world, [a, b, c], switch) = star(SwitchConfig::default(), [100; 3]);
    send(&mut world, a, 2, 1);
    world.run_until_idle(FOREVER);
    assert_eq!(world.device(c).received.len(), 1, "an unknown address is flooded");
    let way = Duration::from_picos(2 * (124 * 80 + 10_000)) + SwitchConfig::default().latency;
    assert_eq!(world.device(b).received[0].0, Time::ZERO + way);
    send(&mut world, b, 1, 1);
    world.run_until_idle(FOREVER);
    assert_eq!(world.device(c).received.len(), 1, "a learned address is not");
    world.set_switch_address(switch, MacAddress([0, 0, 0, 0, 0, 9]), c).unwrap();
    send(&mut world, a, 9, 1);
    world.run_until_idle(FOREVER);
    assert_eq!((world.device(b).received.len(), world.device(c).received.len()), (1, 2));
    assert_eq!(world.stalled(StallReason::Idle).frames, 0);
}

/// Connects nodes to a chain of switches and checks whether any frame was flooded.
fn chain(tells_address: bool) -> (TestWorld, [NodeId; 3]) {
    let mut world = World::new(1);
    let nodes = [("a", 1), ("b", 2), ("c", 3)].map(|(name, mac)| {
        let player = Player::new(mac).telling_address(tells_address);
        world.add_node(name, player, Bytes(vec![0; 64]), Latency::default())
    });
    let [x, y, z] = ["x", "y", "z"].map(|name| world.add_switch(name, SwitchConfig::default()));
    let link = LinkConfig::gigabits(100);
    world.connect(nodes[0], x, link).unwrap();
    world.connect(x, y, link).unwrap();
    world.connect(nodes[1], y, link).unwrap();
    world.connect(nodes[2], z, link).unwrap();
    world.connect(z, y, link).unwrap();
    (world, nodes)
}

#[test]
fn switches_know_the_nodes_of_their_world_from_the_start() {
    for (tells_address, flooded) in [(true, 0), (false, 3)] {
        let (mut world, [a, b, c]) = chain(tells_address);
        send(&mut world, a, 3, 1);
        world.run_until_idle(FOREVER);
        let seen = [a, b, c].map(|node| world.device(node).received.len() as u64);
        assert_eq!(seen, [0, u64::from(!tells_address), 1]);
        let floods = (0..3).map(|switch| world.switch_counters(SwitchId(switch)).unwrap().flooded);
        assert_eq!(floods.sum::<u64>(), flooded);
    }
}

#[test]
fn two_nodes_of_one_address_are_refused_at_a_switch() {
    let (mut world, [a, ..]) = chain(true);
    let twin = Player::new(3).telling_address(true);
    let twin = world.add_node("twin", twin, Bytes(vec![0; 64]), Latency::default());
    let refused = TopologyError::SameAddress(MacAddress([0, 0, 0, 0, 0, 3]));
    assert_eq!(world.connect(twin, SwitchId(0), LinkConfig::gigabits(100)), Err(refused));
    assert!(refused.to_string().contains("00:00:00:00:00:03"));
    assert_eq!(world.link_counters(a, SwitchId(0)).map(|counters| counters.frames), Ok(0));
}

#[test]
fn a_full_egress_buffer_drops_and_counts() {
    let config = SwitchConfig { buffer_per_port: 250, ..SwitchConfig::default() };
    let (mut world, [a, b, _], switch) = star(config, [100, 1, 100]);
    world.set_switch_address(switch, MacAddress([0, 0, 0, 0, 0, 2]), b).unwrap();
    send(&mut world, a, 2, 10);
    world.run_until_idle(FOREVER);
    assert_eq!(received(&world, b), [0, 1]);
    assert_eq!(world.switch_counters(switch).unwrap().tail_dropped, 8);
    assert_eq!(world.link_counters(switch, b).unwrap().lost, 8);
}

/// RFC 3168: the two bits after the traffic class's DSCP.
#[test]
fn a_switch_marks_packets_of_ip_while_frames_wait() {
    let config = SwitchConfig { mark_from: Some(250), ..SwitchConfig::default() };
    let (mut world, [a, b, _], switch) = star(config, [100, 1, 100]);
    world.set_switch_address(switch, MacAddress([0, 0, 0, 0, 0, 2]), b).unwrap();
    let packet = |ecn: u8| {
        let mut frame = vec![0; 100];
        (frame[5], frame[11]) = (2, 1);
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 26 << 2 | ecn]);
        frame
    };
    world.with_device(a, |player, _, _| {
        [2, 2, 2, 2, 0, 1, 3].iter().for_each(|ecn| player.queue_frame(packet(*ecn)))
    });
    world.run_until_idle(FOREVER);
    let classes: Vec<u8> = world.device(b).received.iter().map(|(_, bytes)| bytes[15] & 3).collect();
    assert_eq!(classes, [2, 2, 2, 3, 0, 3, 3], "from the fourth on 250 bytes wait");
    assert_eq!(world.switch_counters(switch).unwrap().marked, 2);
}

#[test]
fn wrong_cables_are_refused() {
    let mut world: TestWorld = World::new(1);
    let (a, b) = (node(&mut world, "a", 1), node(&mut world, "b", 2));
    let link = LinkConfig::gigabits(100);
    assert_eq!(world.connect(a, a, link), Err(TopologyError::Loop));
    assert_eq!(world.connect(a, NodeId(9), link), Err(TopologyError::Unknown));
    world.connect(a, b, link).unwrap();
    assert_eq!(world.connect(a, b, link), Err(TopologyError::PortInUse(a)));
    assert_eq!(world.link_counters(a, a), Err(TopologyError::NotJoined));
    let [x, y, z] = ["x", "y", "z"].map(|name| world.add_switch(name, SwitchConfig::default()));
    world.connect(x, y, link).unwrap();
    world.connect(y, z, link).unwrap();
    for (one, other) in [(x, x), (x, y), (z, x)] {
        assert_eq!(world.connect(one, other, link), Err(TopologyError::Loop));
    }
}

/// A shared writer that fails after a number of bytes.
#[derive(Clone)]
struct Shared(Rc<RefCell<Vec<u8>>>, usize);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.borrow().len() + bytes.len() > self.1 {
            return Err(io::Error::other("no space"));
        }
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_capture_has_every_frame_that_left_a_node() {
    let (mut world, a, b) = pair(1);
    let file = Shared(Rc::default(), usize::MAX);
    world.start_capture(Box::new(file.clone()));
    world.script_fault(a, b, ScriptedFault { when: Trigger::Frame(2), action: Action::Drop }).unwrap();
    send(&mut world, a, 2, 3);
    world.run_until_idle(FOREVER);
    assert_eq!(world.finish_capture().unwrap(), 3);
    let bytes = file.0.borrow();
    let comment = Fate::Dropped.comment().unwrap().as_bytes();
    assert_eq!(bytes.windows(comment.len()).filter(|window| *window == comment).count(), 1);
}

#[test]
fn a_broken_capture_is_reported_and_the_world_goes_on() {
    let (mut world, a, b) = pair(1);
    world.start_capture(Box::new(Shared(Rc::default(), 400)));
    send(&mut world, a, 2, 3);
    world.run_until_idle(FOREVER);
    assert_eq!(received(&world, b).len(), 3);
    let error = world.finish_capture().unwrap_err();
    assert!(error.frames < 3 && error.to_string().contains("no space"), "{error}");
}

//! Ports of a network against each other, without devices.

use super::*;
use crate::real_time::UnixDatagramIo;
use bareverbs_sim::wire::infiniband::parse;
use bareverbs_sim::wire::management::{Method, SubnetPacket, attribute};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

fn silent() -> Waker {
    Box::new(|| ())
}

fn plug(fabric: &Fabric, layer: LinkLayer) -> FabricPort {
    fabric.plug(layer, silent()).expect("room")
}

fn frame(destination: u8, source: u8) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[5], bytes[11]) = (destination, source);
    bytes
}

fn receive(port: &mut FabricPort) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    port.receive(&mut frame).expect("a port").then_some(frame)
}

#[test]
fn frames_reach_their_destination_and_wake_it() {
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let rung = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&rung);
    let mut one = plug(&fabric, LinkLayer::Ethernet);
    let mut two = fabric
        .plug(
            LinkLayer::Ethernet,
            Box::new(move || {
                calls.fetch_add(1, Ordering::SeqCst);
            }),
        )
        .expect("room");
    let mut three = plug(&fabric, LinkLayer::Ethernet);
    assert!(one.send(&frame(2, 1)).expect("sent"), "flooded");
    assert_eq!((receive(&mut two), receive(&mut three)), (Some(frame(2, 1)), Some(frame(2, 1))));
    assert!(two.send(&frame(1, 2)).expect("sent"), "learnt");
    assert_eq!((receive(&mut one), receive(&mut three)), (Some(frame(1, 2)), None));
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    drop(two);
    assert!(one.send(&frame(2, 1)).expect("lost behind a pulled cable"));
    assert_eq!((receive(&mut three), fabric.unreachable()), (Some(frame(2, 1)), 0), "flooded again");
}

/// Frames without a receiver do not wait, and are counted.
#[test]
fn frames_that_reach_nobody_are_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let mut one = plug(&fabric, LinkLayer::Ethernet);
    let mut state = lock(&fabric.0);
    let number = state.ethernet.add_port();
    state.ethernet.set_static_address(MacAddress([0, 0, 0, 0, 0, 2]), number);
    drop(state);
    assert!(one.send(&frame(2, 1)).expect("a port"));
    assert_eq!(fabric.unreachable(), 1, "a port without a device");
    let ends = (directory.path().join("near"), directory.path().join("far"));
    fabric.plug_wire(LinkLayer::Ethernet, &Outside::datagram(ends.0, ends.1)).expect("near end");
    assert!(one.send(&frame(7, 1)).expect("a port"));
    until(|| fabric.unreachable() == 2);
    lock(&fabric.0).unplug(0);
    assert!(one.send(&frame(7, 1)).expect("a port"));
    assert_eq!(fabric.unreachable(), 3, "a device without a place");
}

#[test]
fn a_port_that_nobody_empties_makes_the_sender_wait() {
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let mut one = plug(&fabric, LinkLayer::Ethernet);
    let mut two = plug(&fabric, LinkLayer::Ethernet);
    two.send(&frame(9, 2)).expect("so that the switch knows it");
    let sent = (0..ROOM + 5).filter(|_| one.send(&frame(2, 1)).expect("a port")).count();
    assert_eq!(sent, ROOM);
    assert!(receive(&mut two).is_some());
    assert!(one.send(&frame(2, 1)).expect("a port"));
}

#[test]
fn link_layers_do_not_mix() {
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let mut ethernet = plug(&fabric, LinkLayer::Ethernet);
    let mut infiniband = plug(&fabric, LinkLayer::InfiniBand);
    assert!(ethernet.send(&frame(0xff, 1)).expect("sent"));
    let asked = receive(&mut infiniband).expect("the manager asks who is there");
    assert_eq!(asked[0] >> 4, 15);
    assert_eq!((receive(&mut infiniband), receive(&mut ethernet)), (None, None));
}

/// A device that was reset is not left without a LID until the next sweep.
#[test]
fn the_manager_begins_at_once_with_a_port_whose_link_comes_up() {
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let mut port = plug(&fabric, LinkLayer::InfiniBand);
    assert!(receive(&mut port).is_some(), "the cable is new");
    assert!(receive(&mut port).is_none());
    port.set_link_up(false);
    assert!(receive(&mut port).is_none(), "nobody is there");
    port.set_link_up(true);
    assert!(receive(&mut port).is_some());
}

#[test]
fn a_wire_joins_the_switch_with_another_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let (near, far) = (directory.path().join("near"), directory.path().join("far"));
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let mut one = plug(&fabric, LinkLayer::Ethernet);
    fabric.plug_wire(LinkLayer::Ethernet, &Outside::datagram(&near, &far)).expect("near end");
    let mut other = UnixDatagramIo::bind(&far, &near).expect("far end");
    assert!(one.send(&frame(7, 1)).expect("sent"));
    let mut seen = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !other.receive(&mut seen).expect("the wire") && Instant::now() < deadline {
        other.wait(Duration::from_millis(10)).expect("the wire");
    }
    assert_eq!(seen, frame(7, 1));
    assert!(other.send(&frame(1, 7)).expect("sent"));
    let back = core::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(1));
        receive(&mut one)
    });
    assert_eq!(back.take(10_000).flatten().next(), Some(frame(1, 7)));
}

/// A wire connects two InfiniBand switches, one of which hosts the SM: it discovers the other by a directed route of
/// two hops.
#[test]
fn a_manager_finds_a_switch_behind_a_wire() {
    let directory = tempfile::tempdir().expect("a directory");
    let (near, far) = (directory.path().join("near"), directory.path().join("far"));
    let managed = Fabric::new(SubnetConfig::default()).expect("a thread");
    let config = SubnetSwitchConfig { guid: 0x51, ports: 8, description: "further".into() };
    let further = Fabric::without_manager(&config).expect("a thread");
    let mut host = plug(&further, LinkLayer::InfiniBand);
    assert_eq!(receive(&mut host), None, "nobody manages it yet");
    further.plug_wire(LinkLayer::InfiniBand, &Outside::datagram(&far, &near)).expect("far end");
    managed.plug_wire(LinkLayer::InfiniBand, &Outside::datagram(&near, &far)).expect("near end");
    let mut asked = None;
    until(|| {
        asked = receive(&mut host);
        asked.is_some()
    });
    let frame = asked.expect("a packet");
    let packet = parse(&frame).expect("a packet of the link");
    let request = SubnetPacket::of(&packet).expect("of subnet management");
    assert_eq!((request.method(), request.attribute().0), (Method::Get, attribute::NODE_INFO));
    assert_eq!(request.bytes()[6..8], [2, 2], "the second hop of two");
    until(|| managed.topology().is_some_and(|found| found.nodes.len() == 2 && found.cables().count() == 1));
    assert_eq!(further.topology(), None, "it has no manager");
}

#[test]
fn a_wire_waits_for_a_port_that_is_slow() {
    let directory = tempfile::tempdir().expect("a directory");
    let (near, far) = (directory.path().join("near"), directory.path().join("far"));
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let mut one = plug(&fabric, LinkLayer::Ethernet);
    one.send(&frame(9, 1)).expect("so that the switch knows it");
    fabric.plug_wire(LinkLayer::Ethernet, &Outside::datagram(&near, &far)).expect("near end");
    let mut other = UnixDatagramIo::bind(&far, &near).expect("far end");
    let count = ROOM as u16 + 5;
    for number in 0..count {
        let mut next = frame(1, 7);
        next[20..22].copy_from_slice(&number.to_be_bytes());
        until(|| other.send(&next).expect("the wire"));
    }
    until(|| lock(&fabric.0).wires[0].stuck.is_some());
    let mut seen = Vec::new();
    until(|| {
        seen.extend(receive(&mut one).map(|frame| u16::from_be_bytes([frame[20], frame[21]])));
        seen.len() == usize::from(count)
    });
    assert_eq!((seen, fabric.lost()), ((0..count).collect(), 0));
}

/// An end of a wire at which this many frames have arrived, in the place of a socket.
#[derive(Debug)]
struct Arrived(usize, UnixStream);

impl AsFd for Arrived {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }
}

impl FrameIo for Arrived {
    fn send(&mut self, _: &[u8]) -> io::Result<bool> {
        Ok(true)
    }
    fn receive(&mut self, next: &mut Vec<u8>) -> io::Result<bool> {
        let is_there = self.0 > 0;
        if is_there {
            self.0 -= 1;
            next.extend(frame(1, 7));
        }
        Ok(is_there)
    }
    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// A stream from outside does not hold the lock of the network: devices have their turn after each batch.
#[test]
fn a_wire_gives_a_batch_of_frames_in_each_turn() {
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let mut one = plug(&fabric, LinkLayer::Ethernet);
    one.send(&frame(9, 1)).expect("so that the switch knows it");
    let mut state = lock(&fabric.0);
    let index = state.add(LinkLayer::Ethernet, silent()).expect("room");
    let io = Box::new(Arrived(2 * WIRE_BATCH + 10, UnixStream::pair().expect("sockets").0));
    state.wires.push(OutsideWire { index, io, stuck: None, troubles: Tally::default() });
    for (pause, waiting) in
        [(BUSY_TICK, WIRE_BATCH), (BUSY_TICK, 2 * WIRE_BATCH), (WIRE_TICK, 2 * WIRE_BATCH + 10)]
    {
        assert_eq!((state.tick(), state.ports[0].waiting.len()), (pause, waiting));
    }
}

/// Waits for the network's thread.
#[track_caller]
fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "not within 20 s");
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn a_flood_has_room_of_its_own_at_a_port_that_is_full_and_is_counted_where_it_has_none() {
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let (mut one, mut slow) = (plug(&fabric, LinkLayer::Ethernet), plug(&fabric, LinkLayer::Ethernet));
    slow.send(&frame(9, 2)).expect("so that the switch knows it");
    while one.send(&frame(2, 1)).expect("a port") {}
    for _ in 0..FLOOD_ROOM {
        assert!(one.send(&frame(0xff, 1)).expect("a port"));
    }
    assert_eq!(fabric.lost(), 0);
    assert!(!one.send(&frame(2, 1)).expect("a port"), "what is for one port waits");
    for _ in 0..5 {
        assert!(one.send(&frame(0xff, 1)).expect("a port"));
    }
    assert_eq!(fabric.lost(), 5);
    let received = core::iter::from_fn(|| receive(&mut slow)).count();
    assert_eq!(received, ROOM + FLOOD_ROOM);
}

/// A switch need not flood frames to a device that has sent none yet, and floods them once the device is gone.
#[test]
fn an_address_that_was_announced_is_known_until_its_device_is_unplugged() {
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let [mut one, mut two, mut three] = [(); 3].map(|()| plug(&fabric, LinkLayer::Ethernet));
    two.announce(MacAddress([0, 0, 0, 0, 0, 2]));
    assert_eq!((receive(&mut one), receive(&mut three)), (None, None), "the announcement goes nowhere");
    assert!(one.send(&frame(2, 1)).expect("sent"));
    assert_eq!((receive(&mut two), receive(&mut three)), (Some(frame(2, 1)), None));
    drop(two);
    assert!(one.send(&frame(2, 1)).expect("sent"));
    assert_eq!(receive(&mut three), Some(frame(2, 1)));
}

#[test]
fn a_switch_without_a_free_port_refuses_a_device_until_another_is_unplugged() {
    let config = SubnetSwitchConfig { guid: 0x51, ports: 2, description: "small".into() };
    let fabric = Fabric::without_manager(&config).expect("a thread");
    let (one, _two) = (plug(&fabric, LinkLayer::InfiniBand), plug(&fabric, LinkLayer::InfiniBand));
    let refused = fabric.plug(LinkLayer::InfiniBand, silent()).expect_err("two ports");
    assert_eq!(refused, PlugError { layer: LinkLayer::InfiniBand, ports: 2 });
    assert!(refused.to_string().starts_with("all 2 ports of the InfiniBand switch are in use"));
    let wire = fabric.plug_wire(
        LinkLayer::InfiniBand,
        &Outside::Udp { own: ([127, 0, 0, 1], 0).into(), peer: ([127, 0, 0, 1], 9).into() },
    );
    assert!(wire.expect_err("two ports").to_string().contains("in use"));
    drop(one);
    let again = plug(&fabric, LinkLayer::InfiniBand);
    assert_eq!(lock(&fabric.0).ports[again.index].at, (0, 0));
    fabric.plug(LinkLayer::InfiniBand, silent()).expect_err("two ports");
}

/// Subnet management packets reach a full port: they have extra room there.
#[test]
fn management_reaches_a_port_that_is_full() {
    let fabric = Fabric::new(SubnetConfig::default()).expect("a thread");
    let [mut one, mut slow] = [(); 2].map(|()| plug(&fabric, LinkLayer::InfiniBand));
    for port in [&mut one, &mut slow] {
        while receive(port).is_some() {}
    }
    let mut state = lock(&fabric.0);
    let full = (0..ROOM).filter(|_| state.put(LinkLayer::InfiniBand, (0, 1), &[0; 30], ROOM)).count();
    assert!(full >= ROOM - 8, "{full}");
    assert!(!state.put(LinkLayer::InfiniBand, (0, 1), &[0; 30], ROOM), "data waits");
    drop(state);
    let mut request = SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 1 << 62);
    assert!(request.leave_along(&[1, 2]), "to the switch, and by its second port");
    let (frame, _) = request.to_frame(0, 0);
    assert!(one.send(&frame).expect("a port"), "nobody waits for it");
    let last = core::iter::from_fn(|| receive(&mut slow)).last().expect("frames");
    let packet = parse(&last).expect("a packet");
    assert_eq!(SubnetPacket::of(&packet).expect("of management").transaction(), 1 << 62);
    assert_eq!(fabric.lost(), 0);
}

/// Two switches joined by two cables, with three hosts.
const SITE: &str = "\
switchguid=0x10(10)
Switch\t4 \"S-0000000000000010\"\t\t# \"spine\" base port 0 lid 3 lmc 0
[1]\t\"H-00000000000000a0\"[1](a1) \t\t# \"one\" lid 7 4xEDR
[2]\t\"S-0000000000000020\"[2]\t\t# \"leaf\" lid 4 4xEDR
[3]\t\"S-0000000000000020\"[3]\t\t# \"leaf\" lid 4 4xEDR

switchguid=0x20(20)
Switch\t4 \"S-0000000000000020\"\t\t# \"leaf\" base port 0 lid 4 lmc 0
[1]\t\"H-00000000000000b0\"[1](b1) \t\t# \"two\" lid 5 4xEDR
[4]\t\"H-00000000000000c0\"[1](c1) \t\t# \"three\" lid 6 4xEDR

caguid=0xa0
Ca\t1 \"H-00000000000000a0\"\t\t# \"one\"
[1](a1) \t\"S-0000000000000010\"[1]\t\t# lid 7 lmc 0 \"spine\" lid 3 4xEDR

caguid=0xb0
Ca\t1 \"H-00000000000000b0\"\t\t# \"two\"
[1](b1) \t\"S-0000000000000020\"[1]\t\t# lid 5 lmc 0 \"leaf\" lid 4 4xEDR

caguid=0xc0
Ca\t1 \"H-00000000000000c0\"\t\t# \"three\"
[1](c1) \t\"S-0000000000000020\"[4]\t\t# lid 6 lmc 0 \"leaf\" lid 4 4xEDR
";

/// The SM finds the switches and cables of a site, and the devices at its hosts' places. The second of two devices at one place stays.
#[test]
fn a_site_has_its_switches_and_cables_and_hosts_have_places() {
    let topology = SubnetTopology::parse(SITE).expect("a topology");
    let (fabric, places) = Fabric::of_topology(&topology, &SubnetConfig::default()).expect("a site");
    let shown: Vec<_> = places.iter().map(|place| (place.node, place.port, place.guid)).collect();
    assert_eq!(shown, [(0xa0, 1, 0xa1), (0xb0, 1, 0xb1), (0xc0, 1, 0xc1)]);
    let found = || fabric.topology().expect("a manager");
    until(|| found().nodes.len() == 2 && found().cables().count() == 2);
    let names: Vec<String> = found().nodes.iter().map(|node| node.description.clone()).collect();
    assert!(names.contains(&"spine".to_owned()) && names.contains(&"leaf".to_owned()), "{names:?}");
    let first = fabric.plug_at(places[1], silent());
    let mut host = fabric.plug_at(places[1], silent());
    let mut asked = None;
    until(|| {
        asked = receive(&mut host);
        asked.is_some()
    });
    let frame = asked.expect("a packet");
    let packet = SubnetPacket::of(&parse(&frame).expect("a packet")).expect("of subnet management");
    assert_eq!((packet.method(), packet.attribute().0), (Method::Get, attribute::NODE_INFO));
    assert_eq!(packet.bytes()[6..8], [2, 2], "through both switches");
    drop(first);
    while receive(&mut host).is_some() {}
    until(|| receive(&mut host).is_some());
}

#[test]
fn a_file_that_is_no_site_is_refused() {
    let refused = |text: &str| {
        let topology = SubnetTopology::parse(text).expect("a topology");
        Fabric::of_topology(&topology, &SubnetConfig::default()).expect_err("no site").to_string()
    };
    let pair = "Ca\t1 \"H-00000000000000d0\"\n[1](d1) \"H-00000000000000e0\"[1](e1)\n\nCa\t1 \"H-00000000000000e0\"\n[1](e1) \"H-00000000000000d0\"[1](d1)\n";
    assert!(refused(pair).contains("no switch"));
    assert!(refused(&format!("{SITE}\n{pair}")).contains("joined to another host"));
    let router = "Rt\t1 \"R-00000000000000f0\"\n[1](f1) \"S-0000000000000020\"[2]\n\nSwitch\t4 \"S-0000000000000020\"\n[2] \"R-00000000000000f0\"[1]\n";
    assert!(refused(router).contains("is a router"));
}

//! What a driver can learn about its port and its event queues: counters by group, and event queue overruns.

use bareverbs_core::completion_channel::CompletionChannel;
use bareverbs_core::completion_queue::{Arming, CompletionQueue, Notify};
use bareverbs_core::device::EventQueueError;
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::events::AsyncEvent;
use bareverbs_core::gid::GidEntry;
use bareverbs_core::hal::{Hal, Mmio};
use bareverbs_core::port_counters::PortCounterError;
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{ConnectOptions, QueuePairBuilder};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_prm::numbering::{EventQueueStatus, PortCounterGroup, PortType};
use bareverbs_prm::time::Duration;
use bareverbs_sim::nic::{Nic, NicConfig};
use bareverbs_sim::run::{Latency, NodeId};
use bareverbs_tests::node::{gid, mac};
use bareverbs_tests::pair::{Pair, PairOptions};

/// An offset after the initialization segment and before the first UAR.
const NO_REGISTER: usize = 0x8000;

/// The model's own counters: frames and bytes sent, frames and bytes received.
fn of_the_model(pair: &Pair) -> [u64; 4] {
    let node = pair.a.node.id;
    let counters = pair.world.with(|world| world.device(node).counters());
    [counters.frames_sent, counters.bytes_sent, counters.frames_received, counters.bytes_received]
}

/// PPCNT counts what passes the port; with `clr` counting begins again, and nothing is lost in between
#[test]
fn packets_are_counted_until_the_counters_are_cleared() {
    let mut pair = Pair::new(&PairOptions::default());
    let device = pair.a.node.device.clone();
    let read = |clear| {
        let counters = device.ethernet_counters(clear).unwrap();
        [
            counters.a_frames_transmitted_ok,
            counters.a_octets_transmitted_ok,
            counters.a_frames_received_ok,
            counters.a_octets_received_ok,
        ]
    };
    let write = |pair: &mut Pair, length| {
        let (from, to) = ([pair.a.memory.slice(0, length).unwrap()], pair.b.memory.remote(0));
        pair.a.queue_pair.post_send(&WorkRequest::write(1, &from, to)).unwrap();
        assert!(pair.sent().is_success());
    };
    write(&mut pair, 5000);
    let first = of_the_model(&pair);
    assert_eq!((first[0], read(false)), (5, first), "five packets of 1024 bytes");
    assert_eq!((read(true), read(false)), (first, [0; 4]));
    write(&mut pair, 1);
    let since = of_the_model(&pair);
    assert_eq!(read(false), core::array::from_fn(|index| since[index] - first[index]));
    let named: Vec<_> = device.ethernet_counters(false).unwrap().by_name().collect();
    assert_eq!((named.len(), named[0]), (19, ("a_frames_transmitted_ok", 1)));
}

/// frames are counted by the priority in their 802.1Q tag
#[test]
fn each_priority_counts_for_itself() {
    let mut pair = Pair::new(&PairOptions::default());
    let tagged = |number| GidEntry { vlan: Some(7), ..GidEntry::roce_v2(gid(number, false), mac(number)) };
    pair.a.node.device.set_gid(1, tagged(1)).unwrap();
    pair.b.node.device.set_gid(1, tagged(2)).unwrap();
    let build = |side: &bareverbs_tests::pair::Side| {
        QueuePairBuilder::new(&side.node.domain, &side.sends, &side.receives).build().unwrap()
    };
    let (a, b) = (build(&pair.a), build(&pair.b));
    let options = ConnectOptions { gid_index: 1, service_level: 5, ..ConnectOptions::default() };
    let (of_a, of_b) = (a.endpoint(1).unwrap(), b.endpoint(1).unwrap());
    let mut a = a.connect(&of_b, options).unwrap();
    let _b = b.connect(&of_a, options).unwrap();
    let from = [pair.a.memory.slice(0, 3000).unwrap()];
    a.post_send(&WorkRequest::write(1, &from, pair.b.memory.remote(0))).unwrap();
    assert!(pair.sent().is_success());
    let device = &pair.a.node.device;
    let [sent, sent_bytes, received, received_bytes] = of_the_model(&pair);
    for priority in 0..8 {
        let counters = device.priority_counters(priority, false).unwrap();
        let found = [counters.tx_frames, counters.tx_octets, counters.rx_frames, counters.rx_octets];
        let wanted = if priority == 5 { [sent, sent_bytes, received, received_bytes] } else { [0; 4] };
        assert_eq!(found, wanted, "priority {priority}");
    }
    assert!(sent >= 3 && received >= 1);
    assert_eq!(device.priority_counters(5, true).unwrap().tx_frames, sent);
    assert_eq!(device.priority_counters(5, false).unwrap().tx_frames, 0);
    assert_eq!(device.ethernet_counters(false).unwrap().a_frames_transmitted_ok, sent, "another group");
    assert_eq!(device.priority_counters(8, false), Err(PortCounterError::Priority { asked: 8 }));
}

/// A device alone in its world.
fn alone(config: NicConfig, device: DeviceConfig) -> (SimWorld<Nic>, NodeId, Device<SimHal<Nic>>) {
    let world = SimWorld::new(1);
    let id = world.add_node("alone", Nic::new(config), Latency::default(), MemoryConfig::default());
    let device = Device::open(world.hal(id), device).unwrap_or_else(|error| panic!("{error}"));
    (world, id, device)
}

fn set_link(world: &SimWorld<Nic>, id: NodeId, up: bool) {
    world.with(|world| world.with_device(id, |nic, _, _| nic.set_link_up(up)));
}

/// Changes the state of the link. The device reports it with its next input, which here is a write to no
/// register.
fn tell_link(world: &SimWorld<Nic>, id: NodeId, device: &Device<SimHal<Nic>>, up: bool) {
    set_link(world, id, up);
    device.hal().mmio().write32(NO_REGISTER, 0);
    world.run_until(world.now() + Duration::from_millis(1));
}

/// the InfiniBand group of PPCNT counts what goes wrong at a port
#[test]
fn an_infiniband_port_counts_how_often_its_link_went_down() {
    let (world, id, device) = alone(NicConfig::infiniband(mac(1)), DeviceConfig::default());
    set_link(&world, id, true);
    assert!(device.infiniband_counters(false).unwrap().by_name().all(|(_, count)| count == 0));
    for up in [false, true, false, true] {
        set_link(&world, id, up);
    }
    let counted: Vec<_> =
        device.infiniband_counters(true).unwrap().by_name().filter(|(_, count)| *count != 0).collect();
    assert_eq!(counted, [("link_downed_counter", 2)]);
    (0..300).for_each(|round| set_link(&world, id, round % 2 == 1));
    assert_eq!(device.infiniband_counters(false).unwrap().link_downed_counter, 150);
    (0..300).for_each(|round| set_link(&world, id, round % 2 == 1));
    assert_eq!(device.infiniband_counters(false).unwrap().link_downed_counter, 255, "it does not wrap");
}

#[test]
fn groups_of_the_other_link_layer_are_refused_before_a_command() {
    let (_world, _, ethernet) = alone(NicConfig::new(mac(1)), DeviceConfig::default());
    let (group, port) = (PortCounterGroup::InfiniBandPort, PortType::Ethernet);
    assert_eq!(ethernet.infiniband_counters(false), Err(PortCounterError::LinkLayer { group, port }));
    let (_world, _, infiniband) = alone(NicConfig::infiniband(mac(1)), DeviceConfig::default());
    let (group, port) = (PortCounterGroup::Ieee8023, PortType::Ib);
    let error = infiniband.ethernet_counters(false).unwrap_err();
    assert_eq!(error, PortCounterError::LinkLayer { group, port });
    assert!(
        error.to_string().contains("ports of link layer ETHERNET(0x1) have them, and this port is IB(0x0)"),
        "{error}"
    );
}

/// a full event queue takes no more events, and its context says so
#[test]
fn a_check_reports_an_overrun_event_queue() {
    let config = DeviceConfig { event_queue_entries: 4, ..DeviceConfig::default() };
    let (world, id, device) = alone(NicConfig::new(mac(1)), config);
    assert_eq!(device.check_events(), Ok(()));
    tell_link(&world, id, &device, false);
    assert_eq!(device.check_events(), Ok(()));
    (0..8).for_each(|round| tell_link(&world, id, &device, round % 2 == 0));
    let error = device.check_events().unwrap_err();
    let EventQueueError::Broken { status, entries, waiting, .. } = error else { panic!("{error}") };
    assert_eq!((status, entries), (EventQueueStatus::WriteFailure, 4));
    assert!(waiting <= 4, "{error}");
    assert!(error.to_string().contains("DeviceConfig::event_queue_entries"), "{error}");
    let mut events = 0;
    while let Some(event) = device.poll_event().unwrap() {
        assert!(matches!(event, AsyncEvent::Port { .. }), "{event:?}");
        events += 1;
    }
    assert_eq!(events, 4, "as many as the queue had room for");
    assert!(device.check_events().is_err(), "the queue stays broken");
}

#[test]
fn a_check_reports_an_overrun_channel() {
    let (_world, _, device) = alone(NicConfig::new(mac(1)), DeviceConfig::default());
    let device = std::rc::Rc::new(device);
    device.set_gid(0, GidEntry::roce_v2(gid(1, false), mac(1))).unwrap();
    let channel = CompletionChannel::create(device.clone(), 1, 2).unwrap();
    let domain = ProtectionDomain::allocate(device.clone()).unwrap();
    for number in 0..3 {
        assert_eq!(channel.check(), Ok(()), "{number} events");
        let mut queue =
            CompletionQueue::builder(device.clone()).entries(4).channel(&channel).create().unwrap();
        let pair = QueuePairBuilder::new(&domain, &queue, &queue).build().unwrap();
        let own = pair.endpoint(0).unwrap();
        let mut pair = pair.connect(&own, ConnectOptions::default()).unwrap();
        pair.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
        assert_eq!(queue.arm(Notify::Next), Arming::Armed);
        pair.modify_to_error().unwrap();
        assert_eq!(
            queue.poll_one().unwrap().map(|flushed| flushed.wr_id),
            Some(1),
            "completions are not lost"
        );
    }
    let error = channel.check().unwrap_err();
    let EventQueueError::Broken { eqn, entries, waiting, .. } = error else { panic!("{error}") };
    assert_eq!((eqn, entries, waiting), (channel.number(), 2, 2));
    assert!(error.to_string().contains("CompletionChannel::create"), "{error}");
    assert_eq!(device.check_events(), Ok(()), "the device's own queue still works");
}

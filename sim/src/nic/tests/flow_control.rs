//! A host that takes data more slowly than it arrives: frames are dropped, or pause frames stop the sender.

use super::pair::Pair;
use super::verbs::{Node, data, remote};
use crate::nic::{NicConfig, PortBuffer, RoceSupport};
use bareverbs_prm::command::ethernet_port::PpcntRegister;
use bareverbs_prm::command::hca::{AccessRegisterIn, AccessRegisterOut};
use bareverbs_prm::numbering::{CommandOpcode as Op, CqeOpcode, PortCounterGroup, RegisterId, WqeOpcode};
use bareverbs_prm::time::Duration;
use zerocopy::IntoBytes;

/// One gigabit per second, and room for fewer than eight packets of 1,024 bytes.
const SLOW: NicConfig = NicConfig {
    receive_buffer: Some(PortBuffer { bytes: 8000, bits_per_second: 1_000_000_000 }),
    ..NicConfig::new(bareverbs_prm::ids::MacAddress([2, 0, 0, 0, 0, 1]))
};
const TEN_PACKETS: u32 = 10 << 10;

/// Counter `index` of a group of register PPCNT, as software reads it.
fn port_counter(node: &mut Node, group: PortCounterGroup, index: usize) -> u64 {
    let mut input = AccessRegisterIn::new();
    input.set_register_id(RegisterId::Ppcnt);
    let mut requested = PpcntRegister::new();
    requested.set_local_port(1).set_grp(group);
    let length = 16 + requested.as_bytes().len();
    let result =
        node.host.command::<_, AccessRegisterOut>(Op::AccessReg, 1, input, requested.as_bytes(), length);
    let (_, register) = result.unwrap();
    let at = 8 + index * 8;
    u64::from_be_bytes(register[at..at + 8].try_into().unwrap())
}

fn write_ten_packets(pair: &mut Pair) {
    let segments = [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, TEN_PACKETS))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
}

/// Whether the work request succeeded; `None` while it is in progress.
fn ended_well(node: &mut Node) -> Option<bool> {
    node.poll().map(|entry| entry.opcode() == CqeOpcode::Requester)
}

/// Index of `rx_discards` by priority (PRM, per priority counters).
const DISCARDS: usize = 15;
const RECEIVED: usize = 4;

#[test]
fn a_frame_that_finds_no_room_is_counted_and_its_data_comes_all_the_same() {
    let mut pair = Pair::with(SLOW, |_| {});
    write_ten_packets(&mut pair);
    pair.run();
    let group = PortCounterGroup::PerPriority;
    assert_eq!(port_counter(&mut pair.b, group, DISCARDS), 3, "seven of ten fit");
    assert_eq!(port_counter(&mut pair.b, group, RECEIVED), 7);
    assert!(pair.a.poll().is_none());
    pair.pass_time(Duration::from_millis(5), 20);
    assert_eq!(ended_well(&mut pair.a), Some(true), "lost packets are retransmitted");
    assert_eq!(port_counter(&mut pair.a, group, DISCARDS), 0);
}

#[test]
fn a_slow_receiver_stops_its_sender_and_nothing_is_lost() {
    let mut pair = Pair::with(NicConfig { starts_with_pause: true, ..SLOW }, |_| {});
    write_ten_packets(&mut pair);
    pair.run();
    assert!(pair.a.host.nic.poll_timeout().is_some(), "it waits for the end of the pause");
    assert!(pair.a.poll().is_none());
    let of_priority = |node: &mut Node, index| port_counter(node, PortCounterGroup::PerPriority, index);
    assert_eq!((of_priority(&mut pair.b, 12), of_priority(&mut pair.a, 10)), (1, 1), "tx_pause, rx_pause");
    assert_eq!(of_priority(&mut pair.a, 14), 1, "from sending to stopped");
    pair.pass_time(Duration::from_micros(20), 20);
    assert_eq!(ended_well(&mut pair.a), Some(true));
    assert_eq!(of_priority(&mut pair.b, DISCARDS), 0);
    let (sent, received) = (of_priority(&mut pair.b, 12), of_priority(&mut pair.a, 10));
    assert_eq!(sent, received);
    let of_port = |node: &mut Node, index| port_counter(node, PortCounterGroup::Ieee8023, index);
    assert_eq!(
        [15, 17].map(|index| of_port(&mut pair.a, index)),
        [sent; 2],
        "control and pause frames received"
    );
    assert_eq!([14, 18].map(|index| of_port(&mut pair.b, index)), [sent; 2], "and sent");
    let (told, waited) = (of_priority(&mut pair.b, 13), of_priority(&mut pair.a, 11));
    assert!(told > 20 && told == waited, "microseconds: {told} requested, {waited} waited");
}

/// The port is stopped itself, but that does not keep it from stopping its peer.
#[test]
fn a_port_that_is_stopped_still_sends_pause_frames_and_answers_later() {
    let mut pair = Pair::with(NicConfig { starts_with_pause: true, ..SLOW }, |_| {});
    write_ten_packets(&mut pair);
    let segments = [remote(pair.a.mr.va, pair.a.mr.key), data(pair.b.mr.sge(0, TEN_PACKETS))].concat();
    pair.b.post(WqeOpcode::RdmaWrite, &segments);
    pair.pass_time(Duration::from_micros(20), 40);
    assert_eq!([&mut pair.a, &mut pair.b].map(ended_well), [Some(true); 2]);
    for node in [&mut pair.a, &mut pair.b] {
        assert_eq!(port_counter(node, PortCounterGroup::PerPriority, DISCARDS), 0);
        assert!(port_counter(node, PortCounterGroup::PerPriority, 10) > 0);
    }
}

#[test]
fn a_card_may_offer_one_version_of_roce_or_none() {
    assert_eq!([RoceSupport::BOTH, RoceSupport::OFF].map(RoceSupport::versions), [0b101, 0]);
    let one = RoceSupport { version_1: false, version_2: true };
    assert_eq!(one.versions(), 0b100);
}

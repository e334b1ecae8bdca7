//! Flow tables.

use super::super::flow::{Destination, FlowEntry, Group, MISS_TO_TABLE, Steering, Target, action};
use bareverbs_prm::command::flow::{FlowContext, FlowMatchHeaders, FlowTableContext};
use bareverbs_prm::ids::FlowTableId;
use proptest::prelude::*;

fn table(steering: &mut Steering, level: u8, miss: Option<u32>) -> u32 {
    let mut context = FlowTableContext::new();
    context.set_level(level).set_log_size(4);
    if let Some(miss) = miss {
        context.set_table_miss_action(MISS_TO_TABLE).set_table_miss_id(FlowTableId::from_low_bits(miss));
    }
    steering.create_table(0, context, 64).unwrap()
}

fn port(port: u16) -> FlowMatchHeaders {
    let mut headers = FlowMatchHeaders::new();
    headers.set_udp_dport(port);
    headers
}

fn group(steering: &mut Steering, table: u32, indices: (u32, u32), mask: FlowMatchHeaders) -> Option<u32> {
    let group = Group { first: indices.0, last: indices.1, mask };
    steering.tables.get_mut(table).unwrap().add_group(group)
}

fn entry(group: u32, value: FlowMatchHeaders, destinations: &[Destination], counters: &[u32]) -> FlowEntry {
    let mut context = FlowContext::new();
    context.set_group_id(group).set_flow_tag(7).set_action(action::FORWARD);
    context.match_value_mut().outer_headers_mut().clone_from(&value);
    FlowEntry::new(context, destinations.to_vec(), counters.to_vec())
}

fn put(steering: &mut Steering, table: u32, index: u32, entry: FlowEntry) {
    steering.tables.get_mut(table).unwrap().entries.insert(index, entry);
}

fn tirs(steering: &mut Steering, packet: &FlowMatchHeaders) -> Vec<u32> {
    steering.steer(packet, 100).iter().map(|target| target.tir).collect()
}

#[test]
fn the_lowest_index_decides_and_misses_go_on() {
    let mut steering = Steering::new();
    let second = table(&mut steering, 2, None);
    let first = table(&mut steering, 1, Some(second));
    steering.root = Some(first);
    let exact = group(&mut steering, first, (0, 3), port(0xffff)).unwrap();
    put(&mut steering, first, 2, entry(exact, port(53), &[Destination::Tir(2)], &[]));
    put(&mut steering, first, 1, entry(exact, port(53), &[Destination::Tir(1)], &[]));
    let all = group(&mut steering, second, (0, 0), FlowMatchHeaders::new()).unwrap();
    put(&mut steering, second, 0, entry(all, port(1), &[Destination::Tir(9)], &[]));
    assert_eq!(steering.steer(&port(53), 60), [Target { tir: 1, tag: 7 }]);
    assert_eq!(tirs(&mut steering, &port(54)), [9], "an empty mask matches everything");
    steering.root = None;
    assert_eq!(tirs(&mut steering, &port(53)), Vec::<u32>::new());
}

#[test]
fn a_packet_can_go_to_many_places_and_is_counted_once() {
    let mut steering = Steering::new();
    let (second, first) = (table(&mut steering, 2, None), table(&mut steering, 1, None));
    steering.root = Some(first);
    steering.counters.insert(1, Default::default());
    let all = group(&mut steering, first, (0, 0), FlowMatchHeaders::new()).unwrap();
    let places = [Destination::Tir(1), Destination::Table(second), Destination::Tir(2)];
    put(&mut steering, first, 0, entry(all, port(0), &places, &[1]));
    let all = group(&mut steering, second, (0, 0), FlowMatchHeaders::new()).unwrap();
    put(&mut steering, second, 0, entry(all, port(0), &[Destination::Tir(3)], &[]));
    assert_eq!(tirs(&mut steering, &port(5)), [1, 2, 3]);
    let counter = steering.counters.get(1).unwrap();
    assert_eq!((counter.packets, counter.bytes), (1, 100));
    assert!(steering.uses_tir(3) && !steering.uses_tir(4));
    assert!(!steering.is_used(first) && steering.is_used(second));
    steering.remove_table(first);
    assert_eq!(tirs(&mut steering, &port(5)), Vec::<u32>::new());
}

#[test]
fn a_packet_that_is_sent_in_a_circle_is_dropped() {
    let mut steering = Steering::new();
    let (first, second) = (table(&mut steering, 1, None), table(&mut steering, 2, None));
    steering.root = Some(first);
    for (here, next) in [(first, second), (second, first)] {
        let all = group(&mut steering, here, (0, 0), FlowMatchHeaders::new()).unwrap();
        put(&mut steering, here, 0, entry(all, port(1), &[Destination::Table(next)], &[]));
    }
    assert_eq!(tirs(&mut steering, &port(53)), Vec::<u32>::new());
}

#[test]
fn groups_do_not_share_indices() {
    let mut steering = Steering::new();
    let number = table(&mut steering, 0, None);
    assert!(group(&mut steering, number, (0, 3), port(1)).is_some());
    assert!(group(&mut steering, number, (3, 5), port(1)).is_none());
    assert!(group(&mut steering, number, (4, 5), port(1)).is_some());
}

proptest! {
    /// Compares with a literal implementation of the manual: bit by bit, index by index.
    #[test]
    fn steering_is_masked_comparison_in_the_order_of_indices(
        packet: [u8; 16],
        rules in proptest::collection::vec((any::<[u8; 16]>(), prop_oneof![Just([0; 16]), any::<[u8; 16]>()]), 0..6),
        copies: bool,
    ) {
        let mut steering = Steering::new();
        let number = table(&mut steering, 0, None);
        steering.root = Some(number);
        let headers = |bytes: [u8; 16]| {
            let mut headers = FlowMatchHeaders::new();
            headers.set_source_ip(bytes);
            headers
        };
        let mut expected = None;
        for (index, &(value, mask)) in rules.iter().enumerate() {
            let value = if copies && index > 2 { packet } else { value };
            let at = index as u32;
            let group = group(&mut steering, number, (at, at), headers(mask)).unwrap();
            put(&mut steering, number, at, entry(group, headers(value), &[Destination::Tir(at)], &[]));
            let same = (0..128).all(|bit| {
                let on = |bytes: [u8; 16]| bytes[bit / 8] >> (bit % 8) & 1;
                on(mask) == 0 || on(packet) == on(value)
            });
            expected = expected.or(same.then_some(at));
        }
        prop_assert_eq!(tirs(&mut steering, &headers(packet)), expected.into_iter().collect::<Vec<_>>());
    }
}

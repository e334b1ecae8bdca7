//! A subnet with its SM in virtual time.

use super::player::{Bytes, Player};
use crate::net::subnet::SWITCH_PORTS;
use crate::net::{LinkConfig, Member, RandomFaults, SubnetConfig, SwitchConfig};
use crate::nic::{Nic, NicConfig, SubnetMembership};
use crate::run::{Device, Latency, LinkId, NodeId, StallReason, Step, SwitchId, TopologyError, World};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};

const LINK: LinkConfig = LinkConfig::gigabits(100);
const SECOND: Duration = Duration::from_secs(1);

fn adapter(number: u8) -> Nic {
    let mac = MacAddress([2, 0, 0, 0, 0, number]);
    Nic::new(NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(mac) })
}

/// Nodes at a switch that hosts the SM.
fn subnet<D: Device>(
    seed: u64,
    devices: impl IntoIterator<Item = D>,
) -> (World<Bytes, D>, SwitchId, Vec<NodeId>) {
    let mut world = World::new(seed);
    let switch = world.add_subnet("switch", SwitchConfig::default(), SubnetConfig::default());
    let mut nodes = Vec::new();
    for (number, device) in devices.into_iter().enumerate() {
        let name = format!("node{number}");
        let node = world.add_node(&name, device, Bytes(vec![0; 64]), Latency::default());
        world.connect(node, switch, LINK).unwrap();
        nodes.push(node);
    }
    (world, switch, nodes)
}

fn two_adapters(seed: u64) -> (World<Bytes, Nic>, SwitchId) {
    let (world, switch, _) = subnet(seed, [adapter(1), adapter(2)]);
    (world, switch)
}

fn members(world: &World<Bytes, Nic>, switch: SwitchId) -> Vec<(u16, bool)> {
    world.subnet_members(switch).map(|Member { lid, is_active, .. }| (lid, is_active)).collect()
}

/// Requirement: IBTA v1.4 §14.4.3: the subnet manager discovers the ports, assigns LIDs and activates them.
#[test]
fn the_manager_brings_ports_up_in_virtual_time() {
    let (mut world, switch) = two_adapters(1);
    assert_eq!(members(&world, switch), []);
    world.run_until(Time::ZERO + Duration::from_micros(20));
    assert_eq!(members(&world, switch), [(1, true), (2, true)]);
    assert_eq!(world.switch_counters(switch).map(|counters| counters.managed), Some(10));
}

#[test]
fn a_settled_subnet_is_idle_and_time_still_passes() {
    let (mut world, switch) = two_adapters(1);
    assert_eq!(world.run_until_idle(Time::MAX), Step::Idle);
    assert!(world.now() < Time::ZERO + SECOND, "one sweep after the last change is enough");
    assert_eq!(world.step(), Step::Idle);
    let stalled = world.run_while(|_| true, Time::MAX).unwrap_err();
    assert_eq!(stalled.reason, StallReason::Idle);
    let before = world.switch_counters(switch).unwrap().managed;
    world.run_until(world.now() + SECOND + Duration::from_millis(200));
    assert_eq!(world.switch_counters(switch).unwrap().managed, before + 4, "two sweeps of two ports");
    world.run_until(Time::MAX);
    assert_eq!(world.now(), Time::MAX);
}

#[test]
fn lost_management_packets_are_repeated_and_the_same_seed_has_the_same_digest() {
    let run = |seed| {
        let (mut world, switch) = two_adapters(seed);
        world.set_random_faults_everywhere(RandomFaults::loss(0.3));
        world.run_until(Time::ZERO + Duration::from_secs(20));
        assert_eq!(members(&world, switch), [(1, true), (2, true)]);
        world.digest()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn a_port_whose_cable_comes_back_has_its_lid_again() {
    let (mut world, switch) = two_adapters(1);
    world.run_until_idle(Time::MAX);
    world.set_link_up(LinkId(0), false).unwrap();
    assert_eq!(members(&world, switch), [(2, true)]);
    world.set_link_up(LinkId(0), true).unwrap();
    world.run_until(world.now() + Duration::from_micros(20));
    assert_eq!(members(&world, switch), [(1, true), (2, true)]);
}

#[test]
fn silent_ports_do_not_keep_the_world_busy_and_groups_reach_them() {
    let player = |mac| Player::new(mac).of_infiniband();
    let (mut world, switch, nodes) = subnet(1, [player(1), player(2), player(3)]);
    assert_eq!(world.run_until_idle(Time::MAX), Step::Idle);
    let asked = world.device(nodes[0]).received.len();
    assert_eq!(world.set_multicast_group(switch, 0xc007, &nodes[..2]), Ok(true));
    assert_eq!(world.set_multicast_group(switch, 7, &nodes), Ok(false), "no group");
    world.mmio_write(nodes[2], 100, &[0, 0, 0, 7]);
    world.run_until(world.now() + Duration::from_micros(5));
    let received = [0, 1, 2].map(|node| world.device(nodes[node]).received.len() - asked);
    assert_eq!(received, [1, 1, 0]);
}

#[test]
fn a_subnet_has_one_manager_a_switch_so_many_ports_and_no_ethernet() {
    let (mut world, switch, _) = subnet(1, (0..SWITCH_PORTS).map(|_| Player::new(1).of_infiniband()));
    let extra = world.add_node("extra", Player::default(), Bytes::default(), Latency::default());
    assert_eq!(world.connect(extra, switch, LINK), Err(TopologyError::SwitchFull(switch)));
    let second = world.add_subnet("second", SwitchConfig::default(), SubnetConfig::default());
    let third = world.add_subnet("third", SwitchConfig::default(), SubnetConfig::default());
    assert_eq!(world.connect(second, third, LINK), Err(TopologyError::SecondSubnetManager));
    world.connect(extra, second, LINK).unwrap();
    assert!(!world.device(extra).link_up, "an Ethernet port at an InfiniBand switch");
}

//! Subnet management while data waits: packets of virtual lane 15 overtake data, and are not dropped when the data buffer is full.

use super::fabric::datagram;
use super::player::Bytes;
use super::station::Station;
use crate::net::{LinkConfig, Member, SubnetConfig, SwitchConfig};
use crate::run::{Latency, NodeId, SwitchId, World};
use crate::wire::infiniband::parse;
use crate::wire::management::{Method, SubnetPacket, attribute};
use bareverbs_prm::time::{Duration, Time};

const LINK: LinkConfig = LinkConfig::gigabits(100);
/// Room for a handful of datagrams.
const SMALL: SwitchConfig = SwitchConfig { buffer_per_port: 2_000, ..default_switch() };
const REQUESTS: u64 = 20;

const fn default_switch() -> SwitchConfig {
    SwitchConfig {
        latency: Duration::from_nanos(300),
        buffer_per_port: 1 << 20,
        mark_from: None,
        address_limit: 0,
        address_ageing: Duration::from_secs(1),
    }
}

/// Three hosts at a switch. The first two together send datagrams to the third faster than its link can carry.
struct Crowd {
    world: World<Bytes, Station>,
    switch: SwitchId,
    hosts: Vec<NodeId>,
    lids: Vec<u16>,
}

impl Crowd {
    fn new(config: SwitchConfig) -> Self {
        let mut world: World<Bytes, Station> = World::new(1);
        let switch = world.add_subnet("switch", config, SubnetConfig::default());
        let mut hosts = Vec::new();
        for number in 1..=3 {
            let host = world.add_node("host", Station::new(number), Bytes::default(), Latency::default());
            world.connect(host, switch, LINK).expect("a free port");
            hosts.push(host);
        }
        world.run_until_idle(Time::MAX);
        let lids = world.subnet_members(switch).map(|Member { lid, .. }| lid).collect();
        Self { world, switch, hosts, lids }
    }

    /// Queues `count` datagrams on each of two hosts, with requests between the datagrams of the second.
    fn crowd(&mut self, count: u64) {
        for (from, asks) in [(0, false), (1, true)] {
            let (frame, icrc) = datagram(self.lids[from], self.lids[2], None);
            for number in 0..count {
                let lids = (self.lids[from], self.lids[2]);
                self.world.with_device(self.hosts[from], |station, _, _| {
                    station.send(frame.clone(), icrc);
                    if asks && number % (count / REQUESTS) == 0 {
                        let request =
                            SubnetPacket::lid_routed(Method::Get, attribute::NODE_INFO, 1 << 62 | number);
                        let (frame, icrc) = request.to_frame(lids.0, lids.1);
                        station.send(frame, icrc);
                    }
                });
            }
        }
    }

    /// Answers to the requests that have come back.
    fn responses(&self) -> u64 {
        let frames = &self.world.device(self.hosts[1]).managed;
        let packets = frames.iter().filter_map(|frame| SubnetPacket::of(&parse(frame).expect("a packet")));
        packets.filter(|packet| packet.is_returning() || packet.method() == Method::Response).count() as u64
    }
}

/// Requirement: IBTA v1.4 §7.6.4: a full data buffer drops no packets of virtual lane 15: each arrives and gets a
/// response.
#[test]
fn a_buffer_full_of_data_stops_no_management() {
    let mut crowd = Crowd::new(SMALL);
    crowd.crowd(400);
    crowd.world.run_until(crowd.world.now() + Duration::from_millis(1));
    let dropped = crowd.world.switch_counters(crowd.switch).expect("a switch").tail_dropped;
    assert!(dropped > 200, "data was dropped: {dropped}");
    assert_eq!(crowd.responses(), REQUESTS);
}

/// Requirement: IBTA v1.4 §7.6.4: packets of virtual lane 15 overtake waiting data: requests get responses while the port
/// still has data queued.
#[test]
fn management_goes_before_data_that_waits() {
    let mut crowd = Crowd::new(SwitchConfig::default());
    crowd.crowd(4_000);
    // Data of both hosts takes 105 µs, twice what one link carries meanwhile.
    let start = crowd.world.now();
    while crowd.responses() < REQUESTS {
        crowd.world.run_until(crowd.world.now() + Duration::from_micros(1));
        assert!(crowd.world.now() < start + Duration::from_millis(1), "{} answers", crowd.responses());
    }
    let heard = crowd.world.device(crowd.hosts[2]).received.len();
    assert!(heard < 6_000, "data still waits: {heard} of 8000 have arrived");
}

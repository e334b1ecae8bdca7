//! Random subnets of up to 100 switches: every port reaches every other, even after link failures.

use super::groups::{BROADCAST, FULL, JOIN, member};
use super::*;
use crate::net::SubnetSwitchConfig;
use crate::wire::management::administration::record;
use bareverbs_prm::time::Duration;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const MOST_SWITCHES: usize = 100;
/// Ports of a switch; the first has a host.
const PORTS: u8 = 60;
/// Switches that a packet passes before it is dropped. While the SM writes tables, those of two switches may send a packet
/// back and forth until the SM goes on, which takes time that packets do not take here.
const MOST_HOPS: usize = 4 * MOST_SWITCHES;
/// Time for the SM to finish, sweeps included.
const LONG: Duration = Duration::from_secs(4);

/// A port of a switch, counted from 0: switch index, port.
type At = (usize, usize);

/// A packet on its way: where it arrives, and the switches that it has passed.
struct Flying {
    at: At,
    hops: usize,
    frame: Vec<u8>,
}

/// Randomly connected switches, with a host at the first port of each. Packets take no time.
struct RandomSubnet {
    switches: Vec<Switch>,
    hosts: Vec<Agent>,
    cables: Vec<[At; 2]>,
    /// Indices of links that are down.
    out: BTreeSet<usize>,
    now: Time,
    flying: VecDeque<Flying>,
    /// Every so many packets one is lost; none if it is 0.
    losing: usize,
    sent: usize,
}

impl RandomSubnet {
    fn new(switches: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut subnet = Self {
            switches: vec![Switch::infiniband(SubnetConfig { guid: 0x1000, ..SubnetConfig::default() })],
            hosts: (0..switches).map(|number| Agent::new(1 + number as u64)).collect(),
            cables: Vec::new(),
            out: BTreeSet::new(),
            now: Time::ZERO,
            flying: VecDeque::new(),
            losing: 0,
            sent: 0,
        };
        for number in 1..switches {
            let config = SubnetSwitchConfig {
                guid: 0x1000 + number as u64,
                ports: PORTS,
                description: format!("switch {number}"),
            };
            subnet.switches.push(Switch::infiniband_without_manager(&config));
        }
        let mut next = vec![1; switches];
        for (one, other) in pairs {
            if one != other && next[one].max(next[other]) < usize::from(PORTS) {
                subnet.cables.push([(one, next[one]), (other, next[other])]);
                next[one] += 1;
                next[other] += 1;
            }
        }
        (0..switches).for_each(|switch| subnet.switches[switch].handle_link(Time::ZERO, 0, true));
        (0..subnet.cables.len()).for_each(|cable| subnet.tell(cable, true));
        subnet
    }

    fn tell(&mut self, cable: usize, up: bool) {
        for (switch, port) in self.cables[cable] {
            self.switches[switch].handle_link(self.now, port, up);
        }
    }

    fn set_out(&mut self, cable: usize, out: bool) {
        if out != self.out.contains(&cable) {
            if out {
                self.out.insert(cable)
            } else {
                self.out.remove(&cable)
            };
            self.tell(cable, !out);
        }
    }

    /// The peer of each connected switch port.
    fn peers(&self) -> BTreeMap<At, At> {
        let up = self.cables.iter().enumerate().filter(|(cable, _)| !self.out.contains(cable));
        up.flat_map(|(_, [one, other])| [(*one, *other), (*other, *one)]).collect()
    }

    /// Lets switches, hosts and sweeps run for a while.
    fn pass(&mut self, time: Duration) {
        let (peers, end) = (self.peers(), self.now + time);
        loop {
            self.carry(&peers, usize::MAX);
            let due = self.switches.iter().filter_map(Switch::poll_timeout).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = due.max(self.now);
            for switch in &mut self.switches {
                if switch.poll_timeout().is_some_and(|due| due <= self.now) {
                    switch.handle_timeout(self.now);
                }
            }
        }
        self.now = end;
    }

    /// Delivers packets until none is left, or so many of them.
    fn carry(&mut self, peers: &BTreeMap<At, At>, most: usize) {
        for switch in 0..self.switches.len() {
            self.leave(switch, &Flying { at: (switch, 0), hops: 0, frame: Vec::new() }, peers);
        }
        for _ in 0..most {
            let Some(arrived) = self.flying.pop_front() else { return };
            let (switch, port) = arrived.at;
            self.switches[switch].handle_frame(self.now, port, &arrived.frame);
            if self.losing != 0 {
                check_pending(&self.switches[switch]);
            }
            self.leave(switch, &arrived, peers);
        }
    }

    /// Carries on what a switch sends after this packet has arrived.
    fn leave(&mut self, switch: usize, arrived: &Flying, peers: &BTreeMap<At, At>) {
        while let Some(egress) = self.switches[switch].poll() {
            self.sent += 1;
            if self.sent.checked_rem(self.losing) == Some(0) {
                continue;
            }
            let (port, frame, hops) = match egress {
                Egress::Forward { port } | Egress::Copy { port } => {
                    (port, arrived.frame.clone(), arrived.hops + 1)
                }
                Egress::Own { port, frame, .. } => (port, frame, 0),
            };
            if port == 0 {
                let frame = self.hosts[switch].answer(&frame);
                self.flying.push_back(Flying { at: (switch, 0), hops: 0, frame });
            } else if let Some(at) = peers.get(&(switch, port)).filter(|_| hops < MOST_HOPS) {
                self.flying.push_back(Flying { at: *at, hops, frame });
            }
        }
    }

    /// Switches connected to the SM's switch.
    fn reached(&self) -> Vec<usize> {
        let peers = self.peers();
        let mut reached = vec![0];
        let mut next = 0;
        while let Some(&switch) = reached.get(next) {
            next += 1;
            for (_, (far, _)) in peers.range((switch, 0)..(switch + 1, 0)) {
                if !reached.contains(far) {
                    reached.push(*far);
                }
            }
        }
        reached
    }

    /// The host that a packet from a switch's host reaches, following the switches' tables.
    fn walk(&mut self, from: usize, lid: u16, peers: &BTreeMap<At, At>) -> Option<usize> {
        let [high, low] = lid.to_be_bytes();
        let (mut at, packet) = ((from, 0), [0, 2, high, low, 0, 0, 0, 0]);
        for _ in 0..=self.switches.len() {
            self.switches[at.0].handle_frame(self.now, at.1, &packet);
            let Some(Egress::Forward { port }) = self.switches[at.0].poll() else { return None };
            if port == 0 {
                return Some(at.0);
            }
            at = *peers.get(&(at.0, port))?;
        }
        None
    }

    /// Every second host of the SM's part joins the broadcast group, again if it is a member already.
    fn join(&mut self) -> Vec<usize> {
        let members: Vec<usize> = self.reached().into_iter().step_by(2).collect();
        let peers = self.peers();
        for host in &members {
            let requested = member(BROADCAST, self.hosts[*host].guid, FULL);
            let asked = request(SET, record::MC_MEMBER, JOIN, &requested).to_bytes();
            let frame = general_frame(self.hosts[*host].lid, &asked, GENERAL_SERVICES_QKEY, 0xffff);
            self.deliver(*host, frame.to_vec(), &peers);
        }
        members
    }

    /// Carries a host's packet, and all packets that it causes; returns the hosts that received one.
    fn deliver(&mut self, from: usize, frame: Vec<u8>, peers: &BTreeMap<At, At>) -> Vec<usize> {
        let mut arriving = VecDeque::from([((from, 0), frame)]);
        let mut heard = Vec::new();
        let mut steps = 0;
        while let Some(((switch, port), frame)) = arriving.pop_front() {
            steps += 1;
            assert!(steps < 10_000, "a packet circulates forever");
            self.switches[switch].handle_frame(self.now, port, &frame);
            while let Some(egress) = self.switches[switch].poll() {
                let (port, bytes) = match egress {
                    Egress::Forward { port } | Egress::Copy { port } => (port, frame.clone()),
                    Egress::Own { port, frame, .. } => (port, frame),
                };
                if port == 0 && !Subnet::is_management(&bytes) {
                    heard.push(switch);
                } else if port == 0 {
                    arriving.push_back(((switch, 0), self.hosts[switch].answer(&bytes)));
                } else if let Some(peer) = peers.get(&(switch, port)) {
                    arriving.push_back((*peer, bytes));
                }
            }
        }
        heard.sort_unstable();
        heard
    }

    /// Members of the broadcast group whose packet does not reach exactly the other members, once each.
    fn unheard(&mut self, members: &[usize]) -> Vec<usize> {
        let (peers, part) = (self.peers(), self.reached());
        let members: Vec<usize> = members.iter().copied().filter(|host| part.contains(host)).collect();
        let mut unheard = Vec::new();
        for from in &members {
            let mut others: Vec<usize> = members.iter().copied().filter(|host| host != from).collect();
            others.sort_unstable();
            let [high, low] = FIRST_MULTICAST_LID.to_be_bytes();
            if self.deliver(*from, vec![0, 2, high, low, 0, 0, 0, 0], &peers) != others {
                unheard.push(*from);
            }
        }
        unheard
    }

    /// Pairs of hosts in the SM's part of the subnet where one cannot reach the other.
    fn unreached(&mut self) -> Vec<(usize, usize)> {
        let (peers, part) = (self.peers(), self.reached());
        let members: BTreeSet<u64> = self.switches[0].members().map(|member| member.guid).collect();
        let expected: BTreeSet<u64> = part.iter().map(|host| self.hosts[*host].guid).collect();
        assert_eq!(members, expected, "the SM knows exactly its part of the subnet");
        let mut unreached = Vec::new();
        for from in &part {
            for to in part.iter().filter(|to| *to != from) {
                // A switch never sends a packet back through its ingress port, so ask each host's own switch only for
                // other hosts.
                if self.walk(*from, self.hosts[*to].lid, &peers) != Some(*to) {
                    unreached.push((*from, *to));
                }
            }
        }
        unreached
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Requirement: IBTA v1.4 §14.4.3: in any topology the manager fills the tables so that each end port reaches every
    /// other, and does so again after links have failed and recovered; LIDs stay. A packet to a group reaches each other
    /// member once.
    #[test]
    fn any_topology_is_swept_and_each_port_reaches_every_other(
        parents in prop::collection::vec(any::<prop::sample::Index>(), 0..MOST_SWITCHES),
        extra in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..80),
        failing in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let switches = parents.len() + 1;
        let tree = parents.iter().zip(1..).map(|(parent, switch)| (parent.index(switch), switch));
        let circles = extra.iter().map(|(one, other)| (one.index(switches), other.index(switches)));
        let mut subnet = RandomSubnet::new(switches, tree.chain(circles).collect::<Vec<_>>());
        subnet.pass(LONG);
        prop_assert_eq!(subnet.unreached(), []);
        let members = subnet.join();
        subnet.pass(LONG);
        prop_assert_eq!(subnet.unheard(&members), []);
        let lids: Vec<u16> = subnet.hosts.iter().map(|host| host.lid).collect();
        let cables = subnet.cables.len();
        failing.iter().filter(|_| cables > 0).for_each(|cable| subnet.set_out(cable.index(cables), true));
        subnet.pass(LONG);
        prop_assert_eq!(subnet.unreached(), []);
        prop_assert_eq!(subnet.unheard(&members), []);
        (0..cables).for_each(|cable| subnet.set_out(cable, false));
        subnet.pass(LONG);
        prop_assert_eq!(subnet.unreached(), []);
        // Hosts that were cut off have left their groups.
        let members = subnet.join();
        subnet.pass(LONG);
        prop_assert_eq!(subnet.unheard(&members), []);
        prop_assert_eq!(subnet.hosts.iter().map(|host| host.lid).collect::<Vec<_>>(), lids);
    }

    /// The manager waits for exactly the responses that its ports and switches owe it, whichever packets are lost and
    /// whichever links fail while others are on their way. It then recovers.
    #[test]
    fn a_lossy_subnet_leaves_no_request_behind(
        parents in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        losing in 3_usize..12,
        failing in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..40, 0_u64..700), 0..40),
    ) {
        let tree = parents.iter().zip(1..).map(|(parent, switch)| (parent.index(switch), switch));
        let ring = [(0, parents.len())];
        let mut subnet = RandomSubnet::new(parents.len() + 1, tree.chain(ring).collect::<Vec<_>>());
        subnet.losing = losing;
        for (cable, packets, millis) in &failing {
            let cable = cable.index(subnet.cables.len());
            subnet.set_out(cable, !subnet.out.contains(&cable));
            subnet.carry(&subnet.peers(), *packets);
            // Otherwise the next link fails while these packets are on their way.
            if *millis >= 100 {
                subnet.pass(Duration::from_millis(*millis));
            }
            check_pending(&subnet.switches[0]);
        }
        subnet.losing = 0;
        (0..subnet.cables.len()).for_each(|cable| subnet.set_out(cable, false));
        subnet.pass(LONG);
        check_pending(&subnet.switches[0]);
        prop_assert_eq!(subnet.unreached(), []);
    }
}

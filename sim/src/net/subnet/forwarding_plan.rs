//! The SM's plan for the discovered topology: switches, routes, and the tables to write.

use super::forwarding::{LINEAR_BLOCK, NO_PORT, multicast_bytes, multicast_places};
use super::remote_switch::{BlockPlace, Blocks};
use super::routing::{Cable, Cables, RoutedPort, Routes};
use super::switch_port::SwitchPort;
use crate::net::port_set::PortSet;
use crate::wire::management::attribute;
use std::collections::{BTreeMap, BTreeSet};

/// A port that takes part in a multicast group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupPort {
    pub(super) at: SwitchPort,
    /// Whether it receives the group's packets. Otherwise it only sends.
    pub(super) receives: bool,
}

/// An end port and its LIDs.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortLids {
    pub(super) at: SwitchPort,
    pub(super) lid: u16,
    pub(super) lids: u16,
    /// See [`RoutedPort::is_end`].
    pub(super) is_end: bool,
}

/// The plan; see the module.
#[derive(Debug, Default)]
pub(super) struct ForwardingPlan {
    indices: BTreeMap<u64, usize>,
    guids: Vec<u64>,
    cables: Cables,
    routes: Routes,
    /// Index of each LID among the routes.
    route_indices: BTreeMap<u16, usize>,
    /// Linear forwarding tables.
    linear: Vec<Blocks>,
}

impl ForwardingPlan {
    /// `cables` connect ports of these switches; cables to other switches are ignored.
    pub(super) fn new(
        switches: impl IntoIterator<Item = u64>,
        cables: impl IntoIterator<Item = [SwitchPort; 2]>,
        port_lids: impl IntoIterator<Item = PortLids>,
    ) -> Self {
        let guids: Vec<u64> = switches.into_iter().collect();
        let indices: BTreeMap<u64, usize> = guids.iter().copied().zip(0..).collect();
        let cables = by_switch(&indices, cables);
        let destinations: Vec<RoutedPort> = port_lids
            .into_iter()
            .filter_map(|PortLids { at, lid, lids, is_end }| {
                let switch = *indices.get(&at.switch)?;
                Some(RoutedPort { switch, port: at.port, lid, lids, is_end })
            })
            .collect();
        let routes = Routes::new(&cables, &destinations);
        let route_indices =
            routes.lid_routes.iter().zip(0..).map(|(route, place)| (route.lid, place)).collect();
        let linear = linear_blocks(&routes, guids.len());
        Self { indices, guids, cables, routes, route_indices, linear }
    }

    /// Linear forwarding table of a switch.
    pub(super) fn linear(&self, switch: u64) -> Blocks {
        let index = self.indices.get(&switch);
        index.and_then(|index| self.linear.get(*index)).cloned().unwrap_or_default()
    }

    /// Egress ports between switches on the path from a switch to a LID, without the last hop; `None` if there is no
    /// path.
    pub(super) fn hops(&self, from: u64, lid: u16) -> Option<Vec<SwitchPort>> {
        let route = self.routes.lid_routes.get(*self.route_indices.get(&lid)?)?;
        let mut at = *self.indices.get(&from)?;
        let mut hops = Vec::new();
        while hops.len() <= self.guids.len() {
            let port = route.ports[at]?;
            let Some((_, next, _)) = self.cables[at].iter().find(|cable| cable.0 == port) else {
                return Some(hops);
            };
            hops.push(SwitchPort { switch: self.guids[at], port });
            at = *next;
        }
        None
    }

    /// Ports of each switch for a multicast group, counted from 0.
    pub(super) fn group(&self, ports: &[GroupPort]) -> BTreeMap<u64, PortSet> {
        let mut exits: BTreeMap<u64, PortSet> = BTreeMap::new();
        let mut add = |switch: u64, port: u8| {
            let set = exits.entry(switch).or_default();
            *set = port.checked_sub(1).map_or(*set, |port| set.with(port.into()));
        };
        let switches: BTreeSet<usize> =
            ports.iter().filter_map(|port| self.indices.get(&port.at.switch)).copied().collect();
        for (switch, port) in self.routes.tree.branches(&switches.into_iter().collect::<Vec<_>>()) {
            add(self.guids[switch], port);
        }
        ports.iter().filter(|port| port.receives).for_each(|port| add(port.at.switch, port.at.port));
        exits
    }

    /// Multicast forwarding table of each switch, in blocks.
    pub(super) fn multicast(&self, groups: &BTreeMap<u16, Vec<GroupPort>>) -> BTreeMap<u64, Blocks> {
        let mut by_switch: BTreeMap<u64, BTreeMap<u16, PortSet>> = BTreeMap::new();
        for (lid, ports) in groups {
            for (switch, exits) in self.group(ports) {
                by_switch.entry(switch).or_default().insert(*lid, exits);
            }
        }
        by_switch.into_iter().map(|(switch, groups)| (switch, multicast_blocks(&groups))).collect()
    }
}

/// Links by switch; each appears at both ends.
fn by_switch(indices: &BTreeMap<u64, usize>, cables: impl IntoIterator<Item = [SwitchPort; 2]>) -> Cables {
    let mut sides: Vec<BTreeSet<Cable>> = vec![BTreeSet::new(); indices.len()];
    for [one, other] in cables {
        let (Some(near), Some(far)) = (indices.get(&one.switch), indices.get(&other.switch)) else {
            continue;
        };
        if near != far {
            sides[*near].insert((one.port, *far, other.port));
            sides[*far].insert((other.port, *near, one.port));
        }
    }
    sides.into_iter().map(|side| side.into_iter().collect()).collect()
}

fn linear_blocks(routes: &Routes, switches: usize) -> Vec<Blocks> {
    let mut tables = vec![Blocks::new(); switches];
    for route in &routes.lid_routes {
        let modifier = u32::from(route.lid / LINEAR_BLOCK);
        let place = BlockPlace { attribute: attribute::LINEAR_FORWARDING, modifier };
        for (table, port) in tables.iter_mut().zip(&route.ports) {
            if let Some(port) = port {
                let block = table.entry(place).or_insert([NO_PORT; LINEAR_BLOCK as usize]);
                block[usize::from(route.lid % LINEAR_BLOCK)] = *port;
            }
        }
    }
    tables
}

fn multicast_blocks(groups: &BTreeMap<u16, PortSet>) -> Blocks {
    let places: BTreeSet<(u16, u8)> =
        groups.iter().flat_map(|(lid, ports)| multicast_places(*lid, *ports)).collect();
    let block = |(block, position): (u16, u8)| {
        let modifier = u32::from(position) << 28 | u32::from(block);
        let bytes = multicast_bytes(block, position, |lid| groups.get(&lid).copied());
        (BlockPlace { attribute: attribute::MULTICAST_FORWARDING, modifier }, bytes)
    };
    places.into_iter().map(block).collect()
}

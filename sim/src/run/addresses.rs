//! Static switch addresses from the topology: which address is behind which switch port.
//!
//! A world knows its topology, so it configures its switches and they have nothing to learn. Addresses that a driver
//! makes up, or that a device does not announce, are learned as usual.

use super::device::Device;
use super::topology::{End, NodeOrSwitch, TopologyError};
use super::world::World;
use crate::nic::HostMemory;
use bareverbs_prm::ids::MacAddress;
use std::collections::BTreeSet;

/// Everything connected to one end of a new cable.
#[derive(Debug)]
pub(super) struct Side {
    /// Every node, and every switch with its port towards the cable. The first is the cable's own end.
    pub(super) ends: Vec<End>,
    /// The nodes and switches of `ends`.
    places: BTreeSet<NodeOrSwitch>,
    /// MAC addresses of the nodes.
    addresses: Vec<MacAddress>,
}

impl<M: HostMemory, D: Device> World<M, D> {
    /// The side of a cable about to be plugged in at `place`.
    pub(super) fn side(&self, place: NodeOrSwitch) -> Side {
        let mut ends = vec![self.next_end(place)];
        let mut places = BTreeSet::from([place.place()]);
        let mut next = 0;
        while let Some(end) = ends.get(next).copied() {
            next += 1;
            if let End::Switch { switch, port: entrance } = end {
                let ways = self.switches[switch.index()].egress.iter().enumerate();
                let onwards = ways.filter(|(port, _)| *port != entrance).filter_map(|(_, way)| *way);
                let onwards = onwards.map(|way| self.ways[way].to);
                ends.extend(onwards.filter(|to| places.insert(to.place())));
            }
        }
        let addresses = ends.iter().filter_map(|end| self.address(*end)).collect();
        Side { ends, places, addresses }
    }

    /// The end of the next cable at `place`.
    fn next_end(&self, place: NodeOrSwitch) -> End {
        match place {
            NodeOrSwitch::Node(node) => End::Node(node),
            NodeOrSwitch::Switch(switch) => {
                End::Switch { switch, port: self.switches[switch.index()].egress.len() }
            }
            NodeOrSwitch::SwitchPort { switch, port } => {
                End::Switch { switch, port: usize::from(port).saturating_sub(1) }
            }
        }
    }

    fn address(&self, end: End) -> Option<MacAddress> {
        match end {
            End::Node(node) => self.nodes[node.index()].device.mac(),
            End::Switch { .. } => None,
        }
    }

    /// Tells the switches on one side about the addresses on the other.
    pub(super) fn tell_switches(&mut self, near: &Side, far: &Side) {
        for end in &near.ends {
            if let End::Switch { switch, port } = *end {
                let switch = &mut self.switches[switch.index()].switch;
                far.addresses.iter().for_each(|address| switch.set_static_address(*address, port));
            }
        }
    }
}

impl Side {
    /// Whether a node or switch is on this side.
    pub(super) fn contains(&self, place: NodeOrSwitch) -> bool {
        self.places.contains(&place)
    }

    /// Refuses duplicate addresses, which a switch could not tell apart. Two nodes back to back may share one.
    pub(super) fn check_addresses(&self, other: &Self) -> Result<(), TopologyError> {
        let has_switch = |side: &Self| side.ends.iter().any(|end| matches!(end, End::Switch { .. }));
        if !has_switch(self) && !has_switch(other) {
            return Ok(());
        }
        let others: BTreeSet<&MacAddress> = other.addresses.iter().collect();
        let twice = self.addresses.iter().find(|address| others.contains(address));
        twice.map_or(Ok(()), |address| Err(TopologyError::SameAddress(*address)))
    }
}

//! The switches and cables of a site, and where its hosts are plugged in.

use bareverbs_prm::time::Time;
use bareverbs_sim::net::topology::{CableEnd, NodeKind, SubnetTopology};
use bareverbs_sim::net::{SubnetConfig, SubnetSwitchConfig, Switch};
use core::fmt;
use std::collections::BTreeMap;
use std::io;

/// A port of a switch, both counted from 0.
pub(super) type At = (usize, usize);

/// Where a host of a site is plugged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPlace {
    /// GUID of the host's node.
    pub node: u64,
    /// Which port of the node it is.
    pub port: u8,
    /// GUID of that port.
    pub guid: u64,
    pub(super) at: At,
}

/// Why a site was not built.
#[derive(Debug)]
pub enum SiteError {
    /// There is no switch in which the manager could be.
    NoSwitch,
    /// A node that no network here has: its GUID.
    Router(u64),
    /// Two hosts with a cable between them, which has no place here: GUID and port of one.
    BackToBack(u64, u8),
    /// The thread of the network cannot be had.
    Thread(io::Error),
}

impl fmt::Display for SiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSwitch => f.write_str("the topology has no switch: the manager of its subnet needs one"),
            Self::Router(guid) => {
                write!(
                    f,
                    "node {guid:#x} is a router, which a network has none of: take it out of the topology"
                )
            }
            Self::BackToBack(guid, port) => write!(
                f,
                "port {port} of host {guid:#x} is joined to another host: only hosts at switches have a place"
            ),
            Self::Thread(error) => write!(f, "cannot start the thread of the network: {error}"),
        }
    }
}

impl std::error::Error for SiteError {}

/// See the module.
pub(super) struct Site {
    /// That with the manager is the first.
    pub(super) switches: Vec<Switch>,
    pub(super) cables: BTreeMap<At, At>,
    pub(super) hosts: Vec<HostPlace>,
}

impl Site {
    /// Switches whose cables are plugged in. Hosts have places, and no links yet.
    pub(super) fn build(topology: &SubnetTopology, config: &SubnetConfig) -> Result<Self, SiteError> {
        let subnet = config.with_topology(topology).ok_or(SiteError::NoSwitch)?;
        let (mut site, mut indices) =
            (Self { switches: Vec::new(), cables: BTreeMap::new(), hosts: Vec::new() }, BTreeMap::new());
        let is_switch = |node: &usize| topology.nodes[*node].kind == NodeKind::Switch;
        let mut switches: Vec<usize> = (0..topology.nodes.len()).filter(is_switch).collect();
        switches.sort_by_key(|node| topology.nodes[*node].guid != subnet.guid);
        for number in switches {
            let node = &topology.nodes[number];
            let mut switch = if node.guid == subnet.guid {
                Switch::infiniband(subnet.clone())
            } else {
                let (guid, description) = (node.guid, node.description.clone());
                Switch::infiniband_without_manager(&SubnetSwitchConfig {
                    guid,
                    ports: node.ports,
                    description,
                })
            };
            for _ in 0..node.ports {
                switch.add_port();
            }
            indices.insert(number, site.switches.len());
            site.switches.push(switch);
        }
        for ends in topology.cables() {
            site.add_cable(topology, &indices, ends)?;
        }
        Ok(site)
    }

    fn add_cable(
        &mut self,
        topology: &SubnetTopology,
        switches: &BTreeMap<usize, usize>,
        [one, other]: [CableEnd; 2],
    ) -> Result<(), SiteError> {
        let place = |end: CableEnd| {
            let port = usize::from(end.port).checked_sub(1)?;
            Some((*switches.get(&end.node)?, port))
        };
        for end in [one, other] {
            let node = &topology.nodes[end.node];
            if node.kind == NodeKind::Router {
                return Err(SiteError::Router(node.guid));
            }
        }
        let (at, host) = match (place(one), place(other)) {
            (Some(one), Some(other)) => {
                self.cables.extend([(one, other), (other, one)]);
                for (switch, port) in [one, other] {
                    self.switches[switch].handle_link(Time::ZERO, port, true);
                }
                return Ok(());
            }
            (Some(at), None) => (at, other),
            (None, Some(at)) => (at, one),
            (None, None) => return Err(SiteError::BackToBack(topology.nodes[one.node].guid, one.port)),
        };
        self.hosts.push(host_at(topology, host, at));
        Ok(())
    }
}

fn host_at(topology: &SubnetTopology, end: CableEnd, at: At) -> HostPlace {
    let node = &topology.nodes[end.node];
    let guid = node.links.get(&end.port).map_or(node.guid, |link| link.guid);
    HostPlace { node: node.guid, port: end.port, guid, at }
}

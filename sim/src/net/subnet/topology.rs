//! The discovered topology as a value: which ports are connected.

use super::directory::{Directory, own_port};
use super::end_port::{EndPort, PortAttributes};
use super::switch_port::SwitchPort;
use super::{Managing, Subnet};
use crate::net::topology::{LinkSpeed, NodeKind, SubnetTopology, TopologyLink, TopologyNode};
use crate::wire::management::attributes::PortInfo;
use crate::wire::management::node_type;
use std::collections::BTreeMap;

impl Subnet {
    /// What the SM has discovered, if it runs on this switch: the switches and the active end ports.
    pub(in crate::net) fn topology(&self) -> Option<SubnetTopology> {
        let Managing { manager, .. } = self.managing.as_deref()?;
        let directory = Directory::new(manager, &self.agent);
        let mut found = Found::default();
        let own = own_port(&self.agent);
        let is_switch = |end: &&EndPort<'_>| end.at.port == 0;
        let further = directory.ends.iter().filter(is_switch).filter(|end| end.guid() != own.guid());
        [&own].into_iter().chain(further).for_each(|end| found.add_switch(end));
        for [one, other] in &directory.cables {
            found.join(*one, *other, directory.port_info(*one));
        }
        for end in directory.ends.iter().filter(|end| end.at.port != 0) {
            found.add_end_port(end);
        }
        Some(SubnetTopology { nodes: found.nodes })
    }
}

#[derive(Default)]
struct Found {
    nodes: Vec<TopologyNode>,
    by_guid: BTreeMap<u64, usize>,
}

impl Found {
    fn add_switch(&mut self, end: &EndPort<'_>) {
        let mut node = node(end.attributes, NodeKind::Switch);
        (node.lid, node.lmc) = (end.lid, end.lmc);
        self.by_guid.insert(end.at.switch, self.nodes.len());
        self.nodes.push(node);
    }

    /// Adds a link between switches, as one end describes it.
    fn join(&mut self, one: SwitchPort, other: SwitchPort, info: Option<&PortInfo>) {
        let ends = [one, other].map(|end| self.by_guid.get(&end.switch).map(|node| (*node, end.port)));
        let ([Some(near), Some(far)], Some(info)) = (ends, info) else { return };
        for ((from, port), (to, to_port)) in [(near, far), (far, near)] {
            let guid = self.nodes[from].port_guid;
            let link = TopologyLink { guid, lid: 0, lmc: 0, node: to, port: to_port, speed: speed(info) };
            self.nodes[from].links.insert(port, link);
        }
    }

    /// Adds the port of an adapter, whose node may have other ports.
    fn add_end_port(&mut self, end: &EndPort<'_>) {
        let Some(switch) = self.by_guid.get(&end.at.switch).copied() else { return };
        let (attributes, next) = (end.attributes, self.nodes.len());
        let index = *self.by_guid.entry(attributes.node.node_guid()).or_insert(next);
        if index == next {
            let is_router = attributes.node.node_type() == node_type::ROUTER;
            let kind = if is_router { NodeKind::Router } else { NodeKind::ChannelAdapter };
            self.nodes.push(node(attributes, kind));
        }
        let (port, speed) = (end.number(), speed(&attributes.port));
        let link = TopologyLink {
            guid: end.guid(),
            lid: end.lid,
            lmc: end.lmc,
            node: switch,
            port: end.at.port,
            speed,
        };
        self.nodes[index].links.insert(port, link);
        let guid = self.nodes[switch].port_guid;
        let back = TopologyLink { guid, lid: 0, lmc: 0, node: index, port, speed };
        self.nodes[switch].links.insert(end.at.port, back);
    }
}

fn node(attributes: &PortAttributes, kind: NodeKind) -> TopologyNode {
    let info = &attributes.node;
    let end =
        attributes.description.iter().position(|byte| *byte == 0).unwrap_or(attributes.description.len());
    TopologyNode {
        kind,
        guid: info.node_guid(),
        port_guid: info.port_guid(),
        system_guid: info.system_image_guid(),
        vendor: info.vendor_id(),
        device: info.device_id(),
        ports: info.num_ports(),
        description: String::from_utf8_lossy(&attributes.description[..end]).into_owned(),
        is_enhanced: false,
        lid: 0,
        lmc: 0,
        links: BTreeMap::new(),
    }
}

fn speed(info: &PortInfo) -> LinkSpeed {
    LinkSpeed::of_port(info.link_width_active(), info.link_speed_active(), info.link_speed_ext_active())
}

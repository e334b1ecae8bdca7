//! Putting a world together: nodes, switches, cables, faults, a capture.

use super::device::Device;
use super::latency::Latency;
use super::node::Node;
use super::topology::{End, LinkCounters, LinkId, NodeId, Port, SwitchId, TopologyError, Way, way_numbers};
use super::world::{SwitchNode, World};
use crate::net::capture::{Capture, CaptureError, Clock, LinkType};
use crate::net::fault::{FaultId, Faults, RandomFaults, ScriptedFault};
use crate::net::link::{LinkConfig, Rate};
use crate::net::queue::EgressQueue;
use crate::net::switch::{Switch, SwitchConfig, SwitchCounters};
use crate::nic::{HostMemory, LinkLayer};
use bareverbs_prm::ids::MacAddress;
use std::io::Write;

impl<M: HostMemory, D: Device> World<M, D> {
    /// Adds a node without a cable.
    pub fn add_node(&mut self, name: &str, device: D, memory: M, latency: Latency) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node::new(name.to_owned(), device, memory, latency));
        id
    }

    /// Adds a switch without cables.
    pub fn add_switch(&mut self, name: &str, config: SwitchConfig) -> SwitchId {
        let id = SwitchId(self.switches.len() as u32);
        let forwarding = Switch::default();
        self.switches.push(SwitchNode { name: name.to_owned(), config, forwarding, egress: Vec::new() });
        id
    }

    /// Joins two ports with a cable: two nodes back to back, a node and a switch, or two switches. Between ports of
    /// different link layers the link stays down, as real ones do; switches are of Ethernet.
    pub fn connect(
        &mut self,
        a: impl Into<Port>,
        b: impl Into<Port>,
        config: LinkConfig,
    ) -> Result<LinkId, TopologyError> {
        let (a, b) = (a.into(), b.into());
        self.check_port(a)?;
        self.check_port(b)?;
        if self.is_joined(a, b) {
            return Err(TopologyError::Loop);
        }
        let link = LinkId(self.ways.len() as u32 / 2);
        let [there, back] = way_numbers(link);
        let (a, b) = (self.plug(a, there), self.plug(b, back));
        self.add_way(a, b, config);
        self.add_way(b, a, config);
        self.set_link_up(link, true)?;
        Ok(link)
    }

    /// Pulls the cable out (`up` false) or plugs it in again; frames on the way are not touched, frames sent while it is
    /// out are lost.
    pub fn set_link_up(&mut self, link: LinkId, up: bool) -> Result<(), TopologyError> {
        let up = up && self.speaks_one_language(link)?;
        for way in way_numbers(link) {
            self.ways.get_mut(way).ok_or(TopologyError::Unknown)?.up = up;
        }
        self.tell_devices(link, up);
        Ok(())
    }

    /// Whether both ends of a link have the same link layer.
    fn speaks_one_language(&self, link: LinkId) -> Result<bool, TopologyError> {
        let [there, _] = way_numbers(link);
        let way = self.ways.get(there).ok_or(TopologyError::Unknown)?;
        Ok(self.link_layer(way.from) == self.link_layer(way.to))
    }

    fn link_layer(&self, end: End) -> LinkLayer {
        match end {
            End::Node(node) => self.nodes[node.index()].device.link_layer(),
            End::Switch { .. } => LinkLayer::Ethernet,
        }
    }

    /// Tells a switch by hand that `address` is behind the link to `neighbour`.
    pub fn set_switch_address(
        &mut self,
        switch: SwitchId,
        address: MacAddress,
        neighbour: impl Into<Port>,
    ) -> Result<(), TopologyError> {
        let way = self.find_way(Port::Switch(switch), neighbour.into())?;
        let entry = self.switches.get_mut(switch.0 as usize).ok_or(TopologyError::Unknown)?;
        let port = entry.egress.iter().position(|&egress| egress == way).ok_or(TopologyError::NotJoined)?;
        entry.forwarding.set_address(address, port);
        Ok(())
    }

    /// Name of a node.
    pub fn node_name(&self, node: NodeId) -> &str {
        &self.nodes[node.index()].name
    }

    /// Nodes in the order in which they were added.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<M, D> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// What a switch did so far.
    pub fn switch_counters(&self, switch: SwitchId) -> Option<SwitchCounters> {
        self.switches.get(switch.0 as usize).map(|entry| entry.forwarding.counters)
    }

    /// What passed from `from` to `to`, which are joined by a link.
    pub fn link_counters(
        &self,
        from: impl Into<Port>,
        to: impl Into<Port>,
    ) -> Result<LinkCounters, TopologyError> {
        self.find_way(from.into(), to.into()).map(|way| self.ways[way].counters)
    }

    /// Sets the faults by chance of the direction from `from` to `to`.
    pub fn set_random_faults(
        &mut self,
        from: impl Into<Port>,
        to: impl Into<Port>,
        random: RandomFaults,
    ) -> Result<(), TopologyError> {
        self.faults_of(from.into(), to.into())?.set_random(random);
        Ok(())
    }

    /// Sets the same faults by chance on every direction of every link.
    pub fn set_random_faults_everywhere(&mut self, random: RandomFaults) {
        for way in 0..self.ways.len() {
            self.faults_on(way).set_random(random);
        }
    }

    /// Arms a scripted fault on the direction from `from` to `to`. Frames are counted from the first fault on.
    pub fn script_fault(
        &mut self,
        from: impl Into<Port>,
        to: impl Into<Port>,
        fault: ScriptedFault,
    ) -> Result<FaultId, TopologyError> {
        let id = FaultId(self.faults);
        self.faults_of(from.into(), to.into())?.arm(id, fault);
        self.faults += 1;
        Ok(id)
    }

    /// Begins to record every frame that leaves a node, and every frame that a switch or a fault beyond it loses. Add all
    /// nodes and switches first: each is an interface of the capture. A capture that was running is thrown away.
    pub fn start_capture(&mut self, out: Box<dyn Write>) {
        let mut capture = Capture::new(out, Clock::Virtual);
        for name in
            self.nodes.iter().map(|node| &node.name).chain(self.switches.iter().map(|entry| &entry.name))
        {
            capture.add_interface(name, LinkType::Ethernet);
        }
        self.capture = Some(capture);
    }

    /// Ends the capture; gives the number of frames in it, or why they are not all there. Without a capture that is 0.
    pub fn finish_capture(&mut self) -> Result<u64, CaptureError> {
        self.capture.take().map_or(Ok(0), Capture::finish)
    }

    fn check_port(&self, port: Port) -> Result<(), TopologyError> {
        match port {
            Port::Node(node) => {
                let entry = self.nodes.get(node.index()).ok_or(TopologyError::Unknown)?;
                entry.egress.map_or(Ok(()), |_| Err(TopologyError::PortInUse(node)))
            }
            Port::Switch(switch) => {
                self.switches.get(switch.0 as usize).map(|_| ()).ok_or(TopologyError::Unknown)
            }
        }
    }

    /// Whether a frame can already get from `a` to `b`: another cable would let it run in circles, and the switches have no
    /// spanning tree protocol.
    fn is_joined(&self, a: Port, b: Port) -> bool {
        let mut reached = vec![a];
        let mut next = 0;
        while let Some(&port) = reached.get(next) {
            next += 1;
            let neighbours = self.ways.iter().filter(|way| way.from.port() == port).map(|way| way.to.port());
            for neighbour in neighbours {
                if !reached.contains(&neighbour) {
                    reached.push(neighbour);
                }
            }
        }
        reached.contains(&b)
    }

    fn plug(&mut self, port: Port, way: usize) -> End {
        match port {
            Port::Node(node) => {
                self.nodes[node.index()].egress = Some(way);
                End::Node(node)
            }
            Port::Switch(switch) => {
                let entry = &mut self.switches[switch.0 as usize];
                entry.egress.push(way);
                End::Switch { switch, port: entry.forwarding.add_port() }
            }
        }
    }

    fn add_way(&mut self, from: End, to: End, config: LinkConfig) {
        let rate = Rate::new(config.bits_per_second);
        let queue = match from {
            End::Node(node) => EgressQueue::pipeline(rate, self.nodes[node.index()].latency.longest()),
            End::Switch { switch, .. } => {
                EgressQueue::buffer(rate, self.switches[switch.0 as usize].config.buffer_per_port)
            }
        };
        self.ways.push(Way {
            name: format!("{}>{}", self.end_name(from), self.end_name(to)),
            from,
            to,
            queue,
            propagation: config.propagation,
            faults: None,
            held: Vec::new(),
            up: true,
            counters: LinkCounters::default(),
            room_awaited: false,
        });
    }

    fn end_name(&self, end: End) -> &str {
        match end {
            End::Node(node) => &self.nodes[node.index()].name,
            End::Switch { switch, .. } => &self.switches[switch.0 as usize].name,
        }
    }

    fn tell_devices(&mut self, link: LinkId, up: bool) {
        for way in way_numbers(link) {
            if let End::Node(node) = self.ways[way].from {
                self.with_device(node, |device, memory, now| device.set_link_up(now, memory, up));
            }
        }
    }

    fn find_way(&self, from: Port, to: Port) -> Result<usize, TopologyError> {
        let joins = |way: &Way| way.from.port() == from && way.to.port() == to;
        self.ways.iter().position(joins).ok_or(TopologyError::NotJoined)
    }

    fn faults_of(&mut self, from: Port, to: Port) -> Result<&mut Faults, TopologyError> {
        let way = self.find_way(from, to)?;
        Ok(self.faults_on(way))
    }

    fn faults_on(&mut self, way: usize) -> &mut Faults {
        let (seed, entry) = (self.seed, &mut self.ways[way]);
        let name = &entry.name;
        entry.faults.get_or_insert_with(|| Box::new(Faults::new(seed.stream(&format!("faults of {name}")))))
    }
}

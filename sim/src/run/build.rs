//! Construction of a world: nodes, switches, cables, faults.

use super::addresses::Side;
use super::device::Device;
use super::latency::Latency;
use super::node::Node;
use super::switch_node::SwitchNode;
use super::timer::Timer;
use super::topology::{
    End, LinkCounters, LinkId, NodeId, NodeOrSwitch, SwitchId, TopologyError, Way, way_numbers,
};
use super::world::World;
use crate::net::fault::{FaultId, Faults, RandomFaults, ScriptedFault};
use crate::net::link::{LinkConfig, Rate};
use crate::net::queue::EgressQueue;
use crate::net::topology::SubnetTopology;
use crate::net::{Member, PortSet, SubnetConfig, SubnetSwitchConfig, Switch, SwitchConfig, SwitchCounters};
use crate::nic::{HostMemory, LinkLayer};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::Duration;

impl<M: HostMemory, D: Device> World<M, D> {
    /// Adds a node without a cable.
    pub fn add_node(&mut self, name: &str, mut device: D, memory: M, latency: Latency) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        device.begin_without_cable();
        self.nodes.push(Node::new(name.to_owned(), device, memory, latency));
        id
    }

    /// Adds an Ethernet switch without cables.
    pub fn add_switch(&mut self, name: &str, config: SwitchConfig) -> SwitchId {
        self.add_switch_of(name, config, Switch::ethernet(&config))
    }

    /// Adds an InfiniBand switch without cables. Its subnet manager assigns LIDs to connected ports and activates them,
    /// in virtual time; add nodes with [`SubnetMembership::Managed`](crate::nic::SubnetMembership::Managed).
    pub fn add_subnet(&mut self, name: &str, config: SwitchConfig, subnet: SubnetConfig) -> SwitchId {
        self.add_switch_of(name, config, Switch::infiniband(subnet))
    }

    /// Adds another InfiniBand switch to a subnet started with [`Self::add_subnet`]. The SM discovers it once a chain
    /// of cables leads there. InfiniBand switches may have parallel cables and loops between them.
    pub fn add_subnet_switch(
        &mut self,
        name: &str,
        config: SwitchConfig,
        subnet: &SubnetSwitchConfig,
    ) -> SwitchId {
        self.add_switch_of(name, config, Switch::infiniband_without_manager(subnet))
    }

    fn add_switch_of(&mut self, name: &str, config: SwitchConfig, switch: Switch) -> SwitchId {
        let id = SwitchId(self.switches.len() as u32);
        let (name, timer) = (name.to_owned(), Timer::IDLE);
        self.switches.push(SwitchNode { name, config, switch, egress: Vec::new(), timer });
        id
    }

    /// Connects two ports with a cable: two nodes back to back, a node and a switch, or two switches. Between ports of
    /// different link layers the link stays down, as in reality. Ethernet switches get the addresses behind each port,
    /// so they flood nothing to nodes of this world.
    pub fn connect(
        &mut self,
        a: impl Into<NodeOrSwitch>,
        b: impl Into<NodeOrSwitch>,
        config: LinkConfig,
    ) -> Result<LinkId, TopologyError> {
        let (a, b) = (a.into(), b.into());
        self.check_port(a)?;
        self.check_port(b)?;
        let (side_a, side_b) = (self.side(a), self.side(b));
        // Whether a frame can already get from one end to the other. Another cable then makes a loop.
        if side_a.contains(b.place()) {
            self.check_loop(a.place(), b.place())?;
        } else {
            self.check_managers(&side_a, &side_b)?;
        }
        side_a.check_addresses(&side_b)?;
        let link = LinkId(self.ways.len() as u32 / 2);
        let [there, back] = way_numbers(link);
        let (a, b) = (self.plug(a, there), self.plug(b, back));
        self.add_way(a, b, config);
        self.add_way(b, a, config);
        self.tell_switches(&side_a, &side_b);
        self.tell_switches(&side_b, &side_a);
        self.set_link_up(link, true)?;
        Ok(link)
    }

    /// Pulls the cable (`up` false) or plugs it in again. Frames in flight are unaffected; frames sent while the link
    /// is down are lost.
    pub fn set_link_up(&mut self, link: LinkId, up: bool) -> Result<(), TopologyError> {
        let up = up && self.speaks_one_language(link)?;
        for way in way_numbers(link) {
            self.ways.get_mut(way).ok_or(TopologyError::Unknown)?.up = up;
        }
        self.tell_ends(link, up);
        Ok(())
    }

    /// Changes rate and latency of both directions of a link, for frames sent from now on. Frames in flight keep
    /// theirs, so later frames may overtake them if the link got faster.
    pub fn set_link_config(&mut self, link: LinkId, config: LinkConfig) -> Result<(), TopologyError> {
        for number in way_numbers(link) {
            let to = self.ways.get(number).ok_or(TopologyError::Unknown)?.to;
            let delay = config.propagation + self.host_delay(to);
            let way = &mut self.ways[number];
            way.queue.set_rate(Rate::new(config.bits_per_second));
            way.delay = delay;
        }
        Ok(())
    }

    /// Partitions two nodes: frames between them are dropped in both directions, while all others reach both. `parted`
    /// false ends this. Frames are dropped at their last hop, so they still load the links before it.
    pub fn set_partition(&mut self, a: NodeId, b: NodeId, parted: bool) {
        for pair in [(a, b), (b, a)] {
            match parted {
                true => self.partitions.insert(pair),
                false => self.partitions.remove(&pair),
            };
        }
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
            End::Switch { switch, .. } => self.switches[switch.index()].link_layer(),
        }
    }

    /// Tells an Ethernet switch that `address` is behind the link to `neighbour`.
    pub fn set_switch_address(
        &mut self,
        switch: SwitchId,
        address: MacAddress,
        neighbour: impl Into<NodeOrSwitch>,
    ) -> Result<(), TopologyError> {
        let port = self.port_towards(switch, neighbour.into())?;
        self.switches[switch.index()].switch.set_static_address(address, port);
        Ok(())
    }

    /// Makes `neighbours` the ports of multicast group `lid` of an InfiniBand switch, as the SA does when ports join
    /// and leave. False if `lid` is not a multicast LID or belongs to a group of the SA, or the table is full.
    pub fn set_multicast_group(
        &mut self,
        switch: SwitchId,
        lid: u16,
        neighbours: &[NodeId],
    ) -> Result<bool, TopologyError> {
        let mut ports = PortSet::default();
        for neighbour in neighbours {
            ports = ports.with(self.port_towards(switch, NodeOrSwitch::Node(*neighbour))?);
        }
        Ok(self.switches[switch.index()].switch.set_multicast_ports(lid, ports))
    }

    /// The subnet as the SM on this switch has discovered it. Its text form is that of `ibnetdiscover`.
    pub fn subnet_topology(&self, switch: SwitchId) -> Option<SubnetTopology> {
        self.switches.get(switch.index())?.switch.topology()
    }

    /// Members of an InfiniBand switch's subnet, as its SM knows them.
    pub fn subnet_members(&self, switch: SwitchId) -> impl Iterator<Item = Member> + '_ {
        self.switches.get(switch.index()).into_iter().flat_map(|entry| entry.switch.members())
    }

    /// The port of a switch whose cable leads to `neighbour`.
    fn port_towards(&self, switch: SwitchId, neighbour: NodeOrSwitch) -> Result<usize, TopologyError> {
        match self.ways[self.find_way(NodeOrSwitch::Switch(switch), neighbour)?].from {
            End::Switch { port, .. } => Ok(port),
            End::Node(_) => Err(TopologyError::NotJoined),
        }
    }

    /// Counters of a switch.
    pub fn switch_counters(&self, switch: SwitchId) -> Option<SwitchCounters> {
        self.switches.get(switch.index()).map(|entry| entry.switch.counters())
    }

    /// Traffic from `from` to `to`, which must be connected by a link.
    pub fn link_counters(
        &self,
        from: impl Into<NodeOrSwitch>,
        to: impl Into<NodeOrSwitch>,
    ) -> Result<LinkCounters, TopologyError> {
        self.find_way(from.into(), to.into()).map(|way| self.ways[way].counters)
    }

    /// Sets the random faults for the direction from `from` to `to`.
    pub fn set_random_faults(
        &mut self,
        from: impl Into<NodeOrSwitch>,
        to: impl Into<NodeOrSwitch>,
        random: RandomFaults,
    ) -> Result<(), TopologyError> {
        self.faults_of(from.into(), to.into())?.set_random(random);
        Ok(())
    }

    /// Sets the same random faults for both directions of every link.
    pub fn set_random_faults_everywhere(&mut self, random: RandomFaults) {
        for way in 0..self.ways.len() {
            self.faults_on(way).set_random(random);
        }
    }

    /// Arms a scripted fault for the direction from `from` to `to`. The first fault starts the frame count.
    pub fn script_fault(
        &mut self,
        from: impl Into<NodeOrSwitch>,
        to: impl Into<NodeOrSwitch>,
        fault: ScriptedFault,
    ) -> Result<FaultId, TopologyError> {
        let id = FaultId(self.faults);
        self.faults_of(from.into(), to.into())?.arm(id, fault);
        self.faults += 1;
        Ok(id)
    }

    fn check_port(&self, port: NodeOrSwitch) -> Result<(), TopologyError> {
        match port {
            NodeOrSwitch::Node(node) => {
                let entry = self.nodes.get(node.index()).ok_or(TopologyError::Unknown)?;
                entry.egress.map_or(Ok(()), |_| Err(TopologyError::PortInUse(node)))
            }
            NodeOrSwitch::Switch(switch) => {
                let entry = self.switches.get(switch.index()).ok_or(TopologyError::Unknown)?;
                if entry.switch.has_room() { Ok(()) } else { Err(TopologyError::SwitchFull(switch)) }
            }
            NodeOrSwitch::SwitchPort { switch, port } => {
                let entry = self.switches.get(switch.index()).ok_or(TopologyError::Unknown)?;
                let index = usize::from(port).wrapping_sub(1);
                let is_free = entry.egress.get(index).is_none_or(Option::is_none);
                let may = is_free && index < entry.switch.port_limit();
                if may { Ok(()) } else { Err(TopologyError::SwitchPort(switch, port)) }
            }
        }
    }

    /// Only InfiniBand switches can handle loops. The others have no spanning tree protocol.
    fn check_loop(&self, a: NodeOrSwitch, b: NodeOrSwitch) -> Result<(), TopologyError> {
        let knows_ways = |place| self.infiniband_switch(place).is_some();
        if a != b && knows_ways(a) && knows_ways(b) { Ok(()) } else { Err(TopologyError::Loop) }
    }

    /// A subnet has one SM.
    fn check_managers(&self, a: &Side, b: &Side) -> Result<(), TopologyError> {
        let switch = |end: &End| self.infiniband_switch(end.place());
        let is_switch = |side: &Side| side.ends.first().and_then(switch).is_some();
        let is_managed = |side: &Side| side.ends.iter().filter_map(switch).any(Switch::has_manager);
        let sides = [a, b];
        if sides.into_iter().all(is_switch) && sides.into_iter().all(is_managed) {
            return Err(TopologyError::SecondSubnetManager);
        }
        Ok(())
    }

    fn infiniband_switch(&self, place: NodeOrSwitch) -> Option<&Switch> {
        match place {
            NodeOrSwitch::Node(_) => None,
            NodeOrSwitch::Switch(switch) | NodeOrSwitch::SwitchPort { switch, .. } => {
                Some(&self.switches[switch.index()].switch).filter(|switch| switch.is_infiniband())
            }
        }
    }

    fn plug(&mut self, port: NodeOrSwitch, way: usize) -> End {
        match port {
            NodeOrSwitch::Node(node) => {
                self.nodes[node.index()].egress = Some(way);
                End::Node(node)
            }
            NodeOrSwitch::Switch(switch) => {
                let entry = &mut self.switches[switch.index()];
                entry.egress.push(Some(way));
                End::Switch { switch, port: entry.switch.add_port() }
            }
            NodeOrSwitch::SwitchPort { switch, port } => {
                let (entry, port) = (&mut self.switches[switch.index()], usize::from(port) - 1);
                while entry.egress.len() <= port {
                    entry.egress.push(None);
                    entry.switch.add_port();
                }
                entry.egress[port] = Some(way);
                End::Switch { switch, port }
            }
        }
    }

    fn add_way(&mut self, from: End, to: End, config: LinkConfig) {
        let rate = Rate::new(config.bits_per_second);
        let queue = match from {
            End::Node(node) => EgressQueue::pipeline(rate, self.nodes[node.index()].latency.longest()),
            End::Switch { switch, .. } => {
                EgressQueue::buffer(rate, self.switches[switch.index()].config.buffer_per_port)
            }
        };
        self.ways.push(Way {
            name: format!("{}>{}", self.end_name(from), self.end_name(to)),
            from,
            to,
            queue,
            delay: config.propagation + self.host_delay(to),
            faults: None,
            held: Vec::new(),
            up: true,
            counters: LinkCounters::default(),
            room_awaited: false,
        });
    }

    /// Delay at the receiving end before a frame takes effect.
    fn host_delay(&self, to: End) -> Duration {
        match to {
            End::Node(node) => self.nodes[node.index()].latency.wire_to_host,
            End::Switch { .. } => Duration::ZERO,
        }
    }

    fn end_name(&self, end: End) -> &str {
        match end {
            End::Node(node) => &self.nodes[node.index()].name,
            End::Switch { switch, .. } => &self.switches[switch.index()].name,
        }
    }

    fn tell_ends(&mut self, link: LinkId, up: bool) {
        for way in way_numbers(link) {
            match self.ways[way].from {
                End::Node(node) => {
                    self.with_device(node, |device, memory, now| device.set_link_up(now, memory, up));
                }
                End::Switch { switch, port } => self.switch_link(switch, port, up),
            }
        }
    }

    fn find_way(&self, from: NodeOrSwitch, to: NodeOrSwitch) -> Result<usize, TopologyError> {
        let joins = |way: &Way| way.from.place() == from && way.to.place() == to;
        self.ways.iter().position(joins).ok_or(TopologyError::NotJoined)
    }

    fn faults_of(&mut self, from: NodeOrSwitch, to: NodeOrSwitch) -> Result<&mut Faults, TopologyError> {
        let way = self.find_way(from, to)?;
        Ok(self.faults_on(way))
    }

    fn faults_on(&mut self, way: usize) -> &mut Faults {
        let (seed, layer) = (self.seed, self.link_layer(self.ways[way].from));
        let entry = &mut self.ways[way];
        let name = &entry.name;
        entry.faults.get_or_insert_with(|| {
            let faults = Faults::new(seed.stream(&format!("faults of {name}")));
            Box::new(if layer == LinkLayer::InfiniBand { faults.of_infiniband() } else { faults })
        })
    }
}

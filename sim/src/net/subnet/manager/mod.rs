//! The subnet manager (IBTA v1.4 §14.4). It discovers, configures and monitors what is attached to its own switch and
//! to the switches beyond.
//!
//! The SM uses directed routes to identify the neighbour at each linked port. It brings up an adapter's port
//! (`neighbour`) and discovers the ports of a switch (`remote_switch`), recursively. Once discovery is complete, it
//! computes routes (`forwarding_plan`, `routing`) and writes the switches' forwarding tables. Unanswered requests are retried a
//! few times. Every sweep rechecks every node: a port that has lost its state, as after a reset, is brought up again
//! with the same LID. A switch reports link changes by a trap; if the trap is lost, the next sweep finds them.

mod pending;
mod requests;

use super::agent::MANAGER_LID;
use super::config::SubnetConfig;
use super::end_port::EndPort;
use super::events::ServiceChange;
use super::forwarding_plan::{ForwardingPlan, GroupPort, PortLids};
use super::lids::Lids;
use super::mastership::OtherManager;
use super::neighbour::{BringUp, Neighbour};
use super::partitions::{PartitionedPort, Partitions};
use super::remote_switch::RemoteSwitch;
use super::switch_port::SwitchPort;
use crate::net::topology::NodeKind;
use crate::wire::management::attributes::{CapabilityDetails, NodeInfo, Notice, PortInfo, SwitchInfo};
use crate::wire::management::{HOPS, Method, SubnetPacket, attribute, status};
use bareverbs_prm::time::Time;
use pending::{PendingRequests, RequestTarget};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zerocopy::FromBytes;

/// Maximum number of switches that a manager adopts. It bounds the memory that a rogue node can use by
/// inventing switches.
const SWITCHES: usize = 128;
/// Trap 144 (IBTA v1.4 §14.2.5.1): a port's capabilities or its node description changed.
pub(super) const CAPABILITY_CHANGE: u16 = 144;

/// A port that has a LID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// GUID of the switch it is attached to.
    pub switch: u64,
    /// Port of that switch, counted from 0.
    pub port: usize,
    /// GUID of the attached port.
    pub guid: u64,
    /// Base LID.
    pub lid: u16,
    /// LMC: the port has `1 << lmc` LIDs.
    pub lmc: u8,
    /// Whether the port is active, as far as the SM knows.
    pub is_active: bool,
}

/// The subnet manager; see the module.
#[derive(Debug)]
pub(super) struct Manager {
    config: SubnetConfig,
    neighbours: BTreeMap<SwitchPort, Neighbour>,
    switches: BTreeMap<u64, RemoteSwitch>,
    lids: Lids,
    transactions: u64,
    pending: PendingRequests,
    /// Packets to send, each with its egress port.
    packets: VecDeque<(u8, SubnetPacket)>,
    /// Ports that came into service or went out of it.
    service: VecDeque<ServiceChange>,
    /// Other SMs discovered at ports.
    others: VecDeque<OtherManager>,
    /// Whether this SM has taken over from another one.
    is_successor: bool,
    /// Whether links or LIDs have changed since the last plan.
    is_changed: bool,
    plan: ForwardingPlan,
}

impl Manager {
    pub(super) fn new(mut config: SubnetConfig) -> Self {
        config.lmc = config.lmc.min(7);
        let lids = Lids::new(config.lmc, core::mem::take(&mut config.known_lids));
        Self {
            config,
            neighbours: BTreeMap::new(),
            switches: BTreeMap::new(),
            lids,
            transactions: 0,
            pending: PendingRequests::default(),
            packets: VecDeque::new(),
            service: VecDeque::new(),
            others: VecDeque::new(),
            is_successor: false,
            is_changed: true,
            plan: ForwardingPlan::default(),
        }
    }

    /// A new SM that takes over with the earlier LID assignments.
    pub(super) fn successor(&self) -> Self {
        let mut manager = Self::new(self.config.clone());
        manager.lids = self.lids.clone();
        (manager.transactions, manager.is_successor) = (self.transactions, true);
        manager
    }

    /// The next SM that was discovered at a port.
    pub(super) fn poll_other(&mut self) -> Option<OtherManager> {
        self.others.pop_front()
    }

    /// Handles a link of the own switch that came up or went down.
    pub(super) fn handle_link(&mut self, now: Time, port: u8, up: bool) {
        let at = SwitchPort { switch: self.config.guid, port };
        self.unplug(now, at);
        if up {
            self.plug(now, at);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        for target in self.pending.due(now) {
            self.send_request(now, target);
        }
    }

    /// Handles a response that arrived at a port of the own switch. A response that no target waits for, or an error
    /// status, changes nothing.
    pub(super) fn handle_response(&mut self, now: Time, port: u8, response: &SubnetPacket) {
        let Some(target) = self.pending.target(response.transaction()) else { return };
        let is_way = self.route(target).is_some_and(|route| route.first() == Some(&port));
        let is_asked = self.exchange(target).is_some_and(|exchange| exchange.is_answered_by(response));
        if response.method() != Method::Response || !is_way || !is_asked {
            return;
        }
        if response.status() != status::OK {
            return self.hear_refusal(now, target);
        }
        match target {
            RequestTarget::Port(at) => self.hear_port(now, at, response),
            RequestTarget::Switch(guid) => self.hear_switch(now, guid, response),
        }
        self.send_request(now, target);
    }

    /// Handles an error status. An optional request is skipped, all others are retried.
    fn hear_refusal(&mut self, now: Time, target: RequestTarget) {
        match target {
            RequestTarget::Port(at) => {
                if self.neighbours.get_mut(&at).is_some_and(|neighbour| neighbour.refuse(now)) {
                    self.send_request(now, target);
                }
            }
            RequestTarget::Switch(guid) => {
                if let Some(switch) = self.switches.get_mut(&guid) {
                    switch.refuse();
                }
            }
        }
    }

    /// Handles a trap. Returns its notice if the sender is in the subnet; the caller then sends TrapRepress (IBTA v1.4
    /// §13.4.9).
    pub(super) fn handle_trap(&mut self, now: Time, trap: &SubnetPacket, source: u16) -> Option<Notice> {
        let notice: Option<Notice> = trap.read().filter(|_| trap.attribute().0 == attribute::NOTICE);
        let notice = notice.filter(Notice::is_generic)?;
        let (lid, lmc) = (notice.issuer_lid(), self.config.lmc);
        // A port may only speak for itself (IBTA v1.4 §13.4.8.2, IssuerLID), but may use any of its LIDs.
        if lid >> lmc != source >> lmc {
            return None;
        }
        let switch = self.switches.iter_mut().find(|(_, switch)| lid != 0 && switch.lid == lid);
        if let Some((guid, switch)) = switch {
            let guid = *guid;
            switch.look_again();
            self.follow(RequestTarget::Switch(guid));
            self.wake(now, guid);
            return Some(notice);
        }
        if notice.trap() == CAPABILITY_CHANGE {
            let details = CapabilityDetails::read_from_bytes(&notice.details()).unwrap_or_default();
            let is_renamed = details.other_local_changes() && details.node_description_change();
            self.look_at(now, lid, is_renamed);
        }
        let is_member = self.members().any(|member| lid >> member.lmc == member.lid >> member.lmc);
        is_member.then_some(notice)
    }

    /// Immediately rechecks the port with this LID, and its node description if that has changed.
    fn look_at(&mut self, now: Time, lid: u16, is_renamed: bool) {
        let lmc = self.config.lmc;
        let mut ports = self.neighbours.iter_mut();
        let Some((at, port)) = ports.find(|(_, port)| port.is_up() && lid >> lmc == port.lid >> lmc) else {
            return;
        };
        if is_renamed {
            port.rename();
        }
        if port.exchange.is_open() {
            return;
        }
        let at = *at;
        port.exchange.end(now);
        self.send_request(now, RequestTarget::Port(at));
    }

    pub(super) fn poll_packet(&mut self) -> Option<(u8, SubnetPacket)> {
        self.packets.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.pending.next_due()
    }

    /// The next port that came into service or went out of it.
    pub(super) fn poll_service(&mut self) -> Option<ServiceChange> {
        self.service.pop_front()
    }

    /// Whether every target was found in order or given up after `time`.
    pub(super) fn is_settled_since(&self, time: Time) -> bool {
        let mut ports = self.neighbours.values();
        let mut switches = self.switches.values().map(|switch| &switch.exchange);
        ports.all(|port| port.is_known() && port.exchange.is_settled_since(time))
            && switches.all(|exchange| exchange.is_settled_since(time))
    }

    /// Computes a new plan if links or LIDs have changed and discovery is complete. Returns whether it did.
    pub(super) fn take_plan_change(&mut self) -> bool {
        // A successor leaves the tables alone until discovery is complete, so that data keeps flowing.
        let waits = self.is_successor || !self.switches.is_empty();
        if !self.is_changed || waits && self.pending.is_exploring() {
            return false;
        }
        self.is_changed = false;
        let own = SwitchPort { switch: self.config.guid, port: 0 };
        let port_lids = [PortLids { at: own, lid: MANAGER_LID, lids: 1, is_end: true }];
        let switches = self.switches.iter().filter(|(_, switch)| switch.lid != 0).map(|(guid, switch)| {
            let at = SwitchPort { switch: *guid, port: 0 };
            PortLids { at, lid: switch.lid, lids: 1, is_end: false }
        });
        let ports = self.neighbours.iter().filter(|(_, neighbour)| neighbour.lid != 0);
        let lids = 1 << self.config.lmc;
        let ports = ports.map(|(at, neighbour)| PortLids { at: *at, lid: neighbour.lid, lids, is_end: true });
        self.plan = ForwardingPlan::new(
            [own.switch].into_iter().chain(self.switches.keys().copied()),
            self.cables(),
            port_lids.into_iter().chain(switches).chain(ports),
        );
        true
    }

    /// Starts writing the other switches' tables as planned, with these multicast groups.
    pub(super) fn write_tables(&mut self, now: Time, groups: &BTreeMap<u16, Vec<GroupPort>>) {
        if self.switches.is_empty() {
            return;
        }
        let mut multicast = self.plan.multicast(groups);
        let guids: Vec<u64> = self.switches.keys().copied().collect();
        for guid in guids {
            let mut blocks = self.plan.linear(guid);
            blocks.append(&mut multicast.remove(&guid).unwrap_or_default());
            let enforced = self.enforced_ports(guid);
            if let Some(switch) = self.switches.get_mut(&guid) {
                switch.want(blocks, enforced);
            }
            self.wake(now, guid);
        }
    }

    /// P_Keys that the ports of a switch with attached adapters must enforce.
    fn enforced_ports(&self, guid: u64) -> BTreeMap<u8, Vec<u16>> {
        if !self.config.partitions.is_enforced() {
            return BTreeMap::new();
        }
        let keys = |neighbour: &Neighbour| neighbour.enforced_keys().map(<[u16]>::to_vec);
        self.neighbours_of(guid).filter_map(|(at, neighbour)| Some((at.port, keys(neighbour)?))).collect()
    }

    pub(super) const fn plan(&self) -> &ForwardingPlan {
        &self.plan
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.neighbours.iter().filter(|(_, neighbour)| neighbour.lid != 0).map(|(at, neighbour)| Member {
            switch: at.switch,
            port: usize::from(at.port) - 1,
            guid: neighbour.attributes.node.port_guid(),
            lid: neighbour.lid,
            lmc: self.config.lmc,
            is_active: neighbour.is_up(),
        })
    }

    /// Active ports and port 0 of other switches, as end ports for the SA.
    pub(super) fn end_ports(&self) -> impl Iterator<Item = EndPort<'_>> {
        let up = self.neighbours.iter().filter(|(_, neighbour)| neighbour.is_up());
        let ports = up.map(|(at, neighbour)| EndPort {
            lid: neighbour.lid,
            lmc: self.config.lmc,
            at: *at,
            attributes: &neighbour.attributes,
            partition_keys: &neighbour.partition_keys,
        });
        let switches = self.switches.iter().filter(|(_, switch)| switch.has_lid());
        ports.chain(switches.map(|(guid, switch)| EndPort {
            lid: switch.lid,
            lmc: 0,
            at: SwitchPort { switch: *guid, port: 0 },
            attributes: &switch.attributes,
            partition_keys: &switch.partition_keys,
        }))
    }

    /// Links between switches, each once.
    pub(super) fn cables(&self) -> BTreeSet<[SwitchPort; 2]> {
        let cables = self.neighbours.iter().filter_map(|(at, neighbour)| Some([*at, neighbour.as_switch()?]));
        let known = cables.filter(|[_, far]| self.knows_switch(far.switch));
        known.map(|[near, far]| if near < far { [near, far] } else { [far, near] }).collect()
    }

    /// PortInfo of another switch's external port.
    pub(super) fn port_info(&self, at: SwitchPort) -> Option<&PortInfo> {
        self.switches.get(&at.switch)?.port(at.port)
    }

    /// SwitchInfo of another switch.
    pub(super) fn switch_info(&self, guid: u64) -> Option<&SwitchInfo> {
        self.switches.get(&guid)?.info()
    }

    /// Ports of the own switch that should be active.
    pub(super) fn raised_ports(&self) -> impl Iterator<Item = u8> + '_ {
        let ready = |neighbour: &Neighbour| {
            neighbour.is_up() || matches!(neighbour.bring_up, BringUp::Activate | BringUp::Switch)
        };
        self.neighbours_of(self.config.guid)
            .filter(move |(_, neighbour)| ready(neighbour))
            .map(|(at, _)| at.port)
    }

    pub(super) const fn partitions(&self) -> &Partitions {
        &self.config.partitions
    }

    /// P_Keys that ports of the own switch must enforce; `None` means no enforcement.
    pub(super) fn own_partitions(&self) -> impl Iterator<Item = (u8, Option<&[u16]>)> {
        let own = self.config.partitions.is_enforced().then(|| self.neighbours_of(self.config.guid));
        own.into_iter().flatten().map(|(at, neighbour)| (at.port, neighbour.enforced_keys()))
    }

    /// Number of requests sent so far.
    pub(super) const fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Neighbours at the ports of a switch.
    fn neighbours_of(&self, guid: u64) -> impl Iterator<Item = (&SwitchPort, &Neighbour)> {
        self.neighbours
            .range(SwitchPort { switch: guid, port: 0 }..=SwitchPort { switch: guid, port: u8::MAX })
    }

    fn knows_switch(&self, guid: u64) -> bool {
        guid == self.config.guid || self.switches.contains_key(&guid)
    }

    fn plug(&mut self, now: Time, at: SwitchPort) {
        self.neighbours.insert(at, Neighbour::new(now));
        self.is_changed = true;
        self.send_request(now, RequestTarget::Port(at));
    }

    fn unplug(&mut self, now: Time, at: SwitchPort) {
        let Some(far) = self.drop_port(at) else { return };
        self.is_changed = true;
        if let Some(far) = far {
            // The link is down at both ends, whichever end reports it first.
            let is_joined = self.neighbours.get(&far).and_then(Neighbour::as_switch) == Some(at);
            if is_joined {
                self.drop_port(far);
            }
            self.find_routes();
            if is_joined {
                self.look_at_far_end(now, far);
            }
        }
    }

    /// Rechecks the far end of a link whose near end was down. If the link flaps, the far end may have reported that
    /// it is up again before the near end reports that it was down, and will not report it a second time.
    fn look_at_far_end(&mut self, now: Time, far: SwitchPort) {
        if far.switch == self.config.guid {
            self.plug(now, far);
        } else if let Some(switch) = self.switches.get_mut(&far.switch) {
            switch.read_again(far.port);
            self.follow(RequestTarget::Switch(far.switch));
            self.wake(now, far.switch);
        }
    }

    /// Drops a neighbour and its request. Returns the other switch's port, if the neighbour is a switch; `None` if
    /// there is no neighbour.
    fn drop_port(&mut self, at: SwitchPort) -> Option<Option<SwitchPort>> {
        let gone = self.neighbours.remove(&at)?;
        self.follow(RequestTarget::Port(at));
        self.service.extend(gone.service_end());
        Some(gone.as_switch())
    }

    fn hear_port(&mut self, now: Time, at: SwitchPort, response: &SubnetPacket) {
        let Some(neighbour) = self.neighbours.get_mut(&at) else { return };
        let was = neighbour.bring_up;
        neighbour.accept(now, response, self.is_successor);
        let (info, has_lid) = (neighbour.take_manager(), neighbour.attributes.port.lid());
        if was == BringUp::Inspect {
            self.lids.adopt(neighbour.attributes.node.port_guid(), has_lid);
        }
        let node = neighbour.attributes.node;
        if was == BringUp::Identify {
            let guid = node.port_guid();
            let port = PartitionedPort { guid, kind: NodeKind::ChannelAdapter, is_manager: false };
            neighbour.partition_keys = self.config.partitions.keys(port);
        }
        if let Some(far) = neighbour.as_switch() {
            self.hear_of_switch(now, far.switch, node);
        } else if neighbour.is_inspected() {
            self.assign_lid(at);
        }
        if let (Some(info), Some(route)) = (info, self.route(RequestTarget::Port(at))) {
            self.others.push_back(OtherManager { info, route });
        }
        let neighbour = self.neighbours.get_mut(&at);
        self.service.extend(neighbour.and_then(Neighbour::service_begin));
        if let Some(switch) = self.switches.get_mut(&at.switch) {
            switch.raise(at.port);
            self.wake(now, at.switch);
        }
    }

    /// Handles a neighbour that claims to be a switch.
    fn hear_of_switch(&mut self, now: Time, guid: u64, node: NodeInfo) {
        self.is_changed = true;
        if guid == 0 || self.knows_switch(guid) || self.switches.len() >= SWITCHES {
            return;
        }
        let own = PartitionedPort { guid: node.port_guid(), kind: NodeKind::Switch, is_manager: false };
        let mut switch = RemoteSwitch::new(now, node, self.config.partitions.keys(own), self.is_successor);
        switch.lid = self.lid_of(node.port_guid());
        self.switches.insert(guid, switch);
        self.find_routes();
        self.send_request(now, RequestTarget::Switch(guid));
    }

    fn hear_switch(&mut self, now: Time, guid: u64, response: &SubnetPacket) {
        let Some(switch) = self.switches.get_mut(&guid) else { return };
        let update = switch.accept(now, response);
        self.service.extend(switch.service_begin());
        let Some(update) = update else { return };
        let at = SwitchPort { switch: guid, port: update.port };
        if !update.is_linked || update.was_down {
            self.unplug(now, at);
        }
        if update.is_linked && self.knows_switch(guid) && !self.neighbours.contains_key(&at) {
            self.plug(now, at);
        }
    }

    /// Computes the shortest directed route to each switch. A switch without one is gone, with everything attached to
    /// it.
    fn find_routes(&mut self) {
        let mut routes: BTreeMap<u64, Vec<u8>> = [(self.config.guid, Vec::new())].into();
        let mut queue = VecDeque::from([self.config.guid]);
        while let Some(guid) = queue.pop_front() {
            let route = routes.get(&guid).cloned().unwrap_or_default();
            for (port, far) in self.switches_at(guid) {
                if route.len() < HOPS - 1 && self.knows_switch(far) && !routes.contains_key(&far) {
                    routes.insert(far, [&route[..], &[port]].concat());
                    queue.push_back(far);
                }
            }
        }
        for (guid, switch) in &mut self.switches {
            switch.route = routes.remove(guid).unwrap_or_default();
        }
        let gone = self.switches.iter().filter(|(_, switch)| switch.route.is_empty());
        let gone: Vec<u64> = gone.map(|(guid, _)| *guid).collect();
        for guid in gone {
            self.service.extend(self.switches.remove(&guid).and_then(|switch| switch.service_end()));
            self.follow(RequestTarget::Switch(guid));
        }
        let ports = self.neighbours.keys().filter(|at| !self.knows_switch(at.switch));
        let gone: Vec<SwitchPort> = ports.copied().collect();
        for at in gone {
            self.drop_port(at);
        }
    }

    /// Ports of a switch with the switches attached to them.
    fn switches_at(&self, guid: u64) -> Vec<(u8, u64)> {
        self.neighbours_of(guid)
            .filter_map(|(at, neighbour)| Some((at.port, neighbour.as_switch()?.switch)))
            .collect()
    }

    /// Directed route to a target: the egress port of each hop.
    fn route(&self, target: RequestTarget) -> Option<Vec<u8>> {
        let to_switch = |guid| match guid == self.config.guid {
            true => Some(Vec::new()),
            false => self.switches.get(&guid).map(|switch| switch.route.clone()),
        };
        match target {
            RequestTarget::Switch(guid) => to_switch(guid),
            RequestTarget::Port(at) => Some([to_switch(at.switch)?, vec![at.port]].concat()),
        }
    }

    /// Assigns a LID to a neighbour with a known GUID: its earlier one, or a free one.
    fn assign_lid(&mut self, at: SwitchPort) {
        let Some(guid) = self.neighbours.get(&at).and_then(Neighbour::port_guid) else { return };
        let lid = self.lid_of(guid);
        if let Some(neighbour) = self.neighbours.get_mut(&at).filter(|neighbour| neighbour.lid != lid) {
            neighbour.lid = lid;
            self.is_changed = true;
        }
    }

    /// Returns 0 if there are more ports than LIDs.
    fn lid_of(&mut self, guid: u64) -> u16 {
        let ports = self.neighbours.values().filter_map(Neighbour::port_guid);
        let switches = self.switches.values().map(|switch| switch.attributes.node.port_guid());
        self.lids.of(guid, || ports.chain(switches).collect()).unwrap_or(0)
    }
}

//! An InfiniBand switch and its role in subnet management: forwarding tables, the subnet management agent and, in one
//! switch of the subnet, the subnet manager (SM).
//!
//! **What this is.** [`Subnet`] tells the surrounding switch where a LID leads (IBTA v1.4 §18.2.4.3). The agent answers
//! subnet management packets and forwards those whose directed route continues. Behind port 0 of one switch runs the
//! SM: it discovers everything attached to all switches, assigns LIDs, fills the forwarding tables and activates the
//! ports. The subnet administration (SA) answers at queue pair 1 of the SM's LID, [`MANAGER_LID`].
//!
//! **What it may not do.** It floods nothing: an unassigned LID leads nowhere. Ports join multicast groups through the
//! SA; a group can also be set from outside. **Where to read first.** `manager`, then `routing`, then `administration`;
//! `mastership` and `succession` for subnets with several SMs.

mod administration;
mod agent;
mod config;
mod directory;
mod end_port;
mod enforcement;
mod events;
mod exchange;
mod forwarding;
mod forwarding_plan;
mod general_services;
mod lanes;
mod lids;
mod losses;
mod manager;
mod mastership;
mod neighbour;
mod partitions;
mod port_counters;
mod remote_switch;
mod routing;
mod succession;
mod switch_port;
mod topology;

pub use agent::MANAGER_LID;
pub use config::{SubnetConfig, SubnetSwitchConfig};
pub use manager::Member;
pub use partitions::{PartitionFileError, Partitions};

use super::port_set::PortSet;
use crate::wire::infiniband::{
    FIRST_MULTICAST_LID, MANAGEMENT_LANE, PERMISSIVE_LID, destination_lid, parse, virtual_lane,
};
use crate::wire::management::attributes::Notice;
use crate::wire::management::{Method, PortState, SubnetPacket, attribute};
use crate::wire::{FrameBuffer, LocalRoute, Network, Packet};
use administration::Administration;
use agent::SwitchAgent;
use bareverbs_prm::time::Time;
use directory::Directory;
use events::{ServiceChange, SubnetEvent, gid_notice, link_notice};
use forwarding::ForwardingTables;
use forwarding_plan::GroupPort;
use losses::ManagementLosses;
use manager::Manager;
use mastership::Mastership;
use port_counters::SwitchPortCounters;
use std::collections::{BTreeMap, VecDeque};

/// External ports of a switch. Directed routes name a port in one byte, and 255 is not a port (IBTA v1.4 §14.2.2).
pub const SWITCH_PORTS: usize = 254;
/// Maximum number of packets of the own node waiting to be sent. The switch takes them after every packet, so
/// one packet caused all of them.
const WAITING: usize = 64;

/// Forwarding tables and agent of a switch, and possibly the SM; see the module.
#[derive(Debug)]
pub struct Subnet {
    tables: ForwardingTables,
    agent: Box<SwitchAgent>,
    counters: SwitchPortCounters,
    losses: ManagementLosses,
    managing: Option<Box<Managing>>,
    /// Packets that the agent sends or forwards: port, frame, invariant CRC.
    responses: VecDeque<(usize, Vec<u8>, u32)>,
    /// Whether there may be packets to send. Most frames cause none.
    has_packets: bool,
}

/// State that only the SM's switch has.
#[derive(Debug)]
struct Managing {
    manager: Manager,
    administration: Administration,
    /// Members of multicast groups by LID.
    groups: BTreeMap<u16, Vec<GroupPort>>,
    mastership: Mastership,
    sm_key: u64,
}

/// What to do with a packet on the management lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Management {
    /// It was for the SM or for the agent of port 0.
    Taken,
    /// Forward it by its LID, or drop it if that leads nowhere.
    Forward(Option<usize>),
    /// Forwarded along its directed route, with the return path recorded.
    Passed,
    /// Its route continues, but there was no room for it.
    Dropped,
    /// Malformed, or a directed route that leads nowhere.
    Lost,
}

impl Subnet {
    /// A switch that hosts the SM.
    pub(super) fn of_manager(config: SubnetConfig) -> Self {
        let (sm_key, partitions) = (config.sm_key, &config.partitions);
        let agent = SwitchAgent::of_manager(&config);
        let administration = Administration::new(sm_key, partitions.ip_keys());
        let groups = BTreeMap::new();
        let mut subnet = Self::new(agent);
        let mastership = Mastership::new(config.guid, sm_key, config.priority);
        let manager = Manager::new(config);
        subnet.managing = Some(Box::new(Managing { manager, administration, groups, mastership, sm_key }));
        subnet.follow_manager(Time::ZERO);
        subnet
    }

    /// A switch without an SM, which an SM elsewhere has to discover.
    pub(super) fn of(config: &SubnetSwitchConfig) -> Self {
        Self::new(SwitchAgent::of(config))
    }

    fn new(agent: SwitchAgent) -> Self {
        let mut counters = SwitchPortCounters::default();
        counters.grow(agent.ports());
        Self {
            tables: ForwardingTables::default(),
            agent: Box::new(agent),
            counters,
            losses: ManagementLosses::default(),
            managing: None,
            responses: VecDeque::new(),
            has_packets: false,
        }
    }

    /// Whether a packet is on VL 15, the subnet management lane.
    #[inline]
    pub(super) fn is_management(frame: &[u8]) -> bool {
        virtual_lane(frame) == Some(MANAGEMENT_LANE)
    }

    /// Egress port of a packet's destination LID.
    #[inline]
    pub(super) fn exit(&self, frame: &[u8]) -> Option<usize> {
        self.tables.exit(destination_lid(frame)?)
    }

    /// Egress ports of a packet's multicast group.
    #[inline]
    pub(super) fn group(&self, frame: &[u8]) -> Option<PortSet> {
        let lid = destination_lid(frame).filter(|lid| *lid >= FIRST_MULTICAST_LID)?;
        self.tables.group(lid)
    }

    /// Sets the ports of a group from outside. Refused for a group of the SA, whose ports are exactly those
    /// that have joined.
    pub(super) fn set_group(&mut self, lid: u16, ports: PortSet) -> bool {
        let is_administered = |managing: &Managing| managing.administration.has_group(lid);
        !self.managing.as_deref().is_some_and(is_administered) && self.tables.set_group(lid, ports)
    }

    /// Maximum number of external ports.
    pub(super) fn port_limit(&self) -> usize {
        self.agent.fixed_ports().unwrap_or(SWITCH_PORTS)
    }

    pub(super) const fn has_manager(&self) -> bool {
        self.managing.is_some()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.managing.iter().flat_map(|managing| managing.manager.members())
    }

    pub(super) fn is_settled_since(&self, time: Time) -> bool {
        let settled = |managing: &Managing| {
            !managing.mastership.is_master()
                || managing.manager.is_settled_since(time) && managing.administration.is_idle()
        };
        self.managing.as_deref().is_none_or(settled) && self.agent.poll_timeout().is_none()
    }

    pub(super) fn handle_link(&mut self, now: Time, port: usize, up: bool) {
        // No directed route can name such a port, so its neighbour stays unconfigured.
        let Some(number) =
            u8::try_from(port + 1).ok().filter(|number| usize::from(*number) <= self.port_limit())
        else {
            return;
        };
        self.has_packets = true;
        self.agent.handle_link(now, number, up);
        self.counters.grow(self.agent.ports());
        if !up {
            self.counters.link_downed(port);
        }
        if let Some(managing) = self.master() {
            managing.manager.handle_link(now, number, up);
            self.report_notice(now, link_notice(MANAGER_LID), MANAGER_LID);
        }
        self.follow_manager(now);
        self.send_trap(now);
    }

    /// Handles a packet on the management lane.
    pub(super) fn handle_management(&mut self, now: Time, port: usize, frame: &[u8]) -> Management {
        self.has_packets = true;
        let packet = parse(frame).ok();
        let management = packet.as_ref().and_then(SubnetPacket::of);
        let local = packet.as_ref().and_then(local_route);
        let (Some(local), Some(mut management), Ok(ingress)) = (local, management, u8::try_from(port + 1))
        else {
            return Management::Lost;
        };
        let is_own = local.destination == PERMISSIVE_LID
            || self.agent.lid() != 0 && local.destination == self.agent.lid();
        if management.is_lid_routed() && !is_own {
            return Management::Forward(self.exit(frame));
        }
        if let Some(lid) = management.return_by_lid() {
            return self.send_on(lid, &management);
        }
        if let Some(exit) = management.pass(ingress) {
            return self.pass_on(exit, &management);
        }
        let taken = match management.method() {
            _ if management.is_returning() => self.take_response(now, ingress, management),
            Method::Trap => self.take_trap(now, ingress, &management, &local),
            Method::TrapRepress => {
                self.agent.repress(management.transaction());
                true
            }
            _ => self.answer_request(now, ingress, management, &local),
        };
        if taken { Management::Taken } else { Management::Lost }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.has_packets = true;
        if let Some(managing) = self.master() {
            managing.manager.handle_timeout(now);
            managing.administration.handle_timeout(now);
            let losses = managing.administration.take_losses();
            self.losses.add(losses);
        }
        self.watch_master(now);
        self.follow_manager(now);
        self.send_trap(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let managing = self.managing.as_deref();
        let watch = managing.and_then(|managing| managing.mastership.poll_timeout());
        let master = managing.filter(|managing| managing.mastership.is_master());
        let manager = master.and_then(|managing| managing.manager.poll_timeout());
        let administration = master.and_then(|managing| managing.administration.poll_timeout());
        [watch, manager, administration, self.agent.poll_timeout()].into_iter().flatten().min()
    }

    /// The next packet of the SM or of the node's agents: port, frame, invariant CRC.
    #[inline]
    pub(super) fn poll_packet(&mut self) -> Option<(usize, Vec<u8>, u32)> {
        if !self.has_packets {
            return None;
        }
        let packet =
            self.poll_manager().or_else(|| self.responses.pop_front()).or_else(|| self.poll_administration());
        self.has_packets = packet.is_some();
        if let Some((port, frame, _)) = &packet {
            self.counters.sent(*port, frame);
        }
        packet
    }

    /// Whether any port enforces P_Keys.
    #[inline]
    pub(super) const fn enforces_partitions(&self) -> bool {
        self.agent.enforcement().is_any()
    }

    /// Whether any port has no lane for some SL.
    #[inline]
    pub(super) const fn maps_lanes(&self) -> bool {
        self.agent.lanes().is_any()
    }

    /// Whether a packet has a lane from `ingress` to `exit`. One without a lane is counted at the egress port.
    pub(super) fn carries(&mut self, ingress: usize, exit: usize, frame: &[u8]) -> bool {
        let has_lane = self.agent.lanes().carries(ingress, exit, frame);
        if !has_lane {
            self.counters.has_no_lane(exit);
        }
        has_lane
    }

    /// Whether a packet may enter through a port. A violation is counted and reported to the SM.
    pub(super) fn lets_in(&mut self, now: Time, port: usize, frame: &[u8]) -> bool {
        let may = self.agent.enforcement().lets_in(port, frame);
        if !may {
            self.counters.not_let_in(port);
            self.note_violation(now, port, frame);
        }
        may
    }

    /// Whether a packet may leave through a port. A violation is counted and reported to the SM.
    pub(super) fn lets_out(&mut self, now: Time, port: usize, frame: &[u8]) -> bool {
        let may = self.agent.enforcement().lets_out(port, frame);
        if !may {
            self.counters.not_let_out(port);
            self.note_violation(now, port, frame);
        }
        may
    }

    #[cold]
    fn note_violation(&mut self, now: Time, port: usize, frame: &[u8]) {
        let Ok(packet) = parse(frame) else { return };
        self.has_packets = true;
        if let Some(notice) = self.agent.note_violation(now, port, &packet) {
            self.report_notice(now, notice, MANAGER_LID);
        }
        self.send_trap(now);
    }

    pub(super) const fn counters(&mut self) -> &mut SwitchPortCounters {
        &mut self.counters
    }

    /// Packets of the node's agents and of the SM that were neither sent nor answered.
    pub(super) const fn losses(&self) -> ManagementLosses {
        self.losses
    }

    fn poll_manager(&mut self) -> Option<(usize, Vec<u8>, u32)> {
        let managing = self.managing.as_mut()?;
        let packet = managing.manager.poll_packet().or_else(|| managing.mastership.poll_packet());
        let (port, packet) = packet?;
        let (frame, icrc) = packet.to_frame(0, 0);
        Some((usize::from(port) - 1, frame.into_bytes(), icrc))
    }

    /// The next packet of the SA. One for a port that has left is dropped and counted.
    fn poll_administration(&mut self) -> Option<(usize, Vec<u8>, u32)> {
        loop {
            let (frame, icrc) = self.managing.as_mut()?.administration.poll_packet()?;
            if let Some(port) = self.exit(&frame) {
                return Some((port, frame.into_bytes(), icrc));
            }
            self.losses.dropped += 1;
        }
    }

    fn take_response(&mut self, now: Time, ingress: u8, mut response: SubnetPacket) -> bool {
        let Some(managing) = self.managing.as_mut().filter(|_| response.arrive(0)) else { return false };
        if Mastership::is_own(response.transaction()) {
            let succession = managing.mastership.handle_response(now, &response);
            self.succeed(now, succession);
            return true;
        }
        if managing.mastership.is_master() {
            managing.manager.handle_response(now, ingress, &response);
        }
        self.follow_manager(now);
        true
    }

    /// Passes a trap to the SM and answers it with TrapRepress (IBTA v1.4 §13.4.9).
    fn take_trap(&mut self, now: Time, ingress: u8, trap: &SubnetPacket, local: &LocalRoute) -> bool {
        if !trap.is_lid_routed() {
            return false;
        }
        let Some(managing) = self.master() else { return self.take_late_trap(ingress, trap, local) };
        let Some(notice) = managing.manager.handle_trap(now, trap, local.source) else { return false };
        self.repress(ingress, trap, local);
        self.report_notice(now, notice, notice.issuer_lid());
        self.follow_manager(now);
        true
    }

    fn repress(&mut self, ingress: u8, trap: &SubnetPacket, local: &LocalRoute) {
        let mut heard = SubnetPacket::lid_routed(Method::TrapRepress, trap.attribute().0, trap.transaction());
        heard.data_mut().copy_from_slice(trap.data());
        self.send_back(ingress, &heard, local);
    }

    /// The response returns by the ingress port, or by the port towards the requester's LID.
    fn answer_request(
        &mut self,
        now: Time,
        ingress: u8,
        mut request: SubnetPacket,
        local: &LocalRoute,
    ) -> bool {
        let manager = self.managing.as_deref().map(Managing::state);
        if manager.is_some() && request.attribute().0 == attribute::SM_INFO && request.method() == Method::Set
        {
            return self.answer_manager(now, ingress, request, local);
        }
        let has_response = self.agent.answer(&mut request, ingress, &mut self.tables, manager);
        if has_response {
            self.send_back(ingress, &request, local);
        }
        has_response
    }

    fn send_back(&mut self, ingress: u8, packet: &SubnetPacket, asked: &LocalRoute) {
        let exit = self.tables.exit(asked.source).filter(|_| packet.is_lid_routed());
        let ingress = usize::from(ingress) - 1;
        if !self.send(exit.unwrap_or(ingress), packet, asked.source) {
            self.counters.management_dropped(ingress);
        }
    }

    /// Queues a packet; false if it is dropped because the queue is full, as VL 15 of real switches does.
    fn send(&mut self, port: usize, packet: &SubnetPacket, destination: u16) -> bool {
        let (frame, icrc) = packet.to_frame(self.agent.lid(), destination);
        self.queue(port, frame, icrc)
    }

    /// Queues a frame with its invariant CRC; counts it and returns false if the queue is full.
    fn queue(&mut self, port: usize, frame: FrameBuffer, icrc: u32) -> bool {
        let has_room = self.responses.len() < WAITING;
        if has_room {
            self.responses.push_back((port, frame.into_bytes(), icrc));
        }
        self.losses.dropped += u64::from(!has_room);
        has_room
    }

    /// Forwards a packet along its directed route. It is lost at a port without a link.
    fn pass_on(&mut self, exit: u8, packet: &SubnetPacket) -> Management {
        let is_port =
            exit != 0 && self.agent.port(exit).is_some_and(|info| info.port_state() > PortState::Down as u8);
        if !is_port {
            return Management::Lost;
        }
        self.forward(usize::from(exit) - 1, packet, PERMISSIVE_LID)
    }

    /// A directed route that started here, after a LID-routed part, has returned; continues by LID.
    fn send_on(&mut self, lid: u16, packet: &SubnetPacket) -> Management {
        let Some(exit) = self.tables.exit(lid) else { return Management::Lost };
        self.forward(exit, packet, lid)
    }

    fn forward(&mut self, exit: usize, packet: &SubnetPacket, destination: u16) -> Management {
        if self.send(exit, packet, destination) { Management::Passed } else { Management::Dropped }
    }

    fn send_trap(&mut self, now: Time) {
        let Some((trap, manager)) = self.agent.poll_trap(now) else { return };
        match self.tables.exit(manager) {
            Some(exit) => _ = self.send(exit, &trap, manager),
            None => self.losses.dropped += 1,
        }
    }

    /// Applies what the SM has learned: ports leave their multicast groups, and tables change.
    fn follow_manager(&mut self, now: Time) {
        // A standby SM leaves the tables to the master.
        let master = self.managing.as_deref_mut().filter(|managing| managing.mastership.is_master());
        let Some(managing) = master else { return };
        while let Some(other) = managing.manager.poll_other() {
            managing.mastership.hear(other);
        }
        let changes: Vec<ServiceChange> = core::iter::from_fn(|| managing.manager.poll_service()).collect();
        let has_left = changes.iter().any(|change| !change.is_in_service);
        changes.iter().for_each(|change| managing.report_service(now, change, &self.agent));
        managing.manager.raised_ports().for_each(|port| self.agent.raise(port));
        for (port, keys) in managing.manager.own_partitions() {
            self.agent.set_partitions(port, keys);
        }
        if managing.manager.take_plan_change() {
            self.tables.clear_linear();
            for (place, ports) in managing.manager.plan().linear(self.agent.guid()) {
                self.tables.set_linear_block(place.modifier as u16, &ports);
            }
            managing.manager.write_tables(now, &managing.groups);
            managing.place_groups(&mut self.tables, self.agent.guid());
        }
        if has_left {
            self.fill_groups(now);
        }
    }

    /// Updates the members of changed multicast groups.
    fn fill_groups(&mut self, now: Time) {
        let Some(managing) = self.managing.as_deref_mut() else { return };
        let directory = Directory::new(&managing.manager, &self.agent);
        let mut changed = Vec::new();
        while let Some(change) = managing.administration.poll_group(&directory) {
            changed.push(change);
        }
        managing.report_groups(now, &self.agent);
        if changed.is_empty() {
            return;
        }
        for (lid, ports) in changed {
            let exits = managing.manager.plan().group(&ports).remove(&self.agent.guid());
            self.tables.set_group(lid, exits.unwrap_or_default());
            match ports.is_empty() {
                true => managing.groups.remove(&lid),
                false => managing.groups.insert(lid, ports),
            };
        }
        managing.manager.write_tables(now, &managing.groups);
    }

    /// Reports a notice, issued by the port with this LID, to subscribers.
    fn report_notice(&mut self, now: Time, notice: Notice, lid: u16) {
        let Some(managing) = self.managing.as_deref_mut() else { return };
        if !managing.administration.has_subscribers() {
            return;
        }
        let directory = Directory::new(&managing.manager, &self.agent);
        let Some(issuer) = directory.by_lid(lid) else { return };
        let partition_keys = issuer.partition_keys.to_vec();
        let event = SubnetEvent { notice, issuer_gid: issuer.gid(), partition_keys };
        managing.administration.report(now, &event, &directory);
    }
}

impl Managing {
    /// A port came into service or left. Removes it from its groups and tells subscribers.
    fn report_service(&mut self, now: Time, change: &ServiceChange, own: &SwitchAgent) {
        if !change.is_in_service {
            self.administration.forget(change.guid);
        }
        let trap = if change.is_in_service { events::GID_IN_SERVICE } else { events::GID_OUT_OF_SERVICE };
        let keys = self.manager.partitions().all_keys();
        self.report(now, gid_notice(MANAGER_LID, trap, change.gid), keys, own);
    }

    /// Tells subscribers about created and deleted groups.
    fn report_groups(&mut self, now: Time, own: &SwitchAgent) {
        while let Some(group) = self.administration.poll_group_event() {
            let trap = if group.is_made { events::GROUP_CREATED } else { events::GROUP_DELETED };
            self.report(now, gid_notice(MANAGER_LID, trap, group.gid), vec![group.partition_key], own);
        }
    }

    /// Reports an event that the SM itself noticed.
    fn report(&mut self, now: Time, notice: Notice, partition_keys: Vec<u16>, own: &SwitchAgent) {
        if self.administration.has_subscribers() {
            let directory = Directory::new(&self.manager, own);
            let event = SubnetEvent { notice, issuer_gid: own.attributes().gid(), partition_keys };
            self.administration.report(now, &event, &directory);
        }
    }

    /// Recomputes the own switch's ports for all groups, after routes have changed.
    fn place_groups(&self, tables: &mut ForwardingTables, own: u64) {
        for (lid, ports) in &self.groups {
            let exits = self.manager.plan().group(ports).remove(&own);
            tables.set_group(*lid, exits.unwrap_or_default());
        }
    }
}

fn local_route(packet: &Packet<'_>) -> Option<LocalRoute> {
    match packet.route.network {
        Network::InfiniBand(local) => Some(local),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

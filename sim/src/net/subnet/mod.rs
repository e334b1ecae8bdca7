//! An InfiniBand subnet of one switch: its forwarding tables, and the manager that fills them.
//!
//! **What this is.** [`Subnet`] tells the switch around it where a LID leads (IBTA v1.4 §18.2.4.3). The manager behind the
//! switch's port 0 finds who is at each port, gives LIDs, fills the linear table and makes the ports active. At its LID,
//! [`MANAGER_LID`], answer an agent of subnet management and, at queue pair 1, the subnet's administration.
//!
//! **What it may not do.** It floods nothing: a LID that nobody has leads nowhere. Further switches are not modelled. Ports
//! join groups by the administration; a group can be set from outside, too. **Where to read first.** `manager`, then
//! `administration`.

mod administration;
mod directory;
mod management_port;
mod manager;

pub use management_port::MANAGER_LID;
pub use manager::{Member, SubnetConfig};

use super::port_set::PortSet;
use crate::wire::infiniband::{
    FIRST_MULTICAST_LID, MANAGEMENT_LANE, PERMISSIVE_LID, destination_lid, parse, virtual_lane,
};
use crate::wire::management::{GENERAL_SERVICES_QKEY, GeneralPacket, SubnetPacket};
use crate::wire::{Network, Packet};
use administration::Administration;
use bareverbs_prm::time::Time;
use directory::{Directory, EndPort};
use management_port::ManagementPort;
use manager::Manager;
use std::collections::{BTreeMap, VecDeque};

/// External ports of a switch: directed routes name them in a byte, of which 255 is no port (IBTA v1.4 §14.2.2).
pub const SWITCH_PORTS: usize = 254;
/// Groups of a multicast forwarding table that are set from outside. The administration has as many.
const GROUPS: usize = 1024;
/// Answers of the own agent that may wait. The switch takes them after each packet, so these are those of one.
const WAITING: usize = 64;

/// Tables of a switch and their manager; see the module.
#[derive(Debug)]
pub struct Subnet {
    manager: Box<Manager>,
    own_port: Box<ManagementPort>,
    administration: Box<Administration>,
    /// Linear forwarding table: port by LID.
    linear: Vec<Option<u8>>,
    /// Multicast forwarding table.
    groups: BTreeMap<u16, PortSet>,
    /// Answers of the own port's agent: port, frame, invariant CRC.
    answers: VecDeque<(usize, Vec<u8>, u32)>,
    /// Whether there may be packets to be sent: most frames that pass leave none.
    has_packets: bool,
}

/// What becomes of a packet of the management lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Management {
    /// It was for the manager, or for the agent of port 0.
    Taken,
    /// It goes on by its LID, or nowhere.
    Forward(Option<usize>),
    /// It is none, or its route does not end here and goes nowhere else.
    Lost,
}

impl Subnet {
    pub(super) fn new(config: SubnetConfig) -> Self {
        let (guid, sm_key, keys) = (config.guid, config.sm_key, &config.partition_keys);
        let own_port = Box::new(ManagementPort::new(guid, sm_key, keys));
        let administration = Box::new(Administration::new(sm_key, keys));
        Self {
            manager: Box::new(Manager::new(config)),
            own_port,
            administration,
            linear: Vec::new(),
            groups: BTreeMap::new(),
            answers: VecDeque::new(),
            has_packets: false,
        }
    }

    /// Whether a packet is on the virtual lane of subnet management.
    #[inline]
    pub(super) fn is_management(frame: &[u8]) -> bool {
        virtual_lane(frame) == Some(MANAGEMENT_LANE)
    }

    /// The port that leads to the LID a packet is for.
    #[inline]
    pub(super) fn exit(&self, frame: &[u8]) -> Option<usize> {
        let port = *self.linear.get(usize::from(destination_lid(frame)?))?;
        port.map(usize::from)
    }

    /// The ports of the group that a packet is for.
    #[inline]
    pub(super) fn group(&self, frame: &[u8]) -> Option<PortSet> {
        let lid = destination_lid(frame).filter(|lid| *lid >= FIRST_MULTICAST_LID)?;
        self.groups.get(&lid).copied()
    }

    pub(super) fn set_group(&mut self, lid: u16, ports: PortSet) -> bool {
        if !(FIRST_MULTICAST_LID..PERMISSIVE_LID).contains(&lid) {
            return false;
        }
        if ports.is_empty() {
            self.groups.remove(&lid);
            return true;
        }
        let has_room = self.groups.len() < GROUPS || self.groups.contains_key(&lid);
        if has_room {
            self.groups.insert(lid, ports);
        }
        has_room
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.manager.members()
    }

    pub(super) fn is_settled_since(&self, time: Time) -> bool {
        self.manager.is_settled_since(time) && self.administration.is_idle()
    }

    pub(super) fn handle_link(&mut self, now: Time, port: usize, up: bool) {
        self.has_packets = true;
        match u8::try_from(port) {
            Ok(port) if up && usize::from(port) < SWITCH_PORTS => {
                self.own_port.count_port(port + 1);
                self.manager.handle_link_up(now, port);
            }
            Ok(port) => {
                if let Some(guid) = self.manager.handle_link_down(port) {
                    self.administration.forget(guid);
                    self.fill_groups();
                }
            }
            // No directed route names such a port, so its neighbour stays unconfigured.
            Err(_) => {}
        }
        self.fill_linear();
    }

    /// A packet of the management lane that came in by a port.
    pub(super) fn handle_management(&mut self, now: Time, port: usize, frame: &[u8]) -> Management {
        self.has_packets = true;
        let packet = parse(frame).ok();
        let management = packet.as_ref().and_then(SubnetPacket::of);
        let (Some(packet), Some(management), Ok(port)) = (packet, management, u8::try_from(port)) else {
            return Management::Lost;
        };
        let lid = destination_lid(frame).unwrap_or(PERMISSIVE_LID);
        if management.is_lid_routed() && lid != MANAGER_LID && lid != PERMISSIVE_LID {
            return Management::Forward(self.exit(frame));
        }
        let taken = match management.is_returning() {
            true => self.take_answer(now, port, management),
            false => self.answer_question(port, management, &packet),
        };
        if taken { Management::Taken } else { Management::Lost }
    }

    /// A packet that no port leads to: one for queue pair 1 of the manager. False if it is none, or of nobody who may ask.
    #[cold]
    pub(super) fn handle_own(&mut self, now: Time, frame: &[u8]) -> bool {
        if destination_lid(frame) != Some(MANAGER_LID) {
            return false;
        }
        self.has_packets = true;
        let packet = parse(frame).ok().filter(|packet| self.hears(packet));
        let Some(question) = packet.as_ref().and_then(GeneralPacket::of) else { return false };
        let (directory, groups) = (directory(&self.manager, &self.own_port), &self.groups);
        self.administration.handle_packet(now, question, &directory, |lid| !groups.contains_key(&lid));
        self.fill_groups();
        true
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.has_packets = true;
        self.manager.handle_timeout(now);
        self.administration.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let due = [self.manager.poll_timeout(), self.administration.poll_timeout()];
        due.into_iter().flatten().min()
    }

    /// The next packet of the manager, or of the agents in its node: port, frame, invariant CRC.
    #[inline]
    pub(super) fn poll_packet(&mut self) -> Option<(usize, Vec<u8>, u32)> {
        if !self.has_packets {
            return None;
        }
        let packet =
            self.poll_manager().or_else(|| self.answers.pop_front()).or_else(|| self.poll_administration());
        self.has_packets = packet.is_some();
        packet
    }

    fn poll_manager(&mut self) -> Option<(usize, Vec<u8>, u32)> {
        let (port, mut packet) = self.manager.poll_packet()?;
        packet.leave_by(port + 1);
        let (frame, icrc) = packet.to_frame(0, 0);
        Some((usize::from(port), frame.into_bytes(), icrc))
    }

    /// The next packet of the administration. One for a port that has gone is lost.
    fn poll_administration(&mut self) -> Option<(usize, Vec<u8>, u32)> {
        loop {
            let (frame, icrc) = self.administration.poll_packet()?;
            if let Some(port) = self.exit(&frame) {
                return Some((port, frame.into_bytes(), icrc));
            }
        }
    }

    /// Whether the own port takes a packet: with the Q_Key of general services, in a partition that it is of, and to its GID if to any.
    fn hears(&self, packet: &Packet<'_>) -> bool {
        let Network::InfiniBand(local) = packet.route.network else { return false };
        let q_key = packet.service_header.deth().map(|deth| deth.q_key);
        q_key == Some(GENERAL_SERVICES_QKEY)
            && self.own_end_port().hears(packet.bth.partition_key)
            && local.global.is_none_or(|global| self.own_port.owns_gid(global.destination.to_bits()))
    }

    fn own_end_port(&self) -> EndPort<'_> {
        end_port(&self.own_port)
    }

    fn take_answer(&mut self, now: Time, port: u8, mut answer: SubnetPacket) -> bool {
        let arrived = answer.arrive(0);
        if arrived {
            self.manager.handle_answer(now, port, &answer);
            self.fill_linear();
        }
        arrived
    }

    /// The answer leaves as the question came: by the same port, to the LID that asked.
    fn answer_question(&mut self, port: u8, mut question: SubnetPacket, packet: &Packet<'_>) -> bool {
        let Network::InfiniBand(local) = packet.route.network else { return false };
        let has_answer = self.own_port.answer(&mut question, port + 1, self.manager.transactions());
        if has_answer && self.answers.len() < WAITING {
            let (frame, icrc) = question.to_frame(MANAGER_LID, local.source);
            self.answers.push_back((usize::from(port), frame.into_bytes(), icrc));
        }
        has_answer
    }

    /// Takes over the ports of groups that have changed.
    fn fill_groups(&mut self) {
        let directory = directory(&self.manager, &self.own_port);
        while let Some((lid, ports)) = self.administration.poll_group(&directory) {
            match ports.is_empty() {
                true => self.groups.remove(&lid),
                false => self.groups.insert(lid, ports),
            };
        }
    }

    /// Takes over the table that the manager wants, if it wants another.
    fn fill_linear(&mut self) {
        if !self.manager.take_table_change() {
            return;
        }
        self.linear.clear();
        for Member { port, lid, lmc, .. } in self.manager.members() {
            let end = usize::from(lid) + (1 << lmc);
            if self.linear.len() < end {
                self.linear.resize(end, None);
            }
            self.linear[usize::from(lid)..end].fill(u8::try_from(port).ok());
        }
    }
}

/// All end ports of the subnet, that of the manager among them.
fn directory<'a>(manager: &'a Manager, own_port: &'a ManagementPort) -> Directory<'a> {
    Directory(manager.end_ports().chain([end_port(own_port)]).collect())
}

fn end_port(own_port: &ManagementPort) -> EndPort<'_> {
    EndPort {
        lid: MANAGER_LID,
        lmc: 0,
        exit: None,
        portrait: own_port.portrait(),
        partition_keys: own_port.partition_keys(),
    }
}

#[cfg(test)]
mod tests;

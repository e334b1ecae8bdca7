//! An InfiniBand subnet of one switch, with the subnet's manager inside.
//!
//! **What this is.** [`SubnetSwitch`] forwards packets by LID as its table says (IBTA v1.4 §18.2.4.3); the manager behind its
//! port 0 finds who is at each port, gives LIDs, fills the table and makes the ports active. Inputs are `handle_*`, outputs
//! are frames by port; time is an argument.
//!
//! **What it may not do.** It floods nothing: a LID that nobody has leads nowhere. Multicast groups and further switches are
//! not modelled. **Where to read first.** `manager`.

mod manager;

pub use manager::{Member, SubnetConfig};

use crate::wire::infiniband::{FIRST_MULTICAST_LID, MANAGEMENT_LANE, destination_lid, parse, virtual_lane};
use crate::wire::management::SubnetPacket;
use bareverbs_prm::time::Time;
use manager::Manager;
use std::collections::{BTreeMap, VecDeque};

/// What a subnet did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubnetCounters {
    /// Packets sent out of one port.
    pub forwarded: u64,
    /// Packets to a LID that nobody has, to a group, or scraps.
    pub dropped: u64,
    /// Management packets that went to the manager.
    pub managed: u64,
}

/// A switch and its manager; see the module.
#[derive(Debug)]
pub struct SubnetSwitch {
    manager: Manager,
    /// Port by LID.
    table: BTreeMap<u16, usize>,
    /// Frames of the manager, by port.
    ready: VecDeque<(usize, Vec<u8>)>,
    /// What it did so far.
    pub counters: SubnetCounters,
}

impl SubnetSwitch {
    /// A switch without cables.
    pub fn new(config: SubnetConfig) -> Self {
        Self {
            manager: Manager::new(config),
            table: BTreeMap::new(),
            ready: VecDeque::new(),
            counters: SubnetCounters::default(),
        }
    }

    /// A cable was plugged into `port`; ports are numbered from 0 by who plugs them.
    pub fn handle_link_up(&mut self, now: Time, port: usize) {
        self.manager.port_up(now, port);
        self.collect();
    }

    /// The cable of `port` is out.
    pub fn handle_link_down(&mut self, port: usize) {
        self.manager.port_down(port);
        self.table.retain(|_, exit| *exit != port);
    }

    /// A packet comes in at `port`; gives the port by which it leaves.
    pub fn handle_frame(&mut self, now: Time, port: usize, frame: &[u8]) -> Option<usize> {
        if virtual_lane(frame) == Some(MANAGEMENT_LANE) {
            self.manage(now, port, frame);
            return None;
        }
        let exit = destination_lid(frame)
            .filter(|lid| *lid < FIRST_MULTICAST_LID)
            .and_then(|lid| self.table.get(&lid).copied())
            .filter(|exit| *exit != port);
        match exit {
            Some(_) => self.counters.forwarded += 1,
            None => self.counters.dropped += 1,
        }
        exit
    }

    /// The deadline of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.manager.handle_timeout(now);
        self.collect();
    }

    /// When the manager wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.manager.poll_timeout()
    }

    /// The next frame of the manager, and its port.
    pub fn poll_transmit(&mut self) -> Option<(usize, Vec<u8>)> {
        self.ready.pop_front()
    }

    /// Who is in the subnet, in the order of the ports.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.manager.members()
    }

    /// A management packet: only answers to the manager are of interest.
    fn manage(&mut self, now: Time, port: usize, frame: &[u8]) {
        let answer = parse(frame).ok().and_then(|packet| SubnetPacket::of(&packet));
        let Some(mut answer) = answer.filter(|_| port < usize::from(u8::MAX)) else {
            self.counters.dropped += 1;
            return;
        };
        if !answer.arrive(0) {
            self.counters.dropped += 1;
            return;
        }
        self.counters.managed += 1;
        self.manager.handle_answer(now, port, &answer);
        self.collect();
    }

    /// Takes over what the manager wants to say, and the table that it wants.
    fn collect(&mut self) {
        while let Some((port, mut packet)) = self.manager.poll_packet() {
            packet.leave_by(u8::try_from(port + 1).unwrap_or(u8::MAX));
            self.ready.push_back((port, packet.to_frame((0, 0)).0));
        }
        self.table.clear();
        for member in self.manager.members() {
            let last = member.lid + ((1 << member.lmc) - 1);
            self.table.extend((member.lid..=last).map(|lid| (lid, member.port)));
        }
    }
}

#[cfg(test)]
mod tests;

//! An InfiniBand subnet of one switch: its forwarding tables, and the manager that fills them.
//!
//! **What this is.** [`Subnet`] tells the switch around it where a LID leads (IBTA v1.4 §18.2.4.3). The manager behind the
//! switch's port 0 finds who is at each port, gives LIDs, fills the linear table and makes the ports active.
//!
//! **What it may not do.** It floods nothing: a LID that nobody has leads nowhere. Further switches and the subnet's
//! administration are not modelled; groups are set from outside. **Where to read first.** `manager`.

mod manager;

pub use manager::{Member, SubnetConfig};

use super::port_set::PortSet;
use crate::wire::infiniband::{
    FIRST_MULTICAST_LID, MANAGEMENT_LANE, PERMISSIVE_LID, destination_lid, parse, virtual_lane,
};
use crate::wire::management::SubnetPacket;
use bareverbs_prm::time::Time;
use manager::Manager;
use std::collections::BTreeMap;

/// External ports of a switch: directed routes name them in a byte, of which 255 is no port (IBTA v1.4 §14.2.2).
pub const SWITCH_PORTS: usize = 254;
/// Groups of a multicast forwarding table.
const GROUPS: usize = 1024;

/// Tables of a switch and their manager; see the module.
#[derive(Debug)]
pub struct Subnet {
    manager: Manager,
    /// Linear forwarding table: port by LID.
    linear: Vec<Option<u8>>,
    /// Multicast forwarding table.
    groups: BTreeMap<u16, PortSet>,
}

impl Subnet {
    pub(super) fn new(config: SubnetConfig) -> Self {
        Self { manager: Manager::new(config), linear: Vec::new(), groups: BTreeMap::new() }
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
        self.manager.is_settled_since(time)
    }

    pub(super) fn handle_link(&mut self, now: Time, port: usize, up: bool) {
        match u8::try_from(port) {
            Ok(port) if up && usize::from(port) < SWITCH_PORTS => self.manager.handle_link_up(now, port),
            Ok(port) => self.manager.handle_link_down(port),
            // No directed route names such a port, so its neighbour stays unconfigured.
            Err(_) => {}
        }
        self.fill_linear();
    }

    /// A packet of the management lane. False if it is no answer that ends here.
    pub(super) fn handle_management(&mut self, now: Time, port: usize, frame: &[u8]) -> bool {
        let answer = parse(frame).ok().and_then(|packet| SubnetPacket::of(&packet));
        let (Some(mut answer), Ok(port)) = (answer, u8::try_from(port)) else { return false };
        let arrived = answer.arrive(0);
        if arrived {
            self.manager.handle_answer(now, port, &answer);
            self.fill_linear();
        }
        arrived
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.manager.handle_timeout(now);
    }

    pub(super) const fn poll_timeout(&self) -> Option<Time> {
        self.manager.poll_timeout()
    }

    /// The next packet of the manager: port, frame, invariant CRC.
    pub(super) fn poll_packet(&mut self) -> Option<(usize, Vec<u8>, u32)> {
        let (port, mut packet) = self.manager.poll_packet()?;
        packet.leave_by(port + 1);
        let (frame, icrc) = packet.to_frame(0, 0);
        Some((usize::from(port), frame.into_bytes(), icrc))
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

#[cfg(test)]
mod tests;

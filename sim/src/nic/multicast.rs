//! Multicast groups and their members (IBTA v1.4 §10.5).

use bareverbs_prm::ids::{Gid, Qpn};
use std::collections::BTreeMap;

/// Queue pair number of every group.
pub(crate) const GROUP_QPN: Qpn = Qpn::from_low_bits(0xff_ffff);
/// log2 of the number of groups of a device, and the maximum number of queue pairs in a group.
pub(crate) const LOG_GROUPS: u8 = 13;
pub(crate) const GROUP_MEMBERS: u32 = 240;

/// All groups that have members, and their members in the order in which they attached.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<Gid, Vec<Qpn>>,
}

impl Groups {
    pub(crate) fn members(&self, group: Gid) -> &[Qpn] {
        self.groups.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Whether there is room for one more member.
    pub(crate) fn has_room(&self, group: Gid) -> bool {
        match self.groups.get(&group) {
            Some(members) => members.len() < GROUP_MEMBERS as usize,
            None => self.groups.len() < 1 << LOG_GROUPS,
        }
    }

    /// Adds a member. Does nothing if it is a member already.
    pub(crate) fn attach(&mut self, group: Gid, qpn: Qpn) {
        let members = self.groups.entry(group).or_default();
        if !members.contains(&qpn) {
            members.push(qpn);
        }
    }

    /// Removes a member; `false` if it was none.
    pub(crate) fn detach(&mut self, group: Gid, qpn: Qpn) -> bool {
        let Some(members) = self.groups.get_mut(&group) else { return false };
        let Some(at) = members.iter().position(|member| *member == qpn) else { return false };
        members.remove(at);
        if members.is_empty() {
            self.groups.remove(&group);
        }
        true
    }

    /// Removes a destroyed queue pair from all groups.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.groups.values_mut().for_each(|members| members.retain(|member| *member != qpn));
        self.groups.retain(|_, members| !members.is_empty());
    }

    /// Whether the port accepts packets to a group from an InfiniBand link: the group has members.
    pub(super) fn has_group(&self, group: Gid) -> bool {
        self.groups.contains_key(&group)
    }

    /// Whether the port accepts frames to an Ethernet group address: some group maps to it.
    pub(super) fn has_address(&self, address: &[u8]) -> bool {
        self.groups.keys().any(|group| group.multicast_mac().is_some_and(|mac| mac.0 == address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_their_members() {
        let (mut groups, group) = (Groups::default(), Gid::from_ipv4([224, 0, 0, 9]));
        let member = Qpn::from_low_bits;
        assert!(!groups.detach(group, member(1)));
        groups.attach(group, member(2));
        groups.attach(group, member(1));
        groups.attach(group, member(2));
        assert_eq!(groups.members(group), [member(2), member(1)]);
        assert!(groups.has_address(&[1, 0, 0x5e, 0, 0, 9]) && !groups.has_address(&[1, 0, 0x5e, 0, 0, 8]));
        assert!(groups.has_group(group) && !groups.has_group(Gid::from_ipv4([224, 0, 0, 8])));
        assert!(groups.detach(group, member(2)));
        groups.forget(member(1));
        assert!(groups.groups.is_empty());
        (0..GROUP_MEMBERS).for_each(|number| groups.attach(group, member(number)));
        assert!(!groups.has_room(group));
    }
}

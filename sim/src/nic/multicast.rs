//! Queue pairs that receive datagrams to another number than their own: the members of multicast groups (IBTA v1.4
//! §10.5), and those of the well-known numbers 0 and 1 (§3.5.3).

use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::numbering::ServiceType;
use std::collections::{BTreeMap, BTreeSet};

/// Queue pair number of every group.
pub(crate) const GROUP_QPN: Qpn = Qpn::from_low_bits(0xff_ffff);
/// log2 of the number of groups of a device, and the maximum number of queue pairs in a group.
pub(crate) const LOG_GROUPS: u8 = 13;
pub(crate) const GROUP_MEMBERS: u32 = 240;

/// All groups that have members, and their members in the order in which they attached. Each frame asks for them, so there
/// is no search through groups or queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<Gid, Vec<Qpn>>,
    /// How many of the groups map to an Ethernet address.
    addresses: BTreeMap<MacAddress, u32>,
    /// The queue pairs of services that have a well-known number, by that number.
    special: BTreeSet<(u32, Qpn)>,
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
        if members.is_empty()
            && let Some(address) = group.multicast_mac()
        {
            *self.addresses.entry(address).or_default() += 1;
        }
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
            forget_address(&mut self.addresses, group);
        }
        true
    }

    /// A queue pair was created. It receives datagrams to a well-known number if its service has one.
    pub(crate) fn note_created(&mut self, qpn: Qpn, service: ServiceType) {
        self.special.extend(well_known_number(service).map(|number| (number, qpn)));
    }

    /// The queue pair that receives the datagrams to the well-known number of a service: the first one of that service.
    pub(super) fn special(&self, service: ServiceType) -> Option<Qpn> {
        let number = well_known_number(service)?;
        let (found, qpn) = self.special.range((number, Qpn::from_low_bits(0))..).next()?;
        (*found == number).then_some(*qpn)
    }

    /// Forgets a destroyed queue pair.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.special.retain(|(_, special)| *special != qpn);
        let addresses = &mut self.addresses;
        self.groups.retain(|group, members| {
            members.retain(|member| *member != qpn);
            if members.is_empty() {
                forget_address(addresses, *group);
            }
            !members.is_empty()
        });
    }

    /// Whether the port accepts packets to a group from an InfiniBand link: the group has members.
    pub(super) fn has_group(&self, group: Gid) -> bool {
        self.groups.contains_key(&group)
    }

    /// Whether the port accepts frames to an Ethernet group address: some group maps to it.
    pub(super) fn has_address(&self, address: &[u8]) -> bool {
        let address = address.first_chunk().map(|bytes| MacAddress(*bytes));
        address.is_some_and(|address| self.addresses.contains_key(&address))
    }
}

const fn well_known_number(service: ServiceType) -> Option<u32> {
    match service {
        ServiceType::Qp0 => Some(0),
        ServiceType::Qp1 => Some(1),
        _ => None,
    }
}

/// A group has no members any more. Several groups may map to one address.
fn forget_address(addresses: &mut BTreeMap<MacAddress, u32>, group: Gid) {
    let Some(address) = group.multicast_mac() else { return };
    if let Some(count) = addresses.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            addresses.remove(&address);
        }
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
        assert!(!groups.has_address(&[1, 0, 0x5e, 0, 0, 9]) && groups.addresses.is_empty());
        (0..GROUP_MEMBERS).for_each(|number| groups.attach(group, member(number)));
        assert!(!groups.has_room(group));
    }

    /// 32 IPv4 groups map to one Ethernet address (RFC 1112 §6.4).
    #[test]
    fn an_address_is_taken_as_long_as_some_group_maps_to_it() {
        let mut groups = Groups::default();
        let [one, other] = [[224, 0, 0, 9], [224, 128, 0, 9]].map(Gid::from_ipv4);
        let [first, second] = [1, 2].map(Qpn::from_low_bits);
        for (group, member) in [(one, first), (one, second), (other, second)] {
            groups.attach(group, member);
        }
        let has_address = |groups: &Groups| groups.has_address(&[1, 0, 0x5e, 0, 0, 9]);
        assert!(groups.detach(one, first) && has_address(&groups));
        assert!(groups.detach(one, second) && has_address(&groups), "the other group is left");
        groups.attach(one, first);
        groups.forget(second);
        assert!(has_address(&groups));
        groups.forget(first);
        assert!(!has_address(&groups) && groups.addresses.is_empty());
    }

    #[test]
    fn a_well_known_number_is_that_of_the_first_queue_pair_of_its_service() {
        let mut groups = Groups::default();
        let [first, second, third] = [3, 4, 5].map(Qpn::from_low_bits);
        for (qpn, service) in
            [(second, ServiceType::Qp1), (first, ServiceType::Qp1), (third, ServiceType::Ud)]
        {
            groups.note_created(qpn, service);
        }
        let special = |groups: &Groups| [ServiceType::Qp0, ServiceType::Qp1].map(|own| groups.special(own));
        assert_eq!((special(&groups), groups.special(ServiceType::Ud)), ([None, Some(first)], None));
        groups.forget(first);
        assert_eq!(special(&groups), [None, Some(second)]);
        groups.forget(second);
        assert_eq!(special(&groups), [None, None]);
    }
}

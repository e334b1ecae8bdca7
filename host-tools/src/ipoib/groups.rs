//! Groups of the subnet that the interface is a member of, or sends to.

use super::administration::Role;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::wire::management::administration::McMemberRecord;
use std::collections::{BTreeMap, VecDeque};

/// Most groups at a time.
const MOST_GROUPS: usize = 1024;
/// Packets that may wait for a group to be joined.
const MOST_WAITING: usize = 16;
/// How long a send-only group is kept after the last packet.
const UNUSED: Duration = Duration::from_secs(300);
/// How long to wait after a failed join before the next attempt: members may come.
const REFUSED: Duration = Duration::from_secs(2);

/// The state of a group.
#[derive(Debug)]
enum GroupState {
    Unasked,
    Asked,
    Joined(Box<McMemberRecord>),
    Refused(Time),
}

#[derive(Debug)]
struct Group {
    role: Role,
    state: GroupState,
    used: Time,
    waiting: VecDeque<Vec<u8>>,
}

/// What to do with a packet for a group.
#[derive(Debug)]
pub(super) enum GroupSending {
    Now(Box<McMemberRecord>, Vec<u8>),
    /// It waits; the group has to be joined as a sender.
    Join,
    Waits,
    Lost,
}

/// The groups; see the module's comment.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<Gid, Group>,
}

impl Groups {
    /// The record of a joined group.
    pub(super) fn record(&self, gid: Gid) -> Option<&McMemberRecord> {
        match &self.groups.get(&gid)?.state {
            GroupState::Joined(record) => Some(record),
            _ => None,
        }
    }

    /// Records that the group is wanted. Returns whether it has to be joined for that.
    pub(super) fn want(&mut self, now: Time, gid: Gid) -> bool {
        if !self.groups.contains_key(&gid) && self.groups.len() >= MOST_GROUPS {
            return false;
        }
        let group = self.groups.entry(gid).or_insert_with(|| Group::new(now, Role::Member));
        let is_member = group.role == Role::Member;
        group.role = Role::Member;
        group.used = now;
        let stands = match group.state {
            GroupState::Unasked => false,
            GroupState::Asked | GroupState::Joined(_) => is_member,
            GroupState::Refused(since) => now.since(since) < REFUSED,
        };
        if !stands && !matches!(group.state, GroupState::Joined(_)) {
            group.state = GroupState::Asked;
        }
        !stands
    }

    /// Takes a packet for a group.
    pub(super) fn send(&mut self, now: Time, gid: Gid, packet: Vec<u8>) -> GroupSending {
        let is_known = self.groups.contains_key(&gid);
        if !is_known && self.groups.len() >= MOST_GROUPS {
            return GroupSending::Lost;
        }
        let group = self.groups.entry(gid).or_insert_with(|| Group::new(now, Role::Sender));
        group.used = now;
        match &group.state {
            GroupState::Joined(record) => return GroupSending::Now(record.clone(), packet),
            GroupState::Refused(since) if now.since(*since) < REFUSED => return GroupSending::Lost,
            _ => {}
        }
        if group.waiting.len() >= MOST_WAITING {
            return GroupSending::Lost;
        }
        group.waiting.push_back(packet);
        let is_asked = matches!(group.state, GroupState::Asked);
        group.state = GroupState::Asked;
        if is_asked { GroupSending::Waits } else { GroupSending::Join }
    }

    /// Records that the administration has admitted us. Returns the packets that have waited.
    pub(super) fn joined(&mut self, gid: Gid, record: McMemberRecord) -> VecDeque<Vec<u8>> {
        let Some(group) = self.groups.get_mut(&gid) else { return VecDeque::new() };
        group.state = GroupState::Joined(Box::new(record));
        std::mem::take(&mut group.waiting)
    }

    /// Records that a join was refused or not answered. An existing membership stays. Returns the number of
    /// packets lost.
    pub(super) fn refused(&mut self, now: Time, gid: Gid) -> usize {
        let Some(group) = self.groups.get_mut(&gid) else { return 0 };
        // A send-only group disappears with its last member.
        if !group.is_member() {
            group.state = GroupState::Refused(now);
        }
        std::mem::take(&mut group.waiting).len()
    }

    /// Removes and returns groups that are no longer wanted, or were not sent to for long.
    pub(super) fn take_unwanted(&mut self, now: Time, is_wanted: impl Fn(Gid) -> bool) -> Vec<(Gid, Role)> {
        let is_unwanted = |gid: Gid, group: &Group| match group.role {
            Role::Member => !is_wanted(gid),
            Role::Sender => now.since(group.used) > UNUSED,
        };
        let list: Vec<(Gid, Role)> = self
            .groups
            .iter()
            .filter(|(gid, group)| is_unwanted(**gid, group))
            .map(|(gid, group)| (*gid, group.role))
            .collect();
        self.groups.retain(|gid, _| !list.iter().any(|(unwanted, _)| unwanted == gid));
        list
    }

    /// Ends all memberships, because the port has changed. Returns the groups we were a member of.
    pub(super) fn clear(&mut self) -> Vec<Gid> {
        let members = self.groups.iter().filter(|(_, group)| group.is_member());
        let members = members.map(|(gid, _)| *gid).collect();
        self.groups.clear();
        members
    }

    /// Joined groups, and the role in each.
    pub(super) fn all_joined(&self) -> Vec<(Gid, Role)> {
        let joined = self.groups.iter().filter(|(_, group)| matches!(group.state, GroupState::Joined(_)));
        joined.map(|(gid, group)| (*gid, group.role)).collect()
    }
}

impl Group {
    const fn new(now: Time, role: Role) -> Self {
        Self { role, state: GroupState::Unasked, used: now, waiting: VecDeque::new() }
    }

    const fn is_member(&self) -> bool {
        matches!((self.role, &self.state), (Role::Member, GroupState::Joined(_)))
    }
}

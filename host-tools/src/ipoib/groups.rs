//! Groups of the subnet that the gateway belongs to, or sends to.

use super::administration::Role;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::wire::management::administration::McMemberRecord;
use std::collections::{BTreeMap, VecDeque};

/// Groups at a time.
const MOST_GROUPS: usize = 1024;
/// Packets that wait until a group is joined.
const MOST_WAITING: usize = 16;
/// How long a group is kept that is only sent to, after the last packet.
const UNUSED: Duration = Duration::from_secs(300);
/// How long nobody is asked for a group that could not be joined: members may come.
const REFUSED: Duration = Duration::from_secs(2);

/// How it stands with a group.
#[derive(Debug)]
enum Standing {
    Unasked,
    Asked,
    Joined(Box<McMemberRecord>),
    Refused(Time),
}

#[derive(Debug)]
struct Group {
    role: Role,
    standing: Standing,
    used: Time,
    waiting: VecDeque<Vec<u8>>,
}

/// What becomes of a packet for a group.
#[derive(Debug)]
pub(super) enum GroupSending {
    Now(Box<McMemberRecord>, Vec<u8>),
    /// It waits, and the group has to be joined to be sent to.
    Join,
    Waits,
    Lost,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<Gid, Group>,
}

impl Groups {
    /// What is known of a group that was joined.
    pub(super) fn record(&self, gid: Gid) -> Option<&McMemberRecord> {
        match &self.groups.get(&gid)?.standing {
            Standing::Joined(record) => Some(record),
            _ => None,
        }
    }

    /// The group is wanted; whether it has to be joined for that.
    pub(super) fn want(&mut self, now: Time, gid: Gid) -> bool {
        if !self.groups.contains_key(&gid) && self.groups.len() >= MOST_GROUPS {
            return false;
        }
        let group = self.groups.entry(gid).or_insert_with(|| Group::new(now, Role::Member));
        let is_member = group.role == Role::Member;
        group.role = Role::Member;
        group.used = now;
        let stands = match group.standing {
            Standing::Unasked => false,
            Standing::Asked | Standing::Joined(_) => is_member,
            Standing::Refused(since) => now.since(since) < REFUSED,
        };
        if !stands && !matches!(group.standing, Standing::Joined(_)) {
            group.standing = Standing::Asked;
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
        match &group.standing {
            Standing::Joined(record) => return GroupSending::Now(record.clone(), packet),
            Standing::Refused(since) if now.since(*since) < REFUSED => return GroupSending::Lost,
            _ => {}
        }
        if group.waiting.len() >= MOST_WAITING {
            return GroupSending::Lost;
        }
        group.waiting.push_back(packet);
        let is_asked = matches!(group.standing, Standing::Asked);
        group.standing = Standing::Asked;
        if is_asked { GroupSending::Waits } else { GroupSending::Join }
    }

    /// The administrator lets us in; gives what has waited.
    pub(super) fn joined(&mut self, gid: Gid, record: McMemberRecord) -> VecDeque<Vec<u8>> {
        let Some(group) = self.groups.get_mut(&gid) else { return VecDeque::new() };
        group.standing = Standing::Joined(Box::new(record));
        std::mem::take(&mut group.waiting)
    }

    /// The administrator does not let us in, or does not answer. A membership that we have stays as it is; gives how many packets are lost.
    pub(super) fn refused(&mut self, now: Time, gid: Gid) -> usize {
        let Some(group) = self.groups.get_mut(&gid) else { return 0 };
        // A group that is only sent to is gone with its last member.
        if !group.is_member() {
            group.standing = Standing::Refused(now);
        }
        std::mem::take(&mut group.waiting).len()
    }

    /// Forgets groups that are no longer wanted, or were not sent to for long; gives them.
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

    /// All memberships end: the port is another. Gives the groups of members.
    pub(super) fn clear(&mut self) -> Vec<Gid> {
        let members = self.groups.iter().filter(|(_, group)| group.is_member());
        let members = members.map(|(gid, _)| *gid).collect();
        self.groups.clear();
        members
    }

    /// Groups that were joined, and how.
    pub(super) fn all_joined(&self) -> Vec<(Gid, Role)> {
        let joined = self.groups.iter().filter(|(_, group)| matches!(group.standing, Standing::Joined(_)));
        joined.map(|(gid, group)| (*gid, group.role)).collect()
    }
}

impl Group {
    const fn new(now: Time, role: Role) -> Self {
        Self { role, standing: Standing::Unasked, used: now, waiting: VecDeque::new() }
    }

    const fn is_member(&self) -> bool {
        matches!((self.role, &self.standing), (Role::Member, Standing::Joined(_)))
    }
}

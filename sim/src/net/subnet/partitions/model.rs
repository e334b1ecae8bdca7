//! Partition rules, and the membership of a port under them.

use super::super::end_port::full_member;
use crate::net::topology::NodeKind;
use crate::wire::{DEFAULT_PARTITION_KEY, MEMBERSHIP_BIT};

/// P_Keys per port: one block.
pub(in crate::net::subnet) const PARTITION_KEYS: usize = 32;
/// Number of the default partition.
pub(super) const DEFAULT_PARTITION: u16 = DEFAULT_PARTITION_KEY & !MEMBERSHIP_BIT;

/// Membership of a port in a partition. Limited members can only talk to full members (IBTA v1.4 §10.9.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartitionMembership {
    Full,
    Limited,
    /// The table has both P_Keys.
    Both,
}

/// The ports that a rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Members {
    All,
    Adapters,
    Switches,
    Routers,
    /// The SM's port.
    Manager,
    Guid(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Partition {
    /// Partition number, without the full-membership bit.
    pub(super) number: u16,
    /// Whether it has an IPoIB broadcast group (RFC 4391, section 4).
    pub(super) has_ip: bool,
    pub(super) members: Vec<(Members, PartitionMembership)>,
}

/// The partitions of a subnet; see the module.
///
/// ```
/// use bareverbs_sim::net::Partitions;
///
/// let text = "Default=0x7fff, ipoib : ALL=limited, SELF=full;  storage=0x8010 : 0x0002c90300000021=full, ALL_CAS;";
/// assert!(Partitions::parse(text).is_ok());
/// let error = Partitions::parse("Default=0x7fff : SOMEBODY;").unwrap_err();
/// assert_eq!(error.line, 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitions {
    pub(super) partitions: Vec<Partition>,
    pub(super) is_enforced: bool,
}

/// A port that needs a P_Key table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net::subnet) struct PartitionedPort {
    pub(in crate::net::subnet) guid: u64,
    pub(in crate::net::subnet) kind: NodeKind,
    /// Whether it is the SM's port.
    pub(in crate::net::subnet) is_manager: bool,
}

impl Default for Partitions {
    /// Every port is a full member of the default partition.
    fn default() -> Self {
        Self::of_all(&[DEFAULT_PARTITION_KEY])
    }
}

impl Partitions {
    /// Every port gets these P_Keys, at most 32; 0 is skipped. Switches are members of the default partition too, and
    /// the SM's port is a full member of every partition, so that every port can query it. Switches do not enforce
    /// P_Keys.
    pub fn of_all(keys: &[u16]) -> Self {
        let keys = keys.iter().take(PARTITION_KEYS).copied().filter(|key| key & !MEMBERSHIP_BIT != 0);
        let mut partitions: Vec<Partition> = keys
            .map(|key| {
                let membership = if key & MEMBERSHIP_BIT == 0 {
                    PartitionMembership::Limited
                } else {
                    PartitionMembership::Full
                };
                let members = vec![(Members::Manager, PartitionMembership::Full), (Members::All, membership)];
                Partition { number: key & !MEMBERSHIP_BIT, has_ip: true, members }
            })
            .collect();
        if partitions.iter().all(|partition| partition.number != DEFAULT_PARTITION) {
            let members = vec![
                (Members::Manager, PartitionMembership::Full),
                (Members::Switches, PartitionMembership::Full),
            ];
            partitions.push(Partition { number: DEFAULT_PARTITION, has_ip: false, members });
        }
        Self { partitions, is_enforced: false }
    }

    /// Whether switches should enforce P_Keys.
    pub(in crate::net::subnet) const fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// The P_Keys of a port, without empty entries.
    pub(in crate::net::subnet) fn keys(&self, port: PartitionedPort) -> Vec<u16> {
        let mut keys = Vec::new();
        for partition in &self.partitions {
            let (full, limited) = (full_member(partition.number), partition.number);
            match partition.membership(port) {
                None => {}
                Some(PartitionMembership::Full) => keys.push(full),
                Some(PartitionMembership::Limited) => keys.push(limited),
                Some(PartitionMembership::Both) => keys.extend([full, limited]),
            }
        }
        keys.dedup();
        keys
    }

    /// Full-member P_Keys of partitions with an IPoIB broadcast group.
    pub(in crate::net::subnet) fn ip_keys(&self) -> impl Iterator<Item = u16> + '_ {
        self.partitions
            .iter()
            .filter(|partition| partition.has_ip)
            .map(|partition| full_member(partition.number))
    }

    /// Full-member P_Keys of all partitions.
    pub(in crate::net::subnet) fn all_keys(&self) -> Vec<u16> {
        self.partitions.iter().map(|partition| full_member(partition.number)).collect()
    }
}

impl Partition {
    /// Membership of a port: the rule for its GUID wins; otherwise the strongest membership among the other rules that
    /// name it.
    fn membership(&self, port: PartitionedPort) -> Option<PartitionMembership> {
        let named = self.members.iter().find(|(members, _)| *members == Members::Guid(port.guid));
        let others = self.members.iter().filter(|(members, _)| members.names(port));
        named
            .or_else(|| others.max_by_key(|(_, membership)| membership.rank()))
            .map(|(_, membership)| *membership)
    }
}

impl PartitionMembership {
    const fn rank(self) -> u8 {
        match self {
            Self::Limited => 0,
            Self::Full => 1,
            Self::Both => 2,
        }
    }
}

impl Members {
    fn names(self, port: PartitionedPort) -> bool {
        match self {
            Self::All => true,
            Self::Adapters => port.kind == NodeKind::ChannelAdapter,
            Self::Switches => port.kind == NodeKind::Switch,
            Self::Routers => port.kind == NodeKind::Router,
            Self::Manager => port.is_manager,
            Self::Guid(guid) => guid == port.guid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTER: PartitionedPort =
        PartitionedPort { guid: 0x21, kind: NodeKind::ChannelAdapter, is_manager: false };
    const SWITCH: PartitionedPort = PartitionedPort { guid: 0x51, kind: NodeKind::Switch, is_manager: false };
    const MANAGER: PartitionedPort = PartitionedPort { is_manager: true, ..SWITCH };

    #[test]
    fn every_port_has_the_keys_of_all() {
        let partitions = Partitions::of_all(&[0x9234, 0, 0x0005, 0x8000]);
        assert_eq!(partitions.keys(ADAPTER), [0x9234, 0x0005]);
        assert_eq!(partitions.keys(SWITCH), [0x9234, 0x0005, 0xffff]);
        assert_eq!(partitions.keys(MANAGER), [0x9234, 0x8005, 0xffff]);
        assert_eq!(Partitions::default().keys(ADAPTER), [0xffff]);
        assert_eq!(Partitions::of_all(&[0x8001; 40]).ip_keys().count(), 32);
    }

    #[test]
    fn the_rule_for_a_guid_counts_before_that_for_all() {
        let text =
            "Default=0x7fff : ALL=full, SELF=full; P=2 : ALL=full, 0x21=limited; Q=3,defmember=both : 0x21;";
        let partitions = Partitions::parse(text).expect("a file");
        assert_eq!(partitions.keys(ADAPTER), [0xffff, 0x0002, 0x8003, 0x0003]);
        assert_eq!(partitions.keys(SWITCH), [0xffff, 0x8002]);
        assert!(partitions.is_enforced() && !Partitions::default().is_enforced());
    }

    /// Like OpenSM: a port that no rule names is a limited member of the default partition, and the SM's port a full
    /// one.
    #[test]
    fn unnamed_ports_are_limited_members_of_the_default_partition() {
        let partitions = Partitions::parse("P=0x8002, ipoib : 0x21=full;").expect("a file");
        assert_eq!(partitions.keys(ADAPTER), [0x7fff, 0x8002]);
        assert_eq!(partitions.keys(MANAGER), [0xffff]);
        assert_eq!(partitions.ip_keys().collect::<Vec<_>>(), [0x8002]);
    }
}

//! Traps of an InfiniBand port to the SM (IBTA v1.4 §14.2.5.1) and their notices.
//!
//! Raised by a packet with a bad P_Key or Q_Key, by a changed capability mask and by a changed NodeDescription.

use crate::wire::management::attributes::{CapabilityDetails, KeyDetails, Notice};
use crate::wire::management::values::{notice_type, producer_type};
use crate::wire::{LocalRoute, Network};
use bareverbs_prm::ids::Qpn;
use zerocopy::IntoBytes;

/// What a trap of a port is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PortTrap {
    Capability,
    /// Shares its trap number with the capability mask but is sent separately.
    Description,
    PartitionKey,
    QueueKey,
}

impl PortTrap {
    const fn number(self) -> u16 {
        match self {
            Self::Capability | Self::Description => 144,
            Self::PartitionKey => 257,
            Self::QueueKey => 258,
        }
    }
}

/// A packet whose key does not match its receiver's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyViolation {
    pub(crate) trap: PortTrap,
    pub(crate) key: u32,
    pub(crate) local: LocalRoute,
    pub(crate) source: Qpn,
    pub(crate) destination: Qpn,
}

impl KeyViolation {
    /// `None` outside InfiniBand, whose ports alone have an SM.
    pub(crate) fn new(
        trap: PortTrap,
        key: u32,
        network: &Network,
        [source, destination]: [Qpn; 2],
    ) -> Option<Self> {
        let Network::InfiniBand(local) = *network else { return None };
        Some(Self { trap, key, local, source, destination })
    }

    /// The notice of traps 257 and 258.
    pub(crate) fn notice(&self) -> Notice {
        let mut rest = KeyDetails::new();
        rest.set_source_lid(self.local.source).set_destination_lid(self.local.destination);
        rest.set_key(self.key).set_service_level(self.local.service_level);
        rest.set_source_qp(self.source.value()).set_destination_qp(self.destination.value());
        if let Some(global) = self.local.global {
            rest.set_source_gid(global.source.octets()).set_destination_gid(global.destination.octets());
        }
        notice(self.trap, notice_type::SECURITY, rest.as_bytes())
    }
}

/// Trap 144.
pub(crate) fn capability_notice(lid: u16, capability_mask: u32) -> Notice {
    let mut rest = CapabilityDetails::new();
    rest.set_lid(lid).set_capability_mask(capability_mask);
    notice(PortTrap::Capability, notice_type::INFORMATIONAL, rest.as_bytes())
}

/// The notice of trap 144 for a changed NodeDescription.
pub(crate) fn description_notice(lid: u16, capability_mask: u32) -> Notice {
    let mut rest = CapabilityDetails::new();
    rest.set_lid(lid).set_capability_mask(capability_mask);
    rest.set_other_local_changes(true).set_node_description_change(true);
    notice(PortTrap::Description, notice_type::INFORMATIONAL, rest.as_bytes())
}

fn notice(trap: PortTrap, kind: u8, rest: &[u8]) -> Notice {
    let (mut notice, mut details) = (Notice::new(), [0; 52]);
    details[..rest.len()].copy_from_slice(rest);
    notice
        .set_generic(true)
        .set_kind(kind)
        .set_producer(producer_type::CHANNEL_ADAPTER)
        .set_trap(trap.number());
    *notice.set_details(details)
}

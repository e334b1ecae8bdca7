//! Events of a subnet that ports can subscribe to (IBTA v1.4 §14.2.5.1): the notices, and who may receive them.

use crate::wire::management::attributes::{GidDetails, Notice, SwitchKeyDetails};
use crate::wire::management::values::{notice_type, producer_type};
use crate::wire::{Network, Packet};
use zerocopy::IntoBytes;

/// Traps 64 to 67: GID in service, GID out of service, multicast group created, multicast group deleted.
pub(super) const GID_IN_SERVICE: u16 = 64;
pub(super) const GID_OUT_OF_SERVICE: u16 = 65;
pub(super) const GROUP_CREATED: u16 = 66;
pub(super) const GROUP_DELETED: u16 = 67;
/// Trap 128: link state change of a switch port.
pub(super) const LINK_STATE_CHANGE: u16 = 128;
/// Trap 259: a switch port dropped a packet for its P_Key.
const SWITCH_PARTITION_KEY: u16 = 259;
/// `DataValid` of trap 259: both LIDs, P_Key, SL, source and destination QPN, both GIDs.
const VALID_LIDS_KEY_LEVEL: u16 = 0xf;
const VALID_SOURCE_QP: u16 = 1 << 4;
const VALID_DESTINATION_QP: u16 = 1 << 5;
const VALID_GIDS: u16 = 3 << 6;

/// What a trap of a switch is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SwitchTrap {
    /// Links have changed; the latest change counts.
    Links,
    /// A packet was dropped for its P_Key.
    PartitionKey,
}

/// An event of the subnet.
#[derive(Debug, Clone)]
pub(super) struct SubnetEvent {
    pub(super) notice: Notice,
    pub(super) issuer_gid: [u8; 16],
    /// Only ports that accept one of these P_Keys may be told (IBTA v1.4 §13.4.11).
    pub(super) partition_keys: Vec<u16>,
}

/// A port that came into service or went out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServiceChange {
    pub(super) guid: u64,
    pub(super) gid: [u8; 16],
    pub(super) is_in_service: bool,
}

/// Notice of the SM for a port or a multicast group (traps 64 to 67).
pub(super) fn gid_notice(manager_lid: u16, trap: u16, gid: [u8; 16]) -> Notice {
    let (mut notice, mut rest) = (Notice::new(), GidDetails::new());
    notice
        .set_generic(true)
        .set_kind(notice_type::SUBNET_MANAGEMENT)
        .set_producer(producer_type::CLASS_MANAGER)
        .set_trap(trap);
    notice.set_issuer_lid(manager_lid);
    write_details(&mut notice, rest.set_gid(gid));
    notice
}

/// Notice of a switch whose links have changed (trap 128).
pub(super) fn link_notice(lid: u16) -> Notice {
    let mut notice = Notice::new();
    notice
        .set_generic(true)
        .set_kind(notice_type::URGENT)
        .set_producer(producer_type::SWITCH)
        .set_trap(LINK_STATE_CHANGE);
    *notice.set_issuer_lid(lid).set_lid(lid)
}

/// Notice of the switch with this LID whose port, counted from 1, dropped a packet for its P_Key (trap 259).
pub(super) fn switch_key_notice(lid: u16, port: u8, packet: &Packet<'_>) -> Option<Notice> {
    let Network::InfiniBand(local) = packet.route.network else { return None };
    let mut details = SwitchKeyDetails::new();
    let mut valid = VALID_LIDS_KEY_LEVEL | VALID_DESTINATION_QP;
    details.set_source_lid(local.source).set_destination_lid(local.destination);
    details.set_key(packet.bth.partition_key).set_service_level(local.service_level);
    details.set_destination_qp(packet.bth.destination.value()).set_switch_lid(lid).set_port(port);
    if let Some(deth) = packet.service_header.deth() {
        valid |= VALID_SOURCE_QP;
        details.set_source_qp(deth.source.value());
    }
    if let Some(global) = local.global {
        valid |= VALID_GIDS;
        details.set_source_gid(global.source.octets()).set_destination_gid(global.destination.octets());
    }
    details.set_data_valid(valid);
    let mut notice = Notice::new();
    notice
        .set_generic(true)
        .set_kind(notice_type::SECURITY)
        .set_producer(producer_type::SWITCH)
        .set_trap(SWITCH_PARTITION_KEY);
    // The details start two bytes before the rest field of a notice.
    let (first, rest) = details.as_bytes().split_at(2);
    let mut bytes = [0; GidDetails::SIZE];
    bytes[..rest.len()].copy_from_slice(rest);
    notice.set_lid(u16::from_be_bytes([first[0], first[1]])).set_details(bytes);
    Some(*notice.set_issuer_lid(lid))
}

fn write_details(notice: &mut Notice, rest: &GidDetails) {
    let mut details = [0; GidDetails::SIZE];
    details.copy_from_slice(rest.as_bytes());
    notice.set_details(details);
}

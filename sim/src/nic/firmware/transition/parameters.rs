//! The optional parameters of a transition, and their checks.

use super::table::{Transition, optional};
use crate::nic::Nic;
use crate::nic::firmware_state::limits::SOURCE_PORTS;
use crate::nic::port::{PARTITION_KEYS, Port};
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::context::{AddressPath, QueuePairContext};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::numbering::{PathMigration, QpState, RoceVersion};

/// The context of a queue pair after a transition with its optional parameters. Refused if the transition
/// does not start in the current state.
pub(super) fn begin(
    nic: &Nic,
    qpn: Qpn,
    row: &Transition,
    requested: &QueuePairContext,
    mask: u32,
) -> Result<QueuePairContext, Refusal> {
    let mut context = nic.queue_pairs.get(qpn.value()).ok_or(syndrome::QP_UNKNOWN)?.context;
    check_state(context.state(), row)?;
    if mask & !row.optional(context.st()) != 0 {
        return Err(syndrome::QP_OPTIONAL_PARAMETER);
    }
    let selected = |bit| mask & bit != 0;
    check_migration(requested, selected(optional::ALTERNATE_PATH), selected(optional::PATH_MIGRATION))?;
    take_rights(&mut context, requested, mask);
    if selected(optional::Q_KEY) {
        context.set_q_key(requested.q_key());
    }
    if selected(optional::PKEY_INDEX) {
        take_pkey_index(&mut context, requested.primary_address_path())?;
    }
    if selected(optional::PORT) {
        take_port(&mut context, requested.primary_address_path())?;
    }
    take_retries_and_reads(nic, &mut context, requested, mask)?;
    if selected(optional::PRIMARY_PATH) {
        check_path(nic, requested.primary_address_path())?;
        take_path(&mut context, requested.primary_address_path());
    }
    if selected(optional::COUNTER_SET) {
        take_counter_set(nic, &mut context, requested)?;
    }
    context.set_state(row.to);
    Ok(context)
}

/// Sets the counter set, which must exist; number 0 means none.
pub(super) fn take_counter_set(
    nic: &Nic,
    context: &mut QueuePairContext,
    requested: &QueuePairContext,
) -> Result<(), Refusal> {
    let set = requested.counter_set_id();
    if set != 0 {
        nic.counter_sets.get(set.into()).ok_or(syndrome::COUNTER_UNKNOWN)?;
    }
    context.set_counter_set_id(set);
    Ok(())
}

/// A queue that is still draining has its own refusal, because it will soon be in the right state (IBTA v1.4
/// §10.3.1.5).
fn check_state(state: QpState, row: &Transition) -> Result<(), Refusal> {
    match state {
        state if state == row.from => Ok(()),
        QpState::SqDraining if row.from == QpState::SqDrained => Err(syndrome::QP_DRAINING),
        _ => Err(syndrome::QP_STATE),
    }
}

/// Automatic path migration is not supported: its state is always "migrated".
fn check_migration(requested: &QueuePairContext, alternate: bool, state: bool) -> Result<(), Refusal> {
    let moves = state && requested.pm_state() != PathMigration::Migrated;
    if alternate || moves { Err(syndrome::QP_ALTERNATE_PATH) } else { Ok(()) }
}

fn take_rights(context: &mut QueuePairContext, requested: &QueuePairContext, mask: u32) {
    if mask & optional::RRE != 0 {
        context.set_rre(requested.rre());
    }
    if mask & optional::RAE != 0 {
        context.set_rae(requested.rae()).set_atomic_mode(requested.atomic_mode());
    }
    if mask & optional::RWE != 0 {
        context.set_rwe(requested.rwe());
    }
}

/// Timers, retries, and the limits of outstanding READs.
fn take_retries_and_reads(
    nic: &Nic,
    context: &mut QueuePairContext,
    requested: &QueuePairContext,
    mask: u32,
) -> Result<(), Refusal> {
    let selected = |bit| mask & bit != 0;
    if selected(optional::RNR_TIMER) {
        context.set_min_rnr_nak(requested.min_rnr_nak());
    }
    if selected(optional::RETRY_COUNT) {
        context.set_retry_count(requested.retry_count());
    }
    if selected(optional::RNR_RETRY) {
        context.set_rnr_retry(requested.rnr_retry());
    }
    if selected(optional::ACK_TIMEOUT) {
        let timeout = requested.primary_address_path().ack_timeout();
        context.primary_address_path_mut().set_ack_timeout(timeout);
    }
    if selected(optional::REQUESTER_READS) {
        check_requester_reads(nic, requested)?;
        context.set_log_sra_max(requested.log_sra_max());
    }
    if selected(optional::RESPONDER_READS) {
        check_responder_reads(nic, requested)?;
        context.set_log_rra_max(requested.log_rra_max());
    }
    Ok(())
}

pub(super) fn check_requester_reads(nic: &Nic, requested: &QueuePairContext) -> Result<(), Refusal> {
    let limit = nic.firmware.capabilities.general.log_max_ra_req_qp();
    if requested.log_sra_max() > limit { Err(syndrome::QP_INITIATOR_DEPTH) } else { Ok(()) }
}

pub(super) fn check_responder_reads(nic: &Nic, requested: &QueuePairContext) -> Result<(), Refusal> {
    let limit = nic.firmware.capabilities.general.log_max_ra_res_qp();
    if requested.log_rra_max() > limit { Err(syndrome::QP_RESPONDER_RESOURCES) } else { Ok(()) }
}

pub(super) fn take_pkey_index(context: &mut QueuePairContext, path: &AddressPath) -> Result<(), Refusal> {
    if usize::from(path.pkey_index()) >= PARTITION_KEYS {
        return Err(syndrome::QP_PKEY_INDEX);
    }
    context.primary_address_path_mut().set_pkey_index(path.pkey_index());
    Ok(())
}

/// Drivers of one-port devices may leave the number zero.
pub(super) fn take_port(context: &mut QueuePairContext, path: &AddressPath) -> Result<(), Refusal> {
    if path.vhca_port_num() > 1 {
        return Err(syndrome::QP_PORT);
    }
    context.primary_address_path_mut().set_vhca_port_num(path.vhca_port_num());
    Ok(())
}

/// The path to the peer. P_Key index, port and timeout have their own bits in the mask.
pub(super) fn take_path(context: &mut QueuePairContext, requested: &AddressPath) {
    let path = context.primary_address_path_mut();
    let (pkey_index, port, timeout) = (path.pkey_index(), path.vhca_port_num(), path.ack_timeout());
    path.clone_from(requested);
    path.set_pkey_index(pkey_index).set_vhca_port_num(port).set_ack_timeout(timeout);
}

pub(super) fn check_path(nic: &Nic, path: &AddressPath) -> Result<(), Refusal> {
    if nic.shared.port.is_infiniband() {
        let known = !path.grh() || nic.shared.port.address(path.src_addr_index()).is_some();
        return if known { Ok(()) } else { Err(syndrome::QP_SOURCE_ADDRESS) };
    }
    let source = nic.shared.port.address(path.src_addr_index()).ok_or(syndrome::QP_SOURCE_ADDRESS)?;
    let remote = Gid(path.rgid_rip());
    let mac = MacAddress::from_parts(path.rmac_47_32(), path.rmac_31_0());
    let same_family = source.roce_version() == RoceVersion::Version1
        || Port::gid(source).to_ipv4().is_some() == remote.to_ipv4().is_some();
    if remote.is_zero() || !same_family || mac == MacAddress::default() || mac.0[0] & 1 != 0 {
        return Err(syndrome::QP_REMOTE_ADDRESS);
    }
    let chosen = path.udp_sport();
    if chosen != 0 && !SOURCE_PORTS.contains(&chosen) {
        return Err(syndrome::QP_SOURCE_PORT);
    }
    Ok(())
}

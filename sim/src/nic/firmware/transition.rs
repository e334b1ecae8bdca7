//! The state machine of a queue pair: one command per transition (IBTA v1.4 §10.3; contract §5.5).
//!
//! Each transition takes its required fields always and optional ones as `opt_param_mask` selects. Geometry, pages,
//! protection domain and completion queues are those of CREATE_QP. The new state follows from the opcode; `qpc.state` of
//! the input is not looked at.

use super::call::Call;
use super::syndrome::{self, Refusal};
use crate::nic::port::{PARTITION_KEYS, Port};
use crate::nic::{HostMemory, Nic};
use bareverbs_prm::command::qp::{
    InitToInitQpIn, InitToInitQpOut, InitToRtrQpIn, InitToRtrQpOut, ResetToInitQpIn, ResetToInitQpOut,
    RtrToRtsQpIn, RtrToRtsQpOut, RtsToRtsQpIn, RtsToRtsQpOut, SqErrorToRtsQpIn, SqErrorToRtsQpOut,
    SqdToRtsQpIn, SqdToRtsQpOut, ToErrorQpIn, ToErrorQpOut, ToResetQpIn, ToResetQpOut,
};
use bareverbs_prm::context::{AddressPath, QueuePairContext};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::numbering::{PathMtu, QpState, ServiceType};

/// Bits of `opt_param_mask`.
mod optional {
    pub(super) const RRE: u32 = 1 << 1;
    pub(super) const RAE: u32 = 1 << 2;
    pub(super) const RWE: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const Q_KEY: u32 = 1 << 5;
    pub(super) const RNR_TIMER: u32 = 1 << 6;
    pub(super) const PORT: u32 = 1 << 16;
    pub(super) const COUNTER_SET: u32 = 1 << 25;
    pub(super) const RIGHTS: u32 = RRE | RAE | RWE;
}

/// One row of the transition table.
struct Transition {
    from: QpState,
    to: QpState,
    optional: u32,
}

const RESET_TO_INIT: Transition = Transition { from: QpState::Reset, to: QpState::Init, optional: 0 };
const INIT_TO_INIT: Transition = Transition {
    from: QpState::Init,
    to: QpState::Init,
    optional: optional::RIGHTS | optional::PKEY_INDEX | optional::PORT | optional::Q_KEY,
};
const INIT_TO_RTR: Transition = Transition {
    from: QpState::Init,
    to: QpState::Rtr,
    optional: optional::RIGHTS | optional::PKEY_INDEX | optional::Q_KEY,
};
const RTR_TO_RTS: Transition = Transition {
    from: QpState::Rtr,
    to: QpState::Rts,
    optional: optional::RIGHTS | optional::RNR_TIMER | optional::Q_KEY,
};
const RTS_TO_RTS: Transition = Transition {
    from: QpState::Rts,
    to: QpState::Rts,
    optional: optional::RIGHTS | optional::RNR_TIMER | optional::Q_KEY | optional::COUNTER_SET,
};
const SQ_ERROR_TO_RTS: Transition = Transition {
    from: QpState::SqError,
    to: QpState::Rts,
    optional: optional::RIGHTS | optional::RNR_TIMER | optional::Q_KEY,
};
const SQD_TO_RTS: Transition = Transition {
    from: QpState::SqDrained,
    to: QpState::Rts,
    optional: optional::RIGHTS | optional::RNR_TIMER | optional::Q_KEY,
};

/// The context of a queue pair after the optional parameters of a transition; refused if it starts elsewhere.
fn begin(
    nic: &Nic,
    qpn: Qpn,
    row: &Transition,
    wish: &QueuePairContext,
    mask: u32,
) -> Result<QueuePairContext, Refusal> {
    let mut context = nic.queue_pairs.get(qpn.value()).ok_or(syndrome::QP_UNKNOWN)?.context;
    if context.state() != row.from {
        return Err(syndrome::QP_STATE);
    }
    // Connections have no Q_Key.
    let foreign = if connects(context.st()) { optional::Q_KEY } else { 0 };
    if mask & (!row.optional | foreign) != 0 {
        return Err(syndrome::QP_OPTIONAL_PARAMETER);
    }
    let selected = |bit| mask & bit != 0;
    if selected(optional::RRE) {
        context.set_rre(wish.rre());
    }
    if selected(optional::RAE) {
        context.set_rae(wish.rae()).set_atomic_mode(wish.atomic_mode());
    }
    if selected(optional::RWE) {
        context.set_rwe(wish.rwe());
    }
    if selected(optional::Q_KEY) {
        context.set_q_key(wish.q_key());
    }
    if selected(optional::RNR_TIMER) {
        context.set_min_rnr_nak(wish.min_rnr_nak());
    }
    if selected(optional::PKEY_INDEX) {
        take_pkey_index(&mut context, wish.primary_address_path())?;
    }
    if selected(optional::PORT) {
        take_port(&mut context, wish.primary_address_path())?;
    }
    if selected(optional::COUNTER_SET) {
        take_counter_set(nic, &mut context, wish)?;
    }
    context.set_state(row.to);
    Ok(context)
}

/// A queue pair counts in a set that exists, or, with number 0, nowhere.
fn take_counter_set(
    nic: &Nic,
    context: &mut QueuePairContext,
    wish: &QueuePairContext,
) -> Result<(), Refusal> {
    let set = wish.counter_set_id();
    if set != 0 {
        nic.counter_sets.get(set.into()).ok_or(syndrome::COUNTER_UNKNOWN)?;
    }
    context.set_counter_set_id(set);
    Ok(())
}

fn take_pkey_index(context: &mut QueuePairContext, path: &AddressPath) -> Result<(), Refusal> {
    if usize::from(path.pkey_index()) >= PARTITION_KEYS {
        return Err(syndrome::QP_PKEY_INDEX);
    }
    context.primary_address_path_mut().set_pkey_index(path.pkey_index());
    Ok(())
}

/// Drivers of devices with one port may leave the number zero.
fn take_port(context: &mut QueuePairContext, path: &AddressPath) -> Result<(), Refusal> {
    if path.vhca_port_num() > 1 {
        return Err(syndrome::QP_PORT);
    }
    context.primary_address_path_mut().set_vhca_port_num(path.vhca_port_num());
    Ok(())
}

fn store(nic: &mut Nic, qpn: Qpn, context: QueuePairContext) {
    let before = nic.queue_pairs.get(qpn.value()).map(|qp| qp.context.counter_set_id());
    if before != Some(context.counter_set_id()) {
        nic.leave_counter_set(qpn);
    }
    let Some(qp) = nic.queue_pairs.get_mut(qpn.value()) else { return };
    qp.context = context;
    if let Some(responder) = &mut qp.responder {
        responder.set_min_rnr_timer(context.min_rnr_nak());
    }
}

pub(super) fn reset_to_init<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &ResetToInitQpIn,
    _: &mut ResetToInitQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let wish = input.qpc();
    let mut context = begin(nic, input.qpn(), &RESET_TO_INIT, wish, input.opt_param_mask())?;
    take_pkey_index(&mut context, wish.primary_address_path())?;
    take_port(&mut context, wish.primary_address_path())?;
    context.set_rre(wish.rre()).set_rwe(wish.rwe()).set_rae(wish.rae()).set_atomic_mode(wish.atomic_mode());
    context.set_pm_state(wish.pm_state()).set_q_key(wish.q_key());
    take_counter_set(nic, &mut context, wish)?;
    context.set_log_ack_req_freq(wish.log_ack_req_freq());
    store(nic, input.qpn(), context);
    Ok(())
}

pub(super) fn init_to_init<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &InitToInitQpIn,
    _: &mut InitToInitQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = begin(nic, input.qpn(), &INIT_TO_INIT, input.qpc(), input.opt_param_mask())?;
    store(nic, input.qpn(), context);
    Ok(())
}

pub(super) fn init_to_rtr<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &InitToRtrQpIn,
    _: &mut InitToRtrQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let wish = input.qpc();
    let mut context = begin(nic, input.qpn(), &INIT_TO_RTR, wish, input.opt_param_mask())?;
    if connects(context.st()) {
        check_connection(nic, wish)?;
    }
    context.set_mtu(wish.mtu()).set_log_msg_max(wish.log_msg_max()).set_remote_qpn(wish.remote_qpn());
    context.set_next_rcv_psn(wish.next_rcv_psn()).set_min_rnr_nak(wish.min_rnr_nak());
    context.set_log_rra_max(wish.log_rra_max()).set_log_ack_req_freq(wish.log_ack_req_freq());
    let (pkey_index, port) = {
        let path = context.primary_address_path();
        (path.pkey_index(), path.vhca_port_num())
    };
    let path = context.primary_address_path_mut();
    path.clone_from(wish.primary_address_path());
    path.set_pkey_index(pkey_index).set_vhca_port_num(port);
    store(nic, input.qpn(), context);
    if connects(context.st()) {
        nic.connect(input.qpn());
    }
    Ok(())
}

/// Whether a queue pair has one peer, to which it is connected from RTR on.
const fn connects(service: ServiceType) -> bool {
    matches!(service, ServiceType::Rc | ServiceType::Uc | ServiceType::Xrc)
}

fn check_connection(nic: &Nic, wish: &QueuePairContext) -> Result<(), Refusal> {
    let limits = &nic.firmware.capabilities.general;
    let mtu = path_mtu(wish.mtu()).ok_or(syndrome::QP_PATH_MTU)?;
    if mtu > u32::from(nic.port.mtu()) {
        return Err(syndrome::QP_PATH_MTU);
    }
    if wish.log_msg_max() > limits.log_max_msg() {
        return Err(syndrome::QP_MESSAGE_SIZE);
    }
    if wish.log_rra_max() > limits.log_max_ra_res_qp() {
        return Err(syndrome::QP_RESPONDER_RESOURCES);
    }
    check_path(nic, wish.primary_address_path())
}

/// Bytes of a path MTU.
pub(crate) fn path_mtu(mtu: PathMtu) -> Option<u32> {
    match mtu.raw() {
        raw @ 1..=5 => Some(128 << raw),
        _ => None,
    }
}

fn check_path(nic: &Nic, path: &AddressPath) -> Result<(), Refusal> {
    if nic.port.is_infiniband() {
        let known = !path.grh() || nic.port.address(path.src_addr_index()).is_some();
        return if known { Ok(()) } else { Err(syndrome::QP_SOURCE_ADDRESS) };
    }
    let source = nic.port.address(path.src_addr_index()).ok_or(syndrome::QP_SOURCE_ADDRESS)?;
    let remote = Gid(path.rgid_rip());
    let mac = MacAddress::from_parts(path.rmac_47_32(), path.rmac_31_0());
    let same_family = Port::gid(source).to_ipv4().is_some() == remote.to_ipv4().is_some();
    if remote.is_zero() || !same_family || mac == MacAddress::default() || mac.0[0] & 1 != 0 {
        return Err(syndrome::QP_REMOTE_ADDRESS);
    }
    let chosen = path.udp_sport();
    if chosen != 0 && !super::capabilities::SOURCE_PORTS.contains(&chosen) {
        return Err(syndrome::QP_SOURCE_PORT);
    }
    Ok(())
}

pub(super) fn rtr_to_rts<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &RtrToRtsQpIn,
    _: &mut RtrToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let wish = input.qpc();
    let mut context = begin(nic, input.qpn(), &RTR_TO_RTS, wish, input.opt_param_mask())?;
    if wish.log_sra_max() > nic.firmware.capabilities.general.log_max_ra_req_qp() {
        return Err(syndrome::QP_INITIATOR_DEPTH);
    }
    context.set_next_send_psn(wish.next_send_psn()).set_log_sra_max(wish.log_sra_max());
    context.set_retry_count(wish.retry_count()).set_rnr_retry(wish.rnr_retry());
    context.set_log_ack_req_freq(wish.log_ack_req_freq());
    context.primary_address_path_mut().set_ack_timeout(wish.primary_address_path().ack_timeout());
    store(nic, input.qpn(), context);
    nic.start_sending(input.qpn());
    Ok(())
}

pub(super) fn rts_to_rts<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &RtsToRtsQpIn,
    _: &mut RtsToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = begin(nic, input.qpn(), &RTS_TO_RTS, input.qpc(), input.opt_param_mask())?;
    store(nic, input.qpn(), context);
    Ok(())
}

/// A reliable connection never is in the SQ error state (IBTA v1.4 §10.3.1), so this refuses for the state.
pub(super) fn sq_error_to_rts<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &SqErrorToRtsQpIn,
    _: &mut SqErrorToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = begin(nic, input.qpn(), &SQ_ERROR_TO_RTS, input.qpc(), input.opt_param_mask())?;
    store(nic, input.qpn(), context);
    Ok(())
}

/// No command of the driver interface leads to SQD, so this refuses for the state.
pub(super) fn sqd_to_rts<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &SqdToRtsQpIn,
    _: &mut SqdToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = begin(nic, input.qpn(), &SQD_TO_RTS, input.qpc(), input.opt_param_mask())?;
    store(nic, input.qpn(), context);
    Ok(())
}

/// From any state; every outstanding work request is flushed before the command is answered.
pub(super) fn to_error<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &ToErrorQpIn,
    _: &mut ToErrorQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    nic.queue_pairs.get(input.qpn().value()).ok_or(syndrome::QP_UNKNOWN)?;
    nic.move_to_error(call.now, call.memory, input.qpn());
    Ok(())
}

/// From any state; counters and numbers start again, and nothing of the past is completed.
pub(super) fn to_reset<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &ToResetQpIn,
    _: &mut ToResetQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let qp = nic.queue_pairs.get_mut(input.qpn().value()).ok_or(syndrome::QP_UNKNOWN)?;
    qp.reset();
    Ok(())
}

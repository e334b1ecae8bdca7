//! The state machine of a queue pair: one command per transition (IBTA v1.4 §10.3).
//!
//! Each transition always takes its required fields and takes optional ones as `opt_param_mask` selects.
//! Geometry, pages, protection domain and completion queues are set by CREATE_QP. The opcode determines the
//! new state; `qpc.state` of the input is ignored.

mod parameters;
mod table;

use super::call::Call;
use crate::nic::bus::Bus;
use crate::nic::queue_counters::leave_counter_set;
use crate::nic::queue_pair::{Effects, QueuePair, path_mtu};
use crate::nic::syndrome::{self, Refusal};
use crate::nic::{HostMemory, Nic};
use bareverbs_prm::command::qp::{
    InitToInitQpIn, InitToInitQpOut, InitToRtrQpIn, InitToRtrQpOut, ResetToInitQpIn, ResetToInitQpOut,
    RtrToRtsQpIn, RtrToRtsQpOut, RtsToRtsQpIn, RtsToRtsQpOut, SqErrorToRtsQpIn, SqErrorToRtsQpOut,
    SqdToRtsQpIn, SqdToRtsQpOut, ToErrorQpIn, ToErrorQpOut, ToResetQpIn, ToResetQpOut, extension_mask,
};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::ServiceType;
use parameters::{
    begin, check_path, check_requester_reads, check_responder_reads, take_counter_set, take_path,
    take_pkey_index, take_port,
};
use table::{
    INIT_TO_INIT, INIT_TO_RTR, RESET_TO_INIT, RTR_TO_RTS, RTS_TO_RTS, RTS_TO_SQD, SQ_ERROR_TO_RTS,
    SQD_TO_RTS, SQD_TO_SQD, Transition,
};

fn store(nic: &mut Nic, qpn: Qpn, context: QueuePairContext) -> Result<(), Refusal> {
    let qp = nic.queue_pairs.get_mut(qpn.value()).ok_or(syndrome::QP_UNKNOWN)?;
    if qp.context.counter_set_id() != context.counter_set_id() {
        leave_counter_set(&mut nic.counter_sets, qp);
    }
    qp.set_context(context);
    Ok(())
}

/// A transition that takes only what `mask` selects.
fn change(
    nic: &mut Nic,
    qpn: Qpn,
    transition: &Transition,
    requested: &QueuePairContext,
    mask: u32,
) -> Result<(), Refusal> {
    let context = begin(nic, qpn, transition, requested, mask)?;
    store(nic, qpn, context)
}

/// Makes the queue pair perform a transition.
fn act<'m>(
    nic: &mut Nic,
    call: &mut Call<'m>,
    qpn: Qpn,
    act: impl FnOnce(&mut QueuePair, &mut Bus<'_, dyn HostMemory + 'm>) -> Effects,
) -> Result<(), Refusal> {
    nic.with_queue_pair(call.now, call.memory, qpn, act).ok_or(syndrome::QP_UNKNOWN)
}

pub(super) fn reset_to_init(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ResetToInitQpIn,
    _: &mut ResetToInitQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let requested = input.qpc();
    let mut context = begin(nic, input.qpn(), &RESET_TO_INIT, requested, input.opt_param_mask())?;
    take_pkey_index(&mut context, requested.primary_address_path())?;
    take_port(&mut context, requested.primary_address_path())?;
    context
        .set_rre(requested.rre())
        .set_rwe(requested.rwe())
        .set_rae(requested.rae())
        .set_atomic_mode(requested.atomic_mode());
    context.set_pm_state(requested.pm_state()).set_q_key(requested.q_key());
    take_counter_set(nic, &mut context, requested)?;
    context.set_log_ack_req_freq(requested.log_ack_req_freq());
    store(nic, input.qpn(), context)
}

pub(super) fn init_to_init(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &InitToInitQpIn,
    _: &mut InitToInitQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let mmo = check_extension(nic, input)?;
    change(nic, input.qpn(), &INIT_TO_INIT, input.qpc(), input.opt_param_mask())?;
    if let (Some(on), Some(qp)) = (mmo, nic.queue_pairs.get_mut(input.qpn().value())) {
        qp.set_mmo(on);
    }
    Ok(())
}

/// Whether the extension of the context enables or disables memory-to-memory operations, if it says so at
/// all.
fn check_extension(nic: &Nic, input: &InitToInitQpIn) -> Result<Option<bool>, Refusal> {
    let mask = if input.qpc_ext() { input.opt_param_mask_95_32() } else { 0 };
    if mask & !extension_mask::MMO != 0 {
        return Err(syndrome::QP_OPTIONAL_PARAMETER);
    }
    if mask == 0 {
        return Ok(None);
    }
    let qp = nic.queue_pairs.get(input.qpn().value()).ok_or(syndrome::QP_UNKNOWN)?;
    if nic.shared.optional.card.is_none() || qp.context.st() != ServiceType::Rc {
        return Err(syndrome::QP_MMO);
    }
    Ok(Some(input.qpc_data_ext().mmo()))
}

pub(super) fn init_to_rtr(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &InitToRtrQpIn,
    _: &mut InitToRtrQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let requested = input.qpc();
    let mut context = begin(nic, input.qpn(), &INIT_TO_RTR, requested, input.opt_param_mask())?;
    if connects(context.st()) {
        check_connection(nic, requested)?;
    }
    context
        .set_mtu(requested.mtu())
        .set_log_msg_max(requested.log_msg_max())
        .set_remote_qpn(requested.remote_qpn());
    context.set_next_rcv_psn(requested.next_rcv_psn()).set_min_rnr_nak(requested.min_rnr_nak());
    context.set_log_rra_max(requested.log_rra_max()).set_log_ack_req_freq(requested.log_ack_req_freq());
    take_path(&mut context, requested.primary_address_path());
    store(nic, input.qpn(), context)?;
    if connects(context.st()) {
        return act(nic, call, input.qpn(), QueuePair::connect);
    }
    Ok(())
}

/// Whether a queue pair has one peer, to which it is connected from RTR on.
const fn connects(service: ServiceType) -> bool {
    matches!(service, ServiceType::Rc | ServiceType::Uc | ServiceType::Xrc)
}

fn check_connection(nic: &Nic, requested: &QueuePairContext) -> Result<(), Refusal> {
    let limits = &nic.firmware.capabilities.general;
    let mtu = path_mtu(requested.mtu()).ok_or(syndrome::QP_PATH_MTU)?;
    if mtu > u32::from(nic.shared.port.mtu()) {
        return Err(syndrome::QP_PATH_MTU);
    }
    if requested.log_msg_max() > limits.log_max_msg() {
        return Err(syndrome::QP_MESSAGE_SIZE);
    }
    check_responder_reads(nic, requested)?;
    check_path(nic, requested.primary_address_path())
}

pub(super) fn rtr_to_rts(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &RtrToRtsQpIn,
    _: &mut RtrToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let requested = input.qpc();
    let mut context = begin(nic, input.qpn(), &RTR_TO_RTS, requested, input.opt_param_mask())?;
    check_requester_reads(nic, requested)?;
    context.set_next_send_psn(requested.next_send_psn()).set_log_sra_max(requested.log_sra_max());
    context.set_retry_count(requested.retry_count()).set_rnr_retry(requested.rnr_retry());
    context.set_log_ack_req_freq(requested.log_ack_req_freq());
    context.primary_address_path_mut().set_ack_timeout(requested.primary_address_path().ack_timeout());
    store(nic, input.qpn(), context)?;
    act(nic, call, input.qpn(), |qp, bus| qp.start_sending(bus.config))
}

pub(super) fn rts_to_rts(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &RtsToRtsQpIn,
    _: &mut RtsToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    change(nic, input.qpn(), &RTS_TO_RTS, input.qpc(), input.opt_param_mask())
}

/// Resumes a send queue after a failed request, behind what was flushed. Only unacknowledged services reach
/// this state (IBTA v1.4 §10.3.1.6).
pub(super) fn sq_error_to_rts(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &SqErrorToRtsQpIn,
    _: &mut SqErrorToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    change(nic, input.qpn(), &SQ_ERROR_TO_RTS, input.qpc(), input.opt_param_mask())?;
    act(nic, call, input.qpn(), |qp, bus| qp.recover_send_queue(bus.config))
}

/// Drains the send queue: messages that have begun end, and no others begin. An event reports the end (IBTA
/// v1.4 §10.3.1.5).
///
/// The command's opcode and its layout, which all modify commands share, come from Linux 3.11 to 4.1; later
/// headers lack it.
pub(super) fn rts_to_sqd(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &RtsToRtsQpIn,
    _: &mut RtsToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    change(nic, input.qpn(), &RTS_TO_SQD, input.qpc(), input.opt_param_mask())?;
    act(nic, call, input.qpn(), QueuePair::drain)
}

/// Changes attributes while nothing is sent; see [`rts_to_sqd`] for its origin.
pub(super) fn sqd_to_sqd(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &RtsToRtsQpIn,
    _: &mut RtsToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    change(nic, input.qpn(), &SQD_TO_SQD, input.qpc(), input.opt_param_mask())?;
    act(nic, call, input.qpn(), QueuePair::change_connection)
}

/// Resumes sending with the next waiting message.
pub(super) fn sqd_to_rts(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &SqdToRtsQpIn,
    _: &mut SqdToRtsQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    change(nic, input.qpn(), &SQD_TO_RTS, input.qpc(), input.opt_param_mask())?;
    act(nic, call, input.qpn(), |qp, _| qp.resume())
}

/// Enters the error state from any state. All outstanding work requests are flushed before the command
/// completes.
pub(super) fn to_error(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ToErrorQpIn,
    _: &mut ToErrorQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    act(nic, call, input.qpn(), QueuePair::move_to_error)
}

/// Resets from any state. Counters and PSNs start again, and earlier work never completes.
pub(super) fn to_reset(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ToResetQpIn,
    _: &mut ToResetQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let qp = nic.queue_pairs.get_mut(input.qpn().value()).ok_or(syndrome::QP_UNKNOWN)?;
    qp.reset();
    Ok(())
}

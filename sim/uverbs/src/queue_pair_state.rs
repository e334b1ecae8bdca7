//! MODIFY_QP and QUERY_QP.

use crate::Errno;
use crate::address_path::{Ends, Route};
use crate::call::Call;
use crate::commands::Command;
use crate::device::Device;
use crate::process::Process;
use crate::queues::{QueuePair, QueuePairKind};
use crate::request::Request;
use crate::transition::{self, State, Step, attribute};
use crate::uapi::*;
use bareverbs_prm::command::qp::{
    QueryQpIn, QueryQpOut, ResetToInitQpIn, ResetToInitQpOut, ToErrorQpIn, ToErrorQpOut,
};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{CommandOpcode, PathMigration, PathMtu, QpState};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::wqe::OWN_QKEY;
use zerocopy::{FromZeros, IntoBytes};

/// Longest message of a datagram queue pair, logarithm: one packet of the largest path MTU.
const LOG_DATAGRAM: u8 = 12;
/// How often a requester asks for an acknowledgement, logarithm of packets.
const LOG_ACK_FREQUENCY: u8 = 8;
/// Atomics of 8 bytes as IBTA has them.
const STANDARD_ATOMICS: u8 = 1;
/// Q_Keys with this bit are privileged: only a privileged program may set them (IBTA v1.4 §10.2.5).
const PRIVILEGED_Q_KEY: u32 = OWN_QKEY;
/// `ib_mig_state`: migrated, rearm, armed.
const MIGRATION_STATES: [PathMigration; 3] =
    [PathMigration::Migrated, PathMigration::Rearm, PathMigration::Armed];
/// Ports have one P_Key each.
const PORT: u8 = 1;

/// MODIFY_QP.
pub(crate) fn modify<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let requested: ModifyQp = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    change(call, &requested)
}

/// EX_MODIFY_QP. Rates and enhanced connection establishment are not offered.
pub(crate) fn modify_extended<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let requested: ExModifyQp = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let provider: Mlx5ModifyQp = request.structure(call.process, UVERBS_ATTR_UHW_IN)?;
    if requested.rate_limit != 0
        || requested.reserved != 0
        || provider.comp_mask != 0
        || provider.ece_options != 0
    {
        return Err(Errno::NotSupported);
    }
    change(call, &requested.base)?;
    let room = |id| request.length(id).unwrap_or(0) as u32;
    let response = ExModifyQpResp {
        comp_mask: 0,
        response_length: room(UVERBS_ATTR_CORE_OUT).min(size_of::<ExModifyQpResp>() as u32),
    };
    let provider = Mlx5ModifyQpResp {
        response_length: room(UVERBS_ATTR_UHW_OUT).min(size_of::<Mlx5ModifyQpResp>() as u32),
        ..Mlx5ModifyQpResp::new_zeroed()
    };
    request.output(call.process, UVERBS_ATTR_CORE_OUT, response.as_bytes())?;
    request.output(call.process, UVERBS_ATTR_UHW_OUT, provider.as_bytes())
}

/// Attributes that are ignored (`modify_qp_mask`): programs give both ends of XRC those of a reliable
/// connection.
const fn ignored(kind: QueuePairKind) -> u32 {
    match kind {
        QueuePairKind::XrcInitiator => attribute::RESPONDER_RESOURCES | attribute::RNR_TIMER,
        QueuePairKind::XrcTarget => {
            attribute::INITIATOR_DEPTH | attribute::RETRY_COUNT | attribute::RNR_RETRY
        }
        _ => 0,
    }
}

fn change<P: Process>(call: &mut Call<'_, P>, requested: &ModifyQp) -> Result<(), Errno> {
    let qpn = call.file.queue_pair(requested.qp_handle)?;
    let kind = call.device.queues.pairs.get(&qpn).ok_or(Errno::Invalid)?.kind;
    let requested = &ModifyQp { attr_mask: requested.attr_mask & !ignored(kind), ..*requested };
    let has = |bit| requested.attr_mask & bit != 0;
    check(call, requested)?;
    let now = State::from_device(query_context(call.device, call.process, qpn)?.state());
    let named = |number| State::from_number(number).ok_or(Errno::Invalid);
    let from = if has(attribute::CURRENT_STATE) { named(requested.cur_qp_state)? } else { now };
    let to = if has(attribute::STATE) { named(requested.qp_state)? } else { from };
    let queue = call.device.queues.pairs.get(&qpn).ok_or(Errno::Invalid)?;
    let rights = Rights::of(queue, requested);
    let step = transition::find(kind, from, to, requested.attr_mask)?;
    match step.opcode {
        CommandOpcode::ToResetQp if now == State::Reset => {}
        CommandOpcode::ToResetQp | CommandOpcode::ToErrorQp => leave(call, qpn, step.opcode)?,
        _ => {
            let mut context = context(call, requested, kind, rights)?;
            if has(attribute::PATH) {
                let route = Route::from(&requested.dest);
                let next = route.resolve(call)?;
                let ends = Ends { local: qpn, remote: Qpn::from_low_bits(requested.dest_qp_num) };
                route.fill(context.primary_address_path_mut(), next, &ends);
            }
            pass(call, qpn, step, &context)?;
        }
    }
    match to {
        State::Reset => call.device.doorbells.look_away(qpn),
        // Work posted before the state allowed it counts from now on.
        _ => call.device.doorbells.look_again(qpn),
    }
    if let Some(queue) = call.device.queues.pairs.get_mut(&qpn) {
        let kept = if to == State::Reset { Rights { access: 0, resources: 0 } } else { rights };
        (queue.access, queue.responder_resources) = (kept.access, kept.resources);
    }
    Ok(())
}

/// The peer's rights. READs and atomics need responder resources (`set_qpc_atomic_flags`).
#[derive(Debug, Clone, Copy)]
struct Rights {
    access: u32,
    resources: u8,
}

impl Rights {
    const fn of(queue: &QueuePair, requested: &ModifyQp) -> Self {
        let (rights, resources) =
            (requested.attr_mask & attribute::ACCESS, requested.attr_mask & attribute::RESPONDER_RESOURCES);
        Self {
            access: if rights != 0 { requested.qp_access_flags } else { queue.access },
            resources: if resources != 0 { requested.max_dest_rd_atomic } else { queue.responder_resources },
        }
    }

    fn grant(self, context: &mut QueuePairContext) {
        let responses = self.resources != 0;
        let has = |bit| self.access & bit != 0;
        let atomic = responses && has(IB_UVERBS_ACCESS_REMOTE_ATOMIC);
        context.set_rwe(has(IB_UVERBS_ACCESS_REMOTE_WRITE));
        context.set_rre(responses && has(IB_UVERBS_ACCESS_REMOTE_READ));
        context.set_rae(atomic).set_atomic_mode(if atomic { STANDARD_ATOMICS } else { 0 });
    }
}

/// Limits that `ib_uverbs` checks before the transition.
fn check<P: Process>(call: &Call<'_, P>, requested: &ModifyQp) -> Result<(), Errno> {
    let has = |bit| requested.attr_mask & bit != 0;
    let general = &call.device.attributes.general;
    let wrong = requested.attr_mask & !attribute::ALL != 0
        || has(attribute::CAPACITY)
        || has(attribute::PORT) && requested.port_num != PORT
        || has(attribute::PKEY_INDEX) && requested.pkey_index != 0
        || has(attribute::PATH_MTU) && !(1..=5).contains(&requested.path_mtu)
        || has(attribute::PATH_MIGRATION) && usize::from(requested.path_mig_state) >= MIGRATION_STATES.len()
        || has(attribute::INITIATOR_DEPTH)
            && u32::from(requested.max_rd_atomic) > 1 << general.log_max_ra_req_qp()
        || has(attribute::RESPONDER_RESOURCES)
            && u32::from(requested.max_dest_rd_atomic) > 1 << general.log_max_ra_res_qp();
    if wrong {
        return Err(Errno::Invalid);
    }
    if has(attribute::Q_KEY) && requested.qkey & PRIVILEGED_Q_KEY != 0 {
        return Err(Errno::Permission);
    }
    Ok(())
}

/// The context of a transition: the program's attributes, and what the kernel adds.
fn context<P: Process>(
    call: &Call<'_, P>,
    requested: &ModifyQp,
    kind: QueuePairKind,
    rights: Rights,
) -> Result<QueuePairContext, Errno> {
    let has = |bit| requested.attr_mask & bit != 0;
    let mut context = QueuePairContext::new();
    let migration = usize::from(requested.path_mig_state);
    let migration = if has(attribute::PATH_MIGRATION) { MIGRATION_STATES.get(migration) } else { None };
    context.set_pm_state(migration.copied().unwrap_or(PathMigration::Migrated));
    context.set_log_ack_req_freq(LOG_ACK_FREQUENCY);
    if kind == QueuePairKind::Datagram {
        context.set_mtu(PathMtu::Mtu4096).set_log_msg_max(LOG_DATAGRAM);
    } else if has(attribute::PATH_MTU) {
        context.set_mtu(PathMtu::from_raw(requested.path_mtu));
        context.set_log_msg_max(call.device.attributes.general.log_max_msg());
    }
    if has(attribute::PORT) {
        context.primary_address_path_mut().set_vhca_port_num(requested.port_num);
    }
    if has(attribute::TIMEOUT) {
        context.primary_address_path_mut().set_ack_timeout(requested.timeout);
    }
    context.set_remote_qpn(Qpn::from_low_bits(requested.dest_qp_num)).set_q_key(requested.qkey);
    context
        .set_retry_count(requested.retry_cnt)
        .set_rnr_retry(requested.rnr_retry)
        .set_min_rnr_nak(requested.min_rnr_timer);
    context.set_log_sra_max(logarithm(requested.max_rd_atomic)).set_log_rra_max(logarithm(rights.resources));
    let psn = |value| Psn::new(value & 0xff_ffff);
    context.set_next_send_psn(psn(requested.sq_psn)).set_next_rcv_psn(psn(requested.rq_psn));
    rights.grant(&mut context);
    Ok(context)
}

/// Logarithm of the least power of two that is at least `number`.
fn logarithm(number: u8) -> u8 {
    u32::from(number).max(1).next_power_of_two().trailing_zeros() as u8
}

/// The commands of all transitions except those to RESET and ERROR share one layout.
fn pass<P: Process>(
    call: &mut Call<'_, P>,
    qpn: Qpn,
    step: Step,
    context: &QueuePairContext,
) -> Result<(), Errno> {
    let mut input = ResetToInitQpIn::new();
    input.set_qpn(qpn).set_opt_param_mask(step.parameters).qpc_mut().clone_from(context);
    let command = Command::new(step.opcode, 0, &input);
    Ok(call.device.commands.run::<_, ResetToInitQpOut>(call.process, &command).map(drop)?)
}

/// TO_RESET and TO_ERROR, which share a layout too.
fn leave<P: Process>(call: &mut Call<'_, P>, qpn: Qpn, opcode: CommandOpcode) -> Result<(), Errno> {
    let mut input = ToErrorQpIn::new();
    input.set_qpn(qpn);
    let command = Command::new(opcode, 0, &input);
    Ok(call.device.commands.run::<_, ToErrorQpOut>(call.process, &command).map(drop)?)
}

/// Queries the device's context of a queue pair.
pub(crate) fn query_context<P: Process>(
    device: &mut Device,
    process: &mut P,
    qpn: Qpn,
) -> Result<QueuePairContext, Errno> {
    let mut input = QueryQpIn::new();
    input.set_qpn(qpn);
    let command = Command::new(CommandOpcode::QueryQp, 0, &input);
    let response: QueryQpOut = device.commands.run(process, &command)?;
    Ok(*response.qpc())
}

/// QUERY_QP: what the device reports, whatever was requested.
pub(crate) fn query<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let requested: QueryQp = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let qpn = call.file.queue_pair(requested.qp_handle)?;
    let context = query_context(call.device, call.process, qpn)?;
    let queue = call.device.queues.pairs.get(&qpn).ok_or(Errno::Invalid)?;
    let response = show(&context, queue, call.device.attributes.infiniband.is_some());
    request.output(call.process, UVERBS_ATTR_CORE_OUT, response.as_bytes())
}

fn show(context: &QueuePairContext, queue: &QueuePair, is_infiniband: bool) -> QueryQpResp {
    let (path, capacity) = (context.primary_address_path(), &queue.capacity);
    let state = State::from_device(context.state()) as u8;
    let rights = [
        (context.rwe(), IB_UVERBS_ACCESS_REMOTE_WRITE),
        (context.rre(), IB_UVERBS_ACCESS_REMOTE_READ),
        (context.rae(), IB_UVERBS_ACCESS_REMOTE_ATOMIC),
    ];
    let migration = MIGRATION_STATES.iter().position(|&state| state == context.pm_state());
    QueryQpResp {
        dest: Route::show(path, is_infiniband),
        max_send_wr: capacity.max_send_wr,
        max_recv_wr: capacity.max_recv_wr,
        max_send_sge: capacity.max_send_sge,
        max_recv_sge: capacity.max_recv_sge,
        max_inline_data: capacity.max_inline_data,
        qkey: context.q_key(),
        rq_psn: context.next_rcv_psn().value(),
        sq_psn: context.next_send_psn().value(),
        dest_qp_num: context.remote_qpn().value(),
        qp_access_flags: rights.iter().filter(|(has, _)| *has).fold(0, |flags, (_, bit)| flags | bit),
        pkey_index: path.pkey_index(),
        qp_state: state,
        cur_qp_state: state,
        path_mtu: context.mtu().raw(),
        path_mig_state: migration.unwrap_or(0) as u8,
        sq_draining: u8::from(context.state() == QpState::SqDraining),
        max_rd_atomic: 1 << context.log_sra_max(),
        max_dest_rd_atomic: 1 << context.log_rra_max(),
        min_rnr_timer: context.min_rnr_nak(),
        port_num: path.vhca_port_num(),
        timeout: path.ack_timeout(),
        retry_cnt: context.retry_count(),
        rnr_retry: context.rnr_retry(),
        sq_sig_all: u8::from(queue.signals_all),
        ..QueryQpResp::new_zeroed()
    }
}

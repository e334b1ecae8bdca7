//! CREATE_QP, DESTROY_QP, QUERY_QP.

use super::call::Call;
use super::umem::{BufferPlace, UmemPlace, queue_buffer, record};
use crate::nic::Nic;
use crate::nic::doorbell_record::DoorbellRecord;
use crate::nic::queue_counters::leave_counter_set;
use crate::nic::queue_pair::{QueuePair, WorkQueueMemory, xrc_target_domain};
use crate::nic::receive_queue::{ReceiveGeometry, ReceiveQueue};
use crate::nic::shared_receive::{ReceiveSource, SharedContext};
use crate::nic::syndrome::{self, Refusal};
use crate::nic::user_memory::Need;
use bareverbs_prm::command::qp::{CreateQpIn, CreateQpOut, DestroyQpIn, DestroyQpOut, QueryQpIn, QueryQpOut};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Qpn, Srqn};
use bareverbs_prm::numbering::{QpState, ServiceType};
use bareverbs_prm::wqe::BASIC_BLOCK;

/// `rq_type`: a receive queue of its own, a shared one, or none.
const OWN_RECEIVE_QUEUE: u8 = 0;
const SHARED_RECEIVE_QUEUE: u8 = 1;
const NO_RECEIVE_QUEUE: u8 = 3;

pub(super) fn create(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateQpIn,
    output: &mut CreateQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if input.input_qpn().value() != 0 {
        return Err(syndrome::QP_NUMBER);
    }
    let mut context = *input.qpc();
    check_service(nic, context.st())?;
    check_features(input)?;
    let geometry = check_sizes(nic, &context)?;
    check_objects(nic, &context)?;
    let shared = check_shared(nic, &context)?;
    let send_length = if context.no_sq() { 0 } else { (BASIC_BLOCK as u64) << context.log_sq_size() };
    let length = geometry.map_or(0, ReceiveGeometry::bytes) + send_length;
    let buffer = queue_buffer(nic, call, place(input), Need::Read, length)?;
    let record = check_record(nic, &context)?;
    let limit = 1 << nic.firmware.capabilities.general.log_max_qp();
    let limit = nic.config.queue_pair_numbers.count().min(limit);
    let number = nic.queue_pairs.next_number(limit).ok_or(syndrome::QP_LIMIT)?;
    context.set_state(QpState::Reset);
    let qpn = Qpn::from_low_bits(number);
    let memory = WorkQueueMemory { buffer, record };
    let receives = receive_source(&context, &memory, geometry, shared);
    nic.queue_pairs.insert(number, QueuePair::new(qpn, context, memory, receives));
    nic.schedule.start(number);
    nic.groups.note_created(qpn, context.st());
    count_users(nic, &context, 1);
    output.set_qpn(qpn);
    Ok(())
}

/// The source of receives. An XRC target takes them from the queues of its domain, whatever else the context
/// names.
fn receive_source(
    context: &QueuePairContext,
    memory: &WorkQueueMemory,
    geometry: Option<ReceiveGeometry>,
    shared: Option<Srqn>,
) -> ReceiveSource {
    let own = |geometry| ReceiveQueue::new(memory.buffer.clone(), geometry, memory.record.clone());
    match (xrc_target_domain(context), shared, geometry) {
        (Some(domain), ..) => ReceiveSource::Xrc(domain),
        (None, Some(number), _) => ReceiveSource::Shared(number),
        (None, None, Some(geometry)) => ReceiveSource::Own(own(geometry)),
        (None, None, None) => ReceiveSource::None,
    }
}

fn place(input: &CreateQpIn) -> BufferPlace {
    let (context, named) =
        (input.qpc(), UmemPlace { id: input.wq_umem_id(), offset: input.wq_umem_offset() });
    BufferPlace {
        list_at: CreateQpIn::PAS_OFFSET,
        log_page_size: context.log_page_size(),
        page_offset: context.page_offset(),
        umem: input.wq_umem_valid().then_some(named),
    }
}

/// Checks the doorbell record. XRC targets have no queue that uses one.
fn check_record(nic: &Nic, context: &QueuePairContext) -> Result<DoorbellRecord, Refusal> {
    if context.no_sq() && context.rq_type() != OWN_RECEIVE_QUEUE {
        return Ok(DoorbellRecord::at(context.dbr_addr()));
    }
    record(nic, context.dbr_umem_valid().then(|| context.dbr_umem_id()), context.dbr_addr())
}

/// Only InfiniBand ports have a QP0.
fn check_service(nic: &Nic, service: ServiceType) -> Result<(), Refusal> {
    let known = match service {
        ServiceType::Rc | ServiceType::Uc | ServiceType::Ud | ServiceType::Xrc => true,
        // QP1, and queue pairs for memory-key updates.
        ServiceType::Qp1 | ServiceType::RegUmr => true,
        ServiceType::Qp0 => nic.shared.port.is_infiniband(),
        _ => false,
    };
    if known { Ok(()) } else { Err(syndrome::QP_SERVICE) }
}

fn check_features(input: &CreateQpIn) -> Result<(), Refusal> {
    let context = input.qpc();
    let scatter_to_cqe = context.cs_req() != 0 || context.cs_res() != 0;
    if scatter_to_cqe || context.wq_signature() || input.qpc_ext() || input.opt_param_mask() != 0 {
        return Err(syndrome::QP_FEATURE);
    }
    Ok(())
}

/// Checks the sizes of both queues and returns that of the receive queue, if there is one.
fn check_sizes(nic: &Nic, context: &QueuePairContext) -> Result<Option<ReceiveGeometry>, Refusal> {
    let limits = &nic.firmware.capabilities.general;
    if !context.no_sq() && context.log_sq_size() > limits.log_max_qp_sz() {
        return Err(syndrome::QP_SEND_SIZE);
    }
    match context.rq_type() {
        NO_RECEIVE_QUEUE | SHARED_RECEIVE_QUEUE => return Ok(None),
        OWN_RECEIVE_QUEUE => {}
        _ => return Err(syndrome::QP_RECEIVE_TYPE),
    }
    let log_stride = context.log_rq_stride() + 4;
    if context.log_rq_size() > limits.log_max_qp_sz() || 1u32 << log_stride > limits.max_wqe_sz_rq().into() {
        return Err(syndrome::QP_RECEIVE_SIZE);
    }
    Ok(Some(ReceiveGeometry { log_size: context.log_rq_size(), log_stride }))
}

/// The shared receive queue, if the queue pair receives from one.
fn check_shared(nic: &Nic, context: &QueuePairContext) -> Result<Option<Srqn>, Refusal> {
    if context.rq_type() != SHARED_RECEIVE_QUEUE {
        return Ok(None);
    }
    let number = Srqn::from_low_bits(context.srqn_rmpn_xrqn());
    let xrc = context.st() == ServiceType::Xrc;
    match nic.shared.shared_receives.get(number.value()).map(|shared| &shared.context) {
        Some(SharedContext::Pool(_)) if !xrc => Ok(Some(number)),
        // The message names the queue of its domain; the one named here does not matter.
        Some(SharedContext::Xrc(_)) if xrc => Ok(None),
        _ => Err(syndrome::SRQ_UNKNOWN),
    }
}

/// Whether the queue pair completes receives.
fn receives(context: &QueuePairContext) -> bool {
    context.rq_type() != NO_RECEIVE_QUEUE
}

fn check_objects(nic: &Nic, context: &QueuePairContext) -> Result<(), Refusal> {
    if context.st() == ServiceType::Xrc {
        nic.xrc_domains.get(context.xrcd().value()).ok_or(syndrome::XRCD_UNKNOWN)?;
    }
    // XRC targets have no queue that uses a doorbell.
    if !context.no_sq() || context.rq_type() == OWN_RECEIVE_QUEUE {
        nic.uars.get(context.uar_page().value()).ok_or(syndrome::UAR_UNKNOWN)?;
    }
    // Queue pairs for memory-key updates may change keys of all domains and belong to none.
    if context.st() != ServiceType::RegUmr {
        nic.shared.domains.get(context.pd().value()).ok_or(syndrome::PD_UNKNOWN)?;
    }
    if !context.no_sq() {
        nic.shared.completions.queues.get(context.cqn_snd().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    }
    if receives(context) {
        nic.shared.completions.queues.get(context.cqn_rcv().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    }
    Ok(())
}

fn count_users(nic: &mut Nic, context: &QueuePairContext, change: i32) {
    let send = (!context.no_sq()).then(|| context.cqn_snd());
    let receive = receives(context).then(|| context.cqn_rcv());
    for cqn in [send, receive].into_iter().flatten() {
        if let Some(queue) = nic.shared.completions.queues.get_mut(cqn.value()) {
            queue.users = queue.users.saturating_add_signed(change);
        }
    }
}

/// Destroys a queue pair in any state; afterwards no completion and no event names its number.
pub(super) fn destroy(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyQpIn,
    _: &mut DestroyQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let mut qp = nic.queue_pairs.remove(input.qpn().value()).ok_or(syndrome::QP_UNKNOWN)?;
    leave_counter_set(&mut nic.counter_sets, &mut qp);
    count_users(nic, &qp.context, -1);
    nic.groups.forget(input.qpn());
    Ok(())
}

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryQpIn,
    output: &mut QueryQpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if input.qpc_ext() {
        return Err(syndrome::QP_FEATURE);
    }
    let qp = nic.queue_pairs.get(input.qpn().value()).ok_or(syndrome::QP_UNKNOWN)?;
    output.qpc_mut().clone_from(&qp.shown_context());
    Ok(())
}

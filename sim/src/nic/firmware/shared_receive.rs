//! XRC domains, receive memory pools and XRC shared receive queues (PRM; Linux `drivers/infiniband/hw/mlx5/srq_cmd.c`).

use super::call::Call;
use super::umem::{BufferPlace, paged_buffer, queue_buffer, record, work_queue_record};
use crate::nic::Nic;
use crate::nic::queue_pair::QueuePair;
use crate::nic::receive_queue::ReceiveGeometry;
use crate::nic::shared_receive::{ReceiveSource, SharedContext, SharedReceiveQueue, SharedState};
use crate::nic::syndrome::{self, Refusal};
use crate::nic::user_memory::Need;
use bareverbs_prm::command::srq::{
    AllocXrcdIn, AllocXrcdOut, ArmXrcSrqIn, ArmXrcSrqOut, CreateRmpIn, CreateRmpOut, CreateXrcSrqIn,
    CreateXrcSrqOut, DeallocXrcdIn, DeallocXrcdOut, DestroyRmpIn, DestroyRmpOut, DestroyXrcSrqIn,
    DestroyXrcSrqOut, ModifyRmpIn, ModifyRmpOut, QueryRmpIn, QueryRmpOut, QueryXrcSrqIn, QueryXrcSrqOut,
    RmpContext, XrcSrqContext,
};
use bareverbs_prm::ids::{Pdn, Srqn, Xrcdn};
use bareverbs_prm::numbering::ServiceType;

/// `wq_type`: entries form a linked list, the only kind that drivers use.
const LINKED_LIST: u8 = 0;
/// `rmpc.state`.
mod pool_state {
    pub(super) const RESET: u8 = 0;
    pub(super) const READY: u8 = 1;
    pub(super) const ERROR: u8 = 3;
}
/// `xrc_srqc.state` of a broken queue; zero means good.
const XRC_ERROR: u8 = 1;
/// The page list follows the work queue context of the pool.
const CREATE_RMP_PAGES: usize = CreateRmpIn::SIZE;

pub(super) fn alloc_xrcd(
    nic: &mut Nic,
    call: &mut Call<'_>,
    _: &AllocXrcdIn,
    output: &mut AllocXrcdOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let limit = 1 << nic.firmware.capabilities.general.log_max_xrcd();
    let number = nic.xrc_domains.next_number(limit).ok_or(syndrome::XRCD_LIMIT)?;
    nic.xrc_domains.insert(number, ());
    output.set_xrcd(Xrcdn::from_low_bits(number));
    Ok(())
}

pub(super) fn dealloc_xrcd(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DeallocXrcdIn,
    _: &mut DeallocXrcdOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let domain = input.xrcd();
    nic.xrc_domains.get(domain.value()).ok_or(syndrome::XRCD_UNKNOWN)?;
    let uses = |context: &SharedContext| matches!(context, SharedContext::Xrc(xrc) if xrc.xrcd() == domain);
    let member = |qp: &QueuePair| qp.context.st() == ServiceType::Xrc && qp.context.xrcd() == domain;
    let used = nic.shared.shared_receives.iter().any(|(_, queue)| uses(&queue.context))
        || nic.queue_pairs.iter().any(|(_, qp)| member(qp));
    if used {
        return Err(syndrome::XRCD_BUSY);
    }
    nic.xrc_domains.remove(domain.value());
    Ok(())
}

pub(super) fn create_rmp(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateRmpIn,
    output: &mut CreateRmpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = *input.ctx();
    let queue = context.wq();
    if queue.wq_type() != LINKED_LIST || context.basic_cyclic_rcv_wqe() || queue.wq_signature() {
        return Err(syndrome::SRQ_FEATURE);
    }
    let requested = ReceiveGeometry { log_size: queue.log_wq_sz(), log_stride: queue.log_wq_stride() };
    let geometry = check_geometry(nic, requested, queue.pd())?;
    let record = work_queue_record(nic, queue)?;
    let place = BufferPlace::of_work_queue(queue, CREATE_RMP_PAGES);
    let buffer = queue_buffer(nic, call, place, Need::Read, geometry.bytes())?;
    let limit = queue.lwm();
    let mut shared = SharedReceiveQueue::new(SharedContext::Pool(context), buffer, geometry, record, limit);
    match context.state() {
        pool_state::READY => {}
        pool_state::RESET => shared.reset(),
        _ => return Err(syndrome::SRQ_STATE),
    }
    output.set_rmpn(insert(nic, shared)?);
    Ok(())
}

/// Checks the size of the queue and of its entries, and the protection domain.
fn check_geometry(nic: &Nic, requested: ReceiveGeometry, pd: Pdn) -> Result<ReceiveGeometry, Refusal> {
    let ReceiveGeometry { log_size, log_stride } = requested;
    let limits = &nic.firmware.capabilities.general;
    let longest = limits.max_wqe_sz_rq();
    if log_size > limits.log_max_srq_sz()
        || !(5..=15).contains(&log_stride)
        || 1u32 << log_stride > longest.into()
    {
        return Err(syndrome::SRQ_SIZE);
    }
    nic.shared.domains.get(pd.value()).ok_or(syndrome::PD_UNKNOWN)?;
    Ok(requested)
}

fn insert(nic: &mut Nic, queue: SharedReceiveQueue) -> Result<Srqn, Refusal> {
    let limit = 1 << nic.firmware.capabilities.general.log_max_srq();
    let number = nic.shared.shared_receives.next_number(limit).ok_or(syndrome::SRQ_LIMIT)?;
    nic.shared.shared_receives.insert(number, queue);
    Ok(Srqn::from_low_bits(number))
}

fn pool(nic: &mut Nic, number: Srqn) -> Result<&mut SharedReceiveQueue, Refusal> {
    let queue = nic.shared.shared_receives.get_mut(number.value()).ok_or(syndrome::SRQ_UNKNOWN)?;
    if matches!(queue.context, SharedContext::Pool(_)) { Ok(queue) } else { Err(syndrome::SRQ_UNKNOWN) }
}

fn xrc(nic: &mut Nic, number: Srqn) -> Result<&mut SharedReceiveQueue, Refusal> {
    let queue = nic.shared.shared_receives.get_mut(number.value()).ok_or(syndrome::SRQ_UNKNOWN)?;
    if matches!(queue.context, SharedContext::Xrc(_)) { Ok(queue) } else { Err(syndrome::SRQ_UNKNOWN) }
}

/// Changes state and limit; a limit of zero disables it. The command also names the current state of the
/// pool.
pub(super) fn modify_rmp(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifyRmpIn,
    _: &mut ModifyRmpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = pool(nic, input.rmpn())?;
    let (from, to) = (shown_state(queue.state), input.ctx().state());
    if from != input.rmp_state() {
        return Err(syndrome::SRQ_STATE);
    }
    match (from, to) {
        (pool_state::RESET, pool_state::READY) => queue.state = SharedState::Ready,
        (_, pool_state::RESET) => queue.reset(),
        // Software requested the error state, so it is not notified.
        (_, pool_state::ERROR) => queue.state = SharedState::Failed { told: true },
        _ if from == to => {}
        _ => return Err(syndrome::SRQ_STATE),
    }
    if input.bitmask_lwm() {
        queue.limit = input.ctx().wq().lwm();
    }
    watch(nic, call, input.rmpn());
    Ok(())
}

/// Posts the event that the queue owes software, if any.
fn watch(nic: &mut Nic, call: &mut Call<'_>, number: Srqn) {
    nic.parts(call.now, call.memory).bus.watch_shared(number);
}

fn shown_state(state: SharedState) -> u8 {
    match state {
        SharedState::Reset => pool_state::RESET,
        SharedState::Ready => pool_state::READY,
        SharedState::Failed { .. } => pool_state::ERROR,
    }
}

pub(super) fn destroy_rmp(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyRmpIn,
    _: &mut DestroyRmpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    pool(nic, input.rmpn())?;
    remove(nic, input.rmpn())
}

fn remove(nic: &mut Nic, number: Srqn) -> Result<(), Refusal> {
    if nic
        .queue_pairs
        .iter()
        .any(|(_, qp)| matches!(qp.receives, ReceiveSource::Shared(used) if used == number))
    {
        return Err(syndrome::SRQ_BUSY);
    }
    nic.shared.shared_receives.remove(number.value());
    Ok(())
}

pub(super) fn query_rmp(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryRmpIn,
    output: &mut QueryRmpOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = pool(nic, input.rmpn())?;
    if let SharedContext::Pool(context) = &queue.context {
        let mut shown: RmpContext = *context;
        shown.set_state(shown_state(queue.state)).wq_mut().set_lwm(queue.limit);
        output.rmp_context_mut().clone_from(&shown);
    }
    Ok(())
}

pub(super) fn create_xrc_srq(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateXrcSrqIn,
    output: &mut CreateXrcSrqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = *input.xrc_srq_context_entry();
    // No public header says where these contexts name a user memory object.
    if input.xrc_srq_umem_valid()
        || context.dbr_umem_valid()
        || context.basic_cyclic_rcv_wqe()
        || context.wq_signature()
    {
        return Err(syndrome::SRQ_FEATURE);
    }
    nic.xrc_domains.get(context.xrcd().value()).ok_or(syndrome::XRCD_UNKNOWN)?;
    nic.shared.completions.queues.get(context.cqn().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    let address = u64::from(context.db_record_addr_h()) << 32 | u64::from(context.db_record_addr_l()) << 2;
    let (log_size, log_stride) = (context.log_xrc_srq_size(), context.log_rq_stride() + 4);
    let geometry = check_geometry(nic, ReceiveGeometry { log_size, log_stride }, context.pd())?;
    let record = record(nic, None, address)?;
    let (log_page, offset, length) = (context.log_page_size(), context.page_offset(), geometry.bytes());
    let buffer = paged_buffer(nic, call, CreateXrcSrqIn::PAS_OFFSET, log_page, offset, length)?;
    let limit = context.lwm();
    let shared = SharedReceiveQueue::new(SharedContext::Xrc(context), buffer, geometry, record, limit);
    output.set_xrc_srqn(insert(nic, shared)?);
    count_user(nic, &context, 1);
    Ok(())
}

/// Counts the queue as a user of its completion queue, which cannot be destroyed before it.
fn count_user(nic: &mut Nic, context: &XrcSrqContext, change: i32) {
    if let Some(queue) = nic.shared.completions.queues.get_mut(context.cqn().value()) {
        queue.users = queue.users.saturating_add_signed(change);
    }
}

pub(super) fn destroy_xrc_srq(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyXrcSrqIn,
    _: &mut DestroyXrcSrqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let SharedContext::Xrc(context) = xrc(nic, input.xrc_srqn())?.context else {
        return Err(syndrome::SRQ_UNKNOWN);
    };
    remove(nic, input.xrc_srqn())?;
    count_user(nic, &context, -1);
    Ok(())
}

pub(super) fn query_xrc_srq(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryXrcSrqIn,
    output: &mut QueryXrcSrqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = xrc(nic, input.xrc_srqn())?;
    if let SharedContext::Xrc(context) = &queue.context {
        let mut shown = *context;
        let broken = matches!(queue.state, SharedState::Failed { .. });
        shown.set_lwm(queue.limit).set_state(if broken { XRC_ERROR } else { 0 });
        output.xrc_srq_context_entry_mut().clone_from(&shown);
    }
    Ok(())
}

/// `op_mod` 1 sets the limit.
pub(super) fn arm_xrc_srq(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ArmXrcSrqIn,
    _: &mut ArmXrcSrqOut,
) -> Result<(), Refusal> {
    if call.op_mod() != 1 {
        return Err(syndrome::BAD_OP_MOD);
    }
    xrc(nic, input.xrc_srqn())?.limit = input.lwm();
    watch(nic, call, input.xrc_srqn());
    Ok(())
}

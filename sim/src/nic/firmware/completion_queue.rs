//! CREATE_CQ, DESTROY_CQ, QUERY_CQ, MODIFY_CQ: moderation, overrun, the event queue, and resizing.

use super::call::Call;
use super::umem::{BufferPlace, UmemPlace, queue_buffer, record};
use crate::nic::Nic;
use crate::nic::completion::{CompletionQueue, ResizeRefusal, stride};
use crate::nic::syndrome::{self, Refusal};
use crate::nic::user_memory::Need;
use bareverbs_prm::command::cq::{
    CreateCqIn, CreateCqOut, DestroyCqIn, DestroyCqOut, ModifyCqIn, ModifyCqOut, QueryCqIn, QueryCqOut,
};
use bareverbs_prm::context::CompletionQueueContext;
use bareverbs_prm::ids::Cqn;

/// `op_mod` of MODIFY_CQ that switches the queue to another buffer.
const RESIZE: u16 = 1;
/// `modify_field_select`.
const SELECT_PERIOD: u32 = 1;
const SELECT_COUNT: u32 = 1 << 1;
const SELECT_OVERRUN: u32 = 1 << 2;
const SELECT_EQN: u32 = 1 << 3;
const SELECT_PERIOD_MODE: u32 = 1 << 4;
/// `resize_field_select`.
const RESIZE_SIZE: u32 = 1;
const RESIZE_PAGE_OFFSET: u32 = 1 << 1;
const RESIZE_PAGE_SIZE: u32 = 1 << 2;
const RESIZE_UMEM: u32 = 1 << 3;
/// `cqe_sz`: 64 bytes, 128 bytes, 128 bytes of which the first half is padding.
const LARGEST_ENTRY: u8 = 2;
/// `mini_cqe_res_format`: a hash or a checksum; completions of queue pairs have neither.
const LARGEST_MINI_FORMAT: u8 = 1;
/// `cq_period_mode`: the period begins with an event, or with a completion.
const LARGEST_PERIOD_MODE: u8 = 1;

pub(super) fn create(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateCqIn,
    output: &mut CreateCqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = *input.cq_context();
    let capabilities = &nic.firmware.capabilities.general;
    if context.log_cq_size() > capabilities.log_max_cq_sz() {
        return Err(syndrome::CQ_SIZE);
    }
    check_features(&context)?;
    let record = record(nic, context.dbr_umem_valid().then(|| context.dbr_umem_id()), context.dbr_addr())?;
    nic.uars.get(context.uar_page().value()).ok_or(syndrome::UAR_UNKNOWN)?;
    nic.shared.events.queues.get(context.c_eqn_or_apu_element()).ok_or(syndrome::EQ_UNKNOWN)?;
    let number = nic
        .shared
        .completions
        .queues
        .next_number(1 << capabilities.log_max_cq())
        .ok_or(syndrome::CQ_LIMIT)?;
    let length = stride(&context) << context.log_cq_size();
    let named = UmemPlace { id: input.cq_umem_id(), offset: input.cq_umem_offset() };
    let place = place(&context, CreateCqIn::PAS_OFFSET, input.cq_umem_valid().then_some(named));
    let buffer = queue_buffer(nic, call, place, Need::Write, length)?;
    let cqn = Cqn::from_low_bits(number);
    nic.shared.completions.queues.insert(number, CompletionQueue::new(cqn, context, buffer, record));
    output.set_cqn(cqn);
    Ok(())
}

fn place(context: &CompletionQueueContext, list_at: usize, umem: Option<UmemPlace>) -> BufferPlace {
    BufferPlace { list_at, log_page_size: context.log_page_size(), page_offset: context.page_offset(), umem }
}

/// Checks the entry size: 64 or 128 bytes. Compression requires 64-byte entries, the basic layout, and a
/// queue that is not collapsed.
fn check_features(context: &CompletionQueueContext) -> Result<(), Refusal> {
    let compressed = context.cqe_comp_en();
    let basic = context.cqe_sz() == 0
        && !context.cc()
        && context.cqe_compression_layout() == 0
        && context.mini_cqe_res_format() <= LARGEST_MINI_FORMAT;
    let offered = context.cqe_sz() <= LARGEST_ENTRY && (!compressed || basic);
    if !offered || context.apu_cq() {
        return Err(syndrome::CQ_FEATURE);
    }
    check_period_mode(context)
}

fn check_period_mode(context: &CompletionQueueContext) -> Result<(), Refusal> {
    if context.cq_period_mode() > LARGEST_PERIOD_MODE { Err(syndrome::CQ_FEATURE) } else { Ok(()) }
}

pub(super) fn destroy(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyCqIn,
    _: &mut DestroyCqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let cqn = input.cqn().value();
    let queue = nic.shared.completions.queues.get(cqn).ok_or(syndrome::CQ_UNKNOWN)?;
    if queue.users > 0 {
        return Err(syndrome::CQ_BUSY);
    }
    nic.shared.completions.remove(input.cqn());
    Ok(())
}

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryCqIn,
    output: &mut QueryCqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = nic.shared.completions.queues.get(input.cqn().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    output.cq_context_mut().clone_from(&queue.context());
    Ok(())
}

pub(super) fn modify(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifyCqIn,
    _: &mut ModifyCqOut,
) -> Result<(), Refusal> {
    match call.op_mod() {
        0 => modify_fields(nic, input),
        RESIZE => resize(nic, call, input),
        _ => Err(syndrome::BAD_OP_MOD),
    }
}

fn modify_fields(nic: &mut Nic, input: &ModifyCqIn) -> Result<(), Refusal> {
    let queue = nic.shared.completions.queues.get_mut(input.cqn().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    let select = input.modify_field_select_resize_field_select_modify_field_select_modify_field_select();
    let requested = input.cq_context();
    if select & !(SELECT_PERIOD | SELECT_COUNT | SELECT_OVERRUN | SELECT_EQN | SELECT_PERIOD_MODE) != 0 {
        return Err(syndrome::CQ_FIELD_SELECT);
    }
    let selected = |bit: u32| select & bit != 0;
    if selected(SELECT_PERIOD_MODE) {
        check_period_mode(requested)?;
    }
    if selected(SELECT_EQN) {
        nic.shared.events.queues.get(requested.c_eqn_or_apu_element()).ok_or(syndrome::EQ_UNKNOWN)?;
    }
    queue.modify(|context| {
        if selected(SELECT_PERIOD) {
            context.set_cq_period(requested.cq_period());
        }
        if selected(SELECT_COUNT) {
            context.set_cq_max_count(requested.cq_max_count());
        }
        if selected(SELECT_PERIOD_MODE) {
            context.set_cq_period_mode(requested.cq_period_mode());
        }
        if selected(SELECT_OVERRUN) {
            context.set_oi(requested.oi());
        }
        if selected(SELECT_EQN) {
            context.set_c_eqn_or_apu_element(requested.c_eqn_or_apu_element());
        }
    });
    Ok(())
}

/// Switches the queue to another buffer. `modify_field_select` must select the size; page size and offset are
/// included.
fn resize(nic: &mut Nic, call: &mut Call<'_>, input: &ModifyCqIn) -> Result<(), Refusal> {
    let select = input.modify_field_select_resize_field_select_modify_field_select_modify_field_select();
    let requested = input.cq_context();
    let queue = nic.shared.completions.queues.get(input.cqn().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    if select & !(RESIZE_SIZE | RESIZE_PAGE_OFFSET | RESIZE_PAGE_SIZE | RESIZE_UMEM) != 0
        || select & RESIZE_SIZE == 0
    {
        return Err(syndrome::CQ_FIELD_SELECT);
    }
    if requested.log_cq_size() > nic.firmware.capabilities.general.log_max_cq_sz() {
        return Err(syndrome::CQ_SIZE);
    }
    let compressed_wide = queue.context().cqe_comp_en() && requested.cqe_sz() != 0;
    if requested.cqe_sz() > LARGEST_ENTRY || compressed_wide {
        return Err(syndrome::CQ_FEATURE);
    }
    let named = UmemPlace { id: input.cq_umem_id(), offset: input.cq_umem_offset() };
    let place = place(requested, ModifyCqIn::PAS_OFFSET, input.cq_umem_valid().then_some(named));
    let length = stride(requested) << requested.log_cq_size();
    let buffer = queue_buffer(nic, call, place, Need::Write, length)?;
    let queue = nic.shared.completions.queues.get_mut(input.cqn().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    queue.resize(call.memory, requested, buffer).map_err(|refusal| match refusal {
        ResizeRefusal::Outstanding => syndrome::CQ_OUTSTANDING,
        ResizeRefusal::Broken => syndrome::CQ_BROKEN,
    })
}

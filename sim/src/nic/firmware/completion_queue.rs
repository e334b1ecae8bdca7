//! CREATE_CQ, DESTROY_CQ, QUERY_CQ, MODIFY_CQ.

use super::call::Call;
use super::queue_pair::{check_record, paged_buffer};
use super::syndrome::{self, Refusal};
use crate::nic::completion::CompletionQueue;
use crate::nic::{HostMemory, Nic};
use bareverbs_prm::command::cq::{
    CreateCqIn, CreateCqOut, DestroyCqIn, DestroyCqOut, ModifyCqIn, ModifyCqOut, QueryCqIn, QueryCqOut,
};
use bareverbs_prm::context::CompletionQueueContext;
use bareverbs_prm::cqe::CQE_SIZE;
use bareverbs_prm::ids::Cqn;

/// `modify_field_select`: moderation (period and count), and whether overruns are ignored.
const SELECT_MODERATION: u32 = 0b11;
const SELECT_OVERRUN_IGNORE: u32 = 1 << 2;

pub(super) fn create<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &CreateCqIn,
    output: &mut CreateCqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = *input.cq_context();
    let capabilities = &nic.firmware.capabilities.general;
    if context.log_cq_size() > capabilities.log_max_cq_sz() {
        return Err(syndrome::CQ_SIZE);
    }
    check_features(&context, input.cq_umem_valid())?;
    check_record(context.dbr_addr())?;
    nic.uars.get(context.uar_page().value()).ok_or(syndrome::UAR_UNKNOWN)?;
    nic.events.queues.get(context.c_eqn_or_apu_element()).ok_or(syndrome::EQ_UNKNOWN)?;
    let number =
        nic.completions.queues.next_number(1 << capabilities.log_max_cq()).ok_or(syndrome::CQ_LIMIT)?;
    let length = (CQE_SIZE as u64) << context.log_cq_size();
    let place = (context.log_page_size(), context.page_offset());
    let buffer = paged_buffer(call, CreateCqIn::PAS_OFFSET, place, length)?;
    let cqn = Cqn::from_low_bits(number);
    nic.completions.queues.insert(number, CompletionQueue::new(cqn, context, buffer));
    output.set_cqn(cqn);
    Ok(())
}

/// Entries of 64 bytes, without compression, moderation or user memory objects.
fn check_features(context: &CompletionQueueContext, umem: bool) -> Result<(), Refusal> {
    let moderated = context.cq_period() != 0 || context.cq_max_count() != 0;
    let offered = context.cqe_sz() == 0 && !context.cqe_comp_en() && !context.cc() && !moderated;
    if !offered || umem || context.dbr_umem_valid() || context.apu_cq() {
        return Err(syndrome::CQ_FEATURE);
    }
    Ok(())
}

pub(super) fn destroy<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &DestroyCqIn,
    _: &mut DestroyCqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let cqn = input.cqn().value();
    let queue = nic.completions.queues.get(cqn).ok_or(syndrome::CQ_UNKNOWN)?;
    if queue.users > 0 {
        return Err(syndrome::CQ_BUSY);
    }
    nic.completions.queues.remove(cqn);
    Ok(())
}

pub(super) fn query<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &QueryCqIn,
    output: &mut QueryCqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = nic.completions.queues.get(input.cqn().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    output.cq_context_mut().clone_from(&queue.context());
    Ok(())
}

/// Only what the capabilities offer can be modified: overrun ignore, and moderation to «none».
pub(super) fn modify<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &ModifyCqIn,
    _: &mut ModifyCqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = nic.completions.queues.get_mut(input.cqn().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    let select = input.modify_field_select_resize_field_select_modify_field_select_modify_field_select();
    let context = input.cq_context();
    if select & !(SELECT_MODERATION | SELECT_OVERRUN_IGNORE) != 0 {
        return Err(syndrome::CQ_FIELD_SELECT);
    }
    if select & SELECT_MODERATION != 0 && (context.cq_period() != 0 || context.cq_max_count() != 0) {
        return Err(syndrome::CQ_FEATURE);
    }
    if select & SELECT_OVERRUN_IGNORE != 0 {
        queue.set_overrun_ignore(context.oi());
    }
    Ok(())
}

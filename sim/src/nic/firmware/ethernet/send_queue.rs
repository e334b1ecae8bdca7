//! CREATE_SQ, MODIFY_SQ, DESTROY_SQ, QUERY_SQ.

use super::super::call::Call;
use super::super::umem::{BufferPlace, queue_buffer, work_queue_record};
use super::work_queue::{count_user, is_plain};
use crate::nic::Nic;
use crate::nic::device::DeviceParts;
use crate::nic::ethernet::queue_state;
use crate::nic::ethernet::send::PacketSendQueue;
use crate::nic::syndrome::{self, Refusal};
use crate::nic::user_memory::Need;
use crate::nic::work_queue::WorkQueue;
use bareverbs_prm::command::ethernet_send::{
    CreateSqIn, CreateSqOut, DestroySqIn, DestroySqOut, ModifySqIn, ModifySqOut, QuerySqIn, QuerySqOut,
    SendQueueContext,
};
use bareverbs_prm::ids::{Qpn, Sqn};
use bareverbs_prm::wqe::BASIC_BLOCK;

/// The page list follows the context.
const PAGES: usize = CreateSqIn::SIZE;

pub(super) fn create(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateSqIn,
    output: &mut CreateSqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let mut context = *input.ctx();
    check_features(&context)?;
    check_objects(nic, &context)?;
    let wq = context.wq();
    let limits = &nic.firmware.capabilities.general;
    if wq.log_wq_sz() > limits.log_max_wq_sz() || 1usize << wq.log_wq_stride() != BASIC_BLOCK {
        return Err(syndrome::SQ_SIZE);
    }
    let record = work_queue_record(nic, wq)?;
    let number = nic.ethernet.send_queues.next_number(1 << limits.log_max_sq()).ok_or(syndrome::SQ_LIMIT)?;
    let (place, length) = (BufferPlace::of_work_queue(wq, PAGES), (BASIC_BLOCK as u64) << wq.log_wq_sz());
    let buffer = queue_buffer(nic, call, place, Need::Read, length)?;
    context.set_state(queue_state::RESET);
    let queue = WorkQueue::new(buffer, 0, record, Some(context.wq().log_wq_sz()));
    let queue = PacketSendQueue::new(Qpn::from_low_bits(number), context, queue);
    nic.ethernet.send_queues.insert(number, queue);
    count_user(nic, context.cqn(), 1);
    output.set_sqn(Sqn::from_low_bits(number));
    Ok(())
}

/// Only packets and NOPs are supported: no key updates, software parsers, hairpins, rate limits or real-time
/// time stamps. Drivers may request fast registration (`fre`), but a work request that uses it has an unknown
/// opcode.
fn check_features(context: &SendQueueContext) -> Result<(), Refusal> {
    let peers = context.hairpin() || context.non_wire() || context.cd_master();
    let paced = context.packet_pacing_rate_limit_index() != 0 || context.qos_queue_group_id() != 0;
    let work = context.reg_umr() || context.allow_swp();
    if peers || paced || work || context.ts_format() > 1 || !is_plain(context.wq()) {
        return Err(syndrome::SQ_FEATURE);
    }
    Ok(())
}

/// The protection domain is checked when a key is used: queues that only execute NOPs have none.
fn check_objects(nic: &Nic, context: &SendQueueContext) -> Result<(), Refusal> {
    nic.shared.completions.queues.get(context.cqn().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    nic.uars.get(context.wq().uar_page().value()).ok_or(syndrome::UAR_UNKNOWN)?;
    match context.tis_lst_sz() {
        0 => Ok(()),
        1 => {
            let tis = nic.ethernet.send_interfaces.get(context.tis_num_0().value());
            tis.map(|_| ()).ok_or(syndrome::TIS_UNKNOWN)
        }
        _ => Err(syndrome::SQ_FEATURE),
    }
}

/// Changes the state: from reset to ready, from any state to error, from error to reset.
pub(super) fn modify(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifySqIn,
    _: &mut ModifySqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let number = input.sqn().value();
    let queue = nic.ethernet.send_queues.get_mut(number).ok_or(syndrome::SQ_UNKNOWN)?;
    if input.modify_bitmask() != 0 {
        return Err(syndrome::SQ_FEATURE);
    }
    if input.sq_state() != queue.context.state() {
        return Err(syndrome::SQ_STATE);
    }
    let requested = input.ctx().state();
    match (queue.context.state(), requested) {
        (from, to) if from == to => {}
        (queue_state::RESET, queue_state::READY) | (_, queue_state::ERROR) => {}
        (queue_state::ERROR | queue_state::READY, queue_state::RESET) => queue.reset(),
        _ => return Err(syndrome::SQ_STATE),
    }
    queue.context.set_state(requested);
    if requested == queue_state::ERROR {
        let DeviceParts { ethernet, mut bus, .. } = nic.parts(call.now, call.memory);
        ethernet.send_queues.get_mut(number).ok_or(syndrome::SQ_UNKNOWN)?.flush(&mut bus);
    }
    Ok(())
}

pub(super) fn destroy(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroySqIn,
    _: &mut DestroySqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = nic.ethernet.send_queues.remove(input.sqn().value()).ok_or(syndrome::SQ_UNKNOWN)?;
    count_user(nic, queue.context.cqn(), -1);
    Ok(())
}

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QuerySqIn,
    output: &mut QuerySqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = nic.ethernet.send_queues.get(input.sqn().value()).ok_or(syndrome::SQ_UNKNOWN)?;
    output.sq_context_mut().clone_from(&queue.shown());
    Ok(())
}

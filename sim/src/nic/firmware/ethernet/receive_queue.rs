//! CREATE_RQ, MODIFY_RQ, DESTROY_RQ, QUERY_RQ.

use super::super::call::Call;
use super::super::umem::{BufferPlace, queue_buffer, work_queue_record};
use super::work_queue::{count_user, is_plain};
use crate::nic::Nic;
use crate::nic::device::DeviceParts;
use crate::nic::ethernet::queue_state;
use crate::nic::ethernet::receive::{DIRECT, PacketReceiveQueue};
use crate::nic::receive_queue::{ReceiveGeometry, ReceiveQueue};
use crate::nic::syndrome::{self, Refusal};
use crate::nic::user_memory::Need;
use bareverbs_prm::command::ethernet_receive::{
    CreateRqIn, CreateRqOut, DestroyRqIn, DestroyRqOut, ModifyRqIn, ModifyRqOut, QueryRqIn, QueryRqOut,
    ReceiveQueueContext,
};
use bareverbs_prm::ids::Rqn;

/// The page list follows the context.
const PAGES: usize = CreateRqIn::SIZE;
/// log2 of the smallest and largest entry in bytes.
const STRIDES: core::ops::RangeInclusive<u8> = 4..=11;
/// `modify_bitmask`: VLAN stripping, counter set.
const SELECT_TAGS: u64 = 1 << 1;
const SELECT_COUNTERS: u64 = 1 << 3;

pub(super) fn create(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateRqIn,
    output: &mut CreateRqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let mut context = *input.ctx();
    check_features(&context)?;
    nic.shared.completions.queues.get(context.cqn().value()).ok_or(syndrome::CQ_UNKNOWN)?;
    let wq = context.wq();
    check_counters(nic, context.counter_set_id())?;
    // The protection domain is checked when a key is used: queues that only drop packets have none.
    let limits = &nic.firmware.capabilities.general;
    let (size, stride) = (wq.log_wq_sz(), wq.log_wq_stride());
    if size > limits.log_max_wq_sz() || !STRIDES.contains(&stride) || 1 << stride > limits.max_wqe_sz_rq() {
        return Err(syndrome::RQ_SIZE);
    }
    let record = work_queue_record(nic, wq)?;
    let number =
        nic.ethernet.receive_queues.next_number(1 << limits.log_max_rq()).ok_or(syndrome::RQ_LIMIT)?;
    let place = BufferPlace::of_work_queue(wq, PAGES);
    let buffer = queue_buffer(nic, call, place, Need::Read, 1 << (size + stride))?;
    context.set_state(queue_state::RESET);
    let queue = ReceiveQueue::new(buffer, ReceiveGeometry { log_size: size, log_stride: stride }, record);
    nic.ethernet.receive_queues.insert(number, PacketReceiveQueue::new(number, context, queue));
    count_user(nic, context.cqn(), 1);
    output.set_rqn(Rqn::from_low_bits(number));
    Ok(())
}

/// Accepts only receive queues with entries of their own in a ring; refuses scatter FCS, hairpins, delayed
/// drops and LRO.
fn check_features(context: &ReceiveQueueContext) -> Result<(), Refusal> {
    let other = context.mem_rq_type() != 0 || context.hairpin() || context.delay_drop_en();
    let merged = context.shampo_match_criteria_type() != 0 || context.reservation_timeout() != 0;
    if other || merged || context.scatter_fcs() || context.ts_format() > 1 || !is_plain(context.wq()) {
        return Err(syndrome::RQ_FEATURE);
    }
    Ok(())
}

fn check_counters(nic: &Nic, set: u8) -> Result<(), Refusal> {
    let known = set == 0 || nic.counter_sets.get(set.into()).is_some();
    if known { Ok(()) } else { Err(syndrome::COUNTER_UNKNOWN) }
}

/// Changes the state, VLAN stripping and the counter set.
pub(super) fn modify(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifyRqIn,
    _: &mut ModifyRqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let (select, requested) = (input.modify_bitmask(), input.ctx());
    if select & !(SELECT_TAGS | SELECT_COUNTERS) != 0 {
        return Err(syndrome::RQ_FEATURE);
    }
    if select & SELECT_COUNTERS != 0 {
        check_counters(nic, requested.counter_set_id())?;
    }
    let queue = nic.ethernet.receive_queues.get_mut(input.rqn().value()).ok_or(syndrome::RQ_UNKNOWN)?;
    if input.rq_state() != queue.context.state() {
        return Err(syndrome::RQ_STATE);
    }
    match (queue.context.state(), requested.state()) {
        (from, to) if from == to => {}
        (queue_state::RESET, queue_state::READY) | (_, queue_state::ERROR) => {}
        (queue_state::ERROR | queue_state::READY, queue_state::RESET) => queue.reset(),
        _ => return Err(syndrome::RQ_STATE),
    }
    queue.context.set_state(requested.state());
    if select & SELECT_TAGS != 0 {
        queue.context.set_vsd(requested.vsd());
    }
    if select & SELECT_COUNTERS != 0 {
        queue.context.set_counter_set_id(requested.counter_set_id());
    }
    if requested.state() == queue_state::ERROR {
        let DeviceParts { ethernet, mut bus, .. } = nic.parts(call.now, call.memory);
        ethernet.receive_queues.get_mut(input.rqn().value()).ok_or(syndrome::RQ_UNKNOWN)?.flush(&mut bus);
    }
    Ok(())
}

pub(super) fn destroy(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyRqIn,
    _: &mut DestroyRqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let number = input.rqn();
    let ethernet = &mut nic.ethernet;
    let led_to = ethernet.queue_tables.iter().any(|(_, table)| table.queues.contains(&number))
        || ethernet
            .receive_interfaces
            .iter()
            .any(|(_, tir)| tir.disp_type() == DIRECT && tir.inline_rqn() == number);
    if led_to {
        return Err(syndrome::RQ_BUSY);
    }
    let queue = ethernet.receive_queues.remove(number.value()).ok_or(syndrome::RQ_UNKNOWN)?;
    count_user(nic, queue.context.cqn(), -1);
    Ok(())
}

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryRqIn,
    output: &mut QueryRqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = nic.ethernet.receive_queues.get(input.rqn().value()).ok_or(syndrome::RQ_UNKNOWN)?;
    output.rq_context_mut().clone_from(&queue.shown());
    Ok(())
}

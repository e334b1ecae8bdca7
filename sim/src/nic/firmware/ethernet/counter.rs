//! Counters of flows and of queues.

use super::super::call::Call;
use super::super::syndrome::{self, Refusal};
use crate::nic::ethernet::QueueCounter;
use crate::nic::ethernet::flow::Traffic;
use crate::nic::{HostMemory, Nic};
use bareverbs_prm::command::flow::{
    AllocFlowCounterIn, AllocFlowCounterOut, DeallocFlowCounterIn, DeallocFlowCounterOut, QueryFlowCounterIn,
    QueryFlowCounterOut,
};
use bareverbs_prm::command::queue_counter::{
    AllocQueueCounterIn, AllocQueueCounterOut, DeallocQueueCounterIn, DeallocQueueCounterOut,
    QueryQueueCounterIn, QueryQueueCounterOut,
};

/// Flow counters of a device, logarithm.
pub(in crate::nic::firmware) const LOG_FLOW_COUNTERS: u8 = 16;
/// Sets of queue counters of a device. `max_qp_cnt` is zero all the same: queue pairs do not count in them.
const QUEUE_COUNTERS: u16 = 64;

pub(super) fn alloc_flow<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &AllocFlowCounterIn,
    output: &mut AllocFlowCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if input.flow_counter_bulk() != 0 || input.flow_counter_bulk_log_size() != 0 {
        return Err(syndrome::FLOW_COUNTER_LIMIT);
    }
    let counters = &mut nic.ethernet.steering.counters;
    let number = counters.next_number(1 << LOG_FLOW_COUNTERS).ok_or(syndrome::FLOW_COUNTER_LIMIT)?;
    counters.insert(number, Traffic::default());
    output.set_flow_counter_id(number);
    Ok(())
}

pub(super) fn dealloc_flow<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &DeallocFlowCounterIn,
    _: &mut DeallocFlowCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let number = input.flow_counter_id();
    if nic.ethernet.steering.uses_counter(number) {
        return Err(syndrome::FLOW_COUNTER_BUSY);
    }
    nic.ethernet.steering.counters.remove(number).map(drop).ok_or(syndrome::FLOW_COUNTER_UNKNOWN)
}

/// One counter, or as many from the first one on as were asked for.
pub(super) fn query_flow<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &QueryFlowCounterIn,
    _: &mut QueryFlowCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let first = input.flow_counter_id();
    let count = u32::from(input.num_of_counters()).max(1);
    for number in first..first.saturating_add(count) {
        let counter = nic.ethernet.steering.counters.get_mut(number);
        let counter = counter.ok_or(syndrome::FLOW_COUNTER_UNKNOWN)?;
        call.tail.extend_from_slice(&counter.packets.to_be_bytes());
        call.tail.extend_from_slice(&counter.bytes.to_be_bytes());
        if input.clear() {
            *counter = Traffic::default();
        }
    }
    Ok(())
}

pub(super) fn alloc_queue<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    _: &AllocQueueCounterIn,
    output: &mut AllocQueueCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let counters = &mut nic.ethernet.queue_counters;
    let number = counters.next_number(QUEUE_COUNTERS.into()).ok_or(syndrome::QUEUE_COUNTER_LIMIT)?;
    counters.insert(number, QueueCounter::default());
    output.set_counter_set_id(number as u8);
    Ok(())
}

pub(super) fn dealloc_queue<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &DeallocQueueCounterIn,
    _: &mut DeallocQueueCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let removed = nic.ethernet.queue_counters.remove(input.counter_set_id().into());
    removed.map(drop).ok_or(syndrome::QUEUE_COUNTER_UNKNOWN)
}

/// Of receive queues: packets that found no receive posted. Queue pairs do not count here.
pub(super) fn query_queue<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &QueryQueueCounterIn,
    output: &mut QueryQueueCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let counter = nic.ethernet.queue_counters.get_mut(input.counter_set_id().into());
    let counter = counter.ok_or(syndrome::QUEUE_COUNTER_UNKNOWN)?;
    output.set_out_of_buffer(counter.out_of_buffer);
    if input.clear() {
        *counter = QueueCounter::default();
    }
    Ok(())
}

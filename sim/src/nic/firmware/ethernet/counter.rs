//! Counters of flows.

use super::super::call::Call;
use crate::nic::Nic;
use crate::nic::ethernet::flow::Traffic;
use crate::nic::firmware_state::limits::LOG_FLOW_COUNTERS;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::flow::{
    AllocFlowCounterIn, AllocFlowCounterOut, DeallocFlowCounterIn, DeallocFlowCounterOut, QueryFlowCounterIn,
    QueryFlowCounterOut,
};

pub(super) fn alloc_flow(
    nic: &mut Nic,
    call: &mut Call<'_>,
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

pub(super) fn dealloc_flow(
    nic: &mut Nic,
    call: &mut Call<'_>,
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

/// Reads one counter, or the requested number of counters from the first one on.
pub(super) fn query_flow(
    nic: &mut Nic,
    call: &mut Call<'_>,
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

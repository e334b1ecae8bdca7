//! ALLOC_Q_COUNTER, DEALLOC_Q_COUNTER, QUERY_Q_COUNTER.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::queue_counters::CounterSet;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::queue_counter::{
    AllocQueueCounterIn, AllocQueueCounterOut, DeallocQueueCounterIn, DeallocQueueCounterOut,
    QueryQueueCounterIn, QueryQueueCounterOut,
};

pub(super) fn alloc(
    nic: &mut Nic,
    call: &mut Call<'_>,
    _: &AllocQueueCounterIn,
    output: &mut AllocQueueCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let limit = u64::from(nic.firmware.capabilities.general.max_qp_cnt());
    let number = nic.counter_sets.next_number(limit).ok_or(syndrome::COUNTER_LIMIT)?;
    let id = u8::try_from(number).map_err(|_| syndrome::COUNTER_LIMIT)?;
    nic.counter_sets.insert(number, CounterSet::default());
    output.set_counter_set_id(id);
    Ok(())
}

pub(super) fn dealloc(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DeallocQueueCounterIn,
    _: &mut DeallocQueueCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let id = input.counter_set_id();
    nic.counter_sets.get(id.into()).ok_or(syndrome::COUNTER_UNKNOWN)?;
    if nic.uses_counter_set(id) {
        return Err(syndrome::COUNTER_BUSY);
    }
    nic.counter_sets.remove(id.into());
    Ok(())
}

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryQueueCounterIn,
    output: &mut QueryQueueCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if input.other_vport() || input.aggregate() || input.vport_number() != 0 {
        return Err(syndrome::COUNTER_SCOPE);
    }
    let tally = nic.counter_set(input.counter_set_id(), input.clear());
    tally.ok_or(syndrome::COUNTER_UNKNOWN)?.write(output);
    Ok(())
}

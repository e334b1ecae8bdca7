//! CREATE_EQ, DESTROY_EQ, QUERY_EQ.

use super::call::Call;
use super::umem::paged_buffer;
use crate::nic::Nic;
use crate::nic::event::EventQueue;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::eq::{CreateEqIn, CreateEqOut, DestroyEqIn, DestroyEqOut, QueryEqIn, QueryEqOut};
use bareverbs_prm::eqe::EQE_SIZE;
use bareverbs_prm::ids::Eqn;
use zerocopy::IntoBytes;

pub(super) fn create(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateEqIn,
    output: &mut CreateEqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = *input.eq_context_entry();
    let capabilities = &nic.firmware.capabilities.general;
    if context.log_eq_size() > capabilities.log_max_eq_sz() {
        return Err(syndrome::EQ_SIZE);
    }
    if context.intr() >= nic.config.vectors {
        return Err(syndrome::EQ_VECTOR);
    }
    nic.uars.get(context.uar_page().value()).ok_or(syndrome::UAR_UNKNOWN)?;
    let number =
        nic.shared.events.queues.next_number(1 << capabilities.log_max_eq()).ok_or(syndrome::EQ_LIMIT)?;
    let length = (EQE_SIZE as u64) << context.log_eq_size();
    let (log_page, offset) = (context.log_page_size(), context.page_offset());
    let buffer = paged_buffer(nic, call, CreateEqIn::PAS_OFFSET, log_page, offset, length)?;
    nic.shared.events.queues.insert(number, EventQueue::new(context, input.event_bitmask(), buffer));
    output.set_eq_number(Eqn::from_low_bits(number));
    Ok(())
}

pub(super) fn destroy(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyEqIn,
    _: &mut DestroyEqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let eqn = input.eq_number();
    nic.shared.events.queues.get(eqn.value()).ok_or(syndrome::EQ_UNKNOWN)?;
    if nic.shared.completions.queues.iter().any(|(_, queue)| queue.eqn() == eqn) {
        return Err(syndrome::EQ_BUSY);
    }
    nic.shared.events.queues.remove(eqn.value());
    Ok(())
}

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryEqIn,
    output: &mut QueryEqOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let queue = nic.shared.events.queues.get(input.eq_number().value()).ok_or(syndrome::EQ_UNKNOWN)?;
    output.eq_context_entry_mut().clone_from(&queue.context());
    output.as_mut_bytes()[0x58..0x60].copy_from_slice(&queue.events[..8]);
    Ok(())
}

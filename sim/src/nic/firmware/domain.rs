//! Protection domains and user access regions.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut, DeallocPdIn, DeallocPdOut};
use bareverbs_prm::command::uar::{AllocUarIn, AllocUarOut, DeallocUarIn, DeallocUarOut};
use bareverbs_prm::ids::{Pdn, UarIndex};

pub(super) fn alloc_pd(
    nic: &mut Nic,
    call: &mut Call<'_>,
    _: &AllocPdIn,
    output: &mut AllocPdOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let limit = 1 << nic.firmware.capabilities.general.log_max_pd();
    let number = nic.shared.domains.next_number(limit).ok_or(syndrome::PD_LIMIT)?;
    nic.shared.domains.insert(number, ());
    output.set_pd(Pdn::from_low_bits(number));
    Ok(())
}

pub(super) fn dealloc_pd(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DeallocPdIn,
    _: &mut DeallocPdOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let pd = input.pd();
    nic.shared.domains.get(pd.value()).ok_or(syndrome::PD_UNKNOWN)?;
    if nic.shared.mkeys.iter().any(|(_, key)| key.pd == pd)
        || nic.queue_pairs.iter().any(|(_, qp)| qp.accessor.pd == pd)
        || nic.shared.shared_receives.iter().any(|(_, queue)| queue.pd() == pd)
        || nic.ethernet.uses_pd(pd)
    {
        return Err(syndrome::PD_BUSY);
    }
    nic.shared.domains.remove(pd.value());
    Ok(())
}

pub(super) fn alloc_uar(
    nic: &mut Nic,
    call: &mut Call<'_>,
    _: &AllocUarIn,
    output: &mut AllocUarOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let limit = u64::from(nic.config.bar_pages.saturating_sub(crate::nic::registers::FIRST_UAR));
    let number = nic.uars.next_number(limit).ok_or(syndrome::UAR_LIMIT)?;
    nic.uars.insert(number, ());
    output.set_uar(UarIndex::from_low_bits(number));
    Ok(())
}

pub(super) fn dealloc_uar(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DeallocUarIn,
    _: &mut DeallocUarOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let uar = input.uar();
    nic.uars.get(uar.value()).ok_or(syndrome::UAR_UNKNOWN)?;
    let busy = nic.shared.events.queues.iter().any(|(_, queue)| queue.uar() == uar)
        || nic.shared.completions.queues.iter().any(|(_, queue)| queue.uar() == uar)
        || nic.queue_pairs.iter().any(|(_, qp)| qp.context.uar_page() == uar)
        || nic.ethernet.uses_uar(uar);
    if busy {
        return Err(syndrome::UAR_BUSY);
    }
    nic.uars.remove(uar.value());
    Ok(())
}

//! QUERY_PAGES and MANAGE_PAGES (PRM; Linux `drivers/net/ethernet/mellanox/mlx5/core/pagealloc.c`).

use super::call::Call;
use crate::nic::Nic;
use crate::nic::firmware_state::SystemState;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::pages::{ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut};
use bareverbs_prm::numbering::{ManagePagesMode, QueryPagesStage};

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryPagesIn,
    output: &mut QueryPagesOut,
) -> Result<(), Refusal> {
    check_function(input.function_id(), input.embedded_cpu_function())?;
    let stage = QueryPagesStage::from_raw(call.op_mod());
    output.set_num_pages(nic.firmware.pages.missing(stage).ok_or(syndrome::BAD_OP_MOD)?);
    Ok(())
}

pub(super) fn manage(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ManagePagesIn,
    output: &mut ManagePagesOut,
) -> Result<(), Refusal> {
    check_function(input.function_id(), input.embedded_cpu_function())?;
    let count = input.input_num_entries();
    match ManagePagesMode::from_raw(call.op_mod()) {
        ManagePagesMode::CannotGive => {
            nic.firmware.pages.denied += 1;
            Ok(())
        }
        ManagePagesMode::Give => {
            let pages = call.list(ManagePagesIn::PAS_OFFSET, count.into())?;
            nic.firmware.pages.give(&pages)
        }
        ManagePagesMode::TakeBack => take_back(nic, call, count as usize, output),
        _ => Err(syndrome::BAD_OP_MOD),
    }
}

fn take_back(
    nic: &mut Nic,
    call: &mut Call<'_>,
    count: usize,
    output: &mut ManagePagesOut,
) -> Result<(), Refusal> {
    let room = call.output_length.saturating_sub(ManagePagesOut::PAS_OFFSET) / 8;
    let pages = &mut nic.firmware.pages;
    let in_use = if nic.firmware.state == SystemState::Initialized { pages.needed() } else { 0 };
    let back = pages.take(count.min(room), in_use);
    output.set_output_num_entries(back.len() as u32);
    call.tail.extend(back.iter().flat_map(|page| page.to_be_bytes()));
    Ok(())
}

fn check_function(function: u16, embedded_cpu: bool) -> Result<(), Refusal> {
    if function == 0 && !embedded_cpu { Ok(()) } else { Err(syndrome::BAD_FUNCTION) }
}

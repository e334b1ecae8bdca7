//! QUERY_HCA_CAP and SET_HCA_CAP.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::firmware_state::PAGE;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::caps::{QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn, SetHcaCapOut};
use bareverbs_prm::numbering::CapabilityType;
use zerocopy::IntoBytes;

/// Offset of the page in input and output.
const PAGE_AT: usize = 16;

/// `op_mod` is the page times two, plus one for the current values.
fn kind(op_mod: u16) -> CapabilityType {
    u8::try_from(op_mod >> 1).map_or(CapabilityType::Unknown(0xff), CapabilityType::from_raw)
}

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryHcaCapIn,
    output: &mut QueryHcaCapOut,
) -> Result<(), Refusal> {
    if input.other_function() || input.ec_vf_function() || input.function_id() != 0 {
        return Err(syndrome::BAD_FUNCTION);
    }
    let page = nic.firmware.capabilities.page(kind(call.op_mod()), call.op_mod() & 1 != 0);
    let page = page.ok_or(syndrome::CAPABILITY_PAGE)?;
    output.as_mut_bytes()[PAGE_AT..PAGE_AT + PAGE].copy_from_slice(&page);
    Ok(())
}

pub(super) fn set(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &SetHcaCapIn,
    _: &mut SetHcaCapOut,
) -> Result<(), Refusal> {
    if input.other_function() || input.ec_vf_function() || input.function_id() != 0 {
        return Err(syndrome::BAD_FUNCTION);
    }
    if call.op_mod() & 1 != 0 {
        return Err(syndrome::BAD_OP_MOD);
    }
    let page = call.input.get(PAGE_AT..PAGE_AT + PAGE).ok_or(syndrome::INPUT_TOO_SHORT)?;
    let capabilities = &mut nic.firmware.capabilities;
    match kind(call.op_mod()) {
        CapabilityType::General => capabilities.set_general(page),
        CapabilityType::Atomic => capabilities.set_atomic(page),
        CapabilityType::Roce => {
            capabilities.set_roce(page);
            Ok(())
        }
        CapabilityType::General2 | CapabilityType::EthernetOffloads | CapabilityType::FlowTable => {
            Err(syndrome::CAPABILITY_READ_ONLY)
        }
        _ => Err(syndrome::CAPABILITY_PAGE),
    }
}

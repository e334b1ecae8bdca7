//! The state machine of the device: ENABLE, INIT, TEARDOWN and DISABLE_HCA, ISSI, adapter, driver version, NOP.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::firmware_state::SystemState;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::hca::{
    DisableHcaIn, DisableHcaOut, EnableHcaIn, EnableHcaOut, InitHcaIn, InitHcaOut, NopIn, NopOut,
    QueryAdapterIn, QueryAdapterOut, QueryIssiIn, QueryIssiOut, SetDriverVersionIn, SetDriverVersionOut,
    SetIssiIn, SetIssiOut, TeardownHcaIn, TeardownHcaOut,
};

/// Interface step sequence IDs 0 and 1, as a bit vector.
const SUPPORTED_ISSI: u32 = 0b11;
/// Mellanox' organisationally unique identifier.
const IEEE_VENDOR_ID: u32 = 0x00_02c9;
/// Parameter-set ID (PSID), which names a board. This one is not Mellanox'.
const BOARD_ID: [u8; 16] = *b"BV_SIM_0000000\0\0";

pub(super) fn enable(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &EnableHcaIn,
    _: &mut EnableHcaOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_function(input.function_id(), input.embedded_cpu_function())?;
    nic.firmware.state = SystemState::Enabled;
    nic.firmware.issi = 0;
    Ok(())
}

/// Drops the pages, because the driver frees their memory without further notice. The address of the command
/// queue stays, so that the result of this command can be written; the driver sets a new one before the next
/// start.
pub(super) fn disable(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DisableHcaIn,
    _: &mut DisableHcaOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_function(input.function_id(), input.embedded_cpu_function())?;
    nic.firmware.pages.clear();
    nic.firmware.state = SystemState::Disabled;
    Ok(())
}

pub(super) fn init(
    nic: &mut Nic,
    call: &mut Call<'_>,
    _: &InitHcaIn,
    _: &mut InitHcaOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if !nic.firmware.pages.is_supplied() {
        return Err(syndrome::PAGES_MISSING);
    }
    nic.firmware.state = SystemState::Initialized;
    Ok(())
}

/// Supports only graceful teardown; neither force_teardown nor fast_teardown is offered. All objects are
/// dropped; pages stay until the driver takes them back.
pub(super) fn teardown(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &TeardownHcaIn,
    _: &mut TeardownHcaOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if input.profile() != 0 {
        return Err(syndrome::BAD_OP_MOD);
    }
    nic.forget_objects();
    nic.firmware.state = SystemState::Enabled;
    Ok(())
}

pub(super) fn query_issi(
    nic: &mut Nic,
    call: &mut Call<'_>,
    _: &QueryIssiIn,
    output: &mut QueryIssiOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    output.set_current_issi(nic.firmware.issi).set_supported_issi_dw0(SUPPORTED_ISSI);
    Ok(())
}

pub(super) fn set_issi(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &SetIssiIn,
    _: &mut SetIssiOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let requested = input.current_issi();
    if requested >= 32 || SUPPORTED_ISSI >> requested & 1 == 0 {
        return Err(syndrome::ISSI_UNSUPPORTED);
    }
    nic.firmware.issi = requested;
    Ok(())
}

pub(super) fn query_adapter(
    _: &mut Nic,
    call: &mut Call<'_>,
    _: &QueryAdapterIn,
    output: &mut QueryAdapterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    output.set_query_adapter_struct_ieee_vendor_id(IEEE_VENDOR_ID);
    output.set_query_adapter_struct_vsd_vendor_id(crate::nic::pci::VENDOR_ID);
    output.set_query_adapter_struct_vsd_contd_psid(BOARD_ID);
    Ok(())
}

pub(super) fn set_driver_version(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &SetDriverVersionIn,
    _: &mut SetDriverVersionOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    nic.firmware.driver_version = input.driver_version();
    Ok(())
}

pub(super) fn nop(_: &mut Nic, call: &mut Call<'_>, _: &NopIn, _: &mut NopOut) -> Result<(), Refusal> {
    call.expect_no_op_mod()
}

fn check_function(function: u16, embedded_cpu: bool) -> Result<(), Refusal> {
    if function == 0 && !embedded_cpu { Ok(()) } else { Err(syndrome::BAD_FUNCTION) }
}

//! CREATE_UCTX and DESTROY_UCTX: the user contexts whose numbers the kernel puts into the commands of programs (DEVX).
//!
//! Only a device with [`NicConfig::user_contexts`](crate::nic::NicConfig::user_contexts) has them. A command of a user context that does
//! not exist is refused before its handler runs (`checks`). The objects of different contexts are not kept apart here: the kernel checks
//! that a program only names its own.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::firmware_state::limits::LOG_MAX_UCTX;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::uctx::{CreateUctxIn, CreateUctxOut, DestroyUctxIn, DestroyUctxOut};

/// The number that a kernel gives to its objects that the programs of all user contexts may name, such as event
/// queues for completions and queue counters (`MLX5_SHARED_RESOURCE_UID` of Linux). No CREATE_UCTX makes it.
pub(super) const SHARED_RESOURCE_UID: u16 = 0xffff;

pub(super) fn create(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateUctxIn,
    output: &mut CreateUctxOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    // None of the rights is offered (`uctx_cap`).
    if input.cap() != 0 {
        return Err(syndrome::UCTX_RIGHT);
    }
    let number = nic.user_contexts.next_number(1 << LOG_MAX_UCTX).ok_or(syndrome::UCTX_LIMIT)?;
    nic.user_contexts.insert(number, ());
    output.set_uid(number as u16);
    Ok(())
}

pub(super) fn destroy(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyUctxIn,
    _: &mut DestroyUctxOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    nic.user_contexts.remove(input.uid().into()).ok_or(syndrome::UID_UNKNOWN)
}

//! The checks of every command before its handler runs: state of the device, lengths, reserved bits.

use super::call::Call;
use super::user_context::SHARED_RESOURCE_UID;
use crate::nic::firmware_state::SystemState;
use crate::nic::syndrome::{self, Refusal};
use crate::nic::{Nic, strict};
use bareverbs_prm::field::{Layout, LayoutInfo};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Device states in which a command is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    Disabled,
    Enabled,
    EnabledOrInitialized,
    Initialized,
}

impl Allowed {
    fn includes(self, state: SystemState) -> bool {
        match self {
            Self::Disabled => state == SystemState::Disabled,
            Self::Enabled => state == SystemState::Enabled,
            Self::EnabledOrInitialized => state != SystemState::Disabled,
            Self::Initialized => state == SystemState::Initialized,
        }
    }
}

/// A handler of one command. It turns a typed input into a typed output, or refuses without changing
/// anything.
pub(super) type Handler<I, O> = fn(&mut Nic, &mut Call<'_>, &I, &mut O) -> Result<(), Refusal>;

/// Runs a handler whose input must be at least as long as its layout.
pub(super) fn run<I, O>(
    nic: &mut Nic,
    call: &mut Call<'_>,
    allowed: Allowed,
    handler: Handler<I, O>,
) -> Result<(), Refusal>
where
    I: Layout + FromBytes + IntoBytes + Immutable,
    O: Layout + FromZeros + IntoBytes + Immutable,
{
    run_sized(nic, call, allowed, I::SIZE, handler)
}

/// The shortest input and output that drivers send for a command, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shortest {
    pub(super) input: usize,
    pub(super) output: usize,
}

/// Runs a handler whose input needs at least `input` bytes and whose output has the usual minimum.
pub(super) fn run_sized<I, O>(
    nic: &mut Nic,
    call: &mut Call<'_>,
    allowed: Allowed,
    input: usize,
    handler: Handler<I, O>,
) -> Result<(), Refusal>
where
    I: Layout + FromBytes + IntoBytes + Immutable,
    O: Layout + FromZeros + IntoBytes + Immutable,
{
    run_grown(nic, call, allowed, Shortest { input, output: minimum_output::<O>() }, handler)
}

/// Checks state, lengths and reserved bits, then runs a handler. An input shorter than the newest layout is
/// extended with zeros if it reaches the minimum, and output is truncated: older drivers send less and have
/// less room.
pub(super) fn run_grown<I, O>(
    nic: &mut Nic,
    call: &mut Call<'_>,
    allowed: Allowed,
    shortest: Shortest,
    handler: Handler<I, O>,
) -> Result<(), Refusal>
where
    I: Layout + FromBytes + IntoBytes + Immutable,
    O: Layout + FromZeros + IntoBytes + Immutable,
{
    check_call(nic, call, allowed, shortest)?;
    let mut input = I::new_zeroed();
    let length = call.input.len().min(I::SIZE);
    input.as_mut_bytes()[..length].copy_from_slice(&call.input[..length]);
    check_input(nic, call, &I::INFO, input.as_bytes())?;
    let mut output = O::new_zeroed();
    handler(nic, call, &input, &mut output)?;
    call.answer(output.as_bytes());
    Ok(())
}

/// Checks what does not depend on the layouts. Like [`check_input`], this is compiled once and not for each command.
fn check_call(nic: &Nic, call: &Call<'_>, allowed: Allowed, shortest: Shortest) -> Result<(), Refusal> {
    if !allowed.includes(nic.firmware.state) {
        return Err(syndrome::WRONG_STATE);
    }
    if call.input.len() < shortest.input {
        return Err(syndrome::INPUT_TOO_SHORT);
    }
    if call.output_length < shortest.output {
        return Err(syndrome::OUTPUT_TOO_SHORT);
    }
    Ok(())
}

/// Checks the reserved bits of the input, and the user context that it names.
fn check_input(nic: &Nic, call: &Call<'_>, layout: &LayoutInfo, input: &[u8]) -> Result<(), Refusal> {
    if nic.config.strict && !strict::is_clear(layout, input, call.open_part()) {
        return Err(syndrome::RESERVED_NOT_CLEAR);
    }
    if !has_user_context(nic, call.uid()) && layout.fields.iter().any(|field| field.path == "uid") {
        return Err(syndrome::UID_UNKNOWN);
    }
    Ok(())
}

/// Whether a command may name this user context. Number 0 is the kernel's own; a kernel gives the number of
/// shared resources to event queues and counters that programs may use.
fn has_user_context(nic: &Nic, uid: u16) -> bool {
    match uid {
        0 => true,
        SHARED_RESOURCE_UID => nic.config.user_contexts,
        uid => nic.user_contexts.get(uid.into()).is_some(),
    }
}

/// The minimum output room that a driver must provide. Query outputs have grown over the years; 272 bytes
/// hold what every driver reads, and the rest is truncated to the driver's room.
const fn minimum_output<O: Layout>() -> usize {
    if O::SIZE > 272 { 272 } else { O::SIZE }
}

/// Counts and refuses an unknown command.
pub(super) fn refuse_unknown(nic: &mut Nic, call: &Call<'_>) -> Result<(), Refusal> {
    let unknown = call.opcode();
    *nic.firmware.unknown.entry(unknown.raw()).or_default() += 1;
    Err(Refusal::unknown_opcode(unknown))
}

//! What is checked of every command before its handler runs: state of the device, lengths, reserved bits.

use super::call::Call;
use crate::nic::firmware_state::SystemState;
use crate::nic::syndrome::{self, Refusal};
use crate::nic::{HostMemory, Nic, strict};
use bareverbs_prm::field::Layout;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// States in which a command is taken.
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

/// A handler of one command: input in, output out, or a refusal that has changed nothing.
pub(super) type Handler<M, I, O> = fn(&mut Nic, &mut Call<'_, M>, &I, &mut O) -> Result<(), Refusal>;

/// Runs a handler whose input has the length of its layout at least.
pub(super) fn run<M, I, O>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    allowed: Allowed,
    handler: Handler<M, I, O>,
) -> Result<(), Refusal>
where
    M: HostMemory,
    I: Layout + FromBytes + IntoBytes + Immutable,
    O: Layout + FromZeros + IntoBytes + Immutable,
{
    run_sized(nic, call, allowed, I::SIZE, handler)
}

/// The shortest input and output of a command that drivers send, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shortest {
    pub(super) input: usize,
    pub(super) output: usize,
}

/// Runs a handler whose input has `input` bytes at least, and its output the usual.
pub(super) fn run_sized<M, I, O>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    allowed: Allowed,
    input: usize,
    handler: Handler<M, I, O>,
) -> Result<(), Refusal>
where
    M: HostMemory,
    I: Layout + FromBytes + IntoBytes + Immutable,
    O: Layout + FromZeros + IntoBytes + Immutable,
{
    run_grown(nic, call, allowed, Shortest { input, output: minimum_output::<O>() }, handler)
}

/// Checks state, lengths and reserved bits, then runs a handler. Inputs shorter than the newest layout but not too short are read as if zeros
/// followed, and outputs are cut: older drivers send less and have less room.
pub(super) fn run_grown<M, I, O>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    allowed: Allowed,
    shortest: Shortest,
    handler: Handler<M, I, O>,
) -> Result<(), Refusal>
where
    M: HostMemory,
    I: Layout + FromBytes + IntoBytes + Immutable,
    O: Layout + FromZeros + IntoBytes + Immutable,
{
    if !allowed.includes(nic.firmware.state) {
        return Err(syndrome::WRONG_STATE);
    }
    if call.input.len() < shortest.input {
        return Err(syndrome::INPUT_TOO_SHORT);
    }
    if call.output_length < shortest.output {
        return Err(syndrome::OUTPUT_TOO_SHORT);
    }
    let mut input = I::new_zeroed();
    let length = call.input.len().min(I::SIZE);
    input.as_mut_bytes()[..length].copy_from_slice(&call.input[..length]);
    if nic.config.strict && !strict::is_clear(&I::INFO, input.as_bytes(), call.open_part()) {
        return Err(syndrome::RESERVED_NOT_CLEAR);
    }
    if call.uid() != 0 && I::INFO.fields.iter().any(|field| field.path == "uid") {
        return Err(syndrome::UID_UNKNOWN);
    }
    let mut output = O::new_zeroed();
    handler(nic, call, &input, &mut output)?;
    call.answer(output.as_bytes());
    Ok(())
}

/// Output bytes that a driver must have room for. Query outputs have grown over the years; 272 bytes hold what every
/// driver reads, the rest is cut where the driver's room ends.
const fn minimum_output<O: Layout>() -> usize {
    if O::SIZE > 272 { 272 } else { O::SIZE }
}

/// Counts and refuses a command that the device does not have.
pub(super) fn refuse_unknown<M: HostMemory>(nic: &mut Nic, call: &Call<'_, M>) -> Result<(), Refusal> {
    let unknown = call.opcode();
    *nic.firmware.unknown.entry(unknown.raw()).or_default() += 1;
    Err(Refusal::unknown_opcode(unknown))
}

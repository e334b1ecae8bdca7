//! One request that a program answers: its parameters, its state, its fuel; and what its verbs mean.

use super::code::Program;
use super::fault::Fault;
use super::interpret::run;
use super::limits::{Fuel, STATE};
use super::memory::{Context, Entry, Memory};
use crate::grant::Grant;
use crate::kernel::{Emission, Status, Step};

/// Most bytes of the parameters of a program.
pub const MAX_PARAMETERS: usize = 448;

/// What a program returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// The end, with `status`.
    Done = 0,
    /// Read `length` bytes at `offset` of the region.
    Fetch = 1,
    /// The same, because what was read cannot be trusted; ends with `status` if no retry is left.
    Refetch = 2,
    /// Answer with `length` bytes at `offset` of the window.
    Emit = 3,
    /// Answer with `length` bytes at `offset` of the state.
    Reply = 4,
    /// Hand over the payload.
    AwaitPayload = 5,
}

const VERBS: [Verb; 6] =
    [Verb::Done, Verb::Fetch, Verb::Refetch, Verb::Emit, Verb::Reply, Verb::AwaitPayload];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepCause {
    Start = 0,
    Fetched = 1,
    Payload = 2,
}

/// One request that a program answers.
///
/// ```
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::kernel::{Status, Step};
/// use bareverbs_offload::program::{Fuel, Instruction, Program, ProgramInvocation};
/// use zerocopy::IntoBytes;
///
/// // r0 = 0, which is the verb "done"; exit.
/// let code = [Instruction::new(0xb7, 0, 0, 0, 0), Instruction::new(0x95, 0, 0, 0, 0)];
/// let program = Program::verify(code.as_bytes()).unwrap();
/// let grant = Grant::new(0x1000, 4096).unwrap();
/// let (invocation, step) = ProgramInvocation::start(&program, Fuel::default(), b"parameters", &grant).unwrap();
/// assert_eq!((step, invocation.fuel_used()), (Step::Done(Status::Ok), 2));
/// ```
#[derive(Debug, Clone)]
pub struct ProgramInvocation {
    parameters: [u8; MAX_PARAMETERS],
    parameters_length: usize,
    state: [u8; STATE],
    /// Where in the region the bytes lie that were asked for.
    asked: u64,
    steps: u32,
    limits: Fuel,
    fuel: u32,
    fault: Option<Fault>,
}

impl ProgramInvocation {
    /// Begins. Parameters that are too long are refused.
    pub fn start(
        program: &Program,
        fuel: Fuel,
        parameters: &[u8],
        grant: &Grant,
    ) -> Result<(Self, Step), Status> {
        let mut invocation = Self {
            parameters: [0; MAX_PARAMETERS],
            parameters_length: parameters.len(),
            state: [0; STATE],
            asked: 0,
            steps: 0,
            limits: fuel,
            fuel: fuel.invocation,
            fault: None,
        };
        let place = invocation.parameters.get_mut(..parameters.len()).ok_or(Status::BadParameters)?;
        place.copy_from_slice(parameters);
        let step = invocation.step(program, StepCause::Start, &[], grant);
        Ok((invocation, step))
    }

    /// Goes on with the bytes that were asked for.
    pub fn dma_done(&mut self, program: &Program, bytes: &[u8], grant: &Grant) -> Step {
        self.step(program, StepCause::Fetched, bytes, grant)
    }

    /// Goes on with the payload.
    pub fn payload(&mut self, program: &Program, chunk: &[u8], grant: &Grant) -> Step {
        self.asked = 0;
        self.step(program, StepCause::Payload, chunk, grant)
    }

    /// What [`Step::Reply`] means.
    pub const fn state(&self) -> &[u8; STATE] {
        &self.state
    }

    /// Why the invocation ended with [`Status::ProgramFault`] or [`Status::OutOfFuel`].
    pub const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Fuel used so far.
    pub const fn fuel_used(&self) -> u32 {
        self.limits.invocation - self.fuel
    }

    /// Runs a step; a fault ends the invocation.
    fn step(&mut self, program: &Program, event: StepCause, window: &[u8], grant: &Grant) -> Step {
        match self.try_step(program, event, window, grant) {
            Ok(step) => step,
            Err(fault) => {
                self.fault = Some(fault);
                Step::Done(fault.into())
            }
        }
    }

    fn try_step(
        &mut self,
        program: &Program,
        event: StepCause,
        window: &[u8],
        grant: &Grant,
    ) -> Result<Step, Fault> {
        let entry = Entry {
            event: event as u32,
            step: self.steps,
            parameters: self.parameters.get(..self.parameters_length).unwrap_or(&[]),
            window,
            window_offset: self.asked,
        };
        self.steps = self.steps.wrapping_add(1);
        let mut memory = Memory::new(&entry, &mut self.state);
        let allowed = self.limits.step.min(self.fuel);
        let outcome = run(program.instructions(), &mut memory, allowed);
        let context = memory.context();
        let exit = outcome.inspect_err(|_| self.fuel -= allowed)?;
        self.fuel -= allowed - exit.fuel;
        self.obey(exit.value, &context, grant)
    }

    fn obey(&mut self, value: u64, context: &Context, grant: &Grant) -> Result<Step, Fault> {
        let verb = usize::try_from(value).ok().and_then(|value| VERBS.get(value)).copied();
        let (offset, length) = (context.offset.get(), context.length.get());
        let range = || grant.check(offset, length);
        Ok(match verb.ok_or(Fault::Verb { value })? {
            Verb::Done => Step::Done(status(context)?),
            Verb::AwaitPayload => Step::AwaitPayload,
            Verb::Emit => part(context).map_or(Step::Done(Status::OutOfBounds), Step::Emit),
            Verb::Reply => part(context).map_or(Step::Done(Status::OutOfBounds), Step::Reply),
            verb => {
                let otherwise = if verb == Verb::Refetch { Some(status(context)?) } else { None };
                self.asked = offset;
                match (range(), otherwise) {
                    (Ok(range), None) => Step::Fetch(range),
                    (Ok(range), Some(otherwise)) => Step::Refetch { range, otherwise },
                    (Err(fault), _) => Step::Done(fault.into()),
                }
            }
        })
    }
}

fn status(context: &Context) -> Result<Status, Fault> {
    let value = context.status.get();
    let number = u8::try_from(value).map_err(|_| Fault::Verb { value: value.into() })?;
    match Status::from_number(number) {
        Status::Unknown(_) => Err(Fault::Verb { value: value.into() }),
        known => Ok(known),
    }
}

/// The runtime refuses what leaves window or state.
fn part(context: &Context) -> Option<Emission> {
    let offset = u32::try_from(context.offset.get()).ok()?;
    Some(Emission { offset, length: context.length.get(), version: context.version.get() })
}

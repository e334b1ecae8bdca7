//! One request that a program answers: its parameters, its state, its fuel, and the meaning of its verbs.

use super::engine::{Executable, run};
use super::fault::Fault;
use super::limits::{Fuel, STACK, STATE};
use super::memory::{Context, Entry, Memory};
use crate::grant::{Grant, GrantFault};
use crate::kernel::{Emission, Event, Status, Step};
use heapless::Vec;

/// Most bytes of the parameters of a program.
pub const MAX_PARAMETERS: usize = 448;

/// What a program returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// End with `status`.
    Done = 0,
    /// Read `length` bytes at `offset` of the region.
    Fetch = 1,
    /// Like `Fetch`, because the data was inconsistent: takes a retry, and ends with `status` if none is left.
    Refetch = 2,
    /// Answer with `length` bytes at `offset` of the window.
    Emit = 3,
    /// Answer with `length` bytes at `offset` of the state.
    Reply = 4,
    /// Hand over the payload.
    AwaitPayload = 5,
    /// Write `length` bytes of the state, from its byte `from` on, at `offset` of the region.
    Write = 6,
    /// Replace the big-endian word at `offset` of the region by `desired` if it is `expected`.
    CompareAndSwap = 7,
}

const VERBS: [Verb; 8] = [
    Verb::Done,
    Verb::Fetch,
    Verb::Refetch,
    Verb::Emit,
    Verb::Reply,
    Verb::AwaitPayload,
    Verb::Write,
    Verb::CompareAndSwap,
];

/// Why a step runs, and the data that comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepCause<'a> {
    Start,
    Fetched(&'a [u8]),
    Payload(&'a [u8]),
    Written,
    Compared { found: u64 },
}

impl<'a> StepCause<'a> {
    /// The number of the cause in the context.
    const fn number(self) -> u32 {
        match self {
            Self::Start => 0,
            Self::Fetched(_) => 1,
            Self::Payload(_) => 2,
            Self::Written => 3,
            Self::Compared { .. } => 4,
        }
    }

    const fn window(self) -> &'a [u8] {
        match self {
            Self::Fetched(bytes) | Self::Payload(bytes) => bytes,
            Self::Start | Self::Written | Self::Compared { .. } => &[],
        }
    }

    const fn found(self) -> u64 {
        match self {
            Self::Compared { found } => found,
            _ => 0,
        }
    }
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
    parameters: Vec<u8, MAX_PARAMETERS>,
    state: [u8; STATE],
    /// Offset in the region of the bytes that were requested.
    asked: u64,
    steps: u32,
    limits: Fuel,
    fuel: u32,
    fault: Option<Fault>,
}

impl ProgramInvocation {
    /// An invocation that has not begun. Create it in its final place to avoid a move.
    #[inline(always)]
    pub const fn idle(fuel: Fuel) -> Self {
        Self {
            parameters: Vec::new(),
            state: [0; STATE],
            asked: 0,
            steps: 0,
            limits: fuel,
            fuel: fuel.invocation,
            fault: None,
        }
    }

    /// Begins one that is idle. Parameters that are too long are refused.
    #[inline]
    pub fn begin<E: Executable>(
        &mut self,
        program: &E,
        parameters: &[u8],
        grant: &Grant,
    ) -> Result<Step, Status> {
        self.parameters.clear();
        self.parameters.extend_from_slice(parameters).map_err(|_| Status::BadParameters)?;
        Ok(self.first_step(program, grant))
    }

    /// Makes one and begins. Parameters that are too long are refused.
    pub fn start<E: Executable>(
        program: &E,
        fuel: Fuel,
        parameters: &[u8],
        grant: &Grant,
    ) -> Result<(Self, Step), Status> {
        let mut invocation = Self::idle(fuel);
        let step = invocation.begin(program, parameters, grant)?;
        Ok((invocation, step))
    }

    /// Continues with the bytes that were requested.
    pub fn dma_done<E: Executable>(&mut self, program: &E, bytes: &[u8], grant: &Grant) -> Step {
        self.step(program, StepCause::Fetched(bytes), grant)
    }

    /// Continues with the payload.
    pub fn payload<E: Executable>(&mut self, program: &E, chunk: &[u8], grant: &Grant) -> Step {
        self.asked = 0;
        self.rare_step(program, StepCause::Payload(chunk), grant)
    }

    /// Continues after [`Step::Write`] or [`Step::CompareAndSwap`]. A program has no verb for several ranges
    /// at once.
    pub fn resumed<E: Executable>(&mut self, program: &E, event: Event<'_>, grant: &Grant) -> Step {
        let cause = match event {
            Event::Written => StepCause::Written,
            Event::Compared { found } => StepCause::Compared { found },
            Event::Part { .. } => return Step::Done(Status::BadParameters),
        };
        self.rare_step(program, cause, grant)
    }

    /// The state, which [`Step::Reply`] and [`Step::Write`] refer to.
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

    /// Runs the first step. It is no part of [`Self::begin`], so that its answer is written where it stays.
    #[inline(never)]
    fn first_step<E: Executable>(&mut self, program: &E, grant: &Grant) -> Step {
        self.step(program, StepCause::Start, grant)
    }

    /// Runs a later step that follows no read. Those that do have [`Self::step`] in them, with what they know of the cause.
    #[inline(never)]
    fn rare_step<E: Executable>(&mut self, program: &E, cause: StepCause<'_>, grant: &Grant) -> Step {
        self.step(program, cause, grant)
    }

    /// Runs a step; a fault ends the invocation.
    #[inline(always)]
    fn step<E: Executable>(&mut self, program: &E, cause: StepCause<'_>, grant: &Grant) -> Step {
        let entry = Entry {
            event: cause.number(),
            step: self.steps,
            parameters: &self.parameters,
            window: cause.window(),
            window_offset: self.asked,
            found: cause.found(),
        };
        self.steps = self.steps.wrapping_add(1);
        let mut zeros;
        let stack = if program.program().names_stack() {
            zeros = [0; STACK];
            Some(&mut zeros)
        } else {
            None
        };
        let mut memory = Memory::new(&entry, &mut self.state, stack);
        let allowed = self.limits.step.min(self.fuel);
        let exit = match run(program, &mut memory, allowed) {
            Ok(exit) => exit,
            Err(fault) => {
                self.fuel -= allowed;
                return fail(fault, &mut self.fault);
            }
        };
        self.fuel -= allowed - exit.fuel;
        let (asked, fault) = (&mut self.asked, &mut self.fault);
        obey(exit.value, memory.context(), grant, asked, fault)
    }
}

/// Keeps the fault, and ends the invocation.
#[cold]
fn fail(fault: Fault, kept: &mut Option<Fault>) -> Step {
    *kept = Some(fault);
    Step::Done(fault.into())
}

/// What a verb asks for. `asked` becomes the offset of the bytes that are to be read, if there are any. The answer is
/// written where the caller wants it: it is larger than what a processor keeps in registers.
#[inline]
fn obey(value: u64, context: &Context, grant: &Grant, asked: &mut u64, fault: &mut Option<Fault>) -> Step {
    let verb = usize::try_from(value).ok().and_then(|value| VERBS.get(value)).copied();
    let (offset, length) = (context.offset.get(), context.length.get());
    let refused = |fault: GrantFault| Step::Done(fault.into());
    let Some(verb) = verb else { return fail(Fault::Verb { value }, fault) };
    match verb {
        Verb::Done => match status(context) {
            Ok(status) => Step::Done(status),
            Err(unknown) => fail(unknown, fault),
        },
        Verb::AwaitPayload => Step::AwaitPayload,
        Verb::Emit => part(context).map_or(Step::Done(Status::OutOfBounds), Step::Emit),
        Verb::Reply => part(context).map_or(Step::Done(Status::OutOfBounds), Step::Reply),
        Verb::Fetch => {
            *asked = offset;
            match grant.check(offset, length) {
                Ok(range) => Step::Fetch(range),
                Err(fault) => refused(fault),
            }
        }
        Verb::Refetch => {
            *asked = offset;
            match (status(context), grant.check(offset, length)) {
                (Err(unknown), _) => fail(unknown, fault),
                (_, Err(fault)) => refused(fault),
                (Ok(otherwise), Ok(range)) => Step::Refetch { range, otherwise },
            }
        }
        Verb::Write => match grant.check_write(offset, length) {
            Ok(to) => Step::Write { to, from: context.from.get() },
            Err(fault) => refused(fault),
        },
        Verb::CompareAndSwap => match grant.check_word(offset) {
            Ok(word) => {
                let (expected, desired) = (context.expected.get(), context.desired.get());
                Step::CompareAndSwap { word, expected, desired }
            }
            Err(fault) => refused(fault),
        },
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

/// The part that the program asks for. The runtime refuses parts that leave the window or the state.
fn part(context: &Context) -> Option<Emission> {
    let offset = u32::try_from(context.offset.get()).ok()?;
    Some(Emission { offset, length: context.length.get(), version: context.version.get() })
}

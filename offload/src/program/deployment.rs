//! Compiled-in kernels and deployed programs, side by side in one runtime.

use super::code::Program;
use super::control::{ControlCall, ControlResponse, Upload, is_control, obey};
use super::engine::{Engine, Interpreter};
use super::limits::Fuel;
use super::store::{ProgramRun, ProgramStore, StoreError};
use crate::grant::Grant;
use crate::kernel::{CompiledIn, Deployment, Emission, Event, KernelCall, KernelSet, Opcode, Status, Step};
use crate::streams::piece;

/// The kernels of `S` and up to `PLACES` program versions. A program cannot take the op-code of a kernel.
///
/// ```
/// use bareverbs_offload::kernel::{Kernel, Opcode};
/// use bareverbs_offload::kernels::{BuiltInKernels, kv_lookup::KvLookup};
/// use bareverbs_offload::program::{Fuel, Instruction, Program, StoreError, WithPrograms};
/// use zerocopy::IntoBytes;
///
/// // r0 = 0, which is the verb "done"; exit.
/// let code = [Instruction::new(0xb7, 0, 0, 0, 0), Instruction::new(0x95, 0, 0, 0, 0)];
/// let program = Program::verify(code.as_bytes()).unwrap();
/// let mut deployment: WithPrograms<BuiltInKernels, 4> = WithPrograms::new(Fuel::default());
/// assert_eq!(deployment.deploy(Opcode(0x11), program.clone()), Ok(1));
/// let taken = deployment.deploy(KvLookup::OPCODE, program);
/// assert_eq!(taken, Err(StoreError::Taken(KvLookup::OPCODE)));
/// ```
pub struct WithPrograms<S, const PLACES: usize, E: Engine = Interpreter> {
    compiled_in: CompiledIn<S>,
    store: ProgramStore<PLACES, E>,
    upload: Upload,
}

/// What answers one request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is no heap, and a slot has room for the largest")]
pub enum HostedInvocation<S> {
    /// A compiled-in kernel.
    CompiledIn(S),
    /// A deployed program.
    Program(ProgramRun),
    /// A deployment request.
    Control(ControlResponse),
}

impl<S: KernelSet, const PLACES: usize> WithPrograms<S, PLACES> {
    /// A deployment without programs, which will be interpreted.
    pub fn new(fuel: Fuel) -> Self {
        Self::with_engine(fuel, Interpreter)
    }
}

impl<S: KernelSet, const PLACES: usize, E: Engine> WithPrograms<S, PLACES, E> {
    /// A deployment without programs, which this engine will run.
    pub fn with_engine(fuel: Fuel, engine: E) -> Self {
        let store = ProgramStore::with_engine(fuel, engine);
        Self { compiled_in: CompiledIn::default(), store, upload: Upload::NONE }
    }

    /// Deploys a program on behalf of the DPU's owner; clients use [`super::control`].
    pub fn deploy(&mut self, opcode: Opcode, program: Program) -> Result<u64, StoreError> {
        if Self::is_taken(opcode) {
            return Err(StoreError::Taken(opcode));
        }
        self.store.deploy(opcode, program)
    }

    /// Whether no program may have this op-code: a kernel has it, or deployment or streams use it.
    fn is_taken(opcode: Opcode) -> bool {
        S::has(opcode) || is_control(opcode) || piece::uses(opcode)
    }

    /// The program store.
    pub const fn store(&mut self) -> &mut ProgramStore<PLACES, E> {
        &mut self.store
    }
}

impl<S: KernelSet, const PLACES: usize, E: Engine> Deployment for WithPrograms<S, PLACES, E> {
    type Invocation = HostedInvocation<S>;

    fn needs_region(&self, opcode: Opcode) -> bool {
        !is_control(opcode)
    }

    fn start(
        &mut self,
        place: &mut Option<Self::Invocation>,
        opcode: Opcode,
        call: &KernelCall<'_>,
    ) -> Result<Step, Status> {
        let KernelCall { caller, parameters, grant } = *call;
        if is_control(opcode) {
            let call = ControlCall { caller, opcode, parameters };
            let response = obey(&mut self.store, &mut self.upload, &call, Self::is_taken)?;
            let length = response.bytes().len() as u32;
            *place = Some(HostedInvocation::Control(response));
            return Ok(Step::Reply(Emission { offset: 0, length, version: 0 }));
        }
        if S::has(opcode) {
            let (kernel, step) = S::start(opcode, parameters, grant)?;
            *place = Some(HostedInvocation::CompiledIn(kernel));
            return Ok(step);
        }
        *place = Some(HostedInvocation::Program(self.store.idle(opcode)?));
        let Some(HostedInvocation::Program(run)) = place else { return Err(Status::NoKernel) };
        let begun = self.store.begin(run, parameters, grant);
        if begun.is_err() {
            *place = None;
        }
        begun
    }

    fn dma_done(&self, invocation: &mut Self::Invocation, bytes: &[u8], grant: &Grant) -> Step {
        match invocation {
            HostedInvocation::CompiledIn(kernel) => self.compiled_in.dma_done(kernel, bytes, grant),
            HostedInvocation::Program(run) => self.store.dma_done(run, bytes, grant),
            HostedInvocation::Control(_) => Step::Done(Status::BadParameters),
        }
    }

    fn payload(&self, invocation: &mut Self::Invocation, payload: &[u8], grant: &Grant) -> Step {
        match invocation {
            HostedInvocation::CompiledIn(kernel) => self.compiled_in.payload(kernel, payload, grant),
            HostedInvocation::Program(run) => self.store.payload(run, payload, grant),
            HostedInvocation::Control(_) => Step::Done(Status::BadParameters),
        }
    }

    fn resumed(&self, invocation: &mut Self::Invocation, event: Event<'_>, grant: &Grant) -> Step {
        match invocation {
            HostedInvocation::CompiledIn(kernel) => self.compiled_in.resumed(kernel, event, grant),
            HostedInvocation::Program(run) => self.store.resumed(run, event, grant),
            HostedInvocation::Control(_) => Step::Done(Status::BadParameters),
        }
    }

    fn computed<'a>(&'a self, invocation: &'a Self::Invocation) -> &'a [u8] {
        match invocation {
            HostedInvocation::CompiledIn(kernel) => self.compiled_in.computed(kernel),
            HostedInvocation::Program(run) => run.invocation().state(),
            HostedInvocation::Control(response) => response.bytes(),
        }
    }

    fn fuel_used(&self, invocation: &Self::Invocation) -> u32 {
        match invocation {
            HostedInvocation::Program(run) => run.invocation().fuel_used(),
            HostedInvocation::CompiledIn(_) | HostedInvocation::Control(_) => 0,
        }
    }

    fn ended(&mut self, invocation: &Self::Invocation) {
        if let HostedInvocation::Program(run) = invocation {
            self.store.ended(run);
        }
    }
}

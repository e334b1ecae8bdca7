//! Deployed programs by op-code, in versions. A request keeps the version that it began with, whatever is deployed
//! meanwhile. A replaced or removed version frees its place when its last request has ended.

use super::code::Program;
use super::engine::{Engine, Executable, Interpreter};
use super::invocation::ProgramInvocation;
use super::limits::Fuel;
use crate::grant::Grant;
use crate::kernel::{Event, Opcode, Status, Step};
use core::fmt;

/// Why a program was not deployed or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreError {
    /// All places are occupied by other programs or by versions that still answer requests.
    Full {
        /// Their number.
        places: usize,
    },
    /// No program is deployed under this op-code.
    Missing(Opcode),
    /// A compiled-in kernel has this op-code.
    Taken(Opcode),
}

/// A deployed program version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deployed {
    /// The op-code that it answers to.
    pub opcode: Opcode,
    /// Its version. Every deployment in the store increments it.
    pub version: u64,
    /// SHA-256 of its instructions.
    pub digest: [u8; 32],
    /// Its length in instructions.
    pub instructions: usize,
    /// Requests that it is answering.
    pub running: u32,
    /// Whether it answers new requests; if not, it is removed once its last request has ended.
    pub current: bool,
}

struct Version<E> {
    opcode: Opcode,
    program: E,
    digest: [u8; 32],
    number: u64,
    running: u32,
    current: bool,
}

/// At most `PLACES` versions of programs, 8 KiB each.
///
/// ```
/// use bareverbs_offload::kernel::Opcode;
/// use bareverbs_offload::program::{Fuel, Instruction, Program, ProgramStore};
/// use zerocopy::IntoBytes;
///
/// // r0 = 0, which is the verb "done"; exit.
/// let code = [Instruction::new(0xb7, 0, 0, 0, 0), Instruction::new(0x95, 0, 0, 0, 0)];
/// let program = Program::verify(code.as_bytes()).unwrap();
/// let mut store: ProgramStore<4> = ProgramStore::new(Fuel::default());
/// assert_eq!(store.deploy(Opcode(0x11), program.clone()), Ok(1));
/// assert_eq!(store.deploy(Opcode(0x11), program), Ok(2), "the next version");
/// assert_eq!(store.list().map(|deployed| deployed.version).collect::<Vec<_>>(), [2]);
/// ```
pub struct ProgramStore<const PLACES: usize, E: Engine = Interpreter> {
    places: [Option<Version<E::Executable>>; PLACES],
    last: u64,
    fuel: Fuel,
    engine: E,
}

/// A request that a program of a store is answering.
#[derive(Debug)]
pub struct ProgramRun {
    place: usize,
    invocation: ProgramInvocation,
}

impl<const PLACES: usize> ProgramStore<PLACES> {
    /// An empty store whose programs get this fuel.
    pub const fn new(fuel: Fuel) -> Self {
        Self::with_engine(fuel, Interpreter)
    }
}

impl<const PLACES: usize, E: Engine> ProgramStore<PLACES, E> {
    /// An empty store whose programs get this fuel, and are run by this engine.
    pub const fn with_engine(fuel: Fuel, engine: E) -> Self {
        Self { places: [const { None }; PLACES], last: 0, fuel, engine }
    }

    /// Deploys a program, replacing the current one with this op-code. Returns its version.
    pub fn deploy(&mut self, opcode: Opcode, program: Program) -> Result<u64, StoreError> {
        // A version without requests can be overwritten, so even a full store can replace a program.
        let idle = |place: &Option<Version<E::Executable>>| {
            place.as_ref().is_some_and(|version| version.opcode == opcode && version.running == 0)
        };
        let free = self.places.iter().position(Option::is_none).or_else(|| self.places.iter().position(idle));
        let place = free.ok_or(StoreError::Full { places: PLACES })?;
        self.retire(opcode);
        self.last += 1;
        let digest = program.digest();
        let program = self.engine.prepare(opcode, program);
        let version = Version { opcode, program, digest, number: self.last, running: 0, current: true };
        self.places[place] = Some(version);
        Ok(self.last)
    }

    /// Removes the program of an op-code. Its running requests are still answered.
    pub fn remove(&mut self, opcode: Opcode) -> Result<u64, StoreError> {
        self.retire(opcode).ok_or(StoreError::Missing(opcode))
    }

    /// Retires the current version: no new request begins with it.
    fn retire(&mut self, opcode: Opcode) -> Option<u64> {
        let place = self.current(opcode)?;
        let version = self.places[place].as_mut()?;
        version.current = false;
        let number = version.number;
        self.free_if_idle(place);
        Some(number)
    }

    fn current(&self, opcode: Opcode) -> Option<usize> {
        let is_current = |version: &Version<E::Executable>| version.opcode == opcode && version.current;
        self.places.iter().position(|place| place.as_ref().is_some_and(is_current))
    }

    fn free_if_idle(&mut self, place: usize) {
        if let Some(place) = self.places.get_mut(place)
            && place.as_ref().is_some_and(|version| !version.current && version.running == 0)
        {
            *place = None;
        }
    }

    /// All versions that occupy a place.
    pub fn list(&self) -> impl Iterator<Item = Deployed> {
        self.places.iter().flatten().map(|version| Deployed {
            opcode: version.opcode,
            version: version.number,
            digest: version.digest,
            instructions: version.program.program().instructions().len(),
            running: version.running,
            current: version.current,
        })
    }

    /// Starts a request with the current version of its op-code.
    pub fn start(
        &mut self,
        opcode: Opcode,
        parameters: &[u8],
        grant: &Grant,
    ) -> Result<(ProgramRun, Step), Status> {
        let mut run = self.idle(opcode)?;
        let step = self.begin(&mut run, parameters, grant)?;
        Ok((run, step))
    }

    /// A request that the current version of its op-code will answer. It holds the version once it has begun.
    #[inline(always)]
    pub(super) fn idle(&self, opcode: Opcode) -> Result<ProgramRun, Status> {
        let place = self.current(opcode).ok_or(Status::NoKernel)?;
        Ok(ProgramRun { place, invocation: ProgramInvocation::idle(self.fuel) })
    }

    /// Begins a request that is idle.
    #[inline]
    pub(super) fn begin(
        &mut self,
        run: &mut ProgramRun,
        parameters: &[u8],
        grant: &Grant,
    ) -> Result<Step, Status> {
        let version = self.places.get_mut(run.place).and_then(Option::as_mut).ok_or(Status::NoKernel)?;
        let step = run.invocation.begin(&version.program, parameters, grant)?;
        version.running += 1;
        Ok(step)
    }

    fn program(&self, run: &ProgramRun) -> Option<&E::Executable> {
        Some(&self.places.get(run.place)?.as_ref()?.program)
    }

    /// Continues with the bytes that were requested.
    pub fn dma_done(&self, run: &mut ProgramRun, bytes: &[u8], grant: &Grant) -> Step {
        match self.program(run) {
            Some(program) => run.invocation.dma_done(program, bytes, grant),
            // Cannot happen: a version stays while one of its requests is running.
            None => Step::Done(Status::NoKernel),
        }
    }

    /// Continues with the payload.
    pub fn payload(&self, run: &mut ProgramRun, chunk: &[u8], grant: &Grant) -> Step {
        match self.program(run) {
            Some(program) => run.invocation.payload(program, chunk, grant),
            None => Step::Done(Status::NoKernel),
        }
    }

    /// Continues after a write or a compare-and-swap.
    pub fn resumed(&self, run: &mut ProgramRun, event: Event<'_>, grant: &Grant) -> Step {
        match self.program(run) {
            Some(program) => run.invocation.resumed(program, event, grant),
            None => Step::Done(Status::NoKernel),
        }
    }

    /// Records that a request has ended, which may free the place of its version.
    pub fn ended(&mut self, run: &ProgramRun) {
        if let Some(version) = self.places.get_mut(run.place).and_then(Option::as_mut) {
            version.running = version.running.saturating_sub(1);
        }
        self.free_if_idle(run.place);
    }
}

impl ProgramRun {
    /// The invocation.
    pub const fn invocation(&self) -> &ProgramInvocation {
        &self.invocation
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { places } => {
                write!(
                    f,
                    "all {places} places are taken: remove a program, or wait for the requests of old versions"
                )
            }
            Self::Missing(opcode) => write!(f, "no program is deployed under {opcode}"),
            Self::Taken(opcode) => {
                write!(f, "a kernel that is compiled in has {opcode}: choose another op-code")
            }
        }
    }
}

impl core::error::Error for StoreError {}

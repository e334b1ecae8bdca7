//! Programs as machine code, and the engine that makes them.

use crate::aarch64::Arm;
use crate::frame::{Frame, Stop};
use crate::translate::{Translation, translate};
use crate::x86_64::X86;
use bareverbs_offload::kernel::Opcode;
use bareverbs_offload::program::{Engine, Executable, Program, RunningStep};
use core::fmt;
use std::io;

#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
use crate::memory::CodeMemory;
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
use crate::no_memory::NoCodeMemory as CodeMemory;

/// A processor for which there is a translator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// x86-64.
    X86_64,
    /// aarch64, little-endian.
    Aarch64,
}

impl Processor {
    /// The processor that this program runs on, if translations can run here: on Linux.
    pub const fn this() -> Option<Self> {
        let here = cfg!(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"));
        match (cfg!(target_arch = "x86_64"), cfg!(target_arch = "aarch64")) {
            (true, _) if here => Some(Self::X86_64),
            (_, true) if here => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Translates a program for this processor, wherever this runs.
    ///
    /// ```
    /// use bareverbs_offload::program::{Instruction, Program};
    /// use bareverbs_offload_native::Processor;
    /// use zerocopy::IntoBytes;
    ///
    /// let code = [Instruction::new(0xb7, 0, 0, 0, 0), Instruction::new(0x95, 0, 0, 0, 0)];
    /// let program = Program::verify(code.as_bytes()).unwrap();
    /// let translation = Processor::Aarch64.translate(&program).unwrap();
    /// assert_eq!(translation.bytes().len() % 4, 0, "whole instructions");
    /// ```
    pub fn translate(self, program: &Program) -> Result<Translation, TranslateError> {
        let translation = match self {
            Self::X86_64 => translate::<X86>(program),
            Self::Aarch64 => translate::<Arm>(program),
        };
        let instructions = program.instructions().len();
        translation.ok_or(TranslateError::TooLong { processor: self, instructions })
    }
}

/// Why a program does not run as machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranslateError {
    /// Translation is switched off.
    Off,
    /// There is no translator for this system and processor.
    NotHere,
    /// Its code is so long that a jump of the processor does not span it.
    TooLong {
        /// For which processor.
        processor: Processor,
        /// Instructions of the program.
        instructions: usize,
    },
    /// The system gave no memory for code, or did not make it executable.
    Memory {
        /// Bytes of the code.
        bytes: usize,
        /// What the system said.
        error: io::ErrorKind,
        /// The system's number for it, if it gave one.
        errno: Option<i32>,
    },
}

/// A verified program that runs as machine code, or is interpreted.
///
/// ```
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::kernel::{Status, Step};
/// use bareverbs_offload::program::{Fuel, Instruction, Program, ProgramInvocation};
/// use bareverbs_offload_native::NativeProgram;
/// use zerocopy::IntoBytes;
///
/// // r0 = 0, which is the verb "done"; exit.
/// let code = [Instruction::new(0xb7, 0, 0, 0, 0), Instruction::new(0x95, 0, 0, 0, 0)];
/// let program = NativeProgram::new(Program::verify(code.as_bytes()).unwrap());
/// let grant = Grant::new(0x1000, 4096).unwrap();
/// let begun = ProgramInvocation::start(&program, Fuel::default(), &[], &grant);
/// assert_eq!(begun.unwrap().1, Step::Done(Status::Ok));
/// ```
pub struct NativeProgram {
    program: Program,
    code: Result<CodeMemory, TranslateError>,
}

impl NativeProgram {
    /// Translates a program for this processor. If that fails, the program is interpreted;
    /// [`NativeProgram::translation`] says why.
    pub fn new(program: Program) -> Self {
        let code = Processor::this().ok_or(TranslateError::NotHere).and_then(|this| {
            let translation = this.translate(&program)?;
            let bytes = translation.bytes().len();
            CodeMemory::new(translation).map_err(|error| TranslateError::memory(bytes, &error))
        });
        Self { program, code }
    }

    /// A program that is interpreted.
    pub const fn interpreted(program: Program) -> Self {
        Self { program, code: Err(TranslateError::Off) }
    }

    /// The machine code, or why there is none.
    pub fn translation(&self) -> Result<&Translation, TranslateError> {
        self.code.as_ref().map(CodeMemory::translation).map_err(|error| *error)
    }
}

impl Executable for NativeProgram {
    fn program(&self) -> &Program {
        &self.program
    }

    #[inline]
    fn advance(&self, step: &mut RunningStep<'_, '_>) -> bool {
        let Ok(code) = &self.code else { return false };
        let from = Stop { slot: step.slot(), fuel: step.fuel() };
        let (registers, segments) = step.parts();
        if let Some(stop) = code.run(&mut Frame::new(registers, segments), from) {
            step.stop_before(stop.slot, stop.fuel);
        }
        true
    }
}

impl fmt::Debug for NativeProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.program, self.translation())
    }
}

/// The engine that translates programs when they are deployed. A program that cannot be translated is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineCode {
    on: bool,
}

impl MachineCode {
    /// Nothing is translated.
    pub const OFF: Self = Self { on: false };

    /// The engine; an error if no translation runs here.
    ///
    /// ```
    /// use bareverbs_offload::kernels::BuiltInKernels;
    /// use bareverbs_offload::program::{Fuel, WithPrograms};
    /// use bareverbs_offload_native::MachineCode;
    ///
    /// let engine = MachineCode::new().unwrap_or(MachineCode::OFF);
    /// let _deployment: WithPrograms<BuiltInKernels, 4, MachineCode> =
    ///     WithPrograms::with_engine(Fuel::default(), engine);
    /// ```
    pub const fn new() -> Result<Self, TranslateError> {
        match Processor::this() {
            Some(_) => Ok(Self { on: true }),
            None => Err(TranslateError::NotHere),
        }
    }
}

impl Engine for MachineCode {
    type Executable = NativeProgram;

    fn prepare(&mut self, _opcode: Opcode, program: Program) -> NativeProgram {
        if self.on { NativeProgram::new(program) } else { NativeProgram::interpreted(program) }
    }
}

impl TranslateError {
    fn memory(bytes: usize, error: &io::Error) -> Self {
        Self::Memory { bytes, error: error.kind(), errno: error.raw_os_error() }
    }
}

impl fmt::Display for TranslateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Off => f.write_str("machine code is switched off: programs are interpreted"),
            Self::NotHere => write!(
                f,
                "no machine code for {} on {}: it runs on Linux on x86-64 and aarch64; programs are interpreted",
                std::env::consts::ARCH,
                std::env::consts::OS
            ),
            Self::TooLong { processor, instructions } => write!(
                f,
                "the machine code of {instructions} instructions is too long for a jump of {processor}"
            ),
            Self::Memory { bytes, error, errno } => {
                let error = errno.map_or(io::Error::from(error), io::Error::from_raw_os_error);
                write!(f, "the system gave no executable memory for {bytes} bytes of machine code: {error}")
            }
        }
    }
}

impl core::error::Error for TranslateError {}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86-64",
            Self::Aarch64 => "aarch64",
        })
    }
}

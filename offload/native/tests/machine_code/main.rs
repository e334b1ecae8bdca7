//! Machine code against the interpreter: the same program with the same inputs must take the same steps, fail at the
//! same instruction, use the same fuel and leave the same bytes. Each program ends by mixing all its registers, its
//! context and its stack into its state, where they can be compared.

mod assemble;
mod bounds;
mod operators;
mod pointers;
mod random;
mod together;
mod whole;

use assemble::verified;
use bareverbs_offload::grant::{Checked, Grant};
use bareverbs_offload::kernel::{Event, Status, Step};
use bareverbs_offload::program::{
    Executable, Fault, Fuel, Instruction, Program, ProgramInvocation, RunningStep,
};
use bareverbs_offload_native::{NativeProgram, Processor};

/// What can be seen of an invocation after each of its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    step: Result<Step, Status>,
    fault: Option<Fault>,
    fuel_used: u32,
    state: Vec<u8>,
}

/// Inputs of a request.
#[derive(Debug, Clone)]
struct Inputs {
    fuel: Fuel,
    parameters: Vec<u8>,
    /// The region.
    memory: Vec<u8>,
}

impl Default for Inputs {
    fn default() -> Self {
        let memory = (0..1024_u32).map(|at| ((at * 37) >> 3) as u8).collect();
        Self { fuel: Fuel::default(), parameters: b"some parameters".to_vec(), memory }
    }
}

impl Inputs {
    /// Runs a request for at most `steps` steps.
    fn run<E: Executable>(&self, program: &E, steps: usize) -> Vec<Seen> {
        let mut memory = self.memory.clone();
        let grant = Grant::new(0x10_0000, memory.len() as u64).expect("no wrap").writable();
        let begun = ProgramInvocation::start(program, self.fuel, &self.parameters, &grant);
        let (mut invocation, mut step) = match begun {
            Ok(begun) => begun,
            Err(status) => {
                return vec![Seen { step: Err(status), fault: None, fuel_used: 0, state: Vec::new() }];
            }
        };
        let place =
            |range: Checked| range.offset() as usize..(range.offset() + u64::from(range.length())) as usize;
        let mut seen = Vec::new();
        for _ in 0..steps {
            seen.push(Seen {
                step: Ok(step),
                fault: invocation.fault(),
                fuel_used: invocation.fuel_used(),
                state: invocation.state().to_vec(),
            });
            step = match step {
                Step::Fetch(range) | Step::Refetch { range, .. } => {
                    invocation.dma_done(program, &memory[place(range)], &grant)
                }
                Step::AwaitPayload => invocation.payload(program, &memory[..99], &grant),
                Step::Write { to, from } => {
                    let Some(bytes) = invocation
                        .state()
                        .get(from as usize..)
                        .and_then(|rest| rest.get(..to.range().length() as usize))
                    else {
                        break;
                    };
                    memory[place(to.range())].copy_from_slice(bytes);
                    invocation.resumed(program, Event::Written, &grant)
                }
                Step::CompareAndSwap { word, expected, desired } => {
                    let word = &mut memory[place(word.range())];
                    let found = u64::from_be_bytes(*word.first_chunk().expect("a word"));
                    if found == expected {
                        word.copy_from_slice(&desired.to_be_bytes());
                    }
                    invocation.resumed(program, Event::Compared { found }, &grant)
                }
                _ => break,
            };
        }
        seen
    }

    /// What the interpreter and the machine code do; they must agree.
    #[track_caller]
    fn compare(&self, program: &Program, steps: usize) -> Vec<Seen> {
        self.compare_with(&native(program), steps)
    }

    /// The same, with machine code for several inputs.
    #[track_caller]
    fn compare_with(&self, native: &NativeProgram, steps: usize) -> Vec<Seen> {
        let (expected, found) = (self.run(native.program(), steps), self.run(native, steps));
        assert_eq!(found, expected, "machine code, then the interpreter, of {:?}", text(native.program()));
        expected
    }
}

/// Whether programs run as machine code here. Where they do not, what a test would check of the code is skipped.
fn has_machine_code() -> bool {
    let here = Processor::this().is_some();
    if !here {
        println!("SKIPPED: no machine code for this system and processor");
    }
    here
}

/// A program in machine code; it must be, where there is any.
#[track_caller]
fn native(program: &Program) -> NativeProgram {
    let native = NativeProgram::new(program.clone());
    let code = native.translation();
    assert_eq!(code.is_ok(), Processor::this().is_some(), "{code:?}");
    native
}

/// A program as text.
fn text(program: &Program) -> Vec<String> {
    let code = program.instructions();
    let decode = |at| bareverbs_offload::program::Operation::decode(code, at);
    (0..code.len()).map(|at| decode(at).map_or_else(|_| "-".to_owned(), |found| found.to_string())).collect()
}

/// Says where the machine code stopped first, and with which fuel.
struct Watched {
    native: NativeProgram,
    stopped: std::cell::Cell<Option<(usize, u32)>>,
}

impl Executable for Watched {
    fn program(&self) -> &Program {
        self.native.program()
    }

    fn advance(&self, step: &mut RunningStep<'_, '_>) -> bool {
        let advances = self.native.advance(step);
        if self.stopped.get().is_none() {
            self.stopped.set(Some((step.slot(), step.fuel())));
        }
        advances
    }
}

impl Watched {
    fn first_stop(code: &[Instruction], fuel: u32) -> (usize, u32) {
        let watched = Self { native: native(&verified(code)), stopped: std::cell::Cell::new(None) };
        let inputs = Inputs { fuel: Fuel { step: fuel, invocation: fuel }, ..Inputs::default() };
        inputs.run(&watched, 1);
        watched.stopped.get().expect("it was asked")
    }
}

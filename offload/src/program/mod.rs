//! Kernels that are programs: deployed while requests run, verified before they run, and bounded while they
//! run.
//!
//! A program is eBPF code (RFC 9669) as `clang -target bpf -mcpu=v3` emits it for one function. The runtime
//! calls the function once per step. The function finds what happened in its context, keeps what it needs in
//! its state, and returns a verb: what it wants next. It names offsets in the region that its client was
//! granted; the runtime checks each of them.
//!
//! **What it may not do.** Loop forever (fuel), leave its memory (segments), call functions other than three
//! helpers, keep anything on the stack between steps, see another invocation.
//!
//! **The subset.** All of `-mcpu=v3` except atomic operations, packet access, maps, variables outside the
//! function and calls between functions. Division by zero gives zero and a remainder by zero leaves the
//! dividend, as RFC 9669 requires.

mod code;
pub mod control;
mod decoded;
mod deployment;
mod engine;
mod fault;
mod helpers;
mod instruction;
mod interpret;
mod invocation;
mod limits;
mod machine;
mod memory;
mod operators;
mod plain;
mod refusal;
mod store;
mod verify;

pub use code::Program;
pub use deployment::{HostedInvocation, WithPrograms};
pub use engine::{Engine, Executable, Interpreter, RunningStep};
pub use fault::Fault;
pub use helpers::{BYTES_PER_FUEL, Helper, Unable};
pub use instruction::{Condition, Feature, Illegal, Instruction, Operand, Operation};
pub use invocation::{MAX_PARAMETERS, ProgramInvocation, Verb};
pub use limits::{Fuel, MAX_INSTRUCTIONS, STACK, STATE};
pub use memory::{CONTEXT, Segment, Segments};
pub use store::{Deployed, ProgramRun, ProgramStore, StoreError};
pub use verify::DeployError;

#[cfg(test)]
mod tests;

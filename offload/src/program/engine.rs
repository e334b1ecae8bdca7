//! What runs a verified program: the interpreter of this crate, or an engine of another one, such as a translator to
//! machine code.
//!
//! An engine advances a step as far as it likes and stops before any instruction. Whatever it does not do itself, this
//! crate does: it ends the step, calls helpers, and interprets from where an engine stopped. So an engine needs no faults
//! of its own. It stops before the instruction that would fail, and the interpreter finds out why.

use super::code::Program;
use super::fault::Fault;
use super::helpers::call;
use super::instruction::numbers as n;
use super::interpret;
use super::machine::{Exit, Position, Registers, beginning};
use super::memory::{Memory, Segments};
use super::plain;
use crate::kernel::Opcode;

/// A verified program in the form in which an engine runs it.
pub trait Executable {
    /// The program.
    fn program(&self) -> &Program;

    /// Advances a step by any number of whole instructions, each of which takes one unit of fuel, and
    /// [stops](RunningStep::stop_before) before one that it does not execute: an `exit`, one that fails, or any other. It
    /// may make [calls](super::Helper::call), or stop before them. `false` if there is nothing that could advance it, so
    /// that the whole step is interpreted.
    fn advance(&self, step: &mut RunningStep<'_, '_>) -> bool;
}

/// Prepares programs when they are deployed.
pub trait Engine {
    /// What it makes of a program.
    type Executable: Executable;

    /// Prepares a program that is deployed under this op-code. An engine that cannot, or may not, leaves it to the interpreter.
    fn prepare(&mut self, opcode: Opcode, program: Program) -> Self::Executable;
}

/// The engine that interprets.
#[derive(Debug, Clone, Copy, Default)]
pub struct Interpreter;

impl Engine for Interpreter {
    type Executable = Program;

    fn prepare(&mut self, _opcode: Opcode, program: Program) -> Program {
        program
    }
}

impl Executable for Program {
    fn program(&self) -> &Program {
        self
    }

    #[inline(always)]
    fn advance(&self, _step: &mut RunningStep<'_, '_>) -> bool {
        false
    }
}

/// A step of a program between two of its instructions.
pub struct RunningStep<'s, 'm> {
    registers: Registers,
    slot: usize,
    fuel: u32,
    memory: &'s mut Memory<'m>,
}

impl<'m> RunningStep<'_, 'm> {
    /// The slot of the next instruction.
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// Fuel that is left.
    pub const fn fuel(&self) -> u32 {
        self.fuel
    }

    /// The registers, of which programs have eleven, and the memory.
    #[inline]
    pub fn parts(&mut self) -> (&mut [u64; 16], Segments<'_>) {
        (&mut self.registers.0, self.memory.segments())
    }

    /// The step has stopped before the instruction at `slot`, with this much fuel left. Its fuel cannot increase.
    #[inline]
    pub fn stop_before(&mut self, slot: usize, fuel: u32) {
        (self.slot, self.fuel) = (slot, fuel.min(self.fuel));
    }
}

/// Runs one step until its `exit`. Part of each place that runs one, where the step's cause is known.
#[inline(always)]
pub(super) fn run<E: Executable>(executable: &E, memory: &mut Memory<'_>, fuel: u32) -> Result<Exit, Fault> {
    let (registers, _) = beginning(fuel);
    let mut step = RunningStep { registers, slot: 0, fuel, memory };
    let program = executable.program();
    if !executable.advance(&mut step) {
        return step.memory.with_stack(|memory| interpret::run(program, memory, fuel));
    }
    loop {
        let RunningStep { registers, slot, fuel, memory } = &mut step;
        // Of the array, whose length is known, rather than of the instructions, whose length is not.
        let next = program.operations().get(*slot);
        match next.map_or(n::JMP, |next| next.opcode) {
            // Either takes fuel, of which there is less in every round.
            EXIT if *fuel > 0 => return Ok(Exit { value: registers.0[0], fuel: *fuel - 1 }),
            CALL if *fuel > 0 => {
                let number = next.map_or(0, |next| next.value);
                *fuel -= 1;
                *fuel -= call(*slot, number, &mut registers.0, memory, *fuel)?;
                *slot += 1;
                executable.advance(&mut step);
            }
            _ => {
                let next = step.slot as u64;
                let position = Position { next, dry: next.wrapping_add(step.fuel.into()) };
                let code = program.instructions();
                return step.memory.with_stack(|memory| plain::run(code, memory, step.registers, position));
            }
        }
    }
}

const EXIT: u8 = n::JMP | n::EXIT;
const CALL: u8 = n::JMP | n::CALL;

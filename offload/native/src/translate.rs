//! The walk over a program, the same for every processor: where lines begin, what they cost, and which code is rarely
//! needed and so comes last.
//!
//! A line begins at the start, behind a call or a conditional jump, and where a jump leads. It pays for all its instructions
//! when it begins. If the fuel does not last, or an instruction in it would fail, the code gives back what was not used and
//! stops before that instruction: the interpreter goes on there. A line ends before a call or an `exit` at the latest, and
//! pays for neither.

use crate::buffer::Label;
use bareverbs_offload::program::{Condition, Instruction, Operand, Operation, Program, Segment};
use core::fmt;

/// The register that points to the end of the stack. No program writes to it, so it is a constant.
pub const FRAME_POINTER: u8 = 10;

/// An access to memory.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    pub bytes: u8,
    pub base: u8,
    pub offset: i16,
    pub direction: Direction,
}

#[derive(Debug, Clone, Copy)]
pub enum Direction {
    Load { destination: u8 },
    Store { source: Operand },
}

impl Access {
    pub const fn stores(&self) -> bool {
        matches!(self.direction, Direction::Store { .. })
    }
}

/// A computation.
#[derive(Debug, Clone, Copy)]
pub struct Computation {
    pub code: u8,
    pub wide: bool,
    pub destination: u8,
    pub source: Operand,
}

/// What a processor's code for each piece of a program is. `Label`s are the processor's own buffer's.
pub trait Target: Sized {
    /// Writes how the code is entered and left.
    fn begin() -> Self;
    fn here(&self) -> usize;
    fn label(&mut self) -> Label;
    fn bind(&mut self, label: Label);
    /// Takes fuel, or jumps and has taken it all the same.
    fn pay(&mut self, units: u32, short: Label);
    fn compute(&mut self, computation: Computation);
    /// Makes the low `bits` of a register big-endian or little-endian, and the others zero.
    fn swap(&mut self, big: bool, bits: u8, register: u8);
    fn constant(&mut self, destination: u8, value: u64);
    fn jump(&mut self, to: Label);
    fn jump_if(&mut self, condition: Condition, to: Label);
    /// An access relative to the frame pointer; the verifier has checked that it is in the stack.
    fn access_stack(&mut self, access: Access);
    /// An access in a segment; jumps to `miss` if the address is not in it.
    fn access_in(&mut self, segment: Segment, access: Access, miss: Label);
    /// An access in the segment that the address names; jumps to `stop` if there is none, if the address is not in
    /// it, or if the segment is not for writing and this writes.
    fn access_anywhere(&mut self, access: Access, stop: Label);
    /// Gives fuel back and leaves the code before the instruction at `slot`.
    fn stop(&mut self, slot: usize, fuel: u32);
    /// Leaves the code before an `exit`, which needs no register but r0.
    fn end(&mut self, slot: usize);
    /// The bytes; `None` if a jump is too far.
    fn finish(self) -> Option<Vec<u8>>;
}

/// A program as code of a processor.
pub struct Translation {
    bytes: Vec<u8>,
    entries: Vec<Option<u32>>,
}

impl Translation {
    /// The code. It can be anywhere.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the code of the line is that begins at a slot.
    pub fn entry(&self, slot: usize) -> Option<u32> {
        self.entries.get(slot).copied().flatten()
    }
}

impl fmt::Debug for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of machine code", self.bytes.len())
    }
}

/// Code that comes behind all lines.
enum Rare {
    /// Stops before an instruction.
    Stop { from: Label, slot: usize, fuel: u32 },
    /// The address was not in the segment that it was guessed to be in.
    Elsewhere { from: Label, access: Access, stop: Label, back: Label },
}

struct Walk<'p, T> {
    program: &'p Program,
    target: T,
    /// Of each slot.
    labels: Vec<Label>,
    begins: Vec<bool>,
    rare: Vec<Rare>,
}

/// Translates a program; `None` if the code would be too long for a jump of the processor.
pub fn translate<T: Target>(program: &Program) -> Option<Translation> {
    let code = program.instructions();
    let mut target = T::begin();
    let labels = code.iter().map(|_| target.label()).collect();
    let mut walk = Walk { program, target, labels, begins: line_beginnings(code), rare: Vec::new() };
    let mut entries = vec![None; code.len()];
    let mut slot = 0;
    while slot < code.len() {
        entries[slot] = u32::try_from(walk.target.here()).ok();
        slot = walk.line(slot)?;
    }
    walk.write_rare();
    Some(Translation { bytes: walk.target.finish()?, entries })
}

/// Marks the slots where lines begin.
fn line_beginnings(code: &[Instruction]) -> Vec<bool> {
    let mut begins = vec![false; code.len() + 1];
    begins[0] = true;
    let mut slot = 0;
    while let Ok(operation) = Operation::decode(code, slot) {
        let next = slot + operation.slots();
        match operation {
            Operation::Jump { offset, .. } => {
                begins[next] = true;
                if let Some(target) = begins.get_mut(next.wrapping_add_signed(offset.into())) {
                    *target = true;
                }
            }
            Operation::Call(_) | Operation::Exit => begins[next] = true,
            _ => {}
        }
        slot = next;
    }
    begins
}

impl<T: Target> Walk<'_, T> {
    /// Translates the line that begins at a slot, and returns where the next one begins.
    fn line(&mut self, first: usize) -> Option<usize> {
        let code = self.program.instructions();
        let mut operations = Vec::new();
        let mut slot = first;
        while slot < code.len() && (slot == first || !self.begins[slot]) {
            let operation = Operation::decode(code, slot).ok()?;
            operations.push((slot, operation));
            slot += operation.slots();
        }
        let free = |operation: &Operation| matches!(operation, Operation::Call(_) | Operation::Exit);
        let cost = operations.iter().filter(|(_, operation)| !free(operation)).count() as u32;
        self.target.bind(self.labels[first]);
        if cost > 0 {
            let short = self.stops_before(first, cost);
            self.target.pay(cost, short);
        }
        for (done, (at, operation)) in (0..).zip(operations) {
            self.operation(at, operation, cost - done)?;
        }
        Some(slot)
    }

    /// Where code jumps to stop before an instruction, and to give back fuel.
    fn stops_before(&mut self, slot: usize, fuel: u32) -> Label {
        let from = self.target.label();
        self.rare.push(Rare::Stop { from, slot, fuel });
        from
    }

    /// Translates one instruction; `left` is what its line has paid for it and those behind it.
    fn operation(&mut self, at: usize, operation: Operation, left: u32) -> Option<()> {
        match operation {
            Operation::Compute { code, wide, destination, source } => {
                self.target.compute(Computation { code, wide, destination, source });
            }
            Operation::Swap { big, bits, destination } => self.target.swap(big, bits, destination),
            Operation::Constant { destination, value } => self.target.constant(destination, value),
            Operation::Load { destination, base, offset, bytes } => {
                let direction = Direction::Load { destination };
                self.access(at, Access { bytes, base, offset, direction }, left);
            }
            Operation::Store { base, offset, bytes, source } => {
                let direction = Direction::Store { source };
                self.access(at, Access { bytes, base, offset, direction }, left);
            }
            Operation::Jump { offset, condition } => {
                let to = *self.labels.get((at + 1).wrapping_add_signed(offset.into()))?;
                match condition {
                    Some(condition) => self.target.jump_if(condition, to),
                    None => self.target.jump(to),
                }
            }
            Operation::Call(_) => self.target.stop(at, 0),
            Operation::Exit => self.target.end(at),
        }
        Some(())
    }

    fn access(&mut self, at: usize, access: Access, left: u32) {
        if access.base == FRAME_POINTER {
            return self.target.access_stack(access);
        }
        let stop = self.stops_before(at, left);
        let writable = |segment| !matches!(segment, Segment::Parameters | Segment::Window);
        match self.program.guess(at).filter(|segment| writable(*segment) || !access.stores()) {
            Some(segment) => {
                let (miss, back) = (self.target.label(), self.target.label());
                self.target.access_in(segment, access, miss);
                self.target.bind(back);
                self.rare.push(Rare::Elsewhere { from: miss, access, stop, back });
            }
            None => self.target.access_anywhere(access, stop),
        }
    }

    fn write_rare(&mut self) {
        for rare in core::mem::take(&mut self.rare) {
            match rare {
                Rare::Stop { from, slot, fuel } => {
                    self.target.bind(from);
                    self.target.stop(slot, fuel);
                }
                Rare::Elsewhere { from, access, stop, back } => {
                    self.target.bind(from);
                    self.target.access_anywhere(access, stop);
                    self.target.jump(back);
                }
            }
        }
    }
}

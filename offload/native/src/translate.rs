//! The walk over a program, the same for every processor: where lines begin, what they cost, which accesses are compared
//! together, and which code is rarely needed and so comes last.
//!
//! A line (a basic block, as compilers call it) begins at the start, behind a call or a conditional jump, and where a
//! jump leads. It pays for all its instructions when it begins. If the fuel does not last, or an instruction in it
//! would fail, the code gives back what was not used and stops before that instruction: the interpreter goes on there.
//! A line ends before a call or an `exit` at the latest, and pays for neither.
//!
//! Lines that follow each other and are not entered in between are a block (an extended basic block). An access is
//! compared with the segment that it is guessed to go to, together with those that follow it in the block and have the
//! same register as their base. If the comparison fails, the rest of the block runs in a second form, in which each
//! access finds its segment by itself.
//!
//! Accesses relative to a pointer of the context need neither: see `pointers`.

use crate::access::{Access, FRAME_POINTER, MAX_SPAN, Span};
use crate::buffer::Label;
use crate::frame::fixed_length;
use crate::known::{Known, Used, written};
use crate::operations::Operations;
use crate::operators as o;
use crate::pointers::{Pointer, Pointers};
use bareverbs_offload::program::{Condition, Helper, Instruction, Operand, Operation, Program, Segment};
use core::fmt;
use core::ops::Range;

/// A computation.
#[derive(Debug, Clone, Copy)]
pub struct Computation {
    pub code: u8,
    pub wide: bool,
    pub destination: u8,
    pub source: Operand,
}

/// Writes a processor's code for each piece of a program. `Label`s belong to the processor's own buffer.
pub trait Target: Sized {
    /// Writes how the code is entered and left.
    fn begin(used: &Used) -> Self;
    fn here(&self) -> usize;
    fn label(&mut self) -> Label;
    fn bind(&mut self, label: Label);
    /// Subtracts fuel. Jumps to `short` if there is too little, after it has subtracted.
    fn pay(&mut self, units: u32, short: Label);
    fn compute(&mut self, computation: Computation);
    /// Makes the low `bits` of a register big-endian or little-endian, and the others zero.
    fn swap(&mut self, big: bool, bits: u8, register: u8);
    fn constant(&mut self, destination: u8, value: u64);
    fn jump(&mut self, to: Label);
    fn jump_if(&mut self, condition: Condition, to: Label);
    /// An access relative to the frame pointer; the verifier has checked that it is in the stack.
    fn access_stack(&mut self, access: Access);
    /// Jumps to `miss` if not all bytes of a span are in its segment. Keeps the place of the last segment.
    fn compare(&mut self, span: Span, miss: Label);
    /// Jumps if a register does not point to the beginning of a segment.
    fn expect_pointer(&mut self, register: u8, segment: Segment, otherwise: Label);
    /// Jumps if a segment has fewer than this many bytes.
    fn expect_length(&mut self, segment: Segment, bytes: i32, otherwise: Label);
    /// An access to bytes that were compared; `again` if the place of the segment is still that of the last access.
    fn access_in(&mut self, segment: Segment, access: Access, again: bool);
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
    calls: Vec<Option<Helper>>,
}

impl Translation {
    /// The code. It can be anywhere.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the code of the block is that begins at a slot: where it is entered after the start, a call or a jump.
    pub fn entry(&self, slot: usize) -> Option<u32> {
        self.entries.get(slot).copied().flatten()
    }

    /// The helper that the program calls at a slot, before which its code stops.
    pub fn call(&self, slot: usize) -> Option<Helper> {
        self.calls.get(slot).copied().flatten()
    }
}

impl fmt::Debug for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of machine code", self.bytes.len())
    }
}

/// How accesses find their segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Where they are guessed to be.
    Guessed,
    /// Each by itself.
    Anywhere,
}

struct Walk<'p, T> {
    program: &'p Program,
    target: T,
    lines: Lines,
    pointers: Pointers,
    known: Known,
    /// The label of each slot.
    labels: Vec<Label>,
    /// Where the second form of a block is entered before an instruction.
    misses: Vec<Option<Label>>,
    /// Where code stops before an instruction, and the fuel that it gives back.
    stops: Vec<Option<(Label, u32)>>,
}

/// Translates a program; `None` if the code would be too long for a jump of the processor.
pub fn translate<T: Target>(program: &Program) -> Option<Translation> {
    let code = program.instructions();
    let operations = Operations { code, slot: 0 };
    let used = Used::by(operations.clone().map(|(_, operation)| operation));
    let mut target = T::begin(&used);
    let labels = code.iter().map(|_| target.label()).collect();
    let (lines, pointers, known) = (Lines::of(code), Pointers::of(code), Known::NOTHING);
    let (misses, stops) = (vec![None; code.len()], vec![None; code.len()]);
    let mut walk = Walk { program, target, lines, pointers, known, labels, misses, stops };
    let (mut entries, mut calls) = (vec![None; code.len()], vec![None; code.len()]);
    for (slot, operation) in operations {
        if let Operation::Call(helper) = operation {
            calls[slot] = Some(helper);
        }
        if walk.lines.enters[slot] {
            entries[slot] = u32::try_from(walk.target.here()).ok();
            walk.known = Known::NOTHING;
        }
        walk.target.bind(walk.labels[slot]);
        walk.pay(slot);
        if slot == 0 && used.loaded[1] {
            let stop = walk.stops_before(slot);
            walk.target.expect_pointer(1, Segment::Context, stop);
        }
        walk.operation(slot, operation, Form::Guessed)?;
    }
    walk.write_second_forms()?;
    walk.write_stops();
    Some(Translation { bytes: walk.target.finish()?, entries, calls })
}

/// Where lines and blocks begin, by slot.
struct Lines {
    /// Whether a line begins here.
    begins: Vec<bool>,
    /// Whether a block begins here: a line that is also entered from elsewhere than the line before it.
    enters: Vec<bool>,
    /// What the line has paid for the instruction and those behind it.
    paid: Vec<u32>,
}

impl Lines {
    fn of(code: &[Instruction]) -> Self {
        let mut begins = vec![false; code.len() + 1];
        let mut enters = begins.clone();
        enters[0] = true;
        for (slot, operation) in (Operations { code, slot: 0 }) {
            let next = slot + operation.slots();
            match operation {
                Operation::Jump { offset, condition } => {
                    begins[next] = true;
                    enters[next] |= condition.is_none();
                    if let Some(target) = enters.get_mut(next.wrapping_add_signed(offset.into())) {
                        *target = true;
                    }
                }
                Operation::Call(_) | Operation::Exit => enters[next] = true,
                _ => {}
            }
        }
        begins.iter_mut().zip(&enters).for_each(|(begins, enters)| *begins |= enters);
        let paid = Self::paid(code, &begins);
        Self { begins, enters, paid }
    }

    fn paid(code: &[Instruction], begins: &[bool]) -> Vec<u32> {
        let mut paid = vec![0; code.len() + 1];
        let operations: Vec<_> = Operations { code, slot: 0 }.collect();
        for (slot, operation) in operations.into_iter().rev() {
            let next = slot + operation.slots();
            let behind = if begins[next] { 0 } else { paid[next] };
            let free = matches!(operation, Operation::Call(_) | Operation::Exit);
            paid[slot] = behind + u32::from(!free);
        }
        paid
    }
}

/// Whether an access may be to a segment: nothing is stored to what is lent for reading.
const fn may_access(segment: Segment, access: Access) -> bool {
    !access.stores() || !matches!(segment, Segment::Parameters | Segment::Window)
}

impl<T: Target> Walk<'_, T> {
    /// Pays for the line, if one begins at a slot.
    fn pay(&mut self, slot: usize) {
        let cost = self.lines.paid[slot];
        if self.lines.begins[slot] && cost > 0 {
            let short = self.stops_before(slot);
            self.target.pay(cost, short);
        }
    }

    /// Where code jumps to stop before an instruction, and to give back fuel.
    fn stops_before(&mut self, slot: usize) -> Label {
        let Self { target, stops, lines, .. } = self;
        stops[slot].get_or_insert_with(|| (target.label(), lines.paid[slot])).0
    }

    /// Translates one instruction.
    fn operation(&mut self, at: usize, operation: Operation, form: Form) -> Option<()> {
        match operation {
            Operation::Compute { code, wide, destination, source } => {
                // A division uses the registers that accesses do.
                if matches!(code, o::DIV | o::MOD) {
                    self.known.forget_place();
                }
                self.target.compute(Computation { code, wide, destination, source });
            }
            Operation::Swap { big, bits, destination } => self.target.swap(big, bits, destination),
            Operation::Constant { destination, value } => self.target.constant(destination, value),
            Operation::Load { .. } | Operation::Store { .. } => {
                self.access(at, Access::of(&operation)?, form);
                self.check_pointer(at, &operation);
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
        if let Some(register) = written(&operation) {
            self.known.forget(register);
        }
        Some(())
    }

    fn access(&mut self, at: usize, access: Access, form: Form) {
        if access.base == FRAME_POINTER {
            return self.target.access_stack(access);
        }
        if let Some(segment) = self.pointed_to(at, access) {
            let again = self.known.is_at(segment);
            return self.target.access_in(segment, access, again);
        }
        let Some(segment) = self.guess(at, access).filter(|_| form == Form::Guessed) else {
            let stop = self.stops_before(at);
            self.known.forget_place();
            return self.target.access_anywhere(access, stop);
        };
        if !self.known.covers(&Span::of(segment, access)) {
            let span = self.span(at, Span::of(segment, access));
            let Self { target, misses, .. } = self;
            let miss = *misses[at].get_or_insert_with(|| target.label());
            target.compare(span, miss);
            self.known.learn(span);
        }
        let again = self.known.is_at(segment);
        self.target.access_in(segment, access, again);
    }

    /// Compares what was loaded from where the context has a pointer with that pointer.
    fn check_pointer(&mut self, at: usize, operation: &Operation) {
        if let (Some(register), Some(segment)) = (written(operation), self.pointers.loaded(at, operation)) {
            let stop = self.stops_before(at);
            self.target.expect_pointer(register, segment, stop);
        }
    }

    /// The segment that an access goes to, if it is known to be inside: its base points to a known place. How long the
    /// parameters and the window are is compared first.
    fn pointed_to(&mut self, at: usize, access: Access) -> Option<Segment> {
        let (segment, bytes) = self.place_of(at, access)?;
        if let Some(length) = fixed_length(segment) {
            return (bytes.end <= length as i32).then_some(segment);
        }
        if !self.known.reaches(segment, bytes.end) {
            let (end, stop) = (self.farthest(at, segment), self.stops_before(at));
            self.target.expect_length(segment, end, stop);
            self.known.learn_length(segment, end);
        }
        Some(segment)
    }

    /// The segment to which the base of an access points, and which of its bytes the access is to, if both are known and
    /// it may do that. The stack has no pointer in the context.
    fn place_of(&self, at: usize, access: Access) -> Option<(Segment, Range<i32>)> {
        let Pointer { segment, offset } = self.pointers.before(at, access.base)?;
        let first = offset + i32::from(access.offset);
        let end = first + i32::from(access.bytes);
        let is_near = 0 <= first && end <= MAX_SPAN;
        (is_near && may_access(segment, access)).then_some((segment, first..end))
    }

    /// The end of the farthest access to a segment from here on in this line. A program may still be about to ask how long it
    /// is before the next one.
    fn farthest(&self, at: usize, segment: Segment) -> i32 {
        let rest = Operations { code: self.program.instructions(), slot: at };
        let line = rest.take_while(|(slot, _)| *slot == at || !self.lines.begins[*slot]);
        let places = line.filter_map(|(slot, operation)| self.place_of(slot, Access::of(&operation)?));
        places.filter(|(other, _)| *other == segment).map(|(_, bytes)| bytes.end).max().unwrap_or(0)
    }

    /// The segment that an access is guessed to go to, if it may and the code has it.
    fn guess(&self, at: usize, access: Access) -> Option<Segment> {
        let has = |segment: &Segment| *segment != Segment::Stack || self.program.names_stack();
        self.program.guess(at).filter(|segment| has(segment) && may_access(*segment, access))
    }

    /// The bytes of an access and of those that follow it in its block with the same base. Which bytes other segments have
    /// is known; how long parameters and the window are, a program may still be about to ask, so those are compared for
    /// one line.
    fn span(&self, at: usize, first: Span) -> Span {
        let mut span = first;
        for (slot, operation) in (Operations { code: self.program.instructions(), slot: at }) {
            let ends =
                if fixed_length(span.segment).is_some() { &self.lines.enters } else { &self.lines.begins };
            if slot != at && ends[slot] {
                break;
            }
            if let Some(access) = Access::of(&operation).filter(|access| access.base == span.base)
                && self.guess(slot, access) == Some(span.segment)
            {
                span = span.with(Span::of(span.segment, access));
            }
            if written(&operation) == Some(span.base) {
                break;
            }
        }
        span
    }

    /// Writes the second forms of blocks, each from the first instruction on before which it is entered.
    fn write_second_forms(&mut self) -> Option<()> {
        let mut running = false;
        for (slot, operation) in (Operations { code: self.program.instructions(), slot: 0 }) {
            if running && self.lines.enters[slot] {
                self.target.jump(self.labels[slot]);
                running = false;
            }
            if running {
                self.pay(slot);
            }
            if let Some(miss) = self.misses[slot] {
                self.target.bind(miss);
                (running, self.known) = (true, Known::NOTHING);
            }
            if running {
                self.operation(slot, operation, Form::Anywhere)?;
            }
        }
        Some(())
    }

    fn write_stops(&mut self) {
        for slot in 0..self.stops.len() {
            if let Some((stop, fuel)) = self.stops[slot] {
                self.target.bind(stop);
                self.target.stop(slot, fuel);
            }
        }
    }
}

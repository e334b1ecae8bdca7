//! What is known of a program's registers while its lines are translated: which bytes beside the address in a register
//! were found to be in a segment. Another access to them needs no comparison until the register changes.

use crate::access::{FRAME_POINTER, Span};
use bareverbs_offload::program::{Operand, Operation, Segment};

/// What is known, by register, and of the register that the processor has for a segment.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    spans: [Option<Span>; FRAME_POINTER as usize],
    /// The segment whose place is in the processor's register for it.
    place: Option<Segment>,
    /// How many bytes the parameters and the window were found to have at least.
    lengths: [i32; 2],
}

/// Where the known length of a segment is kept, if it varies.
const fn length_index(segment: Segment) -> Option<usize> {
    match segment {
        Segment::Parameters => Some(0),
        Segment::Window => Some(1),
        Segment::Context | Segment::State | Segment::Stack => None,
    }
}

impl Known {
    pub const NOTHING: Self = Self { spans: [None; FRAME_POINTER as usize], place: None, lengths: [0; 2] };

    pub fn covers(&self, span: &Span) -> bool {
        self.spans[usize::from(span.base)].is_some_and(|known| known.covers(span))
    }

    pub fn learn(&mut self, span: Span) {
        self.spans[usize::from(span.base)] = Some(span);
    }

    /// Whether the parameters or the window were found to have at least `end` bytes.
    pub fn reaches(&self, segment: Segment, end: i32) -> bool {
        length_index(segment).is_some_and(|index| end <= self.lengths[index])
    }

    /// Notes that the parameters or the window have at least `end` bytes.
    pub const fn learn_length(&mut self, segment: Segment, end: i32) {
        if let Some(index) = length_index(segment) {
            self.lengths[index] = end;
        }
    }

    /// Notes the segment that is accessed now; whether it is that of the last access.
    pub fn is_at(&mut self, segment: Segment) -> bool {
        self.place.replace(segment) == Some(segment)
    }

    /// The processor's register for the place of a segment has changed.
    pub const fn forget_place(&mut self) {
        self.place = None;
    }

    pub fn forget(&mut self, register: u8) {
        if let Some(span) = self.spans.get_mut(usize::from(register)) {
            *span = None;
        }
    }
}

/// The register that an instruction writes, other than a call.
pub const fn written(operation: &Operation) -> Option<u8> {
    match *operation {
        Operation::Compute { destination, .. }
        | Operation::Swap { destination, .. }
        | Operation::Constant { destination, .. }
        | Operation::Load { destination, .. } => Some(destination),
        Operation::Store { .. } | Operation::Jump { .. } | Operation::Call(_) | Operation::Exit => None,
    }
}

/// Which of the registers r0 to r9 code has to load when it is entered, and to store when it is left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    pub loaded: [bool; FRAME_POINTER as usize],
    pub stored: [bool; FRAME_POINTER as usize],
}

impl Used {
    /// An `exit` hands over r0, whether or not the program names it.
    pub fn by(operations: impl Iterator<Item = Operation>) -> Self {
        let mut used = Self::default();
        used.loaded[0] = true;
        for operation in operations {
            for register in named(&operation).into_iter().flatten() {
                if let Some(loaded) = used.loaded.get_mut(usize::from(register)) {
                    *loaded = true;
                }
            }
            if let Some(stored) = written(&operation).and_then(|to| used.stored.get_mut(usize::from(to))) {
                *stored = true;
            }
        }
        used
    }
}

/// The registers that an instruction names.
const fn named(operation: &Operation) -> [Option<u8>; 2] {
    const fn register(operand: Operand) -> Option<u8> {
        match operand {
            Operand::Register(register) => Some(register),
            Operand::Immediate(_) => None,
        }
    }
    match *operation {
        Operation::Compute { destination, source, .. } => [Some(destination), register(source)],
        Operation::Swap { destination, .. } | Operation::Constant { destination, .. } => {
            [Some(destination), None]
        }
        Operation::Load { destination, base, .. } => [Some(destination), Some(base)],
        Operation::Store { base, source, .. } => [Some(base), register(source)],
        Operation::Jump { condition: Some(condition), .. } => {
            [Some(condition.left), register(condition.right)]
        }
        Operation::Jump { condition: None, .. } | Operation::Call(_) | Operation::Exit => [None, None],
    }
}

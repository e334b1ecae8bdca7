//! Accesses to memory, and the bytes that are compared with a segment.

use crate::frame::fixed_length;
use bareverbs_offload::program::{Operand, Operation, Segment};

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
    /// The access of an instruction.
    pub const fn of(operation: &Operation) -> Option<Self> {
        match *operation {
            Operation::Load { destination, base, offset, bytes } => {
                Some(Self { bytes, base, offset, direction: Direction::Load { destination } })
            }
            Operation::Store { base, offset, bytes, source } => {
                Some(Self { bytes, base, offset, direction: Direction::Store { source } })
            }
            _ => None,
        }
    }

    pub const fn stores(&self) -> bool {
        matches!(self.direction, Direction::Store { .. })
    }
}

/// Most bytes that one comparison covers: the largest constant of twelve bits, which every processor supports.
pub const MAX_SPAN: i32 = 4095;

/// Bytes of a segment, counted from the address in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub segment: Segment,
    pub base: u8,
    pub first: i32,
    /// The byte after the last one.
    pub end: i32,
}

impl Span {
    pub fn of(segment: Segment, access: Access) -> Self {
        let first = access.offset.into();
        Self { segment, base: access.base, first, end: first + i32::from(access.bytes) }
    }

    pub const fn bytes(&self) -> i32 {
        self.end - self.first
    }

    pub fn covers(&self, other: &Self) -> bool {
        self.segment == other.segment && self.first <= other.first && other.end <= self.end
    }

    /// One span over both and the bytes between them, if the segment can be that long and one comparison can cover it; else `self`.
    pub fn with(self, other: Self) -> Self {
        let both = Self { first: self.first.min(other.first), end: self.end.max(other.end), ..self };
        let most = fixed_length(self.segment).map_or(MAX_SPAN, |bytes| bytes as i32);
        if self.segment == other.segment && both.bytes() <= most { both } else { self }
    }
}

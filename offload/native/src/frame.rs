//! What the code works on: the registers, and pointers to the segments, of one step.

use bareverbs_offload::program::{CONTEXT, STACK, STATE, Segment, Segments};
use core::marker::PhantomData;
use core::mem::offset_of;

/// A segment that code finds by its number.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Entry {
    /// Where address zero of a program would be if all addresses were in this segment.
    pub origin: *mut u8,
    pub length: u64,
}

/// Segments have the numbers 1 to 5.
pub const ENTRIES: usize = 5;

/// Its pointers are valid as long as what it was made of is lent to it.
#[repr(C)]
pub struct Frame<'s> {
    pub registers: &'s mut [u64; 16],
    /// The end of the stack.
    stack_end: *mut u8,
    pub segments: [Entry; ENTRIES],
    lent: PhantomData<&'s mut u8>,
}

/// Where code stopped.
#[derive(Debug, Clone, Copy)]
pub struct Stop {
    /// The instruction before which it did.
    pub slot: usize,
    /// Fuel that is left.
    pub fuel: u32,
}

impl Stop {
    /// From what code returns: the slot in the low half, the fuel in the high half.
    pub const fn returned(both: u64) -> Self {
        Self { slot: both as u32 as usize, fuel: (both >> 32) as u32 }
    }
}

/// Offsets that code uses.
pub const REGISTERS: i32 = offset_of!(Frame<'_>, registers) as i32;
pub const STACK_END: i32 = offset_of!(Frame<'_>, stack_end) as i32;
pub const SEGMENTS: i32 = offset_of!(Frame<'_>, segments) as i32;
pub const ORIGIN: i32 = offset_of!(Entry, origin) as i32;
pub const LENGTH: i32 = offset_of!(Entry, length) as i32;
/// An entry has two to the power of this many bytes.
pub const ENTRY_SHIFT: u8 = 4;

const _: () = assert!(size_of::<*mut u8>() != 8 || size_of::<Entry>() == 1 << ENTRY_SHIFT);

/// The index of a segment's entry.
pub const fn index(segment: Segment) -> u8 {
    segment as u8 - 1
}

/// The offset of a segment's entry.
pub const fn entry(segment: Segment) -> i32 {
    SEGMENTS + ((index(segment) as i32) << ENTRY_SHIFT)
}

/// Bytes of a segment that always has the same number of them. The stack has none in code of a program that does not name
/// it; there, no access is guessed to go to it (`Walk::guess`).
pub const fn fixed_length(segment: Segment) -> Option<usize> {
    match segment {
        Segment::Context => Some(CONTEXT),
        Segment::State => Some(STATE),
        Segment::Stack => Some(STACK),
        Segment::Parameters | Segment::Window => None,
    }
}

/// The value of the frame pointer.
pub const STACK_ADDRESS: u64 = Segment::Stack.address() + STACK as u64;

impl<'s> Frame<'s> {
    #[inline]
    pub fn new(registers: &'s mut [u64; 16], segments: Segments<'s>) -> Self {
        let Segments { context, parameters, window, state, stack } = segments;
        // Where there is no stack, no code uses its end.
        let stack: &mut [u8] = stack.map_or(&mut [], |stack| stack);
        let stack_end = stack.as_mut_ptr_range().end;
        // By the numbers of the segments. Code writes to none that is lent for reading.
        let segments = [
            entry_of(Segment::Context, context.as_mut_ptr(), context.len()),
            entry_of(Segment::Parameters, parameters.as_ptr().cast_mut(), parameters.len()),
            entry_of(Segment::Window, window.as_ptr().cast_mut(), window.len()),
            entry_of(Segment::State, state.as_mut_ptr(), state.len()),
            entry_of(Segment::Stack, stack.as_mut_ptr(), stack.len()),
        ];
        Self { registers, stack_end, segments, lent: PhantomData }
    }
}

#[inline]
const fn entry_of(segment: Segment, first: *mut u8, length: usize) -> Entry {
    Entry { origin: first.wrapping_sub(segment.address() as usize), length: length as u64 }
}

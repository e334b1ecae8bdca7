//! What the code works on: pointers to the registers and the segments of one step, its fuel, and where it stopped.

use bareverbs_offload::program::{CONTEXT, STACK, STATE, Segment, Segments};
use core::marker::PhantomData;
use core::mem::offset_of;

/// A segment that code finds by its number.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Entry {
    base: *mut u8,
    /// Bytes that may be read.
    readable: u64,
    /// Bytes that may be written.
    writable: u64,
    reserved: u64,
}

impl Entry {
    const NONE: Self = Self { base: core::ptr::null_mut(), readable: 0, writable: 0, reserved: 0 };
}

/// Segments have the numbers 1 to 5; the other entries have no bytes.
pub const ENTRIES: usize = 8;

/// Its pointers are valid as long as what it was made of is lent to it.
#[repr(C)]
pub struct Frame<'s> {
    registers: *mut u64,
    fuel: u64,
    slot: u64,
    /// The end of the stack.
    stack_end: *mut u8,
    segments: [Entry; ENTRIES],
    lent: PhantomData<&'s mut u8>,
}

/// Offsets that code uses.
pub const REGISTERS: i32 = offset_of!(Frame<'_>, registers) as i32;
pub const FUEL: i32 = offset_of!(Frame<'_>, fuel) as i32;
pub const SLOT: i32 = offset_of!(Frame<'_>, slot) as i32;
pub const STACK_END: i32 = offset_of!(Frame<'_>, stack_end) as i32;
pub const SEGMENTS: i32 = offset_of!(Frame<'_>, segments) as i32;
pub const BASE: i32 = offset_of!(Entry, base) as i32;
pub const READABLE: i32 = offset_of!(Entry, readable) as i32;
pub const WRITABLE: i32 = offset_of!(Entry, writable) as i32;
/// An entry has two to the power of this many bytes.
pub const ENTRY_SHIFT: u8 = 5;

const _: () = assert!(size_of::<Entry>() == 1 << ENTRY_SHIFT);

/// The offset of a segment's entry.
pub const fn entry(segment: Segment) -> i32 {
    SEGMENTS + ((segment as i32) << ENTRY_SHIFT)
}

/// Bytes of a segment that always has the same number of them.
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
    pub fn new(registers: &'s mut [u64; 16], segments: Segments<'s>, fuel: u32) -> Self {
        let Segments { context, parameters, window, state, stack } = segments;
        let mut entries = [Entry::NONE; ENTRIES];
        entries[Segment::Context as usize] = writable(context);
        entries[Segment::Parameters as usize] = readable(parameters);
        entries[Segment::Window as usize] = readable(window);
        entries[Segment::State as usize] = writable(state);
        let stack_end = stack.as_mut_ptr_range().end;
        entries[Segment::Stack as usize] = writable(stack);
        Self {
            registers: registers.as_mut_ptr(),
            fuel: fuel.into(),
            slot: 0,
            stack_end,
            segments: entries,
            lent: PhantomData,
        }
    }

    /// The instruction before which the code stopped.
    pub const fn slot(&self) -> usize {
        self.slot as usize
    }

    /// Fuel that is left.
    pub const fn fuel(&self) -> u32 {
        self.fuel as u32
    }
}

fn writable(bytes: &mut [u8]) -> Entry {
    let length = bytes.len() as u64;
    Entry { base: bytes.as_mut_ptr(), readable: length, writable: length, reserved: 0 }
}

/// Code never writes where nothing is writable.
fn readable(bytes: &[u8]) -> Entry {
    Entry { base: bytes.as_ptr().cast_mut(), readable: bytes.len() as u64, ..Entry::NONE }
}

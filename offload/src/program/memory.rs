//! The memory of one step: five segments. The high half of an address names the segment, the low half is the
//! offset in it.
//!
//! | segment | content | bytes | writable |
//! |--:|---|--:|---|
//! | 1 | the context: what happened, and what the program asks for | 104 | yes |
//! | 2 | the parameters of the request | at most 448 | no |
//! | 3 | the window: what was read last, or the payload | as requested | no |
//! | 4 | the state, kept from step to step | 160 | yes |
//! | 5 | the stack, zero at the start of each step | 256 | yes |
//!
//! A program that does not name the frame pointer could make an address of the stack, but none does. So an engine gets no stack
//! for it, and stops before an access to one; then the interpreter [makes it](Memory::with_stack).

use super::fault::Fault;
use super::limits::{STACK, STATE};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A segment of a program's memory, by its number in an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Segment {
    /// What happened, and what the program asks for.
    Context = 1,
    /// The parameters of the request.
    Parameters = 2,
    /// What was read last, or the payload.
    Window = 3,
    /// What is kept from step to step.
    State = 4,
    /// Zero at the start of each step.
    Stack = 5,
}

impl Segment {
    /// The address of its first byte.
    ///
    /// ```
    /// use bareverbs_offload::program::Segment;
    ///
    /// assert_eq!(Segment::State.address(), 4 << 32);
    /// ```
    pub const fn address(self) -> u64 {
        (self as u64) << 32
    }

    /// The segment to the beginning of which the context has a pointer at an offset, unless the program has changed it.
    ///
    /// ```
    /// use bareverbs_offload::program::Segment;
    ///
    /// assert_eq!(Segment::pointed_to_at(8), Some(Segment::State));
    /// assert_eq!(Segment::pointed_to_at(9), None);
    /// ```
    pub const fn pointed_to_at(offset: usize) -> Option<Self> {
        match offset {
            PARAMETERS_POINTER => Some(Self::Parameters),
            STATE_POINTER => Some(Self::State),
            WINDOW_POINTER => Some(Self::Window),
            _ => None,
        }
    }

    const fn of(address: u64) -> Option<Self> {
        match address >> 32 {
            1 => Some(Self::Context),
            2 => Some(Self::Parameters),
            3 => Some(Self::Window),
            4 => Some(Self::State),
            5 => Some(Self::Stack),
            _ => None,
        }
    }
}

/// `struct bareverbs_context` of a program in C: what register r1 points to.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Context {
    parameters: U64,
    state: U64,
    window: U64,
    parameters_length: U32,
    window_length: U32,
    window_offset: U64,
    event: U32,
    step: U32,
    pub(super) offset: U64,
    pub(super) version: U64,
    pub(super) length: U32,
    pub(super) status: U32,
    found: U64,
    pub(super) expected: U64,
    pub(super) desired: U64,
    pub(super) from: U32,
    reserved: U32,
}

/// Bytes of the context.
pub const CONTEXT: usize = size_of::<Context>();
/// Where the context has its pointers.
const PARAMETERS_POINTER: usize = core::mem::offset_of!(Context, parameters);
const STATE_POINTER: usize = core::mem::offset_of!(Context, state);
const WINDOW_POINTER: usize = core::mem::offset_of!(Context, window);

/// The inputs of a step.
pub(super) struct Entry<'a> {
    pub(super) event: u32,
    pub(super) step: u32,
    pub(super) parameters: &'a [u8],
    pub(super) window: &'a [u8],
    /// The offset of the window in the region.
    pub(super) window_offset: u64,
    /// The word that a compare-and-swap found.
    pub(super) found: u64,
}

/// The bytes of the segments. Programs may write those that are lent for writing.
#[derive(Debug)]
pub struct Segments<'s> {
    /// [`Segment::Context`].
    pub context: &'s mut [u8; CONTEXT],
    /// [`Segment::Parameters`].
    pub parameters: &'s [u8],
    /// [`Segment::Window`].
    pub window: &'s [u8],
    /// [`Segment::State`].
    pub state: &'s mut [u8; STATE],
    /// [`Segment::Stack`], if the program [names it](super::Program::names_stack).
    pub stack: Option<&'s mut [u8; STACK]>,
}

pub(super) struct Memory<'a> {
    context: Context,
    parameters: &'a [u8],
    window: &'a [u8],
    state: &'a mut [u8; STATE],
    stack: Option<&'a mut [u8; STACK]>,
}

impl<'a> Memory<'a> {
    pub(super) const CONTEXT_ADDRESS: u64 = Segment::Context.address();
    pub(super) const STACK_END: u64 = Segment::Stack.address() + STACK as u64;

    #[inline]
    pub(super) fn new(
        entry: &Entry<'a>,
        state: &'a mut [u8; STATE],
        stack: Option<&'a mut [u8; STACK]>,
    ) -> Self {
        let context = Context {
            parameters: Segment::Parameters.address().into(),
            state: Segment::State.address().into(),
            window: Segment::Window.address().into(),
            parameters_length: (entry.parameters.len() as u32).into(),
            window_length: (entry.window.len() as u32).into(),
            window_offset: entry.window_offset.into(),
            event: entry.event.into(),
            step: entry.step.into(),
            offset: U64::ZERO,
            version: U64::ZERO,
            length: U32::ZERO,
            status: U32::ZERO,
            found: entry.found.into(),
            expected: U64::ZERO,
            desired: U64::ZERO,
            from: U32::ZERO,
            reserved: U32::ZERO,
        };
        Self { context, parameters: entry.parameters, window: entry.window, state, stack }
    }

    pub(super) const fn context(&self) -> &Context {
        &self.context
    }

    /// Runs with a stack. An engine that had none has not written to it, so it is zero.
    #[inline]
    pub(super) fn with_stack<R>(&mut self, run: impl FnOnce(&mut Memory<'_>) -> R) -> R {
        if self.stack.is_some() { run(self) } else { self.with_new_stack(run) }
    }

    #[inline(never)]
    fn with_new_stack<R>(&mut self, run: impl FnOnce(&mut Memory<'_>) -> R) -> R {
        let Self { context, parameters, window, state, .. } = self;
        let mut stack = [0; STACK];
        let mut whole = Memory { context: *context, parameters, window, state, stack: Some(&mut stack) };
        let result = run(&mut whole);
        *context = whole.context;
        result
    }

    /// The segments, for an engine.
    #[inline]
    pub(super) fn segments(&mut self) -> Segments<'_> {
        let Self { context, parameters, window, state, stack } = self;
        let stack = stack.as_deref_mut();
        Segments { context: zerocopy::transmute_mut!(context), parameters, window, state, stack }
    }

    #[inline]
    fn segment(&self, segment: Segment) -> &[u8] {
        match segment {
            Segment::Context => self.context.as_bytes(),
            Segment::Parameters => self.parameters,
            Segment::Window => self.window,
            Segment::State => self.state.as_slice(),
            // One that was not made yet is zero.
            Segment::Stack => self.stack.as_deref().unwrap_or(&[0; STACK]),
        }
    }

    /// The bytes of a segment that programs may write.
    #[inline]
    fn writable(&mut self, segment: Segment) -> &mut [u8] {
        match segment {
            Segment::Context => self.context.as_mut_bytes(),
            Segment::State => self.state,
            Segment::Stack => self.stack.as_deref_mut().map_or(&mut [], |stack| stack),
            Segment::Parameters | Segment::Window => &mut [],
        }
    }

    /// Loads from a segment; `None` if the bytes at the address are not all in it.
    #[inline(always)]
    pub(super) fn load_from<const BYTES: usize>(
        &self,
        segment: Segment,
        address: u64,
    ) -> Option<[u8; BYTES]> {
        let bytes = self.segment(segment);
        let from = place_of::<BYTES>(bytes, segment, address)?;
        bytes.get(from..)?.first_chunk().copied()
    }

    /// Stores to a segment; `false` if the bytes at the address are not all in it, or may not be written.
    #[inline(always)]
    pub(super) fn store_to<const BYTES: usize>(
        &mut self,
        segment: Segment,
        address: u64,
        value: [u8; BYTES],
    ) -> bool {
        let bytes = self.writable(segment);
        let Some(from) = place_of::<BYTES>(bytes, segment, address) else { return false };
        let Some(place) = bytes.get_mut(from..).and_then(|rest| rest.first_chunk_mut()) else { return false };
        *place = value;
        true
    }

    /// Loads from the segment that the address names; `None` as for [`Memory::load_from`].
    #[inline(never)]
    pub(super) fn load_anywhere<const BYTES: usize>(&self, address: u64) -> Option<[u8; BYTES]> {
        self.load_from(Segment::of(address)?, address)
    }

    /// Stores to the segment that the address names; `false` as for [`Memory::store_to`].
    #[inline(never)]
    pub(super) fn store_anywhere<const BYTES: usize>(&mut self, address: u64, value: [u8; BYTES]) -> bool {
        Segment::of(address).is_some_and(|segment| self.store_to(segment, address, value))
    }

    /// Loads on behalf of an instruction.
    pub(super) fn load<const BYTES: usize>(&self, at: usize, address: u64) -> Result<[u8; BYTES], Fault> {
        self.load_anywhere(address).ok_or_else(|| outside(BYTES, at, address, false))
    }

    /// Stores on behalf of an instruction.
    pub(super) fn store<const BYTES: usize>(
        &mut self,
        at: usize,
        address: u64,
        value: [u8; BYTES],
    ) -> Result<(), Fault> {
        if self.store_anywhere(address, value) { Ok(()) } else { Err(outside(BYTES, at, address, true)) }
    }

    /// A range for a helper; `None` if it is not all in the segment that the address names.
    #[inline]
    pub(super) fn range(&self, address: u64, bytes: u32) -> Option<&[u8]> {
        let segment = self.segment(Segment::of(address)?);
        segment.get(address as u32 as usize..)?.get(..bytes as usize)
    }
}

/// Where an address is in the bytes of a segment, if the segment has so many bytes from there on.
#[inline(always)]
const fn place_of<const BYTES: usize>(bytes: &[u8], segment: Segment, address: u64) -> Option<usize> {
    let from = address.wrapping_sub(segment.address());
    match bytes.len().checked_sub(BYTES) {
        Some(last) if from <= last as u64 => Some(from as usize),
        _ => None,
    }
}

/// The fault of an instruction that accesses memory which the program does not have.
#[cold]
pub(super) const fn outside(bytes: usize, instruction: usize, address: u64, write: bool) -> Fault {
    Fault::Outside { instruction, address, bytes: bytes as u32, write }
}

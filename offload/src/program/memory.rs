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

use super::fault::Fault;
use super::limits::{STACK, STATE};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const CONTEXT_SEGMENT: u64 = 1;
const PARAMETERS_SEGMENT: u64 = 2;
const WINDOW_SEGMENT: u64 = 3;
const STATE_SEGMENT: u64 = 4;
const STACK_SEGMENT: u64 = 5;

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
pub(super) const CONTEXT: usize = size_of::<Context>();

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

pub(super) struct Memory<'a> {
    context: [u8; CONTEXT],
    parameters: &'a [u8],
    window: &'a [u8],
    state: &'a mut [u8; STATE],
    stack: [u8; STACK],
}

impl<'a> Memory<'a> {
    pub(super) const CONTEXT_ADDRESS: u64 = CONTEXT_SEGMENT << 32;
    pub(super) const STACK_END: u64 = (STACK_SEGMENT << 32) + STACK as u64;

    pub(super) fn new(entry: &Entry<'a>, state: &'a mut [u8; STATE]) -> Self {
        let context = Context {
            parameters: (PARAMETERS_SEGMENT << 32).into(),
            state: (STATE_SEGMENT << 32).into(),
            window: (WINDOW_SEGMENT << 32).into(),
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
        Self {
            context: zerocopy::transmute!(context),
            parameters: entry.parameters,
            window: entry.window,
            state,
            stack: [0; STACK],
        }
    }

    pub(super) const fn context(&self) -> Context {
        zerocopy::transmute!(self.context)
    }

    #[inline]
    fn segment(&self, address: u64) -> Option<&[u8]> {
        match address >> 32 {
            CONTEXT_SEGMENT => Some(&self.context),
            PARAMETERS_SEGMENT => Some(self.parameters),
            WINDOW_SEGMENT => Some(self.window),
            STATE_SEGMENT => Some(self.state.as_slice()),
            STACK_SEGMENT => Some(&self.stack),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn load<const BYTES: usize>(&self, at: usize, address: u64) -> Result<[u8; BYTES], Fault> {
        let from = address as u32 as usize;
        let found = self.segment(address).and_then(|segment| segment.get(from..)?.first_chunk());
        found.copied().ok_or(Fault::Outside { instruction: at, address, bytes: BYTES as u32, write: false })
    }

    #[inline]
    pub(super) fn store<const BYTES: usize>(
        &mut self,
        at: usize,
        address: u64,
        value: [u8; BYTES],
    ) -> Result<(), Fault> {
        let segment: &mut [u8] = match address >> 32 {
            CONTEXT_SEGMENT => &mut self.context,
            STATE_SEGMENT => self.state,
            STACK_SEGMENT => &mut self.stack,
            _ => &mut [],
        };
        let from = address as u32 as usize;
        match segment.get_mut(from..).and_then(|rest| rest.first_chunk_mut()) {
            Some(place) => {
                *place = value;
                Ok(())
            }
            None => Err(Fault::Outside { instruction: at, address, bytes: BYTES as u32, write: true }),
        }
    }

    /// A range for a helper.
    pub(super) fn range(&self, at: usize, address: u64, bytes: u32) -> Result<&[u8], Fault> {
        let from = address as u32 as usize;
        let found = self.segment(address).and_then(|segment| segment.get(from..)?.get(..bytes as usize));
        found.ok_or(Fault::Outside { instruction: at, address, bytes, write: false })
    }
}

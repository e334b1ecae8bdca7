//! What a program that is deployed to a bareverbs DPU sees, for programs in Rust; `bareverbs.h` is the same for C.
//! `docs/offload.md` has the build line.
//!
//! A program is one function, called once a step: `extern "C" fn step(context: &mut Context) -> u64`. It cannot call
//! others, and a panic is a call: everything here is inlined, and checks nothing that the runtime checks anyway.
#![allow(dead_code, reason = "no program needs all of it")]

/// What happened.
pub const EVENT_START: u32 = 0;
pub const EVENT_FETCHED: u32 = 1;
pub const EVENT_PAYLOAD: u32 = 2;
pub const EVENT_WRITTEN: u32 = 3;
pub const EVENT_COMPARED: u32 = 4;

/// The end, with `status`.
pub const DONE: u64 = 0;
/// Read `length` bytes at `offset` of the region.
pub const FETCH: u64 = 1;
/// The same, because what was read cannot be trusted; `status` if no retry is left.
pub const REFETCH: u64 = 2;
/// Answer with `length` bytes at `offset` of the window.
pub const EMIT: u64 = 3;
/// Answer with `length` bytes at `offset` of the state.
pub const REPLY: u64 = 4;
/// Hand over the payload of the request.
pub const AWAIT_PAYLOAD: u64 = 5;
/// Write `length` bytes of the state, from its byte `from` on, at `offset` of the region.
pub const WRITE: u64 = 6;
/// Put `desired` in the place of the word at `offset` of the region if it is `expected`.
pub const COMPARE_AND_SWAP: u64 = 7;

pub const STATUS_OK: u32 = 0;
pub const STATUS_NOT_FOUND: u32 = 1;
pub const STATUS_BAD_PARAMETERS: u32 = 3;
pub const STATUS_OUT_OF_BOUNDS: u32 = 4;
pub const STATUS_INCONSISTENT: u32 = 8;
pub const STATUS_BUSY: u32 = 9;
pub const STATUS_READ_ONLY: u32 = 19;
pub const STATUS_NO_ATOMICS: u32 = 20;

/// Words of the state.
pub const WORDS: usize = 20;

#[repr(C)]
pub struct Context {
    parameters: *const u8,
    state: *mut [u64; WORDS],
    window: *const u8,
    pub parameters_length: u32,
    pub window_length: u32,
    /// Where the window lies in the region.
    pub window_offset: u64,
    pub event: u32,
    pub step: u32,
    // What the program says besides the verb:
    pub offset: u64,
    pub version: u64,
    pub length: u32,
    pub status: u32,
    /// `EVENT_COMPARED`: the word that was there; it was swapped if it is the expected one.
    pub found: u64,
    pub expected: u64,
    pub desired: u64,
    pub from: u32,
    reserved: u32,
}

/// Bytes that begin at a multiple of 8. The runtime checks each access, and ends the program if it leaves them.
#[derive(Clone, Copy)]
pub struct Bytes(*const u8);

impl Bytes {
    /// The number at this offset, which is a multiple of its size.
    #[inline(always)]
    pub fn be16(self, at: u64) -> u64 {
        // SAFETY: the runtime checks the access.
        u64::from(u16::from_be(unsafe { self.from(at).0.cast::<u16>().read() }))
    }
    #[inline(always)]
    pub fn be32(self, at: u64) -> u32 {
        // SAFETY: the runtime checks the access.
        u32::from_be(unsafe { self.from(at).0.cast::<u32>().read() })
    }
    #[inline(always)]
    pub fn be64(self, at: u64) -> u64 {
        // SAFETY: the runtime checks the access.
        u64::from_be(unsafe { self.from(at).0.cast::<u64>().read() })
    }
    /// The bytes from this offset on.
    #[inline(always)]
    pub fn from(self, at: u64) -> Self {
        Self(self.0.wrapping_add(at as usize))
    }
}

impl Context {
    #[inline(always)]
    pub fn parameters(&self) -> Bytes {
        Bytes(self.parameters)
    }
    /// What was read last, or the payload.
    #[inline(always)]
    pub fn window(&self) -> Bytes {
        Bytes(self.window)
    }
    /// The state, which is zero at the start and kept from step to step.
    #[inline(always)]
    pub fn state(&mut self) -> &mut [u64; WORDS] {
        // SAFETY: the state is there whole in each step, and nothing else refers to it.
        unsafe { &mut *self.state }
    }
    #[inline(always)]
    pub fn done(&mut self, status: u32) -> u64 {
        self.status = status;
        DONE
    }
    #[inline(always)]
    pub fn fetch(&mut self, offset: u64, length: u32) -> u64 {
        (self.offset, self.length) = (offset, length);
        FETCH
    }
    /// Writes bytes of the state. The region has to be granted for writing.
    #[inline(always)]
    pub fn write_state(&mut self, offset: u64, from: u32, length: u32) -> u64 {
        (self.offset, self.from, self.length) = (offset, from, length);
        WRITE
    }
    /// The word is big-endian in memory, and its address a multiple of 8; the numbers here are plain.
    #[inline(always)]
    pub fn compare_and_swap(&mut self, offset: u64, expected: u64, desired: u64) -> u64 {
        (self.offset, self.expected, self.desired) = (offset, expected, desired);
        COMPARE_AND_SWAP
    }
}

/// Helpers have numbers instead of addresses. Each takes one unit of fuel for 16 bytes.
#[inline(always)]
pub fn crc32c(bytes: Bytes, length: u64) -> u32 {
    // SAFETY: a call of this address is the helper's.
    let helper: extern "C" fn(*const u8, u64) -> u64 = unsafe { core::mem::transmute(1_usize) };
    helper(bytes.0, length) as u32
}

#[inline(always)]
pub fn crc64(bytes: Bytes, length: u64) -> u64 {
    // SAFETY: as above.
    let helper: extern "C" fn(*const u8, u64) -> u64 = unsafe { core::mem::transmute(2_usize) };
    helper(bytes.0, length)
}

#[inline(always)]
pub fn key_eq(one: Bytes, other: Bytes, length: u64) -> bool {
    // SAFETY: as above.
    let helper: extern "C" fn(*const u8, *const u8, u64) -> u64 = unsafe { core::mem::transmute(3_usize) };
    helper(one.0, other.0, length) != 0
}

#![doc = include_str!("../README.md")]
//!
//! **What this is.** Translation of verified programs (`bareverbs_offload::program`) to machine code of x86-64 and aarch64,
//! instruction by instruction: ten of the eleven registers are registers of the processor for a whole step, and the last
//! one, the frame pointer, is a constant.
//!
//! **What it may not do.** Decide what a program means. Code stops before an instruction that would fail, or for which the
//! fuel may not last; the interpreter of `bareverbs-offload` goes on there and finds the fault. Each access to memory
//! is checked by the code: alone, together with others that have the same base, or by a comparison of the base with the
//! address of its segment. Only the stack relative to the frame pointer was checked by the verifier.
//!
//! **Where to read first.** `translate` walks over a program, `x86_64` and `aarch64` write what an instruction is on a
//! processor, `frame` is what code works on, and `memory` is the only file with `unsafe`.

#![deny(unsafe_code)]

mod aarch64;
mod access;
mod buffer;
mod frame;
mod known;
#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[allow(unsafe_code, reason = "code is called")]
mod memory;
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod no_memory;
mod operations;
mod operators;
mod pointers;
mod program;
mod translate;
mod x86_64;

pub use program::{MachineCode, NativeProgram, Processor, TranslateError};
pub use translate::Translation;

//! What a program may have and use up.

/// Most instructions of a program, in slots of 8 bytes.
pub const MAX_INSTRUCTIONS: usize = 512;
/// Bytes that a program keeps from step to step.
pub const STATE: usize = 160;
/// Bytes of stack.
pub const STACK: usize = 256;

/// What a program may use up. An instruction takes one unit, a helper one more for each [`BYTES_PER_FUEL`](super::BYTES_PER_FUEL) bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fuel {
    /// In one step.
    pub step: u32,
    /// In one invocation.
    pub invocation: u32,
}

impl Default for Fuel {
    /// 512 a step, 16,384 an invocation.
    fn default() -> Self {
        Self { step: 512, invocation: 16 * 1024 }
    }
}

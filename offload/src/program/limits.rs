//! The resources of a program.

/// Most instructions of a program, in slots of 8 bytes.
pub const MAX_INSTRUCTIONS: usize = 512;
/// Bytes that a program keeps from step to step.
pub const STATE: usize = 160;
/// Bytes of stack.
pub const STACK: usize = 256;

/// The fuel of a program. An instruction takes one unit, a helper one more for each
/// [`BYTES_PER_FUEL`](super::BYTES_PER_FUEL) bytes.
///
/// ```
/// use bareverbs_offload::kernels::BuiltInKernels;
/// use bareverbs_offload::program::{Fuel, WithPrograms};
///
/// // Programs that compute more than they read.
/// let fuel = Fuel { step: 4096, ..Fuel::default() };
/// let deployment: WithPrograms<BuiltInKernels, 4> = WithPrograms::new(fuel);
/// # let _ = deployment;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fuel {
    /// For one step.
    pub step: u32,
    /// For one invocation.
    pub invocation: u32,
}

impl Default for Fuel {
    /// 512 per step, 16,384 per invocation.
    fn default() -> Self {
        Self { step: 512, invocation: 16 * 1024 }
    }
}

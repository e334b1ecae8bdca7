//! What running a kernel costs in time, where time is virtual.
//!
//! On silicon the costs are zero here and real elsewhere. In a simulated world they are what separates a kernel on Arm
//! cores from one in the NIC; a runtime charges them by not being ready before a step was paid for.

use bareverbs_prm::time::Duration;

/// Costs that a runtime charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelCost {
    /// From the arrival of a request to its first DMA.
    pub dispatch: Duration,
    /// For each DMA, on top of what the DMA engine itself takes.
    pub per_dma: Duration,
    /// For each unit of fuel of a program: an instruction, or 16 bytes of a checksum.
    pub per_fuel: Duration,
}

impl KernelCost {
    /// Nothing is charged: the costs are real.
    pub const FREE: Self =
        Self { dispatch: Duration::ZERO, per_dma: Duration::ZERO, per_fuel: Duration::ZERO };
}

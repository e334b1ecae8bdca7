//! The virtual time that running a kernel costs.
//!
//! On real hardware these costs are zero, since time passes by itself. In a simulated world they are the difference
//! between a kernel on Arm cores and one in the NIC. A runtime charges them by not being ready until a step is paid
//! for.

use bareverbs_prm::time::Duration;

/// Costs that a runtime charges.
///
/// ```
/// use bareverbs_offload::cost::KernelCost;
/// use bareverbs_prm::time::Duration;
///
/// // One core that needs 2 µs for each element that it reads.
/// let cost = KernelCost { per_dma: Duration::from_micros(2), one_core: true, ..KernelCost::FREE };
/// assert_eq!(cost.dispatch, Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelCost {
    /// From the arrival of a request to its first DMA.
    pub dispatch: Duration,
    /// For each DMA, on top of what the DMA engine itself takes.
    pub per_dma: Duration,
    /// For each unit of a program's fuel: one instruction, or 16 bytes of a checksum.
    pub per_fuel: Duration,
    /// Whether all invocations share one core: the charges of one wait for those of the others, in the order in which
    /// they become due. A DMA in flight occupies nothing. Otherwise charges overlap.
    pub one_core: bool,
}

impl KernelCost {
    /// Charges nothing: the costs are real.
    pub const FREE: Self =
        Self { dispatch: Duration::ZERO, per_dma: Duration::ZERO, per_fuel: Duration::ZERO, one_core: false };
}

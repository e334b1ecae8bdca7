//! How much a NIC runs at a time.

use bareverbs_offload::kernel::CompiledIn;
use bareverbs_offload::runtime::Runtime;

/// Invocations that a NIC runs at a time.
pub const NIC_SLOTS: usize = 64;
/// Connections that may call kernels in a NIC.
pub const NIC_CONNECTIONS: usize = 16;

/// The runtime of a NIC.
pub type NicRuntime<S> = Runtime<CompiledIn<S>, NIC_SLOTS, NIC_CONNECTIONS>;

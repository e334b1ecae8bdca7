//! What a first program names.
//!
//! Nothing here has a name that the standard library uses for something else in its own prelude, or that a program commonly
//! imports beside it: the service type `Rc` is not here. [`Duration`] and [`Time`] are those of the device's clock; a
//! program that wants `std::time::Duration` imports it by name, which goes before a prelude.

pub use bareverbs_core::hal::Hal;
pub use bareverbs_core::{
    AccessFlags, AddressHandle, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig,
    GidEntry, MemoryRegion, PreparedQueuePair, ProtectionDomain, QueuePair, QueuePairBuilder, ReceiveRequest,
    RemoteEndpoint, RemoteSlice, SharedReceiveQueue, WorkCompletion, WorkCompletionOpcode,
    WorkCompletionStatus, WorkRequest,
};
pub use bareverbs_prm::ids::{Gid, MacAddress};
pub use bareverbs_prm::time::{Duration, Time};

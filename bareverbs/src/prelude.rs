//! The names that most programs start with.
//!
//! No name here collides with the standard prelude or with common imports; that is why the service type `Rc` is
//! missing. [`Duration`] and [`Time`] are those of the device's clock. A program that wants `std::time::Duration`
//! imports it by name, which takes precedence over a glob import.

pub use bareverbs_core::hal::Hal;
pub use bareverbs_core::{
    AccessFlags, AddressHandle, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig,
    GidEntry, MemoryRegion, PreparedQueuePair, ProtectionDomain, QueuePair, QueuePairBuilder, ReceiveRequest,
    RemoteEndpoint, RemoteSlice, SharedReceiveQueue, WorkCompletion, WorkCompletionOpcode,
    WorkCompletionStatus, WorkRequest,
};
pub use bareverbs_prm::ids::{Gid, MacAddress};
pub use bareverbs_prm::time::{Duration, Time};

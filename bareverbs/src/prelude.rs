//! The names that most programs start with.
//!
//! No name here collides with the standard prelude or with common imports. That is why two names are missing: the
//! service type [`Rc`](bareverbs_core::Rc) and [`Duration`](bareverbs_prm::time::Duration), the span of time of the
//! device's clock. [`Time`] is a point on that clock.

pub use bareverbs_core::hal::Hal;
pub use bareverbs_core::{
    AccessFlags, AddressHandle, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig,
    GidEntry, MemoryRegion, PreparedQueuePair, ProtectionDomain, QueuePair, QueuePairBuilder, ReceiveRequest,
    RemoteEndpoint, RemoteSlice, SharedReceiveQueue, WorkCompletion, WorkCompletionOpcode,
    WorkCompletionStatus, WorkRequest,
};
pub use bareverbs_prm::ids::{Gid, MacAddress};
pub use bareverbs_prm::time::Time;

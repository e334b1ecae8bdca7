//! The network between devices: links, queues, switches, faults, captures.
//!
//! **What this is.** Serialization and propagation delays, bounded egress queues, one switch for Ethernet and
//! InfiniBand, faults, and captures. Everything takes the time as an argument and returns times; [`crate::run::World`]
//! owns the events.
//!
//! **What it may not do.** It reads only the headers needed to forward a frame or to match it in a fault script, and
//! changes no byte unless a fault says so. A switch also sets congestion marks and records the return path of directed
//! routes.

pub mod capture;
pub mod fault;
pub mod frame;
pub mod link;
mod marking;
mod port_set;
pub mod queue;
pub mod subnet;
pub mod switch;
pub mod topology;

pub use capture::{Capture, CaptureError, Clock, Direction, LinkType};
pub use fault::{Action, Chance, Fate, FaultId, RandomFaults, ScriptedFault, Trigger, UnfiredFault};
pub use frame::{FrameId, FramePool};
pub use link::LinkConfig;
pub(crate) use marking::mark_congestion;
pub use port_set::PortSet;
pub use subnet::{MANAGER_LID, Member, PartitionFileError, Partitions, SubnetConfig, SubnetSwitchConfig};
pub use switch::{Egress, Switch, SwitchConfig, SwitchCounters};

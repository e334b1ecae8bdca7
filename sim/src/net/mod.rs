//! Links, queues, switches, faults, captures: what lies between two devices.
//!
//! **What this is.** The arithmetic of serialisation and propagation, bounded egress queues, one switch for Ethernet and
//! InfiniBand, faults on the way and a record of what passed. Everything is told the time and gives back times;
//! [`crate::run::World`] owns the events between them.
//!
//! **What it may not do.** It never looks behind the headers that it needs to forward a frame or to name it in a fault
//! script, and it changes no byte unless a fault says so.

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

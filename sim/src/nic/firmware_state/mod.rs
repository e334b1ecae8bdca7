//! The state of the firmware besides the objects: how far the device is up, its capabilities, and the pages
//! lent by the host.
//!
//! **What it may not do.** It executes no command and touches no object of the device: `firmware` does.

mod capabilities;
mod cleared_counters;
mod ethernet_capabilities;
pub(super) mod limits;
mod pages;
mod pending_command;
mod port_agents;
mod system;

pub(super) use capabilities::PAGE;
pub(super) use cleared_counters::{COUNTER_SET, COUNTERS, ClearedCounters, CounterValues};
pub(super) use pending_command::{CommandInput, MailboxChain, PendingCommand};
pub(super) use port_agents::ARBITRATION_ENTRIES;
pub(super) use system::{Firmware, SystemState};

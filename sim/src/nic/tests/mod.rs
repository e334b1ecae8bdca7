//! The device driven by hand: commands as bytes in a queue, work requests as bytes in rings, frames delivered
//! by the test.
//!
//! [`host`] is memory and the command queue, [`verbs`] creates objects and posts work, [`pair`] is two
//! devices and a cable. Nothing here uses the bareverbs driver.

mod card;
mod commands;
mod completion;
mod counters;
mod data;
mod delivery;
mod destroy;
mod errors;
mod ethernet;
mod ethernet_errors;
mod events;
mod fast_registration;
mod flow_control;
mod host;
mod infiniband;
mod management;
mod pacing;
mod pair;
mod port_registers;
mod properties;
mod registers;
mod rpc;
mod states;
mod subnet;
mod turns;
mod umem;
mod umr;
mod verbs;
mod vlan;

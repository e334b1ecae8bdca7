//! The device driven by hand: commands as bytes in a queue, work requests as bytes in rings, frames carried by hand.
//!
//! [`host`] is memory and the command queue, [`verbs`] makes objects and posts work, [`pair`] is two devices with a
//! cable. Nothing here knows the driver of this house.

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

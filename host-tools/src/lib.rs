//! # bareverbs-tools: what the `bareverbs` command does
//!
//! **What this is.** One module a subcommand, so that tests can call them; and [`glue`], which puts kernels into the
//! simulator; [`place`], which opens the device that a command line names; and [`output`].
//!
//! **What it may not do.** Nothing that matters to a packet or a byte: that is in the crates below. Standard output is for
//! results alone; progress and complaints go to standard error.
//!
//! **Where to read first.** [`demo`], [`serve`], [`run`], [`devinfo`], [`gids`], [`perf`], [`ping`], [`ipoib`], [`kernel`], [`dpu`], [`doctor`], [`monitor`], [`link_type`], [`vfio`],
//! [`explain`], [`report`], [`offload_figures`], [`advise`].
#![forbid(unsafe_code)]

pub mod advise;
pub mod counters;
pub mod demo;
pub mod devinfo;
pub mod doctor;
pub mod dpu;
pub mod explain;
mod general_services;
pub mod gids;
pub mod glue;
pub mod inject;
pub mod ipoib;
pub mod kernel;
pub mod link_type;
pub mod manual;
pub mod monitor;
mod network;
pub mod offload_figures;
pub mod output;
mod outside_wire;
pub mod perf;
pub mod ping;
pub mod place;
mod port_address;
mod program_object;
mod rdma_cm;
pub mod report;
pub mod run;
mod seat;
pub mod serve;
pub mod traffic;
pub mod vfio;

/// Why a subcommand could not be carried out.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for cannot be: exit status 2.
    Input(anyhow::Error),
    /// It went wrong on the way: exit status 1.
    Run(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Run(error)
    }
}

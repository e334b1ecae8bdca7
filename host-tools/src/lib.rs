//! # bareverbs-tools: the implementation of the `bareverbs` command
//!
//! **What this is.** One module per subcommand, so that tests can call them; [`glue`], which connects kernels to the
//! simulator; [`place`], which opens the device named on the command line; and [`output`].
//!
//! **What it may not do.** It decides nothing about packets or bytes: the crates below do. Standard output only gets
//! results; progress and complaints go to standard error.
//!
//! **Where to read first.** [`demo`], [`serve`], [`run`], [`devinfo`], [`gids`], [`perf`], [`ping`], [`ipoib`], [`kernel`], [`dpu`], [`doctor`], [`monitor`], [`link_type`], [`vfio`],
//! [`explain`], [`report`], [`offload_figures`], [`advise`], [`advise_check`].
#![forbid(unsafe_code)]

pub mod advise;
pub mod advise_check;
mod any_place;
pub mod counters;
mod datagram_queue;
pub mod demo;
pub mod devinfo;
pub mod doctor;
pub mod dpu;
pub mod explain;
mod general_services;
pub mod gids;
pub mod glue;
pub mod inject;
mod input_file;
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
#[cfg(test)]
mod test_arguments;
pub mod traffic;
pub mod vfio;

/// Why a subcommand failed.
#[derive(Debug)]
pub enum Failure {
    /// The request is invalid: exit status 2.
    Input(anyhow::Error),
    /// It failed while running: exit status 1.
    Run(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Run(error)
    }
}

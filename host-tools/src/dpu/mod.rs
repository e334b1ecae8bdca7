//! `bareverbs dpu`: kernels near data as a service for authorized tenants, and a client that looks up keys in it.
//!
//! * Said beforehand: `config` is the file of the service, `key_file` a key, `tenant` who may do what, `offer` what both ends tell each other.
//! * The service: `serve` starts, reloads and ends it, `listener` meets callers over TCP in threads of their own, `service` is the one thread that owns the device,
//!   `served_table` the memory that is looked up in, `figures` its OpenMetrics.
//! * A client: `client` connects as a tenant, `get` looks keys up and compares the ways.
//!
//! **What it may not do.** Read another host's memory: the table is in the service's own memory. `docs/dpu.md` explains
//! what that leaves out.

pub(crate) mod client;
mod config;
mod figures;
mod get;
mod key_file;
mod listener;
pub(crate) mod offer;
pub(crate) mod opcode;
mod serve;
mod served_table;
mod service;
mod tenant;

use crate::Failure;
use clap::{Args, Subcommand};

/// Arguments of `bareverbs dpu`.
#[derive(Debug, Clone, Args)]
pub struct DpuArguments {
    #[command(subcommand)]
    action: DpuAction,
}

#[derive(Debug, Clone, Subcommand)]
enum DpuAction {
    /// Serve a table to authenticated tenants: lookups by kernel, by READ and by programs that they deploy.
    Serve(Box<serve::DpuServeArguments>),
    /// Look up keys in a service in every requested way and compare the results. Exit status 1 if a key is not found.
    Get(Box<get::GetArguments>),
}

/// Runs the subcommand. Returns false if a key was not found, or two ways returned different values.
///
/// # Errors
/// [`Failure::Input`] if the configuration is unusable or the service cannot be reached, [`Failure::Run`] if it fails
/// later.
pub fn run(arguments: &DpuArguments) -> Result<bool, Failure> {
    match &arguments.action {
        DpuAction::Serve(arguments) => serve::run(arguments).map(|()| true),
        DpuAction::Get(arguments) => get::run(arguments),
    }
}

//! `bareverbs dpu`: kernels near data as a service for authorized tenants, and a client that looks up keys in
//! it.
//!
//! * Configuration: `config` is the file of the service, `key_file` a key, `tenant` the tenants and their
//!   rights, `offer` the messages of both ends.
//! * The service: `serve` starts, reloads and ends it; `listener` accepts callers over TCP in separate
//!   threads; `service` is the one thread that owns the device; `lookup_table` has the table and the access
//!   to its memory; `program_engine` runs programs; `figures` has its OpenMetrics.
//! * The host of a DPU: `host` creates the table (`served_table`) and shares it with the service on the Arm
//!   cores.
//! * A client: `client` connects as a tenant, `get` looks keys up and compares the ways.

pub(crate) mod client;
mod config;
mod figures;
mod get;
mod host;
mod key_file;
mod listener;
mod lookup_table;
pub(crate) mod offer;
pub(crate) mod opcode;
mod program_engine;
mod serve;
mod served_table;
mod service;
mod signals;
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
    /// On the host of a DPU: share a table with the service on the Arm cores, which reads it by DMA with an access key that is never sent.
    Host(Box<host::DpuHostArguments>),
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
        DpuAction::Host(arguments) => host::run(arguments).map(|()| true),
        DpuAction::Get(arguments) => get::run(arguments),
    }
}

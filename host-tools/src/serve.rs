//! `bareverbs serve`: the simulated NIC as a PCI function of a virtual machine, over vfio-user.

use crate::Failure;
use anyhow::{Context, Result};
use bareverbs_prm::ids::MacAddress;
use bareverbs_sim::nic::NicConfig;
use bareverbs_sim::run::Seed;
use bareverbs_sim::run::vfio_user::{Farewell, Server, ServerConfig};
use clap::{Args, ValueEnum};
use rand_core::RngCore;
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// Serve the simulated NIC to a virtual machine.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Where to listen; QEMU: -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"PATH"}}'.
    #[arg(long)]
    pub socket: PathBuf,
    /// Link layer of the port.
    #[arg(long, value_enum, default_value_t = Link::Ib)]
    pub link: Link,
    /// Write all frames of the wire to this file, as pcapng.
    #[arg(long)]
    pub capture: Option<PathBuf>,
    #[command(flatten)]
    wire: Wire,
    /// From what the addresses of the device are drawn: servers with different seeds are different devices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What to log besides what goes wrong.
    #[arg(long, value_enum)]
    pub trace: Vec<Trace>,
}

/// Both ends of a wire.
#[derive(Debug, Args)]
struct Wire {
    /// Unix datagram socket that takes frames for the device, one a datagram, as QEMU's -netdev dgram sends them.
    #[arg(long, requires = "wire_to")]
    wire: Option<PathBuf>,
    /// Unix datagram socket to which the device's frames go.
    #[arg(long, requires = "wire")]
    wire_to: Option<PathBuf>,
}

/// Link layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Link {
    /// InfiniBand.
    Ib,
    /// Ethernet (RoCEv2).
    Eth,
}

/// What can be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Trace {
    /// Every command with its outcome.
    Commands,
    /// The vfio-user protocol.
    Protocol,
}

/// Serves clients, one after the other, until the process is ended.
pub fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    log_to_stderr(&arguments.trace)?;
    let config = ServerConfig {
        nic: device(arguments.link, arguments.seed),
        wire: arguments.wire.wire.clone().zip(arguments.wire.wire_to.clone()),
        capture: arguments.capture.clone(),
        trace_commands: arguments.trace.contains(&Trace::Commands),
    };
    let mut server = Server::bind(&arguments.socket, config).map_err(|error| Failure::Input(error.into()))?;
    tracing::warn!("serving at {}", arguments.socket.display());
    loop {
        if server.serve().map_err(anyhow::Error::from)? == Farewell::Closed {
            tracing::warn!("the client has gone; the device is reset and waits for the next");
        }
    }
}

fn device(link: Link, seed: u64) -> NicConfig {
    let mut random = [0; 3];
    Seed(seed).stream("mac").fill_bytes(&mut random);
    let [a, b, c] = random;
    let mac = MacAddress([0x02, 0x02, 0xc9, a, b, c]);
    match link {
        Link::Ib => NicConfig::infiniband(mac),
        Link::Eth => NicConfig { translation_updates: false, ..NicConfig::new(mac) },
    }
}

/// `RUST_LOG` has the last word.
fn log_to_stderr(trace: &[Trace]) -> Result<()> {
    let mut directives = "warn".to_owned();
    if trace.contains(&Trace::Commands) {
        directives.push_str(",bareverbs_sim=info");
    }
    if trace.contains(&Trace::Protocol) {
        directives.push_str(",bareverbs_sim=trace,vfio_user=debug");
    }
    let filter = EnvFilter::try_from_default_env().or_else(|_| EnvFilter::try_new(directives))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .try_init()
        .map_err(|error| anyhow::anyhow!("{error}"))
        .context("cannot log")
}

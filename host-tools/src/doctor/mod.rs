//! `bareverbs doctor`: finds what keeps RDMA from working, in the order in which it would have to be repaired.
//!
//! **What this is.** Facts are gathered first, from the machine, the device and what is told of the peer; rules are pure and judge
//! facts. Each finding has a stable id, a severity, its evidence and a fix. `bareverbs explain ID` says more.
//!
//! * `facts`: what is known. `gather`: asking machine and device. `peer`, `counter_file`: what the command line names.
//! * `rules`: one function a rule, in order. `output`: what a person and a program see.

mod counter_file;
mod facts;
mod gather;
mod output;
mod peer;
mod rules;

use crate::Failure;
use crate::place::{DeviceSelector, SELECTOR_HELP};
use crate::port_address::{PortAddress, vlan_number};
use crate::seat::HostArguments;
use anyhow::anyhow;
use bareverbs_hal::pci::{Need, Tree};
use clap::Args;
use facts::Facts;
use peer::PeerArgument;
use std::path::PathBuf;

pub use rules::{RULES, Rule, Severity};

/// Arguments of `bareverbs doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArguments {
    /// Which device; it is opened, and so reset. Without it only the machine is looked at.
    #[arg(long, value_name = "DEVICE", long_help = format!(
        "Which device; it is opened, and so reset. Without it only the machine is looked at. {SELECTOR_HELP}"
    ))]
    device: Option<DeviceSelector>,
    #[command(flatten)]
    place: HostArguments,
    /// An address that the port has beside its link-local one: 10.0.0.1/24, or with a VLAN 10.0.0.1/24@7. May be given several times.
    #[arg(long = "address", value_name = "IP/BITS[@VLAN]", requires = "device", conflicts_with = "host")]
    addresses: Vec<PortAddress>,
    /// The other end: its IP address, or what `bareverbs doctor --json` printed there, as a file or - for standard input.
    #[arg(long, value_name = "IP|FILE|-")]
    peer: Option<PeerArgument>,
    /// The VLAN of a peer that is given by its address.
    #[arg(long, requires = "peer", value_parser = vlan_number)]
    vlan: Option<u16>,
    /// The version of RoCE of a peer that is given by its address.
    #[arg(long, requires = "peer", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    version: u8,
    /// A router forwards to peers outside the port's networks.
    #[arg(long, requires = "peer")]
    routed: bool,
    /// Counters of a running program: what `bareverbs monitor --once --json`, its exporter or `ethtool -S` printed, as a file or -
    /// for standard input. Without it those of the device are read.
    #[arg(long, value_name = "FILE|-")]
    counters: Option<PathBuf>,
    /// Show every rule, also those that found nothing.
    #[arg(short, long)]
    verbose: bool,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Another root of the file system, for tests.
    #[arg(long, hide = true, default_value = "/")]
    root: PathBuf,
}

/// Looks at everything. False if something keeps RDMA from working; warnings and notes do not.
pub fn run(arguments: &DoctorArguments) -> Result<bool, Failure> {
    let (text, good) = execute(arguments)?;
    crate::output::print(&text)?;
    Ok(good)
}

fn execute(arguments: &DoctorArguments) -> Result<(String, bool), Failure> {
    let facts = gather(arguments)?;
    let judged = rules::judge(&facts);
    let good = judged.iter().all(|(_, outcome)| outcome.severity() != Some(Severity::Bad));
    let text = if arguments.json {
        output::json(&facts, &judged)?
    } else {
        output::text(&facts, &judged, arguments.verbose)
    };
    Ok((text, good))
}

fn gather(arguments: &DoctorArguments) -> Result<Facts, Failure> {
    let tree = Tree::at(&arguments.root);
    let device = arguments.device();
    let mut facts = gather::machine(&tree, device.as_ref(), &Need::of_this_process(gather::MEMORY, false))?;
    if let Some(peer) = &arguments.peer {
        if device.is_none() {
            return Err(Failure::Input(anyhow!(
                "--peer compares it with a device: name one with --device or --host"
            )));
        }
        facts.peer = Some(peer.read(arguments.version, arguments.vlan)?);
        facts.routed = arguments.routed;
    }
    if let Some(device) = &device {
        facts.selector = Some(arguments.place.name_of(device));
        gather::device(&mut facts, device, &arguments.place, &arguments.addresses)?;
    }
    if let Some(path) = &arguments.counters {
        facts.counters = Some(counter_file::read(path)?);
    }
    Ok(facts)
}

impl DoctorArguments {
    /// The device that is looked at. That of a host is a simulated one.
    fn device(&self) -> Option<DeviceSelector> {
        self.device.clone().or_else(|| self.place.is_given().then_some(DeviceSelector::SIMULATED))
    }
}

#[cfg(test)]
mod tests;

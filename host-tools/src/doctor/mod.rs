//! `bareverbs doctor`: finds what keeps RDMA from working, in the order in which to fix it.
//!
//! **What this is.** Facts are gathered first, from the machine, the device and information about the peer. Rules are
//! pure and judge the facts. Each finding has a stable ID, a severity, its evidence and a fix. `bareverbs explain ID`
//! has details.
//!
//! * `facts`: what is known. `gather`: queries the machine and the device. `peer`, `counter_file`: inputs named on the
//!   command line.
//! * `rules`: one function per rule, in order. `output`: text for people and JSON for programs.

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
    /// Which device; it is opened, and so reset unless the kernel owns it. Without it only the machine is looked at.
    #[arg(long, value_name = "DEVICE", long_help = format!(
        "Which device; it is opened, and so reset unless the kernel owns it. Without it only the machine is looked at. {SELECTOR_HELP}"
    ))]
    device: Option<DeviceSelector>,
    #[command(flatten)]
    place: HostArguments,
    /// An address of the port besides its link-local one: 10.0.0.1/24, or with a VLAN 10.0.0.1/24@7. Can be repeated.
    #[arg(long = "address", value_name = "IP/BITS[@VLAN]", requires = "device", conflicts_with = "host")]
    addresses: Vec<PortAddress>,
    /// The peer: its IP address, or the output of `bareverbs doctor --json` there, as a file or - for standard input.
    #[arg(long, value_name = "IP|FILE|-")]
    peer: Option<PeerArgument>,
    /// VLAN of a peer given by address.
    #[arg(long, requires = "peer", value_parser = vlan_number)]
    vlan: Option<u16>,
    /// RoCE version of a peer given by address.
    #[arg(long, requires = "peer", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    version: u8,
    /// A router forwards to peers outside the port's networks.
    #[arg(long, requires = "peer")]
    routed: bool,
    /// Counters of a running program: the output of `bareverbs monitor --once --json`, of its exporter or of `ethtool
    /// -S`, as a file or - for standard input. Default: read those of the device.
    #[arg(long, value_name = "FILE|-")]
    counters: Option<PathBuf>,
    /// Show all rules, even those without a finding.
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Alternative root of the file system, for tests.
    #[arg(long, hide = true, default_value = "/")]
    root: PathBuf,
}

/// Runs all checks. Returns false if something keeps RDMA from working; warnings and notes do not count.
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
        gather::device(&mut facts, tree.root(), device, &arguments.place, &arguments.addresses)?;
    }
    if let Some(path) = &arguments.counters {
        facts.counters = Some(counter_file::read(path)?);
    }
    Ok(facts)
}

impl DoctorArguments {
    /// The device to examine. The device of a host is a simulated one.
    fn device(&self) -> Option<DeviceSelector> {
        self.device.clone().or_else(|| self.place.is_given().then_some(DeviceSelector::SIMULATED))
    }
}

#[cfg(test)]
mod tests;

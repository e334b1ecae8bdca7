//! `bareverbs gids`: the GID table of a port like `show_gids`; which index reaches a peer, and why the others do not.
//!
//! A port without a kernel driver only has the addresses that its program sets: pass them with `--address`. A port of the kernel has those of
//! its interface, and the kernel is asked whether they lead to the peer.

pub(crate) mod table;

use crate::Failure;
use crate::output::{json_object, print};
use crate::place::{DeviceSelector, KernelRoutes, SELECTOR_HELP};
use crate::port_address::{PortAddress, mac_of_link_local, vlan_number};
use crate::seat::HostArguments;
use anyhow::anyhow;
use bareverbs_core::GidEntry;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::numbering::RoceVersion;
use clap::{Args, ValueEnum};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::{Value, json};
use std::net::IpAddr;
use table::{Fill, GidRow, TargetPeer, Verdict, judge};

/// Arguments of `bareverbs gids`.
#[derive(Debug, Clone, Args)]
pub struct GidsArguments {
    /// The device.
    #[arg(long, value_name = "DEVICE", default_value = "sim", long_help = format!("Which device: {SELECTOR_HELP}"))]
    device: DeviceSelector,
    #[command(flatten)]
    place: HostArguments,
    /// An address of the port besides its link-local one: 10.0.0.1/24, or with a VLAN 10.0.0.1/24@7. Can be repeated.
    #[arg(long = "address", value_name = "IP/BITS[@VLAN]", conflicts_with = "host")]
    addresses: Vec<PortAddress>,
    /// Tell which index reaches this peer, and why the others do not. Exit status 1 if none does.
    #[arg(long, value_name = "IP")]
    peer: Option<IpAddr>,
    /// VLAN of the peer.
    #[arg(long, requires = "peer", value_parser = vlan_number)]
    vlan: Option<u16>,
    /// RoCE version of the peer.
    #[arg(long, value_enum, requires = "peer", default_value_t)]
    version: RoceChoice,
    /// A router forwards to peers outside the port's networks.
    #[arg(long, requires = "peer")]
    routed: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Versions of RoCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum RoceChoice {
    V1,
    #[default]
    V2,
}

/// Shows the table. Returns false if a peer was given and no entry reaches it.
pub fn run(arguments: &GidsArguments) -> Result<bool, Failure> {
    let (text, reached) = execute(arguments)?;
    print(&text)?;
    Ok(reached)
}

fn execute(arguments: &GidsArguments) -> Result<(String, bool), Failure> {
    let kernel = arguments.device.kernel_view()?;
    if kernel.is_some() && !arguments.addresses.is_empty() {
        return Err(Failure::Input(addresses_are_the_kernels(&arguments.device)));
    }
    let kernel = kernel.as_ref();
    let rows = arguments
        .place
        .with_device(&arguments.device, |host| Fill { addresses: &arguments.addresses, host, kernel })?
        .map_err(|error| Failure::Input(anyhow!("{}: {error}", arguments.device)))?;
    let ask = |row: &GidRow, gid: Gid| no_way(&arguments.device, &rows, row, gid);
    let verdicts = arguments.target().map(|target| judge(&rows, &target, &ask));
    let reached = verdicts.as_ref().is_none_or(|verdicts| verdicts.contains(&Verdict::Used));
    let text = if arguments.json {
        json_object("gids", object(arguments, &rows, verdicts.as_deref()))?
    } else {
        text(&arguments.place.name_of(&arguments.device), &rows, verdicts.as_deref())
    };
    Ok((text, reached))
}

/// Why `--address` is refused.
pub(crate) fn addresses_are_the_kernels(device: &DeviceSelector) -> anyhow::Error {
    anyhow!("--address is not for {device}: give the address to the interface of the port (`ip address add`)")
}

/// Why the kernel of its own device sends no packet from an entry to a GID. It asks the network, which takes a second if nobody answers.
pub(crate) fn no_way(device: &DeviceSelector, rows: &[GidRow], row: &GidRow, gid: Gid) -> Option<String> {
    // Such an address names the MAC address.
    if mac_of_link_local(gid).is_some() {
        return None;
    }
    let table: Vec<GidEntry> = rows.iter().filter_map(|row| Some(row.roce?.entry)).collect();
    let index = u8::try_from(row.index).ok()?;
    let routes = KernelRoutes::new(device.clone(), index, &row.roce?.entry, &table);
    routes.mac_of(gid).err().map(|error| format!("{error:#}"))
}

impl GidsArguments {
    fn target(&self) -> Option<TargetPeer> {
        let version = match self.version {
            RoceChoice::V1 => RoceVersion::Version1,
            RoceChoice::V2 => RoceVersion::Version2,
        };
        Some(TargetPeer { peer: self.peer?, version, vlan: self.vlan, routed: self.routed })
    }
}

fn text(device: &str, rows: &[GidRow], verdicts: Option<&[Verdict]>) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    let mut header = vec!["DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "VLAN"];
    header.extend(verdicts.map(|_| "FOR THE PEER"));
    table.set_header(header);
    for (at, row) in rows.iter().enumerate() {
        let mut cells = vec![device.to_owned(), "1".to_owned(), row.index.to_string(), row.gid.to_string()];
        cells.extend([ipv4(row).unwrap_or_default(), version(row).unwrap_or_default().to_owned()]);
        cells.push(vlan(row).map_or(String::new(), |vlan| vlan.to_string()));
        cells.extend(verdicts.map(|verdicts| words(&verdicts[at])));
        table.add_row(cells);
    }
    format!("{}\nn_gids_found={}", table.trim_fmt(), rows.len())
}

fn ipv4(row: &GidRow) -> Option<String> {
    row.gid.to_ipv4().map(|bytes| IpAddr::from(bytes).to_string())
}

fn version(row: &GidRow) -> Option<&'static str> {
    row.roce.map(|roce| if roce.entry.version == RoceVersion::Version1 { "v1" } else { "v2" })
}

fn vlan(row: &GidRow) -> Option<u16> {
    row.roce.and_then(|roce| roce.entry.vlan)
}

fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Used => "use this".to_owned(),
        Verdict::Worse { used } => format!("would also work; index {used} is nearer to the peer"),
        Verdict::Not(why) => format!("no: {why}"),
    }
}

fn object(arguments: &GidsArguments, rows: &[GidRow], verdicts: Option<&[Verdict]>) -> Value {
    let entries: Vec<Value> = rows
        .iter()
        .enumerate()
        .map(|(at, row)| {
            let verdict = verdicts.map(|verdicts| &verdicts[at]);
            json!({
                "index": row.index,
                "gid": row.gid.to_string(),
                "ipv4": ipv4(row),
                "version": version(row),
                "vlan": vlan(row),
                "used": verdict.map(|verdict| *verdict == Verdict::Used),
                "why": verdict.map(words),
            })
        })
        .collect();
    let peer = arguments.peer.map(|peer| peer.to_string());
    json!({"selector": arguments.place.name_of(&arguments.device), "port": 1, "peer": peer, "entries": entries})
}

#[cfg(test)]
mod tests;

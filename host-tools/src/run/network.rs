//! The members of a network, its cables, and the files of captures.

use anyhow::{Context, Result, bail};
use bareverbs_network::{virtual_host, virtual_ports};
use bareverbs_serve::network::NetworkDirectory;
use bareverbs_sim::nic::LinkLayer;
use comfy_table::{Table, presets};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a process may take to report its status.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Link layers, each of which may have a wire.
const LINKS: [LinkLayer; 2] = [LinkLayer::Ethernet, LinkLayer::InfiniBand];
/// Columns of the table, as processes name them.
const COLUMNS: [&str; 9] = [
    "pid",
    "program",
    "queue-pairs",
    "completion-queues",
    "memory-regions",
    "sent",
    "received",
    "lost",
    "driven",
];

/// Pulls the cables of a host or plugs them in: `HOST`, or `HOST:DEVICE` for the cable of one device.
pub(super) fn set_cable(network: &NetworkDirectory, named: &str, plugged_in: bool) -> Result<()> {
    let (host, number) = named.split_once(':').map_or((named, None), |(host, number)| (host, Some(number)));
    let ports = if network.has_host(host) { virtual_ports(network, host) } else { None };
    let Some(ports) = ports else {
        bail!(
            "there is no host {host:?} in the network at {}; its hosts are: {}",
            network.path().display(),
            network.hosts().join(", ")
        );
    };
    let wanted = match number {
        None => ports.as_slice(),
        Some(number) => {
            let port = number.parse::<usize>().ok().and_then(|number| ports.get(number));
            let count = ports.len();
            core::slice::from_ref(port.with_context(|| {
                format!("{named:?} does not name a device: host {host} has {count} devices, counted from 0")
            })?)
        }
    };
    Ok(wanted.iter().try_for_each(|port| network.set_cable(port.name(), plugged_in))?)
}

/// Hosts and processes of a network with their status.
pub(super) fn list(network: &NetworkDirectory) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["host", "address", "number"].iter().chain(&COLUMNS));
    for name in network.hosts() {
        let Some(host) = virtual_host(network, &name) else { continue };
        let [a, b, c, d] = host.ipv4();
        let link = if network.has_cable(&name) { "" } else { " (down)" };
        let lid = host.settings().lid.map(|lid| format!(",lid={lid}")).unwrap_or_default();
        let about = [name.clone(), format!("{a}.{b}.{c}.{d}{lid}{link}")];
        let mut is_empty = true;
        for number in network.processes(&name) {
            let Some(said) = ask(network, &name, number) else { continue };
            is_empty = false;
            let cells = COLUMNS.iter().map(|column| said.get(*column).cloned().unwrap_or_default());
            table.add_row(about.iter().cloned().chain([number.to_string()]).chain(cells));
        }
        if is_empty {
            table.add_row(about.iter().cloned().chain(["-".into()]));
        }
    }
    for said in LINKS.into_iter().filter_map(|link| read(network.ask_outside(link, TIMEOUT))) {
        let wire = said.get("wire").cloned().unwrap_or_default();
        let cells = COLUMNS.iter().map(|column| said.get(*column).cloned().unwrap_or_default());
        table.add_row(["(wire)".into(), wire, "-".into()].into_iter().chain(cells));
    }
    table
}

/// The status of a process; `None` if it has ended, and empty if it does not answer.
fn ask(network: &NetworkDirectory, host: &str, number: u8) -> Option<BTreeMap<String, String>> {
    read(network.ask(host, number, TIMEOUT))
}

fn read(answer: std::io::Result<String>) -> Option<BTreeMap<String, String>> {
    match answer {
        Ok(said) => {
            let pair = |line: &str| line.split_once(' ').map(|(name, value)| (name.into(), value.into()));
            Some(said.lines().filter_map(pair).collect())
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(silent()),
        Err(_) => None,
    }
}

fn silent() -> BTreeMap<String, String> {
    BTreeMap::from([("program".into(), "does not answer".into())])
}

/// Checks that a capture can be written, and removes an older one: processes never overwrite an existing
/// file.
pub(super) fn prepare_capture(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let trouble = || format!("cannot write the capture {}", path.display());
    if path.symlink_metadata().is_ok_and(|about| !about.is_file()) {
        bail!("cannot write the capture {}: it exists and is not a file", path.display());
    }
    File::create(&path).with_context(trouble)?;
    fs::remove_file(&path).with_context(trouble)?;
    Ok(path)
}

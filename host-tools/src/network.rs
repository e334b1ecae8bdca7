//! Networks of `bareverbs run`: where they are, and who is in them.

use anyhow::{Context, Result, bail};
use bareverbs_network::virtual_host;
use bareverbs_serve::network::{NetworkDirectory, is_network_name};
use bareverbs_sim::nic::LinkLayer;
use bareverbs_sim::wire::infiniband::FIRST_MULTICAST_LID;
use bareverbs_uverbs::{HostSettings, VirtualHost};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Reads `--host`.
pub(crate) fn parse_host(name: &str) -> Result<VirtualHost, String> {
    VirtualHost::new(name)
        .ok_or_else(|| "a virtual host has 1 to 32 letters, digits, hyphens or dots in its name".into())
}

/// Reads `--network`.
pub(crate) fn parse_name(name: &str) -> Result<String, String> {
    if is_network_name(name) {
        return Ok(name.to_owned());
    }
    Err("a network has 1 to 32 letters, digits, hyphens, underscores or dots in its name, and no dot first"
        .into())
}

/// The network of a name, below the user's directory.
pub(crate) fn open(home: &Path, name: &str) -> Result<NetworkDirectory> {
    Ok(NetworkDirectory::create(&home.join("networks").join(name))?)
}

/// What a command wants of its host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostWish {
    /// Link layer of its port; `None` leaves it as it is.
    pub(crate) link: Option<LinkLayer>,
    /// Its addresses; none leaves them as they are.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Makes a host known in its network, and gives it with all that is set of it.
///
/// What is not asked for stays as it is while processes of the host run, and is the default otherwise. Fails if the host would have an
/// address of another one, or if something else is asked for than what its processes have.
pub(crate) fn add(network: &NetworkDirectory, host: &VirtualHost, wish: &HostWish) -> Result<VirtualHost> {
    network.add_host(host.name())?;
    network.locked(|| settle(network, host, wish))?
}

/// See [`add`]; nobody else changes the network meanwhile.
fn settle(network: &NetworkDirectory, host: &VirtualHost, wish: &HostWish) -> Result<VirtualHost> {
    let name = host.name();
    let others = network.hosts();
    let others =
        others.iter().filter(|other| *other != name).filter_map(|other| virtual_host(network, other));
    let others: Vec<VirtualHost> = others.collect();
    let before: HostSettings = network.settings(name).parse().unwrap_or_default();
    let settings = wanted(wish, &before, network.has_process(name), &others)
        .with_context(|| format!("host {name} has running programs"))?;
    let host = host.clone().with(settings);
    if let Some(other) = others.iter().find(|other| clashes(&host, other)) {
        bail!(
            "host {name} would have the address of host {}, which is in this network already: addresses follow from names \
             or are given with --ip; choose another --host or --ip",
            other.name()
        );
    }
    if *host.settings() != before {
        network.set_settings(name, &host.settings().to_string())?;
    }
    Ok(host)
}

fn clashes(host: &VirtualHost, other: &VirtualHost) -> bool {
    let taken = other.addresses();
    other.mac() == host.mac() || host.addresses().iter().any(|address| taken.contains(address))
}

/// The settings that a command asks for. A port keeps the LID that it had once, as long as nobody else has it.
fn wanted(
    wish: &HostWish,
    before: &HostSettings,
    is_running: bool,
    others: &[VirtualHost],
) -> Result<HostSettings> {
    let default = if is_running { before.link() } else { LinkLayer::Ethernet };
    let link = wish.link.unwrap_or(default);
    let addresses = match (&wish.addresses, is_running) {
        (none, true) if none.is_empty() => &before.addresses,
        (asked, _) => asked,
    };
    if is_running && (link != before.link() || *addresses != before.addresses) {
        bail!("--link or --ip differ from theirs; wait until they have ended, or choose another --host");
    }
    let taken: Vec<u16> = others.iter().filter_map(|other| other.settings().lid).collect();
    let free = |lid: &u16| !taken.contains(lid);
    let lid = match link {
        LinkLayer::Ethernet => None,
        LinkLayer::InfiniBand => Some(
            before
                .lid
                .filter(free)
                .or_else(|| (1..FIRST_MULTICAST_LID).find(free))
                .context("no LID is left")?,
        ),
    };
    Ok(HostSettings { lid, addresses: addresses.clone() })
}

/// The user's own directory for what is forgotten at the next boot.
pub(crate) fn home() -> Result<PathBuf> {
    let own = rustix::process::getuid().as_raw();
    let home = match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => Path::new(&directory).join("bareverbs"),
        None => std::env::temp_dir().join(format!("bareverbs-{own}")),
    };
    fs::DirBuilder::new().mode(0o700).recursive(true).create(&home).with_context(|| {
        format!("cannot make {}; set XDG_RUNTIME_DIR to a directory of your own", home.display())
    })?;
    let about = fs::symlink_metadata(&home).with_context(|| format!("cannot read {}", home.display()))?;
    if !about.is_dir() || about.uid() != own {
        bail!("{} belongs to somebody else; set XDG_RUNTIME_DIR to a directory of your own", home.display());
    }
    Ok(home)
}

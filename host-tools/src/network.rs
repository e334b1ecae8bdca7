//! Networks of `bareverbs run`: their location and their members.

use anyhow::{Context, Result, bail};
use bareverbs_network::{virtual_host, virtual_ports};
use bareverbs_serve::network::{NetworkDirectory, is_network_name};
use bareverbs_sim::nic::LinkLayer;
use bareverbs_sim::wire::infiniband::FIRST_MULTICAST_LID;
use bareverbs_uverbs::{DeviceIndex, HostSettings, VirtualHost};
use clap::ValueEnum;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Parses `--host`.
pub(crate) fn parse_host(name: &str) -> Result<VirtualHost, String> {
    VirtualHost::new(name)
        .ok_or_else(|| "a virtual host has 1 to 32 letters, digits, hyphens or dots in its name".into())
}

/// Parses `--network`.
pub(crate) fn parse_name(name: &str) -> Result<String, String> {
    if is_network_name(name) {
        return Ok(name.to_owned());
    }
    Err("a network has 1 to 32 letters, digits, hyphens, underscores or dots in its name, and no dot first"
        .into())
}

/// The network with this name, in the user's directory.
pub(crate) fn open(home: &Path, name: &str) -> Result<NetworkDirectory> {
    Ok(NetworkDirectory::create(&home.join("networks").join(name))?)
}

/// Link layers as command line values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HostLink {
    /// Ethernet.
    Eth,
    /// InfiniBand.
    Ib,
}

impl From<HostLink> for LinkLayer {
    fn from(link: HostLink) -> Self {
        match link {
            HostLink::Eth => Self::Ethernet,
            HostLink::Ib => Self::InfiniBand,
        }
    }
}

/// The properties that a command wants its host to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostRequest {
    /// Link layer of its ports; `None` leaves it unchanged.
    pub(crate) link: Option<LinkLayer>,
    /// Number of its single-port devices; `None` leaves it unchanged.
    pub(crate) ports: Option<u8>,
    /// LID of its first InfiniBand port; `None` leaves it unchanged, or takes a free one.
    pub(crate) lid: Option<u16>,
    /// Its addresses; none leaves them unchanged. The addresses of a family go to its ports in turn.
    pub(crate) addresses: Vec<IpAddr>,
}

impl HostRequest {
    /// The properties wanted of one of `ports` ports: it gets its share of the addresses.
    fn of_port(&self, port: DeviceIndex, ports: u8) -> Self {
        let of_family = |v4: bool| self.addresses.iter().filter(move |address| address.is_ipv4() == v4);
        let turns = |v4| of_family(v4).skip(port.number().into()).step_by(ports.max(1).into());
        let lid = self.lid.map(|first| first.saturating_add(port.number().into()));
        Self { addresses: turns(true).chain(turns(false)).copied().collect(), lid, ..self.clone() }
    }
}

/// Registers a host in its network, and returns it, at its first device, with all its settings.
///
/// Properties that are not requested stay unchanged while processes of the host run, and are the defaults
/// otherwise. Fails if the host would have another host's address, or if the request contradicts the running
/// processes.
pub(crate) fn add(
    network: &NetworkDirectory,
    host: &VirtualHost,
    request: &HostRequest,
) -> Result<VirtualHost> {
    network.add_host(host.name())?;
    let before = settings_of(network, host);
    let settled = network.locked(|| settle(network, host, request))??;
    let fallen = fallen_away(&before, settled.settings(), request);
    if !fallen.is_empty() {
        eprintln!(
            "host {}: no program runs on it any more, so earlier settings expire: {}; give the options again to keep them",
            host.name(),
            fallen.join(", ")
        );
    }
    Ok(settled)
}

/// The settings of a host that no longer apply although nobody asked to change them.
fn fallen_away(before: &HostSettings, now: &HostSettings, request: &HostRequest) -> Vec<String> {
    let mut fallen = Vec::new();
    if request.ports.is_none() && before.further_devices > now.further_devices {
        fallen.push(format!("--ports {}", before.further_devices + 1));
    }
    if request.link.is_none() && before.link() == LinkLayer::InfiniBand && now.link() != before.link() {
        fallen.push("--link ib".to_owned());
    }
    if request.addresses.is_empty() {
        let gone = before.addresses.iter().filter(|address| !now.addresses.contains(address));
        fallen.extend(gone.map(|address| format!("--ip {address}")));
    }
    fallen
}

/// A registered host at each of its devices.
pub(crate) fn ports(network: &NetworkDirectory, host: &VirtualHost) -> Result<Vec<VirtualHost>> {
    let trouble =
        || format!("the settings of host {} in {} are invalid", host.name(), network.path().display());
    virtual_ports(network, host.name()).with_context(trouble)
}

/// See [`add`]; the caller holds the network's lock.
fn settle(network: &NetworkDirectory, host: &VirtualHost, request: &HostRequest) -> Result<VirtualHost> {
    let known = network.hosts();
    let known = known.iter().filter_map(|name| virtual_host(network, name));
    let mut others: Vec<VirtualHost> = known.filter(|other| other.host_name() != host.name()).collect();
    let count = wanted_ports(network, host, request)?;
    let mut settled = Vec::new();
    for port in
        host.clone().with(HostSettings { further_devices: count - 1, ..HostSettings::default() }).ports()
    {
        let mut settings = wanted(network, &port, &request.of_port(port.device(), count), &others)?;
        if settled.is_empty() {
            settings.further_devices = count - 1;
        }
        let port = port.with(settings);
        if let Some(other) = others.iter().find(|other| clashes(&port, other)) {
            bail!(
                "host {} would have the address of host {}, which is in this network already: addresses follow from names \
                 or are given with --ip; choose another --host or --ip",
                port.name(),
                other.name()
            );
        }
        others.push(port.clone());
        settled.push(port);
    }
    for port in &settled {
        network.add_host(port.name())?;
        if *port.settings() != settings_of(network, port) {
            network.set_settings(port.name(), &port.settings().to_string())?;
        }
    }
    settled.into_iter().next().context("a host has one port at least")
}

fn settings_of(network: &NetworkDirectory, port: &VirtualHost) -> HostSettings {
    network.settings(port.name()).parse().unwrap_or_default()
}

/// How many ports the host will have.
fn wanted_ports(network: &NetworkDirectory, host: &VirtualHost, request: &HostRequest) -> Result<u8> {
    let is_running = network.has_process(host.name());
    let before = settings_of(network, host).further_devices + 1;
    match request.ports {
        Some(asked) if is_running && asked != before => bail!(
            "host {} has running programs, and {before} ports: --ports {asked} differs; wait until they have ended, or choose another \
             --host",
            host.name()
        ),
        Some(asked) => Ok(asked.max(1)),
        None => Ok(if is_running { before } else { 1 }),
    }
}

fn clashes(host: &VirtualHost, other: &VirtualHost) -> bool {
    let taken = other.addresses();
    other.mac() == host.mac() || host.addresses().iter().any(|address| taken.contains(address))
}

/// The settings that a command requests for one port, given the other hosts. A port keeps its previous LID,
/// as long as nobody else has it.
fn wanted(
    network: &NetworkDirectory,
    port: &VirtualHost,
    request: &HostRequest,
    others: &[VirtualHost],
) -> Result<HostSettings> {
    let before = settings_of(network, port);
    let is_running = network.has_process(port.host_name());
    let default = if is_running { before.link() } else { LinkLayer::Ethernet };
    let link = request.link.unwrap_or(default);
    let addresses = match &request.addresses {
        none if none.is_empty() && is_running => &before.addresses,
        asked => asked,
    };
    if is_running && (link != before.link() || *addresses != before.addresses) {
        bail!(
            "host {} has running programs, and --link or --ip differ from theirs; wait until they have ended, or choose another --host",
            port.host_name()
        );
    }
    let lid = match (link, request.lid) {
        (LinkLayer::Ethernet, None) => None,
        (LinkLayer::Ethernet, Some(lid)) => {
            bail!(
                "--lid {lid:#x} is for InfiniBand ports, and host {} has none; add --link ib",
                port.host_name()
            )
        }
        (LinkLayer::InfiniBand, Some(asked)) if is_running && before.lid != Some(asked) => bail!(
            "host {} has running programs, and --lid {asked:#x} differs from theirs; wait until they have ended, or choose another --host",
            port.host_name()
        ),
        (LinkLayer::InfiniBand, asked) => Some(choose_lid(asked, before.lid, others)?),
    };
    Ok(HostSettings { lid, addresses: addresses.clone(), ..HostSettings::default() })
}

/// The requested LID, or the port's previous one, or a free one.
fn choose_lid(asked: Option<u16>, before: Option<u16>, others: &[VirtualHost]) -> Result<u16> {
    let owner = |lid: u16| others.iter().find(|other| other.settings().lid == Some(lid));
    let is_free = |lid: &u16| owner(*lid).is_none();
    match asked {
        Some(lid) if lid >= FIRST_MULTICAST_LID => {
            bail!("LID {lid:#x} is one of a group; choose a smaller --lid")
        }
        Some(lid) => match owner(lid) {
            Some(other) => bail!("LID {lid:#x} is that of host {}; choose another --lid", other.name()),
            None => Ok(lid),
        },
        None => {
            let free = before.filter(is_free).or_else(|| (1..FIRST_MULTICAST_LID).find(is_free));
            free.context("no LID is left")
        }
    }
}

/// Write permission of the group and of others.
const WRITE_OF_OTHERS: u32 = 0o022;

/// The user's own directory for files that do not survive a reboot.
pub(crate) fn home() -> Result<PathBuf> {
    let own = rustix::process::getuid().as_raw();
    let home = match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => Path::new(&directory).join("bareverbs"),
        None => std::env::temp_dir().join(format!("bareverbs-{own}")),
    };
    fs::DirBuilder::new().mode(0o700).recursive(true).create(&home).with_context(|| {
        format!("cannot make {}; set XDG_RUNTIME_DIR to a directory of your own", home.display())
    })?;
    check_home(&home, own)?;
    Ok(home)
}

/// Refuses a directory into which others could put files.
fn check_home(home: &Path, own: u32) -> Result<()> {
    let about = fs::symlink_metadata(home).with_context(|| format!("cannot read {}", home.display()))?;
    let shown = home.display();
    if !about.is_dir() || about.uid() != own {
        bail!("{shown} belongs to somebody else; set XDG_RUNTIME_DIR to a directory of your own");
    }
    if about.mode() & WRITE_OF_OTHERS != 0 {
        bail!(
            "others may write to {shown} (mode {:03o}): `chmod go-w {shown}`, or set XDG_RUNTIME_DIR to a directory of your own",
            about.mode() & 0o777
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().expect("a directory");
        let own = rustix::process::getuid().as_raw();
        for (mode, is_own) in [(0o700, true), (0o755, true), (0o770, false), (0o777, false)] {
            fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).expect("changed");
            let checked = check_home(home.path(), own);
            assert_eq!(checked.is_ok(), is_own, "{mode:o}: {checked:?}");
        }
        let error = check_home(home.path(), own).expect_err("all may write").to_string();
        assert!(error.contains("(mode 777): `chmod go-w "), "{error}");
        assert!(check_home(home.path(), own + 1).is_err(), "it is ours");
    }

    #[test]
    fn settings_of_an_ended_host_are_named_unless_others_are_asked_for() {
        let set = |text: &str| text.parse::<HostSettings>().expect("settings");
        let (before, now) = (set("devices 2\nlid 5\naddress 10.0.0.1"), HostSettings::default());
        let nothing = HostRequest::default();
        assert_eq!(fallen_away(&before, &now, &nothing), ["--ports 2", "--link ib", "--ip 10.0.0.1"]);
        assert!(fallen_away(&now, &before, &nothing).is_empty());
        let asked = HostRequest {
            link: Some(LinkLayer::Ethernet),
            ports: Some(1),
            lid: None,
            addresses: vec![IpAddr::from([10, 0, 0, 2])],
        };
        assert!(fallen_away(&before, &now, &asked).is_empty());
    }
}

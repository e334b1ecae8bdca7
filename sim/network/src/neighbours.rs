//! The hosts of a network by address. Host names determine everything.

use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::NetworkDirectory;
use bareverbs_uverbs::{HostSettings, SubnetPort, VirtualHost};

/// How long a reading of the network's directory stays valid.
const FRESH: Duration = Duration::from_millis(20);

/// A host of a network at the device that its name selects, with its settings; `None` if the name is not a host's, the
/// host has no such device, or its settings are invalid.
pub fn virtual_host(network: &NetworkDirectory, name: &str) -> Option<VirtualHost> {
    let host = VirtualHost::of_port(name)?;
    let settings = |name: &str| network.settings(name).parse::<HostSettings>().ok();
    let number = host.device().number();
    if number != 0 && settings(host.host_name())?.further_devices < number {
        return None;
    }
    let settings = settings(host.name())?;
    Some(host.with(settings))
}

/// A host of a network at each of its devices, with their settings; `None` as with [`virtual_host`].
pub fn virtual_ports(network: &NetworkDirectory, name: &str) -> Option<Vec<VirtualHost>> {
    let host = virtual_host(network, name)?;
    host.ports().map(|port| virtual_host(network, port.name())).collect()
}

/// The hosts of a network at the last reading.
#[derive(Debug)]
pub struct Neighbours {
    network: NetworkDirectory,
    hosts: Vec<VirtualHost>,
    stale_at: Time,
}

impl Neighbours {
    /// Starts with no known hosts.
    pub const fn new(network: NetworkDirectory) -> Self {
        Self { network, hosts: Vec::new(), stale_at: Time::ZERO }
    }

    /// The first host that satisfies `wanted`, even if it has just appeared.
    fn find(&mut self, now: Time, wanted: impl Fn(&VirtualHost) -> bool) -> Option<&VirtualHost> {
        if !self.hosts.iter().any(&wanted) {
            self.refresh(now);
        }
        self.hosts.iter().find(|host| wanted(host))
    }

    fn refresh(&mut self, now: Time) {
        if now >= self.stale_at {
            self.stale_at = now + FRESH;
            self.hosts =
                self.network.hosts().iter().filter_map(|name| virtual_host(&self.network, name)).collect();
        }
    }

    /// MAC address of the host with this GID.
    pub fn resolve(&mut self, now: Time, gid: Gid) -> Option<MacAddress> {
        self.find(now, |host| host.gids().contains(&gid)).map(VirtualHost::mac)
    }

    /// Whether the host with this GID has a live process.
    pub fn has_process(&mut self, now: Time, gid: Gid) -> bool {
        let host = self.find(now, |host| host.gids().contains(&gid)).map(|host| host.name().to_owned());
        host.is_some_and(|host| self.network.has_process(&host))
    }

    /// GIDs of the host with this MAC address; empty if there is none.
    pub fn gids_of(&mut self, now: Time, mac: MacAddress) -> Vec<Gid> {
        self.find(now, |host| host.mac() == mac).map(VirtualHost::gids).unwrap_or_default()
    }

    /// Name of the host with this MAC address.
    pub fn name(&mut self, now: Time, mac: MacAddress) -> Option<String> {
        self.find(now, |host| host.mac() == mac).map(|host| host.name().to_owned())
    }

    /// MAC address of the host whose InfiniBand port has this LID.
    pub fn with_lid(&mut self, now: Time, lid: u16) -> Option<MacAddress> {
        self.find(now, |host| host.settings().lid == Some(lid)).map(VirtualHost::mac)
    }

    /// InfiniBand port of the host with this GID or IP address (as a GID), if the host has a live process.
    pub fn subnet_port(&mut self, now: Time, address: Gid) -> Option<SubnetPort> {
        let host = self.find(now, |host| host.subnet_port().is_some() && host.has_address(address))?;
        let (port, name) = (host.subnet_port()?, host.name().to_owned());
        self.network.has_process(&name).then_some(port)
    }

    /// GID of the InfiniBand port with this LID.
    pub fn gid_of_lid(&mut self, now: Time, lid: u16) -> Option<Gid> {
        let has = |host: &VirtualHost| host.subnet_port().filter(|port| port.lid == lid);
        has(self.find(now, |host| has(host).is_some())?).map(|port| port.gid)
    }

    /// All hosts.
    pub fn all(&mut self, now: Time) -> &[VirtualHost] {
        self.refresh(now);
        &self.hosts
    }
}

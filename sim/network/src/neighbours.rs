//! Which hosts a network has, by their addresses: the names of its hosts say everything.

use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::NetworkDirectory;
use bareverbs_uverbs::{HostSettings, SubnetPort, VirtualHost};

/// How long a look into the network's directory is good for.
const FRESH: Duration = Duration::from_millis(20);

/// A host of a network at the device that the name says, with what is set of it; `None` if that is no name of a host, the host has no
/// such device, or its settings make no sense.
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

/// A host of a network at each of its devices, with what is set of them; `None` as with [`virtual_host`].
pub fn virtual_ports(network: &NetworkDirectory, name: &str) -> Option<Vec<VirtualHost>> {
    let host = virtual_host(network, name)?;
    host.ports().map(|port| virtual_host(network, port.name())).collect()
}

/// The hosts of a network, as they were when it was looked at last.
#[derive(Debug)]
pub struct Neighbours {
    network: NetworkDirectory,
    hosts: Vec<VirtualHost>,
    stale_at: Time,
}

impl Neighbours {
    /// Those of a network; nobody is known yet.
    pub const fn new(network: NetworkDirectory) -> Self {
        Self { network, hosts: Vec::new(), stale_at: Time::ZERO }
    }

    /// The first host of which something is true, also if it came a moment ago.
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

    /// The MAC address of the host that has a GID.
    pub fn resolve(&mut self, now: Time, gid: Gid) -> Option<MacAddress> {
        self.find(now, |host| host.gids().contains(&gid)).map(VirtualHost::mac)
    }

    /// Whether a process of the host that has a GID lives.
    pub fn has_process(&mut self, now: Time, gid: Gid) -> bool {
        let host = self.find(now, |host| host.gids().contains(&gid)).map(|host| host.name().to_owned());
        host.is_some_and(|host| self.network.has_process(&host))
    }

    /// The GIDs of the host that has a MAC address; none if there is no such host.
    pub fn gids_of(&mut self, now: Time, mac: MacAddress) -> Vec<Gid> {
        self.find(now, |host| host.mac() == mac).map(VirtualHost::gids).unwrap_or_default()
    }

    /// The name of the host that has a MAC address.
    pub fn name(&mut self, now: Time, mac: MacAddress) -> Option<String> {
        self.find(now, |host| host.mac() == mac).map(|host| host.name().to_owned())
    }

    /// The MAC address of the host with an InfiniBand port that has a LID.
    pub fn with_lid(&mut self, now: Time, lid: u16) -> Option<MacAddress> {
        self.find(now, |host| host.settings().lid == Some(lid)).map(VirtualHost::mac)
    }

    /// The InfiniBand port of the host that has an address, a GID or one of IP as a GID, if a process of the host lives.
    pub fn subnet_port(&mut self, now: Time, address: Gid) -> Option<SubnetPort> {
        let host = self.find(now, |host| host.subnet_port().is_some() && host.has_address(address))?;
        let (port, name) = (host.subnet_port()?, host.name().to_owned());
        self.network.has_process(&name).then_some(port)
    }

    /// The GID of the InfiniBand port that has a LID.
    pub fn gid_of_lid(&mut self, now: Time, lid: u16) -> Option<Gid> {
        let has = |host: &VirtualHost| host.subnet_port().filter(|port| port.lid == lid);
        has(self.find(now, |host| has(host).is_some())?).map(|port| port.gid)
    }

    /// Every host.
    pub fn all(&mut self, now: Time) -> &[VirtualHost] {
        self.refresh(now);
        &self.hosts
    }
}

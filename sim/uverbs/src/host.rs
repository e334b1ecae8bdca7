//! Virtual hosts: a name that determines the addresses of its devices.
//!
//! A host may have several single-port devices, like a multiport card under Linux. Each is a [`VirtualHost`] of its
//! own, with its own addresses, cable and place in the network: `a` is host `a` at its first device, `a-mlx5_1` at its
//! second.

use crate::connection_names::SubnetPort;
use crate::device_index::DeviceIndex;
use crate::host_settings::HostSettings;
use crate::ip_network::DERIVED;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Duration;
use bareverbs_sim::nic::{Limits, LinkLayer, NicConfig, QueuePairNumbers, SubnetMembership};
use core::net::IpAddr;

/// Longest name of a host.
const LONGEST_NAME: usize = 32;
/// Queue pairs of a process, logarithm. They fit into its block of numbers.
const LOG_MAX_QP: u8 = 15;

/// Separates the host's name from the device number in the name of a port. Host names have no underscore.
const DEVICE_MARK: &str = "-mlx5_";
/// The first bits of all MAC addresses: locally administered.
const MAC_BEGINNING: u64 = 0x02c9 << 32;

/// A virtual host at one of its devices; see the module. Equal names mean the same host on every machine, unless its
/// settings differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualHost {
    /// In the network.
    name: String,
    device: DeviceIndex,
    hash: u32,
    settings: HostSettings,
}

/// The addresses of a host's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortAddresses {
    /// GID table.
    pub gids: Vec<Gid>,
    /// EUI-64 of the port.
    pub guid: u64,
    /// LID of an InfiniBand port, 0 on Ethernet.
    pub lid: u16,
    /// IP addresses for connections, as GIDs. On Ethernet these are the port's GIDs.
    pub ip: Vec<Gid>,
}

impl VirtualHost {
    /// The host with this name, at its first device; `None` unless the name has 1 to 32 letters, digits, hyphens or
    /// dots.
    pub fn new(name: &str) -> Option<Self> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        let fits = (1..=LONGEST_NAME).contains(&name.len());
        (fits && name.bytes().all(good)).then(|| Self {
            name: name.into(),
            device: DeviceIndex::default(),
            hash: hash(name),
            settings: HostSettings::default(),
        })
    }

    /// The host with this name in a network, which includes the device: `a` or `a-mlx5_1`.
    pub fn of_port(name: &str) -> Option<Self> {
        let Some((host, number)) = name.rsplit_once(DEVICE_MARK) else { return Self::new(name) };
        let number = number.parse().ok().filter(|_| number.len() == 1);
        Some(Self::new(host)?.at(DeviceIndex::new(number?)?))
    }

    /// The same host at another device, without settings.
    #[must_use]
    pub fn at(&self, device: DeviceIndex) -> Self {
        let host = self.host_name();
        let name = match device.number() {
            0 => host.into(),
            number => format!("{host}{DEVICE_MARK}{number}"),
        };
        Self { name, device, hash: self.hash, settings: HostSettings::default() }
    }

    /// The same host at each of its devices, if this is its first. Without settings.
    pub fn ports(&self) -> impl Iterator<Item = Self> + '_ {
        DeviceIndex::all().take(usize::from(self.settings.further_devices) + 1).map(|device| self.at(device))
    }

    /// The device.
    pub const fn device(&self) -> DeviceIndex {
        self.device
    }

    /// Name of the host without the device.
    pub fn host_name(&self) -> &str {
        self.name.split_once(DEVICE_MARK).map_or(&self.name, |(host, _)| host)
    }

    /// The same host with settings.
    #[must_use]
    pub fn with(self, settings: HostSettings) -> Self {
        Self { settings, ..self }
    }

    /// Settings of the host.
    pub const fn settings(&self) -> &HostSettings {
        &self.settings
    }

    /// Link layer of its port.
    pub const fn link(&self) -> LinkLayer {
        self.settings.link()
    }

    /// The name in the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// MAC address of the device: locally administered. A host's MAC addresses are consecutive, as on a card.
    pub const fn mac(&self) -> MacAddress {
        let number = MAC_BEGINNING + self.hash as u64 + self.device.number() as u64;
        let [_, _, mac @ ..] = number.to_be_bytes();
        MacAddress(mac)
    }

    /// IPv4 address of the device: the first configured one, or one in 198.18.0.0/15, which no real network uses (RFC
    /// 2544). The first device's address is derived from the name, and those of the others follow it.
    pub fn ipv4(&self) -> [u8; 4] {
        let [_, b, c, d] = self.hash.wrapping_add(self.device.number().into()).to_be_bytes();
        let [first, second] = DERIVED;
        self.chosen_ipv4().next().unwrap_or([first, second | b & 1, c, d])
    }

    fn chosen_ipv4(&self) -> impl Iterator<Item = [u8; 4]> + '_ {
        self.settings.addresses.iter().filter_map(|address| match address {
            IpAddr::V4(v4) => Some(v4.octets()),
            IpAddr::V6(_) => None,
        })
    }

    /// Configured IPv6 addresses.
    pub fn ipv6(&self) -> impl Iterator<Item = [u8; 16]> + '_ {
        self.settings.addresses.iter().filter_map(|address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(v6.octets()),
        })
    }

    /// All IP addresses, IPv4 first.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let further = self.chosen_ipv4().skip(1).map(IpAddr::from);
        core::iter::once(IpAddr::from(self.ipv4()))
            .chain(further)
            .chain(self.ipv6().map(IpAddr::from))
            .collect()
    }

    /// GIDs of the port. On Ethernet IPv4 comes first, so that GID 0 is routable with RoCEv2; then IPv6 link-local and
    /// the configured addresses. On InfiniBand the default GID: the default subnet prefix and the GUID (IBTA v1.4
    /// §4.1.1).
    pub fn gids(&self) -> Vec<Gid> {
        let own = link_local(self.mac());
        if self.link() == LinkLayer::InfiniBand {
            return vec![own];
        }
        let mut gids = vec![Gid::from_ipv4(self.ipv4())];
        gids.extend(self.chosen_ipv4().skip(1).map(Gid::from_ipv4));
        gids.push(own);
        gids.extend(self.ipv6().map(Gid));
        gids
    }

    /// IP addresses as GIDs, with IPv4 mapped.
    pub fn ip_gids(&self) -> Vec<Gid> {
        let gid = |address: &IpAddr| match address {
            IpAddr::V4(v4) => Gid::from_ipv4(v4.octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        };
        self.addresses().iter().map(gid).collect()
    }

    /// Whether a GID or an IP address (as a GID) belongs to the host.
    pub fn has_address(&self, address: Gid) -> bool {
        self.gids().contains(&address) || self.ip_gids().contains(&address)
    }

    /// The port as its subnet knows it; `None` on Ethernet.
    pub fn subnet_port(&self) -> Option<SubnetPort> {
        let lid = self.settings.lid?;
        Some(SubnetPort { gid: link_local(self.mac()), lid })
    }

    /// The addresses of the port.
    pub fn port_addresses(&self) -> PortAddresses {
        let gids = self.gids();
        let Gid([_, _, _, _, _, _, _, _, guid @ ..]) = link_local(self.mac());
        let mut ip = gids.clone();
        if self.link() == LinkLayer::InfiniBand {
            ip.splice(0..0, self.ip_gids());
        }
        PortAddresses { gids, guid: u64::from_be_bytes(guid), lid: self.settings.lid.unwrap_or(0), ip }
    }

    /// Configuration of the device for one process of the host: its queue pair numbers have the process number in the
    /// upper 8 bits.
    pub const fn nic_config(&self, process: u8) -> NicConfig {
        let device = match self.link() {
            LinkLayer::Ethernet => NicConfig::new(self.mac()),
            LinkLayer::InfiniBand => {
                NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(self.mac()) }
            }
        };
        let device = device.with_longest_ack_timeout();
        NicConfig {
            firmware_ready_after: Duration::from_nanos(0),
            limits: Limits { log_max_qp: LOG_MAX_QP, ..device.limits },
            queue_pair_numbers: QueuePairNumbers::Block(process),
            card_port: self.device.number() + 1,
            ..device
        }
    }
}

/// The IPv6 link-local address of a MAC address (RFC 4291 appendix A).
const fn link_local(MacAddress([a, b, c, d, e, f]): MacAddress) -> Gid {
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// FNV-1a, 32 bits: spreads names that differ in only one letter.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NullProcess, Uverbs};

    #[test]
    fn a_name_decides_the_addresses() {
        let (a, b) = (VirtualHost::new("a").unwrap(), VirtualHost::new("b").unwrap());
        assert_eq!(a, VirtualHost::new("a").unwrap());
        assert_ne!((a.mac(), a.ipv4()), (b.mac(), b.ipv4()));
        assert_eq!(a.gids()[0].to_ipv4(), Some(a.ipv4()));
        assert_eq!(a.mac().0[0] & 3, 2, "locally administered, not a group");
    }

    #[test]
    fn further_devices_have_the_addresses_after_those_of_the_first() {
        let settings: HostSettings = "devices 3".parse().unwrap();
        let host = VirtualHost::new("a-1.b").unwrap().with(settings);
        let ports: Vec<VirtualHost> = host.ports().collect();
        let names: Vec<&str> = ports.iter().map(VirtualHost::name).collect();
        assert_eq!(names, ["a-1.b", "a-1.b-mlx5_1", "a-1.b-mlx5_2"]);
        let number = |port: &VirtualHost| u64::from(port.mac().low()) + u64::from(port.ipv4()[3]);
        assert_eq!(ports[1].mac().low(), ports[0].mac().low() + 1);
        assert_eq!(ports[1].ipv4()[3], ports[0].ipv4()[3].wrapping_add(1));
        assert!(ports.windows(2).all(|pair| number(&pair[0]) != number(&pair[1])));
        for port in &ports {
            assert_eq!(VirtualHost::of_port(port.name()).as_ref(), Some(port));
            assert_eq!(port.host_name(), "a-1.b");
        }
        assert_eq!(VirtualHost::of_port("a-mlx5_0").unwrap().name(), "a");
        for name in ["a-mlx5_8", "a-mlx5_", "a-mlx5_+1", "a-mlx5_10", "-mlx5_1", "a_1", "a-mlx5_1-mlx5_1"] {
            assert_eq!(VirtualHost::of_port(name), None, "{name}");
        }
    }

    /// PRM, nic_vport_context: system_image_guid is that of the card.
    #[test]
    fn devices_of_a_host_are_ports_of_one_card() {
        let host = VirtualHost::new("a").unwrap().with("devices 2".parse().unwrap());
        let devices: Vec<Uverbs> = host
            .ports()
            .map(|port| Uverbs::boot(port.nic_config(0), &port.port_addresses(), &mut NullProcess).unwrap())
            .collect();
        let [first, second] = [0, 1].map(|at: usize| devices[at].attributes());
        assert_eq!(first.system_image_guid, second.system_image_guid);
        assert_ne!(first.node_guid, second.node_guid);
    }

    #[test]
    fn chosen_addresses_are_gids_and_the_first_of_ipv4_stands_for_the_host() {
        let settings = "address 2001:db8::1\naddress 10.0.0.7\naddress 10.0.0.8".parse().unwrap();
        let host = VirtualHost::new("a").unwrap().with(settings);
        assert_eq!(host.ipv4(), [10, 0, 0, 7]);
        let [first, second, own, third] = host.gids()[..] else { panic!("{:?}", host.gids()) };
        assert_eq!((first.to_ipv4(), second.to_ipv4()), (Some([10, 0, 0, 7]), Some([10, 0, 0, 8])));
        assert_eq!(own, VirtualHost::new("a").unwrap().gids()[1]);
        assert_eq!(third.0[..4], [0x20, 1, 0xd, 0xb8]);
        assert_eq!(host.addresses().len(), 3);
    }

    #[test]
    fn an_infiniband_port_has_a_lid_and_the_gid_of_its_guid() {
        let host = VirtualHost::new("a").unwrap().with("lid 5".parse().unwrap());
        let PortAddresses { gids, guid, lid, .. } = host.port_addresses();
        assert_eq!((gids[0].0[..2].to_vec(), lid), (vec![0xfe, 0x80], 5));
        assert_eq!(gids[0].0[8..], guid.to_be_bytes());
        assert_eq!(host.nic_config(3).link_layer, LinkLayer::InfiniBand);
    }

    #[test]
    fn names_that_could_not_be_file_names_are_refused() {
        for name in ["", "a/b", "a b", "a\0", "ä", &"x".repeat(33)] {
            assert_eq!(VirtualHost::new(name), None, "{name:?}");
        }
    }
}

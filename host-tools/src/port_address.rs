//! Port addresses as administrators write them: `10.0.0.1/24`, `2001:db8::1/64`, or with a VLAN `10.0.0.1/24@7`.

use bareverbs_core::command::CommandError;
use bareverbs_core::device::GidError;
use bareverbs_core::hal::Hal;
use bareverbs_core::{Device, GidEntry};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::RoceVersion;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// An address of a port, with its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortAddress {
    pub(crate) ip: IpAddr,
    /// Prefix length; the full length if none was given, so that every peer is behind a router.
    pub(crate) prefix: u8,
    pub(crate) vlan: Option<u16>,
}

impl PortAddress {
    /// The link-local address that Linux gives a port by default: fe80::/64 with the MAC address as EUI-64 (RFC 4291, appendix A).
    pub(crate) fn link_local(mac: MacAddress) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        let pairs = [[a ^ 2, b], [c, 0xff], [0xfe, d], [e, f]].map(u16::from_be_bytes);
        let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, pairs[0], pairs[1], pairs[2], pairs[3]);
        Self { ip: ip.into(), prefix: 64, vlan: None }
    }

    pub(crate) fn gid(&self) -> Gid {
        gid_of(self.ip)
    }

    /// Whether `peer` is in the same network.
    pub(crate) fn reaches(&self, peer: IpAddr) -> bool {
        let same_family = self.ip.is_ipv4() == peer.is_ipv4();
        let skipped = if self.ip.is_ipv4() { 96 } else { 0 };
        let [own, other] = [self.gid(), gid_of(peer)].map(|gid| u128::from_be_bytes(gid.0));
        same_family && (own ^ other).leading_zeros() >= skipped + u32::from(self.prefix)
    }
}

/// The GID for an IP address: IPv4 is mapped (RoCEv2 A17.4.3).
pub(crate) fn gid_of(ip: IpAddr) -> Gid {
    match ip {
        IpAddr::V4(ip) => Gid::from_ipv4(ip.octets()),
        IpAddr::V6(ip) => Gid(ip.octets()),
    }
}

/// Fills the RoCE address table of an Ethernet port in Linux's order: first the link-local address derived
/// from the MAC address; each address once for each version that the device supports. Returns the entries in
/// order.
pub(crate) fn fill_table<H: Hal>(
    device: &Device<H>,
    addresses: &[PortAddress],
) -> Result<Result<Vec<(GidEntry, PortAddress)>, GidError>, CommandError> {
    let mac = device.port()?.mac;
    let local = [PortAddress::link_local(mac)];
    let mut rows = Vec::new();
    for address in local.iter().chain(addresses) {
        let versions = [RoceVersion::Version1, RoceVersion::Version2];
        for version in versions.into_iter().filter(|version| device.capabilities().speaks(*version)) {
            let entry = GidEntry { gid: address.gid(), mac, vlan: address.vlan, version };
            if let Err(error) = device.set_gid(rows.len() as u16, entry) {
                return Ok(Err(error));
            }
            rows.push((entry, *address));
        }
    }
    Ok(Ok(rows))
}

/// The MAC address from which a link-local GID was derived (RFC 4291, appendix A).
pub(crate) fn mac_of_link_local(gid: Gid) -> Option<MacAddress> {
    let [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] = gid.0 else { return None };
    Some(MacAddress([a ^ 2, b, c, d, e, f]))
}

impl FromStr for PortAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, vlan) = match text.split_once('@') {
            Some((rest, vlan)) => (rest, Some(vlan_number(vlan)?)),
            None => (text, None),
        };
        let (ip, prefix) = match rest.split_once('/') {
            Some((ip, prefix)) => (ip, Some(prefix)),
            None => (rest, None),
        };
        let ip: IpAddr = ip
            .parse()
            .map_err(|_| format!("{ip:?} is not an IP address; write 10.0.0.1/24 or 2001:db8::1/64"))?;
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(text) => text
                .parse()
                .ok()
                .filter(|prefix| *prefix <= bits)
                .ok_or_else(|| format!("/{text} is not a prefix length for {ip}; use 0 to {bits}"))?,
        };
        Ok(Self { ip, prefix, vlan })
    }
}

/// A VLAN identifier, 1 to 4094.
pub(crate) fn vlan_number(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (1..=4094).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a VLAN; use 1 to 4094"))
}

impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)?;
        self.vlan.map_or(Ok(()), |vlan| write!(f, "@{vlan}"))
    }
}

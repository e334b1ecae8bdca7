//! Settings of a virtual host: link layer and addresses, with a text form for the network's directory.

use crate::device_index::MOST_DEVICES;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bareverbs_sim::nic::LinkLayer;
use bareverbs_sim::wire::infiniband::FIRST_MULTICAST_LID;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// Most addresses of a host.
const MOST_ADDRESSES: usize = 32;

/// Settings of a host. The default is an Ethernet port with addresses derived from the name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// Number of devices besides the first. Only set for a host at its first device.
    pub further_devices: u8,
    /// LID of the InfiniBand port; `None` for an Ethernet port.
    pub lid: Option<u16>,
    /// Configured addresses.
    pub addresses: Vec<IpAddr>,
}

impl HostSettings {
    /// Link layer of the port.
    pub const fn link(&self) -> LinkLayer {
        if self.lid.is_some() { LinkLayer::InfiniBand } else { LinkLayer::Ethernet }
    }

    /// Whether a host may have this address. Addresses of this machine and multicast addresses are excluded.
    pub fn is_possible(address: IpAddr) -> bool {
        let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        let link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let everybody = address == IpAddr::V4(core::net::Ipv4Addr::BROADCAST);
        !(address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || everybody
            || mapped
            || link_local)
    }
}

/// One line per setting, with a word and a value.
impl fmt::Display for HostSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.further_devices != 0 {
            writeln!(f, "devices {}", self.further_devices + 1)?;
        }
        if let Some(lid) = self.lid {
            writeln!(f, "lid {lid}")?;
        }
        self.addresses.iter().try_for_each(|address| writeln!(f, "address {address}"))
    }
}

/// Parses the output of [`Display`](fmt::Display); the error is a sentence.
impl FromStr for HostSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("devices", devices)) => settings.further_devices = parse_devices(devices)? - 1,
                Some(("lid", lid)) => settings.lid = Some(parse_lid(lid)?),
                Some(("address", address)) => settings.addresses.push(parse_address(address)?),
                _ => return Err(format!("{line:?} is not a setting of a host")),
            }
        }
        if settings.addresses.len() > MOST_ADDRESSES {
            return Err(format!("a host has at most {MOST_ADDRESSES} chosen addresses"));
        }
        Ok(settings)
    }
}

fn parse_devices(text: &str) -> Result<u8, String> {
    let devices = text.parse().ok().filter(|devices| (1..=MOST_DEVICES).contains(devices));
    devices.ok_or_else(|| format!("a host has 1 to {MOST_DEVICES} devices, not {text:?}"))
}

fn parse_lid(text: &str) -> Result<u16, String> {
    let lid = text.parse().ok().filter(|lid| (1..FIRST_MULTICAST_LID).contains(lid));
    lid.ok_or_else(|| format!("{text:?} is not the LID of a port (1 to {})", FIRST_MULTICAST_LID - 1))
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    let address = text.parse().map_err(|_| format!("{text:?} is not an IPv4 or IPv6 address"))?;
    if HostSettings::is_possible(address) {
        return Ok(address);
    }
    Err(format!(
        "{address} cannot be the address of a virtual host: it is a loopback, link-local, multicast or broadcast address"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn settings_are_read_as_they_were_written() {
        for text in [
            "",
            "devices 2\nlid 3\n",
            "lid 3\n",
            "address 10.0.0.1\naddress 2001:db8::1\n",
            "lid 49151\naddress 10.1.2.3\n",
        ] {
            assert_eq!(text.parse::<HostSettings>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn impossible_host_settings_are_refused() {
        for text in [
            "devices 0",
            "devices 9",
            "lid 0",
            "lid 49152",
            "lid",
            "address 127.0.0.1",
            "address ::1",
            "address fe80::1",
            "link ib",
            "address ::ffff:1.2.3.4",
        ] {
            assert!(text.parse::<HostSettings>().is_err(), "{text}");
        }
        let many = "address 10.0.0.1\n".repeat(MOST_ADDRESSES + 1);
        assert!(many.parse::<HostSettings>().is_err());
    }
}

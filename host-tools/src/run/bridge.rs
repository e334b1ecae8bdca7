//! `bareverbs run --wire`: the process that carries frames between a network and a wire to the outside.

use crate::outside_wire::WireArguments;
use crate::port_address::gid_of;
use crate::seat::parse_mac;
use anyhow::{Context, Result, bail};
use bareverbs_network::{Bridge, Neighbour};
use bareverbs_serve::network::NetworkDirectory;
use bareverbs_sim::nic::LinkLayer;

/// Parses `--neighbor`.
pub(super) fn parse_neighbour(text: &str) -> Result<Neighbour, String> {
    let (ip, mac) = text.split_once('=').ok_or("write it as 10.0.0.1=02:00:00:00:00:01")?;
    let ip = ip.parse().map_err(|_| format!("{ip:?} is not an IPv4 or IPv6 address"))?;
    Ok(Neighbour { gid: gid_of(ip), mac: parse_mac(mac)? })
}

/// Carries frames until the process ends or the wire breaks.
pub(super) fn run(
    network: NetworkDirectory,
    link: LinkLayer,
    wire: &WireArguments,
    neighbours: &[Neighbour],
) -> Result<()> {
    if link == LinkLayer::InfiniBand && !neighbours.is_empty() {
        bail!(
            "--neighbor is for Ethernet: on InfiniBand the peer's LID says where packets go; leave out the option"
        );
    }
    let outside = wire.outside()?.context("no wire is given")?;
    let io = outside.open(link).context("cannot take the end of the wire")?;
    let place = network.path().display().to_string();
    let mut bridge = Bridge::new(network, link, io, &wire.to_string(), neighbours.iter().copied())?;
    eprintln!("bareverbs run: the network at {place} has the wire {wire} until this process ends");
    Err(bridge.run()).with_context(|| format!("the wire {wire} is broken"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::ids::{Gid, MacAddress};

    #[test]
    fn a_neighbour_is_an_address_and_its_mac() {
        let read = parse_neighbour("10.0.0.1=02:00:00:00:00:01").unwrap();
        assert_eq!((read.gid, read.mac), (Gid::from_ipv4([10, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 1])));
        assert_eq!(
            parse_neighbour("2001:db8::1=02:00:00:00:00:01").unwrap().gid.0[..4],
            [0x20, 1, 0xd, 0xb8]
        );
        for text in ["10.0.0.1", "x=02:00:00:00:00:01", "10.0.0.1=33:33:00:00:00:01", "10.0.0.1=1"] {
            assert!(parse_neighbour(text).is_err(), "{text}");
        }
    }
}

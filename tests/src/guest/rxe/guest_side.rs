//! Soft-RoCE in the guest: the card, its addresses, its GID table.

use super::super::machine::Machine;
use super::cases::Family;
use anyhow::{Context, Result};
use bareverbs_prm::ids::{Gid, MacAddress};
use std::time::Duration;

/// MAC address of the guest's card on the wire.
pub const GUEST_MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 2]);
/// MAC address of the simulated NIC.
pub const OUR_MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 1]);
/// Name of the RDMA device in the guest.
pub const DEVICE: &str = "rxe0";

const SHORT: Duration = Duration::from_secs(30);
const NETWORK_V4: [u8; 3] = [10, 7, 0];
const NETWORK_V6: [u8; 8] = [0xfd, 0, 0, 7, 0, 0, 0, 0];

/// GID of the node with this number: 1 is the simulated NIC, 2 the guest.
pub fn gid(family: Family, node: u8) -> Gid {
    match family {
        Family::Ipv4 => {
            let [a, b, c] = NETWORK_V4;
            Gid::from_ipv4([a, b, c, node])
        }
        Family::Ipv6 => {
            let mut gid = [0; 16];
            for (to, from) in gid.iter_mut().zip(NETWORK_V6.into_iter().chain([0, 0, 0, 0, 0, 0, 0, node])) {
                *to = from;
            }
            Gid(gid)
        }
    }
}

/// A guest whose Soft-RoCE is ready.
#[derive(Debug)]
pub struct SoftRoce {
    /// Indices of the GID table: IPv4, IPv6.
    indices: [usize; 2],
    /// Its card on the wire.
    pub interface: String,
}

impl SoftRoce {
    /// Sets up card, addresses, neighbours and the RDMA device. Neighbours are static: a NIC answers no ARP.
    pub fn set_up(machine: &mut Machine) -> Result<Self> {
        let interface = machine.wire_interface(0)?;
        let (us, guest) = (address(Family::Ipv4, 1), address(Family::Ipv4, 2));
        let (us6, guest6) = (address(Family::Ipv6, 1), address(Family::Ipv6, 2));
        let command = format!(
            "set -e
             ip link set {interface} mtu 9000 up
             ip addr add {guest}/24 dev {interface}
             ip -6 addr add {guest6}/64 dev {interface} nodad
             ip neigh replace {us} lladdr {OUR_MAC} dev {interface} nud permanent
             ip -6 neigh replace {us6} lladdr {OUR_MAC} dev {interface} nud permanent
             modprobe rdma_rxe
             modprobe ib_uverbs
             rdma link add {DEVICE} type rxe netdev {interface}"
        );
        machine.control.require(&command, Duration::from_secs(60))?;
        let table = machine.control.require(
            &format!("for i in $(seq 0 15); do cat /sys/class/infiniband/{DEVICE}/ports/1/gids/$i; done"),
            SHORT,
        )?;
        let index = |family| index_of(&table, gid(family, 2));
        Ok(Self { indices: [index(Family::Ipv4)?, index(Family::Ipv6)?], interface })
    }

    /// Index of the guest's GID of a family.
    pub fn gid_index(&self, family: Family) -> usize {
        let [ipv4, ipv6] = self.indices;
        match family {
            Family::Ipv4 => ipv4,
            Family::Ipv6 => ipv6,
        }
    }
}

/// The address as `ip` writes it.
fn address(family: Family, node: u8) -> String {
    let gid = gid(family, node);
    match gid.to_ipv4() {
        Some(bytes) => std::net::Ipv4Addr::from(bytes).to_string(),
        None => std::net::Ipv6Addr::from(gid.0).to_string(),
    }
}

fn index_of(table: &str, gid: Gid) -> Result<usize> {
    let wanted = std::net::Ipv6Addr::from(gid.0);
    table
        .lines()
        .position(|line| line.trim().parse() == Ok(wanted))
        .with_context(|| format!("{gid} is not in the GID table of the guest:\n{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_gid_as_linux_prints_it() {
        let table = "fe80:0000:0000:0000:5054:00ff:fe00:0102\n0000:0000:0000:0000:0000:ffff:0a07:0002\n";
        assert_eq!(index_of(table, gid(Family::Ipv4, 2)).ok(), Some(1));
        assert!(index_of(table, gid(Family::Ipv6, 2)).is_err());
        assert_eq!(address(Family::Ipv6, 1), "fd00:7::1");
    }
}

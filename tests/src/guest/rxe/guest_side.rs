//! The guest's device that our side talks to: its network device, its addresses, its GID table.

use super::super::machine::Machine;
use super::cases::Family;
use anyhow::{Context, Result};
use bareverbs_prm::ids::{Gid, MacAddress};
use std::time::{Duration, Instant};

/// MAC address of the guest's card on the wire.
pub const GUEST_MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 2]);
/// MAC address of the simulated NIC.
pub const OUR_MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 1]);
/// Name of Soft-RoCE's device in the guest.
pub const DEVICE: &str = "rxe0";

/// What Linux calls RoCE version 2.
const VERSION_2: &str = "RoCE v2";
const SHORT: Duration = Duration::from_secs(30);
const NETWORK_V4: [u8; 3] = [10, 7, 0];
const NETWORK_V6: [u8; 8] = [0xfd, 0, 0, 7, 0, 0, 0, 0];

/// GID of a node: 1 is the simulated NIC, 2 the guest. With LIDs there is none.
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
        Family::Lid => Gid::default(),
    }
}

/// An RDMA device of the guest that is ready.
#[derive(Debug)]
pub struct GuestDevice {
    /// Its name.
    pub name: String,
    /// Indices of its GID table.
    indices: Vec<(Family, usize)>,
}

impl GuestDevice {
    /// Soft-RoCE on the card of the guest's first wire.
    pub fn soft_roce(machine: &mut Machine) -> Result<Self> {
        let interface = machine.wire_interface(0)?;
        let command = format!(
            "modprobe rdma_rxe && modprobe ib_uverbs && ip link set {interface} mtu 9000 up &&
             rdma link add {DEVICE} type rxe netdev {interface}"
        );
        machine.control.require(&command, Duration::from_secs(60))?;
        Self::roce(machine, DEVICE, &interface)
    }

    /// A RoCE device whose network device is up. Neighbours are static, because our NIC answers no ARP.
    pub fn roce(machine: &mut Machine, name: &str, interface: &str) -> Result<Self> {
        let (us, guest) = (address(Family::Ipv4, 1), address(Family::Ipv4, 2));
        let (us6, guest6) = (address(Family::Ipv6, 1), address(Family::Ipv6, 2));
        let command = format!(
            "set -e
             ip addr add {guest}/24 dev {interface}
             ip -6 addr add {guest6}/64 dev {interface} nodad
             ip neigh replace {us} lladdr {OUR_MAC} dev {interface} nud permanent
             ip -6 neigh replace {us6} lladdr {OUR_MAC} dev {interface} nud permanent"
        );
        machine.control.require(&command, SHORT)?;
        let mut indices = Vec::new();
        for family in [Family::Ipv4, Family::Ipv6] {
            indices.push((family, wait_for_gid(machine, name, gid(family, 2))?));
        }
        Ok(Self { name: name.to_owned(), indices })
    }

    /// An InfiniBand device, whose peers are reached by LID.
    pub fn infiniband(name: &str) -> Self {
        Self { name: name.to_owned(), indices: Vec::new() }
    }

    /// Index of its GID of a family; none for LIDs, which need no GID.
    pub fn gid_index(&self, family: Family) -> Option<usize> {
        self.indices.iter().find(|(known, _)| *known == family).map(|(_, index)| *index)
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

/// Waits for the index of a GID: the kernel adds it some time after the network device got the address.
pub fn wait_for_gid(machine: &mut Machine, device: &str, gid: Gid) -> Result<usize> {
    let command = format!(
        "cd /sys/class/infiniband/{device}/ports/1
         for i in $(seq 0 15); do echo \"$(cat gids/$i) $(cat gid_attrs/types/$i 2>/dev/null)\"; done"
    );
    let deadline = Instant::now() + SHORT;
    loop {
        let found = index_of(&machine.control.require(&command, SHORT)?, gid);
        if found.is_ok() || Instant::now() > deadline {
            return found;
        }
    }
}

/// Index of a GID of RoCE version 2. Devices that support both versions list every GID twice.
fn index_of(table: &str, gid: Gid) -> Result<usize> {
    let wanted = std::net::Ipv6Addr::from(gid.0);
    let is_wanted = |line: &str| {
        let (address, kind) = line.split_once(' ').unwrap_or((line, ""));
        address.parse() == Ok(wanted) && kind.trim() == VERSION_2
    };
    table
        .lines()
        .position(is_wanted)
        .with_context(|| format!("{gid} is not in the GID table of the guest:\n{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_gid_of_version_2_as_linux_prints_it() {
        let table = "fe80:0000:0000:0000:5054:00ff:fe00:0102 RoCE v2\n\
            0000:0000:0000:0000:0000:ffff:0a07:0002 IB/RoCE v1\n0000:0000:0000:0000:0000:ffff:0a07:0002 RoCE v2\n";
        assert_eq!(index_of(table, gid(Family::Ipv4, 2)).ok(), Some(2));
        assert!(index_of(table, gid(Family::Ipv6, 2)).is_err());
        assert_eq!(address(Family::Ipv6, 1), "fd00:7::1");
    }
}

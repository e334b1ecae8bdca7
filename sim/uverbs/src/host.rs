//! Virtual hosts: a name, from which follow the addresses of its device.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Duration;
use bareverbs_sim::nic::{Limits, NicConfig, QueuePairNumbers};

/// Longest name of a host.
const LONGEST_NAME: usize = 32;
/// Queue pairs of a process, logarithm: they fit into a block of numbers.
const LOG_MAX_QP: u8 = 15;

/// A virtual host. Equal names are the same host, on every machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualHost {
    name: String,
    hash: u32,
}

impl VirtualHost {
    /// The host of a name; `None` unless it has 1 to 32 letters, digits, hyphens or dots.
    pub fn new(name: &str) -> Option<Self> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        let fits = (1..=LONGEST_NAME).contains(&name.len());
        (fits && name.bytes().all(good)).then(|| Self { name: name.into(), hash: hash(name) })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// MAC address of the device: locally administered.
    pub const fn mac(&self) -> MacAddress {
        let [a, b, c, d] = self.hash.to_be_bytes();
        MacAddress([0x02, 0xc9, a, b, c, d])
    }

    /// IPv4 address of the device, in 198.18.0.0/15, which no real network has (RFC 2544).
    pub const fn ipv4(&self) -> [u8; 4] {
        let [_, b, c, d] = self.hash.to_be_bytes();
        [198, 18 | b & 1, c, d]
    }

    /// The GIDs of the port: IPv4 first, so that GID 0 is one that RoCEv2 routes; then IPv6 link-local.
    pub fn gids(&self) -> Vec<Gid> {
        vec![Gid::from_ipv4(self.ipv4()), link_local(self.mac())]
    }

    /// The part of the host's device that is in one of its processes: queue pairs have the process's number in their upper 8
    /// bits.
    pub const fn nic_config(&self, process: u8) -> NicConfig {
        let device = NicConfig::new(self.mac()).with_longest_ack_timeout();
        NicConfig {
            firmware_ready_after: Duration::from_nanos(0),
            limits: Limits { log_max_qp: LOG_MAX_QP, ..device.limits },
            queue_pair_numbers: QueuePairNumbers::Block(process),
            ..device
        }
    }
}

/// The IPv6 link-local address of a MAC address (RFC 4291 appendix A).
const fn link_local(MacAddress([a, b, c, d, e, f]): MacAddress) -> Gid {
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// FNV-1a, 32 bits: spreads names that differ in one letter only.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_decides_the_addresses() {
        let (a, b) = (VirtualHost::new("a").unwrap(), VirtualHost::new("b").unwrap());
        assert_eq!(a, VirtualHost::new("a").unwrap());
        assert_ne!((a.mac(), a.ipv4()), (b.mac(), b.ipv4()));
        assert_eq!(a.gids()[0].to_ipv4(), Some(a.ipv4()));
        assert_eq!(a.mac().0[0] & 3, 2, "locally administered, not a group");
    }

    #[test]
    fn names_that_could_not_be_file_names_are_refused() {
        for name in ["", "a/b", "a b", "a\0", "ä", &"x".repeat(33)] {
            assert_eq!(VirtualHost::new(name), None, "{name:?}");
        }
    }
}

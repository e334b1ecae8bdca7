//! IP networks of virtual hosts: how many bits of an address name the network.

use bareverbs_prm::ids::Gid;

/// Addresses derived from names are in 198.18.0.0/15, which no real network uses (RFC 2544).
pub(crate) const DERIVED: [u8; 2] = [198, 18];
const DERIVED_PREFIX: u32 = 15;
/// Configured IPv4 addresses are in a /24 network, and configured IPv6 addresses in a /64 (RFC 4291 §2.5.4).
const CHOSEN_PREFIX: u32 = 24;
const IPV6_PREFIX: u32 = 64;

/// How many bits of an IPv4 address name its network.
pub const fn ipv4_prefix([first, second, ..]: [u8; 4]) -> u32 {
    if first == DERIVED[0] && second & !1 == DERIVED[1] { DERIVED_PREFIX } else { CHOSEN_PREFIX }
}

/// Whether two addresses, as GIDs, are in the same network.
pub(crate) fn share_network(one: Gid, other: Gid) -> bool {
    let prefix = match (one.to_ipv4(), other.to_ipv4()) {
        (Some(address), Some(_)) => u128::BITS - 32 + ipv4_prefix(address),
        (None, None) => IPV6_PREFIX,
        _ => return false,
    };
    let differing = u128::from_be_bytes(one.0) ^ u128::from_be_bytes(other.0);
    differing.leading_zeros() >= prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_network_have_its_prefix() {
        let v4 = |address| Gid::from_ipv4(address);
        assert!(share_network(v4([198, 18, 0, 1]), v4([198, 19, 7, 9])));
        assert!(!share_network(v4([198, 18, 0, 1]), v4([198, 20, 0, 1])));
        assert!(share_network(v4([10, 0, 0, 1]), v4([10, 0, 0, 200])));
        assert!(!share_network(v4([10, 0, 0, 1]), v4([10, 0, 1, 1])));
        let v6 = |network, last| Gid([0x20, 1, 0, 0, 0, 0, 0, network, 0, 0, 0, 0, 0, 0, 0, last]);
        assert!(share_network(v6(1, 1), v6(1, 9)) && !share_network(v6(1, 1), v6(2, 1)));
        assert!(!share_network(v6(1, 1), v4([10, 0, 0, 1])));
    }
}

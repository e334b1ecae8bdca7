//! Finds the entry of the RoCE address table that reaches a peer, and explains why others do not. A wrong index is the
//! most common RoCE mistake: the connection is established, and its first request fails with "transport retry
//! exceeded".
//!
//! ```
//! use bareverbs_core::GidEntry;
//! use bareverbs_core::gid_choice::{GidMismatch, GidCriteria, choose, suits};
//! use bareverbs_prm::ids::{Gid, MacAddress};
//!
//! let mac = MacAddress([2, 0, 0, 0, 0, 1]);
//! let near = Gid::from_ipv4([10, 0, 0, 1]);
//! let table = [GidEntry::roce_v1(near, mac), GidEntry::roce_v2(near, mac)];
//! let criteria = GidCriteria::roce_v2(Gid::from_ipv4([10, 0, 0, 2]));
//! assert_eq!(choose((0..).zip(table), &criteria), Some(1));
//! assert_eq!(suits(&table[0], &criteria), Err(GidMismatch::Version { entry: table[0].version }));
//! ```

use crate::gid::{GidEntry, version_name};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::numbering::RoceVersion;
use core::fmt;

/// The peer to reach, and how.
///
/// ```
/// use bareverbs_core::GidEntry;
/// use bareverbs_core::gid_choice::{GidCriteria, suits};
/// use bareverbs_prm::ids::{Gid, MacAddress};
///
/// let own = GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 1]));
/// let criteria = GidCriteria::roce_v2(Gid::from_ipv4([10, 0, 0, 2]));
/// assert_eq!(suits(&own, &criteria), Ok(126), "the addresses differ in their last two bits");
/// let tagged = GidCriteria { vlan: Some(7), ..criteria };
/// assert_eq!(suits(&own, &tagged).unwrap_err().to_string(), "its frames carry no tag; the peer is in VLAN 7");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidCriteria {
    /// The peer's GID.
    pub peer: Gid,
    /// RoCE version of both ends.
    pub version: RoceVersion,
    /// VLAN of both ends; `None` for untagged frames.
    pub vlan: Option<u16>,
}

impl GidCriteria {
    /// RoCEv2 without a VLAN tag.
    pub const fn roce_v2(peer: Gid) -> Self {
        Self { peer, version: RoceVersion::Version2, vlan: None }
    }
}

/// Why an entry cannot reach a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidMismatch {
    /// The entry is unused.
    Empty,
    /// The entry only uses another RoCE version.
    Version {
        /// Its version.
        entry: RoceVersion,
    },
    /// One address is IPv4 and the other IPv6, but a RoCEv2 packet has a single IP header (RoCEv2 A17.4.3).
    Family {
        /// Whether the peer's address is IPv4.
        peer_is_ipv4: bool,
    },
    /// The entry is link-local and the peer is not, so the peer could not reply.
    LinkLocal,
    /// The peer is link-local and the entry is not.
    PeerLinkLocal,
    /// The entry's frames have another VLAN tag or none.
    Vlan {
        /// The VLAN of the entry.
        entry: Option<u16>,
        /// The requested VLAN.
        required: Option<u16>,
    },
}

impl fmt::Display for GidMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("the entry is empty"),
            Self::Version { entry } => write!(f, "it speaks {} only", version_name(entry)),
            Self::Family { peer_is_ipv4: true } => f.write_str("it is IPv6 and the peer is IPv4"),
            Self::Family { peer_is_ipv4: false } => f.write_str("it is IPv4 and the peer is IPv6"),
            Self::LinkLocal => f.write_str("it is link-local and the peer is not"),
            Self::PeerLinkLocal => f.write_str("the peer is link-local and it is not"),
            Self::Vlan { entry: Some(entry), required: Some(required) } => {
                write!(f, "its frames belong to VLAN {entry}, not to VLAN {required}")
            }
            Self::Vlan { entry: Some(entry), required: None } => {
                write!(f, "its frames belong to VLAN {entry}; those of the peer carry no tag")
            }
            Self::Vlan { entry: None, required } => {
                write!(f, "its frames carry no tag; the peer is in VLAN {}", required.unwrap_or_default())
            }
        }
    }
}

impl core::error::Error for GidMismatch {}

/// How well an entry suits: the length of the common prefix of its address and the peer's, 0 to 128 bits.
///
/// # Errors
/// The reason why it cannot reach the peer.
pub fn suits(entry: &GidEntry, criteria: &GidCriteria) -> Result<u32, GidMismatch> {
    if entry.gid.is_zero() {
        return Err(GidMismatch::Empty);
    }
    if entry.version != criteria.version {
        return Err(GidMismatch::Version { entry: entry.version });
    }
    if !entry.is_compatible(criteria.peer) {
        return Err(GidMismatch::Family { peer_is_ipv4: criteria.peer.to_ipv4().is_some() });
    }
    match (is_link_local(entry.gid), is_link_local(criteria.peer)) {
        (true, false) => return Err(GidMismatch::LinkLocal),
        (false, true) => return Err(GidMismatch::PeerLinkLocal),
        _ => {}
    }
    if entry.vlan != criteria.vlan {
        return Err(GidMismatch::Vlan { entry: entry.vlan, required: criteria.vlan });
    }
    Ok(common_bits(entry.gid, criteria.peer))
}

/// The index of the best entry: the one with the longest common prefix with the peer (RFC 6724 §5, rule 8), the first
/// of equals.
pub fn choose(entries: impl IntoIterator<Item = (u16, GidEntry)>, criteria: &GidCriteria) -> Option<u16> {
    let mut best = None;
    for (index, entry) in entries {
        let Ok(bits) = suits(&entry, criteria) else { continue };
        if best.is_none_or(|(_, most)| bits > most) {
            best = Some((index, bits));
        }
    }
    best.map(|(index, _)| index)
}

/// fe80::/10 (RFC 4291 §2.5.6), or 169.254.0.0/16 mapped (RFC 3927).
fn is_link_local(gid: Gid) -> bool {
    match gid.to_ipv4() {
        Some([first, second, ..]) => (first, second) == (169, 254),
        None => gid.0[0] == 0xfe && gid.0[1] & 0xc0 == 0x80,
    }
}

fn common_bits(a: Gid, b: Gid) -> u32 {
    (u128::from_be_bytes(a.0) ^ u128::from_be_bytes(b.0)).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::ids::MacAddress;
    extern crate std;
    use std::string::ToString;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn four(last: [u8; 4]) -> Gid {
        Gid::from_ipv4(last)
    }

    fn six(first: [u8; 2], last: u8) -> Gid {
        let mut gid = Gid([0; 16]);
        (gid.0[0], gid.0[1], gid.0[15]) = (first[0], first[1], last);
        gid
    }

    fn v2(gid: Gid) -> GidEntry {
        GidEntry::roce_v2(gid, MAC)
    }

    fn why(entry: GidEntry, peer: Gid) -> std::string::String {
        suits(&entry, &GidCriteria::roce_v2(peer)).expect_err("does not suit").to_string()
    }

    #[test]
    fn each_mismatch_has_its_sentence() {
        let (near, peer) = (four([10, 0, 0, 1]), four([10, 0, 0, 2]));
        let local = six([0xfe, 0x80], 1);
        assert_eq!(why(v2(Gid([0; 16])), peer), "the entry is empty");
        assert_eq!(why(GidEntry::roce_v1(near, MAC), peer), "it speaks RoCE version 1 only");
        assert_eq!(why(v2(local), peer), "it is IPv6 and the peer is IPv4");
        assert_eq!(why(v2(near), six([0x20, 1], 2)), "it is IPv4 and the peer is IPv6");
        assert_eq!(why(v2(local), six([0x20, 1], 2)), "it is link-local and the peer is not");
        assert_eq!(why(v2(four([169, 254, 3, 4])), peer), "it is link-local and the peer is not");
        assert_eq!(why(v2(six([0x20, 1], 1)), local), "the peer is link-local and it is not");
        let tagged = GidEntry { vlan: Some(7), ..v2(near) };
        assert_eq!(why(tagged, peer), "its frames belong to VLAN 7; those of the peer carry no tag");
        let criteria = GidCriteria { vlan: Some(9), ..GidCriteria::roce_v2(peer) };
        let why = |entry| suits(&entry, &criteria).expect_err("another VLAN").to_string();
        assert_eq!(why(tagged), "its frames belong to VLAN 7, not to VLAN 9");
        assert_eq!(why(v2(near)), "its frames carry no tag; the peer is in VLAN 9");
        assert_eq!(suits(&GidEntry { vlan: Some(9), ..tagged }, &criteria), Ok(126));
    }

    #[test]
    fn the_table_of_linux_gives_the_entry_that_works() {
        // Entries 0 and 1 are link-local, 2 and 3 have the first address, 4 and 5 the second; each pair has
        // both versions.
        let gids = [six([0xfe, 0x80], 1), four([192, 168, 1, 5]), four([10, 1, 0, 5])];
        let table = || (0..).zip(gids.into_iter().flat_map(|gid| [GidEntry::roce_v1(gid, MAC), v2(gid)]));
        assert_eq!(choose(table(), &GidCriteria::roce_v2(four([10, 1, 0, 9]))), Some(5));
        assert_eq!(choose(table(), &GidCriteria::roce_v2(four([192, 168, 1, 9]))), Some(3));
        assert_eq!(choose(table(), &GidCriteria::roce_v2(six([0xfe, 0x80], 9))), Some(1));
        assert_eq!(choose(table(), &GidCriteria::roce_v2(six([0x20, 1], 9))), None);
        let old = GidCriteria { version: RoceVersion::Version1, ..GidCriteria::roce_v2(four([10, 1, 0, 9])) };
        assert_eq!(choose(table(), &old), Some(4));
    }
}

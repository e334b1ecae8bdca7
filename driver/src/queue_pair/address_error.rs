//! Checks of a peer's address before it goes to the device.

use crate::address_vector::AddressVector;
use crate::gid::{GidEntry, version_name};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::{PortType, RoceVersion};
use core::fmt;
use core::ops::RangeInclusive;

/// What is wrong with a peer's address, as seen from this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The peer has no GID. RoCE always needs one for the global route header.
    NoGlobalAddress {
        /// Our own entry of the address table.
        gid_index: u8,
    },
    /// Our own entry of the address table is empty.
    NoOwnAddress {
        /// Its index.
        gid_index: u8,
    },
    /// One end is IPv4, the other is IPv6.
    Family {
        /// Our own entry.
        gid_index: u8,
        /// Its GID.
        own: Gid,
        /// The peer's address.
        remote: Gid,
    },
    /// One end speaks RoCE version 1, the other version 2.
    Version {
        /// Our own entry.
        gid_index: u8,
        /// Its GID.
        own: Gid,
        /// Its version.
        own_version: RoceVersion,
        /// The peer's address.
        remote: Gid,
        /// The peer's version.
        remote_version: RoceVersion,
    },
    /// The peer's GID is a multicast address.
    MulticastGid {
        /// That address.
        remote: Gid,
    },
    /// The peer's Ethernet address is zero or multicast.
    Mac {
        /// That address.
        mac: MacAddress,
    },
    /// The peer has a LID, but our port is an Ethernet port.
    LidOnEthernet {
        /// That LID.
        lid: u16,
    },
    /// The peer's LID is not a unicast LID (IBTA v1.4 §4.1.3).
    Lid {
        /// That LID.
        lid: u16,
    },
}

/// Unicast LIDs (IBTA v1.4 §4.1.3).
const UNICAST_LIDS: RangeInclusive<u16> = 1..=0xbfff;

impl AddressError {
    /// Checks `vector` as a path from a port of this link layer; `entry` is our own address table entry.
    pub(crate) fn check(link: PortType, vector: &AddressVector, entry: Option<GidEntry>) -> Result<(), Self> {
        let lid = vector.lid;
        match link {
            PortType::Ethernet if lid != 0 => Err(Self::LidOnEthernet { lid }),
            PortType::Ethernet => Self::check_ethernet(vector, entry),
            _ if UNICAST_LIDS.contains(&lid) => Ok(()),
            _ => Err(Self::Lid { lid }),
        }
    }

    fn check_ethernet(vector: &AddressVector, entry: Option<GidEntry>) -> Result<(), Self> {
        let gid_index = vector.gid_index;
        let own = entry.ok_or(Self::NoOwnAddress { gid_index })?;
        let (remote, mac) = (vector.gid, vector.mac);
        if remote.is_zero() {
            return Err(Self::NoGlobalAddress { gid_index });
        }
        if remote.0[0] == 0xff {
            return Err(Self::MulticastGid { remote });
        }
        if !own.is_compatible(remote) {
            return Err(Self::Family { gid_index, own: own.gid, remote });
        }
        if mac == MacAddress::default() || mac.0[0] & 1 != 0 { Err(Self::Mac { mac }) } else { Ok(()) }
    }

    /// Checks our `own` entry against the peer's RoCE version, if that is known.
    pub(crate) fn check_version(
        vector: &AddressVector,
        own: Option<GidEntry>,
        remote: Option<RoceVersion>,
    ) -> Result<(), Self> {
        let (Some(own), Some(remote_version)) = (own, remote) else { return Ok(()) };
        let (gid_index, own_version) = (vector.gid_index, own.version);
        match remote_version != own_version {
            true => Err(Self::Version {
                gid_index,
                own: own.gid,
                own_version,
                remote: vector.gid,
                remote_version,
            }),
            false => Ok(()),
        }
    }
}

fn family(gid: Gid) -> &'static str {
    if gid.to_ipv4().is_some() { "IPv4" } else { "IPv6" }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoGlobalAddress { gid_index } => write!(
                f,
                "the peer's GID is all zero: RoCE needs a global route header (is_global = 1 and grh.dgid with libibverbs); \
                 exchange GIDs, ours is entry {gid_index} of the address table"
            ),
            Self::NoOwnAddress { gid_index } => {
                write!(f, "entry {gid_index} of the RoCE address table is empty: call Device::set_gid first")
            }
            Self::Family { gid_index, own, remote } => write!(
                f,
                "our GID {own} (entry {gid_index}) is {}, the peer's GID {remote} is {}: choose the entry of the peer's family",
                family(own),
                family(remote)
            ),
            Self::Version { gid_index, own, own_version, remote, remote_version } => write!(
                f,
                "our GID {own} (entry {gid_index}) is {}, the peer's GID {remote} is {}: neither hears the other; choose entries of \
                 one version at both ends",
                version_name(own_version),
                version_name(remote_version)
            ),
            Self::MulticastGid { remote } => {
                write!(f, "the peer's GID {remote} is multicast: a connection has one peer; use datagrams")
            }
            Self::Mac { mac } => write!(
                f,
                "the peer's Ethernet address {mac} is zero or multicast: exchange it with the GID, or resolve it (ARP, neighbour \
                 discovery); behind a router it is the router's"
            ),
            Self::LidOnEthernet { lid } => write!(
                f,
                "the peer has LID {lid:#06x} and our port is an Ethernet port: ports of different link layers cannot be joined"
            ),
            Self::Lid { lid } => write!(
                f,
                "the peer's LID {lid:#06x} is not that of a port, which is from 0x0001 to 0xbfff: exchange LIDs once the subnet's \
                 manager has made both ports active"
            ),
        }
    }
}

impl core::error::Error for AddressError {}

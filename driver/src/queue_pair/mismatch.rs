//! Compares both ends of a connection and reports what does not match.

use super::diagnosis::Diagnosis;
use crate::gid::{GidEntry, version_name};
use crate::port::PortAttributes;
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::numbering::{PathMtu, PortType, RoceVersion};
use core::fmt;

/// A contradiction between the values of two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The path MTUs differ: the end with the smaller one refuses the other's packets.
    PathMtu {
        /// The value at this end.
        here: PathMtu,
        /// The value at the other end.
        there: PathMtu,
    },
    /// This end is connected to a queue pair that is not the other end's.
    QueuePair {
        /// The peer's queue pair number, as configured at this end.
        believed: Qpn,
        /// The other end's queue pair.
        is: Qpn,
    },
    /// This end sends to an address that the other end does not have.
    Address {
        /// The peer's GID, as configured at this end.
        believed: Gid,
        /// What the other end has.
        is: Gid,
    },
    /// This end sends to a LID that the other end's port does not have.
    Lid {
        /// The peer's LID, as configured at this end.
        believed: u16,
        /// Base LID of the other end's port.
        first: u16,
        /// LMC of the other end's port, n: the port has 2^n LIDs, starting with the base LID.
        lmc: u8,
    },
    /// The ports have different link layers: no cable can connect them.
    LinkLayer {
        /// The value at this end.
        here: PortType,
        /// The value at the other end.
        there: PortType,
    },
    /// The ends use different RoCE versions: neither receives the other's packets.
    Version {
        /// The value at this end.
        here: RoceVersion,
        /// The value at the other end.
        there: RoceVersion,
    },
}

impl Diagnosis {
    /// Compares what this end knows about the peer with what the peer reports about itself. Call it at both ends,
    /// because each has its own view.
    pub fn mismatches(&self, other: &Self) -> impl Iterator<Item = Mismatch> {
        let (here, there) = (self.path_mtu, other.path_mtu);
        let (believed, is) = (self.remote_qpn, other.qpn);
        [
            (here != there).then_some(Mismatch::PathMtu { here, there }),
            (believed != is).then_some(Mismatch::QueuePair { believed, is }),
            other.own.and_then(|entry| self.misses(entry)),
            self.misses_port(&other.port),
            versions(self.own, other.own),
        ]
        .into_iter()
        .flatten()
    }

    fn misses(&self, entry: GidEntry) -> Option<Mismatch> {
        let (believed, is) = (self.path.gid, entry.gid);
        (believed != is).then_some(Mismatch::Address { believed, is })
    }

    fn misses_port(&self, port: &PortAttributes) -> Option<Mismatch> {
        let (here, there) = (self.port.link_layer, port.link_layer);
        if here != there {
            return Some(Mismatch::LinkLayer { here, there });
        }
        let (believed, first, lmc) = (self.path.lid, port.lid, port.lmc);
        let is_its = believed.checked_sub(first).is_some_and(|number| u32::from(number) >> lmc == 0);
        (here == PortType::Ib && !is_its).then_some(Mismatch::Lid { believed, first, lmc })
    }
}

fn versions(own: Option<GidEntry>, other: Option<GidEntry>) -> Option<Mismatch> {
    let (here, there) = (own?.version, other?.version);
    (here != there).then_some(Mismatch::Version { here, there })
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PathMtu { here, there } => write!(
                f,
                "the path MTU is {here} here and {there} there: give both ends the smaller one, or packets are refused as invalid \
                 requests or never come"
            ),
            Self::QueuePair { believed, is } => {
                write!(
                    f,
                    "this end is connected to {believed}, the other end is {is}: exchange the numbers again"
                )
            }
            Self::Address { believed, is } => {
                write!(
                    f,
                    "this end sends to {believed}, the other end's address is {is}: exchange the GIDs again"
                )
            }
            Self::Lid { believed, first, lmc: 0 } => write!(
                f,
                "this end sends to LID {believed:#06x}, the other end's port has {first:#06x}: exchange the LIDs again"
            ),
            Self::Lid { believed, first, lmc } => write!(
                f,
                "this end sends to LID {believed:#06x}, the other end's port has 2^{lmc} from {first:#06x} on: exchange the \
                 LIDs again"
            ),
            Self::LinkLayer { here, there } => {
                write!(f, "this end's port is {here}, the other's {there}: no cable joins them")
            }
            Self::Version { here, there } => write!(
                f,
                "this end speaks {}, the other {}: choose entries of one version at both ends",
                version_name(here),
                version_name(there)
            ),
        }
    }
}

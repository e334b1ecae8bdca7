//! Why a connection does not work: the classic mistakes, with the values of both ends that are known.
//!
//! **What this is.** Checks of an address before it goes to the device, and a look at queue pair and port when something
//! was refused or did not answer. **What it may not do.** Guess: every suspect is a fact that contradicts another.

use super::QueuePair;
use super::attributes::AddressVector;
use super::core::Core;
use super::service::Connected;
use crate::command::{CommandError, Request};
use crate::device::DeviceRef;
use crate::gid::{GidEntry, version_name};
use crate::port::{PortAttributes, PortState};
use bareverbs_prm::command::qp::{QueryQpIn, QueryQpOut};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, PathMtu, PortType, QpState, RoceVersion};
use bareverbs_prm::psn::Psn;
use core::fmt;
use core::ops::RangeInclusive;

/// What is wrong with the address of a peer, as seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The peer has no GID: an address without global route header, which RoCE cannot do without.
    NoGlobalAddress {
        /// Our own entry of the address table.
        gid_index: u8,
    },
    /// The entry of our own address table is empty.
    NoOwnAddress {
        /// Its index.
        gid_index: u8,
    },
    /// One end is IPv4, the other is IPv6.
    Family {
        /// Our own entry.
        gid_index: u8,
        /// What it holds.
        own: Gid,
        /// The peer's address.
        remote: Gid,
    },
    /// One end speaks RoCE version 1, the other version 2.
    Version {
        /// Our own entry.
        gid_index: u8,
        /// What it holds.
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
    /// The peer's LID is not that of one port (IBTA v1.4 §4.1.3).
    Lid {
        /// That LID.
        lid: u16,
    },
}

/// LIDs of single ports (IBTA v1.4 §4.1.3).
const UNICAST_LIDS: RangeInclusive<u16> = 1..=0xbfff;

impl AddressError {
    /// Checks `vector` as the way from a port of a link layer; `entry` is our own of the address table.
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

    /// Checks our `own` entry against the version of RoCE that the peer speaks, if it has told.
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

/// A fact that keeps a connection from working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suspect {
    /// The queue pair is not where it sends and receives.
    State(QpState),
    /// The port has no link.
    PortDown(PortState),
    /// Packets are larger than what the port carries.
    PathMtu {
        /// Of the queue pair.
        asked: PathMtu,
        /// The largest that the port carries.
        fits: PathMtu,
        /// Bytes of the largest frame payload in force.
        operational: u16,
    },
    /// The addresses cannot be those of a working connection.
    Address(AddressError),
    /// Our own entry is of RoCE version 1, which routers do not carry and a peer of version 2 does not hear.
    Version1 {
        /// Our own entry.
        gid_index: u8,
        /// What it holds.
        own: Gid,
    },
    /// A timeout of 0 waits for ever: a lost packet is never sent again.
    NoTimeout,
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::State(state) => write!(f, "the queue pair is in {state}: bring it to RTS"),
            Self::PortDown(state) => write!(
                f,
                "the port is {state}: plug the cable in, set the link up, or on InfiniBand start a subnet manager"
            ),
            Self::PathMtu { asked, fits, operational } => write!(
                f,
                "the path MTU is {asked}, the port carries {fits} at most (MTU {operational}): use a smaller path MTU at both ends, \
                 or raise the MTU of the port"
            ),
            Self::Address(error) => write!(f, "{error}"),
            Self::Version1 { gid_index, own } => write!(
                f,
                "our GID {own} (entry {gid_index}) is RoCE version 1: the peer's must be of version 1 too, on the same link"
            ),
            Self::NoTimeout => {
                f.write_str("the ACK timeout is 0, for ever: one lost packet stops the connection")
            }
        }
    }
}

/// What is known of a connection at this end, to be compared with the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diagnosis {
    /// State of the queue pair.
    pub state: QpState,
    /// Our port.
    pub port: PortAttributes,
    /// The largest packet; the peer must have the same.
    pub path_mtu: PathMtu,
    /// Our number; the peer's `dest_qp_num`.
    pub qpn: Qpn,
    /// The peer's number, as we believe it.
    pub remote_qpn: Qpn,
    /// PSN of the next packet that we send; the peer's `rq_psn` must be it, if nothing was sent.
    pub next_send_psn: Psn,
    /// PSN of the next packet that we take; the peer's `sq_psn` must be it, if nothing was received.
    pub next_receive_psn: Psn,
    /// How packets are addressed.
    pub path: AddressVector,
    /// Our own address.
    pub own: Option<GidEntry>,
    /// ACK timeout, 4.096 µs · 2^n.
    pub ack_timeout: u8,
    /// Retries after a timeout.
    pub retry_count: u8,
    /// Retries after receiver-not-ready; 7 for ever.
    pub rnr_retry: u8,
}

impl Diagnosis {
    /// Facts that contradict a working connection, the most likely first.
    pub fn suspects(&self) -> impl Iterator<Item = Suspect> {
        let Self { state, port, path_mtu, path, own, .. } = *self;
        let ethernet = port.link_layer == PortType::Ethernet;
        let fits = port.active_mtu;
        let too_large = path_mtu.raw() > fits.raw();
        let version = own.filter(|entry| ethernet && entry.version == RoceVersion::Version1);
        [
            (state != QpState::Rts).then_some(Suspect::State(state)),
            port.state.is_down().then_some(Suspect::PortDown(port.state)),
            too_large.then_some(Suspect::PathMtu {
                asked: path_mtu,
                fits,
                operational: port.operational_mtu,
            }),
            AddressError::check(port.link_layer, &path, own).err().map(Suspect::Address),
            version.map(|entry| Suspect::Version1 { gid_index: path.gid_index, own: entry.gid }),
            (self.ack_timeout == 0).then_some(Suspect::NoTimeout),
        ]
        .into_iter()
        .flatten()
    }
}

/// Where the other end is, in words.
struct Place {
    gid: Gid,
    lid: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lid {
            0 => write!(f, "{}", self.gid),
            lid => write!(f, "LID {lid:#06x}"),
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for suspect in self.suspects() {
            writeln!(f, "{suspect}")?;
        }
        let Self { qpn, remote_qpn, next_send_psn, next_receive_psn, path_mtu, path, .. } = self;
        writeln!(
            f,
            "this end: {qpn}, path MTU {path_mtu}, sends from PSN {next_send_psn}, expects PSN {next_receive_psn}"
        )?;
        write!(
            f,
            "the other end must be {remote_qpn} at {} with path MTU {path_mtu}, rq_psn {next_send_psn}, sq_psn {next_receive_psn} \
             and dest_qp_num {qpn}, in RTR at least; and it must hold our ",
            Place { gid: path.gid, lid: path.lid }
        )?;
        match (self.port.link_layer, self.own) {
            (PortType::Ethernet, Some(entry)) => {
                write!(f, "GID {} and speak {}", entry.gid, version_name(entry.version))
            }
            (PortType::Ethernet, None) => f.write_str("GID"),
            _ => write!(f, "LID {:#06x}", self.port.lid),
        }
    }
}

impl<D: DeviceRef, S: Connected> QueuePair<D, S> {
    /// Looks for what keeps the connection from working; for «transport retry counter exceeded» and the like. Two
    /// commands for the port and one for the queue pair.
    pub fn diagnose(&mut self) -> Result<Diagnosis, CommandError> {
        self.core.diagnose()
    }
}

impl<D: DeviceRef> Core<D> {
    pub(crate) fn diagnose(&mut self) -> Result<Diagnosis, CommandError> {
        let device = self.device.device();
        let mut input = QueryQpIn::new();
        input.set_opcode(CommandOpcode::QueryQp).set_qpn(self.parts.qpn);
        let output: QueryQpOut = device.call(&Request::new(&input))?;
        let (context, port) = (output.qpc(), device.port()?);
        let path = vector_of(context);
        Ok(Diagnosis {
            state: context.state(),
            port,
            path_mtu: context.mtu(),
            qpn: self.parts.qpn,
            remote_qpn: context.remote_qpn(),
            next_send_psn: context.next_send_psn(),
            next_receive_psn: context.next_rcv_psn(),
            path,
            own: device.gid(path.gid_index.into()),
            ack_timeout: context.primary_address_path().ack_timeout(),
            retry_count: context.retry_count(),
            rnr_retry: context.rnr_retry(),
        })
    }
}

/// The way to the peer, as a context has it.
fn vector_of(context: &QueuePairContext) -> AddressVector {
    let path = context.primary_address_path();
    AddressVector {
        gid_index: path.src_addr_index(),
        gid: Gid(path.rgid_rip()),
        mac: MacAddress::from_parts(path.rmac_47_32(), path.rmac_31_0()),
        hop_limit: path.hop_limit(),
        traffic_class: path.tclass(),
        flow_label: path.flow_label(),
        service_level: path.sl(),
        udp_source_port: path.udp_sport(),
        lid: path.rlid(),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn vector() -> AddressVector {
        AddressVector {
            gid_index: 1,
            gid: Gid::from_ipv4([10, 0, 0, 2]),
            mac: MacAddress([2, 0, 0, 0, 0, 2]),
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            udp_source_port: 0xc000,
            lid: 0,
        }
    }

    fn diagnosis() -> Diagnosis {
        let port = PortAttributes {
            link_layer: PortType::Ethernet,
            state: PortState::Active,
            active_mtu: PathMtu::Mtu1024,
            operational_mtu: 1500,
            max_mtu: 9978,
            mac: OWN,
            lid: 0,
            lmc: 0,
            subnet_manager_lid: 0,
        };
        Diagnosis {
            state: QpState::Rts,
            port,
            path_mtu: PathMtu::Mtu1024,
            qpn: Qpn::from_low_bits(0x40),
            remote_qpn: Qpn::from_low_bits(0x41),
            next_send_psn: Psn::new(5),
            next_receive_psn: Psn::new(7),
            path: vector(),
            own: Some(GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, 1]), OWN)),
            ack_timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
        }
    }

    #[test]
    fn a_good_connection_has_no_suspect_and_shows_both_ends() {
        assert_eq!(diagnosis().suspects().next(), None);
        let text = diagnosis().to_string();
        assert!(text.contains("rq_psn") && text.contains("sq_psn") && text.contains("dest_qp_num"), "{text}");
    }

    #[test]
    fn each_mistake_is_named_with_its_values() {
        let good = diagnosis();
        let v1 = good.own.map(|entry| GidEntry { version: RoceVersion::Version1, ..entry });
        let ipv6 = Gid([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let down = PortAttributes { state: PortState::Down, ..good.port };
        let path = |edit: fn(&mut AddressVector)| {
            let mut path = vector();
            edit(&mut path);
            path
        };
        let infiniband = PortAttributes { link_layer: PortType::Ib, ..good.port };
        let cases: [(Diagnosis, &str); 12] = [
            (Diagnosis { state: QpState::Init, ..good }, "bring it to RTS"),
            (Diagnosis { port: down, ..good }, "port is down"),
            (Diagnosis { path_mtu: PathMtu::Mtu4096, ..good }, "MTU 1500"),
            (Diagnosis { path: path(|path| path.gid = Gid::default()), ..good }, "global route header"),
            (Diagnosis { path: AddressVector { gid: ipv6, ..vector() }, ..good }, "is IPv4, the peer's GID"),
            (Diagnosis { path: path(|path| path.mac = MacAddress::default()), ..good }, "Ethernet address"),
            (Diagnosis { path: path(|path| path.lid = 7), ..good }, "LID 0x0007 and our port is an Ethernet"),
            (Diagnosis { port: infiniband, ..good }, "LID 0x0000 is not that of a port"),
            (
                Diagnosis { port: infiniband, path: path(|path| path.lid = 0xc001), ..good },
                "LID 0xc001 is not that of a port",
            ),
            (Diagnosis { own: None, ..good }, "entry 1 of the RoCE address table is empty"),
            (Diagnosis { own: v1, ..good }, "version 1"),
            (Diagnosis { ack_timeout: 0, ..good }, "for ever"),
        ];
        for (diagnosis, text) in cases {
            let suspects: Vec<_> = diagnosis.suspects().map(|suspect| suspect.to_string()).collect();
            assert_eq!(suspects.len(), 1, "{suspects:?}");
            assert!(suspects[0].contains(text), "{suspects:?}");
        }
    }
}

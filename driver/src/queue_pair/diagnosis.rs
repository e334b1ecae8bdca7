//! Why a connection does not work: the classic mistakes, with the values of both ends where known.
//!
//! No guesses: every suspect is a contradiction between two facts.

use super::address_error::AddressError;
use crate::address_vector::AddressVector;
use crate::gid::{GidEntry, version_name};
use crate::port::{PortAttributes, PortState};
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::numbering::{PathMtu, PortType, QpState, RoceVersion};
use bareverbs_prm::psn::Psn;
use core::fmt;

/// A fact that prevents a connection from working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suspect {
    /// The queue pair is not in a state in which it sends and receives.
    State(QpState),
    /// The link of the port is not active.
    PortDown(PortState),
    /// The path MTU exceeds the port's MTU.
    PathMtu {
        /// The path MTU of the queue pair.
        asked: PathMtu,
        /// The largest path MTU that the port supports.
        fits: PathMtu,
        /// Operational MTU of the port, in bytes of frame payload.
        operational: u16,
    },
    /// The addresses of the two ends do not form a working connection.
    Address(AddressError),
    /// Our own address entry has RoCE version 1, which routers do not forward and a version 2 peer does not receive.
    Version1 {
        /// Our own entry.
        gid_index: u8,
        /// Its GID.
        own: Gid,
    },
    /// Work is outstanding, and the queue pair retries forever while the peer has no receive posted (`rnr_retry` 7). If
    /// the peer never posts one, the work neither completes nor fails.
    WaitsForReceive {
        /// Basic blocks of the send queue that are outstanding.
        outstanding: u32,
    },
    /// An ACK timeout of 0 means to wait forever: a lost packet is never sent again.
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
            Self::WaitsForReceive { outstanding } => write!(
                f,
                "{outstanding} basic blocks are outstanding and rnr_retry is 7, which means for ever: if the peer has posted no receive, \
                 SENDs and WRITEs with immediate neither complete nor fail; post a receive there, or connect with rnr_retry below 7"
            ),
            Self::NoTimeout => {
                f.write_str("the ACK timeout is 0, which means forever: one lost packet stops the connection")
            }
        }
    }
}

/// What this end knows about a connection, for comparison with the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diagnosis {
    /// State of the queue pair.
    pub state: QpState,
    /// Our port.
    pub port: PortAttributes,
    /// Path MTU; the peer must have the same.
    pub path_mtu: PathMtu,
    /// Our queue pair number; must equal the peer's `dest_qp_num`.
    pub qpn: Qpn,
    /// The peer's queue pair number, as configured at this end.
    pub remote_qpn: Qpn,
    /// PSN of the next packet to send; equals the peer's `rq_psn` if nothing has been sent.
    pub next_send_psn: Psn,
    /// PSN of the next expected packet; equals the peer's `sq_psn` if nothing has been received.
    pub next_receive_psn: Psn,
    /// Path to the peer.
    pub path: AddressVector,
    /// Our own address.
    pub own: Option<GidEntry>,
    /// ACK timeout: 4.096 µs · 2^n.
    pub ack_timeout: u8,
    /// Retries after a timeout.
    pub retry_count: u8,
    /// Retries after an RNR NAK; 7 means unlimited.
    pub rnr_retry: u8,
    /// Basic blocks of the send queue that have not completed.
    pub sends_outstanding: u32,
}

/// The `rnr_retry` that means no limit (IBTA v1.4 §9.7.5.2.8).
const ENDLESS: u8 = 7;

impl Diagnosis {
    /// Facts that prevent a working connection, the most likely first.
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
            (self.rnr_retry == ENDLESS && self.sends_outstanding > 0)
                .then_some(Suspect::WaitsForReceive { outstanding: self.sends_outstanding }),
        ]
        .into_iter()
        .flatten()
    }
}

/// The address of the other end, for a message.
struct PeerAddress {
    gid: Gid,
    lid: u16,
}

impl fmt::Display for PeerAddress {
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
            PeerAddress { gid: path.gid, lid: path.lid }
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use bareverbs_prm::ids::MacAddress;
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
            sends_outstanding: 0,
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
        let cases: [(Diagnosis, &str); 13] = [
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
            (Diagnosis { ack_timeout: 0, ..good }, "forever"),
            (Diagnosis { sends_outstanding: 2, ..good }, "2 basic blocks are outstanding"),
        ];
        for (diagnosis, text) in cases {
            let suspects: Vec<_> = diagnosis.suspects().map(|suspect| suspect.to_string()).collect();
            assert_eq!(suspects.len(), 1, "{suspects:?}");
            assert!(suspects[0].contains(text), "{suspects:?}");
        }
    }
}

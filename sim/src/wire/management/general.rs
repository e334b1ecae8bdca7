//! General services datagrams (queue pair 1): the header, and the frame of a response (IBTA v1.4 §13.4, §9.2.4).

use super::{MadHeader, SIZE, datagram_frame};
use crate::wire::FrameBuffer;
use crate::wire::packet::Packet;
use crate::wire::route::{GlobalRoute, LocalRoute, Network, Route};
use crate::wire::service::Deth;
use bareverbs_prm::ids::Qpn;
use zerocopy::{FromBytes, IntoBytes};

/// The general services queue pair and its Q_Key (IBTA v1.4 §9.2.4).
pub const GENERAL_SERVICES: Qpn = Qpn::from_low_bits(1);
/// Q_Key of [`GENERAL_SERVICES`].
pub const GENERAL_SERVICES_QKEY: u32 = 0x8001_0000;

/// A general services datagram and its origin.
///
/// ```
/// use bareverbs_prm::ids::Qpn;
/// use bareverbs_sim::wire::management::{GeneralPacket, SIZE};
/// use bareverbs_sim::wire::{DEFAULT_PARTITION_KEY, LocalRoute, Route};
///
/// let local = LocalRoute { source: 5, destination: 1, service_level: 0, virtual_lane: 0, global: None };
/// let mut datagram = [0; SIZE];
/// // Base version 1, subnet administration, its version 2, Get.
/// datagram[..4].copy_from_slice(&[1, 3, 2, 1]);
/// let source = Qpn::from_low_bits(1);
/// let packet = GeneralPacket::new(&Route::from(local), source, DEFAULT_PARTITION_KEY, &datagram).unwrap();
/// assert_eq!((packet.source_lid(), packet.header().class()), (Some(5), 3));
/// ```
#[derive(Debug, Clone)]
pub struct GeneralPacket {
    bytes: [u8; SIZE],
    route: Route,
    source: Qpn,
    partition_key: u16,
}

impl GeneralPacket {
    /// The datagram of a packet to queue pair 1. `None` if its base version is unknown.
    pub fn of(packet: &Packet<'_>) -> Option<Self> {
        let deth = packet.service_header.deth().filter(|_| packet.bth.destination == GENERAL_SERVICES)?;
        Self::new(&packet.route, deth.source, packet.bth.partition_key, packet.payload)
    }

    /// The datagram that queue pair `source` sent along `route`.
    pub fn new(route: &Route, source: Qpn, partition_key: u16, payload: &[u8]) -> Option<Self> {
        let bytes: [u8; SIZE] = payload.try_into().ok()?;
        (bytes[0] == super::BASE_VERSION).then_some(Self { bytes, route: *route, source, partition_key })
    }

    /// Source QPN.
    pub const fn source(&self) -> Qpn {
        self.source
    }

    /// Source LID. `None` if the network is not InfiniBand.
    pub const fn source_lid(&self) -> Option<u16> {
        match self.route.network {
            Network::InfiniBand(local) => Some(local.source),
            _ => None,
        }
    }

    /// The network it arrived on.
    pub const fn network(&self) -> &Network {
        &self.route.network
    }

    /// Its P_Key.
    pub const fn partition_key(&self) -> u16 {
        self.partition_key
    }

    /// The whole datagram.
    pub const fn bytes(&self) -> &[u8; SIZE] {
        &self.bytes
    }

    /// The MAD header.
    pub fn header(&self) -> MadHeader {
        MadHeader::of(&self.bytes)
    }

    /// The response that refuses this request with a status.
    pub fn refused(&self, status: u16) -> [u8; SIZE] {
        let (mut bytes, mut header) = (self.bytes, self.header());
        let answered = super::Method::from_raw(header.method()).answered();
        header.set_method(answered).set_status(status).write_to(&mut bytes);
        bytes
    }

    /// The frame that carries `response` back to the sender, and its ICRC. `None` if the network is not InfiniBand.
    pub fn response_frame(&self, response: &[u8; SIZE]) -> Option<(FrameBuffer, u32)> {
        let Network::InfiniBand(local) = self.route.network else { return None };
        let back = |way: GlobalRoute| GlobalRoute { source: way.destination, destination: way.source };
        let local = LocalRoute {
            source: local.destination,
            destination: local.source,
            global: local.global.map(back),
            ..local
        };
        let route = Route { network: Network::InfiniBand(local), ..self.route };
        let deth = Deth { q_key: GENERAL_SERVICES_QKEY, source: GENERAL_SERVICES };
        Some(datagram_frame(&route, self.source, self.partition_key, deth, response))
    }
}

impl MadHeader {
    /// Decodes the header of a datagram.
    pub fn of(bytes: &[u8; SIZE]) -> Self {
        // A datagram is longer than its header, so this never fails.
        Self::read_from_prefix(bytes).map_or(Self::new(), |(header, _)| header)
    }

    /// Writes the header back.
    pub fn write_to(&self, bytes: &mut [u8; SIZE]) {
        bytes[..Self::SIZE].copy_from_slice(self.as_bytes());
    }
}

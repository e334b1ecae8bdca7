//! Address handles: where a datagram goes. An address handle is a plain value: mlx5 reads the address vector from every work
//! request, so the device holds no object for it.
//!
//! Create one from an [`AddressVector`], for a multicast group, or from the header of a received datagram, to
//! answer its sender.

use crate::address_vector::AddressVector;
use crate::device::{Device, DeviceRef};
use crate::hal::Hal;
use crate::work_completion::{NetworkType, WorkCompletion};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::numbering::PortType;
use bareverbs_prm::wqe::{AddressVector as Segment, OWN_QKEY};
use core::fmt;
use zerocopy::IntoBytes;

/// Bytes before the payload of every received datagram: the global route header, or, for IPv4, the IP header in the last 20
/// bytes (IBTA v1.4 §11.4.1.2; RoCEv2 A17.4.5.2).
pub const ROUTE_HEADER: usize = 40;
/// A Q_Key with this bit set makes the sender use the Q_Key of its own queue pair (IBTA v1.4 §10.2, Q_Keys).
pub const OWN_Q_KEY: u32 = OWN_QKEY;
/// The queue pair number of every port's general services, and their Q_Key (IBTA v1.4 §3.9.2, §9.2.4).
pub const GENERAL_SERVICES_QPN: Qpn = Qpn::from_low_bits(1);
/// Q_Key of [`GENERAL_SERVICES_QPN`].
pub const GENERAL_SERVICES_Q_KEY: u32 = 0x8001_0000;
/// The queue pair number of every multicast group (IBTA v1.4 §10.5, multicast).
pub const MULTICAST_QPN: Qpn = Qpn::from_low_bits(0xff_ffff);

/// The first LID of multicast groups (IBTA v1.4 §4.1.3).
const MULTICAST_LIDS: u16 = 0xc000;
/// Hop limit of an answer: the maximum.
const ANSWER_HOPS: u8 = 255;
/// Words of an address segment.
pub(crate) const WORDS: usize = Segment::SIZE / 8;

/// The path to one port, checked when the handle is created.
///
/// ```
/// use bareverbs_core::queue_pair::AddressVector;
/// use bareverbs_core::{AddressHandle, DeviceRef, QueuePair, Ud, WorkRequest};
/// use bareverbs_prm::ids::Qpn;
/// use std::error::Error;
///
/// fn greet<D: DeviceRef>(
///     queue_pair: &mut QueuePair<D, Ud>,
///     device: &D,
///     (peer, qpn, q_key): (AddressVector, Qpn, u32),
/// ) -> Result<(), Box<dyn Error>> {
///     let way = AddressHandle::new(device, &peer)?;
///     queue_pair.post_send_to(&WorkRequest::send_inline(1, b"hello"), &way.destination(qpn, q_key))?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_ah")]
pub struct AddressHandle {
    segment: Segment,
}

/// A queue pair that receives datagrams: an address handle, a queue pair number and a Q_Key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_wr_set_ud_addr")]
pub struct Destination {
    /// Address segment in memory order.
    words: [u64; WORDS],
}

/// Why an address handle could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressHandleError {
    /// The entry of the RoCE address table is not set.
    NoAddress {
        /// Its index.
        gid_index: u8,
    },
    /// Our own address and the peer's belong to different families; no packet can carry both.
    Family {
        /// Our own.
        own: Gid,
        /// The peer's.
        peer: Gid,
    },
    /// The peer's GID or MAC address is zero.
    NoPeer,
    /// The peer is addressed by LID, but our port is an Ethernet port.
    LidOnEthernet {
        /// The peer's LID.
        lid: u16,
    },
    /// Our port is an InfiniBand port, and the peer's LID is missing.
    NoLid,
    /// The GID is not that of a multicast group.
    NotMulticast {
        /// The given GID.
        gid: Gid,
    },
    /// A field is beyond its limit.
    Limit {
        /// The field.
        name: &'static str,
        /// The requested value.
        asked: u32,
        /// The limit.
        limit: u32,
    },
    /// The completion does not belong to a received datagram with a route header.
    NoRouteHeader,
    /// The datagram was sent to a group, or to an address that is no longer in our table.
    NotOurs {
        /// That address.
        gid: Gid,
    },
}

impl AddressHandle {
    /// A path over Ethernet or InfiniBand. `device` is the device that will send.
    #[doc(alias = "ibv_create_ah")]
    pub fn new<D: DeviceRef>(device: &D, vector: &AddressVector) -> Result<Self, AddressHandleError> {
        let device = device.device();
        check_limits(vector)?;
        let segment = match device.capabilities().port_type {
            PortType::Ethernet => over_ethernet(device, vector)?,
            _ => over_infiniband(vector)?,
        };
        Ok(Self { segment })
    }

    /// A path to all members of a multicast group on Ethernet, where the MAC address follows from the group's GID. On
    /// InfiniBand the subnet manager chooses the group's LID: give LID and GID to [`Self::new`].
    pub fn multicast<D: DeviceRef>(
        device: &D,
        gid_index: u8,
        group: Gid,
    ) -> Result<Self, AddressHandleError> {
        let mac = group.multicast_mac().ok_or(AddressHandleError::NotMulticast { gid: group })?;
        Self::new(device, &AddressVector::roce(gid_index, group, mac))
    }

    /// The path back to the sender of a datagram. `header` holds the [`ROUTE_HEADER`] bytes before the
    /// payload. `mac` is the Ethernet address of the sender or of the router in between: no completion
    /// reports it, and InfiniBand ignores it. On InfiniBand the answer carries a global route header if the
    /// datagram had one; this queries the device's GIDs.
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn to_sender<D: DeviceRef>(
        device: &D,
        completion: &WorkCompletion,
        header: &[u8; ROUTE_HEADER],
        mac: MacAddress,
    ) -> Result<Self, AddressHandleError> {
        if device.device().capabilities().port_type == PortType::Ib {
            let vector = over_subnet(device.device(), completion, header)?;
            return Self::new(device, &vector);
        }
        let received = Received::read(completion, header).ok_or(AddressHandleError::NoRouteHeader)?;
        let Received { source, destination, traffic_class, flow_label } = received;
        let table = 0..=u8::MAX;
        let own = |index: &u8| device.device().gid(u16::from(*index)).is_some_and(|e| e.gid == destination);
        let entries = device.device().capabilities().roce_addresses;
        let found = table.take_while(|index| u16::from(*index) < entries).find(own);
        let gid_index = found.ok_or(AddressHandleError::NotOurs { gid: destination })?;
        let vector = AddressVector::roce(gid_index, source, mac);
        Self::new(device, &AddressVector { traffic_class, flow_label, hop_limit: ANSWER_HOPS, ..vector })
    }

    /// A queue pair at the other end of the path. `q_key` must be that queue pair's Q_Key; with [`OWN_Q_KEY`] the device sends
    /// the Q_Key of the sending queue pair.
    pub fn destination(&self, qpn: Qpn, q_key: u32) -> Destination {
        let mut segment = self.segment;
        segment.set_qkey(q_key).set_extended(true).set_dqpn(qpn);
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(segment.as_bytes().chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        Destination { words }
    }
}

impl Destination {
    pub(crate) const fn words(&self) -> &[u64; WORDS] {
        &self.words
    }
}

fn over_ethernet<H: Hal>(device: &Device<H>, vector: &AddressVector) -> Result<Segment, AddressHandleError> {
    check_ethernet(device, vector)?;
    let mut segment = Segment::new();
    segment.set_roce_sl(vector.service_level).set_udp_sport(vector.udp_source_port);
    set_route(&mut segment, vector);
    segment.set_remote_mac(vector.mac);
    Ok(segment)
}

/// Multicast LIDs are valid too, but require a global route header (IBTA v1.4 §4.1.3, §10.5.1).
fn over_infiniband(vector: &AddressVector) -> Result<Segment, AddressHandleError> {
    if vector.lid == 0 {
        return Err(AddressHandleError::NoLid);
    }
    if vector.lid >= MULTICAST_LIDS && vector.gid.is_zero() {
        return Err(AddressHandleError::NoPeer);
    }
    let mut segment = Segment::new();
    segment.set_sl(vector.service_level).set_rlid(vector.lid).set_extended(true);
    if !vector.gid.is_zero() {
        set_route(&mut segment, vector);
    }
    Ok(segment)
}

/// The path back over InfiniBand.
fn over_subnet<H: Hal>(
    device: &Device<H>,
    completion: &WorkCompletion,
    header: &[u8; ROUTE_HEADER],
) -> Result<AddressVector, AddressHandleError> {
    let origin = completion.origin;
    let (lid, service_level) = (origin.lid(), origin.service_level());
    let vector = AddressVector {
        lid,
        service_level,
        hop_limit: 0,
        ..AddressVector::roce(0, Gid::default(), MacAddress::default())
    };
    if !origin.has_route_header() {
        return Ok(vector);
    }
    let Received { source, destination, traffic_class, flow_label } = Received::read_ipv6(header);
    // The device refuses an index beyond its last entry.
    let table = (0..=u8::MAX).map_while(|index| Some((index, device.infiniband_gid(index.into()).ok()?)));
    let found = table.into_iter().find(|(_, gid)| *gid == destination);
    let (gid_index, _) = found.ok_or(AddressHandleError::NotOurs { gid: destination })?;
    Ok(AddressVector { gid_index, gid: source, traffic_class, flow_label, hop_limit: ANSWER_HOPS, ..vector })
}

fn set_route(segment: &mut Segment, vector: &AddressVector) {
    segment
        .set_tclass(vector.traffic_class)
        .set_hop_limit(vector.hop_limit)
        .set_grh(true)
        .set_sgid_index(vector.gid_index)
        .set_flow_label(vector.flow_label)
        .set_rgid(vector.gid.0)
        .set_extended(true);
}

fn check_limits(vector: &AddressVector) -> Result<(), AddressHandleError> {
    let level = if vector.lid == 0 { Segment::FIELDS.roce_sl } else { Segment::FIELDS.sl };
    let limits = [
        ("flow_label", vector.flow_label, Segment::FIELDS.flow_label.mask() as u32),
        ("service_level", u32::from(vector.service_level), level.mask() as u32),
    ];
    if let Some(&(name, asked, limit)) = limits.iter().find(|(_, asked, limit)| asked > limit) {
        return Err(AddressHandleError::Limit { name, asked, limit });
    }
    Ok(())
}

fn check_ethernet<H: Hal>(device: &Device<H>, vector: &AddressVector) -> Result<(), AddressHandleError> {
    if vector.lid != 0 {
        return Err(AddressHandleError::LidOnEthernet { lid: vector.lid });
    }
    if vector.gid.is_zero() || vector.mac == MacAddress::default() {
        return Err(AddressHandleError::NoPeer);
    }
    let gid_index = vector.gid_index;
    let own = device.gid(u16::from(gid_index)).ok_or(AddressHandleError::NoAddress { gid_index })?;
    match own.is_compatible(vector.gid) {
        true => Ok(()),
        false => Err(AddressHandleError::Family { own: own.gid, peer: vector.gid }),
    }
}

/// The addresses of a route header.
struct Received {
    source: Gid,
    destination: Gid,
    traffic_class: u8,
    flow_label: u32,
}

impl Received {
    fn read(completion: &WorkCompletion, header: &[u8; ROUTE_HEADER]) -> Option<Self> {
        match completion.network_type()? {
            NetworkType::Ipv4 => Some(Self::read_ipv4(header.last_chunk()?)),
            NetworkType::Ipv6 | NetworkType::RoceV1 => Some(Self::read_ipv6(header)),
        }
    }

    fn read_ipv4(header: &[u8; 20]) -> Self {
        let address =
            |at: usize| Gid::from_ipv4([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Self { source: address(12), destination: address(16), traffic_class: header[1], flow_label: 0 }
    }

    /// An IPv6 header and a global route header have the same layout.
    fn read_ipv6(header: &[u8; ROUTE_HEADER]) -> Self {
        let [a, b, c, d, ..] = *header;
        let word = u32::from_be_bytes([a, b, c, d]);
        let address = |at: usize| Gid(core::array::from_fn(|i| header[at + i]));
        let (traffic_class, flow_label) = ((word >> 20) as u8, word & 0xf_ffff);
        Self { source: address(8), destination: address(24), traffic_class, flow_label }
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle")
            .field("gid", &Gid(self.segment.rgid()))
            .field("mac", &self.segment.remote_mac())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for AddressHandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoAddress { gid_index } => {
                write!(f, "entry {gid_index} of the RoCE address table is empty: call Device::set_gid first")
            }
            Self::Family { own, peer } => write!(
                f,
                "our address {own} and the peer's {peer} are of different families: use another gid_index"
            ),
            Self::NoPeer => {
                f.write_str("the GID or the MAC address of the peer is zero: give both, they come from the peer")
            }
            Self::LidOnEthernet { lid } => {
                write!(f, "the peer has LID {lid:#06x}, but our port is an Ethernet port: give its GID and MAC address")
            }
            Self::NoLid => f.write_str(
                "the peer's LID is missing, and our port is an InfiniBand port: exchange LIDs; ask the subnet manager for the LID of a group",
            ),
            Self::NotMulticast { gid } => write!(f, "{gid} is not a multicast group"),
            Self::Limit { name, asked, limit } => {
                write!(f, "an address handle with {name} {asked}: the limit is {limit}")
            }
            Self::NoRouteHeader => f.write_str(
                "the completion does not belong to a received datagram with a route header: ask Origin::has_route_header first",
            ),
            Self::NotOurs { gid } => write!(
                f,
                "the datagram was for {gid}, which is not among our addresses: answer a group with an address handle of your own"
            ),
        }
    }
}

impl core::error::Error for AddressHandleError {}

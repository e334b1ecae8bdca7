//! Management datagrams (MADs), 256 bytes each (IBTA v1.4 §13.4): subnet management to queue pair 0 on a virtual lane
//! of its own (§14.2), and general services to queue pair 1.
//!
//! **Where to read first.** [`SubnetPacket`]; `attributes` for the contents, `general` for queue pair 1,
//! `administration` for the SA's records, `performance` for port counters, `trap_sender` for an agent's traps.

pub mod administration;
pub mod attributes;
mod general;
pub mod performance;
mod trap_sender;
pub(crate) mod values;

pub use general::{GENERAL_SERVICES, GENERAL_SERVICES_QKEY, GeneralPacket};
pub(crate) use trap_sender::TrapSender;

use super::infiniband::{MANAGEMENT_LANE, PERMISSIVE_LID};
use super::opcode::BthOpcode;
use super::packet::{Packet, PacketHeader};
use super::partition::DEFAULT_PARTITION_KEY;
use super::route::{LocalRoute, Network, Route};
use super::service::{Deth, ServiceClass, ServiceHeader};
use super::{Extension, FrameBuffer, FrameWriter, HeaderTemplate};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::layout;
use bareverbs_prm::psn::Psn;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a MAD.
pub const SIZE: usize = 256;
/// Bytes of an attribute in a subnet management packet.
pub const ATTRIBUTE: usize = 64;
/// Subnet management queue pair.
const MANAGEMENT_QP: u32 = 0;

/// Base version of a MAD (IBTA v1.4 §13.4.2).
const BASE_VERSION: u8 = 1;
/// Class version of subnet management and performance management.
pub const CLASS_VERSION: u8 = 1;

const DIRECTION: u16 = 1 << 15;
/// `DrSLID`: LID of the requester, if a directed route starts with a LID-routed part (IBTA v1.4 §14.2.1.2).
const DIRECTED_SOURCE: usize = 32;
const M_KEY: usize = 24;
const ATTRIBUTE_AT: usize = 64;
const INITIAL_PATH: usize = 128;
const RETURN_PATH: usize = 192;
/// Most hops of a directed route: the first of a path's 64 bytes is unused (IBTA v1.4 §14.2.1.2).
pub const HOPS: usize = SIZE - RETURN_PATH - 1;

layout! {
    /// Common MAD header (IBTA v1.4 §13.4.3).
    pub struct MadHeader, "MADHeader", 6;
    bits base_version / set_base_version: u8 = 0[31:24], "BaseVersion";
    bits class / set_class: u8 = 0[23:16], "MgmtClass";
    bits class_version / set_class_version: u8 = 0[15:8], "ClassVersion";
    bits method / set_method: u8 = 0[7:0], "Method";
    bits status / set_status: u16 = 1[31:16], "Status";
    bits class_specific / set_class_specific: u16 = 1[15:0], "ClassSpecific";
    wide transaction / set_transaction: u64 = 2, "TransactionID";
    bits attribute / set_attribute: u16 = 4[31:16], "AttributeID";
    bits modifier / set_modifier: u32 = 5[31:0], "AttributeModifier";
}

/// Management classes (IBTA v1.4 §13.4.4).
pub mod class {
    /// Subnet management, LID routed.
    pub const LID_ROUTED: u8 = 0x01;
    /// Subnet management, directed route.
    pub const DIRECTED_ROUTE: u8 = 0x81;
    /// Subnet administration.
    pub const ADMINISTRATION: u8 = 0x03;
    /// Performance management.
    pub const PERFORMANCE: u8 = 0x04;
    /// Baseboard management.
    pub const BASEBOARD: u8 = 0x05;
    /// Communication management.
    pub const COMMUNICATION: u8 = 0x07;
}

use class::{DIRECTED_ROUTE, LID_ROUTED};

/// Method of a MAD (IBTA v1.4 §13.4.5).
///
/// ```
/// use bareverbs_sim::wire::management::Method;
///
/// assert_eq!(Method::from_raw(0x02), Method::Set);
/// assert_eq!(Method::Set.answered(), 0x81, "the response is a GetResp");
/// assert!(!Method::Trap.has_response());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads an attribute.
    Get,
    /// Writes an attribute.
    Set,
    /// The response to either.
    Response,
    /// Reports an event.
    Trap,
    /// Acknowledges a trap.
    TrapRepress,
    /// Any other method.
    Other(u8),
}

impl Method {
    /// Method of the response: GetResp for Get and Set, otherwise the method with the high bit set (IBTA v1.4 §13.4.5).
    pub const fn answered(self) -> u8 {
        match self {
            Self::Get | Self::Set => Self::Response.to_raw(),
            other => other.to_raw() | 0x80,
        }
    }

    /// Decodes a method.
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            0x01 => Self::Get,
            0x02 => Self::Set,
            0x81 => Self::Response,
            0x05 => Self::Trap,
            0x07 => Self::TrapRepress,
            other => Self::Other(other),
        }
    }

    /// Whether an agent that does not support the method responds with an error; other methods get no response (IBTA
    /// v1.4 §13.4.5).
    pub const fn has_response(self) -> bool {
        matches!(self, Self::Get | Self::Set | Self::Other(0x06 | 0x12..=0x15))
    }

    const fn to_raw(self) -> u8 {
        match self {
            Self::Get => 0x01,
            Self::Set => 0x02,
            Self::Response => 0x81,
            Self::Trap => 0x05,
            Self::TrapRepress => 0x07,
            Self::Other(other) => other,
        }
    }
}

/// Attribute IDs (IBTA v1.4 §14.2.5).
pub mod attribute {
    /// NodeDescription.
    pub const NODE_DESCRIPTION: u16 = 0x10;
    /// NodeInfo.
    pub const NODE_INFO: u16 = 0x11;
    /// Notice.
    pub const NOTICE: u16 = 0x02;
    /// SwitchInfo.
    pub const SWITCH_INFO: u16 = 0x12;
    /// LinearForwardingTable.
    pub const LINEAR_FORWARDING: u16 = 0x19;
    /// MulticastForwardingTable.
    pub const MULTICAST_FORWARDING: u16 = 0x1b;
    /// GUIDInfo.
    pub const GUID_INFO: u16 = 0x14;
    /// PortInfo.
    pub const PORT_INFO: u16 = 0x15;
    /// P_KeyTable.
    pub const PARTITION_KEYS: u16 = 0x16;
    /// SLtoVLMappingTable.
    pub const SL_TO_VL: u16 = 0x17;
    /// VLArbitrationTable.
    pub const VL_ARBITRATION: u16 = 0x18;
    /// SMInfo.
    pub const SM_INFO: u16 = 0x20;
    /// Vendor attribute ExtendedPortInfo, which infiniband-diags reads from ConnectX adapters.
    pub const VENDOR_PORT_INFO: u16 = 0xff90;
    /// ClassPortInfo; all classes except subnet management have it.
    pub const CLASS_PORT_INFO: u16 = 0x01;
    /// PortCounters, of performance management (IBTA v1.4 §16.1.3.5).
    pub const PORT_COUNTERS: u16 = 0x12;
    /// PortCountersExtended (IBTA v1.4 §16.1.4.11).
    pub const PORT_COUNTERS_EXTENDED: u16 = 0x1d;
}

/// `NodeType` of NodeInfo (IBTA v1.4 §14.2.5.3).
pub mod node_type {
    /// A channel adapter.
    pub const CHANNEL_ADAPTER: u8 = 1;
    /// A switch.
    pub const SWITCH: u8 = 2;
    /// A router to another subnet.
    pub const ROUTER: u8 = 3;
}

/// Port states (IBTA v1.4 §14.2.5.6).
///
/// ```
/// use bareverbs_sim::wire::management::PortState;
///
/// assert_eq!(PortState::from_raw(4), Some(PortState::Active));
/// assert_eq!(PortState::from_raw(0), None, "no change is asked for");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortState {
    /// The link is down.
    Down = 1,
    /// The link is up, but only for subnet management.
    Initialize = 2,
    /// Configured: it receives data, but may not send until it becomes active.
    Armed = 3,
    /// Fully operational.
    Active = 4,
}

impl PortState {
    /// The state that an SM requests with this number; 0 requests no change.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Down),
            2 => Some(Self::Initialize),
            3 => Some(Self::Armed),
            4 => Some(Self::Active),
            _ => None,
        }
    }
}

/// `status` of responses (IBTA v1.4 §13.4.7).
pub mod status {
    /// Success.
    pub const OK: u16 = 0;
    /// The agent is busy; retry.
    pub const BUSY: u16 = 1;
    /// Unsupported class or class version.
    pub const BAD_VERSION: u16 = 1 << 2;
    /// Unsupported method.
    pub const BAD_METHOD: u16 = 2 << 2;
    /// Unsupported attribute, or attribute and method combination.
    pub const UNSUPPORTED: u16 = 3 << 2;
    /// Invalid value in a field or in the attribute modifier.
    pub const INVALID: u16 = 7 << 2;
}

/// A subnet management packet (SMP).
///
/// ```
/// use bareverbs_sim::wire::management::{Method, SubnetPacket, attribute, status};
///
/// let mut packet = SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 0x1234);
/// packet.leave_by(1);
/// assert!(packet.arrive(1), "the route of one hop ends here");
/// packet.answer(status::OK);
/// assert_eq!((packet.method(), packet.transaction()), (Method::Response, 0x1234));
/// assert!(packet.is_returning());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetPacket([u8; SIZE]);

impl SubnetPacket {
    /// A one-hop directed-route request to the node behind port `exit`, from the first switch or from one end of a
    /// cable.
    pub fn request(method: Method, attribute: u16, modifier: u32, transaction: u64) -> Self {
        let mut packet = Self([0; SIZE]);
        let bytes = &mut packet.0;
        bytes[..4].copy_from_slice(&[1, DIRECTED_ROUTE, 1, method.to_raw()]);
        bytes[8..16].copy_from_slice(&transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes[20..24].copy_from_slice(&modifier.to_be_bytes());
        bytes[32..36].fill(0xff);
        packet
    }

    /// Sets a directed route of one hop, through port `exit`.
    pub fn leave_by(&mut self, exit: u8) {
        self.leave_along(&[exit]);
    }

    /// Sets a directed route, given as the egress port of each hop; the first is the sender's port. An empty route
    /// stays at the sender. False if there are more than [`HOPS`].
    pub fn leave_along(&mut self, exits: &[u8]) -> bool {
        if exits.len() > HOPS {
            return false;
        }
        (self.0[6], self.0[7]) = (1, exits.len() as u8);
        self.0[INITIAL_PATH + 1..][..exits.len()].copy_from_slice(exits);
        true
    }

    /// Decodes a payload of the right length and of a subnet management class.
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        let bytes: [u8; SIZE] = payload.try_into().ok()?;
        (bytes[0] == BASE_VERSION && matches!(bytes[1], LID_ROUTED | DIRECTED_ROUTE)).then_some(Self(bytes))
    }

    /// The whole packet.
    pub const fn bytes(&self) -> &[u8; SIZE] {
        &self.0
    }

    /// The method.
    pub const fn method(&self) -> Method {
        Method::from_raw(self.0[3])
    }

    /// Attribute and modifier.
    pub const fn attribute(&self) -> (u16, u32) {
        let number = u16::from_be_bytes([self.0[16], self.0[17]]);
        (number, u32::from_be_bytes([self.0[20], self.0[21], self.0[22], self.0[23]]))
    }

    /// Transaction ID, which matches a response to its request.
    pub fn transaction(&self) -> u64 {
        self.0[8..16].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Status of a response, without the direction bit.
    pub const fn status(&self) -> u16 {
        u16::from_be_bytes([self.0[4], self.0[5]]) & !DIRECTION
    }

    /// The attribute's data.
    pub fn data(&self) -> &[u8] {
        &self.0[ATTRIBUTE_AT..ATTRIBUTE_AT + ATTRIBUTE]
    }

    /// The attribute's data, mutable.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.0[ATTRIBUTE_AT..ATTRIBUTE_AT + ATTRIBUTE]
    }

    /// M_Key, which authorizes an SM to change a port (IBTA v1.4 §14.2.4).
    pub fn m_key(&self) -> u64 {
        self.0[M_KEY..M_KEY + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Class version.
    pub const fn class_version(&self) -> u8 {
        self.0[2]
    }

    /// Decodes the attribute's data.
    pub fn read<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.data()).ok().map(|(attribute, _)| attribute)
    }

    /// Replaces the attribute's data; the remainder is zero.
    pub fn write(&mut self, attribute: &(impl IntoBytes + zerocopy::Immutable)) {
        let (bytes, data) = (attribute.as_bytes(), self.data_mut());
        data.fill(0);
        let length = bytes.len().min(data.len());
        data[..length].copy_from_slice(&bytes[..length]);
    }

    const fn is_directed(&self) -> bool {
        self.0[1] == DIRECTED_ROUTE
    }

    /// Whether the packet is LID-routed where it is now. A directed route may have a LID-routed part before its first
    /// switch, and again on the way back (IBTA v1.4 §14.2.2).
    pub const fn is_lid_routed(&self) -> bool {
        !self.is_directed() || self.0[6] == 0 && self.directed_source() != PERMISSIVE_LID
    }

    const fn directed_source(&self) -> u16 {
        u16::from_be_bytes([self.0[DIRECTED_SOURCE], self.0[DIRECTED_SOURCE + 1]])
    }

    const fn is_backwards(&self) -> bool {
        u16::from_be_bytes([self.0[4], self.0[5]]) & DIRECTION != 0
    }

    /// Advances a returning directed route, at the switch where it began, to its LID-routed part. Returns the
    /// requester's LID (IBTA v1.4 §14.2.2.4) and moves the hop pointer.
    pub fn return_by_lid(&mut self) -> Option<u16> {
        let lid = self.directed_source();
        if !self.is_directed() || !self.is_backwards() || self.0[6] != 1 || lid == PERMISSIVE_LID {
            return None;
        }
        self.0[6] = 0;
        Some(lid)
    }

    /// Whether it is a response on its way back (IBTA v1.4 §14.2.2).
    pub const fn is_returning(&self) -> bool {
        matches!(self.method(), Method::Response) || self.is_directed() && self.is_backwards()
    }

    /// Whether a packet sent by the port's own host ends at that host: software has moved the hop pointer past the end
    /// of the route (IBTA v1.4 §14.2.2.2) and recorded the port.
    pub const fn ends_at_host(&self) -> bool {
        !self.is_directed() || self.0[6] == self.0[7].saturating_add(1)
    }

    /// Whether a directed route ends here, at port `port` of an adapter (IBTA v1.4 §14.2.2.2). Records the return path.
    /// A LID-routed packet always ends where it arrives.
    pub fn arrive(&mut self, port: u8) -> bool {
        if !self.is_directed() {
            return true;
        }
        let (pointer, count) = (self.0[6], self.0[7]);
        if self.is_backwards() {
            return pointer <= 1;
        }
        if pointer != count || usize::from(pointer) >= SIZE - RETURN_PATH {
            return false;
        }
        self.0[RETURN_PATH + usize::from(pointer)] = port;
        self.0[6] = pointer + 1;
        true
    }

    /// Egress port of a directed route, in either direction, at a switch that it entered through `ingress`; `None` if
    /// it ends here (IBTA v1.4 §14.2.2.2, §14.2.2.4). Moves the hop pointer; a request records its return path.
    pub fn pass(&mut self, ingress: u8) -> Option<u8> {
        let (pointer, count) = (self.0[6], self.0[7]);
        let at = usize::from(pointer);
        if !self.is_directed() || usize::from(count) > HOPS {
            return None;
        }
        if self.is_backwards() {
            if pointer < 2 || pointer > count {
                return None;
            }
            self.0[6] = pointer - 1;
            return Some(self.0[RETURN_PATH + at - 1]);
        }
        if pointer >= count || pointer == 0 && !self.is_lid_routed() {
            return None;
        }
        // After a LID-routed first part, the way back is LID-routed as well.
        if pointer > 0 {
            self.0[RETURN_PATH + at] = ingress;
        }
        self.0[6] = pointer + 1;
        Some(self.0[INITIAL_PATH + at + 1])
    }

    /// The directed route from here back to the requester (IBTA v1.4 §14.2.2.2); empty for a LID-routed request.
    pub fn way_back(&self) -> Vec<u8> {
        let count = if self.is_directed() { usize::from(self.0[7]).min(HOPS) } else { 0 };
        self.0[RETURN_PATH + 1..][..count].iter().rev().copied().collect()
    }

    /// A LID-routed packet that is no request: a trap or TrapRepress.
    pub fn lid_routed(method: Method, attribute: u16, transaction: u64) -> Self {
        let mut packet = Self::request(method, attribute, 0, transaction);
        packet.0[1] = LID_ROUTED;
        packet.0[32..36].fill(0);
        packet
    }

    /// Turns a request that arrived over the link into its response, with the current attribute data. Moves the hop
    /// pointer back (IBTA v1.4 §14.2.2.3).
    pub fn answer(&mut self, status: u16) {
        self.answer_at_host(status);
        if self.is_directed() {
            self.0[6] = self.0[6].saturating_sub(1);
        }
    }

    /// Turns a request of the port's own host into its response. The host moves the hop pointer back itself.
    pub fn answer_at_host(&mut self, status: u16) {
        self.0[3] = self.method().answered();
        let direction = if self.is_directed() { DIRECTION } else { 0 };
        self.0[4..6].copy_from_slice(&(status | direction).to_be_bytes());
    }

    /// The frame of the packet, and its ICRC. Directed routes use permissive LIDs except in their LID-routed parts; all
    /// other packets go from `source` to `destination`.
    pub fn to_frame(&self, source: u16, destination: u16) -> (FrameBuffer, u32) {
        let by_lid = self.is_lid_routed();
        let [source, destination] =
            [source, destination].map(|lid| if by_lid { lid } else { PERMISSIVE_LID });
        let local =
            LocalRoute { source, destination, service_level: 0, virtual_lane: MANAGEMENT_LANE, global: None };
        let qp = Qpn::from_low_bits(MANAGEMENT_QP);
        datagram_frame(&local.into(), qp, DEFAULT_PARTITION_KEY, Deth { q_key: 0, source: qp }, &self.0)
    }

    /// The SMP in an InfiniBand packet.
    pub fn of(packet: &Packet<'_>) -> Option<Self> {
        let Network::InfiniBand(local) = packet.route.network else { return None };
        let management =
            local.virtual_lane == MANAGEMENT_LANE && packet.bth.destination.value() == MANAGEMENT_QP;
        (management && packet.service_header.deth().is_some()).then(|| Self::from_payload(packet.payload))?
    }
}

/// The frame of a MAD, and its ICRC.
fn datagram_frame(
    route: &Route,
    destination: Qpn,
    partition_key: u16,
    deth: Deth,
    payload: &[u8; SIZE],
) -> (FrameBuffer, u32) {
    let template =
        HeaderTemplate::new(route, destination, partition_key).of_service(ServiceClass::UnreliableDatagram);
    let header = PacketHeader {
        opcode: BthOpcode::SendOnly,
        psn: Psn::new(0),
        solicited: false,
        ack_request: false,
        service_header: ServiceHeader::Deth(deth),
        extension: Extension::None,
    };
    let (mut frame, mut icrc) = (FrameBuffer::new(), 0);
    // 256 bytes fit every packet.
    if let Ok(mut writer) = FrameWriter::begin(&mut frame, &template, &header, SIZE) {
        writer.payload_mut().copy_from_slice(payload);
        icrc = writer.finish();
    }
    (frame, icrc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::infiniband::parse;

    /// Requirement: IBTA v1.4 §14.2.2: a directed route counts its hops in both directions, and records the ingress
    /// ports.
    #[test]
    fn a_directed_route_goes_there_and_back() {
        let mut asked = SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 77);
        asked.leave_by(3);
        let (frame, _) = asked.to_frame(0, 0);
        let mut there = SubnetPacket::of(&parse(&frame).expect("a packet")).expect("of subnet management");
        assert_eq!((there.method(), there.attribute(), there.transaction()), (Method::Get, (0x11, 0), 77));
        assert!(there.arrive(1));
        assert_eq!((there.0[6], there.0[RETURN_PATH + 1]), (2, 1));
        there.data_mut()[0] = 9;
        there.answer(status::OK);
        let (frame, _) = there.to_frame(0, 0);
        let mut back = SubnetPacket::of(&parse(&frame).expect("a packet")).expect("of subnet management");
        assert!(back.arrive(0));
        assert_eq!((back.method(), back.status(), back.data()[0]), (Method::Response, status::OK, 9));
        assert_eq!(u16::from_be_bytes([back.0[4], back.0[5]]), DIRECTION);
    }

    /// Requirement: IBTA v1.4 §14.2.2: a directed route of several hops leaves each switch by the next port of its path,
    /// and returns by the recorded ports.
    #[test]
    fn a_directed_route_passes_switches() {
        let mut asked = SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 1);
        assert!(asked.leave_along(&[3, 7, 9]) && !asked.clone().leave_along(&[1; 64]));
        assert_eq!((asked.pass(11), asked.pass(12), asked.pass(13)), (Some(7), Some(9), None));
        assert!(asked.arrive(5));
        asked.answer(status::OK);
        assert_eq!((asked.pass(1), asked.pass(1), asked.pass(1)), (Some(12), Some(11), None));
        assert!(asked.arrive(3));
    }

    /// Requirement: IBTA v1.4 §14.2.2: a directed route with a LID-routed part leaves the switch at the end of that part
    /// by its first port, and returns from there to the requester's LID.
    #[test]
    fn a_directed_route_begins_and_ends_with_lids() {
        let mut asked = SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 1);
        asked.leave_along(&[3]);
        asked.0[DIRECTED_SOURCE..][..2].copy_from_slice(&[0, 9]);
        assert_eq!((asked.clone().return_by_lid(), asked.is_lid_routed()), (None, false));
        asked.0[6] = 0;
        assert!(asked.is_lid_routed());
        let lids = |packet: &SubnetPacket| packet.to_frame(9, 7).0[2..4].to_vec();
        assert_eq!(lids(&asked), [0, 7]);
        assert_eq!((asked.pass(11), asked.pass(11), asked.is_lid_routed()), (Some(3), None, false));
        assert_eq!(lids(&asked), [0xff, 0xff]);
        assert!(asked.arrive(1));
        asked.answer(status::OK);
        assert_eq!((asked.pass(1), asked.return_by_lid()), (None, Some(9)));
        assert!(asked.is_lid_routed() && asked.arrive(1));
        asked.0[DIRECTED_SOURCE..][..2].fill(0xff);
        asked.0[6] = 1;
        assert_eq!(asked.return_by_lid(), None, "it has come by ports only");
    }

    #[test]
    fn a_route_that_goes_on_does_not_end_here() {
        let mut asked = SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, 1);
        (asked.0[6], asked.0[7]) = (1, 2);
        assert!(!asked.arrive(1));
        (asked.0[6], asked.0[7]) = (0xff, 0xff);
        assert!(!asked.arrive(1));
        assert!(SubnetPacket::from_payload(&[0; SIZE]).is_none());
        assert!(SubnetPacket::from_payload(&[1; 12]).is_none());
    }
}

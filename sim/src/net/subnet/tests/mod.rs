//! A switch with the SM, and ports that obey it.

mod arbitrary;
mod events;
mod further_switch;
mod groups;
mod lids;
mod links;
mod manager;
mod own_port;
mod partitions;
mod paths;
mod performance;
mod random;
mod records;
mod services;
mod succession;
mod tables;
mod transfer;

use super::*;
use crate::net::switch::{Egress, Switch};
use crate::wire::management::administration::{AdministrationPacket, CLASS_VERSION, SaHeader, method};
use crate::wire::management::attributes::{NodeInfo, PortInfo, SmInfo};
use crate::wire::management::{
    GENERAL_SERVICES_QKEY, MadHeader, Method, PortState, SIZE, attribute, class, status,
};
use crate::wire::{
    BthOpcode, Deth, Extension, FrameBuffer, FrameWriter, HeaderTemplate, LocalRoute, PacketHeader,
    ServiceClass, ServiceHeader,
};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// QPN of the requester.
const ASKER: u32 = 0x55;
const GET: u8 = 1;
const SET: u8 = 2;
const PREFIX: u64 = 0xfe80 << 48;
/// Default SM_Key of a subnet.
const SM_KEY: u64 = 1;

/// A port that obeys the SM.
struct Agent {
    guid: u64,
    lid: u16,
    manager_lid: u16,
    lmc: u8,
    state: PortState,
    keys: [u8; 64],
    mtu: u8,
    refuses_tables: bool,
    /// Whether its clients were told to register again.
    reregisters: bool,
    /// SMInfo of the SM that runs there.
    manager: Option<SmInfo>,
    /// `LinkWidth` of a port with 25 Gb/s per lane.
    width: u8,
}

impl Agent {
    fn new(guid: u64) -> Self {
        let state = PortState::Initialize;
        Self {
            guid,
            lid: 0,
            manager_lid: 0,
            lmc: 0,
            state,
            keys: [0; 64],
            mtu: 5,
            refuses_tables: false,
            reregisters: false,
            manager: None,
            width: 2,
        }
    }

    fn answer(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut packet = SubnetPacket::of(&parse(frame).expect("a packet")).expect("a management packet");
        assert!(packet.arrive(1));
        let mut refused = status::OK;
        match (packet.method(), packet.attribute().0) {
            (Method::Get, attribute::NODE_INFO) => packet.write(&self.node_info()),
            (Method::Get, attribute::NODE_DESCRIPTION) => packet.data_mut()[..4].copy_from_slice(b"node"),
            (Method::Set, attribute::PARTITION_KEYS) => self.keys.copy_from_slice(packet.data()),
            (Method::Set, attribute::PORT_INFO) => {
                let requested: PortInfo = packet.read().expect("the attribute fits into a packet");
                (self.lid, self.lmc, self.manager_lid) =
                    (requested.lid(), requested.lmc(), requested.master_sm_lid());
                self.state = self.next_state(requested.port_state());
                self.reregisters |= requested.client_reregister();
                packet.write(&self.port_info());
            }
            (Method::Get, attribute::PORT_INFO) => packet.write(&self.port_info()),
            (Method::Get, attribute::GUID_INFO | attribute::SL_TO_VL | attribute::VL_ARBITRATION)
                if self.refuses_tables =>
            {
                refused = status::UNSUPPORTED;
            }
            (Method::Get, attribute::GUID_INFO) => packet.write(&[[0_u8; 8], [0x77; 8], [0; 8]]),
            (Method::Get, attribute::SL_TO_VL) => packet.data_mut()[..8].fill(0x12),
            (Method::Get, attribute::VL_ARBITRATION) => {
                let block = (packet.attribute().1 >> 16) as u8;
                packet.data_mut().fill(block);
            }
            (Method::Get | Method::Set, attribute::SM_INFO) => {
                packet.write(&self.manager.expect("an SM is here"));
            }
            other => panic!("{other:?}"),
        }
        packet.answer(refused);
        packet.to_frame(0, 0).0.into_bytes()
    }

    /// The port state that an SM requests; 0 means no change.
    fn next_state(&self, requested: u8) -> PortState {
        if requested == 0 { self.state } else { PortState::from_raw(requested).expect("a state") }
    }

    fn node_info(&self) -> NodeInfo {
        let mut info = NodeInfo::new();
        info.set_base_version(1).set_class_version(1).set_node_type(1).set_num_ports(1);
        info.set_node_guid(self.guid).set_port_guid(self.guid).set_local_port_num(1);
        info
    }

    fn port_info(&self) -> PortInfo {
        let mut info = PortInfo::new();
        info.set_gid_prefix(PREFIX).set_lid(self.lid).set_lmc(self.lmc).set_port_state(self.state as u8);
        info.set_neighbor_mtu(self.mtu).set_link_width_active(self.width).set_link_speed_ext_active(2);
        info.set_local_port_num(1)
            .set_m_key(0xaa)
            .set_capability_mask(1 << 14 | 1 << 6 | u32::from(self.manager.is_some()) << 1);
        info
    }
}

fn converse(switch: &mut Switch, agents: &mut [Agent], now: Time) {
    while let Some(Egress::Own { port, frame, .. }) = switch.poll() {
        let response = agents[port].answer(&frame);
        switch.handle_frame(now, port, &response);
        assert_eq!(switch.poll_exit(), None);
    }
}

/// A subnet with two active ports.
fn subnet(lmc: u8) -> (Switch, Vec<Agent>) {
    let partitions = Partitions::of_all(&[0xffff, 0x8001]);
    let config = SubnetConfig { lmc, partitions, ..SubnetConfig::default() };
    subnet_of(config, vec![Agent::new(0xa), Agent::new(0xb)])
}

fn subnet_of(config: SubnetConfig, mut agents: Vec<Agent>) -> (Switch, Vec<Agent>) {
    let mut switch = Switch::infiniband(config);
    for port in 0..agents.len() {
        switch.handle_link(Time::ZERO, port, true);
    }
    converse(&mut switch, &mut agents, Time::ZERO);
    (switch, agents)
}

/// Checks what the SM on a switch notes about its requests, if there is one.
fn check_pending(switch: &Switch) {
    let managing = switch.subnet().and_then(|subnet| subnet.managing.as_deref());
    managing.into_iter().for_each(|managing| managing.manager.check_pending());
}

fn gid(guid: u64) -> [u8; 16] {
    (u128::from(PREFIX) << 64 | u128::from(guid)).to_be_bytes()
}

/// A request to the SA, with a record after the headers.
fn request(
    method: u8,
    number: u16,
    mask: u64,
    record: &(impl IntoBytes + Immutable),
) -> AdministrationPacket {
    let mut packet = AdministrationPacket::of(&[0; SIZE]);
    packet.mad.set_base_version(1).set_class(class::ADMINISTRATION).set_class_version(CLASS_VERSION);
    packet.mad.set_method(method).set_attribute(number).set_transaction(0x77);
    packet.sa.set_component_mask(mask);
    packet.data[..record.as_bytes().len()].copy_from_slice(record.as_bytes());
    packet
}

/// A general services datagram from a LID to the SM's.
fn general_frame(source: u16, bytes: &[u8; SIZE], q_key: u32, partition_key: u16) -> FrameBuffer {
    general_frame_between([source, MANAGER_LID], bytes, q_key, partition_key)
}

/// A general services datagram from one LID to another.
fn general_frame_between(
    [source, destination]: [u16; 2],
    bytes: &[u8; SIZE],
    q_key: u32,
    partition_key: u16,
) -> FrameBuffer {
    let local = LocalRoute { source, destination, service_level: 0, virtual_lane: 0, global: None };
    let template = HeaderTemplate::new(&local.into(), Qpn::from_low_bits(1), partition_key)
        .of_service(ServiceClass::UnreliableDatagram);
    let header = PacketHeader {
        opcode: BthOpcode::SendOnly,
        psn: Psn::new(0),
        solicited: false,
        ack_request: false,
        service_header: ServiceHeader::Deth(Deth { q_key, source: Qpn::from_low_bits(ASKER) }),
        extension: Extension::None,
    };
    let mut frame = FrameBuffer::new();
    let mut writer = FrameWriter::begin(&mut frame, &template, &header, SIZE).expect("it fits");
    writer.payload_mut().copy_from_slice(bytes);
    writer.finish();
    frame
}

/// Sends a datagram from an agent's port and returns the responses it gets.
fn send(switch: &mut Switch, agents: &[Agent], from: usize, bytes: &[u8; SIZE]) -> Vec<AdministrationPacket> {
    let frame = general_frame(agents[from].lid, bytes, GENERAL_SERVICES_QKEY, 0xffff);
    switch.handle_frame(Time::ZERO, from, &frame);
    responses(switch, from)
}

/// The SA's packets for one port.
fn responses(switch: &mut Switch, to: usize) -> Vec<AdministrationPacket> {
    let mut responses = Vec::new();
    while let Some(egress) = switch.poll() {
        let Egress::Own { port, frame, .. } = egress else { panic!("{egress:?}") };
        let packet = parse(&frame).expect("an InfiniBand packet");
        assert_eq!((port, packet.bth.destination.value()), (to, ASKER));
        assert_eq!(packet.service_header.deth().map(|deth| deth.q_key), Some(GENERAL_SERVICES_QKEY));
        responses.push(AdministrationPacket::of(packet.payload.try_into().expect("a datagram")));
    }
    responses
}

/// The single response to a request.
fn ask(
    switch: &mut Switch,
    agents: &[Agent],
    from: usize,
    request: &AdministrationPacket,
) -> AdministrationPacket {
    let mut responses = send(switch, agents, from, &request.to_bytes());
    assert_eq!(responses.len(), 1, "{responses:?}");
    let response = responses.remove(0);
    assert_eq!(response.mad.transaction(), request.mad.transaction());
    response
}

/// All records of a table and the segments they came in. Acknowledges each segment as it arrives.
fn table<T: FromBytes>(
    switch: &mut Switch,
    agents: &[Agent],
    from: usize,
    request: &AdministrationPacket,
) -> (Vec<T>, u32) {
    let (mut bytes, mut segments, mut stride) = (Vec::new(), 0, 0);
    let mut arrived = send(switch, agents, from, &request.to_bytes());
    while let [segment, ..] = &arrived[..] {
        assert_eq!(
            (segment.mad.method(), segment.mad.status()),
            (method::GET_TABLE | 0x80, 0),
            "{segment:?}"
        );
        segments += 1;
        assert_eq!((segment.rmpp.kind(), segment.rmpp.segment()), (1, segments));
        stride = usize::from(segment.sa.attribute_offset()) * 8;
        let is_last = segment.rmpp.flags() & 4 != 0;
        let length =
            if is_last { segment.rmpp.length() as usize - SaHeader::SIZE } else { segment.data.len() };
        bytes.extend_from_slice(&segment.data[..length]);
        let acknowledgement = acknowledge(segment, segments, segments + 1);
        arrived = send(switch, agents, from, &acknowledgement.to_bytes());
        assert_eq!(arrived.is_empty(), is_last);
    }
    let records = bytes.chunks(stride.max(1)).map(|record| T::read_from_prefix(record).expect("a record").0);
    (records.collect(), segments)
}

/// The ACK of a segment; its method is the requester's.
fn acknowledge(segment: &AdministrationPacket, number: u32, window: u32) -> AdministrationPacket {
    let mut packet = segment.clone();
    packet.mad.set_method(method::GET_TABLE);
    packet.rmpp.set_kind(2).set_flags(1).set_status(0).set_segment(number).set_length(window);
    packet
}

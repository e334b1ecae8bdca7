//! The subnet administration (SA; IBTA v1.4 §15). At queue pair 1 of the SM's LID it answers queries for nodes, ports,
//! links and paths, and handles multicast groups and services.
//!
//! **Where to read first.** [`Administration::handle_packet`]; `groups` and `paths` for records that go beyond the
//! ports' own attributes, `transfer` for responses longer than a datagram, `subscriptions` for event reports.
//!
//! **What it may not do.** It serves the standard's records except traces and random forwarding tables. A request with
//! a wrong SM_Key gets no response, but is counted.

mod components;
mod groups;
mod links;
mod multi_paths;
mod paths;
mod rate;
mod record_list;
mod selector;
mod services;
mod subscriptions;
mod switches;
mod tables;
mod transfer;

use super::directory::Directory;
use super::end_port::EndPort;
use super::events::SubnetEvent;
use super::forwarding_plan::GroupPort;
use super::losses::ManagementLosses;
use crate::wire::FrameBuffer;
use crate::wire::management::administration::{
    AdministrationPacket, CLASS_VERSION, LinkRecord, McMemberRecord, NodeRecord, PathRecord, PortInfoRecord,
    RmppHeader, SaHeader, ServiceRecord, method, record, status as sa_status,
};
use crate::wire::management::attributes::ClassPortInfo;
use crate::wire::management::values::SUBNET_TIMEOUT;
use crate::wire::management::{GeneralPacket, Method, SIZE, attribute, class, status};
use bareverbs_prm::field::Layout;
use bareverbs_prm::time::Time;
pub(super) use groups::GroupEvent;
use groups::{GroupRequest, MulticastGroups};
use links::LinkRequest;
use multi_paths::MultiPathRequest;
use paths::PathRequest;
use record_list::RecordList;
use services::{ServiceRequest, Services};
use std::collections::VecDeque;
use subscriptions::Subscriptions;
use tables::TableRequest;
use transfer::{ACTIVE, Transfers, whole_request};
use zerocopy::{FromBytes, IntoBytes};

/// `CapabilityMask`: UD multicast; PortInfoRecord can be matched by single CapabilityMask bits. `CapabilityMask2`:
/// send-only full members (IBTA v1.4 §15.2.4.1).
const CAPABILITIES: u16 = 1 << 9 | 1 << 13;
const CAPABILITIES2: u32 = 1 << 12;
/// Maximum number of responses waiting for the switch. The switch takes them after every frame, so all of
/// them answer one frame.
const WAITING: usize = 256;
/// The AttributeModifier bit with which a query for PortInfoRecord matches the CapabilityMask bits that are set and
/// ignores the others, and the component's bit in the mask (IBTA v1.4 §15.2.5.3).
const MATCH_BITS: u32 = 1 << 31;
const CAPABILITY_MASK: u64 = 1 << 7;
/// Component mask bit of `Options` in PortInfoRecord. A response repeats the request's.
const OPTIONS: u64 = 1 << 2;
/// Component mask bit of the LID in NodeRecord and PortInfoRecord.
const LID: u64 = 1;
const GET_TABLE: Method = Method::from_raw(method::GET_TABLE);
const GET_MULTI: Method = Method::from_raw(method::GET_MULTI);
const DELETE: Method = Method::from_raw(method::DELETE);

/// The SA; see the module.
#[derive(Debug)]
pub(super) struct Administration {
    sm_key: u64,
    groups: MulticastGroups,
    services: Services,
    subscriptions: Subscriptions,
    transfers: Transfers,
    responses: VecDeque<(FrameBuffer, u32)>,
    /// Packets that were neither sent nor answered since the switch last asked.
    losses: ManagementLosses,
}

/// A request whose sender is known.
struct AdministrationRequest<'a> {
    datagram: &'a GeneralPacket,
    packet: &'a AdministrationPacket,
    requester: EndPort<'a>,
    is_trusted: bool,
}

impl Administration {
    /// `ip_keys` are the full-member P_Keys of partitions with an IPoIB broadcast group.
    pub(super) fn new(sm_key: u64, ip_keys: impl Iterator<Item = u16>) -> Self {
        let groups = MulticastGroups::new(ip_keys);
        Self {
            sm_key,
            groups,
            services: Services::default(),
            subscriptions: Subscriptions::default(),
            transfers: Transfers::default(),
            responses: VecDeque::new(),
            losses: ManagementLosses::default(),
        }
    }

    /// Handles a datagram to queue pair 1. `is_free` tells whether the switch does not use a multicast LID.
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        datagram: GeneralPacket,
        directory: &Directory<'_>,
        is_free: impl Fn(u16) -> bool,
    ) {
        let mut packet = AdministrationPacket::of(datagram.bytes());
        let is_ours =
            packet.mad.class() == class::ADMINISTRATION && packet.mad.class_version() == CLASS_VERSION;
        if is_ours && packet.rmpp.flags() & ACTIVE != 0 {
            let request = whole_request(&packet);
            let is_request = request.is_some();
            let said = request.or_else(|| self.transfers.handle_packet(now, &datagram, &packet));
            if let Some(said) = said {
                self.send(&datagram, &said.to_bytes());
            }
            if !is_request {
                return;
            }
            packet.rmpp = RmppHeader::new();
        }
        if is_ours && packet.mad.method() == method::REPORT_RESPONSE {
            return self.subscriptions.handle_response(&datagram, packet.mad.transaction());
        }
        if !packet.method().has_response() {
            return;
        }
        let requester = datagram.source_lid().and_then(|lid| directory.by_lid(lid));
        let Some(requester) = requester else { return self.losses.refused += 1 };
        if !is_ours {
            // There is no agent of the class here, or not of this version of it.
            return self.send(&datagram, &datagram.refused(status::BAD_VERSION));
        }
        let key = packet.sa.sm_key();
        if key != 0 && key != self.sm_key {
            return self.losses.refused += 1;
        }
        let request =
            AdministrationRequest { datagram: &datagram, packet: &packet, requester, is_trusted: key != 0 };
        match self.perform(now, &request, directory, is_free) {
            Ok(records) => self.answer(now, datagram, packet, records),
            Err(status) => self.refuse(&datagram, packet, status),
        }
    }

    /// Removes a port that has left the subnet.
    pub(super) fn forget(&mut self, guid: u64) {
        self.groups.forget(guid);
        self.subscriptions.forget(guid);
    }

    /// Whether a LID is that of a group.
    pub(super) fn has_group(&self, lid: u16) -> bool {
        self.groups.has_lid(lid)
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        for (frame, icrc) in self.transfers.handle_timeout(now) {
            self.push(frame, icrc);
        }
        self.subscriptions.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        [self.transfers.poll_timeout(), self.subscriptions.poll_timeout()].into_iter().flatten().min()
    }

    /// Whether anybody has subscribed to events.
    pub(super) fn has_subscribers(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Reports an event to its subscribers.
    pub(super) fn report(&mut self, now: Time, event: &SubnetEvent, directory: &Directory<'_>) {
        self.losses.dropped += self.subscriptions.report(now, event, directory);
    }

    /// The next group that was created or deleted.
    pub(super) fn poll_group_event(&mut self) -> Option<GroupEvent> {
        self.groups.poll_event()
    }

    /// The next packet for an end port.
    pub(super) fn poll_packet(&mut self) -> Option<(FrameBuffer, u32)> {
        self.responses.pop_front().or_else(|| self.transfers.poll()).or_else(|| self.subscriptions.poll())
    }

    /// The next group whose member ports have changed.
    pub(super) fn poll_group(&mut self, directory: &Directory<'_>) -> Option<(u16, Vec<GroupPort>)> {
        self.groups.poll_change(directory)
    }

    /// Packets that were neither sent nor answered since the last call.
    pub(super) fn take_losses(&mut self) -> ManagementLosses {
        core::mem::take(&mut self.losses)
    }

    /// Whether no transfer and no Report is waiting for an acknowledgement.
    pub(super) fn is_idle(&self) -> bool {
        self.transfers.is_empty() && self.subscriptions.is_idle()
    }

    fn perform(
        &mut self,
        now: Time,
        request: &AdministrationRequest<'_>,
        directory: &Directory<'_>,
        is_free: impl Fn(u16) -> bool,
    ) -> Result<RecordList, u16> {
        match (request.packet.mad.attribute(), request.packet.method()) {
            (_, Method::Other(raw)) if !matches!(raw, 0x12..=0x15) => Err(status::BAD_METHOD),
            (attribute::CLASS_PORT_INFO, Method::Get) => RecordList::of([class_port_info()]),
            (record::NODE, Method::Get | GET_TABLE) => request.nodes(directory),
            (record::PORT_INFO, Method::Get | GET_TABLE) => request.ports(directory),
            (record::SWITCH_INFO, Method::Get | GET_TABLE) => {
                let (query, mask) = (request.record()?, request.mask());
                switches::find_switches(&query, mask, directory, request.visible(directory))
            }
            (record::LINEAR_FORWARDING, Method::Get | GET_TABLE) => {
                let (query, mask) = (request.record()?, request.mask());
                switches::find_tables(&query, mask, directory, request.visible(directory))
            }
            (record::INFORM_INFO, Method::Set) => {
                let info = request.record()?;
                RecordList::of([self.subscriptions.change(request.datagram, info, &request.requester)?])
            }
            (record::INFORM_INFO_RECORD, Method::Get | GET_TABLE) => {
                let (query, mask) = (request.record()?, request.mask());
                RecordList::of(self.subscriptions.find(&query, mask, &request.requester, directory))
            }
            (record::SERVICE, _) => self.perform_service(now, request, directory),
            (record::LINK, Method::Get | GET_TABLE) => request.links(directory),
            (record::PATH, Method::Get | GET_TABLE) => request.paths(directory, &self.groups),
            (record::MULTI_PATH, GET_MULTI) => {
                let (data, mask) = (&request.packet.data, request.mask());
                MultiPathRequest { data, mask, requester: request.requester }.find(directory)
            }
            (record::MC_MEMBER, Method::Get | GET_TABLE) => {
                let group = request.record::<McMemberRecord>()?;
                RecordList::of(self.groups.find(&request.group(&group), request.is_trusted))
            }
            (record::MC_MEMBER, Method::Set) => {
                let group = request.record::<McMemberRecord>()?;
                RecordList::of([self.groups.join(&request.group(&group), directory, is_free)?])
            }
            (record::MC_MEMBER, DELETE) => {
                let group = request.record::<McMemberRecord>()?;
                RecordList::of([self.groups.leave(&request.group(&group), directory)?])
            }
            (_, Method::Get | GET_TABLE) => request.tables(directory),
            _ => Err(status::UNSUPPORTED),
        }
    }

    fn perform_service(
        &mut self,
        now: Time,
        request: &AdministrationRequest<'_>,
        directory: &Directory<'_>,
    ) -> Result<RecordList, u16> {
        let record = request.record::<ServiceRecord>()?;
        let query = ServiceRequest { record: &record, mask: request.mask(), requester: request.requester };
        match request.packet.method() {
            Method::Get | GET_TABLE => RecordList::of(self.services.find(now, &query, request.is_trusted)),
            Method::Set => RecordList::of([self.services.register(now, &query, directory)?]),
            DELETE => RecordList::of([self.services.remove(now, &query, directory)?]),
            _ => Err(status::UNSUPPORTED),
        }
    }

    /// Sends the response. Tables always use reliable transfer, however short they are; other responses have exactly
    /// one record (C15-0.1.30).
    fn answer(
        &mut self,
        now: Time,
        datagram: GeneralPacket,
        mut packet: AdministrationPacket,
        records: RecordList,
    ) {
        let is_table = matches!(packet.method(), GET_TABLE | GET_MULTI);
        match records.count() {
            0 if !is_table => return self.refuse(&datagram, packet, sa_status::NO_RECORDS),
            2.. if !is_table => return self.refuse(&datagram, packet, sa_status::TOO_MANY_RECORDS),
            _ => {}
        }
        let mask = packet.sa.component_mask();
        packet.mad.set_method(packet.method().answered()).set_status(status::OK);
        packet.sa = SaHeader::new();
        packet.sa.set_component_mask(mask).set_attribute_offset((records.stride / 8) as u16);
        if !is_table {
            packet.data.fill(0);
            packet.data[..records.bytes.len()].copy_from_slice(&records.bytes);
            return self.send(&datagram, &packet.to_bytes());
        }
        if !self.transfers.begin(now, datagram.clone(), packet.clone(), records.bytes) {
            self.refuse(&datagram, AdministrationPacket::of(datagram.bytes()), status::BUSY);
        }
    }

    /// Sends a response that only has an error status.
    fn refuse(&mut self, datagram: &GeneralPacket, mut packet: AdministrationPacket, status: u16) {
        packet.mad.set_method(packet.method().answered()).set_status(status);
        // No response contains the SM_Key (C15-0.1.5).
        packet.sa.set_sm_key(0);
        self.send(datagram, &packet.to_bytes());
    }

    fn send(&mut self, datagram: &GeneralPacket, bytes: &[u8; SIZE]) {
        if let Some((frame, icrc)) = datagram.response_frame(bytes) {
            self.push(frame, icrc);
        }
    }

    /// Queues a datagram; drops and counts it if the queue is full. The client will ask again.
    fn push(&mut self, frame: FrameBuffer, icrc: u32) {
        if self.responses.len() < WAITING {
            self.responses.push_back((frame, icrc));
        } else {
            self.losses.dropped += 1;
        }
    }
}

impl AdministrationRequest<'_> {
    fn mask(&self) -> u64 {
        self.packet.sa.component_mask()
    }

    fn record<T: FromBytes>(&self) -> Result<T, u16> {
        self.packet.record().ok_or(sa_status::REQUEST_INVALID)
    }

    fn group<'a>(&'a self, record: &'a McMemberRecord) -> GroupRequest<'a> {
        GroupRequest { record, mask: self.mask(), requester: self.requester }
    }

    /// End ports that the requester may know about.
    fn visible<'a>(&'a self, directory: &'a Directory<'_>) -> impl Iterator<Item = &'a EndPort<'a>> {
        directory.ends.iter().filter(|end| end.is_visible_to(&self.requester))
    }

    /// NodeRecords, one per end port.
    fn nodes(&self, directory: &Directory<'_>) -> Result<RecordList, u16> {
        let (query, mask) = (self.record::<NodeRecord>()?, self.mask());
        let places = components::chosen(&NodeRecord::INFO, components::NODE, mask & !LID);
        let mut found = RecordList::new(NodeRecord::SIZE);
        for end in self.visible(directory).filter(|end| mask & LID == 0 || end.owns_lid(query.lid())) {
            let mut record = NodeRecord::new();
            record.set_lid(end.lid).set_node_description(end.attributes.description);
            *record.node_info_mut() = end.attributes.node;
            if components::agree(&places, query.as_bytes(), record.as_bytes()) {
                found.push(&record)?;
            }
        }
        Ok(found)
    }

    /// PortInfoRecords. Requesters without the SM_Key do not see the M_Key (IBTA v1.4 §15.4.1.2).
    fn ports(&self, directory: &Directory<'_>) -> Result<RecordList, u16> {
        let (query, mask) = (self.record::<PortInfoRecord>()?, self.mask());
        let by_bits = self.packet.mad.modifier() & MATCH_BITS != 0 && mask & CAPABILITY_MASK != 0;
        let options = if mask & OPTIONS != 0 { query.options() } else { 0 };
        let special = if by_bits { LID | CAPABILITY_MASK } else { LID };
        let places = components::chosen(&PortInfoRecord::INFO, components::PORT_INFO, mask & !special);
        let wanted = if by_bits { query.port_info().capability_mask() } else { 0 };
        let mut found = RecordList::new(PortInfoRecord::SIZE);
        for end in self.visible(directory).filter(|end| mask & LID == 0 || end.owns_lid(query.end_port_lid()))
        {
            let mut record = PortInfoRecord::new();
            *record.port_info_mut() = end.attributes.port;
            if !self.is_trusted {
                record.port_info_mut().set_m_key(0);
            }
            record.set_end_port_lid(end.lid).set_port_num(end.number()).set_options(options);
            let has_bits = record.port_info().capability_mask() & wanted == wanted;
            if has_bits && components::agree(&places, query.as_bytes(), record.as_bytes()) {
                found.push(&record)?;
            }
        }
        Ok(found)
    }

    fn links(&self, directory: &Directory<'_>) -> Result<RecordList, u16> {
        let record = self.record::<LinkRecord>()?;
        let request = LinkRequest { record: &record, mask: self.mask(), requester: self.requester };
        let mut found = RecordList::new(LinkRecord::SIZE);
        request.find(directory, &mut found)?;
        Ok(found)
    }

    fn tables(&self, directory: &Directory<'_>) -> Result<RecordList, u16> {
        let (mask, requester, is_trusted) = (self.mask(), self.requester, self.is_trusted);
        let request = TableRequest { mask, requester, is_trusted, directory };
        match self.packet.mad.attribute() {
            record::PARTITION_KEYS => request.partition_keys(&self.record()?),
            record::GUID_INFO => request.guids(&self.record()?),
            record::SL_TO_VL => request.lanes(&self.record()?),
            record::VL_ARBITRATION => request.arbitration(&self.record()?),
            record::MULTICAST_FORWARDING => request.multicast(&self.record()?),
            record::SM_INFO => request.managers(&self.record()?),
            _ => Err(status::UNSUPPORTED),
        }
    }

    fn paths(&self, directory: &Directory<'_>, groups: &MulticastGroups) -> Result<RecordList, u16> {
        let record = self.record::<PathRecord>()?;
        let is_get = self.packet.method() == Method::Get;
        let request = PathRequest { record: &record, mask: self.mask(), requester: self.requester, is_get };
        let mut found = RecordList::new(PathRecord::SIZE);
        if let Some(gid) = request.group() {
            if let Some(group) = groups.group(&gid, &self.requester) {
                request.to_group(group, directory, &mut found)?;
            }
            return Ok(found);
        }
        request.find(directory, &mut found)?;
        Ok(found)
    }
}

fn class_port_info() -> ClassPortInfo {
    let mut info = ClassPortInfo::new();
    info.set_base_version(1).set_class_version(CLASS_VERSION).set_capability_mask(CAPABILITIES);
    info.set_capability_mask2(CAPABILITIES2).set_resp_time_value(SUBNET_TIMEOUT);
    info
}

//! Event subscriptions: InformInfo, InformInfoRecord and Reports (IBTA v1.4 §13.4.8.3, §13.4.11, §15.2.5.12).
//!
//! A queue pair subscribes and unsubscribes by SubnAdmSet(InformInfo). A Report is repeated until its ReportResp
//! arrives or the attempts run out.

use crate::net::subnet::directory::Directory;
use crate::net::subnet::end_port::EndPort;
use crate::net::subnet::events::SubnetEvent;
use crate::wire::FrameBuffer;
use crate::wire::management::administration::{
    AdministrationPacket, CLASS_VERSION, DATA, InformInfoRecord, method, status,
};
use crate::wire::management::attributes::{InformInfo, IssuedNotice, Notice};
use crate::wire::management::{GeneralPacket, SIZE, attribute, class};
use bareverbs_prm::time::{Duration, Time};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::IntoBytes;

/// Maximum number of subscriptions, in total and per port.
const SUBSCRIPTIONS: usize = 1024;
const OF_ONE_PORT: usize = 64;
/// Maximum number of Reports waiting for a response; further ones are dropped.
const REPORTS: usize = 1024;
/// Time limit for a ReportResp, and attempts per Report.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(200);
const ATTEMPTS: u8 = 4;
/// Wildcard value in InformInfo.
const ANY: u16 = u16::MAX;
const ANY_PRODUCER: u32 = 0xff_ffff;
/// Component mask bits of InformInfoRecord. Components of InformInfo itself select nothing.
const SUBSCRIBER_GID: u64 = 1;
const SUBSCRIBER_ENUM: u64 = 1 << 1;

/// A subscribed queue pair.
#[derive(Debug)]
struct Subscription {
    /// The subscription request, which has the way back to the subscriber.
    datagram: GeneralPacket,
    guid: u64,
    gid: [u8; 16],
    /// Distinguishes subscriptions of one port.
    number: u16,
    info: InformInfo,
}

/// A Report without a response.
#[derive(Debug)]
struct Report {
    datagram: GeneralPacket,
    bytes: [u8; SIZE],
    attempts: u8,
    due: Time,
}

/// All subscriptions and Reports; see the module.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    all: Vec<Subscription>,
    open: BTreeMap<u64, Report>,
    /// Reports to send now.
    ready: BTreeSet<u64>,
    transactions: u64,
}

impl Subscriptions {
    /// SubnAdmSet(InformInfo). The response names the subscribed queue pair.
    pub(super) fn change(
        &mut self,
        datagram: &GeneralPacket,
        mut info: InformInfo,
        requester: &EndPort<'_>,
    ) -> Result<InformInfo, u16> {
        let is_range = info.lid_range_begin() == ANY || info.lid_range_begin() <= info.lid_range_end();
        if info.subscribe() > 1 || info.is_generic() > 1 || info.gid() == [0; 16] && !is_range {
            return Err(status::REQUEST_INVALID);
        }
        // An unsubscribe may name another queue pair of the same port.
        if info.subscribe() == 1 || info.qpn() == 0 {
            info.set_qpn(datagram.source().value());
        }
        let guid = requester.guid();
        let known = self.all.iter().position(|one| one.guid == guid && is_same(&one.info, &info));
        match (info.subscribe(), known) {
            (0, None) => return Err(status::REQUEST_INVALID),
            (0, Some(index)) => {
                self.all.remove(index);
            }
            (_, Some(index)) => self.all[index].datagram = datagram.clone(),
            (_, None) => self.add(datagram, info, requester)?,
        }
        Ok(info)
    }

    fn add(
        &mut self,
        datagram: &GeneralPacket,
        info: InformInfo,
        requester: &EndPort<'_>,
    ) -> Result<(), u16> {
        let (guid, gid) = (requester.guid(), requester.gid());
        let taken: BTreeSet<u16> =
            self.all.iter().filter(|one| one.guid == guid).map(|one| one.number).collect();
        if self.all.len() >= SUBSCRIPTIONS || taken.len() >= OF_ONE_PORT {
            return Err(status::NO_RESOURCES);
        }
        let number = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
        self.all.push(Subscription { datagram: datagram.clone(), guid, gid, number, info });
        Ok(())
    }

    /// InformInfoRecords of ports that the requester may know about.
    pub(super) fn find(
        &self,
        query: &InformInfoRecord,
        mask: u64,
        requester: &EndPort<'_>,
        directory: &Directory<'_>,
    ) -> Vec<InformInfoRecord> {
        let is_visible =
            |guid| directory.by_guid(guid).is_some_and(|subscriber| subscriber.is_visible_to(requester));
        let chosen = self.all.iter().filter(|one| {
            (mask & SUBSCRIBER_GID == 0 || query.subscriber_gid() == one.gid)
                && (mask & SUBSCRIBER_ENUM == 0 || query.subscriber_enum() == one.number)
                && is_visible(one.guid)
        });
        let record = |one: &Subscription| {
            let mut record = InformInfoRecord::new();
            record.set_subscriber_gid(one.gid).set_subscriber_enum(one.number);
            *record.inform_info_mut() = one.info;
            record
        };
        chosen.map(record).collect()
    }

    /// Removes a port that has left the subnet.
    pub(super) fn forget(&mut self, guid: u64) {
        self.all.retain(|one| one.guid != guid);
    }

    /// Whether there are no subscriptions.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Sends a Report to every subscriber that may see the event. Returns for how many there was no room.
    pub(super) fn report(&mut self, now: Time, event: &SubnetEvent, directory: &Directory<'_>) -> u64 {
        let may_hear = |guid| {
            let keys = || event.partition_keys.iter();
            directory.by_guid(guid).is_some_and(|port| keys().any(|key| port.accepts_key(*key)))
        };
        let mut dropped = 0;
        for one in self.all.iter().filter(|one| wants(&one.info, event) && may_hear(one.guid)) {
            if self.open.len() >= REPORTS {
                dropped += 1;
                continue;
            }
            self.transactions += 1;
            let bytes = report_bytes(event, self.transactions);
            let due = now + RESPONSE_TIMEOUT;
            let report = Report { datagram: one.datagram.clone(), bytes, attempts: 1, due };
            self.open.insert(self.transactions, report);
            self.ready.insert(self.transactions);
        }
        dropped
    }

    /// Handles a ReportResp from the port that got the Report.
    pub(super) fn handle_response(&mut self, from: &GeneralPacket, transaction: u64) {
        let is_theirs = |report: &Report| report.datagram.source_lid() == from.source_lid();
        if self.open.get(&transaction).is_some_and(is_theirs) {
            self.open.remove(&transaction);
            self.ready.remove(&transaction);
        }
    }

    /// Repeats Reports without a response, or gives them up.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.open.retain(|_, report| report.due > now || report.attempts < ATTEMPTS);
        self.ready.retain(|transaction| self.open.contains_key(transaction));
        for (transaction, report) in self.open.iter_mut().filter(|(_, report)| report.due <= now) {
            report.attempts += 1;
            report.due = now + RESPONSE_TIMEOUT;
            self.ready.insert(*transaction);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.open.values().map(|report| report.due).min()
    }

    /// The next Report to send.
    pub(super) fn poll(&mut self) -> Option<(FrameBuffer, u32)> {
        let report = self.open.get(&self.ready.pop_first()?)?;
        report.datagram.response_frame(&report.bytes)
    }

    /// Whether no Report waits for a response.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}

/// Whether two InformInfos denote the same subscription: they may differ only in the subscribe flag and the response
/// time.
fn is_same(one: &InformInfo, other: &InformInfo) -> bool {
    let [one, other] = [one, other].map(|info| {
        let mut info = *info;
        *info.set_subscribe(0).set_resp_time_value(0)
    });
    one.as_bytes() == other.as_bytes()
}

/// Whether a subscription covers an event (IBTA v1.4 §13.4.8.3).
fn wants(info: &InformInfo, SubnetEvent { notice, issuer_gid, .. }: &SubnetEvent) -> bool {
    let is_kind = info.is_generic() == u8::from(notice.is_generic())
        && matches!(info.kind(), kind if kind == ANY || kind == notice.kind().into())
        && matches!(info.trap(), trap if trap == ANY || trap == notice.trap())
        && matches!(info.producer(), producer if producer == ANY_PRODUCER || producer == notice.producer());
    is_kind && is_issuer(info, notice, issuer_gid)
}

/// Whether the issuer matches: by its GID or, without one, by a range of LIDs.
fn is_issuer(info: &InformInfo, notice: &Notice, issuer_gid: &[u8; 16]) -> bool {
    match info.gid() {
        gid if gid != [0; 16] => gid == *issuer_gid,
        _ if info.lid_range_begin() == ANY => true,
        _ => (info.lid_range_begin()..=info.lid_range_end()).contains(&notice.issuer_lid()),
    }
}

fn report_bytes(event: &SubnetEvent, transaction: u64) -> [u8; SIZE] {
    let (mut packet, mut issued) = (AdministrationPacket::of(&[0; SIZE]), IssuedNotice::new());
    packet.mad.set_base_version(1).set_class(class::ADMINISTRATION).set_class_version(CLASS_VERSION);
    packet.mad.set_method(method::REPORT).set_attribute(attribute::NOTICE).set_transaction(transaction);
    *issued.notice_mut() = event.notice;
    issued.set_issuer_gid(event.issuer_gid);
    packet.data = [0; DATA];
    packet.data[..IssuedNotice::SIZE].copy_from_slice(issued.as_bytes());
    packet.to_bytes()
}

//! Sender side of the reliable multi-packet transfer protocol (RMPP; IBTA v1.4 §13.6), for responses longer than a
//! datagram.
//!
//! The first segment is sent alone. Each ACK names the segments received and the last segment that the receiver has
//! room for. Without an ACK, unacknowledged segments are resent; after a few attempts the sender gives up.
//!
//! A SubnAdmGetMulti request also arrives by RMPP (§13.6.5): the SA acknowledges its single segment and responds at
//! once. The requester then announces its window by an ACK of segment 0.
//!
//! **What it may not do.** It receives no request of several segments: one segment holds a MultiPathRecord with 11 GIDs.

use crate::wire::FrameBuffer;
use crate::wire::management::GeneralPacket;
use crate::wire::management::administration::{AdministrationPacket, DATA, RmppHeader, SaHeader, method};
use bareverbs_prm::time::{Duration, Time};
use std::collections::BTreeMap;

/// Time limit for an ACK.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_millis(200);
/// Attempts before the sender gives up.
const ATTEMPTS: u8 = 5;
/// Maximum number of segments in flight, regardless of the receiver's window.
const WINDOW: u32 = 64;
/// Maximum number of bytes of all responses in flight.
const ROOM: usize = 8 << 20;
/// Maximum number of concurrent transfers.
const TRANSFERS: usize = 1024;

/// Version of the protocol.
const VERSION: u8 = 1;
/// `RMPPFlags`.
pub(super) const ACTIVE: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;
/// `RMPPType`.
const DATA_SEGMENT: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;
const STOP: u8 = 3;
const ABORT: u8 = 4;
/// `RMPPStatus` (IBTA v1.4 §13.6.2.2).
const RESOURCES_EXHAUSTED: u8 = 1;
const BAD_TYPE: u8 = 121;
const WINDOW_TOO_SMALL: u8 = 122;
const SEGMENT_TOO_BIG: u8 = 123;
const UNSUPPORTED_VERSION: u8 = 125;
const TOO_MANY_RETRIES: u8 = 126;

/// Identifies a transfer: the requester and its transaction ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    lid: u16,
    source: u32,
    transaction: u64,
}

/// One transfer.
#[derive(Debug)]
struct Transfer {
    /// The request, which has the way back.
    datagram: GeneralPacket,
    /// Headers common to all segments.
    head: AdministrationPacket,
    records: Vec<u8>,
    acknowledged: u32,
    sent: u32,
    /// Last segment that the receiver has room for.
    window: u32,
    attempts: u8,
    due: Time,
}

/// All transfers; see the module.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    open: BTreeMap<Key, Transfer>,
    /// Bytes of records in `open`.
    held: usize,
}

impl Transfers {
    /// Starts sending `records` behind the headers of `head`; false if there is no room. A repeated request restarts
    /// its transfer.
    pub(super) fn begin(
        &mut self,
        now: Time,
        datagram: GeneralPacket,
        head: AdministrationPacket,
        records: Vec<u8>,
    ) -> bool {
        let Some(key) = Key::of(&datagram, &head) else { return false };
        self.end(key);
        if self.held + records.len() > ROOM || self.open.len() >= TRANSFERS {
            return false;
        }
        self.held += records.len();
        let due = now + ACKNOWLEDGE_TIMEOUT;
        let transfer =
            Transfer { datagram, head, records, acknowledged: 0, sent: 0, window: 1, attempts: 0, due };
        self.open.insert(key, transfer);
        true
    }

    /// Handles a datagram of the protocol. Returns the reply, if there is one.
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        datagram: &GeneralPacket,
        packet: &AdministrationPacket,
    ) -> Option<AdministrationPacket> {
        let key = Key::of(datagram, packet)?;
        let refused = match (packet.rmpp.version(), packet.rmpp.kind()) {
            // STOP and ABORT are never answered.
            (_, STOP | ABORT) => {
                self.end(key);
                return None;
            }
            (VERSION, ACKNOWLEDGEMENT) => self.acknowledge(now, key, &packet.rmpp).err()?,
            (VERSION, DATA_SEGMENT) => return Some(ending(packet, STOP, RESOURCES_EXHAUSTED)),
            (VERSION, _) => BAD_TYPE,
            _ => UNSUPPORTED_VERSION,
        };
        self.end(key);
        Some(ending(packet, ABORT, refused))
    }

    /// Resends unacknowledged segments. Returns the ABORTs of transfers that were given up.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Vec<(FrameBuffer, u32)> {
        let due: Vec<Key> =
            self.open.iter().filter(|(_, transfer)| transfer.due <= now).map(|(key, _)| *key).collect();
        let mut ended = Vec::new();
        for key in due {
            let Some(transfer) = self.open.get_mut(&key) else { continue };
            transfer.attempts += 1;
            transfer.due = now + ACKNOWLEDGE_TIMEOUT;
            transfer.sent = transfer.acknowledged;
            if transfer.attempts > ATTEMPTS {
                let abort = ending(&transfer.head, ABORT, TOO_MANY_RETRIES);
                ended.extend(transfer.datagram.response_frame(&abort.to_bytes()));
                self.end(key);
            }
        }
        ended
    }

    /// The next segment of any transfer.
    pub(super) fn poll(&mut self) -> Option<(FrameBuffer, u32)> {
        let transfer = self.open.values_mut().find(|transfer| transfer.may_send())?;
        transfer.sent += 1;
        let segment = transfer.segment(transfer.sent);
        transfer.datagram.response_frame(&segment.to_bytes())
    }

    /// When to resend.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.open.values().map(|transfer| transfer.due).min()
    }

    /// Whether no transfer is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Handles an ACK, or returns the error status. An old ACK, or one of a finished transfer, changes nothing.
    fn acknowledge(&mut self, now: Time, key: Key, header: &RmppHeader) -> Result<(), u8> {
        let (segment, window) = (header.segment(), header.length());
        let Some(transfer) = self.open.get_mut(&key) else { return Ok(()) };
        if window < segment {
            return Err(WINDOW_TOO_SMALL);
        }
        if segment > transfer.sent {
            return Err(SEGMENT_TOO_BIG);
        }
        if segment < transfer.acknowledged || window < transfer.window {
            return Ok(());
        }
        if segment > transfer.acknowledged {
            transfer.attempts = 0;
        }
        (transfer.acknowledged, transfer.window) = (segment, window);
        transfer.due = now + ACKNOWLEDGE_TIMEOUT;
        if segment == transfer.segments() {
            self.end(key);
        }
        Ok(())
    }

    fn end(&mut self, key: Key) {
        if let Some(transfer) = self.open.remove(&key) {
            self.held -= transfer.records.len();
        }
    }
}

impl Key {
    fn of(datagram: &GeneralPacket, packet: &AdministrationPacket) -> Option<Self> {
        let (lid, source) = (datagram.source_lid()?, datagram.source().value());
        Some(Self { lid, source, transaction: packet.mad.transaction() })
    }
}

impl Transfer {
    /// Number of segments. A response without records still has one.
    fn segments(&self) -> u32 {
        self.records.len().div_ceil(DATA).max(1) as u32
    }

    fn may_send(&self) -> bool {
        let end = self.segments().min(self.window).min(self.acknowledged.saturating_add(WINDOW));
        self.sent < end
    }

    /// Builds segment `number`, counted from 1. The length in the first segment is the total, counting the class header
    /// in every segment; that in the last is its own (IBTA v1.4 §13.6.2.1).
    fn segment(&self, number: u32) -> AdministrationPacket {
        let (segments, mut packet) = (self.segments(), self.head.clone());
        let records = self.records.chunks(DATA).nth(number as usize - 1).unwrap_or_default();
        packet.data = [0; DATA];
        packet.data[..records.len()].copy_from_slice(records);
        let (mut flags, mut length) = (ACTIVE, 0);
        if number == 1 {
            flags |= FIRST;
            length = segments as usize * SaHeader::SIZE + self.records.len();
        }
        if number == segments {
            flags |= LAST;
            length = SaHeader::SIZE + records.len();
        }
        packet.rmpp = RmppHeader::new();
        packet.rmpp.set_version(VERSION).set_kind(DATA_SEGMENT).set_flags(flags);
        packet.rmpp.set_segment(number).set_length(length as u32);
        packet
    }
}

/// The ACK for a request that consists of one segment; `None` if the packet is no such request.
pub(super) fn whole_request(packet: &AdministrationPacket) -> Option<AdministrationPacket> {
    let rmpp = &packet.rmpp;
    let is_request = packet.mad.method() == method::GET_MULTI
        && (rmpp.version(), rmpp.kind(), rmpp.segment()) == (VERSION, DATA_SEGMENT, 1)
        && rmpp.flags() == ACTIVE | FIRST | LAST;
    is_request.then(|| {
        let mut acknowledgement = ending(packet, ACKNOWLEDGEMENT, 0);
        acknowledgement.rmpp.set_segment(1).set_length(1);
        acknowledgement
    })
}

/// A STOP or ABORT that ends a transfer.
fn ending(of: &AdministrationPacket, kind: u8, status: u8) -> AdministrationPacket {
    let mut packet = of.clone();
    // The other side sent the request, so the reply has the response bit.
    packet.mad.set_method(of.mad.method() | 0x80);
    packet.rmpp = RmppHeader::new();
    packet.rmpp.set_version(VERSION).set_kind(kind).set_flags(ACTIVE).set_status(status);
    packet.data = [0; DATA];
    packet
}

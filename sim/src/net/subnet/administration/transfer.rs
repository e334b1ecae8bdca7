//! Reliable transfer of an answer that may be longer than a datagram (IBTA v1.4 §13.6): the sender's side.
//!
//! The first segment goes out alone. Each acknowledgement says which segments have come and up to which one the receiver has room; without
//! one, what is not acknowledged goes out again, and after a few times the sender gives up.
//!
//! **What it may not do.** It takes in no segments: nobody has to send the subnet's administration a request of several.

use crate::wire::FrameBuffer;
use crate::wire::management::GeneralPacket;
use crate::wire::management::administration::{AdministrationPacket, DATA, RmppHeader, SaHeader};
use bareverbs_prm::time::{Duration, Time};
use std::collections::BTreeMap;

/// How long an acknowledgement may take.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_millis(200);
/// How often segments are sent again before the sender gives up.
const ATTEMPTS: u8 = 5;
/// Segments under way at a time, whatever room the receiver has.
const WINDOW: u32 = 64;
/// Bytes of all answers under way at a time.
const ROOM: usize = 8 << 20;
/// Transfers under way at a time.
const TRANSFERS: usize = 1024;

/// The only version of the protocol.
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

/// Who asked, and by what it knows the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    lid: u16,
    source: u32,
    transaction: u64,
}

/// One answer under way.
#[derive(Debug)]
struct Transfer {
    /// Gives the way back.
    question: GeneralPacket,
    /// Headers of all segments.
    head: AdministrationPacket,
    records: Vec<u8>,
    acknowledged: u32,
    sent: u32,
    /// The last segment for which the receiver has room.
    window: u32,
    attempts: u8,
    due: Time,
}

/// All answers under way; see the module.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    open: BTreeMap<Key, Transfer>,
    /// Bytes of records in `open`.
    held: usize,
}

impl Transfers {
    /// Begins to send `records` behind the headers of `head`; false if there is no room. One that was asked for again begins again.
    pub(super) fn begin(
        &mut self,
        now: Time,
        question: GeneralPacket,
        head: AdministrationPacket,
        records: Vec<u8>,
    ) -> bool {
        let Some(key) = Key::of(&question, &head) else { return false };
        self.end(key);
        if self.held + records.len() > ROOM || self.open.len() >= TRANSFERS {
            return false;
        }
        self.held += records.len();
        let due = now + ACKNOWLEDGE_TIMEOUT;
        let transfer =
            Transfer { question, head, records, acknowledged: 0, sent: 0, window: 1, attempts: 0, due };
        self.open.insert(key, transfer);
        true
    }

    /// A datagram of the protocol. What is to be said of it, if anything is.
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        question: &GeneralPacket,
        packet: &AdministrationPacket,
    ) -> Option<AdministrationPacket> {
        let key = Key::of(question, packet)?;
        let refused = match (packet.rmpp.version(), packet.rmpp.kind()) {
            // Nobody answers the end of a conversation.
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

    /// What is not acknowledged goes out again. Those that were given up are to be told.
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
                ended.extend(transfer.question.answer_frame(&abort.to_bytes()));
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
        transfer.question.answer_frame(&segment.to_bytes())
    }

    /// When segments are sent again.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.open.values().map(|transfer| transfer.due).min()
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes an acknowledgement, or says what is wrong with it. An old one, and one of a transfer that has ended, changes nothing.
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
    fn of(question: &GeneralPacket, packet: &AdministrationPacket) -> Option<Self> {
        let (lid, source) = (question.source_lid()?, question.source().value());
        Some(Self { lid, source, transaction: packet.mad.transaction() })
    }
}

impl Transfer {
    /// An answer without a record is one segment, too.
    fn segments(&self) -> u32 {
        self.records.len().div_ceil(DATA).max(1) as u32
    }

    fn may_send(&self) -> bool {
        let end = self.segments().min(self.window).min(self.acknowledged.saturating_add(WINDOW));
        self.sent < end
    }

    /// Segment `number`, counted from 1. The length that the first has is that of all, with the header of the class in each segment; that
    /// of the last is its own (IBTA v1.4 §13.6.2.1).
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

/// A datagram that ends a transfer.
fn ending(of: &AdministrationPacket, kind: u8, status: u8) -> AdministrationPacket {
    let mut packet = of.clone();
    // The other side asked: what it hears has the bit of an answer.
    packet.mad.set_method(of.mad.method() | 0x80);
    packet.rmpp = RmppHeader::new();
    packet.rmpp.set_version(VERSION).set_kind(kind).set_flags(ACTIVE).set_status(status);
    packet.data = [0; DATA];
    packet
}

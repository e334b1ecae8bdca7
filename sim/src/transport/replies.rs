//! The responses of a responder that are not on the wire yet, in the order in which they will be sent.
//!
//! An ACK covers everything that earlier ACKs cover, so adjacent ACKs in the queue merge into one. IBTA v1.4
//! §9.7.5.1.2.

use super::response::{ResponsePacket, ResponsePayload};
use super::segment::PathMtu;
use crate::wire::{Aeth, BthOpcode, Extension, PacketHeader, Position, ServiceHeader, Syndrome};
use bareverbs_prm::psn::Psn;
use std::collections::VecDeque;

/// The sequence number of a response and the message sequence number that it reports.
#[derive(Debug, Clone, Copy)]
pub struct ResponseNumbers {
    pub sequence: u64,
    pub msn: u32,
}

/// READ responses, starting at `offset` in the range.
#[derive(Debug, Clone)]
pub struct ReadReply<R> {
    pub range: R,
    /// Bytes of the range.
    pub length: u32,
    /// The numbers of the first byte of the range.
    pub numbers: ResponseNumbers,
    /// The READ is not a duplicate.
    pub is_new: bool,
    /// Where the next response begins.
    offset: u32,
    /// The next response is the first one to this READ request or its repetition.
    begins: bool,
}

impl<R> ReadReply<R> {
    pub fn new(range: R, length: u32, numbers: ResponseNumbers, is_new: bool) -> Self {
        Self { range, length, numbers, is_new, offset: 0, begins: true }
    }
}

#[derive(Debug, Clone)]
enum Reply<R> {
    Acknowledge(ResponseNumbers, Syndrome),
    Read(ReadReply<R>),
    Atomic(ResponseNumbers, u64),
}

/// The queue of responses.
#[derive(Debug)]
pub struct ResponseQueue<R> {
    queue: VecDeque<Reply<R>>,
    capacity: usize,
    mtu: PathMtu,
    new_reads: usize,
}

impl<R: Clone> ResponseQueue<R> {
    /// An empty queue for at most `capacity` responses plus one NAK. Its memory grows with use.
    pub fn new(capacity: usize, mtu: PathMtu) -> Self {
        Self { queue: VecDeque::new(), capacity, mtu, new_reads: 0 }
    }

    /// Changes the limit to `capacity` responses. Those already in the queue stay.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.capacity
    }
    /// READs in the queue that are not duplicates.
    pub fn new_reads(&self) -> usize {
        self.new_reads
    }
    pub fn clear(&mut self) {
        self.queue.clear();
        self.new_reads = 0;
    }

    /// Adds an ACK and returns whether it replaced an earlier one.
    pub fn push_ack(&mut self, numbers: ResponseNumbers) -> bool {
        let merged = self.drop_last_ack();
        self.queue.push_back(Reply::Acknowledge(numbers, Syndrome::ACK));
        merged
    }

    /// Removes an ACK at the end of the queue, because the next response acknowledges the same packets.
    pub fn drop_last_ack(&mut self) -> bool {
        let needless = matches!(self.queue.back(), Some(Reply::Acknowledge(_, Syndrome::Ack(_))));
        if needless {
            self.queue.pop_back();
        }
        needless
    }

    pub fn push_nak(&mut self, numbers: ResponseNumbers, syndrome: Syndrome) {
        self.queue.push_back(Reply::Acknowledge(numbers, syndrome));
    }

    pub fn push_read(&mut self, read: ReadReply<R>) {
        self.new_reads += usize::from(read.is_new);
        self.queue.push_back(Reply::Read(read));
    }

    pub fn push_atomic(&mut self, numbers: ResponseNumbers, old: u64) {
        self.queue.push_back(Reply::Atomic(numbers, old));
    }

    /// Handles a repeated READ from `sequence` on. If its responses are still being sent, they restart there.
    /// Returns whether this is the case.
    pub fn repeat_read(&mut self, sequence: u64) -> bool {
        let mtu = self.mtu;
        for reply in &mut self.queue {
            let Reply::Read(read) = reply else { continue };
            let end = read.numbers.sequence + u64::from(mtu.packets(read.length));
            if (read.numbers.sequence..end).contains(&sequence) {
                let offset = mtu.offset((sequence - read.numbers.sequence) as u32);
                if offset <= read.offset {
                    read.offset = offset;
                    read.begins = true;
                }
                return true;
            }
        }
        false
    }

    /// The next response for the wire. `psn` maps a sequence number to its PSN.
    pub fn pop(&mut self, psn: impl Fn(u64) -> Psn) -> Option<ResponsePacket<R>> {
        match self.queue.front_mut()? {
            Reply::Acknowledge(numbers, syndrome) => {
                let extension = Extension::Aeth(Aeth { syndrome: *syndrome, msn: numbers.msn });
                let header = response(BthOpcode::Acknowledge, psn(numbers.sequence), extension);
                self.queue.pop_front();
                Some(ResponsePacket { header, payload: None })
            }
            Reply::Atomic(numbers, old) => {
                let aeth = Aeth { syndrome: Syndrome::ACK, msn: numbers.msn };
                let extension = Extension::AtomicAck(aeth, *old);
                let header = response(BthOpcode::AtomicAcknowledge, psn(numbers.sequence), extension);
                self.queue.pop_front();
                Some(ResponsePacket { header, payload: None })
            }
            Reply::Read(read) => {
                let (packet, ends) = next_segment(read, self.mtu, psn);
                if ends {
                    self.new_reads -= usize::from(read.is_new);
                    self.queue.pop_front();
                }
                Some(packet)
            }
        }
    }
}

/// The next READ response and whether it is the last.
fn next_segment<R: Clone>(
    read: &mut ReadReply<R>,
    mtu: PathMtu,
    psn: impl Fn(u64) -> Psn,
) -> (ResponsePacket<R>, bool) {
    let left = read.length.saturating_sub(read.offset);
    let length = left.min(mtu.bytes());
    let ends = left <= length;
    let sequence = read.numbers.sequence + u64::from(mtu.index(read.offset));
    let position = Position::new(read.begins, ends);
    let header = response(read_opcode(position), psn(sequence), read_extension(position, read.numbers.msn));
    let payload = ResponsePayload { range: read.range.clone(), offset: read.offset, length };
    read.offset += length;
    read.begins = false;
    (ResponsePacket { header, payload: Some(payload) }, ends)
}

fn read_opcode(position: Position) -> BthOpcode {
    match position {
        Position::First => BthOpcode::ReadResponseFirst,
        Position::Middle => BthOpcode::ReadResponseMiddle,
        Position::Last => BthOpcode::ReadResponseLast,
        Position::Only => BthOpcode::ReadResponseOnly,
    }
}

fn read_extension(position: Position, msn: u32) -> Extension {
    match position {
        Position::Middle => Extension::None,
        _ => Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn }),
    }
}

fn response(opcode: BthOpcode, psn: Psn, extension: Extension) -> PacketHeader {
    let service_header = ServiceHeader::None;
    PacketHeader { opcode, psn, solicited: false, ack_request: false, service_header, extension }
}

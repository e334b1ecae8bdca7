//! Netlink messages: a 16-byte header followed by attributes, in native byte order (`linux/netlink.h`).

use crate::Errno;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// Bytes of a header: length (4), type (2), flags (2), sequence number (4), port (4).
const HEADER: usize = 16;
/// Bytes of an attribute's header: length with it (2), type (2).
const ATTRIBUTE: usize = 4;
/// Bits of an attribute's type that hold its number; the upper two are flags.
const ATTRIBUTE_NUMBER: u16 = 0x3fff;

/// Flags of a message.
pub(super) mod flag {
    pub(in crate::netlink) const REQUEST: u16 = 1;
    pub(in crate::netlink) const MULTI: u16 = 2;
    pub(in crate::netlink) const ACK: u16 = 4;
    /// `NLM_F_ROOT` and `NLM_F_MATCH`: all objects.
    pub(in crate::netlink) const DUMP: u16 = 0x300;
}
/// Types of messages that every family has.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestMessage<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    sequence: u32,
    header: &'a [u8],
    attributes: &'a [u8],
}

/// Consecutive messages. Everything after a message with an invalid length is ignored, as in the kernel.
pub(super) fn requests(bytes: &[u8]) -> impl Iterator<Item = RequestMessage<'_>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(*rest.first_chunk()?)).ok()?;
        let message = rest.get(..length).filter(|message| message.len() >= HEADER)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        let (header, attributes) = message.split_at(HEADER);
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let sequence = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        Some(RequestMessage { kind: half(4), flags: half(6), sequence, header, attributes })
    })
}

impl<'a> RequestMessage<'a> {
    pub(super) fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// The payload of an attribute.
    pub(super) fn attribute(&self, number: u16) -> Option<&'a [u8]> {
        let mut rest = self.attributes;
        while let Some((header, _)) = rest.split_at_checked(ATTRIBUTE) {
            let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
            let payload = rest.get(ATTRIBUTE..length)?;
            if u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_NUMBER == number {
                return Some(payload);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
        None
    }

    pub(super) fn number(&self, attribute: u16) -> Option<u32> {
        self.attribute(attribute)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// The text of an attribute, without the zero at its end.
    pub(super) fn text(&self, attribute: u16) -> Option<&'a [u8]> {
        self.attribute(attribute)?.split(|&byte| byte == 0).next()
    }

    /// Begins a response with the request's type, for the socket with this port number.
    pub(super) fn reply(&self, port: u32) -> Reply {
        let flags = if self.has(flag::DUMP) { flag::MULTI } else { 0 };
        Reply::new(self.kind, flags, self.sequence, port)
    }

    /// Ends a response of several messages, with an error if there is one.
    pub(super) fn done(&self, port: u32, error: Option<Errno>) -> Vec<u8> {
        let mut reply = Reply::new(DONE, flag::MULTI, self.sequence, port);
        reply.body.0.extend_from_slice(&code(error));
        reply.finish()
    }

    /// Reports success or failure of a request, with the request's header.
    pub(super) fn acknowledge(&self, port: u32, error: Option<Errno>) -> Vec<u8> {
        let mut reply = Reply::new(ERROR, 0, self.sequence, port);
        reply.body.0.extend_from_slice(&code(error));
        reply.body.0.extend_from_slice(self.header);
        if error.is_some() {
            reply.body.0.extend_from_slice(self.attributes);
        }
        reply.finish()
    }
}

fn code(error: Option<Errno>) -> [u8; 4] {
    error.map_or(0, |error| -error.raw()).to_ne_bytes()
}

/// Attributes under construction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// Attributes that another process wrote; `None` unless each is complete.
    pub(super) fn checked(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
            rest.get(ATTRIBUTE..length)?;
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
        Some(Self(bytes.to_vec()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn append(&mut self, others: &Self) {
        self.0.extend_from_slice(&others.0);
    }

    pub(crate) fn put(&mut self, attribute: u16, payload: &[u8]) {
        let at = self.open(attribute);
        self.0.extend_from_slice(payload);
        self.close(at);
    }

    pub(crate) fn put_u8(&mut self, attribute: u16, value: u8) {
        self.put(attribute, &[value]);
    }

    pub(crate) fn put_u32(&mut self, attribute: u16, value: u32) {
        self.put(attribute, &value.to_ne_bytes());
    }

    pub(crate) fn put_u64(&mut self, attribute: u16, value: u64) {
        self.put(attribute, &value.to_ne_bytes());
    }

    /// A text with a terminating zero.
    pub(super) fn put_text(&mut self, attribute: u16, text: &str) {
        let at = self.open(attribute);
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        self.close(at);
    }

    /// An attribute that contains attributes.
    pub(crate) fn nest(&mut self, attribute: u16, fill: impl FnOnce(&mut Self)) {
        let at = self.open(attribute);
        fill(self);
        self.close(at);
    }

    fn open(&mut self, attribute: u16) -> usize {
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&attribute.to_ne_bytes());
        at
    }

    /// Sets the length. Attributes have some thousand bytes at most.
    fn close(&mut self, at: usize) {
        let length = (self.0.len() - at) as u16;
        self.0[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// A message under construction: a header, and attributes or other data after it.
#[derive(Debug)]
pub(super) struct Reply {
    header: [u8; HEADER],
    body: Attributes,
}

impl Reply {
    fn new(kind: u16, flags: u16, sequence: u32, port: u32) -> Self {
        let mut header = [0; HEADER];
        header[4..6].copy_from_slice(&kind.to_ne_bytes());
        header[6..8].copy_from_slice(&flags.to_ne_bytes());
        header[8..12].copy_from_slice(&sequence.to_ne_bytes());
        header[12..].copy_from_slice(&port.to_ne_bytes());
        Self { header, body: Attributes::default() }
    }

    /// Writes the message's length at its start.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = [&self.header[..], &self.body.0].concat();
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }
}

impl Deref for Reply {
    type Target = Attributes;

    fn deref(&self) -> &Attributes {
        &self.body
    }
}

impl DerefMut for Reply {
    fn deref_mut(&mut self) -> &mut Attributes {
        &mut self.body
    }
}

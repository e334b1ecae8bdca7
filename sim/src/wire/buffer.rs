//! A frame in a reusable buffer, with its parsed packet if that is known.

use super::aeth::Aeth;
use super::bth::Bth;
use super::extension::Extension;
use super::infiniband;
use super::opcode::BthOpcode;
use super::packet::Packet;
use super::parse::parse;
use super::parse_error::ParseError;
use super::route::{Network, Route};
use super::service::ServiceHeader;
use core::ops::{Deref, DerefMut};

/// Smallest capacity of a buffer: the longest headers fit, whatever follows.
const SMALLEST: usize = 256;

/// The bytes of a frame.
///
/// A frame written by [`FrameWriter`](super::FrameWriter) carries its parsed packet, so that a receiver in the same
/// process need not parse it or verify checksums. Every mutable access to the bytes discards the packet. What remains
/// is treated like a foreign frame, which only [`parse`](super::parse) can read.
///
/// ```
/// use bareverbs_sim::wire::FrameBuffer;
///
/// let mut frame = FrameBuffer::new();
/// frame.replace(&[0xff; 42]);
/// frame.pad_to(60);
/// assert_eq!((frame.len(), frame[41], frame[42]), (60, 0xff, 0));
/// assert!(frame.packet().is_none(), "bytes of somebody else: parse them");
/// ```
#[derive(Debug, Clone)]
pub struct FrameBuffer {
    /// Initialized bytes, the first `length` of which are the frame. Never shrinks, so a new frame costs no zeroing.
    storage: Vec<u8>,
    length: usize,
    /// The packet the frame was made from, if it was made here.
    contents: Contents,
    /// Whether `contents` matches the bytes: the frame is finished, and no byte has changed since.
    is_known: bool,
}

/// A packet whose payload is a range of the frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contents {
    pub(super) route: Route,
    pub(super) bth: Bth,
    pub(super) service_header: ServiceHeader,
    pub(super) extension: Extension,
    pub(super) payload_at: usize,
    pub(super) payload_length: usize,
    pub(super) icrc: u32,
}

impl Contents {
    /// Placeholder for a frame that was not made here.
    const NONE: Self = Self {
        route: Route::NONE,
        bth: Bth::NONE,
        service_header: ServiceHeader::None,
        extension: Extension::None,
        payload_at: 0,
        payload_length: 0,
        icrc: 0,
    };

    /// Whether parsing the bytes returns exactly this packet. Headers that a caller made up may not survive: an opcode
    /// that the service class does not have, extension headers of another opcode, a value too wide for its field.
    #[inline(always)] // For every frame.
    pub(super) fn is_regular(&self) -> bool {
        let Self { bth, service_header, extension, .. } = self;
        let numbers_fit = extension.aeth().is_none_or(|aeth| Aeth::from_raw(aeth.to_raw()) == aeth);
        !matches!(bth.opcode, BthOpcode::Unknown(_))
            && bth.service.has(bth.opcode)
            && extension.kind() == bth.opcode.extension()
            && service_header.is_of(bth.service, bth.opcode)
            && numbers_fit
    }
}

impl FrameBuffer {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self { storage: Vec::new(), length: 0, contents: Contents::NONE, is_known: false }
    }

    /// The packet of a frame that was finished here and not changed since. `None` means that the bytes must be parsed.
    #[inline]
    pub fn packet(&self) -> Option<Packet<'_>> {
        if !self.is_known {
            return None;
        }
        let Contents { route, bth, service_header, extension, payload_at, payload_length, icrc } =
            self.contents;
        let payload = self.storage.get(payload_at..payload_at + payload_length)?;
        let packet = Packet { route, bth, service_header, extension, payload, icrc };
        debug_assert_eq!(
            parse_on_link_of(&packet.route, self),
            Ok(packet),
            "the packet is not what the bytes say"
        );
        Some(packet)
    }

    /// Bytes of the frame. That of the slice would first check that the frame is inside its storage.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether the frame has no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that a frame may have without reallocation.
    pub const fn capacity(&self) -> usize {
        self.storage.len()
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        (self.length, self.is_known) = (0, false);
    }

    /// Replaces the frame by other bytes.
    pub fn replace(&mut self, bytes: &[u8]) {
        self.restart(bytes.len());
        self.storage[..bytes.len()].copy_from_slice(bytes);
    }

    /// Pads with zeros to `length` bytes, as short Ethernet frames require.
    pub fn pad_to(&mut self, length: usize) {
        let old = self.length;
        if length > old {
            self.restart(length);
            self.storage[old..length].fill(0);
        }
    }

    /// Becomes a copy of `other`, including its packet.
    pub fn copy_from(&mut self, other: &Self) {
        self.replace(other);
        (self.contents, self.is_known) = (other.contents, other.is_known);
    }

    /// Returns the bytes alone.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.storage.truncate(self.length);
        self.storage
    }

    /// Starts a frame of `length` bytes with unspecified contents.
    #[inline]
    pub(super) fn restart(&mut self, length: usize) {
        self.is_known = false;
        self.length = length;
        if self.storage.len() < length.max(SMALLEST) {
            self.grow(length.max(SMALLEST));
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, size: usize) {
        self.storage.resize(size, 0);
    }

    /// All bytes of the buffer, possibly beyond the end of the frame.
    #[inline]
    pub(super) fn storage_mut(&mut self) -> &mut [u8] {
        &mut self.storage
    }

    /// The payload of the packet that was begun.
    #[inline]
    pub(super) fn payload_mut(&mut self) -> &mut [u8] {
        let end = self.payload_end();
        &mut self.storage[self.contents.payload_at..end]
    }

    /// Offset after the payload of the packet that was begun.
    #[inline]
    pub(super) const fn payload_end(&self) -> usize {
        self.contents.payload_at + self.contents.payload_length
    }

    /// Starts a frame of `length` bytes. Returns the buffer, possibly longer than the frame, with unspecified contents,
    /// and its packet, which is written in place because a copy would cost as much as the header.
    #[inline]
    pub(super) fn begin(&mut self, length: usize) -> (&mut [u8], &mut Contents) {
        self.restart(length);
        (&mut self.storage, &mut self.contents)
    }

    /// Marks the frame as finished, with this ICRC.
    #[inline]
    pub(super) fn finish(&mut self, icrc: u32) {
        self.contents.icrc = icrc;
        self.is_known = self.contents.is_regular();
    }
}

impl Default for FrameBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for FrameBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.storage[..self.length]
    }
}

impl DerefMut for FrameBuffer {
    /// Discards the packet, since the bytes may change.
    fn deref_mut(&mut self) -> &mut [u8] {
        self.is_known = false;
        &mut self.storage[..self.length]
    }
}

impl From<Vec<u8>> for FrameBuffer {
    fn from(storage: Vec<u8>) -> Self {
        Self { length: storage.len(), storage, contents: Contents::NONE, is_known: false }
    }
}

impl PartialEq for FrameBuffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// Parses the bytes as a receiver on this route's link would.
fn parse_on_link_of<'a>(route: &Route, frame: &'a [u8]) -> Result<Packet<'a>, ParseError> {
    match route.network {
        Network::InfiniBand(_) => infiniband::parse(frame),
        _ => parse(frame),
    }
}

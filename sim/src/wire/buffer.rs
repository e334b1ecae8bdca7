//! A frame in a buffer that is used again and again, with the packet in it if that is known.

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

/// Bytes that every buffer holds at least: the longest headers fit, whatever follows them.
const SMALLEST: usize = 256;

/// The bytes of a frame.
///
/// A frame that [`FrameWriter`](super::FrameWriter) finished carries its packet along, so that a receiver in the same process
/// need not parse it nor check its checksums again. Whoever changes a byte takes the packet away, because every mutable access
/// does so; what is left then are bytes like those of a foreign frame, which only [`parse`](super::parse) can read.
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
    /// Initialised bytes, of which the first `length` are the frame. It never shrinks, so a frame costs no zeroing.
    storage: Vec<u8>,
    length: usize,
    /// What the frame was made of, if it was made here.
    contents: Contents,
    /// Whether `contents` is what the bytes say: the frame is finished, and nobody has changed a byte since.
    is_known: bool,
}

/// A packet whose payload is named by its place in the frame.
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
    /// What stands for the contents of a frame that was not made here.
    const NONE: Self = Self {
        route: Route::NONE,
        bth: Bth::NONE,
        service_header: ServiceHeader::None,
        extension: Extension::None,
        payload_at: 0,
        payload_length: 0,
        icrc: 0,
    };

    /// Whether a parser reads exactly this out of the bytes. A header that its owner made up need not survive: an op-code that its
    /// class does not have, extension headers of another op-code, a number with more bits than its field.
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
    /// A buffer without a frame.
    pub const fn new() -> Self {
        Self { storage: Vec::new(), length: 0, contents: Contents::NONE, is_known: false }
    }

    /// The packet of a frame that was finished here and not changed since. `None` means: parse the bytes.
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

    /// Bytes that a frame may have without an allocation.
    pub const fn capacity(&self) -> usize {
        self.storage.len()
    }

    /// Makes the buffer empty; its memory is used again.
    pub fn clear(&mut self) {
        (self.length, self.is_known) = (0, false);
    }

    /// Puts other bytes in place of the frame.
    pub fn replace(&mut self, bytes: &[u8]) {
        self.restart(bytes.len());
        self.storage[..bytes.len()].copy_from_slice(bytes);
    }

    /// Adds zeros until the frame has `length` bytes, as short Ethernet frames need them.
    pub fn pad_to(&mut self, length: usize) {
        let old = self.length;
        if length > old {
            self.restart(length);
            self.storage[old..length].fill(0);
        }
    }

    /// Becomes a copy of `other`, packet and all.
    pub fn copy_from(&mut self, other: &Self) {
        self.replace(other);
        (self.contents, self.is_known) = (other.contents, other.is_known);
    }

    /// The bytes alone.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.storage.truncate(self.length);
        self.storage
    }

    /// Begins a frame of `length` bytes, which are whatever they were before.
    pub(super) fn restart(&mut self, length: usize) {
        self.is_known = false;
        self.length = length;
        if self.storage.len() < length.max(SMALLEST) {
            self.storage.resize(length.max(SMALLEST), 0);
        }
    }

    /// The bytes behind `at`, up to the end of the buffer, which may lie behind that of the frame.
    #[inline]
    pub(super) fn storage_from(&mut self, at: usize) -> &mut [u8] {
        &mut self.storage[at..]
    }

    /// The packet that the frame will hold when it is finished. It is written where it stays: a copy costs as much as the header.
    #[inline]
    pub(super) fn contents_mut(&mut self) -> &mut Contents {
        self.is_known = false;
        &mut self.contents
    }

    /// The frame is finished, with this ICRC.
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
    /// The bytes may be changed: the packet is not known any more.
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

/// What a receiver on the link of this route makes of the bytes.
fn parse_on_link_of<'a>(route: &Route, frame: &'a [u8]) -> Result<Packet<'a>, ParseError> {
    match route.network {
        Network::InfiniBand(_) => infiniband::parse(frame),
        _ => parse(frame),
    }
}

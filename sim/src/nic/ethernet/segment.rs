//! Large sends: a packet longer than the MTU becomes a sequence of TCP segments.

use super::checksum;
use super::headers::{Headers, NetworkProtocol, TCP};

const TCP_HEADER: usize = 20;
const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 13;
const FIN: u8 = 0x01;
const PUSH: u8 = 0x08;
/// The CWR flag appears only once (RFC 3168 §6.1.2).
const CONGESTION_WINDOW_REDUCED: u8 = 0x80;

/// A large send that cannot be segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotSegmentable;

/// A payload that is cut into pieces of `mss` bytes, each preceded by the headers of the whole send with its
/// own lengths, identification, sequence number, flags and checksums. Frames are built on demand: the PRM
/// limits the bytes of a large send (`max_lso_cap`) but not its frames, of which there are 2^18 if each
/// carries one byte.
#[derive(Debug)]
pub(crate) struct SegmentedSend {
    template: Template,
    payload: Vec<u8>,
    mss: usize,
    /// Frames built so far, and the total.
    made: usize,
    frames: usize,
}

impl SegmentedSend {
    /// A large send without any frames built yet.
    pub(crate) fn new(header: Vec<u8>, payload: Vec<u8>, mss: usize) -> Result<Self, NotSegmentable> {
        let template = Template::new(header, mss)?;
        let frames = payload.len().div_ceil(mss).max(1);
        Ok(Self { template, payload, mss, made: 0, frames })
    }

    /// Total bytes of all frames.
    pub(crate) const fn bytes(&self) -> usize {
        self.frames * self.template.header.len() + self.payload.len()
    }

    /// Frames built so far.
    #[cfg(test)]
    pub(crate) const fn made(&self) -> usize {
        self.made
    }

    /// Whether every frame was built.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.made == self.frames
    }
}

impl Iterator for SegmentedSend {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.is_at_end() {
            return None;
        }
        let (index, from) = (self.made, self.made * self.mss);
        let piece = self.payload.get(from..self.payload.len().min(from + self.mss)).unwrap_or_default();
        self.made += 1;
        Some(self.template.build(piece, index, from, self.is_at_end()))
    }
}

/// The headers of the whole send.
#[derive(Debug)]
struct Template {
    header: Vec<u8>,
    network_at: usize,
    tcp_at: usize,
    version4: bool,
}

impl Template {
    /// The headers must be exactly Ethernet, IP and TCP, so that they contain every field that a frame
    /// changes.
    fn new(header: Vec<u8>, mss: usize) -> Result<Self, NotSegmentable> {
        let mut whole = header.clone();
        let first = Headers::parse(&header).ok_or(NotSegmentable)?;
        // The length fields hold the length of the whole send, or zero if it is too large for them.
        set_length(&mut whole, first.network_at);
        let headers = Headers::parse(&whole).ok_or(NotSegmentable)?;
        let tcp_at = headers.transport_at.filter(|_| headers.protocol == TCP).ok_or(NotSegmentable)?;
        let offset = usize::from(*header.get(tcp_at + 12).ok_or(NotSegmentable)? >> 4) * 4;
        if mss == 0 || offset < TCP_HEADER || tcp_at + offset != header.len() {
            return Err(NotSegmentable);
        }
        let version4 = headers.network == NetworkProtocol::V4;
        Ok(Self { header, network_at: headers.network_at, tcp_at, version4 })
    }

    fn build(&self, piece: &[u8], index: usize, from: usize, last: bool) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.header.len() + piece.len());
        frame.extend_from_slice(&self.header);
        frame.extend_from_slice(piece);
        set_length(&mut frame, self.network_at);
        if self.version4 {
            change(&mut frame, self.network_at + 4, |bytes| {
                u16::from_be_bytes(bytes).wrapping_add(index as u16).to_be_bytes()
            });
        }
        change(&mut frame, self.tcp_at + TCP_SEQUENCE, |bytes| {
            u32::from_be_bytes(bytes).wrapping_add(from as u32).to_be_bytes()
        });
        let ends = if last { 0 } else { FIN | PUSH };
        let begins = if index == 0 { 0 } else { CONGESTION_WINDOW_REDUCED };
        change(&mut frame, self.tcp_at + TCP_FLAGS, |[flags]| [flags & !(ends | begins)]);
        if let Some(headers) = Headers::parse(&frame) {
            checksum::fill_network(&mut frame, &headers);
            checksum::fill_transport(&mut frame, &headers);
        }
        frame
    }
}

/// Edits a field of the headers.
fn change<const N: usize>(frame: &mut [u8], at: usize, edit: impl FnOnce([u8; N]) -> [u8; N]) {
    if let Some(field) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *field = edit(*field);
    }
}

/// Sets the length field of the IP header to that of the frame.
fn set_length(frame: &mut [u8], network_at: usize) {
    let length = frame.len().saturating_sub(network_at);
    let (offset, value) = match frame.get(network_at).map(|first| first >> 4) {
        Some(4) => (2, length),
        Some(6) => (4, length.saturating_sub(40)),
        _ => return,
    };
    if let (Some(field), Ok(value)) = (frame.get_mut(network_at + offset..), u16::try_from(value))
        && let Some(field) = field.first_chunk_mut::<2>()
    {
        *field = value.to_be_bytes();
    }
}

//! Large sends: one packet that is longer than the wire takes becomes a train of TCP segments.

use super::checksum;
use super::headers::{Headers, NetworkProtocol, TCP};

const TCP_HEADER: usize = 20;
const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 13;
const FIN: u8 = 0x01;
const PUSH: u8 = 0x08;
/// «Congestion window reduced» is said once (RFC 3168 §6.1.2).
const CONGESTION_WINDOW_REDUCED: u8 = 0x80;

/// What is wrong with a large send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotSegmentable;

/// Cuts `payload` into pieces of `mss` bytes, each behind the headers of the whole: lengths, identification, sequence
/// number, flags and checksums are those of the piece.
pub(crate) fn segments(header: &[u8], payload: &[u8], mss: usize) -> Result<Vec<Vec<u8>>, NotSegmentable> {
    let template = Template::new(header, mss)?;
    let last = payload.len().div_ceil(mss).max(1) - 1;
    let pieces = (0..=last).map(|index| {
        let from = index * mss;
        let piece = payload.get(from..payload.len().min(from + mss)).unwrap_or_default();
        template.build(piece, index, from, index == last)
    });
    pieces.collect()
}

/// The headers of the whole.
struct Template<'a> {
    header: &'a [u8],
    network_at: usize,
    tcp_at: usize,
    version4: bool,
}

impl<'a> Template<'a> {
    /// The headers must be all of Ethernet, IP and TCP, and nothing more.
    fn new(header: &'a [u8], mss: usize) -> Result<Self, NotSegmentable> {
        let mut whole = header.to_vec();
        let first = Headers::parse(header).ok_or(NotSegmentable)?;
        // The length fields are those of the whole send, or zero if that is too long for them.
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

    fn build(&self, piece: &[u8], index: usize, from: usize, last: bool) -> Result<Vec<u8>, NotSegmentable> {
        let mut frame = Vec::with_capacity(self.header.len() + piece.len());
        frame.extend_from_slice(self.header);
        frame.extend_from_slice(piece);
        set_length(&mut frame, self.network_at);
        if self.version4 {
            add(&mut frame, self.network_at + 4, index as u16).ok_or(NotSegmentable)?;
        }
        let at = self.tcp_at + TCP_SEQUENCE;
        let sequence = frame.get_mut(at..at + 4).and_then(|bytes| bytes.first_chunk_mut::<4>());
        let sequence = sequence.ok_or(NotSegmentable)?;
        *sequence = u32::from_be_bytes(*sequence).wrapping_add(from as u32).to_be_bytes();
        let flags = frame.get_mut(self.tcp_at + TCP_FLAGS).ok_or(NotSegmentable)?;
        if !last {
            *flags &= !(FIN | PUSH);
        }
        if index > 0 {
            *flags &= !CONGESTION_WINDOW_REDUCED;
        }
        let headers = Headers::parse(&frame).ok_or(NotSegmentable)?;
        checksum::fill_network(&mut frame, &headers);
        checksum::fill_transport(&mut frame, &headers);
        Ok(frame)
    }
}

/// Adds to a 16-bit field.
fn add(frame: &mut [u8], at: usize, value: u16) -> Option<()> {
    let field = frame.get_mut(at..)?.first_chunk_mut::<2>()?;
    *field = u16::from_be_bytes(*field).wrapping_add(value).to_be_bytes();
    Some(())
}

/// Makes the length field of the IP header that of the frame.
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

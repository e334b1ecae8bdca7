//! Captures in pcapng, with nanosecond timestamps in virtual or real time. IETF draft-ietf-opsawg-pcapng §4.1 (section
//! header), §4.2 (interface description), §4.3 (enhanced packet).
//!
//! A write error stops the capture but not the world. [`Capture::finish`] returns it.

use core::fmt::{self, Write as _};
use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Link type of an interface: what its frames start with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// An InfiniBand local route header. Each packet is written behind an extensible record format header (link type
    /// 197), because capture readers decode InfiniBand from that and not from InfiniBand's own link type (247).
    InfiniBand,
    /// No frames: one line of text per packet (link type 147, reserved for private use).
    Records,
}

impl LinkType {
    const fn to_raw(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::InfiniBand => 197,
            Self::Records => 147,
        }
    }
}

/// Bytes of an extensible record format header, and the record type of an InfiniBand packet.
const RECORD_HEADER: usize = 16;
const RECORD_INFINIBAND: u8 = 21;
/// `flags`: records have variable lengths.
const RECORD_VARYING: u8 = 4;
/// Nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// Builds a record header: timestamp in units of 2^-32 s, little-endian; type and flags; record length, lost frames,
/// wire length.
fn record_header(nanos: u64, length: usize) -> [u8; RECORD_HEADER] {
    let (seconds, rest) = (nanos / NANOS, nanos % NANOS);
    let time = (seconds << 32) + (rest << 32) / NANOS;
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    let record = length.saturating_add(RECORD_HEADER as u16);
    let mut header = [0; RECORD_HEADER];
    header[..8].copy_from_slice(&time.to_le_bytes());
    header[8..10].copy_from_slice(&[RECORD_INFINIBAND, RECORD_VARYING]);
    header[10..12].copy_from_slice(&record.to_be_bytes());
    header[14..].copy_from_slice(&length.to_be_bytes());
    header
}

/// Clock of the timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Virtual time: 0 is the start of the world.
    Virtual,
    /// The machine's time: 0 is the start of 1970.
    Real,
}

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_USER_APPLICATION: u16 = 4;
const OPTION_INTERFACE_NAME: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_PACKET_FLAGS: u16 = 2;
const NANOSECONDS: u8 = 9;

/// Direction of a frame, as seen by the interface that captured it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// An incomplete capture.
#[derive(Debug)]
pub struct CaptureError {
    /// Frames written before the error.
    pub frames: u64,
    /// The writer's error.
    pub cause: io::Error,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the capture stopped after {} frames: {}; check space and rights of the file",
            self.frames, self.cause
        )
    }
}

impl core::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// A pcapng section that is being written.
///
/// ```
/// use bareverbs_sim::net::{Capture, Clock, Direction, LinkType};
///
/// let file = Vec::new();
/// let mut capture = Capture::new(Box::new(file), Clock::Virtual);
/// let port = capture.add_interface("host 1", LinkType::Ethernet);
/// capture.frame(port, 1_500, Direction::Outbound, &[0xff; 60], ["fault: dropped"]);
/// assert_eq!(capture.finish().unwrap(), 1);
/// ```
pub struct Capture<W: ?Sized + Write = dyn Write> {
    out: Box<W>,
    block: Vec<u8>,
    interfaces: Vec<LinkType>,
    frames: u64,
    text: String,
    error: Option<io::Error>,
}

impl<W: ?Sized + Write> fmt::Debug for Capture<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("frames", &self.frames)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<W: ?Sized + Write> Capture<W> {
    /// Starts a section on `out`, which should be buffered.
    pub fn new(out: Box<W>, clock: Clock) -> Self {
        let mut capture = Self {
            out,
            block: Vec::new(),
            interfaces: Vec::new(),
            frames: 0,
            text: String::new(),
            error: None,
        };
        capture.begin(SECTION_HEADER);
        capture.u32(BYTE_ORDER_MAGIC);
        capture.u16(1);
        capture.u16(0);
        capture.block.extend_from_slice(&u64::MAX.to_le_bytes());
        let application: &[u8] = match clock {
            Clock::Virtual => b"bareverbs-sim, virtual time",
            Clock::Real => b"bareverbs-sim, real time",
        };
        capture.option(OPTION_USER_APPLICATION, application);
        capture.end_options();
        capture.end();
        capture
    }

    /// Whether a write has failed; [`Capture::finish`] returns the error.
    pub const fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Adds an interface and returns its number.
    pub fn add_interface(&mut self, name: &str, link: LinkType) -> u32 {
        self.begin(INTERFACE_DESCRIPTION);
        self.u16(link.to_raw());
        self.u16(0);
        self.u32(0);
        self.option(OPTION_INTERFACE_NAME, name.as_bytes());
        self.option(OPTION_TIME_RESOLUTION, &[NANOSECONDS]);
        self.end_options();
        self.end();
        self.interfaces.push(link);
        self.interfaces.len() as u32 - 1
    }

    /// Writes one frame, with comments.
    pub fn frame<'a>(
        &mut self,
        interface: u32,
        nanos: u64,
        direction: Direction,
        bytes: &[u8],
        comments: impl IntoIterator<Item = &'a str>,
    ) {
        self.begin(ENHANCED_PACKET);
        self.u32(interface);
        self.u32((nanos >> 32) as u32);
        self.u32(nanos as u32);
        let infiniband = self.interfaces.get(interface as usize) == Some(&LinkType::InfiniBand);
        let length = bytes.len() + if infiniband { RECORD_HEADER } else { 0 };
        self.u32(length as u32);
        self.u32(length as u32);
        if infiniband {
            self.padded(&record_header(nanos, bytes.len()));
        }
        self.padded(bytes);
        for comment in comments {
            self.option(OPTION_COMMENT, comment.as_bytes());
        }
        self.option(OPTION_PACKET_FLAGS, &(1 + direction as u32).to_le_bytes());
        self.end_options();
        self.end();
        self.frames += u64::from(self.error.is_none());
    }

    /// Writes one text record to an interface of type [`LinkType::Records`]. Records do not count as frames.
    pub fn record(&mut self, interface: u32, nanos: u64, record: &dyn fmt::Display) {
        let mut text = core::mem::take(&mut self.text);
        text.clear();
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{record}");
        self.begin(ENHANCED_PACKET);
        self.u32(interface);
        self.u32((nanos >> 32) as u32);
        self.u32(nanos as u32);
        self.u32(text.len() as u32);
        self.u32(text.len() as u32);
        self.padded(text.as_bytes());
        self.end();
        self.text = text;
    }

    /// Flushes. Returns the number of frames written, or the error that stopped the capture.
    pub fn finish(mut self) -> Result<u64, CaptureError> {
        let flushed = self.out.flush();
        let frames = self.frames;
        match self.error.take().map_or(flushed, Err) {
            Ok(()) => Ok(frames),
            Err(cause) => Err(CaptureError { frames, cause }),
        }
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0);
    }

    fn end(&mut self) {
        let length = self.block.len() as u32 + 4;
        self.u32(length);
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        if self.error.is_none() {
            self.error = self.out.write_all(&self.block).err();
        }
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    fn end_options(&mut self) {
        self.u16(OPTION_END);
        self.u16(0);
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn u16(&mut self, value: u16) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;

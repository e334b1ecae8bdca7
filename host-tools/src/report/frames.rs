//! Frames and records of a capture, one after the other: a file is read as a stream, whatever its length.

use anyhow::{Context as _, anyhow};
use bareverbs_sim::nic::{FrameOrigin, TextError};
use bareverbs_sim::run::{RECORDS_SUFFIX, RecordText};
use bareverbs_sim::wire::{Packet, ParseError, infiniband, parse};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::Block;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use std::io::Read;

/// Most interfaces of a capture that are tracked.
const INTERFACES: usize = 4096;
/// Link type of interfaces of records.
const RECORDS: DataLink = DataLink::USER0;
/// Bytes of an ERF record before an InfiniBand packet.
const RECORD_HEADER: usize = 16;
/// Nanoseconds in a microsecond, the time unit of interfaces that state none (pcapng, if_tsresol).
const MICROSECOND: u64 = 1000;

/// A frame.
pub(super) struct Frame<'a> {
    /// Time in nanoseconds since the capture's epoch.
    pub(super) nanos: u64,
    /// Number of the interface.
    pub(super) interface: usize,
    pub(super) bytes: usize,
    /// What happened to it on the way, if the capture says so.
    pub(super) note: Option<&'a str>,
    /// Its origin, if the capture says so.
    pub(super) origin: Option<FrameOrigin>,
    pub(super) packet: Result<Packet<'a>, ParseError>,
}

impl Frame<'_> {
    /// Whether the capture says that it was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.note.is_some_and(|note| note.contains("dropped"))
    }
}

/// An action of a device or its host (docs/adr/0029).
pub(super) struct Record<'a> {
    /// Time in nanoseconds since the capture's epoch.
    pub(super) nanos: u64,
    /// Number of the interface with this device's frames.
    pub(super) interface: usize,
    pub(super) what: Result<RecordText<'a>, TextError>,
}

/// An item of a capture.
pub(super) enum Item<'a> {
    Frame(Frame<'a>),
    Record(Record<'a>),
}

/// An interface of a capture.
struct Interface {
    name: String,
    link: DataLink,
    unit: u64,
    /// Its number among the interfaces of frames; for an interface of records, the number of the interface
    /// with the same device's frames.
    number: usize,
    has_records: bool,
}

/// Passes every frame and every record to `each`; returns the names of the interfaces of frames.
///
/// # Errors
/// It is not a pcapng file, or it ends in the middle of a block; or `each` failed.
pub(super) fn read(
    source: impl Read,
    mut each: impl FnMut(&Item<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let mut reader = PcapNgReader::new(source)
        .context("it is not a pcapng file; editcap -F pcapng converts other captures")?;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut count = 0_u64;
    while let Some(block) = reader.next_block() {
        match block.with_context(|| format!("after {count} frames"))? {
            Block::InterfaceDescription(block) if interfaces.len() < INTERFACES => {
                interfaces.push(interface(&block, &interfaces));
            }
            Block::InterfaceDescription(_) => {
                return Err(anyhow!("it has more than {INTERFACES} interfaces"));
            }
            Block::EnhancedPacket(block) => {
                count += 1;
                let of = interfaces.get(block.interface_id as usize).with_context(|| {
                    format!(
                        "frame {count} belongs to interface {}, which is not described",
                        block.interface_id
                    )
                })?;
                each(&item(&block, of))?;
            }
            _ => {}
        }
    }
    let frames = interfaces.into_iter().filter(|interface| !interface.has_records);
    Ok(frames.map(|interface| interface.name).collect())
}

fn interface(block: &InterfaceDescriptionBlock<'_>, before: &[Interface]) -> Interface {
    let name = block.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
        _ => None,
    });
    let nanoseconds = block.options.contains(&InterfaceDescriptionOption::IfTsResol(9));
    let name = name.unwrap_or_else(|| format!("interface {}", before.len()));
    let node = if block.linktype == RECORDS { name.strip_suffix(RECORDS_SUFFIX) } else { None };
    let of_frames = before.iter().filter(|interface| !interface.has_records);
    // Two devices may have the same name: a device's records are described right after its own frames, or
    // after those of all devices.
    let right_before = before.last().filter(|last| !last.has_records && node == Some(&last.name));
    let owner = right_before.or_else(|| before.iter().find(|interface| node == Some(&interface.name)));
    let number = owner.map_or(of_frames.count(), |owner| owner.number);
    let unit = if nanoseconds { 1 } else { MICROSECOND };
    Interface { has_records: owner.is_some(), number, name, link: block.linktype, unit }
}

fn item<'a>(block: &'a EnhancedPacketBlock<'a>, of: &Interface) -> Item<'a> {
    let nanos = u64::try_from(block.timestamp.as_nanos()).unwrap_or(u64::MAX).saturating_mul(of.unit);
    if of.has_records {
        let what = str::from_utf8(&block.data).map_err(|_| TextError).and_then(RecordText::parse);
        return Item::Record(Record { nanos, interface: of.number, what });
    }
    let (mut note, mut origin) = (None, None);
    for option in &block.options {
        if let EnhancedPacketOption::Comment(text) = option {
            match FrameOrigin::parse(text) {
                Ok(of) => origin = Some(of),
                Err(TextError) => note = note.or(Some(&**text)),
            }
        }
    }
    let (bytes, packet) = packet(of.link, &block.data);
    Item::Frame(Frame { nanos, interface: of.number, bytes, note, origin, packet })
}

fn packet(link: DataLink, data: &[u8]) -> (usize, Result<Packet<'_>, ParseError>) {
    match link {
        DataLink::ERF => match data.get(RECORD_HEADER..) {
            Some(frame) => (frame.len(), infiniband::parse(frame)),
            None => (data.len(), Err(ParseError::Truncated)),
        },
        _ => (data.len(), parse(data)),
    }
}

//! Frames of a capture, one after the other: a file is read as a stream, whatever its length.

use anyhow::{Context as _, anyhow};
use bareverbs_sim::wire::{Packet, ParseError, infiniband, parse};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::Block;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use std::io::Read;

/// Interfaces of a capture that are told apart.
const INTERFACES: usize = 4096;
/// Bytes of an ERF record before an InfiniBand packet.
const RECORD_HEADER: usize = 16;
/// Nanoseconds in a microsecond, which is the unit where an interface tells none (pcapng, if_tsresol).
const MICROSECOND: u64 = 1000;

/// A frame.
pub(super) struct Frame<'a> {
    /// Nanoseconds, from when the capture counts them.
    pub(super) nanos: u64,
    /// Number of the interface.
    pub(super) interface: usize,
    pub(super) bytes: usize,
    /// What happened to it on the way, if the capture says so.
    pub(super) note: Option<&'a str>,
    pub(super) packet: Result<Packet<'a>, ParseError>,
}

impl Frame<'_> {
    /// Whether the capture says that it was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.note.is_some_and(|note| note.contains("dropped"))
    }
}

/// An interface of a capture.
struct Interface {
    name: String,
    link: DataLink,
    unit: u64,
}

/// Hands every frame to `each`; gives the names of the interfaces.
///
/// # Errors
/// It is no pcapng file, or it ends in the middle of a block; or `each` failed.
pub(super) fn read(
    source: impl Read,
    mut each: impl FnMut(&Frame<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let mut reader = PcapNgReader::new(source).context("it is no pcapng file")?;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut count = 0_u64;
    while let Some(block) = reader.next_block() {
        match block.with_context(|| format!("after {count} frames"))? {
            Block::InterfaceDescription(block) if interfaces.len() < INTERFACES => {
                interfaces.push(interface(&block, interfaces.len()));
            }
            Block::InterfaceDescription(_) => {
                return Err(anyhow!("it has more than {INTERFACES} interfaces"));
            }
            Block::EnhancedPacket(block) => {
                count += 1;
                let number = block.interface_id as usize;
                let of = interfaces.get(number).with_context(|| {
                    format!("frame {count} is of interface {number}, which is not described")
                })?;
                let note = block.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(&**text),
                    _ => None,
                });
                let nanos =
                    u64::try_from(block.timestamp.as_nanos()).unwrap_or(u64::MAX).saturating_mul(of.unit);
                let (bytes, packet) = packet(of.link, &block.data);
                each(&Frame { nanos, interface: number, bytes, note, packet })?;
            }
            _ => {}
        }
    }
    Ok(interfaces.into_iter().map(|interface| interface.name).collect())
}

fn interface(block: &InterfaceDescriptionBlock<'_>, number: usize) -> Interface {
    let name = block.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
        _ => None,
    });
    let nanoseconds = block.options.contains(&InterfaceDescriptionOption::IfTsResol(9));
    Interface {
        name: name.unwrap_or_else(|| format!("interface {number}")),
        link: block.linktype,
        unit: if nanoseconds { 1 } else { MICROSECOND },
    }
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

//! Capability pages as the device reports them, for applications that need more than the driver uses.

use crate::executor::CommandOutput;
use bareverbs_prm::command::caps::{
    AtomicCapabilities, GeneralCapabilities, GeneralCapabilities2, QueryHcaCapIn, RoceCapabilities,
};
use bareverbs_prm::command::caps_ethernet::EthernetCapabilities;
use bareverbs_prm::field::Layout;
use bareverbs_prm::numbering::{CapabilityType, CommandOpcode};
use zerocopy::FromBytes;

/// Bytes of the output of QUERY_HCA_CAP: 16 bytes of header and a page of 4 KiB.
pub(crate) const CAPABILITY_MESSAGE: usize = 4112;
/// Bytes of the output before the page.
const HEADER: usize = 16;
/// Bytes of a page that this driver reads; no known page is longer.
const CAPABILITY_PAGE: usize = 256;

/// Which values of a capability page to query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapabilityValues {
    /// The maximum that the device supports.
    Maximum = 0,
    /// The values in force, after the driver has configured the device.
    Current = 1,
}

/// A capability page that [`Device::capability_page`](crate::Device::capability_page) can query.
pub trait CapabilityPage: Layout + FromBytes + Default {
    /// The number of the page.
    const TYPE: CapabilityType;
}

impl CapabilityPage for GeneralCapabilities {
    const TYPE: CapabilityType = CapabilityType::General;
}

impl CapabilityPage for GeneralCapabilities2 {
    const TYPE: CapabilityType = CapabilityType::General2;
}

impl CapabilityPage for AtomicCapabilities {
    const TYPE: CapabilityType = CapabilityType::Atomic;
}

impl CapabilityPage for RoceCapabilities {
    const TYPE: CapabilityType = CapabilityType::Roce;
}

impl CapabilityPage for EthernetCapabilities {
    const TYPE: CapabilityType = CapabilityType::EthernetOffloads;
}

/// QUERY_HCA_CAP of one page.
pub(crate) fn query_page(page: CapabilityType, values: CapabilityValues) -> QueryHcaCapIn {
    let mut input = QueryHcaCapIn::new();
    input.set_opcode(CommandOpcode::QueryHcaCap).set_op_mod((page.raw() as u16) << 1 | values as u16);
    input
}

/// The start of the output of QUERY_HCA_CAP.
pub(crate) type PageAnswer = [u8; HEADER + CAPABILITY_PAGE];

/// An empty buffer for the output.
pub(crate) const fn page_answer() -> PageAnswer {
    [0; HEADER + CAPABILITY_PAGE]
}

/// The destination of the output: the device writes a whole page, and the driver keeps its start.
pub(crate) fn page_output(buffer: &mut PageAnswer) -> CommandOutput<'_> {
    CommandOutput { buffer, length: CAPABILITY_MESSAGE }
}

/// The page in an output.
pub(crate) fn page_of<P: CapabilityPage>(output: &PageAnswer) -> P {
    const { assert!(P::SIZE <= CAPABILITY_PAGE) };
    P::read_from_prefix(&output[HEADER..]).map_or_else(|_| P::default(), |(page, _)| page)
}

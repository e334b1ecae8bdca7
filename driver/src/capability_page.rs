//! Capability pages as the device reports them, for applications that need more than the driver uses.

use crate::executor::CommandOutput;
use bareverbs_prm::command::caps::{
    AtomicCapabilities, GeneralCapabilities, GeneralCapabilities2, QueryHcaCapIn, RoceCapabilities,
};
use bareverbs_prm::command::caps_ethernet::{EthernetCapabilities, FlowTableProperties};
use bareverbs_prm::command::caps_optional::{DeviceMemoryCapabilities, OdpCapabilities, QosCapabilities};
use bareverbs_prm::field::{Layout, LayoutInfo};
use bareverbs_prm::numbering::{CapabilityType, CommandOpcode};
use zerocopy::{FromBytes, Immutable, IntoBytes};

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
    /// Bytes of the page before the layout; zero if the layout is the page.
    const OFFSET: usize = 0;
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

impl CapabilityPage for OdpCapabilities {
    const TYPE: CapabilityType = CapabilityType::Odp;
}

/// Enhanced offloads for IP over InfiniBand: a page with the layout of the Ethernet offloads.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct IpoibOffloads(pub EthernetCapabilities);

impl Layout for IpoibOffloads {
    const INFO: LayoutInfo = EthernetCapabilities::INFO;
    const SIZE: usize = EthernetCapabilities::SIZE;
}

impl CapabilityPage for IpoibOffloads {
    const TYPE: CapabilityType = CapabilityType::IpoibEnhancedOffloads;
}

/// What flow tables for received packets can do: the part `flow_table_properties_nic_receive` of the page.
impl CapabilityPage for FlowTableProperties {
    const TYPE: CapabilityType = CapabilityType::FlowTable;
    const OFFSET: usize = 64;
}

impl CapabilityPage for QosCapabilities {
    const TYPE: CapabilityType = CapabilityType::Qos;
}

impl CapabilityPage for DeviceMemoryCapabilities {
    const TYPE: CapabilityType = CapabilityType::DevMem;
}

/// QUERY_HCA_CAP of one page.
pub(crate) fn query_page(page: CapabilityType, values: CapabilityValues) -> QueryHcaCapIn {
    let mut input = QueryHcaCapIn::new();
    input.set_opcode(CommandOpcode::QueryHcaCap).set_op_mod((page.raw() as u16) << 1 | values as u16);
    input
}

/// The start of the output of QUERY_HCA_CAP.
pub(crate) type PageBuffer = [u8; HEADER + CAPABILITY_PAGE];

/// An empty buffer for the output.
pub(crate) const fn page_buffer() -> PageBuffer {
    [0; HEADER + CAPABILITY_PAGE]
}

/// The destination of the output: the device writes a whole page, and the driver keeps its start.
pub(crate) fn page_output(buffer: &mut PageBuffer) -> CommandOutput<'_> {
    CommandOutput { buffer, length: CAPABILITY_MESSAGE }
}

/// The page in an output.
pub(crate) fn page_of<P: CapabilityPage>(output: &PageBuffer) -> P {
    const { assert!(P::OFFSET + P::SIZE <= CAPABILITY_PAGE) };
    P::read_from_prefix(&output[HEADER + P::OFFSET..]).map_or_else(|_| P::default(), |(page, _)| page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::command::caps_ethernet::NicFlowTableCapabilities;

    #[test]
    fn a_part_of_a_page_is_read_from_its_place() {
        let mut page = NicFlowTableCapabilities::new();
        page.flow_table_properties_nic_receive_mut().set_modify_root(true).set_log_max_ft_size(21);
        let mut buffer = page_buffer();
        buffer[HEADER..].copy_from_slice(&page.as_bytes()[..CAPABILITY_PAGE]);
        assert_eq!(page_of::<FlowTableProperties>(&buffer), *page.flow_table_properties_nic_receive());
    }
}

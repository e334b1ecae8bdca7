//! The capability pages of a device: which ones it has, and their fields by the names of the PRM.

use super::fact::{Fact, Section};
use bareverbs_core::Device;
use bareverbs_core::capability_page::{CapabilityPage, CapabilityValues, IpoibOffloads};
use bareverbs_core::command::CommandError;
use bareverbs_core::hal::Hal;
use bareverbs_prm::command::caps::{AtomicCapabilities, GeneralCapabilities, RoceCapabilities};
use bareverbs_prm::command::caps_ethernet::{EthernetCapabilities, FlowTableProperties};
use bareverbs_prm::command::caps_optional::{DeviceMemoryCapabilities, OdpCapabilities, QosCapabilities};
use bareverbs_prm::field::{FieldInfo, Layout};
use zerocopy::{Immutable, IntoBytes};

/// Pages that Linux's `mlx5_core` reads (`mlx5_get_hca_caps`). A bit of the general page says whether the device has another one.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) general: GeneralCapabilities,
    pub(super) atomic: Option<AtomicCapabilities>,
    pub(super) roce: Option<RoceCapabilities>,
    pub(super) ethernet: Option<EthernetCapabilities>,
    /// Flow tables for received packets.
    pub(super) flow_tables: Option<FlowTableProperties>,
    pub(super) ipoib: Option<IpoibOffloads>,
    /// The maximum, because Linux enables all that it uses of this page (`handle_hca_cap_odp`).
    pub(super) on_demand_paging: Option<OdpCapabilities>,
    pub(super) quality_of_service: Option<QosCapabilities>,
    pub(super) device_memory: Option<DeviceMemoryCapabilities>,
}

impl Pages {
    /// `general` is the general page of a device of the kernel, without which some of its capabilities would be hidden.
    pub(super) fn query<H: Hal>(
        device: &Device<H>,
        general: Option<GeneralCapabilities>,
    ) -> Result<Self, CommandError> {
        let general = match general {
            Some(page) => page,
            None => device.capability_page(CapabilityValues::Current)?,
        };
        let ipoib = general.ipoib_enhanced_offloads();
        Ok(Self {
            atomic: page_if(device, general.atomic())?,
            roce: page_if(device, general.roce())?,
            ethernet: page_if(device, general.eth_net_offloads())?,
            flow_tables: page_if(device, general.nic_flow_table() || ipoib)?,
            ipoib: page_if(device, ipoib)?,
            on_demand_paging: match general.pg() {
                true => Some(device.capability_page(CapabilityValues::Maximum)?),
                false => None,
            },
            quality_of_service: page_if(device, general.qos())?,
            device_memory: page_if(device, general.device_memory())?,
            general,
        })
    }

    /// A section for each page that the device has.
    pub(super) fn sections(&self) -> Vec<Section> {
        let optional = [
            self.atomic.as_ref().map(|page| section("atomic_caps", page)),
            self.roce.as_ref().map(|page| section("roce_cap", page)),
            self.ethernet.as_ref().map(|page| section("per_protocol_networking_offload_caps", page)),
            self.flow_tables.as_ref().map(|page| section("flow_table_properties_nic_receive", page)),
            self.ipoib.as_ref().map(|page| section("ipoib_enhanced_offloads", page)),
            self.on_demand_paging.as_ref().map(|page| section("odp_cap", page)),
            self.quality_of_service.as_ref().map(|page| section("qos_cap", page)),
            self.device_memory.as_ref().map(|page| section("device_mem_cap", page)),
        ];
        let general = section("cmd_hca_cap", &self.general);
        std::iter::once(general).chain(optional.into_iter().flatten()).collect()
    }
}

fn page_if<P: CapabilityPage, H: Hal>(device: &Device<H>, exists: bool) -> Result<Option<P>, CommandError> {
    if exists { device.capability_page(CapabilityValues::Current).map(Some) } else { Ok(None) }
}

fn section<P: Layout + IntoBytes + Immutable>(name: &'static str, page: &P) -> Section {
    let mut reader = PageReader { page: page.as_bytes(), facts: Vec::new() };
    reader.read(P::INFO.fields, "", 0);
    Section { name, facts: reader.facts }
}

/// Reads the fields of a page, and those of the structures inside by their dotted path.
struct PageReader<'a> {
    page: &'a [u8],
    facts: Vec<Fact>,
}

impl PageReader<'_> {
    /// The fields of a structure that stands at bit `base` of the page; their paths begin with `prefix`.
    fn read(&mut self, fields: &[FieldInfo], prefix: &str, base: u32) {
        for field in fields.iter().filter(|field| field.part.is_some() || field.bit_width <= 64) {
            let (path, first) = (format!("{prefix}{}", field.path), base + field.bit_offset);
            match (field.part, field.bit_width) {
                (Some(part), _) => self.read(part.fields, &format!("{path}."), first),
                (None, 1) => self.facts.push(Fact::new(&path, bits(self.page, first, 1) == 1)),
                (None, width) => self.facts.push(Fact::new(&path, bits(self.page, first, width))),
            }
        }
    }
}

/// The bits of a field, the first one most significant.
fn bits(page: &[u8], first: u32, width: u32) -> u64 {
    (first..first + width)
        .map(|at| u64::from(page[at as usize / 8] >> (7 - at % 8) & 1))
        .fold(0, |number, bit| number << 1 | bit)
}

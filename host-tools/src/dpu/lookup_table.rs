//! The table for lookups, and the access to its memory: either the service's own, or memory that the host
//! shares with the Arm cores.
//!
//! The host's memory is only accessed by DMA work requests under an alias of the host's memory key. The host
//! may leave at any time and come back with another region; until then there is no table.

use super::offer::HostTable;
use super::served_table::{ServedRows, ServedTable};
use anyhow::{Context as _, Result, anyhow};
use bareverbs::Device;
use bareverbs::memory_region::{MemoryRegion, RemoteSlice};
use bareverbs::offload::card::CardDma;
use bareverbs::offload::endpoint::{Endpoint, Part, PostError};
use bareverbs::offload::grant::{Grant, HostRegion};
use bareverbs::offload::host_dma::{DmaFault, HostDma, HostDmaDone, HostRead};
use bareverbs::offload::own_memory::OwnMemory;
use bareverbs::offload::table::TableDescriptor;
use bareverbs::offload::verbs::RegionTable;
use bareverbs::prm::time::Time;
use bareverbs::protection_domain::ProtectionDomain;
use bareverbs::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::hal::Hal;
use bareverbs_core::{AccessKey, RemoteVhcaRegion};
use std::rc::Rc;

/// DMA work requests in flight.
const COPIES: usize = 64;

type OwnRegion<'d, H> = Rc<MemoryRegion<&'d Device<H>>>;

/// The description of the table for callers.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableView {
    pub(super) descriptor: TableDescriptor,
    /// Bytes of the longest value.
    pub(super) max_value: u32,
    pub(super) rows: usize,
    /// The memory that kernels may read.
    pub(super) grant: Grant,
    /// The memory that peers may READ.
    pub(super) readable: Option<RemoteSlice>,
}

/// The access to the memory of a table.
pub(super) enum LookupDma<'d, H: Hal, const SLOTS: usize> {
    /// The service's own memory, which its processor reads.
    Own(OwnMemory<RegionTable<OwnRegion<'d, H>, &'d Device<H>>, SLOTS>),
    /// The host's memory, by DMA work requests.
    Host(Box<CardDma<&'d Device<H>, 1, COPIES>>),
}

/// The table for lookups; see the module's comment.
pub(super) struct LookupTable<'d, H: Hal, const SLOTS: usize> {
    pub(super) dma: LookupDma<'d, H, SLOTS>,
    view: Option<TableView>,
    /// The number of the host's region, if there ever was one.
    place: Option<HostRegion>,
}

impl<'d, H: Hal, const SLOTS: usize> LookupTable<'d, H, SLOTS> {
    /// A table in the service's own memory.
    pub(super) fn own(
        domain: &ProtectionDomain<&'d Device<H>>,
        device: &'d Device<H>,
        served: &ServedRows,
    ) -> Result<Self> {
        let table = ServedTable::fill(domain, &device, served)?;
        let view = TableView {
            descriptor: table.descriptor,
            max_value: table.max_value,
            rows: table.rows,
            grant: Grant::new(0, table.region.len() as u64)?,
            readable: served.readable.then(|| table.region.remote(0)),
        };
        let dma = LookupDma::Own(OwnMemory::new(table.memory(&device)));
        Ok(Self { dma, view: Some(view), place: None })
    }

    /// A table that the host will share. `staging` is the memory that requests are answered from.
    pub(super) fn of_host(
        domain: &ProtectionDomain<&'d Device<H>>,
        device: &'d Device<H>,
        staging: &MemoryRegion<&'d Device<H>>,
        gid_index: u8,
    ) -> Result<Self> {
        let config = CompletionQueueConfig { entries: COPIES as u32 };
        let completions = CompletionQueue::create(device, config).context("creating a completion queue")?;
        let dma = CardDma::create(domain, completions, staging, gid_index)
            .context("making a queue of DMA work requests, by which the Arm cores of a DPU reach the memory of its host")?;
        Ok(Self { dma: LookupDma::Host(Box::new(dma)), view: None, place: None })
    }

    /// The table, if there is one now.
    pub(super) const fn view(&self) -> Option<&TableView> {
        self.view.as_ref()
    }

    /// Opens the region that the host has shared under this access key.
    pub(super) fn share(
        &mut self,
        domain: &ProtectionDomain<&'d Device<H>>,
        table: &HostTable,
        access: AccessKey,
    ) -> Result<()> {
        let LookupDma::Host(dma) = &mut self.dma else {
            return Err(anyhow!("the table of this service is its own"));
        };
        let (shared, descriptor) = (table.region(access)?, table.descriptor()?);
        let region = RemoteVhcaRegion::open(domain, &shared)?;
        let place = match self.place {
            Some(place) => dma.replace(place, region).map(|()| place),
            None => dma.add(region),
        };
        let place = place.map_err(|_| anyhow!("the DMA channel has no room for the region"))?;
        let grant = Grant::within(place, shared.address, shared.length)?;
        let (max_value, rows) = (table.max_value, table.rows);
        self.place = Some(place);
        self.view = Some(TableView { descriptor, max_value, rows, grant, readable: None });
        Ok(())
    }

    /// Removes the table because the host has left. Reads of its memory that are still in flight fail.
    pub(super) fn withdraw(&mut self) {
        self.view = None;
    }

    /// Creates another queue if a copy failed, as happens when the host revokes its memory. Returns whether
    /// it did.
    pub(super) fn repair(&mut self, domain: &ProtectionDomain<&'d Device<H>>) -> Result<bool> {
        use bareverbs::offload::card::RepairError;
        let LookupDma::Host(dma) = &mut self.dma else { return Ok(false) };
        if !dma.is_broken() {
            return Ok(false);
        }
        match dma.repair(domain) {
            Ok(()) => Ok(true),
            // The next turn polls the outstanding copies.
            Err(RepairError::Outstanding { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl<H: Hal, const SLOTS: usize> HostDma for LookupDma<'_, H, SLOTS> {
    fn has_room(&self) -> bool {
        match self {
            Self::Own(dma) => dma.has_room(),
            Self::Host(dma) => dma.has_room(),
        }
    }

    fn submit_read(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        into: Part,
    ) -> Result<(), PostError> {
        match self {
            Self::Own(dma) => dma.submit_read(tag, region, address, into),
            Self::Host(dma) => dma.submit_read(tag, region, address, into),
        }
    }

    fn submit_write(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        from: Part,
    ) -> Result<(), PostError> {
        match self {
            Self::Own(dma) => dma.submit_write(tag, region, address, from),
            Self::Host(dma) => dma.submit_write(tag, region, address, from),
        }
    }

    fn compares_and_swaps(&self) -> bool {
        match self {
            Self::Own(dma) => dma.compares_and_swaps(),
            Self::Host(dma) => dma.compares_and_swaps(),
        }
    }

    fn submit_compare_and_swap(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        words: [u64; 2],
        into: Part,
    ) -> Result<(), PostError> {
        match self {
            Self::Own(dma) => dma.submit_compare_and_swap(tag, region, address, words, into),
            Self::Host(dma) => dma.submit_compare_and_swap(tag, region, address, words, into),
        }
    }

    fn reads_at_once(&self) -> bool {
        match self {
            Self::Own(dma) => dma.reads_at_once(),
            Self::Host(dma) => dma.reads_at_once(),
        }
    }

    fn read_at_once<'b>(
        &'b mut self,
        read: &HostRead,
        memory: &mut impl Endpoint,
        scratch: &'b mut [u8],
    ) -> Option<Result<&'b [u8], DmaFault>> {
        match self {
            Self::Own(dma) => dma.read_at_once(read, memory, scratch),
            Self::Host(dma) => dma.read_at_once(read, memory, scratch),
        }
    }

    fn flush(&mut self) {
        match self {
            Self::Own(dma) => dma.flush(),
            Self::Host(dma) => dma.flush(),
        }
    }

    fn poll(&mut self, memory: &mut impl Endpoint) -> Option<HostDmaDone> {
        match self {
            Self::Own(dma) => dma.poll(memory),
            Self::Host(dma) => dma.poll(memory),
        }
    }

    fn is_broken(&self) -> bool {
        match self {
            Self::Own(dma) => dma.is_broken(),
            Self::Host(dma) => dma.is_broken(),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Own(dma) => dma.poll_timeout(),
            Self::Host(dma) => dma.poll_timeout(),
        }
    }
}

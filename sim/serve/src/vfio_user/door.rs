//! The socket's side: what the protocol asks, in words of the device's thread. Nothing that a client sends is believed.

use super::engine::{Link, Region, Request};
use super::memory::MapRequest;
use super::vectors::VectorRequest;
use std::fs::File;
use std::io::{self, ErrorKind};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

/// Longest access to a region that is taken: all of configuration space.
const LONGEST_ACCESS: usize = 4096;

/// The back end of the protocol.
pub(super) struct Door<'a> {
    pub(super) link: &'a mut Link,
    pub(super) bar_size: u64,
    pub(super) config_size: u64,
}

impl Door<'_> {
    /// The region of an access that stays inside it.
    fn check(&self, region: u32, offset: u64, length: usize) -> io::Result<Region> {
        let (known, size) = match region {
            VFIO_PCI_BAR0_REGION_INDEX => (Region::Bar, self.bar_size),
            VFIO_PCI_CONFIG_REGION_INDEX => (Region::Configuration, self.config_size),
            _ => return Err(invalid("the region is empty")),
        };
        let inside = offset.checked_add(length as u64).is_some_and(|end| end <= size);
        if !inside || length > LONGEST_ACCESS {
            return Err(invalid("the access leaves its region or is too long"));
        }
        Ok(known)
    }
}

impl ServerBackend for Door<'_> {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let region = self.check(region, offset, data.len())?;
        let bytes = self.link.call(Request::Read { region, offset, length: data.len() })?;
        for (to, from) in data.iter_mut().zip(bytes) {
            *to = from;
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let region = self.check(region, offset, data.len())?;
        self.link.post(Request::Write { region, offset, bytes: data.to_vec() })
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        tracing::trace!("map {address:#x} + {size:#x}, offset {offset:#x}, {flags:?}, file {file:?}");
        let (readable, writable) = (flags.contains(DmaMapFlags::READ), flags.contains(DmaMapFlags::WRITE));
        let map = MapRequest { address, size, offset, readable, writable, file };
        self.link.call(Request::Map(map)).map(drop)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        tracing::trace!("unmap {address:#x} + {size:#x}, {flags:?}");
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            return self.link.call(Request::UnmapAll).map(drop);
        }
        self.link.call(Request::Unmap { address, size }).map(drop)
    }

    fn reset(&mut self) -> io::Result<()> {
        tracing::info!("the client resets the device");
        self.link.call(Request::Reset).map(drop)
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        files: Vec<File>,
    ) -> io::Result<()> {
        tracing::debug!(
            "interrupts {index}: flags {flags:#x}, from {start}, count {count}, {} files",
            files.len()
        );
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            // Neither INTx nor error and request interrupts are ever raised, and masking is the client's own business.
            return Ok(());
        }
        let request = match (flags & VFIO_IRQ_SET_DATA_EVENTFD != 0, flags & VFIO_IRQ_SET_DATA_NONE != 0) {
            (true, false) => VectorRequest::Connect { start, count, files },
            (false, true) if count == 0 => VectorRequest::DisconnectAll,
            (false, true) => VectorRequest::Fire { start, count },
            _ => return Err(invalid("interrupts are set with file descriptors or without data")),
        };
        self.link.call(Request::Vectors(request)).map(drop)
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what)
}

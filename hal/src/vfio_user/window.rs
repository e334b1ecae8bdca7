//! BAR0 of a served device: messages, or shared pages where the server offers them.

use super::VfioUserError;
use super::device::RemoteDevice;
use crate::MappedBar;
use bareverbs_core::hal::Mmio;
use rustix::fs::{SealFlags, fcntl_get_seals};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use vfio_bindings::bindings::vfio::{VFIO_PCI_BAR0_REGION_INDEX, VFIO_REGION_INFO_FLAG_MMAP};
use zerocopy::IntoBytes;

/// Page size; mappings start and end at page boundaries.
const PAGE: u64 = 4096;

/// Pages of BAR0 shared with the server.
#[derive(Debug)]
struct SharedPages {
    offset: usize,
    pages: MappedBar,
}

/// The BAR0 window of a served device.
#[derive(Debug)]
pub struct RemoteBar {
    device: Arc<RemoteDevice>,
    length: usize,
    shared: Vec<SharedPages>,
}

impl RemoteBar {
    pub(super) fn open(device: Arc<RemoteDevice>) -> Result<Self, VfioUserError> {
        let region = device.region(VFIO_PCI_BAR0_REGION_INDEX)?;
        let length = usize::try_from(region.size).map_err(|_| VfioUserError::NoWindow)?;
        if length == 0 {
            return Err(VfioUserError::NoWindow);
        }
        let mut shared = Vec::new();
        let offered = region.file.as_ref().filter(|_| region.flags & VFIO_REGION_INFO_FLAG_MMAP != 0);
        if let Some(file) = offered.filter(|file| keeps_its_length(file)) {
            let whole = [(0, region.size)];
            let areas = if region.areas.is_empty() { &whole[..] } else { &region.areas };
            // Mapping beyond the server's region or file would kill this process at the first access. A file that could
            // be truncated later is not mapped at all; its registers stay messages.
            let file_size = file.metadata().map_err(VfioUserError::System)?.len();
            for &(offset, size) in areas {
                let inside = offset.checked_add(size).is_some_and(|end| end <= region.size);
                let at = region
                    .offset
                    .checked_add(offset)
                    .filter(|at| at.checked_add(size).is_some_and(|end| end <= file_size));
                let Some(at) = at.filter(|at| inside && size > 0 && (at | size | offset) % PAGE == 0) else {
                    continue;
                };
                let pages = MappedBar::new(file.as_fd(), at, size as usize).map_err(VfioUserError::System)?;
                shared.push(SharedPages { offset: offset as usize, pages });
            }
        }
        Ok(Self { device, length, shared })
    }

    pub(super) fn shared_bytes(&self) -> usize {
        self.shared.iter().map(|shared| shared.pages.len()).sum()
    }

    /// The shared pages around a register, and its offset in them.
    #[inline]
    fn pages(&self, offset: usize) -> Option<(&MappedBar, usize)> {
        self.shared.iter().find_map(|shared| {
            let inside = offset.checked_sub(shared.offset)?;
            (inside < shared.pages.len()).then_some((&shared.pages, inside))
        })
    }

    fn post(&self, offset: usize, bytes: &[u8]) {
        self.device.post_region(VFIO_PCI_BAR0_REGION_INDEX, offset as u64, bytes);
    }
}

fn keeps_its_length(file: &File) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

impl Mmio for RemoteBar {
    /// Reads as all ones if the server is gone.
    fn read32(&self, offset: usize) -> u32 {
        if let Some((pages, inside)) = self.pages(offset) {
            return pages.read32(inside);
        }
        let mut bytes = [0; 4];
        match self.device.read_region(VFIO_PCI_BAR0_REGION_INDEX, offset as u64, &mut bytes) {
            Ok(()) => u32::from_be_bytes(bytes),
            Err(_) => u32::MAX,
        }
    }

    fn write32(&self, offset: usize, value: u32) {
        match self.pages(offset) {
            Some((pages, inside)) => pages.write32(inside, value),
            None => self.post(offset, &value.to_be_bytes()),
        }
    }

    fn write64(&self, offset: usize, value: u64) {
        match self.pages(offset) {
            Some((pages, inside)) => pages.write64(inside, value),
            None => self.post(offset, &value.to_be_bytes()),
        }
    }

    fn write_block64(&self, offset: usize, block: &[u64; 8]) {
        match self.pages(offset) {
            Some((pages, inside)) => pages.write_block64(inside, block),
            None => self.post(offset, block.as_bytes()),
        }
    }

    fn len(&self) -> usize {
        self.length
    }
}

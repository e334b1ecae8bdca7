//! The socket's side: translates a client's commands into requests to the device's thread. Trusts nothing that a client
//! sends.

use super::engine::{Link, Region, Request};
use super::memory::MapRequest;
use super::message::{Command, DeviceInfo, InterruptInfo, RegionInfo, access_reply, invalid, version_reply};
use super::vectors::VectorRequest;
use std::fs::File;
use std::io;
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};
use zerocopy::IntoBytes;

/// Bytes of PCI configuration space.
const CONFIG_SIZE: u64 = 4096;
/// Longest accepted region access: the whole configuration space.
const LONGEST_ACCESS: u64 = CONFIG_SIZE;

/// Handles a client's commands.
pub(super) struct CommandHandler<'a> {
    pub(super) link: &'a mut Link,
    pub(super) bar_size: u64,
    /// Number of MSI-X vectors. There are no other interrupts.
    pub(super) vectors: u16,
}

impl CommandHandler<'_> {
    /// Executes a command and returns the body of the reply.
    pub(super) fn handle(&mut self, command: Command, mut files: Vec<File>) -> io::Result<Vec<u8>> {
        match command {
            Command::Version { major: 0 } => Ok(version_reply()),
            Command::Version { .. } => Err(invalid("the client speaks another version than 0")),
            Command::Map { address, size, offset, readable, writable } => {
                let file = files.pop();
                if !files.is_empty() {
                    return Err(invalid("a mapping has one file descriptor or none"));
                }
                tracing::trace!("map {address:#x} + {size:#x}, offset {offset:#x}, file {file:?}");
                let map = MapRequest { address, size, offset, readable, writable, file };
                self.link.call(Request::Map(map))
            }
            Command::Unmap { address, size, all, body } => {
                tracing::trace!("unmap {address:#x} + {size:#x}, all: {all}");
                let request = if all { Request::UnmapAll } else { Request::Unmap { address, size } };
                self.link.call(request).map(|_| body)
            }
            Command::DeviceInfo => Ok(device_info()),
            Command::RegionInfo { index } => Ok(self.region_info(index)),
            Command::InterruptInfo { index } => Ok(self.interrupt_info(index)),
            Command::SetInterrupts { index, flags, start, count } => {
                tracing::debug!(
                    "interrupts {index}: flags {flags:#x}, from {start}, count {count}, {files:?}"
                );
                self.set_interrupts(index, flags, VectorRange { start, count }, files)
            }
            Command::Read { region, offset, length } => {
                let known = self.check(region, offset, length.into())?;
                let request = Request::Read { region: known, offset, length: length as usize };
                Ok(access_reply(region, offset, length, &self.link.call(request)?))
            }
            Command::Write { region, offset, bytes } => {
                let known = self.check(region, offset, bytes.len() as u64)?;
                let count = bytes.len() as u32;
                self.link.post(Request::Write { region: known, offset, bytes })?;
                Ok(access_reply(region, offset, count, &[]))
            }
            Command::Reset => {
                tracing::info!("the client resets the device");
                self.link.call(Request::Reset)
            }
        }
    }

    /// The region of an access, if the access stays inside it.
    fn check(&self, region: u32, offset: u64, length: u64) -> io::Result<Region> {
        let known = match region {
            VFIO_PCI_BAR0_REGION_INDEX => Region::Bar,
            VFIO_PCI_CONFIG_REGION_INDEX => Region::Configuration,
            _ => return Err(invalid("the region is empty")),
        };
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.region_size(region));
        if !inside || length > LONGEST_ACCESS {
            return Err(invalid("the access leaves its region or is too long"));
        }
        Ok(known)
    }

    fn region_size(&self, region: u32) -> u64 {
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => self.bar_size,
            VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_SIZE,
            _ => 0,
        }
    }

    fn region_info(&self, index: u32) -> Vec<u8> {
        let size = self.region_size(index);
        let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        let argsz = size_of::<RegionInfo>() as u32;
        let flags = if size > 0 { access } else { 0 };
        RegionInfo { argsz, flags, index, capabilities: 0, size, offset: 0 }.as_bytes().to_vec()
    }

    /// Only MSI-X has vectors. They can be added one by one, even while MSI-X is enabled.
    fn interrupt_info(&self, index: u32) -> Vec<u8> {
        let argsz = size_of::<InterruptInfo>() as u32;
        let (flags, count) = match index {
            VFIO_PCI_MSIX_IRQ_INDEX => (VFIO_IRQ_INFO_EVENTFD, self.vectors.into()),
            _ => (0, 0),
        };
        InterruptInfo { argsz, flags, index, count }.as_bytes().to_vec()
    }

    fn set_interrupts(
        &mut self,
        index: u32,
        flags: u32,
        VectorRange { start, count }: VectorRange,
        files: Vec<File>,
    ) -> io::Result<Vec<u8>> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            // INTx, error and request interrupts are never raised, and masking is up to the client.
            return Ok(Vec::new());
        }
        let request = match (flags & VFIO_IRQ_SET_DATA_EVENTFD != 0, flags & VFIO_IRQ_SET_DATA_NONE != 0) {
            (true, false) => VectorRequest::Connect { start, count, files },
            (false, true) if count == 0 => VectorRequest::DisconnectAll,
            (false, true) => VectorRequest::Fire { start, count },
            _ => return Err(invalid("interrupts are set with file descriptors or without data")),
        };
        self.link.call(Request::Vectors(request))
    }
}

/// A range of vectors.
#[derive(Debug, Clone, Copy)]
struct VectorRange {
    start: u32,
    count: u32,
}

fn device_info() -> Vec<u8> {
    let info = DeviceInfo {
        argsz: size_of::<DeviceInfo>() as u32,
        flags: VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
        regions: VFIO_PCI_NUM_REGIONS,
        interrupts: VFIO_PCI_NUM_IRQS,
    };
    info.as_bytes().to_vec()
}

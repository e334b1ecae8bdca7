//! DMA memory of the kernel's own: the command queue, its mailboxes, and the pages that firmware asks for.

use alloc::vec;
use alloc::vec::Vec;
use bareverbs_sim::nic::{DmaFault, HostMemory};

/// Where the kernel's memory begins: in the half of the address space that no program has.
const BASE: u64 = 0xffff_8880_0000_0000;
/// Size and alignment of a page.
pub(crate) const PAGE: u64 = 4096;

/// Memory that is handed out in pages and never returned: a device needs little of it, once.
#[derive(Debug, Default)]
pub(crate) struct KernelMemory {
    bytes: Vec<u8>,
}

impl KernelMemory {
    /// Hands out zeroed pages, one behind the other.
    pub(crate) fn allocate(&mut self, pages: usize) -> u64 {
        let address = BASE + self.bytes.len() as u64;
        self.bytes.extend(vec![0; pages * PAGE as usize]);
        address
    }

    /// Writes to what was handed out.
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        let written = self.write(address, bytes);
        debug_assert!(written.is_ok(), "{address:#x} was not handed out");
    }

    fn slice(&mut self, iova: u64, length: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(iova.checked_sub(BASE)?).ok()?;
        self.bytes.get_mut(start..start.checked_add(length)?)
    }
}

/// Addresses of the pages of a buffer, big-endian, as commands have them.
pub(crate) fn page_list(buffer: u64, bytes: usize) -> Vec<u8> {
    let pages = bytes.div_ceil(PAGE as usize) as u64;
    (0..pages).flat_map(|page| (buffer + page * PAGE).to_be_bytes()).collect()
}

impl HostMemory for KernelMemory {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        let length = buffer.len();
        let bytes = self.slice(iova, length).ok_or(DmaFault { iova, length, write: false })?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let length = bytes.len();
        let target = self.slice(iova, length).ok_or(DmaFault { iova, length, write: true })?;
        target.copy_from_slice(bytes);
        Ok(())
    }
}

/// What the device sees: the kernel's memory, and below it that of the program.
#[derive(Debug)]
pub(crate) struct DeviceView<'a, M> {
    pub(crate) kernel: &'a mut KernelMemory,
    pub(crate) program: &'a mut M,
}

impl<M: HostMemory> HostMemory for DeviceView<'_, M> {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        if iova >= BASE { self.kernel.read(iova, buffer) } else { self.program.read(iova, buffer) }
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        if iova >= BASE { self.kernel.write(iova, bytes) } else { self.program.write(iova, bytes) }
    }
}

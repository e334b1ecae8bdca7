//! The kernel's DMA memory: the command queue, its mailboxes, and the pages that firmware asks for.

use alloc::vec;
use alloc::vec::Vec;
use bareverbs_sim::nic::{DmaFault, HostMemory};

/// Base of the kernel's memory, in the half of the address space that no program has.
const BASE: u64 = 0xffff_8880_0000_0000;
/// Size and alignment of a page.
pub(crate) const PAGE: u64 = 4096;

/// Memory that is allocated in pages and never freed: a device needs little of it, and only once.
#[derive(Debug, Default)]
pub(crate) struct KernelMemory {
    bytes: Vec<u8>,
}

impl KernelMemory {
    /// Allocates consecutive zeroed pages.
    pub(crate) fn allocate(&mut self, pages: usize) -> u64 {
        let address = BASE + self.bytes.len() as u64;
        self.bytes.extend(vec![0; pages * PAGE as usize]);
        address
    }

    /// Writes to allocated memory.
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        let written = self.write(address, bytes);
        debug_assert!(written.is_ok(), "{address:#x} was not allocated");
    }

    fn slice(&mut self, iova: u64, length: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(iova.checked_sub(BASE)?).ok()?;
        self.bytes.get_mut(start..start.checked_add(length)?)
    }
}

/// Page addresses of a buffer, big-endian, in the form of commands.
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

/// The memory that the device sees: the kernel's, and below it the program's.
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

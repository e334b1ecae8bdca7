//! The open device: regions, configuration space, interrupts, reset. Every failure is an error.

use super::error::VfioError;
use super::ioctl;
use crate::MappedBar;
use crate::interrupts::Interrupts;
use crate::pci::Address;
use bareverbs_prm::pci::PciIdentity;
use rustix::io::{pread, pwrite};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_RESET, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_REQ_IRQ_INDEX, VFIO_REGION_INFO_FLAG_MMAP,
};

/// Offset of the PCI command register, and its bits.
const COMMAND: u64 = 4;
const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;

/// An open device. Borrows its file.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenFunction<'a> {
    pub(super) file: BorrowedFd<'a>,
    pub(super) address: Address,
}

impl OpenFunction<'_> {
    fn failed(&self, what: &'static str) -> impl Fn(io::Error) -> VfioError {
        let address = self.address;
        move |error| VfioError::System { what, address, error }
    }

    /// Resets the function. Returns false if it has no reset method.
    pub(super) fn reset(&self) -> Result<bool, VfioError> {
        let info = ioctl::device_info(self.file).map_err(self.failed("asking what the device can do"))?;
        if info.flags & VFIO_DEVICE_FLAGS_RESET == 0 {
            return Ok(false);
        }
        ioctl::reset(self.file).map_err(self.failed("resetting the device"))?;
        Ok(true)
    }

    /// Maps the whole of BAR0.
    pub(super) fn map_bar(&self) -> Result<MappedBar, VfioError> {
        let failed = self.failed("mapping BAR0");
        let info = ioctl::region_info(self.file, VFIO_PCI_BAR0_REGION_INDEX).map_err(&failed)?;
        let no_window = VfioError::NoWindow { address: self.address, size: info.size };
        let Ok(length) = usize::try_from(info.size) else { return Err(no_window) };
        if info.flags & VFIO_REGION_INFO_FLAG_MMAP == 0 || length == 0 {
            return Err(no_window);
        }
        MappedBar::new(self.file, info.offset, length).map_err(failed)
    }

    /// Turns bus mastering on or off, which allows the device to do DMA.
    pub(super) fn set_bus_master(&self, on: bool) -> Result<(), VfioError> {
        let old = self.read_command()?;
        let wanted = if on { old | MEMORY_SPACE | BUS_MASTER } else { old & !BUS_MASTER };
        let failed = self.failed("writing PCI configuration space");
        let at = self.configuration()? + COMMAND;
        let written = pwrite(self.file, &wanted.to_le_bytes(), at).map_err(|error| failed(error.into()))?;
        let found = self.read_command()?;
        if written != 2 || found != wanted {
            return Err(VfioError::Configuration { address: self.address, wanted, found });
        }
        Ok(())
    }

    fn read_command(&self) -> Result<u16, VfioError> {
        let failed = self.failed("reading PCI configuration space");
        let mut bytes = [0; 2];
        let count = pread(self.file, &mut bytes, self.configuration()? + COMMAND);
        match count.map_err(|error| failed(error.into()))? {
            2 => Ok(u16::from_le_bytes(bytes)),
            _ => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Identity of the function.
    pub(super) fn identity(&self) -> Result<PciIdentity, VfioError> {
        let failed = self.failed("reading PCI configuration space");
        let mut bytes = [0; PciIdentity::BYTES];
        let count = pread(self.file, &mut bytes, self.configuration()?);
        match count.map_err(|error| failed(error.into()))? {
            PciIdentity::BYTES => Ok(PciIdentity::from_configuration(&bytes)),
            _ => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn configuration(&self) -> Result<u64, VfioError> {
        let info = ioctl::region_info(self.file, VFIO_PCI_CONFIG_REGION_INDEX);
        info.map(|info| info.offset).map_err(self.failed("looking for PCI configuration space"))
    }

    /// Number of MSI-X vectors that the device has.
    pub(super) fn vectors(&self) -> Result<u32, VfioError> {
        let info = ioctl::irq_info(self.file, VFIO_PCI_MSIX_IRQ_INDEX);
        info.map(|info| info.count).map_err(self.failed("asking for interrupts"))
    }

    /// Connects the first `vectors` MSI-X vectors to the first event file descriptors.
    pub(super) fn connect_vectors(&self, interrupts: &Interrupts, vectors: usize) -> Result<(), VfioError> {
        let events: Vec<_> =
            (0..vectors).filter_map(|index| Some(interrupts.event(index)?.as_raw_fd())).collect();
        self.connect(VFIO_PCI_MSIX_IRQ_INDEX, &events).map_err(self.failed("connecting interrupts"))
    }

    /// Connects the kernel's device-request interrupt, by which it asks for the device back. Returns false on kernels
    /// without it.
    pub(super) fn connect_request(&self, event: BorrowedFd<'_>) -> bool {
        self.connect(VFIO_PCI_REQ_IRQ_INDEX, &[event.as_raw_fd()]).is_ok()
    }

    fn connect(&self, index: u32, events: &[i32]) -> io::Result<()> {
        ioctl::set_irqs(self.file, index, VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, events)
    }

    /// Disconnects all MSI-X vectors.
    pub(super) fn disconnect_vectors(&self) -> io::Result<()> {
        ioctl::set_irqs(
            self.file,
            VFIO_PCI_MSIX_IRQ_INDEX,
            VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER,
            &[],
        )
    }
}

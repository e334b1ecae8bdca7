//! PCI configuration space: identity, one memory BAR, power management, PCI Express, MSI-X.

use super::config::{LinkLayer, NicConfig};

pub use bareverbs_prm::pci::VENDOR as VENDOR_ID;

/// Ethernet and InfiniBand controllers.
const CLASS_ETHERNET: u32 = 0x02_0000;
const CLASS_INFINIBAND: u32 = 0x02_0700;
/// Bytes of configuration space.
pub(crate) const SIZE: usize = 4096;

mod offset {
    pub(super) const COMMAND: usize = 0x04;
    pub(super) const BAR0: usize = 0x10;
    pub(super) const BAR0_HIGH: usize = 0x14;
    pub(super) const INTERRUPT_LINE: usize = 0x3c;
    pub(super) const POWER: usize = 0x40;
    pub(super) const EXPRESS: usize = 0x60;
    pub(super) const MSIX: usize = 0x9c;
    pub(super) const VENDOR: usize = 0xb0;
    pub(super) const DEVICE_CONTROL: usize = EXPRESS + 0x08;
    pub(super) const LINK_CONTROL: usize = EXPRESS + 0x10;
    pub(super) const DEVICE_CONTROL_2: usize = EXPRESS + 0x28;
    pub(super) const POWER_CONTROL: usize = POWER + 4;
}

/// `command`: memory space, bus master, parity, SERR, interrupt disable.
const COMMAND_WRITABLE: u16 = 0x0546;
/// `BAR0`: memory, 64 bits wide, prefetchable.
const BAR_FLAGS: u32 = 0xc;
/// `DEVICE_CONTROL`: function-level reset.
const INITIATE_RESET: u16 = 1 << 15;
/// `DEVICE_CAPABILITIES`: function-level reset, role-based error reporting, 512 bytes of payload.
const DEVICE_CAPABILITIES: u32 = 1 << 28 | 1 << 15 | 2;
/// PCI Express 3.0, eight or sixteen lanes: 8 GT/s × 16.
const LINK: u32 = 16 << 4 | 3;
/// Offsets of MSI-X table and pending bits in BAR0.
const MSIX_TABLE: u32 = 0x2000;
const MSIX_PENDING: u32 = 0x3000;

/// Bytes of the vendor's capability.
const VENDOR_LENGTH: u8 = 0x18;

/// Configuration space, and which of its bits software can write.
#[derive(Debug)]
pub(crate) struct ConfigSpace {
    bytes: Box<[u8; SIZE]>,
    writable: Box<[u8; SIZE]>,
}

impl ConfigSpace {
    pub(crate) fn new(config: &NicConfig, bar_size: u64) -> Self {
        let mut space = Self { bytes: Box::new([0; SIZE]), writable: Box::new([0; SIZE]) };
        space.identity(config);
        space.bar(bar_size);
        space.power_management();
        space.express();
        space.msix(config.vectors);
        space.vendor();
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }

    fn identity(&mut self, config: &NicConfig) {
        let class = match config.link_layer {
            LinkLayer::Ethernet => CLASS_ETHERNET,
            LinkLayer::InfiniBand => CLASS_INFINIBAND,
        };
        self.put(0x00, &VENDOR_ID.to_le_bytes());
        self.put(0x02, &config.device_id.to_le_bytes());
        self.allow(offset::COMMAND, &COMMAND_WRITABLE.to_le_bytes());
        // Status: the capability list is present.
        self.put(0x06, &0x0010u16.to_le_bytes());
        self.put(0x08, &(class << 8).to_le_bytes());
        self.put(0x2c, &VENDOR_ID.to_le_bytes());
        self.put(0x2e, &0x0001u16.to_le_bytes());
        self.put(0x34, &[offset::POWER as u8]);
        self.allow(offset::INTERRUPT_LINE, &[0xff]);
    }

    fn bar(&mut self, size: u64) {
        self.put(offset::BAR0, &BAR_FLAGS.to_le_bytes());
        let mask = !(size.next_power_of_two() - 1);
        self.allow(offset::BAR0, &((mask as u32) & !0xf).to_le_bytes());
        self.allow(offset::BAR0_HIGH, &((mask >> 32) as u32).to_le_bytes());
    }

    fn power_management(&mut self) {
        self.put(offset::POWER, &[0x01, offset::EXPRESS as u8, 0x03, 0x00]);
        self.allow(offset::POWER_CONTROL, &[0x03, 0x00]);
    }

    fn express(&mut self) {
        // Version 2 of the capability, endpoint.
        self.put(offset::EXPRESS, &[0x10, offset::MSIX as u8, 0x02, 0x00]);
        self.put(offset::EXPRESS + 0x04, &DEVICE_CAPABILITIES.to_le_bytes());
        self.allow(offset::DEVICE_CONTROL, &0x7fffu16.to_le_bytes());
        self.put(offset::EXPRESS + 0x0c, &LINK.to_le_bytes());
        self.allow(offset::LINK_CONTROL, &0x00ffu16.to_le_bytes());
        self.put(offset::EXPRESS + 0x12, &(LINK as u16).to_le_bytes());
        // Completion timeout ranges and disable, 32-bit and 64-bit AtomicOp requests.
        self.put(offset::EXPRESS + 0x24, &0x1fu32.to_le_bytes());
        self.allow(offset::DEVICE_CONTROL_2, &0x005fu16.to_le_bytes());
    }

    fn msix(&mut self, vectors: u16) {
        self.put(offset::MSIX, &[0x11, offset::VENDOR as u8]);
        self.put(offset::MSIX + 2, &(vectors.saturating_sub(1) & 0x7ff).to_le_bytes());
        self.allow(offset::MSIX + 3, &[0xc0]);
        self.put(offset::MSIX + 4, &MSIX_TABLE.to_le_bytes());
        self.put(offset::MSIX + 8, &MSIX_PENDING.to_le_bytes());
    }

    /// The vendor-specific gateway to register spaces behind the BAR: control, counter, semaphore, address,
    /// data. The status in the upper bits of control stays 0 for every space: none is supported.
    fn vendor(&mut self) {
        self.put(offset::VENDOR, &[0x09, 0x00, VENDOR_LENGTH, 0x00]);
        self.allow(offset::VENDOR + 4, &[0xff, 0xff]);
        self.put(offset::VENDOR + 8, &1u32.to_le_bytes());
        self.allow(offset::VENDOR + 12, &[0xff; 4]);
    }

    /// Bytes from `at` on; `None` outside.
    pub(super) fn read(&self, at: usize, length: usize) -> Option<&[u8]> {
        self.bytes.get(at..at.checked_add(length)?)
    }

    /// Writes the writable bits of a byte. Returns whether they request a function-level reset.
    pub(super) fn write(&mut self, at: usize, byte: u8) -> bool {
        if let (Some(old), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
            *old = *old & !mask | byte & mask;
        }
        at == offset::DEVICE_CONTROL + 1 && byte & (INITIATE_RESET >> 8) as u8 != 0
    }
}

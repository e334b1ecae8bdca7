//! Finding the NIC in PCI configuration space, and making it ready: its BAR has an address, it answers, it may do DMA.

use bareverbs_prm::pci::{self, Support, VENDOR};
use core::fmt;
use heapless::Vec;
use pci_types::PciPciBridgeHeader;
use pci_types::{
    Bar, CommandRegister, ConfigRegionAccess, EndpointHeader, HeaderType, PciAddress, PciHeader,
};

/// Buses that are looked at.
const BUSES: usize = 32;
/// Bits 2:1 of a memory BAR: 64 bits wide.
const WIDE: u32 = 0b100;
/// Bits 2:0 of a BAR: memory or I/O, and how wide.
const KIND: u32 = 0b111;
/// Offset of BAR0.
const BAR0: u16 = 0x10;

/// A NIC that is ready to be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nic {
    /// Where it is.
    pub address: PciAddress,
    /// What it is.
    pub name: &'static str,
    /// Physical address of BAR0.
    pub bar: u64,
    /// Bytes of BAR0.
    pub length: u64,
}

/// Addresses from which a BAR may be given one, where no firmware has done so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeWindow {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

/// Why there is no NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PciError {
    /// No function of the vendor was found.
    NotFound {
        /// Functions that were looked at.
        functions: u32,
    },
    /// A function of the vendor is none that this driver drives.
    Refused {
        /// Its device id.
        device: u16,
        /// Why.
        why: &'static str,
    },
    /// BAR0 is not a 64-bit memory BAR.
    BadBar(u32),
    /// BAR0 has no address, and there is no window, or it is too small.
    NoAddress {
        /// Bytes of BAR0.
        length: u64,
    },
}

impl fmt::Display for PciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { functions } => {
                write!(
                    f,
                    "none of {functions} PCI functions is of vendor {VENDOR:#06x}: is the NIC on bus 0?"
                )
            }
            Self::Refused { device, why } => write!(f, "PCI device {VENDOR:04x}:{device:04x}: {why}"),
            Self::BadBar(raw) => write!(f, "BAR0 is {raw:#010x}, not memory with 64-bit addresses"),
            Self::NoAddress { length } => {
                write!(f, "BAR0 of {length} bytes has no address, and the host bridge has no room for it")
            }
        }
    }
}

impl core::error::Error for PciError {}

/// Finds the first NIC and makes it ready.
pub fn bring_up(access: &impl ConfigRegionAccess, free: Option<FreeWindow>) -> Result<Nic, PciError> {
    let (header, name) = find(access)?;
    let address = header.address();
    let Some(mut endpoint) = EndpointHeader::from_header(header, access) else {
        return Err(PciError::NotFound { functions: 1 });
    };
    // While a BAR is measured it must not decode.
    let off = CommandRegister::MEMORY_ENABLE | CommandRegister::BUS_MASTER_ENABLE;
    endpoint.update_command(access, |command| command - off);
    let (bar, length) = window(access, &mut endpoint, free)?;
    endpoint.update_command(access, |command| command | off);
    Ok(Nic { address, name, bar, length })
}

fn window(
    access: &impl ConfigRegionAccess,
    endpoint: &mut EndpointHeader,
    free: Option<FreeWindow>,
) -> Result<(u64, u64), PciError> {
    // SAFETY: BAR0 of an endpoint that `find` has seen; reading it has no effect.
    let raw = unsafe { access.read(endpoint.header().address(), BAR0) };
    if raw & KIND != WIDE {
        return Err(PciError::BadBar(raw));
    }
    let Some(Bar::Memory64 { address, size, .. }) = endpoint.bar(0, access) else {
        return Err(PciError::BadBar(raw));
    };
    if address != 0 {
        return Ok((address, size));
    }
    let address = place(free, size).ok_or(PciError::NoAddress { length: size })?;
    let value = usize::try_from(address).map_err(|_| PciError::NoAddress { length: size })?;
    // SAFETY: the address is aligned to the size and inside the window of the host bridge; the BAR does not decode yet.
    unsafe { endpoint.write_bar(0, access, value) }.map_err(|_| PciError::BadBar(raw))?;
    Ok((address, size))
}

fn place(free: Option<FreeWindow>, size: u64) -> Option<u64> {
    let FreeWindow { start, length } = free?;
    let address = start.checked_next_multiple_of(size)?;
    (address.checked_add(size)? <= start.checked_add(length)?).then_some(address)
}

fn find(access: &impl ConfigRegionAccess) -> Result<(PciHeader, &'static str), PciError> {
    let (mut buses, mut next, mut functions) = (Vec::<u8, BUSES>::new(), 0, 0);
    let _ = buses.push(0);
    while let Some(&bus) = buses.get(next) {
        next += 1;
        for header in functions_of(access, bus) {
            functions += 1;
            let (vendor, device) = header.id(access);
            if vendor == VENDOR {
                return match pci::support(vendor, device) {
                    Support::Supported => Ok((header, pci::name(vendor, device))),
                    Support::Refused(why) => Err(PciError::Refused { device, why }),
                };
            }
            if let Some(below) = bus_below(access, header).filter(|below| !buses.contains(below)) {
                // What is beyond the table is not looked at; real machines of this size run an operating system.
                let _ = buses.push(below);
            }
        }
    }
    Err(PciError::NotFound { functions })
}

fn functions_of(access: &impl ConfigRegionAccess, bus: u8) -> impl Iterator<Item = PciHeader> {
    let header = move |device, function| PciHeader::new(PciAddress::new(0, bus, device, function));
    let exists = move |header: &PciHeader| header.id(access).0 != 0xffff;
    (0..32).filter(move |device| exists(&header(*device, 0))).flat_map(move |device| {
        let count = if header(device, 0).has_multiple_functions(access) { 8 } else { 1 };
        (0..count).map(move |function| header(device, function)).filter(exists)
    })
}

/// The bus that firmware put behind a bridge, if any.
fn bus_below(access: &impl ConfigRegionAccess, header: PciHeader) -> Option<u8> {
    if header.header_type(access) != HeaderType::PciPciBridge {
        return None;
    }
    let bridge = PciPciBridgeHeader::from_header(header, access)?;
    Some(bridge.secondary_bus_number(access)).filter(|bus| *bus != 0)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// Functions by address, 16 dwords each; BAR0 has 32 MiB.
    struct Space(RefCell<BTreeMap<PciAddress, [u32; 16]>>);

    const SIZE_MASK: u32 = !((32 << 20) - 1);

    impl ConfigRegionAccess for Space {
        unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
            self.0.borrow().get(&address).map_or(u32::MAX, |function| function[usize::from(offset) / 4])
        }
        unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
            if let Some(function) = self.0.borrow_mut().get_mut(&address) {
                let flags = function[4] & 0xf;
                function[usize::from(offset) / 4] =
                    if offset == BAR0 { value & SIZE_MASK | flags } else { value };
            }
        }
    }

    fn function(vendor: u16, device: u16, bar: u32) -> [u32; 16] {
        let mut dwords = [0; 16];
        dwords[0] = u32::from(device) << 16 | u32::from(vendor);
        dwords[4] = bar;
        dwords
    }

    fn bridge(secondary: u8) -> [u32; 16] {
        let mut dwords = function(0x8086, 1, 0);
        dwords[3] = 1 << 16;
        dwords[6] = u32::from(secondary) << 8;
        dwords
    }

    fn space(functions: &[(u8, u8, [u32; 16])]) -> Space {
        let at =
            |(bus, device, dwords): &(u8, u8, [u32; 16])| (PciAddress::new(0, *bus, *device, 0), *dwords);
        Space(RefCell::new(functions.iter().map(at).collect()))
    }

    #[test]
    fn a_nic_behind_a_bridge_keeps_the_address_that_firmware_gave() {
        let nic = function(VENDOR, 0x1021, 0xe000_000c);
        let space = space(&[(0, 0, function(0x8086, 2, 0)), (0, 3, bridge(5)), (5, 0, nic)]);
        let found = bring_up(&space, None).expect("there is one");
        assert_eq!((found.address.bus(), found.bar, found.length), (5, 0xe000_0000, 32 << 20));
        let command = space.0.borrow()[&found.address][1];
        assert_eq!(command & 0b110, 0b110, "memory and bus master are on");
    }

    #[test]
    fn a_nic_without_an_address_gets_an_aligned_one() {
        let nic = [(0, 1, function(VENDOR, 0x101b, 0xc))];
        let free = FreeWindow { start: 0x1000_1000, length: 0x2eff_0000 };
        assert_eq!(bring_up(&space(&nic), Some(free)).map(|nic| nic.bar), Ok(0x1200_0000));
        let small = FreeWindow { start: 0x1000_1000, length: 32 << 20 };
        let expected = Err(PciError::NoAddress { length: 32 << 20 });
        assert_eq!(bring_up(&space(&nic), Some(small)), expected);
        assert_eq!(bring_up(&space(&nic), None), expected);
    }

    #[test]
    fn unsupported_devices_are_reported() {
        assert_eq!(bring_up(&space(&[]), None), Err(PciError::NotFound { functions: 0 }));
        let old = space(&[(0, 1, function(VENDOR, 0x1003, 0xc))]);
        assert!(matches!(bring_up(&old, None), Err(PciError::Refused { device: 0x1003, .. })));
        for bar in [0x8, 0x6, 0x1] {
            let odd = space(&[(0, 1, function(VENDOR, 0x1021, bar))]);
            assert_eq!(bring_up(&odd, None), Err(PciError::BadBar(bar)));
        }
    }

    #[test]
    fn bridges_in_a_circle_end() {
        let circle = space(&[(0, 0, bridge(1)), (1, 0, bridge(2)), (2, 0, bridge(1))]);
        assert_eq!(bring_up(&circle, None), Err(PciError::NotFound { functions: 3 }));
    }
}

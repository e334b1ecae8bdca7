//! What the device tree says of the console and of the PCI host bridge.

use super::map_device;
use super::pl011::Pl011;
use bareverbs_bare_metal::pci::FreeWindow;
use core::ptr::NonNull;
use fdt::Fdt;
use fdt::node::FdtNode;

/// QEMU puts the tree at the start of memory, in front of an ELF image.
const TREE: usize = 0x4000_0000;
/// First cell of a range: what kind of space; 32-bit memory.
const MEMORY_32: u32 = 0x0200_0000;
const SPACE: u32 = 0x0300_0000;
/// Cells of a range: three of the PCI address, two of the processor's, two of the length.
const RANGE_CELLS: usize = 7;

/// The PCI host bridge.
pub struct Bridge {
    configuration: (u64, usize),
    /// Addresses for 32-bit memory BARs, the same on both sides of the bridge.
    pub memory: Option<FreeWindow>,
}

impl Bridge {
    /// Configuration space, if it is mapped.
    pub fn configuration(&self) -> Option<(NonNull<u8>, usize)> {
        let (address, length) = self.configuration;
        Some((map_device(address, length)?, length))
    }
}

/// The tree, if there is one.
pub fn read() -> Option<Fdt<'static>> {
    // SAFETY: the start of memory, mapped by the boot code; the header says how long the tree is, and a magic number that
    // it is one.
    unsafe { Fdt::from_ptr(TREE as *const u8) }.ok()
}

/// The console that the tree names for output.
pub fn console(tree: &Fdt<'static>) -> Option<Pl011> {
    let node = tree.find_compatible(&["arm,pl011"])?;
    let address = node.reg()?.next()?.starting_address as u64;
    map_device(address, 4096)?;
    // SAFETY: the tree says that a PL011 is there, and it is mapped as a device.
    unsafe { Pl011::new(address) }
}

/// The host bridge with configuration space in memory.
pub fn host_bridge(tree: &Fdt<'static>) -> Option<Bridge> {
    let node = tree.find_compatible(&["pci-host-ecam-generic"])?;
    let region = node.reg()?.next()?;
    let configuration = (region.starting_address as u64, region.size?);
    Some(Bridge { configuration, memory: memory_range(node) })
}

fn memory_range(node: FdtNode<'_, 'static>) -> Option<FreeWindow> {
    let mut ranges = node.property("ranges")?.value.chunks_exact(4 * RANGE_CELLS);
    ranges.find_map(|range| {
        window(&|cell| range.get(4 * cell..)?.first_chunk().copied().map(u32::from_be_bytes))
    })
}

/// The window of a range whose cells `cell` gives, if it is 32-bit memory with the same address on both sides.
fn window(cell: &dyn Fn(usize) -> Option<u32>) -> Option<FreeWindow> {
    let wide = |at: usize| Some(u64::from(cell(at)?) << 32 | u64::from(cell(at + 1)?));
    let (bus, start, length) = (wide(1)?, wide(3)?, wide(5)?);
    (cell(0)? & SPACE == MEMORY_32 && bus == start).then_some(FreeWindow { start, length })
}

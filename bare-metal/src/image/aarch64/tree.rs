//! The console and the PCI host bridge, as the device tree describes them.

use super::mapping::map_device;
use super::pl011::Pl011;
use bareverbs_bare_metal::pci::FreeWindow;
use core::ptr::NonNull;
use heapless::String;
use hermit_dtb::Dtb;

/// QEMU puts the tree at the start of memory, in front of an ELF image.
const TREE: usize = 0x4000_0000;
/// First cell of a range: what kind of space; 32-bit memory.
const MEMORY_32: u32 = 0x0200_0000;
const SPACE: u32 = 0x0300_0000;
/// Cells of a range: three of the PCI address, two of the processor's, two of the length.
const RANGE_CELLS: usize = 7;
/// The path of a node below the root.
type Path = String<64>;

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
pub fn read() -> Option<Dtb<'static>> {
    // SAFETY: the start of memory, mapped by the boot code; the header says how long the tree is, and a magic number that
    // it is one.
    unsafe { Dtb::from_raw(TREE as *const u8) }
}

/// The console that the tree names for output.
pub fn console(tree: &Dtb<'static>) -> Option<Pl011> {
    let (address, _) = region(tree, &find(tree, "arm,pl011")?)?;
    map_device(address, 4096)?;
    // SAFETY: the tree says that a PL011 is there, and it is mapped as a device.
    unsafe { Pl011::new(address) }
}

/// The host bridge with configuration space in memory.
pub fn host_bridge(tree: &Dtb<'static>) -> Option<Bridge> {
    let path = find(tree, "pci-host-ecam-generic")?;
    let (address, length) = region(tree, &path)?;
    Some(Bridge {
        configuration: (address, usize::try_from(length).ok()?),
        memory: memory_range(tree, &path),
    })
}

/// The first node below the root that is compatible with `what`.
fn find(tree: &Dtb<'static>, what: &str) -> Option<Path> {
    tree.enum_subnodes("/").find_map(|name| {
        let mut path = Path::new();
        path.push_str("/").and_then(|()| path.push_str(name)).ok()?;
        let mut compatible = tree.get_property(&path, "compatible")?.split(|byte| *byte == 0);
        compatible.any(|name| name == what.as_bytes()).then_some(path)
    })
}

/// Address and bytes of a node's first region: two cells each on "virt".
fn region(tree: &Dtb<'static>, path: &str) -> Option<(u64, u64)> {
    let cells = tree.get_property(path, "reg")?;
    let wide = |at: usize| cells.get(at..)?.first_chunk().copied().map(u64::from_be_bytes);
    Some((wide(0)?, wide(8)?))
}

fn memory_range(tree: &Dtb<'static>, path: &str) -> Option<FreeWindow> {
    let mut ranges = tree.get_property(path, "ranges")?.chunks_exact(4 * RANGE_CELLS);
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

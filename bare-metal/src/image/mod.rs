//! What happens between entry and power-off, on every processor.

use crate::machine;
#[cfg(target_arch = "x86_64")]
use crate::machine::PcMachine as Machine;
#[cfg(target_arch = "aarch64")]
use crate::machine::VirtMachine as Machine;
use bareverbs_bare_metal::hal::{ARENA_SIZE, Arena, Bar, BareHal};
use bareverbs_bare_metal::{lookup, pci};
use core::cell::UnsafeCell;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::ptr::NonNull;

/// Memory for the device, aligned so that the largest page is.
#[repr(align(0x20_0000))]
struct ArenaMemory(UnsafeCell<[u8; ARENA_SIZE]>);

// SAFETY: only `ARENA` names it, and hands pages of it out under a lock.
unsafe impl Sync for ArenaMemory {}

static ARENA_MEMORY: ArenaMemory = ArenaMemory(UnsafeCell::new([0; ARENA_SIZE]));
// SAFETY: a static that nothing else names; both machines map memory one to one (their boot code says so).
static ARENA: Arena =
    unsafe { Arena::new(NonNull::new(ARENA_MEMORY.0.get().cast()).expect("a static has an address")) };

/// Does everything, then switches the machine off. Called once by the boot code of either processor.
#[unsafe(no_mangle)]
extern "C" fn enter() -> ! {
    let mut machine = Machine::discover();
    if let Err(Some(error)) = work(&mut machine) {
        let _ = writeln!(machine.console(), "bareverbs failed: {error}");
    }
    machine::power_off()
}

/// An error that was not said yet, if that is how it ended.
fn work(machine: &mut Machine) -> Result<(), Option<Failure>> {
    let nic = pci::bring_up(machine.configuration(), machine.free_window())
        .map_err(|error| Some(Failure::Pci(error)))?;
    let (address, name) = (nic.address, nic.name);
    let _ = writeln!(machine.console(), "bareverbs found {name} at {address}, BAR0 {:#x}", nic.bar);
    let length = usize::try_from(nic.length).map_err(|_| Some(Failure::NotMapped(nic.bar)))?;
    let start = machine::map_device(nic.bar, length).ok_or(Some(Failure::NotMapped(nic.bar)))?;
    // SAFETY: `map_device` has mapped the window; the image drives one device, once.
    let bar = unsafe { Bar::new(start, length) };
    let hal = BareHal::new(bar, &ARENA, machine::now);
    lookup::run(hal, machine.console()).map_err(|lookup::Failed| None)?;
    let used = ARENA.used();
    let _ = writeln!(machine.console(), "bareverbs done: {used} bytes of the arena are still in use");
    Ok(())
}

enum Failure {
    Pci(pci::PciError),
    NotMapped(u64),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(error) => error.fmt(f),
            Self::NotMapped(bar) => write!(f, "BAR0 at {bar:#x} is beyond what the page tables can reach"),
        }
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // Another console on the same registers: the owner of the first one never returns.
    let _ = writeln!(machine::emergency_console(), "bareverbs panicked: {info}");
    machine::power_off()
}

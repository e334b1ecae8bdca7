//! QEMU's machine "virt": what it has is read from its device tree; console on a PL011, PCI configuration in memory (ECAM),
//! clock by the generic timer, power-off by PSCI.

mod mapping;
mod pl011;
mod tree;

pub use mapping::map_device;

use bareverbs_bare_metal::pci::FreeWindow;
use bareverbs_prm::time::Time;
use core::arch::{asm, global_asm};
use core::fmt;
use core::ptr::NonNull;
use pci_types::{ConfigRegionAccess, PciAddress};
use pl011::Pl011;
use smccc::{Hvc, psci};
use tree::Bridge;

global_asm!(include_str!("boot.s"));

const PICOS: u128 = 1_000_000_000_000;

/// The machine's parts.
pub struct VirtMachine {
    console: Pl011,
    configuration: Ecam,
    free: Option<FreeWindow>,
}

impl VirtMachine {
    /// Reads the device tree. Without a host bridge in it there are no PCI functions to be found.
    pub fn discover() -> Self {
        let tree = tree::read();
        let bridge = tree.as_ref().and_then(tree::host_bridge);
        let configuration = Ecam(bridge.as_ref().and_then(Bridge::configuration));
        Self { console: emergency_console(), configuration, free: bridge.and_then(|bridge| bridge.memory) }
    }

    pub fn console(&mut self) -> &mut Pl011 {
        &mut self.console
    }

    pub fn configuration(&self) -> &Ecam {
        &self.configuration
    }

    /// There is no firmware that gives BARs their addresses.
    pub fn free_window(&self) -> Option<FreeWindow> {
        self.free
    }
}

/// The console that the tree names, or the one that "virt" has always had.
pub fn emergency_console() -> Pl011 {
    tree::read().as_ref().and_then(tree::console).unwrap_or_default()
}

/// Switches the machine off.
pub fn power_off() -> ! {
    // An error means that there is no PSCI: then the processor sleeps.
    let _ = psci::system_off::<Hvc>();
    loop {
        // SAFETY: waits for an event; touches nothing.
        unsafe { asm!("wfe", options(nomem, nostack)) };
    }
}

/// Time since the machine was switched on.
pub fn now() -> Time {
    let (ticks, frequency): (u64, u64);
    // SAFETY: reads two registers that every exception level may read.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) ticks, out(reg) frequency, options(nomem, nostack));
    }
    Time::from_picos((u128::from(ticks) * PICOS / u128::from(frequency.max(1))) as u64)
}

/// Configuration space in memory: 4 KiB a function.
pub struct Ecam(Option<(NonNull<u8>, usize)>);

impl Ecam {
    fn register(&self, address: PciAddress, offset: u16) -> Option<NonNull<u32>> {
        let (start, length) = self.0?;
        let function = usize::from(address.bus()) << 20
            | usize::from(address.device()) << 15
            | usize::from(address.function()) << 12;
        let at = function + usize::from(offset & 0xffc);
        // SAFETY: inside the window of the host bridge, which is mapped.
        (at + 4 <= length).then(|| unsafe { start.add(at).cast() })
    }
}

impl ConfigRegionAccess for Ecam {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        let register = self.register(address, offset);
        // SAFETY: a mapped register; the caller answers for what reading it does.
        register.map_or(u32::MAX, |register| unsafe { u32::from_le(register.read_volatile()) })
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        if let Some(register) = self.register(address, offset) {
            // SAFETY: as for `read`.
            unsafe { register.write_volatile(value.to_le()) };
        }
    }
}

/// Any exception of the processor ends the image with a line that says where.
#[unsafe(no_mangle)]
extern "C" fn handle_exception(syndrome: u64, instruction: u64, address: u64) -> ! {
    let mut console = Pl011::default();
    let _ = fmt::Write::write_fmt(
        &mut console,
        format_args!(
            "bareverbs failed: processor exception {syndrome:#x} at {instruction:#x}, address {address:#x}\n"
        ),
    );
    power_off()
}

//! A PC: entered by PVH in 32-bit mode with paging off, console on COM1, PCI configuration by ports, clock by TSC.

mod clock;
mod paging;

pub use clock::now;
pub use paging::map_device;

use bareverbs_bare_metal::console::Console;
use bareverbs_bare_metal::pci::FreeWindow;
use core::arch::global_asm;
use core::fmt;
use pci_types::{ConfigRegionAccess, PciAddress};
use spin::Mutex;
use uart_16550::backend::PioBackend;
use uart_16550::{Config, Uart16550};
use x86_64::instructions::port::Port;

global_asm!(include_str!("boot.s"), options(att_syntax));

/// I/O port of COM1.
const COM1: u16 = 0x3f8;
/// QEMU's power management register of the q35 chip set, and the value that means "soft off" there.
const POWER_CONTROL: (u16, u16) = (0x604, 0x2000);

/// The machine's parts.
pub struct PcMachine {
    console: Com1,
    configuration: ConfigurationPorts,
}

impl PcMachine {
    /// A PC has everything at its well-known place.
    pub fn discover() -> Self {
        clock::calibrate();
        Self { console: Com1::new(), configuration: ConfigurationPorts(Mutex::new(())) }
    }

    pub fn console(&mut self) -> &mut Com1 {
        &mut self.console
    }

    pub fn configuration(&self) -> &ConfigurationPorts {
        &self.configuration
    }

    /// The BIOS gave every BAR its address.
    pub fn free_window(&self) -> Option<FreeWindow> {
        None
    }
}

pub fn emergency_console() -> Com1 {
    Com1::new()
}

/// Switches QEMU off; on a machine that knows other ways it stops the processor.
pub fn power_off() -> ! {
    let (port, soft_off) = POWER_CONTROL;
    // SAFETY: a write to the power management port; nothing comes after it.
    unsafe { Port::<u16>::new(port).write(soft_off) };
    loop {
        x86_64::instructions::hlt();
    }
}

/// The first serial port.
pub struct Com1(Option<Uart16550<PioBackend>>);

impl Com1 {
    fn new() -> Self {
        // SAFETY: COM1 is where every PC has it; the image has one processor and no other user of it.
        let uart = unsafe { Uart16550::new_port(COM1) };
        Self(uart.ok().and_then(|mut uart| uart.init(Config::default()).ok().map(|()| uart)))
    }
}

impl fmt::Write for Com1 {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let uart = self.0.as_mut().ok_or(fmt::Error)?;
        for byte in text.bytes() {
            while uart.try_send_byte(byte).is_err() {
                core::hint::spin_loop();
            }
        }
        Ok(())
    }
}

impl Console for Com1 {
    fn read(&mut self) -> Option<u8> {
        self.0.as_mut()?.try_receive_byte().ok()
    }
}

/// PCI configuration mechanism 1: an address port and a data port.
pub struct ConfigurationPorts(Mutex<()>);

impl ConfigurationPorts {
    fn select(address: PciAddress, offset: u16) -> Port<u32> {
        let function = u32::from(address.bus()) << 16
            | u32::from(address.device()) << 11
            | u32::from(address.function()) << 8;
        let selector = 1 << 31 | function | u32::from(offset & 0xfc);
        // SAFETY: the address port of mechanism 1, which only selects.
        unsafe { Port::<u32>::new(0xcf8).write(selector) };
        Port::new(0xcfc)
    }
}

impl ConfigRegionAccess for ConfigurationPorts {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        let _both_ports = self.0.lock();
        // SAFETY: the data port of mechanism 1; the caller answers for what reading this register does.
        unsafe { Self::select(address, offset).read() }
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        let _both_ports = self.0.lock();
        // SAFETY: as for `read`.
        unsafe { Self::select(address, offset).write(value) };
    }
}

/// Any exception of the processor ends the image with a line that says where.
#[unsafe(no_mangle)]
extern "C" fn handle_exception(vector: u64, instruction: u64, address: u64) -> ! {
    let mut console = emergency_console();
    let _ = fmt::Write::write_fmt(
        &mut console,
        format_args!(
            "bareverbs failed: processor exception {vector} at {instruction:#x}, address {address:#x}\n"
        ),
    );
    power_off()
}

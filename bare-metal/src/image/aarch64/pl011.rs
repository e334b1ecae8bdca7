//! The serial port of Arm's machines, as the reset leaves it in QEMU: on, and without interrupts.

use bareverbs_bare_metal::console::Console;
use core::fmt;
use core::ptr::NonNull;
use volatile_register::{RO, RW};

#[repr(C)]
struct Registers {
    data: RW<u32>,
    _errors: [u32; 5],
    flags: RO<u32>,
}

const RECEIVE_EMPTY: u32 = 1 << 4;
const TRANSMIT_FULL: u32 = 1 << 5;
/// Where "virt" has it.
const USUAL: u64 = 0x0900_0000;

/// A serial port.
pub struct Pl011(NonNull<Registers>);

impl Pl011 {
    /// The port at a physical address.
    ///
    /// # Safety
    /// There must be one, mapped as device memory.
    pub unsafe fn new(address: u64) -> Option<Self> {
        NonNull::new(address as *mut Registers).map(Self)
    }

    fn registers(&self) -> &Registers {
        // SAFETY: `new` was promised that the registers are there; the cells may be shared with the device.
        unsafe { self.0.as_ref() }
    }
}

impl Default for Pl011 {
    fn default() -> Self {
        // SAFETY: the place that QEMU documents for "virt", below 1 GiB, which the boot code maps as devices.
        unsafe { Self::new(USUAL) }.expect("the address is not zero")
    }
}

impl fmt::Write for Pl011 {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while self.registers().flags.read() & TRANSMIT_FULL != 0 {
                core::hint::spin_loop();
            }
            // SAFETY: sends a byte; `volatile_register` calls every store unsafe.
            unsafe { self.registers().data.write(u32::from(byte)) };
        }
        Ok(())
    }
}

impl Console for Pl011 {
    fn read(&mut self) -> Option<u8> {
        let registers = self.registers();
        (registers.flags.read() & RECEIVE_EMPTY == 0).then(|| registers.data.read() as u8)
    }
}

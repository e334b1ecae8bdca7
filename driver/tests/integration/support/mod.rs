//! A place made of plain memory and virtual time, with firmware that follows a script.
//!
//! The firmware interprets the command queue as a device does, keeps books of its objects, and misbehaves where the
//! test says so. There is no network: tests write completion and event entries themselves.
#![allow(dead_code, unused_imports, reason = "benchmarks and fuzz targets use parts of it")]

pub mod firmware;
pub mod memory;
pub mod objects;

use bareverbs_core::hal::{Barrier, Hal, HalError, Mmio, WakeCount};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::time::{Duration, Time};
use firmware::Firmware;
use memory::{FakeDma, Memory};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

pub use firmware::Misbehaviour;

/// Bytes of the window.
pub const BAR: usize = 0x2_0000;

/// A loop that reads the clock this often without letting time pass never ends.
const ENDLESS: u32 = 100_000;

/// Everything behind the bus.
pub struct World {
    pub memory: Memory,
    pub firmware: RefCell<Firmware>,
    pub now: Cell<Time>,
    pub relaxed: Cell<u64>,
    /// How often the driver has asked for the time since it last let time pass.
    asked: Cell<u32>,
    /// Registers of 32 bits that were written in the UAR space. Each is an arming, whose interrupt another thread takes at once.
    pub noticed: Cell<u64>,
    /// Waits that began although everything that was noticed was known.
    pub slept: Cell<u64>,
    /// Time that one relaxing takes at least.
    pub tick: Duration,
    /// What the device does on its own account whenever it gets a chance: at barriers, and while the driver waits.
    pub device: RefCell<Option<Interference>>,
}

/// What a device does on its own account.
pub type Interference = Box<dyn FnMut()>;

impl World {
    /// Lets firmware work on what is due.
    pub fn step(&self) {
        self.firmware.borrow_mut().step(&self.memory, self.now.get());
        self.interfere();
    }

    /// Lets the device do what it does on its own account. It may use the place meanwhile.
    fn interfere(&self) {
        let taken = self.device.borrow_mut().take();
        if let Some(mut device) = taken {
            device();
            *self.device.borrow_mut() = Some(device);
        }
    }
}

/// The place.
#[derive(Clone)]
pub struct FakeHal {
    pub world: Rc<World>,
    mmio: Rc<FakeMmio>,
}

/// Registers: the initialization segment goes to firmware, the rest is plain memory.
pub struct FakeMmio {
    world: Rc<World>,
    bar: NonNull<u8>,
}

impl FakeHal {
    pub fn new() -> Self {
        let world = Rc::new(World {
            memory: Memory::default(),
            firmware: RefCell::new(Firmware::default()),
            now: Cell::new(Time::ZERO),
            relaxed: Cell::new(0),
            asked: Cell::new(0),
            noticed: Cell::new(0),
            slept: Cell::new(0),
            tick: Duration::from_micros(1),
            device: RefCell::new(None),
        });
        let bar = memory::allocate(BAR);
        Self { mmio: Rc::new(FakeMmio { world: world.clone(), bar }), world }
    }

    /// The script.
    pub fn firmware(&self) -> std::cell::RefMut<'_, Firmware> {
        self.world.firmware.borrow_mut()
    }

    /// 64 bits of the UAR space as they were written, most significant byte first.
    pub fn register64(&self, offset: usize) -> u64 {
        assert!(offset + 8 <= BAR);
        // SAFETY: inside the window, which lives as long as `mmio`.
        u64::from_be_bytes(unsafe { self.mmio.bar.add(offset).cast::<[u8; 8]>().read() })
    }

    /// 64 bytes of the UAR space.
    pub fn burst(&self, offset: usize) -> [u8; 64] {
        assert!(offset + 64 <= BAR);
        // SAFETY: inside the window, which lives as long as `mmio`.
        unsafe { self.mmio.bar.add(offset).cast::<[u8; 64]>().read() }
    }
}

impl Drop for FakeMmio {
    fn drop(&mut self) {
        memory::free(self.bar, BAR);
    }
}

impl Mmio for FakeMmio {
    fn read32(&self, offset: usize) -> u32 {
        self.world.firmware.borrow_mut().read32(offset)
    }
    fn write32(&self, offset: usize, value: u32) {
        if offset < init_segment::SIZE {
            let now = self.world.now.get();
            self.world.firmware.borrow_mut().write32(offset, value, now);
            self.world.step();
        } else {
            assert!(offset + 4 <= BAR);
            self.world.noticed.set(self.world.noticed.get() + 1);
            // SAFETY: inside the window.
            unsafe { self.bar.add(offset).cast::<u32>().write_volatile(value.to_be()) }
        }
    }
    #[inline(always)]
    fn write64(&self, offset: usize, value: u64) {
        if offset <= BAR - 8 {
            // SAFETY: inside the window.
            unsafe { self.bar.add(offset).cast::<u64>().write_volatile(value.to_be()) }
        }
    }
    #[inline(always)]
    fn write_block64(&self, offset: usize, block: &[u64; 8]) {
        if offset <= BAR - 64 {
            for (i, &word) in block.iter().enumerate() {
                // SAFETY: inside the window.
                unsafe { self.bar.add(offset).cast::<u64>().add(i).write_volatile(word) }
            }
        }
    }
    fn len(&self) -> usize {
        BAR
    }
}

impl Hal for FakeHal {
    type Mmio = FakeMmio;
    type Dma = FakeDma;

    #[inline(always)]
    fn mmio(&self) -> &FakeMmio {
        &self.mmio
    }
    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<FakeDma, HalError> {
        if length == 0 || !alignment.is_power_of_two() {
            return Err(HalError::BadRequest { length, alignment });
        }
        self.world.memory.allocate(length, alignment).ok_or(HalError::OutOfDmaMemory { length, alignment })
    }
    fn allocate_private(&self, length: usize, alignment: usize) -> Result<FakeDma, HalError> {
        self.world.memory.allocate_private(length).ok_or(HalError::OutOfDmaMemory { length, alignment })
    }
    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<FakeDma, HalError> {
        Ok(self.world.memory.map(start, length))
    }
    /// Panics if time stands still while the driver waits for it to pass: a wait without an end is a fault, and no test
    /// should have to be killed to show it.
    fn now(&self) -> Time {
        let asked = self.world.asked.replace(self.world.asked.get() + 1);
        assert!(asked < ENDLESS, "the driver has asked for the time {asked} times and let none pass");
        self.world.now.get()
    }
    #[inline(always)]
    fn barrier(&self, kind: Barrier) {
        bareverbs_core::barrier::native(kind);
        // Programs that count the driver's instructions use this place too, and have no device that does anything.
        if cfg!(test) {
            self.world.interfere();
        }
    }
    fn relax(&self, deadline: Time) {
        self.world.relaxed.set(self.world.relaxed.get() + 1);
        self.world.asked.set(0);
        let next = self.world.firmware.borrow().next_due().unwrap_or(Time::MAX);
        let now = self.world.now.get();
        self.world.now.set((now + self.world.tick).max(next.min(deadline)).min(deadline).max(now));
        self.world.step();
    }
    fn wake_count(&self) -> WakeCount {
        WakeCount(self.world.noticed.get())
    }
    fn relax_since(&self, before: WakeCount, deadline: Time) {
        if before == self.wake_count() {
            self.world.slept.set(self.world.slept.get() + 1);
        }
        self.relax(deadline);
    }
}

impl std::fmt::Debug for FakeHal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeHal").finish_non_exhaustive()
    }
}

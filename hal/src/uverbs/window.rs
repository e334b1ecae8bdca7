//! BAR0 as a driver of this place sees it: an initialization segment that exists here only, and pages of doorbells that the kernel has
//! mapped.

use super::context::KernelContext;
use super::doorbells::DoorbellPages;
use super::firmware::Firmware;
use super::memory::KernelMemory;
use super::queue::{self, LOG_SLOTS, LOG_STRIDE};
use crate::memory::Arena;
use bareverbs_core::hal::Mmio;
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, init_segment, uar};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Length of the window: every page of doorbells that a number can name.
const LENGTH: usize = UAR_PAGE_SIZE << 24;
/// Revision of the command interface.
const COMMAND_INTERFACE: u32 = 5;
/// Bits of the queue's low address.
const ADDRESS: u32 = !0xfff;
/// The window into BAR0.
#[derive(Debug)]
pub struct KernelWindow {
    pages: Arc<DoorbellPages>,
    arena: Arc<Arena<KernelMemory>>,
    /// Major, minor, subminor.
    revision: [u16; 3],
    is_gone: AtomicBool,
    segment: Mutex<InitializationSegment>,
}

#[derive(Debug)]
struct InitializationSegment {
    /// Address of the command queue.
    high: u32,
    low: u32,
    firmware: Firmware,
}

impl KernelWindow {
    pub(super) fn new(
        context: Arc<KernelContext>,
        arena: Arc<Arena<KernelMemory>>,
        revision: [u16; 3],
    ) -> Self {
        let pages = Arc::new(DoorbellPages::default());
        let firmware = Firmware::new(context, arena.clone(), pages.clone());
        let segment = Mutex::new(InitializationSegment { high: 0, low: 0, firmware });
        Self { pages, arena, revision, is_gone: AtomicBool::new(false), segment }
    }

    fn segment(&self) -> MutexGuard<'_, InitializationSegment> {
        self.segment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the executor.
    pub(super) fn with_firmware<T>(&self, ask: impl FnOnce(&Firmware) -> T) -> T {
        ask(&self.segment().firmware)
    }

    /// Executes the commands in the slots of a doorbell.
    fn execute(&self, doorbell: u32) {
        let (mut segment, memory) = (self.segment(), self.arena.mapper());
        let queue = u64::from(segment.high) << 32 | u64::from(segment.low & ADDRESS);
        for slot in (0..1 << LOG_SLOTS).filter(|slot| doorbell >> slot & 1 != 0) {
            match queue::read(memory, queue + (slot << LOG_STRIDE)) {
                Some(Ok(mut command)) => {
                    let input = std::mem::take(&mut command.input);
                    let output = segment.firmware.execute(input, command.room);
                    command.answer(memory, &output);
                }
                Some(Err(undelivered)) => undelivered.answer(memory),
                None => {}
            }
        }
        if segment.firmware.is_gone {
            self.is_gone.store(true, Ordering::Relaxed);
        }
    }
}

impl Mmio for KernelWindow {
    fn read32(&self, offset: usize) -> u32 {
        if self.is_gone.load(Ordering::Relaxed) {
            return u32::MAX;
        }
        let [major, minor, subminor] = self.revision.map(u32::from);
        match offset {
            init_segment::FW_REV => minor << 16 | major,
            init_segment::CMDIF_REV => COMMAND_INTERFACE << 16 | subminor,
            init_segment::CMDQ_ADDRESS_LOW => self.segment().low & ADDRESS | LOG_SLOTS << 4 | LOG_STRIDE,
            // Firmware has long initialized, and its health is for the kernel to watch.
            _ => 0,
        }
    }

    fn write32(&self, offset: usize, value: u32) {
        match offset {
            init_segment::CMDQ_ADDRESS_HIGH => self.segment().high = value,
            init_segment::CMDQ_ADDRESS_LOW => self.segment().low = value,
            init_segment::COMMAND_DOORBELL => self.execute(value),
            // The event queue is the kernel's, and nothing of the driver may move its consumer index.
            _ if matches!(offset % UAR_PAGE_SIZE, uar::EQ_ARM | uar::EQ_CONSUME) => {}
            _ => {
                if let Some((registers, within)) = self.pages.registers(offset) {
                    registers.write32(within, value);
                }
            }
        }
    }

    #[inline]
    fn write64(&self, offset: usize, value: u64) {
        if let Some((registers, within)) = self.pages.registers(offset) {
            registers.write64(within, value);
        }
    }

    #[inline]
    fn write_block64(&self, offset: usize, block: &[u64; 8]) {
        if let Some((registers, within)) = self.pages.registers(offset) {
            registers.write_block64(within, block);
        }
    }

    fn len(&self) -> usize {
        LENGTH
    }
}

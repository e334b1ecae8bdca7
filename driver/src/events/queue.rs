//! The ring of an event queue.

use crate::dma::{BLOCK, Dma, Window};
use crate::hal::{Barrier, DmaMemory, Hal, HalError, Mmio};
use crate::ring::{Consumer, OwnedEntry, take_ownership};
use crate::translation::PageRun;
use bareverbs_prm::command::eq::CreateEqIn;
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, eq_doorbell, uar};
use bareverbs_prm::eqe::{EventEntry, OWNER_OFFSET};
use bareverbs_prm::ids::{Eqn, UarIndex};
use bareverbs_prm::numbering::CommandOpcode;
use zerocopy::FromBytes;

/// Interrupt vectors have 12 bits; no device has a greater number.
const MAX_VECTOR: u16 = 0xfff;

/// A ring occupies whole pages of the device.
const SMALLEST_PAGE: usize = 4096;

/// A ring is aligned to its length up to this limit, so that the device's page list has one entry wherever
/// the memory is. Longer rings have a list, because not every HAL has memory that is aligned to megabytes.
const LARGEST_ALIGNMENT: usize = 1 << 16;

/// The event queue in memory.
pub(crate) struct EventQueue<M> {
    pub(crate) ring: Dma<M>,
    consumer: Consumer,
    pub(crate) eqn: Eqn,
    uar: UarIndex,
}

struct EventQueueSlot<'a, H> {
    hal: &'a H,
    window: Window<'a, BLOCK>,
}

impl<H: Hal> OwnedEntry for EventQueueSlot<'_, H> {
    fn last_byte(&self) -> u8 {
        self.window.load_u8::<OWNER_OFFSET>()
    }
    fn synchronize(&self) {
        self.hal.barrier(Barrier::FromDevice);
    }
}

impl<M: DmaMemory> EventQueue<M> {
    /// Allocates memory for `entries`, 2 to 2^20 and rounded up to a power of two, all owned by the device.
    pub(crate) fn allocate<H: Hal<Dma = M>>(hal: &H, entries: u32, uar: UarIndex) -> Result<Self, HalError> {
        let entries = entries.clamp(2, 1 << 20).next_power_of_two();
        let consumer = Consumer::new(entries.trailing_zeros() as u8);
        let entries = consumer.size() as usize;
        let length = (entries * BLOCK).max(SMALLEST_PAGE);
        let ring = Dma::allocate(hal, length, length.min(LARGEST_ALIGNMENT))?;
        for window in (0..entries).filter_map(|index| ring.block(index)) {
            window.store_be32::<60>(1);
        }
        Ok(Self { ring, consumer, eqn: Eqn::default(), uar })
    }

    /// The command that creates the queue on interrupt `vector` for the event types of `mask`, and the page
    /// list. Completion events go to the event queue that a completion queue names, whatever the mask.
    pub(crate) fn create_input(&self, log_max_page: u8, vector: u16, mask: u64) -> (CreateEqIn, PageRun) {
        let run = PageRun::of_buffer(self.ring.iova(), self.ring.len(), log_max_page);
        let mut input = CreateEqIn::new();
        input.set_opcode(CommandOpcode::CreateEq);
        let context = input.eq_context_entry_mut();
        context.set_log_eq_size(self.consumer.size().trailing_zeros() as u8).set_uar_page(self.uar);
        context.set_intr(vector.min(MAX_VECTOR)).set_log_page_size(run.log_page_size());
        let mut bits = [0; 32];
        bits[..8].copy_from_slice(&mask.to_be_bytes());
        input.set_event_bitmask(bits);
        (input, run)
    }

    /// Entries of the ring.
    pub(crate) const fn entries(&self) -> u32 {
        self.consumer.size()
    }

    /// The next entry, if there is one.
    pub(crate) fn poll<H: Hal<Dma = M>>(&mut self, hal: &H) -> Option<EventEntry> {
        let window = self.ring.block(self.consumer.slot())?;
        take_ownership(&EventQueueSlot { hal, window }, self.consumer.phase())?;
        let entry = EventEntry::read_from_bytes(&window.to_bytes()).unwrap_or_default();
        self.consumer.advance();
        Some(entry)
    }

    /// Frees the polled entries.
    pub(crate) fn acknowledge<H: Hal<Dma = M>>(&self, hal: &H) {
        self.ring_doorbell(hal, uar::EQ_CONSUME);
    }

    /// Frees the polled entries and requests an interrupt for the next one. If that has already arrived, the
    /// interrupt comes at once.
    pub(crate) fn arm<H: Hal<Dma = M>>(&self, hal: &H) {
        self.ring_doorbell(hal, uar::EQ_ARM);
    }

    fn ring_doorbell<H: Hal<Dma = M>>(&self, hal: &H, register: usize) {
        let register = self.uar.value() as usize * UAR_PAGE_SIZE + register;
        hal.mmio().write32(register, eq_doorbell(self.eqn, self.consumer.counter()));
        hal.barrier(Barrier::FlushMmio);
    }
}

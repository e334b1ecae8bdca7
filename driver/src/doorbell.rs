//! Doorbells: tell the device about new work through the doorbell record in memory, then the register in the UAR page.
//!
//! The order is part of the PRM's contract (doorbell records): work queue entries, barrier, record, barrier, register.
//! The record says how far the queue reaches, and the device may read it at any time; the register only wakes the
//! device.

use crate::hal::{Barrier, Hal, Mmio};
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, uar};
use bareverbs_prm::ids::UarIndex;
use bareverbs_prm::mutation::mutated;

/// The steps of publishing posted work.
pub trait Publication {
    /// Orders earlier stores to shared memory before later ones.
    fn to_device(&self);
    /// Stores the producer counter in the doorbell record.
    fn store_record(&self);
    /// Writes the register.
    fn ring(&self);
}

/// Publishes work that has been written to the ring.
#[inline(always)]
pub fn publish(work: &impl Publication) {
    if !mutated("no_wqe_barrier") {
        work.to_device();
    }
    work.store_record();
    if !mutated("no_record_barrier") {
        work.to_device();
    }
    work.ring();
}

/// Publishes receives, which have a doorbell record but no register.
#[inline(always)]
pub fn publish_record(work: &impl Publication) {
    if !mutated("no_wqe_barrier") {
        work.to_device();
    }
    work.store_record();
}

/// A send doorbell register, and whether the work queue entry itself may be written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendDoorbell {
    offset: usize,
    /// Offset between the two halves that BlueFlame alternates between; zero without BlueFlame.
    toggle: usize,
}

impl SendDoorbell {
    /// Register 0 of the page, written with 8 bytes: queue pairs may share it.
    pub const fn shared(page: UarIndex) -> Self {
        Self { offset: page.value() as usize * UAR_PAGE_SIZE + uar::SEND, toggle: 0 }
    }

    /// BlueFlame register `register` of the page, for exclusive use by one queue pair. `log_size` is the capability
    /// `log_bf_reg_size`, which covers both halves.
    pub const fn blue_flame(page: UarIndex, register: usize, log_size: u8) -> Self {
        let size = 1usize << if log_size > 9 { 9 } else { log_size };
        Self { offset: page.value() as usize * UAR_PAGE_SIZE + uar::SEND + register * size, toggle: size / 2 }
    }

    /// Whether work queue entries may be written to the register.
    #[inline(always)]
    pub const fn is_blue_flame(&self) -> bool {
        self.toggle != 0
    }

    /// Offset of the first byte after the register, to check against the length of the window.
    pub const fn end(&self) -> usize {
        self.offset + if self.toggle == 0 { 8 } else { 2 * self.toggle }
    }

    /// Writes the first 8 bytes of the last control segment.
    #[inline(always)]
    pub fn ring<H: Hal>(&self, hal: &H, control: u64) {
        hal.mmio().write64(self.offset, control);
        hal.barrier(Barrier::FlushMmio);
    }

    /// Writes a whole work queue entry of one block. The record must have left the processor before the burst, because
    /// stores to write-combining memory do not wait for earlier stores to ordinary memory.
    #[inline(always)]
    pub fn burst<H: Hal>(&self, hal: &H, block: &[u64; 8]) {
        hal.barrier(Barrier::FlushMmio);
        hal.mmio().write_block64(self.offset, block);
        hal.barrier(Barrier::FlushMmio);
    }

    /// Switches to the other half after a burst.
    #[inline(always)]
    pub fn alternate(&mut self) {
        self.offset ^= self.toggle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;

    #[derive(Default)]
    struct Log(RefCell<heapless::Vec<&'static str, 8>>);
    impl Publication for Log {
        fn to_device(&self) {
            self.0.borrow_mut().push("barrier").unwrap();
        }
        fn store_record(&self) {
            self.0.borrow_mut().push("record").unwrap();
        }
        fn ring(&self) {
            self.0.borrow_mut().push("register").unwrap();
        }
    }

    #[test]
    fn a_barrier_precedes_the_record_and_the_register() {
        let log = Log::default();
        publish(&log);
        assert_eq!(log.0.borrow().as_slice(), ["barrier", "record", "barrier", "register"]);
    }

    #[test]
    fn blue_flame_alternates_between_two_halves() {
        let mut doorbell = SendDoorbell::blue_flame(UarIndex::from_low_bits(0x10), 1, 9);
        assert_eq!((doorbell.offset, doorbell.end()), (0x10a00, 0x10c00));
        doorbell.alternate();
        assert_eq!(doorbell.offset, 0x10b00);
        doorbell.alternate();
        assert_eq!(doorbell.offset, 0x10a00);
        assert_eq!(SendDoorbell::shared(UarIndex::from_low_bits(2)).offset, 0x2800);
    }
}

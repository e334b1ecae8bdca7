//! Tracks which BlueFlame registers of the device's UAR page are free.

use core::sync::atomic::{AtomicU8, Ordering};

/// Registers 1 to 3 of the page. Register 0 is the shared doorbell.
const REGISTERS: u8 = 0b1110;

/// The free BlueFlame registers: bit `n` is register `n`.
pub(crate) struct BlueFlameRegisters {
    free: AtomicU8,
}

impl BlueFlameRegisters {
    /// All registers are free; with BlueFlame disabled, there are none.
    pub(super) const fn new(enabled: bool) -> Self {
        Self { free: AtomicU8::new(if enabled { REGISTERS } else { 0 }) }
    }

    /// Takes the lowest free register.
    pub(crate) fn take(&self) -> Option<u8> {
        let without_lowest = |free: u8| free.checked_sub(1).map(|rest| free & rest);
        let before = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, without_lowest).ok()?;
        Some(before.trailing_zeros() as u8)
    }

    pub(crate) fn give_back(&self, register: u8) {
        self.free.fetch_or(1 << register, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_taken_from_the_lowest_and_come_back() {
        let registers = BlueFlameRegisters::new(true);
        assert_eq!([(); 4].map(|()| registers.take()), [Some(1), Some(2), Some(3), None]);
        registers.give_back(2);
        assert_eq!([registers.take(), registers.take()], [Some(2), None]);
        assert_eq!(BlueFlameRegisters::new(false).take(), None);
    }
}

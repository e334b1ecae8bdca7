//! What a step of a program is made of while it runs: registers, and how far it is.

use super::instruction::FRAME_POINTER;
use super::memory::Memory;

/// How a step reached its `exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exit {
    /// Register r0.
    pub(super) value: u64,
    /// Fuel that is left.
    pub(super) fuel: u32,
}

/// The registers, of which programs have eleven.
pub(super) struct Registers(pub(super) [u64; 16]);

/// How far the program is.
pub(super) struct Position {
    /// The next slot.
    pub(super) next: u64,
    /// The slot at which the fuel will have been used up if no jump is taken before. A jump moves it as far as it moves
    /// `next`.
    pub(super) dry: u64,
}

/// Where a step begins. All registers are zero except r1, the context, and r10, the end of the stack.
#[inline]
pub(super) const fn beginning(fuel: u32) -> (Registers, Position) {
    let mut registers = Registers([0; 16]);
    registers.0[1] = Memory::CONTEXT_ADDRESS;
    registers.0[FRAME_POINTER as usize] = Memory::STACK_END;
    (registers, Position { next: 0, dry: fuel as u64 })
}

impl Position {
    /// The slot that is being executed.
    #[inline(always)]
    pub(super) const fn current(&self) -> usize {
        self.next.wrapping_sub(1) as usize
    }

    /// Fuel that is left after the current instruction.
    #[inline(always)]
    pub(super) const fn fuel(&self) -> u32 {
        self.dry.wrapping_sub(self.next) as u32
    }

    /// Goes on so many slots later, without using fuel for them.
    #[inline(always)]
    pub(super) fn skip(&mut self, slots: i16) {
        self.next = self.next.wrapping_add_signed(slots.into());
        self.dry = self.dry.wrapping_add_signed(slots.into());
    }
}

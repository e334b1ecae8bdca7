//! A second, independent implementation of the specification's atomics.

use crate::walk::plan::Dice;
use bareverbs_core::work_completion::WorkCompletionOpcode;

/// An atomic and its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    /// Swaps if the word has the expected value.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds.
    FetchAdd {
        /// What is added.
        add: u64,
    },
    /// Swaps some bits if others have the expected values.
    MaskedCompareSwap {
        /// The expected value.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits that are swapped.
        swap_mask: u64,
    },
    /// Adds fields.
    MaskedFetchAdd {
        /// What is added.
        add: u64,
        /// Highest bits of the fields.
        boundaries: u64,
    },
}

impl Atomic {
    /// Draws an atomic on a word that holds `before`. Every other comparison succeeds.
    pub fn draw(dice: &mut Dice, before: u64) -> Self {
        let mut word = || u64::from(dice.word()) << 32 | u64::from(dice.word());
        let (a, b, c, other) = (word(), word(), word(), word());
        let compare = if dice.percent(50) { before } else { other };
        match dice.below(4) {
            0 => Self::CompareSwap { compare, swap: a },
            1 => Self::FetchAdd { add: a | 1 },
            2 => Self::MaskedCompareSwap { compare, compare_mask: b, swap: a, swap_mask: c },
            _ => Self::MaskedFetchAdd { add: a | 1, boundaries: b },
        }
    }

    /// The value of a word after the operation.
    pub fn apply(self, before: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } => {
                if before == compare {
                    swap
                } else {
                    before
                }
            }
            Self::FetchAdd { add } => before.wrapping_add(add),
            Self::MaskedCompareSwap { compare, compare_mask, swap, swap_mask } => {
                let same = (before ^ compare) & compare_mask == 0;
                if same { before & !swap_mask | swap & swap_mask } else { before }
            }
            Self::MaskedFetchAdd { add, boundaries } => add_fields(before, add, boundaries),
        }
    }

    /// The opcode of its completion.
    pub const fn opcode(self) -> WorkCompletionOpcode {
        match self {
            Self::CompareSwap { .. } => WorkCompletionOpcode::CompareSwap,
            Self::FetchAdd { .. } => WorkCompletionOpcode::FetchAdd,
            Self::MaskedCompareSwap { .. } => WorkCompletionOpcode::MaskedCompareSwap,
            Self::MaskedFetchAdd { .. } => WorkCompletionOpcode::MaskedFetchAdd,
        }
    }
}

/// Adds bit by bit; nothing carries over a boundary.
fn add_fields(a: u64, b: u64, boundaries: u64) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..64 {
        let total = (a >> bit & 1) + (b >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if boundaries >> bit & 1 == 1 { 0 } else { total >> 1 };
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_added_each_by_itself() {
        assert_eq!(add_fields(0xff, 1, 0), 0x100);
        assert_eq!(add_fields(0x00ff_00ff, 0x0001_0001, 0x0080_0080), 0);
    }
}

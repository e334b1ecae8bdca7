//! The atomics: what each does to eight bytes, and how its request is encoded. IBTA v1.4 §9.4.5; the masked
//! forms follow the vendor's documentation.
//!
//! To add an atomic, add a variant here, its result in [`AtomicOperation::apply`], and both conversions
//! between it and a packet. The rest of the transport treats all atomics alike.

use crate::wire::{AtomicEth, BthOpcode, Extension, MaskedAtomicEth, Packet};

/// An atomic operation on eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Store `swap` if the old value equals `compare`.
    CompareSwap {
        /// Value to compare with.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Add, modulo 2^64.
    FetchAdd {
        /// Value to add.
        add: u64,
    },
    /// Compare and swap under masks.
    MaskedCompareSwap(MaskedCompareSwap),
    /// Add field by field, each modulo its own size.
    MaskedFetchAdd {
        /// Value to add.
        add: u64,
        /// The highest bit of each field.
        boundaries: u64,
    },
}

/// A masked compare and swap: if the old value equals `compare` in the bits of `compare_mask`, the bits of
/// `swap_mask` are set to those of `swap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedCompareSwap {
    /// Value to compare with.
    pub compare: u64,
    /// Bits that are compared.
    pub compare_mask: u64,
    /// Value to store.
    pub swap: u64,
    /// Bits that are stored.
    pub swap_mask: u64,
}

impl AtomicOperation {
    /// The op-code of its request.
    pub(super) const fn opcode(&self) -> BthOpcode {
        match self {
            Self::CompareSwap { .. } => BthOpcode::CompareSwap,
            Self::FetchAdd { .. } => BthOpcode::FetchAdd,
            Self::MaskedCompareSwap(_) => BthOpcode::MaskedCompareSwap,
            Self::MaskedFetchAdd { .. } => BthOpcode::MaskedFetchAdd,
        }
    }

    /// The extension headers of its request.
    pub(super) fn extension(self, address: u64, rkey: u32) -> Extension {
        let header = |swap_or_add, compare| AtomicEth { address, rkey, swap_or_add, compare };
        let masked = |atomic, swap_or_add_mask, compare_mask| {
            Extension::MaskedAtomicEth(MaskedAtomicEth { atomic, swap_or_add_mask, compare_mask })
        };
        match self {
            Self::CompareSwap { compare, swap } => Extension::AtomicEth(header(swap, compare)),
            Self::FetchAdd { add } => Extension::AtomicEth(header(add, 0)),
            Self::MaskedCompareSwap(MaskedCompareSwap { compare, compare_mask, swap, swap_mask }) => {
                masked(header(swap, compare), swap_mask, compare_mask)
            }
            Self::MaskedFetchAdd { add, boundaries } => masked(header(add, 0), boundaries, 0),
        }
    }

    /// The operation that a request asks for and its target; `None` if the request is not an atomic.
    pub(super) fn of_packet(packet: &Packet<'_>) -> Option<(AtomicEth, Self)> {
        let (atomic, swap_mask, compare_mask) = match packet.extension {
            Extension::AtomicEth(atomic) => (atomic, 0, 0),
            Extension::MaskedAtomicEth(MaskedAtomicEth { atomic, swap_or_add_mask, compare_mask }) => {
                (atomic, swap_or_add_mask, compare_mask)
            }
            _ => return None,
        };
        let AtomicEth { compare, swap_or_add, .. } = atomic;
        let operation = match packet.bth.opcode {
            BthOpcode::CompareSwap => Self::CompareSwap { compare, swap: swap_or_add },
            BthOpcode::FetchAdd => Self::FetchAdd { add: swap_or_add },
            BthOpcode::MaskedCompareSwap => Self::MaskedCompareSwap(MaskedCompareSwap {
                compare,
                compare_mask,
                swap: swap_or_add,
                swap_mask,
            }),
            BthOpcode::MaskedFetchAdd => Self::MaskedFetchAdd { add: swap_or_add, boundaries: swap_mask },
            _ => return None,
        };
        Some((atomic, operation))
    }

    /// The new value.
    pub fn apply(self, old: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if compare == old => swap,
            Self::CompareSwap { .. } => old,
            Self::FetchAdd { add } => old.wrapping_add(add),
            Self::MaskedCompareSwap(MaskedCompareSwap { compare, compare_mask, swap, swap_mask }) => {
                let equal = (old ^ compare) & compare_mask == 0;
                if equal { old & !swap_mask | swap & swap_mask } else { old }
            }
            Self::MaskedFetchAdd { add, boundaries } => {
                // With the highest bit of each field cleared, no carry crosses into the next field.
                let below = (old & !boundaries).wrapping_add(add & !boundaries);
                below ^ (old ^ add) & boundaries
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::model::{header, packet};
    use proptest::prelude::*;

    /// The bit-by-bit definition that the vendor gives.
    fn add_bits(old: u64, add: u64, boundaries: u64) -> u64 {
        let (mut sum, mut carry) = (0, 0);
        for bit in 0..64 {
            let total = (old >> bit & 1) + (add >> bit & 1) + carry;
            sum |= (total & 1) << bit;
            carry = if boundaries >> bit & 1 == 1 { 0 } else { total >> 1 };
        }
        sum
    }

    proptest! {
        #[test]
        fn fields_are_added_bit_by_bit(old: u64, add: u64, boundaries: u64) {
            let masked = |boundaries| AtomicOperation::MaskedFetchAdd { add, boundaries }.apply(old);
            prop_assert_eq!(masked(boundaries), add_bits(old, add, boundaries));
            prop_assert_eq!(masked(0), old.wrapping_add(add));
            prop_assert_eq!(masked(1 << 63), old.wrapping_add(add));
            prop_assert_eq!(masked(u64::MAX), old ^ add);
        }

        #[test]
        fn full_masks_are_the_whole_word(old: u64, compare: u64, swap: u64, equal: bool) {
            let compare = if equal { old } else { compare };
            let operands = MaskedCompareSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX };
            let whole = AtomicOperation::CompareSwap { compare, swap }.apply(old);
            prop_assert_eq!(AtomicOperation::MaskedCompareSwap(operands).apply(old), whole);
        }
    }

    #[test]
    fn a_packet_carries_every_atomic_and_its_target() {
        let masked = MaskedCompareSwap { compare: 3, compare_mask: 4, swap: 5, swap_mask: 6 };
        for operation in [
            AtomicOperation::CompareSwap { compare: 1, swap: 2 },
            AtomicOperation::FetchAdd { add: 7 },
            AtomicOperation::MaskedCompareSwap(masked),
            AtomicOperation::MaskedFetchAdd { add: 8, boundaries: 9 },
        ] {
            let request = header(operation.opcode(), 100, operation.extension(0x1000, 0x55));
            let (target, arrived) = AtomicOperation::of_packet(&packet(request, &[])).unwrap();
            assert_eq!((target.address, target.rkey, arrived), (0x1000, 0x55, operation));
        }
    }

    #[test]
    fn only_masked_bits_are_compared_and_swapped() {
        let operands =
            MaskedCompareSwap { compare: 0xff12, compare_mask: 0xff, swap: 0xabcd, swap_mask: 0xff00 };
        let apply = |old| AtomicOperation::MaskedCompareSwap(operands).apply(old);
        assert_eq!((apply(0x7712), apply(0x7713)), (0xab12, 0x7713));
    }
}

//! The fast path for rules whose keys and pointers are whole words at a known place, as most are. Whatever it does not decide is
//! left to the rest of the kernel.

use super::{Action, Row};
use crate::kernels::field::{ByteOrder, Field, Outcomes, Predicate};

/// A rule, as far as the fast path applies it.
#[derive(Debug, Clone, Copy)]
pub(super) struct FastPath {
    /// The byte at which the key begins.
    key: u16,
    /// The byte at which the pointer begins.
    pointer: u16,
    obeys: Obeys,
}

/// What the fast path does with a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obeys {
    Nothing,
    /// It compares the key, and goes on to the next rule if this one does not apply.
    Predicate,
    /// It also follows the pointer if the rule applies.
    Pointer,
}

impl FastPath {
    /// Decides nothing.
    pub(super) const NONE: Self = Self { key: 0, pointer: 0, obeys: Obeys::Nothing };

    pub(super) const fn of(row: &Row, order: ByteOrder) -> Self {
        let Row { positions, key_shift, key_bits, predicate, action, pointer } = *row;
        let has_key = !matches!(predicate, Predicate::Always);
        let at_one_place = positions.is_power_of_two() && key_shift == 0 && key_bits == 64;
        if !matches!(order, ByteOrder::LittleEndian) || (has_key && !at_one_place) {
            return Self::NONE;
        }
        let key = if has_key { positions.trailing_zeros() as u16 * 4 } else { 0 };
        let at_known_place = matches!(pointer, Field { relative: false, shift: 0, bits: 64, .. });
        let follows = matches!(action, Action::Follow) && at_known_place;
        let obeys = if follows { Obeys::Pointer } else { Obeys::Predicate };
        Self { key, pointer: pointer.position as u16 * 4, obeys }
    }

    /// Whether the rule applies; `None` if the fast path cannot tell, or cannot do what the rule says.
    #[inline(always)]
    pub(super) fn applies(&self, wanted: Outcomes, element: &[u8], key: u64) -> Option<bool> {
        if self.obeys == Obeys::Nothing {
            return None;
        }
        if wanted != Outcomes::ALL && !wanted.have(word(element, self.key)?, key) {
            return Some(false);
        }
        (self.obeys == Obeys::Pointer).then_some(true)
    }

    /// The pointer, unless it points to nothing.
    #[inline(always)]
    pub(super) fn pointer(&self, element: &[u8]) -> Option<u64> {
        word(element, self.pointer).filter(|pointer| *pointer != 0)
    }
}

#[inline(always)]
fn word(element: &[u8], at: u16) -> Option<u64> {
    let at = usize::from(at);
    Some(u64::from_le_bytes(*element.get(at..at + 8)?.first_chunk()?))
}

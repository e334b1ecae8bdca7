//! Selectors: whether a query wants more than a value, less, exactly it, or the largest available (IBTA v1.4
//! §15.2.5.16).

use core::cmp::Ordering;

/// A two-bit selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selector {
    Greater,
    Less,
    Exactly,
    Largest,
}

/// Code of [`Selector::Exactly`], which all answers have.
pub(super) const EXACTLY: u8 = 2;

impl Selector {
    pub(super) const fn from_raw(raw: u8) -> Self {
        match raw & 3 {
            0 => Self::Greater,
            1 => Self::Less,
            EXACTLY => Self::Exactly,
            _ => Self::Largest,
        }
    }

    /// Whether a quantity is acceptable that compares like this with the requested one.
    pub(super) fn suits(self, order: Ordering) -> bool {
        match self {
            Self::Greater => order.is_gt(),
            Self::Less => order.is_lt(),
            Self::Exactly => order.is_eq(),
            Self::Largest => true,
        }
    }

    /// The largest acceptable quantity if everything up to `most` is possible.
    pub(super) fn choose(self, requested: u8, most: u8) -> Option<u8> {
        match self {
            Self::Greater => (most > requested).then_some(most),
            Self::Less => Some(most.min(requested.checked_sub(1)?)),
            Self::Exactly => (requested <= most).then_some(requested),
            Self::Largest => Some(most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirement: IBTA v1.4 §15.2.5.16: a selector asks for more than the value, less than it, exactly it, or the
    /// largest available.
    #[test]
    fn chosen_values_satisfy_their_selectors() {
        for (raw, requested, most) in
            (0..4).flat_map(|raw| (0..6).flat_map(move |w| (0..6).map(move |m| (raw, w, m))))
        {
            let selector = Selector::from_raw(raw);
            let best = (0..=most).rev().find(|value| selector.suits(value.cmp(&requested)));
            assert_eq!(selector.choose(requested, most), best, "{selector:?} {requested} of {most}");
        }
    }
}

//! Translates offsets in a region to host addresses or to other keys (PRM, memory translation table).
//!
//! A *position* is an offset from the start of the first page or of the first list entry.

use super::list::KeyList;
use super::shared_key::SharedKey;
use super::step::TranslationStep;
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::numbering::MkeyAccessMode;

/// The two low bits of a translation entry are flags.
const ENTRY_FLAGS: u64 = 3;

/// A changed list with at most this many entries is checked for contiguity. A longer one stays a list, so
/// that an update costs no more than the entries that it brings.
const SHORT: usize = 1 << 12;
/// A new list with at most this many entries is checked for contiguity. Longer ones gain little from it.
const LOOKED_THROUGH: usize = 1 << 20;

/// A mapping from positions to host addresses or to other keys.
#[derive(Debug)]
pub(crate) enum Translation {
    /// `host address = offset + base`, for PA keys and contiguous page lists.
    Direct {
        /// Host address of offset zero.
        base: u64,
    },
    /// A page list, stored as the entries of the key. The region starts `lead` bytes into its first page.
    Pages {
        /// log2 of the page size in bytes.
        log_page: u8,
        /// Offset of the region in its first page.
        lead: u64,
    },
    /// A sequence of other keys.
    Keys(KeyList),
    /// Memory of another function, which this device cannot access.
    Alias(SharedKey),
}

/// How translation entries are interpreted.
pub(crate) fn access_mode(context: &MkeyContext) -> MkeyAccessMode {
    MkeyAccessMode::from_raw(context.access_mode_4_2() << 2 | context.access_mode_1_0())
}

/// Bytes of the region; 2^64 − 1 with `length64`.
pub(super) fn length_of(context: &MkeyContext) -> u64 {
    if context.length64() { u64::MAX } else { context.length() }
}

impl Translation {
    /// The translation that a context and its entries describe.
    pub(super) fn build(context: &MkeyContext, entries: &[u64]) -> Self {
        let (log_page, start) = (context.log_page_size().min(63), context.start_addr());
        let length = length_of(context);
        match access_mode(context) {
            MkeyAccessMode::Mtt => Self::from_pages(entries, log_page, start, length),
            MkeyAccessMode::Klms => Self::Keys(KeyList::of_lengths(entries, length)),
            MkeyAccessMode::Ksm => Self::Keys(KeyList::of_size(entries, log_page, start)),
            _ => Self::Direct { base: start },
        }
    }

    /// The translation of a page list (PRM, memory translation table): entry `(va >> log_page) − (start >>
    /// log_page)`. Entries beyond the last page of the region are padding and are ignored.
    fn from_pages(entries: &[u64], log_page: u8, start: u64, length: u64) -> Self {
        let size = 1u64 << log_page;
        let lead = start & (size - 1);
        let count = usize::try_from(lead.saturating_add(length).div_ceil(size)).unwrap_or(usize::MAX);
        let pages = entries.get(..count).unwrap_or(entries);
        let follows = |w: &[u64]| page(w[0], size).checked_add(size) == Some(page(w[1], size));
        let covered = (pages.len() as u64).saturating_mul(size) >= lead.saturating_add(length);
        match pages.first() {
            Some(&first) if covered && pages.len() <= LOOKED_THROUGH && pages.windows(2).all(follows) => {
                Self::Direct { base: page(first, size).wrapping_add(lead) }
            }
            _ => Self::Pages { log_page, lead },
        }
    }

    /// Updates the translation after a change of the context or the entries. Returns how many entries it had
    /// to read.
    pub(super) fn follow(&mut self, context: &MkeyContext, entries: &[u64]) -> usize {
        if access_mode(context) == MkeyAccessMode::Mtt && entries.len() > SHORT {
            let log_page = context.log_page_size().min(63);
            *self = Self::Pages { log_page, lead: context.start_addr() & ((1 << log_page) - 1) };
            return 0;
        }
        *self = Self::build(context, entries);
        entries.len()
    }

    /// The position of an offset in the region.
    #[inline]
    pub(super) fn position(&self, offset: u64) -> u64 {
        match self {
            Self::Direct { base } => base.wrapping_add(offset),
            Self::Pages { lead, .. } => lead.wrapping_add(offset),
            Self::Keys(list) => list.lead().wrapping_add(offset),
            Self::Alias(_) => offset,
        }
    }

    pub(super) const fn is_indirect(&self) -> bool {
        matches!(self, Self::Keys(_))
    }

    /// The number of pieces of host memory in a range, if all of it is mapped.
    pub(super) fn pieces(&self, entries: &[u64], at: u64, length: u64) -> Option<u64> {
        let last = length.checked_sub(1).map(|rest| at.checked_add(rest));
        match (self, last) {
            (_, None) => Some(0),
            (Self::Direct { .. }, _) => Some(1),
            (Self::Pages { log_page, .. }, Some(last)) => {
                let (first, last) = (at >> log_page, last? >> log_page);
                (last < entries.len() as u64).then_some(last - first + 1)
            }
            (Self::Keys(_) | Self::Alias(_), _) => None,
        }
    }

    /// What is at a position of a key with these entries, and how many contiguous bytes follow: at least one.
    #[inline]
    pub(super) fn step(&self, entries: &[u64], at: u64) -> Option<(TranslationStep, u64)> {
        match self {
            Self::Direct { .. } => Some((TranslationStep::Host(at), u64::MAX)),
            Self::Pages { log_page, .. } => {
                let size = 1u64 << log_page;
                let within = at & (size - 1);
                let entry = *entries.get(usize::try_from(at >> log_page).ok()?)?;
                Some((TranslationStep::Host(page(entry, size).wrapping_add(within)), size - within))
            }
            Self::Keys(list) => list.step(at),
            Self::Alias(_) => None,
        }
    }
}

/// The host address of a page of `size` bytes.
const fn page(entry: u64, size: u64) -> u64 {
    entry & !ENTRY_FLAGS & !(size - 1)
}

/// Translation entries as words. An octword of a page list holds two entries; that of a key list is one entry
/// in two halves.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_be_bytes))
}

#[cfg(test)]
#[path = "../tests/translation.rs"]
mod tests;

//! The ledgers as a poller sees them that finds a record for each entry.

use crate::dma::TableView;
use crate::ledger::{RECORD_WORDS, Record, UserIndex, Words};
use core::sync::atomic::Ordering;

/// Where records and words are. Barriers force the compiler to reload what it knows of the ledgers themselves, but not
/// this copy.
#[derive(Clone, Copy)]
pub(crate) struct LedgerView<'a>(TableView<'a, { RECORD_WORDS * 8 }>);

impl<'a> LedgerView<'a> {
    pub(super) fn new(table: TableView<'a, { RECORD_WORDS * 8 }>) -> Self {
        Self(table)
    }

    /// See [`Words::pair`].
    #[inline(always)]
    pub(super) fn pair_at(self, word: usize) -> Option<impl Fn() -> [u64; 2] + use<'a>> {
        let [id, posted] = self.0.two_words(word)?;
        Some(move || [id.load_word::<0>(), posted.load_word::<0>()])
    }

    /// See [`Words::single`].
    #[inline(always)]
    pub(super) fn single_at(self, word: usize) -> Option<impl Fn() -> u64 + use<'a>> {
        let id = self.0.word(word)?;
        Some(move || id.load_word::<0>())
    }

    /// See [`Words::record_of`].
    #[inline(always)]
    pub(super) fn find(self, user_index: UserIndex) -> impl Record + use<'a> {
        const { assert!(RECORD_WORDS * 8 == 1 << 8, "a record has as many bytes as the number is shifted by") };
        self.0.row_at(user_index.shifted())
    }
}

impl Words for LedgerView<'_> {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0.word(index).map_or(0, |word| word.word::<0>().load(order))
    }
    fn store(&self, index: usize, value: u64, order: Ordering) {
        if let Some(word) = self.0.word(index) {
            word.word::<0>().store(value, order);
        }
    }
    #[inline(always)]
    fn pair(&self, word: usize) -> Option<impl Fn() -> [u64; 2]> {
        self.pair_at(word)
    }
    #[inline(always)]
    fn single(&self, word: usize) -> Option<impl Fn() -> u64> {
        self.single_at(word)
    }
    #[inline(always)]
    fn record(&self, number: u32) -> Option<impl Record + '_> {
        Some(self.0.row_at(number.wrapping_mul(RECORD_WORDS as u32 * 8)))
    }
    #[inline(always)]
    fn record_of(&self, user_index: UserIndex, _: usize) -> Option<impl Record + '_> {
        Some(self.find(user_index))
    }
}

//! Allocation, and the views of the memory.

extern crate std;

use super::*;
use crate::test_memory::Boxed;
use std::collections::BTreeSet;
use std::vec::Vec;

fn ledgers(records: usize, words: usize) -> Ledgers<Boxed> {
    Ledgers::new(Dma::new(Boxed::new(bytes(records, words))), records, words).unwrap()
}

#[test]
fn shares_do_not_overlap_and_are_used_again() {
    let first = 4 * RECORD_WORDS as u32;
    let ledgers = ledgers(4, 64);
    let a = ledgers.take(8, 8).unwrap();
    assert_eq!(
        (a.record, a.user_index, a.send.base, a.receive.base),
        (0, UserIndex::new(4), first / 2, first + 16)
    );
    let b = ledgers.take(16, 0).unwrap();
    assert_eq!((b.record, b.user_index, b.send.base), (1, UserIndex::new(5), (first + 32) / 2));
    assert_eq!(ledgers.take(16, 0), Err(Full::Words { needed: 32 }));
    assert_eq!(ledgers.take(4, 16), Err(Full::Words { needed: 24 }), "the sends alone would have fit");
    ledgers.give_back(a);
    let c = ledgers.take(16, 0).unwrap();
    assert_eq!(
        (c.record, c.send.base),
        (2, first / 2),
        "record 0 was used last, and its slots have merged again"
    );
    ledgers.give_back(b);
    ledgers.take(1, 0).unwrap();
    assert_eq!(ledgers.take(0, 0).unwrap().user_index, UserIndex::new(8), "record 0 has a new user_index");
    assert_eq!(ledgers.take(0, 0).unwrap().user_index, UserIndex::new(9));
    assert_eq!(ledgers.take(1, 0), Err(Full::Records));
}

#[test]
fn a_share_without_slots_has_its_record_alone() {
    let ledgers = ledgers(2, 8);
    let target = ledgers.take(0, 0).unwrap();
    assert_eq!(ledgers.take(0, 0).unwrap().record, 1);
    assert_eq!(ledgers.take(0, 0), Err(Full::Records));
    ledgers.give_back(target);
    assert_eq!(ledgers.take(0, 0).unwrap().record, target.record);
}

#[test]
fn a_share_without_slots_gives_none_back() {
    let ledgers = ledgers(4, 8);
    let owner = ledgers.take(1, 0).unwrap();
    ledgers.give_back(ledgers.take(0, 0).unwrap());
    let others: Vec<Range> = (0..3).map_while(|_| ledgers.take(1, 0).ok()).map(|share| share.send).collect();
    assert!(others.len() == 3 && !others.contains(&owner.send), "{others:?}, and {:?} is taken", owner.send);
}

#[test]
fn a_record_has_another_name_each_time() {
    let ledgers = ledgers(1 << 10, 8);
    let names: BTreeSet<u32> = (0..1 << 14)
        .map(|_| {
            let share = ledgers.take(1, 0).unwrap();
            ledgers.give_back(share);
            share.user_index.field()
        })
        .collect();
    assert!(names.len() == 1 << 14 && !names.contains(&NOBODY));
}

/// Where a device can write to the list: creation must neither hang under the lock nor read beyond the
/// records.
#[test]
fn a_corrupted_list_of_free_records_ends() {
    for next in [0, 1, 4, u64::from(NONE) - 1] {
        let ledgers = ledgers(4, 8);
        let (first, second) = (ledgers.take(0, 0).unwrap(), ledgers.take(0, 0).unwrap());
        ledgers.give_back(first);
        ledgers.give_back(second);
        ledgers.store(first.record * RECORD_WORDS + NEXT, next, Ordering::Relaxed);
        assert!((0..8).any(|_| ledgers.take(0, 0).is_ok()), "next is {next:#x}");
    }
}

/// The same for the ranges of slots: none that is outside the row, or no block of it, may be allocated again.
#[test]
fn an_overwritten_record_gives_no_slots_beyond_the_row() {
    let first = 4 * RECORD_WORDS as u64;
    for (base, count) in [(0, 2), (first - 2, 2), (first + 64, 2), (first + 62, 8), (u64::from(u32::MAX), 64)]
    {
        let ledgers = ledgers(4, 64);
        let whole = ledgers.take(32, 0).unwrap();
        ledgers.give_back(whole);
        ledgers.store(whole.record * RECORD_WORDS + EXTENTS[0], base << 32 | count, Ordering::Relaxed);
        let next = ledgers.take(1, 0);
        assert_eq!(next, Err(Full::Words { needed: 2 }), "{count} words from {base}");
    }
}

/// The names of records have 24 bits, of which at least seven change from one allocation to the next.
#[test]
fn the_most_records_leave_seven_bits_of_a_name() {
    assert_eq!(MAX_RECORDS << 7, NOBODY as usize + 1);
}

#[test]
fn the_reserved_name_is_never_given_to_a_record() {
    let ledgers = ledgers(1, 8);
    ledgers.store(TAKEN, u64::from(NOBODY) - 1, Ordering::Relaxed);
    assert_eq!(ledgers.take(0, 0).unwrap().user_index, UserIndex::new(0));
}

#[test]
fn all_records_come_back_in_any_order() {
    // Under Miri, all 64 would take minutes.
    const COUNT: usize = if cfg!(miri) { 8 } else { 64 };
    let ledgers = ledgers(COUNT, 4 * COUNT);
    for round in 1..COUNT - 1 {
        let shares: Vec<Share> = (0..COUNT).map(|_| ledgers.take(1, 1).unwrap()).collect();
        assert_eq!(ledgers.take(0, 0), Err(Full::Records));
        let records: BTreeSet<usize> = shares.iter().map(|share| share.record).collect();
        assert_eq!(records.len(), COUNT);
        let (early, late) = shares.split_at(round);
        late.iter().for_each(|&share| ledgers.give_back(share));
        ledgers.give_back(ledgers.take(1, 0).unwrap());
        early.iter().for_each(|&share| ledgers.give_back(share));
    }
    assert!(ledgers.take(2 * COUNT as u32, 0).is_ok(), "all slots have merged again");
}

/// The memory has room for records, slots and bitmaps, and ends with a whole block.
#[test]
fn the_memory_ends_with_the_bitmaps() {
    // Blocks of 2, 4, 8, 16, 32 and 64 words: a word of bits for each.
    assert_eq!(Blocks::words_of_bits(64), 6);
    assert_eq!(bytes(4, 64), 8 * (4 * RECORD_WORDS + 64 + 6 + 2));
    assert_eq!(bytes(1, 8), 8 * (RECORD_WORDS + 8 + 3 + 5));
}

const ORDER: Ordering = Ordering::Relaxed;
/// The first word of the slots behind four records.
const FIRST: usize = 4 * RECORD_WORDS;

/// Ledgers of four records and 64 slot words, in which each word holds its own number.
fn numbered() -> Ledgers<Boxed> {
    let ledgers = ledgers(4, 64);
    (0..FIRST + 64).for_each(|word| ledgers.store(word, word as u64, ORDER));
    ledgers
}

#[test]
fn a_record_is_a_view_of_its_words() {
    let ledgers = numbered();
    let base = 2 * RECORD_WORDS;
    let record = Words::record(&ledgers, 2).unwrap();
    let ends = (record.load::<0>(ORDER), record.load::<{ RECORD_WORDS - 1 }>(ORDER));
    assert_eq!(ends, (base as u64, base as u64 + 31));
    record.store::<5>(1000, ORDER);
    let shared = ledgers.shared_record(2).unwrap();
    assert_eq!(shared.compare_exchange::<5>(1, 2, ORDER), Err(1000));
    assert_eq!(shared.compare_exchange::<5>(1000, 2000, ORDER), Ok(1000));
    assert_eq!([4, 5, 6].map(|word| ledgers.load(base + word, ORDER)), [68, 2000, 70]);
}

#[test]
fn words_are_exchanged_in_place_and_not_beyond_the_end() {
    let ledgers = numbered();
    assert_eq!(ledgers.swap(70, 1000, ORDER), 70);
    assert_eq!(ledgers.compare_exchange(70, 1, 2, ORDER), Err(1000));
    assert_eq!(ledgers.compare_exchange(70, 1000, 2000, ORDER), Ok(1000));
    assert_eq!([69, 70, 71].map(|word| ledgers.load(word, ORDER)), [69, 2000, 71]);
    let end = bytes(4, 64) / 8;
    ledgers.store(end, 1, ORDER);
    assert_eq!((ledgers.load(end, ORDER), ledgers.swap(end, 1, ORDER)), (0, 0));
    assert_eq!(ledgers.compare_exchange(end, 0, 1, ORDER), Err(0));
}

/// Slots wrap around. Those of sends and of shared receives are pairs, those of receives single words.
#[test]
fn slots_are_views_of_their_words() {
    let ledgers = numbered();
    let first = FIRST as u64;
    let pairs = Slots { base: FIRST / 2 + 4, mask: 3 };
    let run = ledgers.send_slots(pairs);
    assert_eq!(Pairs::load(&run, 5), [first + 10, first + 11]);
    Pairs::store(&run, 7, [1, 2]);
    let each = Words::pairs(&ledgers, pairs.base as u32, pairs.mask);
    assert_eq!(each.load(3), [1, 2]);
    each.store(2, [3, 4]);
    let words = [12, 13, 14, 15].map(|word| ledgers.load(FIRST + word, ORDER));
    assert_eq!(words, [3, 4, 1, 2]);
    let singles = Slots { base: FIRST + 8, mask: 7 };
    let run = ledgers.receive_slots(singles);
    assert_eq!(Singles::load(&run, 9), first + 9);
    Singles::store(&run, 8, 5);
    let each = Words::singles(&ledgers, singles.base as u32, singles.mask);
    assert_eq!(each.load(0), 5);
    each.store(15, 6);
    assert_eq!((ledgers.load(FIRST + 8, ORDER), ledgers.load(FIRST + 15, ORDER)), (5, 6));
    // Slots that are not all inside are nowhere: they read as zeros.
    let beyond = Slots { base: FIRST / 2 + 30, mask: 1023 };
    assert_eq!(Pairs::load(&ledgers.send_slots(beyond), 0), [0; 2]);
}

/// What a record says of its slots is checked at each access, whatever it is.
#[test]
fn a_slot_of_a_record_is_inside_or_it_is_none() {
    let ledgers = numbered();
    let first = FIRST as u64;
    let pair = |word| Words::pair(&ledgers, word).map(|load| load());
    let single = |word| Words::single(&ledgers, word).map(|load| load());
    assert_eq!(pair(FIRST + 12), Some([first + 12, first + 13]));
    assert_eq!(single(FIRST + 9), Some(first + 9));
    let words = ledgers.dma().len() / 8;
    assert!(pair(words - 2).is_some() && pair(words - 1).is_none(), "both words must be inside");
    assert!(single(words - 1).is_some());
    for word in [words, 1 << 20, usize::MAX, usize::MAX / 8] {
        assert_eq!((pair(word), single(word)), (None, None), "{word:#x}");
    }
}

/// Every number leads to a record, modulo their number.
#[test]
fn records_are_found_by_any_number() {
    let ledgers = numbered();
    for (number, word) in [(0, 5), (3, 3 * RECORD_WORDS + 5), (4, 5), (u32::MAX, 3 * RECORD_WORDS + 5)] {
        let loaded = |record: Option<_>| load_5(&record.unwrap());
        assert_eq!(loaded(Words::record(&ledgers, number)), word as u64, "{number:#x}");
    }
    assert_eq!(load_5(&ledgers.record_of(UserIndex::new(0xff_ff01), 4).unwrap()), RECORD_WORDS as u64 + 5);
    assert_eq!(load_5(&ledgers.shared_record(6).unwrap()), 2 * RECORD_WORDS as u64 + 5);
}

/// Word 5 of a record.
fn load_5(record: &impl Record) -> u64 {
    record.load::<5>(ORDER)
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let memory = || Dma::new(Boxed::new(4 * RECORD_WORDS * 8));
    let table = |rows| Table::<_, { RECORD_WORDS * 8 }>::new(memory(), rows).map(|table| table.rows());
    assert_eq!([0, 3, 4, 8, 1 << 31].map(table), [None, None, Some(4), None, None]);
}

#[test]
fn entries_of_a_shared_queue_are_pairs_of_identity_and_link() {
    let ledgers = numbered();
    let first = FIRST as u64;
    let entries = ledgers.entries(FIRST as u32 / 2, 3).unwrap();
    assert_eq!((entries.id(5), entries.link(5)), (first + 2, first + 3));
    entries.set_id(1, 100);
    entries.set_link(1, 200, ORDER);
    assert_eq!(entries.exchange_link(1, 201, 300), None);
    assert_eq!((entries.id(1), entries.link(1)), (100, 200));
    assert_eq!(entries.exchange_link(1, 200, 300), Some(entries.id(1)));
    assert_eq!(entries.exchange_link(9, 300, 200), None, "beyond the last entry");
    assert_eq!([1, 2, 3, 4].map(|word| ledgers.load(FIRST + word, ORDER)), [first + 1, 100, 300, first + 4]);
    assert!(ledgers.entries(FIRST as u32, 1023).is_none());
}

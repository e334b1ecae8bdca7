extern crate std;

use super::*;

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::vec::Vec;

struct Plain([Cell<u64>; 128]);

impl Plain {
    fn new() -> Self {
        Self(core::array::from_fn(|_| Cell::new(0)))
    }
}

impl Words for Plain {
    fn load(&self, index: usize, _: Ordering) -> u64 {
        self.0.get(index).map_or(0, Cell::get)
    }
    fn store(&self, index: usize, value: u64, _: Ordering) {
        if let Some(word) = self.0.get(index) {
            word.set(value);
        }
    }
}

const RECORDS: usize = 2;

fn identity(qpn: u32) -> Identity {
    Identity::new(Cqn::from_low_bits(7), UserIndex::new(0x13), Qpn::from_low_bits(qpn))
}

fn sender(words: &Plain, slots: u32) -> Poster {
    let poster = Poster::open(words, Side::Send, 1, Range { base: 32, slots });
    poster.identify(words, identity(0x40));
    poster
}

#[test]
fn one_completion_retires_all_earlier_sends() {
    let words = Plain::new();
    let mut poster = sender(&words, 4);
    for id in 10..14 {
        assert!(poster.has_room(&words, 1));
        poster.post(&words, id, 1, 3);
    }
    poster.publish(&words);
    assert!(!poster.has_room(&words, 1));
    let retired = retire_send(&words, RECORDS, identity(0x40), 2).unwrap();
    assert_eq!((retired.id, retired.posted.kind()), (12, 3));
    assert!(poster.has_room(&words, 3) && !poster.has_room(&words, 4));
    assert_eq!(poster.outstanding(&words), 1);
}

#[test]
fn counters_wrap_at_16_bits() {
    let words = Plain::new();
    let mut poster = sender(&words, 8);
    for i in 0..70_000u64 {
        assert!(poster.has_room(&words, 2));
        let counter = poster.head() as u16;
        poster.post(&words, i, 2, 0);
        poster.publish(&words);
        assert_eq!(retire_send(&words, RECORDS, identity(0x40), counter).unwrap().id, i);
    }
}

#[test]
fn allegations_are_checked() {
    let words = Plain::new();
    let mut poster = sender(&words, 8);
    poster.post(&words, 1, 3, 0);
    poster.post(&words, 2, 1, 0);
    poster.publish(&words);
    let retire = |counter| retire_send(&words, RECORDS, identity(0x40), counter);
    assert_eq!(retire(1), Err(Refusal::NotOutstanding), "inside a work request");
    assert_eq!(retire(4), Err(Refusal::NotOutstanding), "not posted yet");
    assert_eq!(retire(0xffff), Err(Refusal::NotOutstanding), "before the tail");
    assert_eq!(retire_send(&words, RECORDS, identity(0x41), 0), Err(Refusal::Stranger));
    assert_eq!(retire(3).unwrap().id, 2);
    assert_eq!(retire(3), Err(Refusal::NotOutstanding), "twice");
    poster.close(&words);
    assert_eq!(retire(0), Err(Refusal::Stranger));
}

/// The first slot of an unused queue is zero, which reads as a request of no slots at counter 0.
#[test]
fn a_queue_that_was_never_used_completes_nothing() {
    let words = Plain::new();
    let poster = sender(&words, 8);
    assert_eq!(retire_send(&words, RECORDS, identity(0x40), 0), Err(Refusal::NotOutstanding));
    assert_eq!(poster.outstanding(&words), 0);
}

/// A poster that kept its room from before a reset would overwrite requests that the device has not read.
#[test]
fn after_a_reset_there_is_room_for_the_size_of_the_queue_and_no_more() {
    let words = Plain::new();
    let mut poster = sender(&words, 4);
    for round in 0..10 {
        assert!(poster.has_room(&words, 1));
        let counter = poster.head() as u16;
        poster.post(&words, round, 1, 3);
        poster.publish(&words);
        retire_send(&words, RECORDS, identity(0x40), counter).unwrap();
    }
    poster.restart(&words);
    assert_eq!((poster.head(), poster.outstanding(&words)), (0, 0));
    for id in 0..4 {
        assert!(poster.has_room_for_one(&words), "{id}");
        poster.post(&words, id, 1, 3);
    }
    assert!(!poster.has_room_for_one(&words) && !poster.has_room(&words, 1));
}

#[test]
fn receives_complete_in_order() {
    let words = Plain::new();
    let mut poster = Poster::open(&words, Side::Receive, 1, Range { base: 64, slots: 4 });
    poster.identify(&words, identity(0x40));
    let retire = |counter| retire_receive(&words, RECORDS, identity(0x40), counter).map(|(id, _)| id);
    assert_eq!(retire(0), Err(Refusal::NotOutstanding));
    for id in 5..9 {
        poster.post_receive(&poster.singles(&words), id);
    }
    poster.publish(&words);
    assert!(!poster.has_room(&words, 1));
    assert_eq!(retire(1), Err(Refusal::NotOutstanding), "out of order");
    assert_eq!((retire(0), retire(1)), (Ok(5), Ok(6)));
    assert!(poster.has_room(&words, 2));
}

#[test]
fn in_order_retirement_agrees_with_the_general_one() {
    let words = Plain::new();
    let mut poster = sender(&words, 8);
    let mut poller = SendPoller::resolve(&words, RECORDS, identity(0x40)).unwrap();
    let (record, pairs) = (poller.record(&words).unwrap(), poller.pairs(&words));
    assert_eq!(poller.retire_next(&pairs, 0), None, "nothing was posted");
    for round in 0..70_000u64 {
        let slots = 1 + (round % 3) as u32;
        let counter = poster.head() as u16;
        assert!(poster.has_room(&words, slots));
        poster.post(&words, round, slots, 2);
        poster.publish(&words);
        poller.refresh(&record);
        assert_eq!(poller.retire_next(&pairs, counter.wrapping_add(1)), None);
        let retired = if round % 2 == 0 {
            poller.retire_next(&pairs, counter)
        } else {
            poller.retire(&words, counter).ok()
        };
        assert_eq!(retired.map(|retired| (retired.id, retired.posted.kind())), Some((round, 2)));
        assert_eq!(poller.retire_next(&pairs, counter), None, "twice");
        poller.publish(&record);
    }
    assert!(poller.is_current(&record));
    poster.close(&words);
    assert!(!poller.is_current(&record));
}

/// Requests of one to three slots, and receives: each is retired from the record alone, once, and if it is the oldest.
#[test]
fn direct_retirement_takes_only_the_oldest() {
    let (words, home) = (Plain::new(), Home::of(Cqn::from_low_bits(7)));
    let mut sends = sender(&words, 8);
    let mut receives = Poster::open(&words, Side::Receive, 1, Range { base: 64, slots: 4 });
    receives.identify(&words, identity(0x40));
    let send = |counter| {
        let found = SendPoller::find(&words, RECORDS, home, UserIndex::new(0x13)).unwrap();
        assert_eq!(found.qpn().value(), 0x40);
        let retired = found.retire_oldest(&words, counter)?;
        Some((retired.id, retired.posted.kind()))
    };
    let receive = |counter| {
        ReceivePoller::find(&words, RECORDS, home, UserIndex::new(0x13))
            .unwrap()
            .retire_oldest(&words, counter)
    };
    assert_eq!((send(0), receive(0)), (None, None), "nothing was posted");
    for round in 0..70_000u64 {
        let (at, counter) = (sends.head() as u16, receives.head() as u16);
        let slots = 1 + (round % 3) as u32;
        assert!(sends.has_room(&words, slots) && receives.has_room(&words, 1));
        sends.post(&words, round, slots, 2);
        receives.post_receive(&receives.singles(&words), round);
        assert_eq!((send(at), receive(counter)), (None, None), "posted, but not published");
        sends.publish(&words);
        receives.publish(&words);
        assert_eq!(
            (send(at.wrapping_add(1)), receive(counter.wrapping_sub(1))),
            (None, None),
            "not the oldest"
        );
        assert_eq!((send(at), receive(counter)), (Some((round, 2)), Some(round)));
        assert_eq!((send(at), receive(counter)), (None, None), "twice");
    }
    assert_eq!((sends.outstanding(&words), receives.outstanding(&words)), (0, 0));
}

#[test]
fn a_cached_receive_poller_retires_only_the_oldest() {
    let words = Plain::new();
    let mut poster = Poster::open(&words, Side::Receive, 1, Range { base: 64, slots: 4 });
    poster.identify(&words, identity(0x40));
    let mut poller = ReceivePoller::resolve(&words, RECORDS, identity(0x40)).unwrap();
    assert!(ReceivePoller::resolve(&words, RECORDS, identity(0x41)).is_none());
    let (record, singles) = (poller.record(&words).unwrap(), poller.singles(&words));
    assert_eq!(poller.retire_next(&singles, 0), None, "nothing was posted");
    for round in 0..70_000u64 {
        let counter = poster.head() as u16;
        assert!(poster.has_room(&words, 1));
        poster.post_receive(&poster.singles(&words), round);
        poster.publish(&words);
        poller.refresh(&record);
        assert_eq!(poller.retire_next(&singles, counter.wrapping_add(1)), None, "out of order");
        assert_eq!(poller.retire_next(&singles, counter), Some(round));
        assert_eq!(poller.retire_next(&singles, counter), None, "twice");
        poller.publish(&record);
    }
    assert!(poller.is_current(&record));
    poster.close(&words);
    assert!(!poller.is_current(&record));
}

/// Another poller of the same queue advances; the kept one learns from the ledger how far.
#[test]
fn a_cached_poller_learns_the_progress_of_both_sides() {
    let words = Plain::new();
    let mut poster = sender(&words, 8);
    (0..2).for_each(|id| poster.post(&words, id, 1, 0));
    poster.publish(&words);
    let mut kept = SendPoller::resolve(&words, RECORDS, identity(0x40)).unwrap();
    let (record, pairs) = (kept.record(&words).unwrap(), kept.pairs(&words));
    let mut other = kept;
    assert_eq!(other.retire_next(&pairs, 0).map(|retired| retired.id), Some(0));
    other.publish(&record);
    kept.refresh(&record);
    assert!(kept.retire_next(&pairs, 0).is_none(), "the other poller has retired it");
    assert_eq!(kept.retire_next(&pairs, 1).map(|retired| retired.id), Some(1));
    poster.post(&words, 2, 1, 0);
    poster.publish(&words);
    assert!(kept.retire_next(&pairs, 2).is_none(), "it has not refreshed yet");
    kept.publish(&record);
    kept.refresh(&record);
    assert_eq!(kept.retire_next(&pairs, 2).map(|retired| retired.id), Some(2));
}

#[test]
fn entries_find_the_queue_pair_that_completes_in_their_queue() {
    let (words, cqn) = (Plain::new(), Cqn::from_low_bits(3));
    let poster = sender(&words, 8);
    let of = |cqn, qpn| Identity::new(cqn, UserIndex::new(9), Qpn::from_low_bits(qpn));
    let find = |home, number| {
        SendPoller::find(&words, RECORDS, home, UserIndex::new(number)).map(|found| found.qpn().value())
    };
    for (queue, user_index, found) in
        [(3, 9, Some(0x1234)), (4, 9, None), (3, 9 + RECORDS as u32, None), (3, 8, None)]
    {
        poster.identify(&words, of(cqn, 0x1234));
        assert_eq!(find(Home::of(Cqn::from_low_bits(queue)), user_index), found);
    }
    // Not even one whose completion queue has the number in `NOBODY`.
    for cqn in [3, 0, 0xfffe, 0xffff].map(Cqn::from_low_bits) {
        poster.identify(&words, of(cqn, 0x1234));
        assert_eq!(find(Home::NOBODY, 9), None, "{cqn:?}");
    }
}

/// The name of a closed record has all bits set, also those of the last completion queue and of `NOBODY`'s
/// `user_index`.
#[test]
fn a_closed_record_is_not_found() {
    let words = Plain::new();
    (0..RECORDS).for_each(|record| close(&words, record));
    for (cqn, user_index) in [(0xff_ffff, 0xff_ffff), (0xff_ffff, 0), (3, 0xff_ffff)] {
        let home = Home::of(Cqn::from_low_bits(cqn));
        assert!(
            SendPoller::find(&words, RECORDS, home, UserIndex::new(user_index)).is_none(),
            "{cqn:#x} {user_index:#x}"
        );
    }
}

/// The words that a call stores, with their values, in memory that records accesses.
fn stored(calls: impl FnOnce(&Plain)) -> Vec<(usize, u64)> {
    const UNTOUCHED: u64 = 0x7777;
    let words = Plain::new();
    words.0.iter().for_each(|word| word.set(UNTOUCHED));
    calls(&words);
    words
        .0
        .iter()
        .enumerate()
        .map(|(at, word)| (at, word.get()))
        .filter(|(_, word)| *word != UNTOUCHED)
        .collect()
}

/// Poster and poller agree on the words of a record by construction, so only the layout itself shows whether
/// they are right: words that pollers write have cache lines of their own, and no record overlaps the next
/// one.
#[test]
fn the_words_of_a_record_are_where_its_layout_has_them() {
    let range = Range { base: 96, slots: 8 };
    for (side, head, [tail, name, qpn, base, mask]) in
        [(Side::Send, 8, [16, 17, 18, 19, 20]), (Side::Receive, 9, [24, 25, 26, 27, 28])]
    {
        let opened = stored(|words| {
            Poster::open(words, side, 1, range);
        });
        let at = |word: usize| RECORD_WORDS + word;
        let words = 96 * side.words() as u64;
        let mut written = [(at(base), words), (at(mask), 7), (at(head), 0), (at(tail), 0)];
        written.sort_unstable();
        assert_eq!(opened, written);
        let named = stored(|words| Poster::open(words, side, 1, range).identify(words, identity(0x40)));
        let identity = [(at(name), 7 << 32 | 0x13 << 8), (at(qpn), 0x40)];
        assert!(identity.iter().all(|word| named.contains(word)), "{named:?}");
        let closed = stored(|words| Poster::open(words, side, 1, range).close(words));
        assert!(closed.contains(&(at(name), u64::MAX)), "{closed:?}");
    }
}

/// What a record says may be anything where a device can write to it.
#[test]
fn the_slot_of_a_record_is_found_by_the_low_half_of_its_tail() {
    let words = Plain::new();
    Poster::open(&words, Side::Send, 1, Range { base: 32, slots: 8 });
    Poster::open(&words, Side::Receive, 1, Range { base: 96, slots: 8 });
    let slots = |tail| {
        let record = words.record(1).unwrap();
        (Sends::slot(&record, tail), Receives::slot(&record, tail))
    };
    assert_eq!(slots(13), (64 + 2 * 5, 96 + 5));
    assert_eq!(slots(0xffff_0007_0000_000d), slots(13), "the upper half of a tail says what was posted");
    (0..32).for_each(|word| words.store(RECORD_WORDS + word, u64::MAX, Ordering::Relaxed));
    assert_eq!(slots(u64::MAX), (usize::MAX.wrapping_sub(2), usize::MAX.wrapping_sub(1)), "modulo 2^64");
}

#[test]
fn slots_lie_behind_their_base() {
    let send = stored(|words| sender(words, 4).post_at(words, 5));
    assert_eq!(send.iter().map(|(at, _)| *at).filter(|at| *at >= 64).collect::<Vec<_>>(), [66, 67]);
    let receive = stored(|words| {
        let mut poster = Poster::open(words, Side::Receive, 1, Range { base: 96, slots: 4 });
        poster.head = 6;
        poster.post_receive(&poster.singles(words), 1);
    });
    assert_eq!(receive.last(), Some(&(98, 1)));
}

impl Poster {
    /// Posts one slot as if `head` slots had been posted before.
    fn post_at(&mut self, words: &Plain, head: u32) {
        self.head = head;
        self.post(words, 1, 1, 0);
    }
}

/// A completion claims 24 bits of each number; its other bits must not leak into another field.
#[test]
fn an_identity_is_the_same_of_a_queue_and_of_its_parts() {
    let (cqn, index) = (Cqn::from_low_bits(0x12_3456), UserIndex::new(0xff65_4321));
    assert_eq!(Home::of(cqn), Home(0x12_3456_0000_0000));
    let whole = Identity::new(cqn, index, Qpn::from_low_bits(0x0a_bcde));
    assert_eq!(whole.name(), 0x12_3456_6543_2100);
    assert_eq!(
        (whole.packed(), whole.packed_without_queue_pair()),
        (0x3456_6543_210a_bcde, 0x3456_6543_2100_0000)
    );
    assert_eq!(whole.user_index.record(0x10000), 0x4321);
}

/// A closed record belongs to nobody, not even to a poller that has not found a queue pair yet.
#[test]
fn a_closed_record_has_no_owner() {
    let words = Plain::new();
    let poster = Poster::open(&words, Side::Send, 0, Range { base: 32, slots: 4 });
    poster.close(&words);
    let nobody = SendPoller::NOBODY;
    assert!(!nobody.is_current(&nobody.record(&words).unwrap()));
}

/// The known tail suffices until the queue seems full; only then does the poster read the poller's cache
/// line.
#[test]
fn the_tail_is_not_looked_at_while_there_is_room() {
    let words = Plain::new();
    let mut poster = sender(&words, 4);
    words.store(RECORD_WORDS + 16, u64::from(u32::MAX - 1), Ordering::Relaxed);
    assert!(poster.has_room(&words, 4), "it read the tail and found -2");
    assert!(!poster.has_room(&words, 5));
}

/// A batch keeps its own head. It asks for room there, and the poster does not learn of its requests before it advances.
#[test]
fn a_batch_is_ahead_of_its_poster() {
    let words = Plain::new();
    let mut poster = sender(&words, 8);
    let pairs = poster.pairs(&words);
    assert!(poster.has_room_at(&words, 0));
    Poster::record(&pairs, 0..1, 20, Posted::some(1, 2));
    assert!(poster.has_room_up_to(&words, 4));
    Poster::record(&pairs, 1..4, 21, Posted::some(3, 4));
    assert!(poster.has_room_up_to(&words, 8) && !poster.has_room_up_to(&words, 9));
    assert!(poster.has_room_at(&words, 7) && !poster.has_room_at(&words, 8));
    assert_eq!(poster.head(), 0);
    poster.advance(4);
    poster.post(&words, 22, 1, 0);
    poster.publish(&words);
    let retire = |counter| {
        let retired = retire_send(&words, RECORDS, identity(0x40), counter).unwrap();
        (retired.id, retired.posted.kind(), retired.posted.slots())
    };
    assert_eq!([retire(0), retire(1), retire(4)], [(20, 2, 1), (21, 4, 3), (22, 0, 1)]);
    assert!(poster.has_room_up_to(&words, 13) && !poster.has_room_up_to(&words, 14), "the tail is 5 now");
}

/// The counters wrap at 2^32.
#[test]
fn room_is_found_where_the_counter_wraps() {
    let words = Plain::new();
    let mut poster = sender(&words, 8);
    let tail = u32::MAX - 1;
    words.store(RECORD_WORDS + Side::Send.tail(), tail.into(), Ordering::Relaxed);
    (poster.head, poster.full) = (tail, tail);
    assert!(poster.has_room_up_to(&words, 6) && !poster.has_room_up_to(&words, 7));
    assert!(poster.has_room_at(&words, 5) && !poster.has_room_at(&words, 6));
}

use super::*;
use bareverbs_prm::ids::{Cqn, Qpn};
use core::cell::Cell;

const RECORDS: usize = 4;
const SLOTS: Range = Range { base: 64, slots: 4 };

struct Plain([Cell<u64>; 256]);

impl Plain {
    fn new() -> Self {
        let words = Self(core::array::from_fn(|_| Cell::new(0)));
        (0..RECORDS).for_each(|record| clear(&words, record));
        words
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

impl SharedWords for Plain {
    fn swap(&self, index: usize, new: u64, _: Ordering) -> u64 {
        self.0.get(index).map_or(0, |word| word.replace(new))
    }
    fn compare_exchange(&self, index: usize, current: u64, new: u64, _: Ordering) -> Result<u64, u64> {
        match self.0.get(index) {
            Some(word) if word.get() == current => Ok(word.replace(new)),
            other => Err(other.map_or(0, Cell::get)),
        }
    }
}

/// The identity of the queue pair with record 1 at a completion queue.
fn identity(cqn: u32) -> Identity {
    Identity::new(Cqn::from_low_bits(cqn), UserIndex::new(0x11), Qpn::from_low_bits(0x40))
}

/// A shared queue in record 2 and a queue pair in record 1 that receives from it.
fn open(words: &Plain) -> SharedPoster {
    let name = SharedName::new(UserIndex::new(0x22));
    let poster = SharedPoster::open(words, 2, SLOTS, name);
    attach(words, 1, identity(7), name);
    poster
}

fn retire(words: &Plain, entry: u32) -> Result<Claimed, Refusal> {
    retire_as(words, identity(7), entry)
}

fn retire_as(words: &Plain, identity: Identity, entry: u32) -> Result<Claimed, Refusal> {
    retire_shared(words, RECORDS, identity, entry as u16).map(|(claimed, _)| claimed)
}

#[test]
fn a_shared_queue_always_keeps_one_free_entry() {
    let words = Plain::new();
    let mut poster = open(&words);
    assert_eq!(poster.capacity(), 3);
    for id in 0..3 {
        assert!(poster.has_room(&words));
        assert_eq!(
            poster.post(&poster.entries(&words).unwrap(), id),
            LinkedEntry { entry: id as u32, next: id as u32 + 1 }
        );
    }
    assert!(!poster.has_room(&words));
    assert_eq!((poster.outstanding(&words), poster.posted()), (3, 3));
    assert_eq!(retire(&words, 1), Ok(Claimed::Receive(1)));
    assert!(poster.has_room(&words));
    assert_eq!(
        poster.post(&poster.entries(&words).unwrap(), 9),
        LinkedEntry { entry: 3, next: 1 },
        "the last posted entry already names it"
    );
    assert!(!poster.has_room(&words));
}

#[test]
fn every_receive_completes_once_in_any_order() {
    let words = Plain::new();
    let mut poster = open(&words);
    // The view of the device and the application: the chain of posted entries, and the outstanding ones.
    let mut chain = [0u32; 4];
    let mut ids = [None; 4];
    let (mut next_id, mut random, mut expected) = (0u64, 12_345u32, 0u32);
    for _ in 0..10_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let entry = random >> 30;
        if random >> 16 & 1 == 0 && poster.has_room(&words) {
            let place = poster.post(&poster.entries(&words).unwrap(), next_id);
            assert_eq!(place.entry, expected, "the device takes this entry next");
            assert_eq!(ids[place.entry as usize].replace(next_id), None, "an entry was posted twice");
            chain[place.entry as usize] = place.next;
            (expected, next_id) = (place.next, next_id + 1);
        } else {
            let wanted = ids[entry as usize].take().map(Claimed::Receive).ok_or(Refusal::NotOutstanding);
            assert_eq!(retire(&words, entry), wanted);
        }
        assert_eq!(poster.outstanding(&words) as usize, ids.iter().flatten().count());
    }
    assert!(next_id > 1000);
}

#[test]
fn allegations_are_checked() {
    let words = Plain::new();
    let mut poster = open(&words);
    assert!(poster.has_room(&words));
    poster.post(&poster.entries(&words).unwrap(), 5);
    assert_eq!(retire(&words, 1), Err(Refusal::NotOutstanding), "not posted");
    assert_eq!(retire(&words, 4), Err(Refusal::NotOutstanding), "beyond the end");
    assert_eq!(retire_as(&words, identity(8), 0), Err(Refusal::Stranger), "another queue");
    assert_eq!(retire(&words, 0), Ok(Claimed::Receive(5)));
    assert_eq!(retire(&words, 0), Err(Refusal::NotOutstanding), "twice");
}

#[test]
fn a_queue_pair_that_is_gone_gives_entries_back() {
    let words = Plain::new();
    let mut poster = open(&words);
    for id in 0..3 {
        assert!(poster.has_room(&words));
        poster.post(&poster.entries(&words).unwrap(), id);
    }
    detach(&words, 1);
    assert_eq!(retire(&words, 2), Ok(Claimed::Late));
    assert!(poster.has_room(&words), "it can be posted again");
    clear(&words, 1);
    assert_eq!(retire(&words, 1), Err(Refusal::Stranger), "the record has another owner");
}

#[test]
fn a_closed_shared_queue_is_not_found() {
    let words = Plain::new();
    let mut poster = open(&words);
    assert!(poster.has_room(&words));
    poster.post(&poster.entries(&words).unwrap(), 5);
    poster.close(&words);
    assert_eq!(retire(&words, 0), Err(Refusal::Stranger));
    let _younger = SharedPoster::open(&words, 2, SLOTS, SharedName::new(UserIndex::new(0x26)));
    assert_eq!(retire(&words, 0), Err(Refusal::Stranger), "a newer queue in the same record");
}

#[test]
fn xrc_completions_name_the_queue_and_any_queue_pair() {
    let words = Plain::new();
    let mut poster = SharedPoster::open(&words, 2, SLOTS, SharedName::new(UserIndex::new(0x22)));
    let from =
        |cqn, qpn| Identity::new(Cqn::from_low_bits(cqn), UserIndex::new(0x22), Qpn::from_low_bits(qpn));
    poster.identify(&words, from(7, 0));
    for id in 0..3 {
        assert!(poster.has_room(&words));
        poster.post(&poster.entries(&words).unwrap(), id);
    }
    assert_eq!(retire_as(&words, from(7, 0x40), 2), Ok(Claimed::Receive(2)));
    assert_eq!(retire_as(&words, from(7, 0x41), 0), Ok(Claimed::Receive(0)));
    assert_eq!(retire_as(&words, from(8, 0x41), 1), Err(Refusal::Stranger));
}

#[test]
fn a_chain_comes_back_newest_first_and_before_what_came_back_earlier() {
    let words = Plain::new();
    let mut poster = open(&words);
    for id in 0..3 {
        assert!(poster.has_room(&words));
        poster.post(&poster.entries(&words).unwrap(), id);
    }
    let poller = SharedPoller::resolve(&words, RECORDS, identity(7)).unwrap();
    let (queue, entries) = poller.queue(&words).unwrap();
    let mut chain = Chain::new(&queue);
    assert_eq!(poller.claim(&entries, &mut chain, 3), None, "not posted");
    assert_eq!(poller.claim(&entries, &mut chain, 4), None, "beyond the end");
    assert_eq!(poller.claim(&entries, &mut chain, 2), Some(2));
    assert_eq!(poller.claim(&entries, &mut chain, 2), None, "twice");
    // Another completion queue retires the third one first.
    assert_eq!(retire(&words, 1), Ok(Claimed::Receive(1)));
    assert_eq!(poller.claim(&entries, &mut chain, 0), Some(0));
    assert_eq!(poster.outstanding(&words), 0);
    chain.put_back(&queue, &entries);
    let places = [10, 11, 12].map(|id| {
        assert!(poster.has_room(&words));
        poster.post(&poster.entries(&words).unwrap(), id)
    });
    assert_eq!(places.map(|place| (place.entry, place.next)), [(3, 0), (0, 2), (2, 1)]);
    assert!(!poster.has_room(&words));
}

#[test]
fn an_empty_chain_changes_nothing() {
    let words = Plain::new();
    let mut poster = open(&words);
    let poller = SharedPoller::resolve(&words, RECORDS, identity(7)).unwrap();
    let (queue, entries) = poller.queue(&words).unwrap();
    Chain::new(&queue).put_back(&queue, &entries);
    let room = (0..4)
        .take_while(|&id| {
            poster.has_room(&words) && poster.post(&poster.entries(&words).unwrap(), id).next < 4
        })
        .count();
    assert_eq!(room, 3);
}

#[test]
fn a_cached_poller_notices_a_departed_queue_pair() {
    let words = Plain::new();
    let poster = open(&words);
    let poller = || SharedPoller::resolve(&words, RECORDS, identity(7));
    let kept = poller().unwrap();
    attach(
        &words,
        3,
        Identity::new(Cqn::from_low_bits(7), UserIndex::new(0x13), Qpn::from_low_bits(0x50)),
        SharedName::new(UserIndex::new(0x22)),
    );
    let other = Identity::new(Cqn::from_low_bits(7), UserIndex::new(0x13), Qpn::from_low_bits(0x50));
    let other = SharedPoller::resolve(&words, RECORDS, other).unwrap();
    let is_current = |poller: &SharedPoller| {
        poller.is_current(&poller.record(&words).unwrap(), &poller.queue(&words).unwrap().0)
    };
    assert!(is_current(&kept) && is_current(&other) && other.shares_with(&kept));
    detach(&words, 1);
    assert!(!is_current(&kept) && is_current(&other) && poller().is_none());
    poster.close(&words);
    assert!(!is_current(&other));
}

#[test]
fn clearing_a_record_touches_no_other() {
    let words = Plain::new();
    words.0.iter().for_each(|word| word.set(7));
    clear(&words, 2);
    let touched = words.0.iter().enumerate().filter(|(_, word)| word.get() != 7);
    assert!(touched.map(|(at, word)| (at, word.get())).eq([(69, 0), (70, u64::MAX), (71, u64::MAX)]));
}

/// A record that names no shared queue leads to none, although its name word equals the one in record 0.
#[test]
fn a_record_without_a_shared_queue_resolves_to_none() {
    let words = Plain::new();
    attach(&words, 1, identity(7), SharedName(0));
    assert!(SharedPoller::resolve(&words, RECORDS, identity(7)).is_none());
    assert_eq!(retire(&words, 0), Err(Refusal::Stranger));
}

/// Poster and pollers agree on any location by construction, so the test compares the locations: an
/// identifier, followed by its link.
#[test]
fn entries_are_pairs_of_words_behind_their_base() {
    let words = Plain::new();
    let mut poster = open(&words);
    let links: [u64; 4] = core::array::from_fn(|entry| words.load(129 + 2 * entry, Ordering::Relaxed));
    assert_eq!(links, [1, 2, 3, LAST]);
    assert!(poster.has_room(&words));
    poster.post(&poster.entries(&words).unwrap(), 55);
    assert_eq!([128, 129].map(|at| words.load(at, Ordering::Relaxed)), [55, POSTED]);
}

#[test]
fn closing_forgets_identity_and_name() {
    let words = Plain::new();
    let poster = open(&words);
    poster.identify(&words, identity(7));
    poster.close(&words);
    assert_eq!([69, 70].map(|at| words.load(at, Ordering::Relaxed)), [0, u64::MAX]);
}

#[test]
fn pollers_share_if_their_queues_are_the_same() {
    let words = Plain::new();
    let _poster = open(&words);
    SharedPoster::open(&words, 3, Range { base: 80, slots: 4 }, SharedName::new(UserIndex::new(0x33)));
    attach(
        &words,
        0,
        Identity::new(Cqn::from_low_bits(7), UserIndex::new(0x10), Qpn::from_low_bits(0x41)),
        SharedName::new(UserIndex::new(0x33)),
    );
    let one = SharedPoller::resolve(&words, RECORDS, identity(7)).unwrap();
    let other = Identity::new(Cqn::from_low_bits(7), UserIndex::new(0x10), Qpn::from_low_bits(0x41));
    let other = SharedPoller::resolve(&words, RECORDS, other).unwrap();
    assert!(one.shares_with(&one) && !one.shares_with(&other));
}

/// A batch posts with its copy of the front; the poster is in step with it after each entry.
#[test]
fn a_front_that_a_batch_keeps_is_in_step_with_its_poster() {
    #[derive(Clone, Copy)]
    struct Slot<'a>(&'a Plain, u32);
    impl EntrySlot for Slot<'_> {
        fn link(&self) -> u64 {
            self.0.load(link_of(SLOTS.base, self.1), Ordering::Relaxed)
        }
        fn store(&self, id: u64, link: u64, order: Ordering) {
            self.0.store(link_of(SLOTS.base, self.1) - 1, id, order);
            self.0.store(link_of(SLOTS.base, self.1), link, order);
        }
    }
    let words = Plain::new();
    let mut poster = open(&words);
    let find = |entry| Slot(&words, entry);
    let mut front = poster.front(find);
    let mut post =
        |front: &mut Front<_>, id| poster.post_at(front, find, id).map(|(slot, next)| (slot.1, next));
    assert_eq!([20, 21].map(|id| post(&mut front, id)), [Some((0, 1)), Some((1, 2))]);
    assert_eq!(poster.post(&poster.entries(&words).unwrap(), 22), LinkedEntry { entry: 2, next: 3 });
    front = poster.front(find);
    assert!(poster.post_at(&mut front, find, 23).is_none(), "one entry always stays");
    assert_eq!([2, 0, 1].map(|entry| retire(&words, entry)), [22, 20, 21].map(|id| Ok(Claimed::Receive(id))));
    assert!(poster.post_at(&mut front, find, 23).is_none(), "the poster has not looked for returned ones");
    assert!(poster.has_room(&words));
    front = poster.front(find);
    assert!(poster.post_at(&mut front, find, 23).is_some_and(|(slot, next)| (slot.1, next) == (3, 1)));
    assert_eq!((poster.outstanding(&words), poster.posted()), (1, 4));
    assert!(poster.post_at(&mut Front::exhausted(find(0)), find, 24).is_none());
}

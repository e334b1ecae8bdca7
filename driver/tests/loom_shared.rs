//! Models of a shared receive queue: one poster and the pollers of two completion queues, checked in all interleavings and
//! all reorderings that the memory model allows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p bareverbs-core --test loom_shared --release
//! ```
//!
//! Each of these mutations of the driver must make a model fail:
//!
//! ```text
//! BAREVERBS_MUTATION=relaxed_shared_post RUSTFLAGS="--cfg loom --cfg bareverbs_mutations" cargo test -p bareverbs-core --test loom_shared --release
//! BAREVERBS_MUTATION=relaxed_shared_return RUSTFLAGS="--cfg loom --cfg bareverbs_mutations" cargo test -p bareverbs-core --test loom_shared --release
//! ```
#![cfg(loom)]

use bareverbs_core::testing::ledger::shared::{
    Chain, Claimed, SharedName, SharedPoller, SharedPoster, SharedWords, attach, clear, retire_shared,
};
use bareverbs_core::testing::ledger::{Identity, RECORD_WORDS, Range, Refusal, UserIndex, Words};
use bareverbs_prm::ids::{Cqn, Qpn};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Records: of the shared queue, and of two queue pairs with a completion queue each.
const RECORDS: usize = 4;
/// The words that the ledger uses of a record, and those of four slots.
const USED: [usize; 6] = [3, 5, 6, 7, 16, 1];
const FIRST_SLOT: usize = RECORDS * RECORD_WORDS;

/// Words of a ledger. Only those that are used exist, since loom follows each of them.
struct Shared(Vec<Option<AtomicU64>>);

impl Shared {
    fn new(slots: usize) -> Arc<Self> {
        let is_used = |word: usize| word >= FIRST_SLOT || USED.contains(&(word % RECORD_WORDS));
        let words = (0..FIRST_SLOT + 2 * slots).map(|word| is_used(word).then(|| AtomicU64::new(0)));
        let words = Arc::new(Self(words.collect()));
        (0..RECORDS).for_each(|record| clear(&*words, record));
        words
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        self.0.get(index)?.as_ref()
    }
}

impl Words for Shared {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.word(index).map_or(0, |word| word.load(order))
    }
    fn store(&self, index: usize, value: u64, order: Ordering) {
        if let Some(word) = self.word(index) {
            word.store(value, order);
        }
    }
}

impl SharedWords for Shared {
    fn swap(&self, index: usize, new: u64, order: Ordering) -> u64 {
        self.word(index).map_or(0, |word| word.swap(new, order))
    }
    fn compare_exchange(&self, index: usize, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        let word = self.word(index).ok_or(0u64)?;
        word.compare_exchange(current, new, order, Ordering::Relaxed)
    }
}

/// The queue pair with record `number`, which completes into the completion queue of that number.
fn identity(number: u32) -> Identity {
    Identity::new(Cqn::from_low_bits(number), UserIndex::new(number), Qpn::from_low_bits(0x40 + number))
}

fn open(slots: u32) -> (Arc<Shared>, SharedPoster) {
    let words = Shared::new(slots as usize);
    let name = SharedName::new(UserIndex::new(0));
    let poster = SharedPoster::open(&*words, 0, Range { base: FIRST_SLOT as u32 / 2, slots }, name);
    for number in [1, 2] {
        attach(&*words, number as usize, identity(number), name);
    }
    (words, poster)
}

/// Polls the completion queue `number` until the receive at `entry` completes there.
fn wait_for(words: &Shared, number: u32, entry: u16) -> u64 {
    loop {
        match retire_shared(words, RECORDS, identity(number), entry) {
            Ok((Claimed::Receive(id), _)) => return id,
            Err(Refusal::NotOutstanding) => thread::yield_now(),
            other => panic!("the queue pair was attached before the thread began: {other:?}"),
        }
    }
}

/// Posts under `id` as soon as there is room, and says where.
fn post(poster: &mut SharedPoster, words: &Shared, id: u64) -> u32 {
    while !poster.has_room(words) {
        thread::yield_now();
    }
    poster.post(&poster.entries(words).unwrap(), id).entry
}

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_receive_is_posted_whole_and_its_slot_is_used_again_only_after_it_was_read() {
    bounded(|| {
        let (words, mut poster) = open(2);
        let poller = {
            let words = words.clone();
            // A queue of two entries holds one receive: the device takes 0, 1, 0.
            thread::spawn(move || [0, 1, 0].map(|entry| wait_for(&words, 1, entry)))
        };
        let entries = [10, 11, 12].map(|id| post(&mut poster, &words, id));
        assert_eq!(entries, [0, 1, 0]);
        assert_eq!(poller.join().unwrap(), [10, 11, 12], "a slot is older or younger than its link");
    });
}

#[test]
fn pollers_of_two_completion_queues_give_back_every_entry_once() {
    bounded(|| {
        let (words, mut poster) = open(3);
        let entries = [20, 21].map(|id| post(&mut poster, &words, id));
        assert_eq!(entries, [0, 1]);
        assert!(!poster.has_room(&*words));
        // The device hands the second receive to another queue pair than the first.
        let pollers = [(1, 0), (2, 1)].map(|(number, entry)| {
            let words = words.clone();
            thread::spawn(move || wait_for(&words, number, entry))
        });
        // The poster takes what came back while the other one may still be coming.
        let mut used = vec![post(&mut poster, &words, 22), post(&mut poster, &words, 23)];
        let seen = pollers.map(|poller| poller.join().unwrap());
        assert_eq!(seen, [20, 21]);
        // Entry 2 was named by the last receive already; then whichever came back first.
        assert_eq!(used.remove(0), 2);
        assert!(used[0] < 2 && !poster.has_room(&*words));
        assert_eq!(poster.outstanding(&*words), 2);
    });
}

#[test]
fn an_entry_that_two_completion_queues_claim_is_given_to_one() {
    bounded(|| {
        let (words, mut poster) = open(3);
        assert_eq!(post(&mut poster, &words, 30), 0);
        let claims = [1, 2].map(|number| {
            let words = words.clone();
            let retire =
                move || retire_shared(&*words, RECORDS, identity(number), 0).map(|(claimed, _)| claimed);
            thread::spawn(retire)
        });
        let claims = claims.map(|claim| claim.join().unwrap());
        let won = claims.iter().filter(|&&claim| claim == Ok(Claimed::Receive(30))).count();
        let lost = claims.iter().filter(|&&claim| claim == Err(Refusal::NotOutstanding)).count();
        assert_eq!((won, lost), (1, 1), "a device that says it twice is believed once");
        assert_eq!(poster.outstanding(&*words), 0);
    });
}

#[test]
fn a_chain_is_put_back_as_a_whole() {
    bounded(|| {
        let (words, mut poster) = open(4);
        let entries = [40, 41, 42].map(|id| post(&mut poster, &words, id));
        assert_eq!(entries, [0, 1, 2]);
        // One completion queue gets two of the receives in one call, out of order; another one gets the third.
        let chain = {
            let words = words.clone();
            thread::spawn(move || {
                let poller =
                    SharedPoller::resolve(&*words, RECORDS, identity(1)).expect("it was attached before");
                let (queue, slots) = poller.queue(&*words).expect("it is inside");
                let mut chain = Chain::new(&queue);
                let ids = [2, 0].map(|entry| poller.claim(&slots, &mut chain, entry));
                chain.put_back(&queue, &slots);
                ids
            })
        };
        let single = {
            let words = words.clone();
            thread::spawn(move || wait_for(&words, 2, 1))
        };
        // The poster takes what came back while the rest may still be coming, and uses it again.
        let mut used: Vec<u32> = (43..46).map(|id| post(&mut poster, &words, id)).collect();
        assert_eq!(chain.join().unwrap(), [Some(42), Some(40)]);
        assert_eq!(single.join().unwrap(), 41);
        assert_eq!((used.remove(0), poster.outstanding(&*words)), (3, 3));
        // The last of the four is named by what was posted last, and is none of those that were used.
        assert!(used.iter().all(|&entry| entry < 3) && used[0] != used[1]);
        assert!(!poster.has_room(&*words));
    });
}

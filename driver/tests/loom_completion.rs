//! A model of one completion queue that several queue pairs complete into, each posting in a thread of its own, while one
//! thread polls: all interleavings and all reorderings that the memory model allows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p bareverbs-core --test loom_completion --release
//! ```
//!
//! This mutation of the driver must make the model fail (that of the ledger fails the models of one queue pair, `loom`):
//!
//! ```text
//! BAREVERBS_MUTATION=no_cqe_barrier RUSTFLAGS="--cfg loom --cfg bareverbs_mutations" cargo test -p bareverbs-core --test loom_completion --release
//! ```
#![cfg(loom)]

use bareverbs_core::testing::ledger::{
    Identity, Poster, RECORD_WORDS, Range, SendPoller, Side, UserIndex, Words,
};
use bareverbs_core::testing::{Consumer, OwnedEntry, take_ownership};
use bareverbs_prm::ids::{Cqn, Qpn};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

/// Queue pairs, sends of each, and entries of the completion queue, which holds them all. A send queue has one slot, so that
/// there is only room for a send once the poller gave the slot of the one before back. Nobody waits for anybody: a model of
/// threads that spin has no end. A poster that finds no room goes, and what the poller missed it takes when all have gone.
const QUEUE_PAIRS: usize = 2;
const SENDS: u64 = 2;
const LOG_ENTRIES: u8 = 2;
/// Times that the poller looks while the others post.
const POLLS: usize = 3;
const FIRST_SLOT: usize = QUEUE_PAIRS * RECORD_WORDS;
/// The words that the ledger uses of a record, for sends: head, tail, name, queue pair, slots (two).
const USED: [usize; 6] = [8, 16, 17, 18, 19, 20];

/// Words of a ledger. Only those that are used exist, since loom follows each of them.
struct Ledger(Vec<Option<AtomicU64>>);

impl Ledger {
    fn new() -> Self {
        let is_used = |word: usize| word >= FIRST_SLOT || USED.contains(&(word % RECORD_WORDS));
        let words = 0..FIRST_SLOT + 2 * QUEUE_PAIRS;
        Self(words.map(|word| is_used(word).then(|| AtomicU64::new(0))).collect())
    }
}

impl Words for Ledger {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0.get(index).and_then(Option::as_ref).map_or(0, |word| word.load(order))
    }
    fn store(&self, index: usize, value: u64, order: Ordering) {
        if let Some(word) = self.0.get(index).and_then(Option::as_ref) {
            word.store(value, order);
        }
    }
}

/// A completion entry: queue pair and counter, and the last byte.
struct Entry {
    body: AtomicU64,
    last: AtomicU8,
}

impl OwnedEntry for Entry {
    fn last_byte(&self) -> u8 {
        self.last.load(Ordering::Relaxed)
    }
    fn synchronize(&self) {
        fence(Ordering::Acquire);
    }
}

/// What the threads share: the ledger, the ring, and how far the device is in it.
struct Shared {
    ledger: Ledger,
    ring: [Entry; 1 << LOG_ENTRIES],
    produced: AtomicU32,
}

impl Shared {
    fn new() -> Arc<Self> {
        let entry = || Entry { body: AtomicU64::new(0), last: AtomicU8::new(0xf1) };
        let ring = [entry(), entry(), entry(), entry()];
        Arc::new(Self { ledger: Ledger::new(), ring, produced: AtomicU32::new(0) })
    }

    /// The device completes a send: it takes the next place, and writes the last byte last.
    fn complete(&self, queue_pair: usize, counter: u64) {
        let index = self.produced.fetch_add(1, Ordering::AcqRel);
        let entry = &self.ring[(index & ((1 << LOG_ENTRIES) - 1)) as usize];
        entry.body.store((queue_pair as u64) << 32 | counter, Ordering::Relaxed);
        fence(Ordering::Release);
        entry.last.store((index >> LOG_ENTRIES) as u8 & 1, Ordering::Relaxed);
    }
}

fn identity(queue_pair: usize) -> Identity {
    Identity::new(
        Cqn::from_low_bits(3),
        UserIndex::new(queue_pair as u32),
        Qpn::from_low_bits(0x41 + queue_pair as u32),
    )
}

fn open(shared: &Shared, queue_pair: usize) -> Poster {
    let slot = Range { base: (FIRST_SLOT / 2 + queue_pair) as u32, slots: 1 };
    let poster = Poster::open(&shared.ledger, Side::Send, queue_pair, slot);
    poster.identify(&shared.ledger, identity(queue_pair));
    poster
}

/// Posts sends while there is room; the device completes each at once. Returns how many.
fn post(shared: &Shared, queue_pair: usize, mut poster: Poster) -> u64 {
    for number in 0..SENDS {
        if !poster.has_room(&shared.ledger, 1) {
            return number;
        }
        poster.post(&shared.ledger, id(queue_pair, number), 1, 1);
        poster.publish(&shared.ledger);
        shared.complete(queue_pair, number);
    }
    SENDS
}

fn id(queue_pair: usize, number: u64) -> u64 {
    100 * (queue_pair as u64 + 1) + number
}

/// A completion, if there is one: the queue pair that it names, and the identifier that the ledger has for it.
fn poll(shared: &Shared, consumer: &mut Consumer) -> Option<(usize, Option<u64>)> {
    let entry = &shared.ring[consumer.slot()];
    take_ownership(entry, consumer.phase())?;
    let body = entry.body.load(Ordering::Relaxed);
    let (queue_pair, counter) = ((body >> 32) as usize % QUEUE_PAIRS, body as u16);
    let found =
        SendPoller::resolve(&shared.ledger, QUEUE_PAIRS, identity(queue_pair)).and_then(|mut poller| {
            let retired = poller.retire(&shared.ledger, counter).ok()?;
            poller.publish(&poller.record(&shared.ledger)?);
            Some(retired.id)
        });
    consumer.advance();
    Some((queue_pair, found))
}

#[test]
fn queue_pairs_share_a_completion_queue_and_nothing_is_mixed_up() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let shared = Shared::new();
        let threads: Vec<_> = (0..QUEUE_PAIRS)
            .map(|queue_pair| {
                let (shared, poster) = (shared.clone(), open(&shared, queue_pair));
                thread::spawn(move || post(&shared, queue_pair, poster))
            })
            .collect();
        let mut consumer = Consumer::new(LOG_ENTRIES);
        let mut seen = [const { Vec::new() }; QUEUE_PAIRS];
        let mut take = |consumer: &mut Consumer| {
            poll(&shared, consumer).map(|(queue_pair, found)| seen[queue_pair].push(found))
        };
        for _ in 0..POLLS {
            take(&mut consumer);
        }
        let posted: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        while take(&mut consumer).is_some() {}
        for (queue_pair, seen) in seen.iter().enumerate() {
            let expected: Vec<_> =
                (0..posted[queue_pair]).map(|number| Some(id(queue_pair, number))).collect();
            assert_eq!(*seen, expected, "completions of queue pair {queue_pair}");
        }
    });
}

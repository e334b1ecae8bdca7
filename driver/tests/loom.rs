//! Models of the processor side of the handshakes with the device and between threads, checked in all interleavings and
//! all reorderings that the memory model allows. loom sees processors, not PCIe: the device is a second thread here.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p bareverbs-core --test loom --release
//! ```
//!
//! Each of these mutations of the driver must make a model fail:
//!
//! ```text
//! BAREVERBS_MUTATION=no_wqe_barrier RUSTFLAGS="--cfg loom --cfg bareverbs_mutations" cargo test -p bareverbs-core --test loom --release
//! BAREVERBS_MUTATION=no_record_barrier RUSTFLAGS="--cfg loom --cfg bareverbs_mutations" cargo test -p bareverbs-core --test loom --release
//! BAREVERBS_MUTATION=no_cqe_barrier RUSTFLAGS="--cfg loom --cfg bareverbs_mutations" cargo test -p bareverbs-core --test loom --release
//! BAREVERBS_MUTATION=relaxed_ledger RUSTFLAGS="--cfg loom --cfg bareverbs_mutations" cargo test -p bareverbs-core --test loom --release
//! ```
#![cfg(loom)]

use bareverbs_core::testing::ledger::{
    Home, Identity, Poster, RECORD_WORDS, Range, ReceivePoller, Refusal, SendPoller, Side, UserIndex, Words,
    retire_receive, retire_send,
};
use bareverbs_core::testing::{Consumer, OwnedEntry, Publication, publish, publish_record, take_ownership};
use bareverbs_prm::ids::{Cqn, Qpn};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

/// A ring of two entries, its doorbell record and its register.
struct Ring {
    entries: [AtomicU64; 2],
    record: AtomicU32,
    register: AtomicU32,
}

impl Ring {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            entries: [AtomicU64::new(0), AtomicU64::new(0)],
            record: AtomicU32::new(0),
            register: AtomicU32::new(0),
        })
    }

    /// The device at any time: what the record promises must be in the ring.
    fn check(&self, posted: u32) {
        fence(Ordering::Acquire);
        for i in 0..posted as usize {
            assert_eq!(
                self.entries[i].load(Ordering::Relaxed),
                10 + i as u64,
                "the record ran ahead of entry {i}"
            );
        }
    }
}

struct Post<'a>(&'a Ring, u32);

impl Publication for Post<'_> {
    fn to_device(&self) {
        fence(Ordering::Release);
    }
    fn store_record(&self) {
        self.0.record.store(self.1, Ordering::Relaxed);
    }
    fn ring(&self) {
        self.0.register.store(self.1, Ordering::Relaxed);
    }
}

fn post_two(ring: &Ring, publish: impl Fn(&Post<'_>)) {
    for i in 0..2 {
        ring.entries[i].store(10 + i as u64, Ordering::Relaxed);
        publish(&Post(ring, i as u32 + 1));
    }
}

#[test]
fn the_record_never_runs_ahead_of_the_entries() {
    loom::model(|| {
        let ring = Ring::new();
        let poster = {
            let ring = ring.clone();
            thread::spawn(move || post_two(&ring, |post| publish(post)))
        };
        // The device reads the record whenever it likes, for an earlier doorbell for instance.
        ring.check(ring.record.load(Ordering::Relaxed));
        poster.join().unwrap();
    });
}

#[test]
fn the_register_never_runs_ahead_of_the_record() {
    loom::model(|| {
        let ring = Ring::new();
        let poster = {
            let ring = ring.clone();
            thread::spawn(move || post_two(&ring, |post| publish(post)))
        };
        let rung = ring.register.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let posted = ring.record.load(Ordering::Relaxed);
        assert!(posted >= rung, "doorbell {rung} was rung and the record says {posted}");
        ring.check(posted);
        poster.join().unwrap();
    });
}

#[test]
fn receives_are_published_by_their_record_alone() {
    loom::model(|| {
        let ring = Ring::new();
        let poster = {
            let ring = ring.clone();
            thread::spawn(move || post_two(&ring, |post| publish_record(post)))
        };
        ring.check(ring.record.load(Ordering::Relaxed));
        assert_eq!(ring.register.load(Ordering::Relaxed), 0);
        poster.join().unwrap();
    });
}

/// A completion entry: one word of body and the last byte.
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

#[test]
fn a_completion_is_read_whole_or_not_at_all_over_two_passes() {
    loom::model(|| {
        // One slot, so that the second pass overwrites what the first one left.
        let entry =
            Arc::new((Entry { body: AtomicU64::new(0), last: AtomicU8::new(0xf1) }, AtomicU32::new(0)));
        let device = {
            let entry = entry.clone();
            thread::spawn(move || {
                for pass in 0..2u32 {
                    // The device may not write before the slot is free.
                    while entry.1.load(Ordering::Acquire) < pass {
                        thread::yield_now();
                    }
                    entry.0.body.store(100 + pass as u64, Ordering::Relaxed);
                    fence(Ordering::Release);
                    entry.0.last.store(pass as u8 & 1, Ordering::Relaxed);
                }
            })
        };
        // Faults are reported at the end: a thread that stops in the middle would leave the other one waiting.
        let mut seen = [0; 2];
        let mut consumer = Consumer::new(0);
        for pass in 0..2 {
            while take_ownership(&entry.0, consumer.phase()).is_none() {
                thread::yield_now();
            }
            seen[pass] = entry.0.body.load(Ordering::Relaxed);
            consumer.advance();
            entry.1.store(pass as u32 + 1, Ordering::Release);
        }
        device.join().unwrap();
        assert_eq!(seen, [100, 101], "a body is older than its owner bit");
    });
}

/// Words of a ledger with one record and two slots.
struct Shared(Vec<AtomicU64>);

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self((0..RECORD_WORDS + 4).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl Words for Shared {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0.get(index).map_or(0, |word| word.load(order))
    }
    fn store(&self, index: usize, value: u64, order: Ordering) {
        if let Some(word) = self.0.get(index) {
            word.store(value, order);
        }
    }
}

fn identity() -> Identity {
    Identity::new(Cqn::from_low_bits(3), UserIndex::new(0), Qpn::from_low_bits(0x41))
}

fn open(words: &Shared, side: Side) -> Poster {
    let words_of_a_slot = if side == Side::Send { 2 } else { 1 };
    let poster =
        Poster::open(words, side, 0, Range { base: RECORD_WORDS as u32 / words_of_a_slot, slots: 2 });
    poster.identify(words, identity());
    poster
}

/// Posts identifiers 10, 11, 12 through a ledger of two slots.
fn post_three(words: &Shared, mut poster: Poster, post: impl Fn(&mut Poster, &Shared, u64)) {
    for id in 10..13 {
        while !poster.has_room(words, 1) {
            thread::yield_now();
        }
        post(&mut poster, words, id);
        poster.publish(words);
    }
}

fn wait_for(retire: impl Fn() -> Result<u64, Refusal>) -> u64 {
    loop {
        match retire() {
            Ok(id) => return id,
            Err(Refusal::NotOutstanding) => thread::yield_now(),
            Err(Refusal::Stranger) => panic!("the identity was stored before the thread began"),
        }
    }
}

#[test]
fn poller_and_poster_of_sends_agree_on_every_slot() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let words = Shared::new();
        let poster = open(&words, Side::Send);
        let thread = {
            let words = words.clone();
            thread::spawn(move || post_three(&words, poster, |p, w, id| p.post(w, id, 1, 1)))
        };
        let retire = |counter| retire_send(&*words, 1, identity(), counter).map(|retired| retired.id);
        let seen = [0, 1, 2].map(|counter| wait_for(|| retire(counter)));
        thread.join().unwrap();
        assert_eq!(seen, [10, 11, 12], "a slot is older than the head");
    });
}

#[test]
fn poller_and_poster_of_receives_agree_on_every_slot() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let words = Shared::new();
        let poster = open(&words, Side::Receive);
        let thread = {
            let words = words.clone();
            thread::spawn(move || post_three(&words, poster, |p, w, id| p.post_receive(&p.singles(w), id)))
        };
        let retire = |counter| retire_receive(&*words, 1, identity(), counter).map(|(id, _)| id);
        let seen = [0, 1, 2].map(|counter| wait_for(|| retire(counter)));
        thread.join().unwrap();
        assert_eq!(seen, [10, 11, 12], "a slot is older than the head");
    });
}

#[test]
fn a_cached_send_poller_agrees_with_the_poster() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let words = Shared::new();
        let poster = open(&words, Side::Send);
        let thread = {
            let words = words.clone();
            thread::spawn(move || post_three(&words, poster, |p, w, id| p.post(w, id, 1, 1)))
        };
        let mut poller = SendPoller::resolve(&*words, 1, identity()).expect("the identity was stored before");
        let (record, pairs) = (poller.record(&*words).unwrap(), poller.pairs(&*words));
        let seen = [0, 1, 2].map(|counter| {
            let retired = loop {
                match poller.retire_next(&pairs, counter) {
                    Some(retired) => break retired,
                    None => thread::yield_now(),
                }
                poller.refresh(&record);
            };
            poller.publish(&record);
            retired.id
        });
        thread.join().unwrap();
        assert_eq!(seen, [10, 11, 12], "a slot is older than the head");
    });
}

#[test]
fn a_cached_receive_poller_agrees_with_the_poster() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let words = Shared::new();
        let poster = open(&words, Side::Receive);
        let thread = {
            let words = words.clone();
            thread::spawn(move || post_three(&words, poster, |p, w, id| p.post_receive(&p.singles(w), id)))
        };
        let mut poller =
            ReceivePoller::resolve(&*words, 1, identity()).expect("the identity was stored before");
        let (record, singles) = (poller.record(&*words).unwrap(), poller.singles(&*words));
        let seen = [0, 1, 2].map(|counter| {
            let id = loop {
                match poller.retire_next(&singles, counter) {
                    Some(id) => break id,
                    None => thread::yield_now(),
                }
                poller.refresh(&record);
            };
            poller.publish(&record);
            id
        });
        thread.join().unwrap();
        assert_eq!(seen, [10, 11, 12], "a slot is older than the head");
    });
}

/// Retires what is posted, each time from the record that an entry leads to, of which nothing is kept.
fn retire_directly(side: Side) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let words = Shared::new();
        let poster = open(&words, side);
        let thread = {
            let words = words.clone();
            thread::spawn(move || {
                post_three(&words, poster, |p, w, id| match side {
                    Side::Send => p.post(w, id, 1, 1),
                    Side::Receive => p.post_receive(&p.singles(w), id),
                });
            })
        };
        let home = Home::of(Cqn::from_low_bits(3));
        let retire = |counter| match side {
            Side::Send => {
                let found = SendPoller::find(&*words, 1, home, UserIndex::new(0)).ok_or(Refusal::Stranger)?;
                let retired = found.retire_oldest(&*words, counter).ok_or(Refusal::NotOutstanding)?;
                Ok(retired.id)
            }
            Side::Receive => {
                let found =
                    ReceivePoller::find(&*words, 1, home, UserIndex::new(0)).ok_or(Refusal::Stranger)?;
                found.retire_oldest(&*words, counter).ok_or(Refusal::NotOutstanding)
            }
        };
        let seen = [0, 1, 2].map(|counter| wait_for(|| retire(counter)));
        thread.join().unwrap();
        assert_eq!(seen, [10, 11, 12], "a slot is older than the head");
    });
}

#[test]
fn sends_that_are_retired_directly_agree_with_the_poster() {
    retire_directly(Side::Send);
}

#[test]
fn receives_that_are_retired_directly_agree_with_the_poster() {
    retire_directly(Side::Receive);
}

//! The walk: post, run the world and poll in an order that the seed decides; then drain and check that
//! nothing is left.

use super::party::{MEMORY, Party};
use super::plan::{Conditions, Dice, MAX_INLINE, MAX_PIECES, SLOTS};
use crate::node::NodeOptions;
use crate::pair::{Pair, PairOptions};
use bareverbs_core::queue_pair::ConnectOptions;
use bareverbs_prm::time::Duration;
use std::path::Path;

/// The result of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Requests that completed.
    pub completed: u64,
    /// The event digest of the world.
    pub digest: u64,
    /// Frames that the cable lost, both directions.
    pub lost: u64,
}

/// Simulated time that draining may take.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Walk {
    pair: Pair,
    parties: [Party; 2],
    dice: Dice,
    mtu: usize,
}

/// Walks under `conditions`.
///
/// # Panics
/// If anything happens that the oracle does not expect.
pub fn walk(conditions: &Conditions) -> Outcome {
    let mut walk = Walk::new(conditions);
    walk.post_all(conditions.requests);
    walk.finish()
}

/// Walks under `conditions`, writes every frame to `capture`, and returns how many there were.
///
/// # Panics
/// Like [`walk`], and if the capture cannot be written.
pub fn walk_captured(conditions: &Conditions, capture: &Path) -> u64 {
    let mut walk = Walk::new(conditions);
    let file =
        std::fs::File::create(capture).unwrap_or_else(|error| panic!("{}: {error}", capture.display()));
    walk.pair.world.with(|world| world.start_capture(Box::new(std::io::BufWriter::new(file))));
    walk.post_all(conditions.requests);
    let frames = walk.pair.world.with(|world| world.finish_capture());
    walk.finish();
    frames.unwrap_or_else(|error| panic!("{error}"))
}

impl Walk {
    fn new(conditions: &Conditions) -> Self {
        let options = PairOptions {
            seed: conditions.seed,
            node: NodeOptions { ipv6: conditions.ipv6, unforgiving: false, ..NodeOptions::default() },
            connect: ConnectOptions { path_mtu: conditions.mtu, ..ConnectOptions::default() },
            depth: SLOTS as u32,
            slices: MAX_PIECES as u32,
            inline: MAX_INLINE as u32,
            memory: MEMORY,
            ..PairOptions::default()
        };
        let pair = Pair::new(&options);
        pair.world.with(|world| world.set_random_faults_everywhere(conditions.faults()));
        let dice = Dice::new(conditions.seed, "walk");
        Self { pair, parties: Default::default(), dice, mtu: conditions.mtu_bytes() }
    }

    /// Posts everything and waits until it is complete.
    fn post_all(&mut self, requests: usize) {
        let mut left = requests;
        while left > 0 {
            left -= self.step(left);
        }
        self.drain();
    }

    /// Takes one step and returns how many requests it posted.
    fn step(&mut self, most: usize) -> usize {
        let who = self.dice.below(2);
        match self.dice.below(10) {
            0..=3 => return self.post(who, most),
            4 | 5 => self.post_receives(who),
            6 | 7 => {
                self.poll(who);
            }
            _ => self.run_a_while(),
        }
        0
    }

    /// The sides with their parties; the one whose turn it is comes first.
    fn turn(
        &mut self,
        who: usize,
    ) -> ((&mut crate::pair::Side, &mut Party), (&mut crate::pair::Side, &mut Party)) {
        let Pair { a, b, .. } = &mut self.pair;
        let [first, second] = &mut self.parties;
        if who == 0 { ((a, first), (b, second)) } else { ((b, second), (a, first)) }
    }

    fn post(&mut self, who: usize, most: usize) -> usize {
        let (count, mtu) = ((1 + self.dice.below(8)).min(most), self.mtu);
        let mut dice = self.dice.split();
        let ((me, party), (other, peer)) = self.turn(who);
        party.post(me, other, peer, &mut dice, mtu, count)
    }

    fn post_receives(&mut self, who: usize) {
        let count = 1 + self.dice.below(8);
        let mut dice = self.dice.split();
        let ((me, party), _) = self.turn(who);
        party.post_receives(me, &mut dice, count);
    }

    fn poll(&mut self, who: usize) -> usize {
        let ((me, party), (other, _)) = self.turn(who);
        party.poll(me, other)
    }

    fn run_a_while(&mut self) {
        let pause = Duration::from_nanos(self.dice.below(20_000) as u64);
        let until = self.pair.world.now() + pause;
        self.pair.world.run_until(until);
    }

    /// Completes everything in flight: posts receives for all messages, and a last signalled request.
    fn drain(&mut self) {
        let deadline = self.pair.world.now() + TIMEOUT;
        let mut asked = [false; 2];
        while !(asked == [true; 2] && self.parties.iter_mut().all(is_done)) {
            for (who, asked) in asked.iter_mut().enumerate() {
                self.post_receives(who);
                self.poll(who);
                let ((me, party), (other, _)) = self.turn(who);
                *asked = *asked || party.post_last(me, other);
            }
            let mut stepped = false;
            let waited = self.pair.world.run_while(|| !std::mem::replace(&mut stepped, true), deadline);
            if let Err(stalled) = waited {
                let found = self.poll(0) + self.poll(1);
                assert!(found > 0, "nothing happens any more and requests are left: {stalled}");
            }
        }
    }

    /// Flushes the receives that nobody needed, and checks that queues, ledgers and rings are empty.
    fn finish(mut self) -> Outcome {
        let (digest, lost) = (self.pair.world.digest(), self.pair.frames_lost());
        for who in 0..2 {
            let ((me, _), _) = self.turn(who);
            me.queue_pair.modify_to_error().unwrap_or_else(|error| panic!("{error}"));
        }
        for who in 0..2 {
            self.poll(who);
            let ((me, party), _) = self.turn(who);
            assert_eq!((me.queue_pair.sends_outstanding(), me.queue_pair.receives_outstanding()), (0, 0));
            assert_eq!(party.oracle().receives_outstanding(), 0, "receives were not flushed");
            assert_eq!(me.sends.discarded() + me.receives.discarded(), 0);
        }
        let completed = self.parties.iter_mut().map(|party| party.oracle().completed).sum();
        Outcome { completed, digest, lost }
    }
}

fn is_done(party: &mut Party) -> bool {
    let oracle = party.oracle();
    oracle.sends_outstanding() == 0 && oracle.messages_outstanding() == 0
}

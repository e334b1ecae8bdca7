//! A walk over shared receive queues: reliable connections share one of them, extended ones two others, and
//! queue pairs fail and are recreated in between.
//!
//! The invariants: messages of a connection to a queue arrive in order with their bytes, every receive
//! completes at most once, and in the end each queue has room for exactly the receives that are not
//! outstanding, so none was lost.

mod stage;

use super::plan::Dice;
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionStatus};
use bareverbs_prm::numbering::CqeSyndrome;
use bareverbs_prm::time::Duration;
use stage::{LANES, PIECE, QUEUES, Stage};
use std::collections::{BTreeSet, VecDeque};

/// Messages of a lane that may be outstanding.
const DEPTH: usize = 6;
/// Simulated time that draining may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The result of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedOutcome {
    /// Messages that arrived.
    pub arrived: u64,
    /// Queue pairs that failed and were recreated.
    pub mended: u64,
    /// Limit events.
    pub limits: u64,
    /// The event digest of the world.
    pub digest: u64,
}

/// A message in flight.
struct LaneMessage {
    queue: usize,
    data: Vec<u8>,
}

struct SharedWalk {
    stage: Stage,
    dice: Dice,
    /// Messages in flight, by lane, oldest first.
    under_way: [VecDeque<LaneMessage>; LANES],
    /// Sends of a lane that have not completed.
    sends: [usize; LANES],
    /// Receives of a queue that have not completed.
    posted: [BTreeSet<u64>; QUEUES],
    /// How many of the first queue's receives were returned without a completion that anybody saw.
    unseen: u32,
    arms: u64,
    outcome: SharedOutcome,
}

/// Sends about `messages` messages in an order that `seed` decides, over a cable that loses `loss` percent.
///
/// # Panics
/// If an invariant is violated.
pub fn walk_shared(seed: u64, loss: u32, messages: usize) -> SharedOutcome {
    let outcome = SharedOutcome { arrived: 0, mended: 0, limits: 0, digest: 0 };
    let mut walk = SharedWalk {
        stage: Stage::new(seed, loss),
        dice: Dice::new(seed, "shared walk"),
        under_way: Default::default(),
        sends: [0; LANES],
        posted: Default::default(),
        unseen: 0,
        arms: 0,
        outcome,
    };
    let mut left = messages;
    while left > 0 {
        left -= usize::from(walk.step());
    }
    walk.drain();
    walk.finish()
}

impl SharedWalk {
    /// Takes one step and returns whether it sent a message.
    fn step(&mut self) -> bool {
        match self.dice.below(100) {
            0..=39 => return self.send(),
            40..=59 => self.post(),
            60..=79 => {
                self.poll();
            }
            80..=82 => self.arm(),
            83 => self.mend(),
            _ => {
                let pause = Duration::from_nanos(self.dice.below(20_000) as u64);
                let until = self.stage.world.now() + pause;
                self.stage.world.run_until(until);
            }
        }
        false
    }

    fn send(&mut self) -> bool {
        let lane = self.dice.below(LANES);
        if self.under_way[lane].len() >= DEPTH || self.sends[lane] >= DEPTH {
            return false;
        }
        let queue = if Stage::is_extended(lane) { 1 + self.dice.below(QUEUES - 1) } else { 0 };
        let mut data = vec![0; 1 + self.dice.below(PIECE)];
        self.dice.fill(&mut data);
        self.stage.send(lane, queue, &data);
        self.sends[lane] += 1;
        self.under_way[lane].push_back(LaneMessage { queue, data });
        true
    }

    fn post(&mut self) {
        let (queue, count) = (self.dice.below(QUEUES), 1 + self.dice.below(6));
        for _ in 0..count {
            match self.stage.post(queue) {
                Ok(id) => assert!(self.posted[queue].insert(id)),
                Err(PostError::QueueFull { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn arm(&mut self) {
        let limit = self.dice.below(8) as u16;
        let queue = self.dice.below(QUEUES);
        self.stage.queues[queue].arm(limit).unwrap_or_else(|error| panic!("{error}"));
        self.arms += 1;
    }

    /// Polls all completion queues and returns how many completions there were.
    fn poll(&mut self) -> usize {
        let mut count = 0;
        while let Some(completion) = self.stage.poll_send() {
            assert!(completion.is_success(), "a send failed: {completion:?}");
            self.sends[completion.wr_id as usize] -= 1;
            count += 1;
        }
        for at in 0..self.stage.completions.len() {
            while let Some(completion) = self.stage.poll_receive(at) {
                self.receive(at, &completion);
                count += 1;
            }
        }
        while self.stage.limit_event() {
            self.outcome.limits += 1;
        }
        count
    }

    fn receive(&mut self, at: usize, completion: &WorkCompletion) {
        let lane = self.stage.lane_of(completion.qpn).expect("a queue pair of the walk");
        let queue = Stage::queue_of(at);
        assert!(self.posted[queue].remove(&completion.wr_id), "{completion:?}: not outstanding");
        if completion.status == WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed) {
            return;
        }
        assert!(completion.is_success(), "a receive failed: {completion:?}");
        let oldest = self.under_way[lane].iter().position(|message| message.queue == queue);
        let message =
            self.under_way[lane].remove(oldest.expect("a message that was sent")).expect("it is there");
        let found = self.stage.bytes(queue, completion);
        assert!(found == message.data, "lane {lane}: {} bytes, {} sent", found.len(), message.data.len());
        self.outcome.arrived += 1;
    }

    /// Fails a reliable connection at both ends and recreates it. Its undelivered messages are gone; the
    /// receives that it took from the shared queue are not.
    fn mend(&mut self) {
        let lane = self.dice.below(LANES);
        if Stage::is_extended(lane) {
            return;
        }
        self.poll();
        self.outcome.limits += self.stage.kill(lane);
        // Half of the time the completions are thrown away without a look at them.
        if self.dice.percent(50) {
            while let Some(completion) = self.stage.poll_receive(lane) {
                self.receive(lane, &completion);
            }
        }
        let before = self.stage.queues[0].outstanding();
        self.stage.make_again(lane);
        self.unseen += before - self.stage.queues[0].outstanding();
        (self.sends[lane], self.outcome.mended) = (0, self.outcome.mended + 1);
        self.under_way[lane].clear();
    }

    fn drain(&mut self) {
        let deadline = self.stage.world.now() + TIMEOUT;
        while self.under_way.iter().any(|lane| !lane.is_empty()) || self.sends != [0; LANES] {
            self.post();
            if self.poll() > 0 {
                continue;
            }
            let mut stepped = false;
            let waited = self.stage.world.run_while(|| !std::mem::replace(&mut stepped, true), deadline);
            if let Err(stalled) = waited {
                let found = self.poll();
                let room = (0..QUEUES).any(|queue| self.posted[queue].is_empty());
                assert!(found > 0 || room, "nothing happens any more and messages are left: {stalled}");
            }
        }
    }

    fn finish(mut self) -> SharedOutcome {
        self.poll();
        assert!(self.outcome.limits <= self.arms);
        self.outcome.digest = self.stage.world.digest();
        for queue in 0..QUEUES {
            let outstanding = self.stage.queues[queue].outstanding();
            let unseen = if queue == 0 { self.unseen } else { 0 };
            assert_eq!((outstanding + unseen) as usize, self.posted[queue].len(), "queue {queue}");
            let mut room = 0;
            while self.stage.post(queue).is_ok() {
                room += 1;
            }
            assert_eq!(outstanding + room, self.stage.queues[queue].capacity(), "queue {queue} lost entries");
        }
        self.outcome
    }
}

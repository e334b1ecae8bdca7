//! The walk: the seed decides each step; in the end everything completes and nothing is left.

use super::build::LaneBuilder;
use super::end::{End, EndState, SLOTS};
use super::host::Host;
use super::lane::Lane;
use super::lane_ends::LaneEnds;
use super::outcome::WalkCounts;
use super::request::{PlannedRequest, Verb};
use crate::node::{Node, NodeOptions};
use crate::walk::plan::{Conditions, Dice};
use bareverbs_hal_sim::SimWorld;
use bareverbs_prm::numbering::QpState;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::LinkConfig;
use bareverbs_sim::nic::Nic;
use bareverbs_sim::run::NodeId;

/// Longest simulated time for any wait.
const TIMEOUT: Duration = Duration::from_secs(60);
/// After this time nothing that was sent is in flight any more.
const QUIET: Duration = Duration::from_millis(2);

/// A lane and its two ends.
pub struct Both {
    /// What the seed decided about it.
    pub plan: Lane,
    /// Its sides.
    pub ends: [End; 2],
}

/// A walk in progress. Fields are dropped in order: queue pairs before what they use.
pub struct VerbsWalk {
    /// All lanes.
    pub lanes: Vec<Both>,
    /// Both hosts.
    pub hosts: [Host; 2],
    /// The random choices.
    pub dice: Dice,
    /// The conditions of the walk.
    pub conditions: Conditions,
    /// The counts so far.
    pub outcome: WalkCounts,
    ids: [NodeId; 2],
    /// The world.
    pub world: SimWorld<Nic>,
}

impl VerbsWalk {
    /// Boots both hosts and connects the lanes that the seed decides.
    pub fn new(conditions: &Conditions, world: &SimWorld<Nic>) -> Self {
        let options = NodeOptions { ipv6: conditions.ipv6, ..NodeOptions::default() };
        let ids = [1, 2].map(|number| Node::add(world, number, options));
        world.connect(ids[0], ids[1], LinkConfig::gigabits(100)).expect("two free ports");
        let hosts = [0, 1].map(|i| Host::new(Node::open(world, ids[i], i as u8 + 1, options)));
        let mut dice = Dice::new(conditions.seed, "verbs walk");
        let plans: Vec<_> = (0..3 + dice.below(4)).map(|_| Lane::draw(&mut dice)).collect();
        let lane = |(number, plan): (usize, &Lane)| {
            let builder = LaneBuilder { hosts: &hosts, conditions: *conditions, lane: *plan, number };
            let [a, b] = builder.join([builder.prepare(0), builder.prepare(1)]);
            let copies = if conditions.is_disturbed() { 2 } else { 1 };
            Both { plan: *plan, ends: [builder.end(0, a, copies), builder.end(1, b, copies)] }
        };
        let lanes = plans.iter().enumerate().map(lane).collect();
        world.with(|world| world.set_random_faults_everywhere(conditions.faults()));
        let (world, outcome) = (world.clone(), WalkCounts::default());
        Self { lanes, hosts, dice, conditions: *conditions, outcome, ids, world }
    }

    /// Walks until enough requests were posted and everything has completed.
    pub fn walk(&mut self) -> WalkCounts {
        let mut left = self.conditions.requests;
        while left > 0 {
            left -= self.step(left).min(left);
        }
        self.drain();
        self.outcome.digest = self.world.digest();
        for id in self.ids {
            let contradictions = self.world.with(|world| world.device(id).counters().contradictions());
            assert_eq!(contradictions, 0, "the model of {id:?} contradicts itself");
        }
        self.finish()
    }

    /// Takes one step and returns how many requests it posted.
    fn step(&mut self, most: usize) -> usize {
        let side = self.dice.below(2);
        match self.dice.below(100) {
            0..=41 => return self.post(side, most),
            42..=56 => self.post_receives(side),
            57..=70 => {
                self.poll(side);
            }
            71..=84 => {
                let pause = Duration::from_nanos(self.dice.below(20_000) as u64);
                self.run_for(pause);
            }
            85..=88 => self.take_events(side),
            89..=93 => self.turn_key(side),
            _ => self.make_a_move(side),
        }
        0
    }

    /// A lane as seen by `side`, for posting its requests.
    pub fn lane_ends(&mut self, lane: usize, side: usize) -> LaneEnds<'_> {
        let (now, mtu) = (self.world.now(), self.conditions.mtu_bytes());
        let shared = &self.hosts[1 - side].shared;
        let extended = [shared[1].number(), shared[2].number()];
        let [first, second] = &mut self.lanes[lane].ends;
        let (me, peer) = if side == 0 { (first, second) } else { (second, first) };
        LaneEnds { me, peer, extended, now, mtu }
    }

    fn post(&mut self, side: usize, most: usize) -> usize {
        let (lane, count) = (self.dice.below(self.lanes.len()), 1 + self.dice.below(6));
        let count = count.min(most).min(self.credits(lane, side));
        let mut dice = self.dice.split();
        if !self.lanes[lane].plan.service.sends(side) || count == 0 {
            return 0;
        }
        self.lane_ends(lane, side).post(&mut dice, count)
    }

    /// How many requests a side may post. Over a cable without faults, an unreliable service loses nothing
    /// while the peer has receives. There a side posts no more than the peer's receives can take, so that
    /// every message must arrive.
    fn credits(&self, lane: usize, side: usize) -> usize {
        let Both { plan, ends } = &self.lanes[lane];
        let peer = &ends[1 - side];
        match self.keeps_to_credits(plan, 1 - side) {
            true => peer.receives.outstanding().saturating_sub(peer.inbox.under_way()),
            false => SLOTS,
        }
    }

    fn keeps_to_credits(&self, plan: &Lane, receiver: usize) -> bool {
        !plan.service.is_reliable() && plan.has_receive_queue(receiver) && !self.conditions.is_disturbed()
    }

    fn post_receives(&mut self, side: usize) {
        let count = 1 + self.dice.below(8);
        let at = self.dice.below(self.lanes.len() + self.hosts[side].shared.len());
        self.post_receives_at(side, at, count);
    }

    /// Posts receives of a lane or, for numbers beyond the last lane, of a shared queue.
    fn post_receives_at(&mut self, side: usize, at: usize, count: usize) {
        let mut dice = self.dice.split();
        match at.checked_sub(self.lanes.len()) {
            Some(shared) => self.hosts[side].shared[shared].post(&mut dice, count),
            None if self.lanes[at].plan.has_receive_queue(side) => {
                let end = &mut self.lanes[at].ends[side];
                // Receives of a failed queue pair come back at once, again and again.
                end.post_receives(&mut dice, if end.state == EndState::Dead { 0 } else { count });
            }
            None => {}
        }
    }

    fn turn_key(&mut self, side: usize) {
        let lane = self.dice.below(self.lanes.len());
        let mut dice = self.dice.split();
        self.lane_ends(lane, side).turn_key(&mut dice);
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.world.now() + time;
        self.world.run_until(until);
    }

    /// Lets so much time pass that nothing is in flight, and takes what arrived.
    pub fn settle(&mut self) {
        self.run_for(QUIET);
        for side in 0..2 {
            self.poll(side);
            self.take_events(side);
        }
    }

    /// Continues, with receives for everything, until it is `done`.
    ///
    /// # Panics
    /// If nothing happens any more, or it takes too long.
    pub fn run_on(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = self.world.now() + TIMEOUT;
        loop {
            let mut found = self.look();
            if done(self) {
                return;
            }
            self.post_last();
            let mut stepped = false;
            let waited = self.world.run_while(|| !std::mem::replace(&mut stepped, true), deadline);
            if let Err(stalled) = waited {
                found += self.look();
                assert!(found > 0 || done(self), "nothing happens any more: {stalled}");
            }
        }
    }

    /// Posts receives everywhere, polls everything, and returns how many completions there were.
    fn look(&mut self) -> usize {
        let mut found = 0;
        for side in 0..2 {
            for at in 0..self.lanes.len() + self.hosts[side].shared.len() {
                self.post_receives_at(side, at, SLOTS);
            }
            found += self.poll(side);
            self.take_events(side);
        }
        found
    }

    /// Where only unsignalled requests are left, posts one more that is signalled.
    fn post_last(&mut self) {
        for (lane, side) in self.all_ends() {
            let End { state, sends, .. } = &self.lanes[lane].ends[side];
            let silent = sends.outstanding() > 0 && sends.silent() == sends.outstanding();
            if silent && *state == EndState::Running {
                let mut dice = self.dice.split();
                self.lane_ends(lane, side).post_one(&mut dice, PlannedRequest::bare(Verb::Nop));
            }
        }
    }

    fn all_ends(&self) -> Vec<(usize, usize)> {
        (0..self.lanes.len()).flat_map(|lane| [(lane, 0), (lane, 1)]).collect()
    }

    /// Completes everything in flight.
    fn drain(&mut self) {
        for (lane, side) in self.all_ends() {
            self.wake_up(lane, side);
        }
        self.run_on(|walk| {
            for (lane, side) in walk.all_ends() {
                walk.wake_up(lane, side);
            }
            walk.lanes.iter().flat_map(|lane| &lane.ends).all(is_done)
        });
        self.settle();
        for (lane, side) in self.all_ends() {
            self.lane_ends(lane, side).reclaim();
            let Both { plan, ends } = &self.lanes[lane];
            if self.keeps_to_credits(plan, side) {
                assert_eq!(
                    ends[side].inbox.under_way(),
                    0,
                    "messages were lost that nothing could have lost"
                );
            }
        }
    }

    /// Flushes what nobody needed, and checks that queues, ledgers and rings are empty.
    fn finish(&mut self) -> WalkCounts {
        for (lane, side) in self.all_ends() {
            let end = &mut self.lanes[lane].ends[side];
            (end.sends.dead, end.state) = (true, EndState::Dead);
            end.queue().modify_to_error().unwrap_or_else(|error| panic!("{error}"));
        }
        self.settle();
        for (lane, side) in self.all_ends() {
            self.check_flushed(lane, side);
            let end = &mut self.lanes[lane].ends[side];
            end.inbox.forget();
            self.outcome.completed += end.ended;
            self.outcome.opened += end.opened;
            self.outcome.delivered += end.inbox.delivered;
            self.outcome.lost += end.inbox.lost;
        }
        for host in &mut self.hosts {
            host.shared.iter_mut().for_each(|queue| queue.finish(&mut self.dice));
            assert_eq!(host.node.device.leaked_objects(), 0);
        }
        let [a, b] = self.ids;
        let lost = |from, to| self.world.with(|world| world.link_counters(from, to)).map_or(0, |c| c.lost);
        self.outcome.frames_lost = lost(a, b) + lost(b, a);
        self.outcome
    }

    /// Checks that a failed queue pair has returned everything.
    #[track_caller]
    pub fn check_flushed(&mut self, lane: usize, side: usize) {
        let own = self.lanes[lane].plan.has_receive_queue(side);
        let shares = self.shares(lane, side);
        let end = &mut self.lanes[lane].ends[side];
        // No completion reports unsignalled requests that succeeded before the failure, unless something
        // after them was flushed.
        let silent = if end.sends.failed { 0 } else { end.sends.silent() };
        let left = (end.sends.outstanding(), end.receives.outstanding());
        assert_eq!(left, (silent, 0), "lane {lane}, side {side}: sends and receives were not flushed");
        let (sends, receives) = end.queue().outstanding();
        assert_eq!((sends > 0, receives), (silent > 0, 0), "the driver's outstanding requests");
        assert_eq!(end.queue().state(), QpState::Error);
        assert!(own || !shares || end.took_last, "no last-receive event for the shared receive queue");
    }
}

fn is_done(end: &End) -> bool {
    end.sends.outstanding() == 0 && end.inbox.outstanding() == 0 && end.state == EndState::Running
}

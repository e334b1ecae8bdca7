//! State changes of queue pairs in the middle of traffic: drain, modify, fail, reset, and back again.

use super::build::LaneBuilder;
use super::end::EndState;
use super::lane::LaneService;
use super::queue::{PreparedQueue, Queue};
use super::request::{PlannedRequest, Verb};
use super::run::{Both, VerbsWalk};
use crate::node::all_access;
use bareverbs_core::memory_region::AccessFlags;
use bareverbs_core::queue_pair::{ModifyError, QueuePairAttributes};
use bareverbs_prm::numbering::QpState;

/// Bytes of an erroneous request.
const MISTAKE: usize = 64;

impl VerbsWalk {
    /// Moves a queue pair of a side to another state.
    pub fn make_a_move(&mut self, side: usize) {
        let lane = self.dice.below(self.lanes.len());
        let sends = self.lanes[lane].plan.service.sends(side);
        match (self.lanes[lane].ends[side].state, self.dice.below(20)) {
            (EndState::Running, 0..=5) if sends => self.begin_to_drain(lane, side),
            (EndState::Running, 6..=11) => self.change(lane, side, QpState::Rts),
            (EndState::Running, 12..=14) if sends && !self.lanes[lane].plan.service.is_reliable() => {
                self.make_a_mistake(lane, side);
            }
            (EndState::Running | EndState::Draining | EndState::Drained, 15..=17) => self.kill(lane, side),
            (EndState::Running | EndState::Draining | EndState::Drained, 18..)
                if self.lanes[lane].plan.resets_at_once() =>
            {
                self.reset(lane, side);
            }
            (EndState::Drained, choice) => {
                if choice % 2 == 0 {
                    self.change(lane, side, QpState::SqDrained);
                }
                self.wake_up(lane, side);
            }
            (EndState::SendError, _) => self.wake_up(lane, side),
            _ => {}
        }
    }

    /// RTS to SQD. An erroneous request among those before may stop the queue first.
    fn begin_to_drain(&mut self, lane: usize, side: usize) {
        let end = &mut self.lanes[lane].ends[side];
        match end.queue().drain() {
            Ok(()) => end.state = EndState::Draining,
            Err(error) => self.excuse(lane, side, error),
        }
    }

    /// Resumes a send queue that is drained or in SQE.
    pub fn wake_up(&mut self, lane: usize, side: usize) {
        match self.lanes[lane].ends[side].state {
            EndState::Drained => {
                let end = &mut self.lanes[lane].ends[side];
                end.state = EndState::Running;
                end.queue().resume().unwrap_or_else(|error| panic!("{error}"));
            }
            EndState::SendError => self.recover(lane, side),
            EndState::Running | EndState::Draining | EndState::Dead => {}
        }
    }

    /// SQE to RTS, when everything after the erroneous request was flushed.
    fn recover(&mut self, lane: usize, side: usize) {
        self.settle();
        let end = &mut self.lanes[lane].ends[side];
        assert_eq!(end.sends.outstanding(), 0, "requests behind a failed one were not flushed");
        assert_eq!(end.queue().state(), QpState::SqError);
        end.sends.recover();
        end.state = EndState::Running;
        end.queue().resume().unwrap_or_else(|error| panic!("{error}"));
        self.outcome.recovered += 1;
    }

    /// Modifies attributes that may change in this state.
    fn change(&mut self, lane: usize, side: usize, state: QpState) {
        let attributes = self.attributes(lane, side, state == QpState::SqDrained);
        let end = &mut self.lanes[lane].ends[side];
        match end.queue().modify(state, &attributes) {
            Ok(()) => self.outcome.changed += 1,
            Err(error) => self.excuse(lane, side, error),
        }
    }

    /// A modify may be refused because an erroneous request has stopped the send queue; then its completion
    /// is there. From the refusal the driver knows the state, so the next modify to RTS would leave SQE.
    fn excuse(&mut self, lane: usize, side: usize, error: ModifyError) {
        let stopped = matches!(error, ModifyError::State { actual: QpState::SqError, .. });
        assert!(stopped && self.lanes[lane].ends[side].sends.has_mistake(), "{error}");
        self.poll(side);
        assert_eq!(self.lanes[lane].ends[side].state, EndState::SendError);
    }

    /// Attributes whose change does not disturb the traffic.
    fn attributes(&mut self, lane: usize, side: usize, drained: bool) -> QueuePairAttributes {
        let (timer, timeout) = (1 + self.dice.below(12) as u8, 9 + self.dice.below(4) as u8);
        let log_reads = self.dice.below(5) as u8;
        let nothing = QueuePairAttributes::default();
        let access = Some(all_access());
        match self.lanes[lane].plan.service {
            LaneService::Reliable if drained => QueuePairAttributes {
                min_rnr_timer: Some(timer),
                ack_timeout: Some(timeout),
                log_max_requester_reads: Some(log_reads),
                ..nothing
            },
            LaneService::Reliable => QueuePairAttributes { min_rnr_timer: Some(timer), access, ..nothing },
            LaneService::Extended(initiator) if initiator != side => {
                QueuePairAttributes { min_rnr_timer: Some(timer), ..nothing }
            }
            LaneService::Extended(_) if drained => {
                QueuePairAttributes { ack_timeout: Some(timeout), retry_count: Some(7), ..nothing }
            }
            LaneService::Extended(_) => QueuePairAttributes { access, ..nothing },
            LaneService::Unreliable => {
                QueuePairAttributes { access: Some(AccessFlags::REMOTE_WRITE), ..nothing }
            }
            LaneService::Datagram => {
                QueuePairAttributes { q_key: Some(self.builder(lane).initial().q_key), ..nothing }
            }
        }
    }

    /// Posts a request that stops the send queue. The requests after it are flushed.
    fn make_a_mistake(&mut self, lane: usize, side: usize) -> bool {
        let mut dice = self.dice.split();
        let item = PlannedRequest { pieces: vec![MISTAKE], ..PlannedRequest::bare(Verb::Mistake) };
        self.lane_ends(lane, side).post_one(&mut dice, item)
    }

    /// Makes a lane fail: one side by command or by an erroneous request, the other by command or because
    /// nobody answers. All outstanding work is flushed; then both sides are reset and connected again.
    fn kill(&mut self, lane: usize, side: usize) {
        let service = self.lanes[lane].plan.service;
        let running = self.lanes[lane].ends[side].state == EndState::Running;
        let mistaken = service.is_reliable() && service.sends(side) && running && self.dice.percent(50);
        if mistaken && self.make_a_mistake(lane, side) {
            self.run_on(|walk| walk.lanes[lane].ends[side].sends.failed);
        } else {
            self.fail(lane, side);
        }
        self.post_in_vain(lane, side);
        let sides = self.sides_to_fail(lane, side);
        if sides.len() == 2 {
            self.fail_peer(lane, 1 - side);
        }
        self.settle();
        for &side in &sides {
            self.check_flushed(lane, side);
        }
        self.outcome.killed += 1;
        self.revive(lane, &sides, false);
    }

    /// The sides to fail: both, or with datagrams, which have no peer, one alone while the other keeps
    /// sending.
    fn sides_to_fail(&self, lane: usize, side: usize) -> Vec<usize> {
        let Both { plan, ends } = &self.lanes[lane];
        let alone = plan.service == LaneService::Datagram && ends[1 - side].state == EndState::Running;
        if alone { vec![side] } else { vec![side, 1 - side] }
    }

    /// To ERROR by command.
    fn fail(&mut self, lane: usize, side: usize) {
        let end = &mut self.lanes[lane].ends[side];
        (end.sends.dead, end.state) = (true, EndState::Dead);
        end.queue().modify_to_error().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Work posted to a failed queue pair is flushed.
    fn post_in_vain(&mut self, lane: usize, side: usize) {
        let plan = self.lanes[lane].plan;
        let mut dice = self.dice.split();
        if plan.service.sends(side) {
            self.lane_ends(lane, side).post(&mut dice, 2);
        }
        if plan.has_receive_queue(side) {
            self.lanes[lane].ends[side].post_receives(&mut dice, 2);
        }
    }

    /// Makes the peer of a failed side fail.
    fn fail_peer(&mut self, lane: usize, side: usize) {
        let service = self.lanes[lane].plan.service;
        let running = self.lanes[lane].ends[side].state == EndState::Running;
        let mut dice = self.dice.split();
        if service.is_reliable() && service.sends(side) && running && dice.percent(30) {
            self.lanes[lane].ends[side].sends.deserted = true;
            if self
                .lane_ends(lane, side)
                .post_one(&mut dice, PlannedRequest::bare(Verb::Write { immediate: None }))
            {
                return self.run_on(|walk| walk.lanes[lane].ends[side].sends.failed);
            }
        }
        self.fail(lane, side);
    }

    /// Resets a lane at once, whatever it is doing.
    fn reset(&mut self, lane: usize, side: usize) {
        let sides = self.sides_to_fail(lane, side);
        self.outcome.reset += 1;
        self.revive(lane, &sides, true);
    }

    /// Resets sides of a lane and connects them again. Their earlier traffic leaves no trace.
    fn revive(&mut self, lane: usize, sides: &[usize], at_once: bool) {
        let prepared = sides.iter().map(|&side| (side, self.restart(lane, side))).collect();
        // Packets that are still on the cable must not reach a new connection that starts with the same
        // numbers. Completions from before the reset would show here.
        self.settle();
        for &side in sides {
            self.forget(lane, side, at_once);
        }
        for (side, queue) in self.join(lane, prepared) {
            let remote_keys = self.builder(lane).remote_keys(side);
            let end = &mut self.lanes[lane].ends[side];
            end.remote_keys = remote_keys;
            end.begin_again(queue);
        }
    }

    /// Connects what was reset: both sides, or one datagram side with the other, which kept running.
    fn join(&self, lane: usize, mut prepared: Vec<(usize, PreparedQueue)>) -> Vec<(usize, Queue)> {
        let builder = self.builder(lane);
        prepared.sort_by_key(|(side, _)| *side);
        let alone = match <[_; 2]>::try_from(prepared) {
            Ok([(_, a), (_, b)]) => return builder.join([a, b]).into_iter().enumerate().collect(),
            Err(alone) => alone,
        };
        let ready = |(side, one)| match one {
            PreparedQueue::Ud(one) => (side, builder.ready(one, side, self.lanes[lane].ends[1 - side].qpn)),
            _ => panic!("a connection has two sides"),
        };
        alone.into_iter().map(ready).collect()
    }

    /// 2RST, and INIT again.
    fn restart(&mut self, lane: usize, side: usize) -> PreparedQueue {
        let initial = self.builder(lane).initial();
        let [send, receive] = self.lanes[lane].plan.completions[side];
        let end = &mut self.lanes[lane].ends[side];
        let queue = end.queue.take().expect("a queue pair that is not being made again");
        end.rename();
        let completions = &mut self.hosts[side].completions;
        // Queue pairs of XRC use only one completion queue.
        let one = send == receive || matches!(self.lanes[lane].plan.service, LaneService::Extended(_));
        let reset = if one {
            queue.reset(&mut completions[send], None, initial)
        } else {
            let [send, receive] =
                completions.get_disjoint_mut([send, receive]).expect("two completion queues");
            queue.reset(send, Some(receive), initial)
        };
        reset.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Forgets what a side had posted and was to receive.
    fn forget(&mut self, lane: usize, side: usize, at_once: bool) {
        self.lane_ends(lane, side).forget_sends();
        let end = &mut self.lanes[lane].ends[side];
        end.receives.forget();
        end.took_last = false;
        if at_once { end.inbox.forget_unseen() } else { end.inbox.forget() }
    }

    fn builder(&self, lane: usize) -> LaneBuilder<'_> {
        let (conditions, plan) = (self.conditions, self.lanes[lane].plan);
        LaneBuilder { hosts: &self.hosts, conditions, lane: plan, number: lane }
    }
}

//! Polls completions and events, and passes each to the lanes concerned.

use super::end::EndState;
use super::host::SHARED;
use super::lane::LaneService;
use super::run::VerbsWalk;
use bareverbs_core::events::AsyncEvent;
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_prm::ids::Qpn;

/// Completions that are taken at a time.
const BATCH: usize = 16;

impl VerbsWalk {
    /// Polls the completion queues of a host. Returns how many completions there were.
    pub fn poll(&mut self, side: usize) -> usize {
        let mut count = 0;
        for at in 0..self.hosts[side].completions.len() {
            loop {
                let mut completions = [WorkCompletion::EMPTY; BATCH];
                let polled = self.hosts[side].completions[at].poll(&mut completions);
                let found = polled.unwrap_or_else(|error| panic!("{error}"));
                completions[..found].iter().for_each(|completion| self.dispatch(side, completion));
                count += found;
                if found == 0 {
                    break;
                }
            }
        }
        count
    }

    #[track_caller]
    fn dispatch(&mut self, side: usize, completion: &WorkCompletion) {
        let lane = self.lane_of(side, completion.qpn).expect("a queue pair of the walk");
        if !is_receive(completion.opcode) {
            return self.end_send(lane, side, completion);
        }
        if completion.wr_id >> 56 == SHARED {
            let host = &mut self.hosts[side];
            let (posted, number) = host.take_shared(completion);
            let memory = &host.shared[number].memory;
            return self.lanes[lane].ends[side].end_shared_receive(completion, &posted, memory, number);
        }
        let end = &mut self.lanes[lane].ends[side];
        end.check_name(completion);
        let posted = end.receives.take_oldest(completion.wr_id);
        end.end_own_receive(completion, &posted);
    }

    #[track_caller]
    fn end_send(&mut self, lane: usize, side: usize, completion: &WorkCompletion) {
        let end = &self.lanes[lane].ends[side];
        end.check_name(completion);
        assert_ne!(end.state, EndState::Drained, "{completion:?} of a send queue that is drained");
        let reliable = end.service.is_reliable();
        let mut lane_ends = self.lane_ends(lane, side);
        lane_ends.end_send(completion);
        if lane_ends.me.sends.failed && lane_ends.me.state != EndState::Dead {
            lane_ends.me.state = if reliable { EndState::Dead } else { EndState::SendError };
        }
    }

    fn lane_of(&self, side: usize, qpn: Qpn) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.ends[side].qpn == qpn)
    }

    /// Takes the events of a device.
    pub fn take_events(&mut self, side: usize) {
        while let Some(event) = self.hosts[side].node.device.poll_event().expect("a device that answers") {
            match event {
                AsyncEvent::SendQueueDrained { qpn } => self.drained(side, qpn),
                AsyncEvent::LastReceiveReached { qpn } => {
                    let lane = self.lane_of(side, qpn).expect("a queue pair of the walk");
                    self.lanes[lane].ends[side].took_last = true;
                }
                AsyncEvent::CommunicationEstablished { .. } => {}
                event => panic!("{event:?}"),
            }
        }
    }

    /// Records that a send queue has drained: what had begun has ended, and nothing else will.
    fn drained(&mut self, side: usize, qpn: Qpn) {
        self.poll(side);
        let lane = self.lane_of(side, qpn).expect("a queue pair of the walk");
        let end = &mut self.lanes[lane].ends[side];
        if end.state == EndState::Draining {
            end.state = EndState::Drained;
            self.outcome.drained += 1;
        }
    }

    /// Whether the receives of a side are those of the ordinary shared queue.
    pub fn shares(&self, lane: usize, side: usize) -> bool {
        let plan = &self.lanes[lane].plan;
        !plan.has_receive_queue(side) && !matches!(plan.service, LaneService::Extended(_))
    }
}

fn is_receive(opcode: WorkCompletionOpcode) -> bool {
    use WorkCompletionOpcode::{Receive, ReceiveRdmaWithImmediate, ReceiveWithInvalidate};
    matches!(opcode, Receive | ReceiveRdmaWithImmediate | ReceiveWithInvalidate)
}

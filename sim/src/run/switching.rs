//! Switching: passes incoming frames to the pure [`Switch`](crate::net::Switch), and its output to the queues of its
//! ports.

use super::device::Device;
use super::topology::SwitchId;
use super::world::{Event, World};
use crate::net::{Egress, Fate, FrameId, mark_congestion};
use crate::nic::HostMemory;
use crate::wire::infiniband::{MANAGEMENT_LANE, virtual_lane};

impl<M: HostMemory, D: Device> World<M, D> {
    /// Handles a frame that arrives at a port of a switch.
    pub(super) fn switch_frame(&mut self, switch: SwitchId, ingress: usize, id: FrameId) {
        let entry = &mut self.switches[switch.index()];
        let frame = self.frames.get_mut(id);
        frame.fresh = false;
        entry.switch.handle_frame(self.now, ingress, &frame.bytes);
        self.poll_switch(switch, Some(id));
    }

    /// Handles a cable that was plugged in or pulled.
    pub(super) fn switch_link(&mut self, switch: SwitchId, port: usize, up: bool) {
        self.switches[switch.index()].switch.handle_link(self.now, port, up);
        self.poll_switch(switch, None);
    }

    pub(super) fn fire_switch_timer(&mut self, switch: SwitchId) {
        self.switches[switch.index()].switch.handle_timeout(self.now);
        self.poll_switch(switch, None);
    }

    /// Sends the output of a switch; `incoming` is the last frame that arrived.
    fn poll_switch(&mut self, switch: SwitchId, mut incoming: Option<FrameId>) {
        while let Some(egress) = self.switches[switch.index()].switch.poll() {
            let (port, leaving) = match egress {
                Egress::Forward { port } => (port, incoming.take()),
                Egress::Copy { port } => (port, incoming.map(|id| self.frames.copy(id))),
                Egress::Own { port, frame, icrc } => (port, Some(self.frames.insert(&frame, icrc))),
            };
            if let Some(id) = leaving {
                self.leave_switch(switch, port, id);
            }
        }
        if let Some(id) = incoming {
            self.frames.give_back(id);
        }
        self.poll_switch_timer(switch);
    }

    fn leave_switch(&mut self, switch: SwitchId, port: usize, id: FrameId) {
        let entry = &mut self.switches[switch.index()];
        let Some(way) = entry.egress.get(port).copied().flatten() else {
            // The port has no cable.
            return self.frames.give_back(id);
        };
        let frame = self.frames.get_mut(id);
        if entry.switch.is_infiniband() && virtual_lane(&frame.bytes) == Some(MANAGEMENT_LANE) {
            return self.leave_on_management_lane(switch, port, way, id);
        }
        let queue = &mut self.ways[way].queue;
        if queue.has_room(self.now, frame.bytes.len()) {
            let is_long = entry.config.mark_from.is_some_and(|limit| queue.waiting(self.now) >= limit);
            if is_long && !entry.switch.is_infiniband() && mark_congestion(&mut frame.bytes) {
                entry.switch.count_mark();
            }
            let ready = self.now + entry.config.latency;
            return self.send(way, id, ready);
        }
        self.tail_drop(switch, port, way, id);
    }

    /// Subnet management packets do not wait behind data, and a full data buffer does not drop them (IBTA v1.4 §7.6.4).
    #[cold]
    fn leave_on_management_lane(&mut self, switch: SwitchId, port: usize, way: usize, id: FrameId) {
        let ready = self.now + self.switches[switch.index()].config.latency;
        let length = self.frames.get(id).bytes.len();
        match self.ways[way].queue.push_management(self.now, ready, length) {
            Some(gone_at) => self.leave(way, id, gone_at),
            None => self.tail_drop(switch, port, way, id),
        }
    }

    fn tail_drop(&mut self, switch: SwitchId, port: usize, way: usize, id: FrameId) {
        let frame = self.frames.get_mut(id);
        self.switches[switch.index()].switch.count_tail_drop(port, &frame.bytes);
        frame.fate = Fate::TailDropped;
        self.schedule.push(self.now, Event::Arrival { way: way as u32, frame: id });
    }

    /// Schedules the timer of a switch if its deadline is earlier than any scheduled one.
    pub(super) fn poll_switch_timer(&mut self, switch: SwitchId) {
        let entry = &mut self.switches[switch.index()];
        let Some(due) = entry.switch.poll_timeout().map(|wanted| wanted.max(self.now)) else { return };
        if entry.timer.arm(due) {
            self.switch_timers += 1;
            self.schedule.push(due, Event::SwitchTimer { switch });
        }
    }
}

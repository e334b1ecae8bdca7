//! The path of a frame: out of a device, through an egress queue and faults, over the wire, into a device or a switch.

use super::device::{Device, Transmit};
use super::digest::{WireEvent, headers};
use super::node::Node;
use super::recording::keep_origin;
use super::records::Recording;
use super::topology::{End, Held, NodeId, Way};
use super::world::{Event, World};
use crate::net::capture::Direction;
use crate::net::fault::{HOLD_LIMIT, Verdict};
use crate::net::frame::Frame;
use crate::net::{Fate, FrameId};
use crate::nic::HostMemory;
use bareverbs_prm::time::Time;

impl<M: HostMemory, D: Device> World<M, D> {
    /// Collects a device's output: frames while the wire has room, interrupts, the next deadline.
    #[inline(always)] // After every input of a device.
    pub(super) fn look_after(&mut self, node: NodeId) {
        if self.nodes[node.index()].device.has_transmit() {
            self.transmit(node);
        }
        let entry = &mut self.nodes[node.index()];
        if self.recording.is_some() || entry.device.has_card_output() {
            return self.look_after_all(node);
        }
        entry.collect_interrupts(|_| {});
        if let Some(due) = entry.arm_timer(self.now) {
            self.schedule.push(due, Event::Timer { node });
        }
    }

    /// Collects also what few devices have: output for other functions of their card, and records.
    #[cold]
    fn look_after_all(&mut self, node: NodeId) {
        if self.nodes[node.index()].device.has_card_output() {
            self.serve_card(node);
        }
        if self.recording.is_some() {
            self.record_device(node);
        }
        self.nodes[node.index()].collect_interrupts(|_| {});
        self.poll_timer(node);
    }

    pub(super) fn transmit(&mut self, node: NodeId) {
        let Some(way) = self.nodes[node.index()].egress else { return self.lose(node) };
        while self.transmit_one(node, way) {}
    }

    /// Drops the output of a port without a cable. The timers of its connections keep running.
    #[cold]
    fn lose(&mut self, node: NodeId) {
        let id = self.frames.take();
        let bytes = &mut self.frames.get_mut(id).bytes;
        let Node { device, memory, .. } = &mut self.nodes[node.index()];
        while device.has_transmit() {
            if device.poll_transmit(self.now, memory, bytes).is_none() && !device.has_yielded() {
                break;
            }
        }
        self.frames.give_back(id);
    }

    /// Sends one frame of a device, if it has one and the wire has room. Returns whether it may have another.
    fn transmit_one(&mut self, node: NodeId, way: usize) -> bool {
        let Self { nodes, ways, frames, .. } = self;
        let Node { device, memory, latency, last_doorbell, .. } = &mut nodes[node.index()];
        if !device.has_transmit() {
            return false;
        }
        let egress = &mut ways[way];
        if !egress.queue.has_room(self.now, 0) {
            self.await_room(way);
            return false;
        }
        let id = frames.take();
        let frame = frames.get_mut(id);
        let Some(Transmit { class, icrc, .. }) = device.poll_transmit(self.now, memory, &mut frame.bytes)
        else {
            frames.give_back(id);
            // In virtual time nobody waits for a turn.
            return device.has_yielded();
        };
        (frame.icrc, frame.fresh, frame.sender) = (icrc, true, Some(node.0));
        if self.recording.is_some() {
            keep_origin(device, frame);
        }
        let ready = latency.ready(class, self.now, *last_doorbell);
        let (arrival, verdict) = enqueue(egress, frame, ready);
        self.travel(way, id, arrival, verdict);
        true
    }

    fn await_room(&mut self, way: usize) {
        let entry = &mut self.ways[way];
        if !entry.room_awaited {
            entry.room_awaited = true;
            self.schedule.push(entry.queue.room_at().max(self.now), Event::Room { way: way as u32 });
        }
    }

    pub(super) fn make_room(&mut self, way: usize) {
        let entry = &mut self.ways[way];
        entry.room_awaited = false;
        if let End::Node(node) = entry.from {
            self.look_after(node);
        }
    }

    /// Queues a frame of a switch. It leaves at `ready`, or once the frames before it have left.
    pub(super) fn send(&mut self, way: usize, id: FrameId, ready: Time) {
        let (arrival, verdict) = enqueue(&mut self.ways[way], self.frames.get_mut(id), ready);
        self.travel(way, id, arrival, verdict);
    }

    /// A frame is on its way, whose last bit leaves at `gone_at`.
    pub(super) fn leave(&mut self, way: usize, id: FrameId, gone_at: Time) {
        let (arrival, verdict) = set_off(&mut self.ways[way], self.frames.get_mut(id), gone_at);
        self.travel(way, id, arrival, verdict);
    }

    #[inline(always)] // Every frame passes here.
    fn travel(&mut self, way: usize, id: FrameId, arrival: Time, verdict: Option<Verdict>) {
        match verdict {
            None => self.schedule.push_in_lane(way, arrival, Event::Arrival { way: way as u32, frame: id }),
            Some(verdict) => self.execute(way, id, arrival, verdict),
        }
    }

    #[cold]
    fn execute(&mut self, way: usize, id: FrameId, arrival: Time, verdict: Verdict) {
        if self.frames.get(id).fate.arrives() {
            self.frames.get_mut(id).fate = verdict.fate;
        }
        let arrival = arrival + verdict.delay;
        let number = way as u32;
        if verdict.hold > 0 {
            let until = arrival + HOLD_LIMIT;
            self.schedule.push(until, Event::Release { way: number });
            self.ways[way].held.push(Held { frame: id, behind: verdict.hold, until });
            return;
        }
        self.schedule.push_in_lane(way, arrival, Event::Arrival { way: number, frame: id });
        if verdict.duplicate {
            let copy = self.frames.copy(id);
            if self.frames.get(copy).fate.arrives() {
                self.frames.get_mut(copy).fate = Fate::Duplicate;
            }
            self.schedule.push_in_lane(way, arrival, Event::Arrival { way: number, frame: copy });
        }
        self.count_down_held(way, arrival);
    }

    /// Counts a sent frame towards the release of held frames.
    fn count_down_held(&mut self, way: usize, arrival: Time) {
        let Self { ways, schedule, .. } = self;
        ways[way].held.retain_mut(|held| {
            held.behind -= 1;
            if held.behind == 0 {
                schedule.push(arrival, Event::Arrival { way: way as u32, frame: held.frame });
            }
            held.behind > 0
        });
    }

    pub(super) fn release_expired(&mut self, way: usize) {
        let Self { ways, schedule, now, .. } = self;
        ways[way].held.retain(|held| {
            let expired = held.until <= *now;
            if expired {
                schedule.push(*now, Event::Arrival { way: way as u32, frame: held.frame });
            }
            !expired
        });
    }

    /// Handles the arrival of a frame at the end of a link, or the arrival it would have had.
    pub(super) fn arrive(&mut self, way: usize, id: FrameId) {
        if !self.partitions.is_empty() {
            self.part(way, id);
        }
        if self.recording.is_some() {
            self.record_bytes(way, id);
        }
        let (entry, frame) = (&mut self.ways[way], self.frames.get(id));
        self.digest.add(WireEvent {
            time: self.now,
            direction: way as u32,
            length: frame.bytes.len() as u32,
            icrc: frame.icrc,
            headers: headers(&frame.bytes),
            fate: frame.fate,
        });
        if !frame.fate.arrives() {
            entry.counters.lost += 1;
            return self.frames.give_back(id);
        }
        entry.counters.frames += 1;
        entry.counters.bytes += frame.bytes.len() as u64;
        match entry.to {
            End::Node(node) => {
                let Node { device, memory, .. } = &mut self.nodes[node.index()];
                if self.parses_every_frame {
                    device.handle_frame(self.now, memory, &frame.bytes);
                } else {
                    device.handle_buffer(self.now, memory, &frame.bytes);
                }
                self.frames.give_back(id);
                self.look_after(node);
            }
            End::Switch { switch, port } => self.switch_frame(switch, port, id),
        }
    }

    /// Drops a frame between partitioned nodes, at the last hop.
    #[cold]
    fn part(&mut self, way: usize, id: FrameId) {
        let (End::Node(to), Some(from)) = (self.ways[way].to, self.frames.get(id).sender) else { return };
        if self.partitions.contains(&(NodeId(from), to)) && self.frames.get(id).fate.arrives() {
            self.frames.get_mut(id).fate = Fate::Partitioned;
        }
    }

    #[cold]
    fn record_bytes(&mut self, way: usize, id: FrameId) {
        let (frame, Some(Recording { capture, .. })) = (self.frames.get(id), &mut self.recording) else {
            return;
        };
        let fate = frame.fate.comment();
        if !frame.fresh && fate.is_none() {
            return;
        }
        let (interface, direction) = match self.ways[way].from {
            End::Node(node) => (node.0, Direction::Outbound),
            End::Switch { switch, .. } => (self.nodes.len() as u32 + switch.0, Direction::Outbound),
        };
        let comments = [fate, frame.comment.as_deref()];
        capture.frame(
            interface,
            self.now.as_nanos(),
            direction,
            &frame.bytes,
            comments.into_iter().flatten(),
        );
    }
}

/// Queues a frame. It leaves at `ready`, or once the frames before it have left. The result is that of [`set_off`].
#[inline(always)] // Every frame passes here.
fn enqueue(way: &mut Way, frame: &mut Frame, ready: Time) -> (Time, Option<Verdict>) {
    let gone_at = way.queue.push(ready, frame.bytes.len());
    set_off(way, frame, gone_at)
}

/// A frame sets off on its way: its last bit leaves at `gone_at`. Returns when it arrives, and what faults do to it.
#[inline(always)] // Every frame passes here.
fn set_off(way: &mut Way, frame: &mut Frame, gone_at: Time) -> (Time, Option<Verdict>) {
    frame.fate = if way.up { Fate::Delivered } else { Fate::LinkDown };
    let verdict = way.faults.as_mut().map(|faults| faults.judge(gone_at, &mut frame.bytes));
    (gone_at + way.delay, verdict)
}

//! Routes datagrams between the queue pairs of the device and the link: to one queue pair, to the members of
//! a multicast group (IBTA v1.4 §10.5, RoCEv2 A17.4.5) or, on InfiniBand, directly from one queue pair of the
//! port to another.

use crate::nic::contexts::Slab;
use crate::nic::multicast::GROUP_QPN;
use crate::nic::observer::DeviceEvent;
use crate::nic::port::group_of;
use crate::nic::queue_pair::{Datagram, FinishedFrame, OutgoingDatagram, QueuePair};
use crate::nic::{HostMemory, Nic};
use crate::wire::infiniband::{MANAGEMENT_LANE, virtual_lane};
use crate::wire::{Deth, FrameBuffer, Packet, network_header};
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::time::Time;

/// How many frames may wait for the wire before datagram queue pairs stop fetching.
const WAITING: usize = 64;

impl Nic {
    /// Serves the turn of a queue pair without a connection.
    pub(super) fn send_datagrams<M: HostMemory>(&mut self, now: Time, memory: &mut M, number: u32) {
        while self.outbox.len() < WAITING && !self.has_yielded() {
            let mut parts = self.parts(now, memory);
            // The queue pair is always there: it was when its turn began, and sending destroys none.
            let Some(qp) = parts.queue_pairs.get_mut(number) else { return };
            let Some(outgoing) = qp.poll_datagram(&mut parts.bus) else {
                let effects = qp.end_turn(&mut parts.bus);
                return parts.schedule.apply(qp, effects);
            };
            self.send_datagram(now, memory, outgoing);
        }
        self.with_queue_pair(now, memory, Qpn::from_low_bits(number), QueuePair::end_turn);
    }

    fn send_datagram<M: HostMemory>(&mut self, now: Time, memory: &mut M, outgoing: OutgoingDatagram) {
        match outgoing {
            OutgoingDatagram::Frame(frame) => self.send_datagram_frame(now, memory, frame),
            OutgoingDatagram::Local { destination, datagram } => {
                self.loop_datagram(now, memory, destination, &datagram);
            }
        }
    }

    /// Delivers a datagram to another queue pair of this InfiniBand port.
    fn loop_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        destination: Qpn,
        datagram: &Datagram<'_>,
    ) {
        if self.take_own_management(now, memory, destination, datagram) {
            return;
        }
        let receiver = self.datagram_receiver(destination);
        let mut parts = self.parts(now, memory);
        let Some(qp) = datagram_queue_pair(parts.queue_pairs, receiver) else {
            parts.bus.shared.counters.frames_without_path += 1;
            return;
        };
        parts.bus.shared.counters.frames_looped_back += 1;
        parts.bus.shared.counters.bytes_looped_back += datagram.length() as u64;
        let effects = qp.on_datagram(&mut parts.bus, datagram);
        parts.schedule.apply(qp, effects);
        self.shared.mkeys.budget().add_frame();
    }

    /// Sends a frame to the wire, back to this device, or both: a multicast group may have members here, and
    /// devices that share the port's addresses also share its well-known queue pairs.
    fn send_datagram_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: FinishedFrame) {
        if self.shared.port.is_infiniband() && virtual_lane(&frame.bytes) == Some(MANAGEMENT_LANE) {
            return self.send_management(now, memory, frame);
        }
        let destination = frame.bytes.packet().map(|packet| packet.bth.destination);
        let shared = destination.is_some_and(|number| self.shared.port.shares(number));
        let is_own = shared || destination.is_none_or(|number| self.shared.port.has_number(number));
        let to_us = is_own && self.is_for_port(&frame.bytes);
        if to_us {
            self.shared.counters.frames_looped_back += 1;
            self.shared.counters.bytes_looped_back += frame.bytes.len() as u64;
            if let Some(origin) = frame.origin {
                self.tell_observer(now, || DeviceEvent::LoopedBack(origin));
            }
        }
        let is_taken = to_us || self.takes_group_frame(&frame.bytes);
        if is_taken {
            self.shared.mkeys.budget().add_frame();
            self.looping = Some(frame.qpn);
            self.accept_buffer(now, memory, &frame.bytes);
            self.looping = None;
        }
        if to_us && !shared {
            return;
        }
        if self.shared.port.reaches_others() {
            let to_group = frame.bytes.packet().and_then(|packet| group_of(&packet.route.network));
            if to_group.is_some() {
                self.ethernet.traffic.sent_groups.add(frame.bytes.len());
            }
            self.outbox.push_back(frame);
        } else if !is_taken {
            self.shared.counters.frames_without_path += 1;
        }
    }

    /// Whether a frame that this device built is addressed to its own port.
    fn is_for_port(&mut self, frame: &FrameBuffer) -> bool {
        if !self.shared.port.is_infiniband() {
            return frame.get(..6) == Some(&self.shared.port.mac().0);
        }
        frame.packet().is_some_and(|packet| self.shared.port.is_addressed(&packet.route.network, None))
    }

    /// Handles a datagram from the link or from this device: passes it to its queue pair or to every member
    /// of its group.
    pub(super) fn route_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        packet: &Packet<'_>,
        deth: Deth,
        frame: &[u8],
    ) {
        // On InfiniBand a receive begins with the global route header, which is part of the route.
        let ip_header =
            if self.shared.port.is_infiniband() { &[] } else { network_header(frame).unwrap_or_default() };
        let datagram = Datagram::received(packet, deth, ip_header);
        let Some(group) = group_of(&packet.route.network) else {
            return self.deliver_unicast(now, memory, packet, &datagram, frame);
        };
        if packet.bth.destination != GROUP_QPN {
            self.shared.counters.frames_unknown_qp += 1;
            return;
        }
        let members = self.members_for(group);
        let taken = members.into_iter().filter(|qpn| self.deliver_datagram(now, memory, *qpn, &datagram));
        if taken.count() > 0 {
            self.count_received(frame);
            self.ethernet.traffic.received_groups.add(frame.len());
        }
    }

    fn deliver_unicast<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        packet: &Packet<'_>,
        datagram: &Datagram<'_>,
        frame: &[u8],
    ) {
        if !self.shared.port.is_addressed(&packet.route.network, packet.route.vlan) {
            self.shared.counters.frames_unknown_gid += 1;
        } else if self.deliver_datagram(now, memory, packet.bth.destination, datagram) {
            self.count_received(frame);
        }
    }

    /// Delivers to one queue pair if the partition matches; returns whether it does.
    fn deliver_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        destination: Qpn,
        datagram: &Datagram<'_>,
    ) -> bool {
        let receiver = self.datagram_receiver(destination);
        let mut parts = self.parts(now, memory);
        let Some(qp) = datagram_queue_pair(parts.queue_pairs, receiver) else {
            parts.bus.shared.counters.frames_unknown_qp += 1;
            return false;
        };
        let own = parts.bus.shared.port.partition_key(qp.pkey_index());
        let is_its = parts.bus.check_partition(datagram.partition_key, own);
        if is_its {
            let effects = qp.on_datagram(&mut parts.bus, datagram);
            parts.schedule.apply(qp, effects);
        } else if let Some(violation) = datagram.partition_violation(destination) {
            parts.bus.shared.port.note_violation(now, &violation);
        }
        is_its
    }

    /// The number of the queue pair that receives datagrams for a number; the first two numbers are the management queue
    /// pairs.
    pub(super) fn datagram_receiver(&self, destination: Qpn) -> Option<Qpn> {
        match QueuePair::special_service(destination) {
            Some(service) => self.groups.special(service),
            None => Some(destination),
        }
    }

    /// The members of a group that receive a frame. A member that blocks its own packets is left out.
    fn members_for(&self, group: Gid) -> Vec<Qpn> {
        let blocks = |qpn: Qpn| {
            let blocking = |qp: &QueuePair| qp.context.block_lb_mc();
            self.looping == Some(qpn) && self.queue_pairs.get(qpn.value()).is_some_and(blocking)
        };
        self.groups.members(group).iter().copied().filter(|qpn| !blocks(*qpn)).collect()
    }
}

/// The queue pair of a [`Nic::datagram_receiver`].
pub(super) fn datagram_queue_pair(
    queue_pairs: &mut Slab<QueuePair>,
    receiver: Option<Qpn>,
) -> Option<&mut QueuePair> {
    queue_pairs.get_mut(receiver?.value()).filter(|qp| qp.is_datagram())
}

//! Reception: from frames to the queue pairs that take them.

use crate::nic::bus::Bus;
use crate::nic::device::DeviceParts;
use crate::nic::observer::DeviceEvent;
use crate::nic::port_traps::{KeyViolation, PortTrap};
use crate::nic::queue_pair::{FinishedFrame, is_notification};
use crate::nic::{HostMemory, Nic};
use crate::wire::infiniband::{self, MANAGEMENT_LANE, destination_lid, multicast_group, virtual_lane};
use crate::wire::management::PortState;
use crate::wire::{FrameBuffer, Packet, ParseError, ServiceClass, parse};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Time;

impl Nic {
    /// Handles a frame that arrives at the port.
    pub fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        self.take_frame(now, memory, frame, None);
    }

    /// Handles a frame that arrives at the port. It is only parsed if its packet is unknown.
    pub fn handle_buffer<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &FrameBuffer) {
        self.take_frame(now, memory, frame, frame.packet().as_ref());
    }

    #[inline(always)] // A simulation has one caller for each kind of frame.
    fn take_frame<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &[u8],
        known: Option<&Packet<'_>>,
    ) {
        if self.shared.port.is_infiniband() && virtual_lane(frame) == Some(MANAGEMENT_LANE) {
            self.handle_management(now, memory, frame);
        } else if !self.takes(now, frame) {
            // The frame is for another port, or the receive buffer dropped and counted it.
        } else if self.is_for_flow_tables(frame) {
            self.receive_ethernet(now, memory, frame, false);
        } else if let Some(packet) = known {
            self.route_packet(now, memory, packet, frame);
        } else {
            self.accept_frame(now, memory, frame);
        }
        self.settle(now, memory);
    }

    /// Handles a frame for another port, or a pause frame for this one.
    #[cold]
    #[inline(never)]
    fn refuse_foreign(&mut self, now: Time, frame: &[u8]) {
        let is_control = !self.shared.port.is_infiniband()
            && self.shared.port.is_up()
            && self.flow.handle_control(now, frame);
        if let Some(until) = self.flow.poll_timeout().filter(|_| is_control) {
            self.schedule.wake_at(until);
        }
        self.shared.counters.frames_foreign += u64::from(!is_control);
    }

    /// Whether the port accepts a frame.
    #[inline(always)] // As for `take_frame`.
    fn takes(&mut self, now: Time, frame: &[u8]) -> bool {
        self.is_for_us(frame) && self.takes_at_once() || self.takes_after_all(now, frame)
    }

    /// Whether a frame for this port bypasses the receive buffer. InfiniBand ports use credits instead.
    #[inline]
    const fn takes_at_once(&self) -> bool {
        self.shared.port.is_infiniband() || self.shared.port.link.takes_at_once()
    }

    /// Whether the port accepts a frame that is not for its own address or that has to fit the receive buffer
    /// first.
    fn takes_after_all(&mut self, now: Time, frame: &[u8]) -> bool {
        if !(self.is_for_us(frame) && self.is_open() || self.accepts(frame)) {
            self.refuse_foreign(now, frame);
            return false;
        }
        if !self.flow.is_metered() || self.shared.port.is_infiniband() {
            return true;
        }
        let was_due = self.flow.has_due_frame();
        let fits = self.flow.takes(now, frame);
        if self.flow.has_due_frame() && !was_due {
            // An empty frame reserves the place of the pause frame, which is built when its turn comes. So
            // `has_transmit` need not check for pause frames.
            self.outbox.push_front(FinishedFrame::default());
        }
        fits
    }

    /// Whether frames pass. What an InfiniBand port accepts depends on its state, which was already checked.
    const fn is_open(&self) -> bool {
        self.shared.port.is_infiniband() || self.shared.port.is_up()
    }

    /// Whether a frame is for an address of the port and, on InfiniBand, whether the link accepts it. A port
    /// receives as soon as it is armed (IBTA v1.4 §7.2.7).
    #[inline(always)]
    fn is_for_us(&self, frame: &[u8]) -> bool {
        if self.shared.port.is_infiniband() {
            return self.shared.port.state() >= PortState::Armed
                && (destination_lid(frame).is_some_and(|lid| self.shared.port.owns_lid(lid))
                    || self.takes_group_frame(frame));
        }
        let own = frame.get(..6) == Some(&self.shared.port.mac().0);
        own || self.takes_group_frame(frame)
    }

    /// Whether a frame is for a multicast group that has members here.
    #[inline]
    pub(super) fn takes_group_frame(&self, frame: &[u8]) -> bool {
        if self.shared.port.is_infiniband() {
            return multicast_group(frame).is_some_and(|group| self.groups.has_group(Gid(group)));
        }
        frame.get(..6).is_some_and(|address| address[0] & 1 != 0 && self.groups.has_address(address))
    }

    /// Handles a frame that this device sent to itself.
    pub(super) fn accept_buffer<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &FrameBuffer) {
        match frame.packet() {
            Some(packet) => self.route_packet(now, memory, &packet, frame),
            None => self.accept_frame(now, memory, frame),
        }
    }

    /// Handles a frame for this device, given as bytes.
    fn accept_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        let parsed = if self.shared.port.is_infiniband() { infiniband::parse(frame) } else { parse(frame) };
        match parsed {
            Ok(packet) => self.route_packet(now, memory, &packet, frame),
            Err(ParseError::Icrc { .. }) => self.shared.counters.frames_bad_icrc += 1,
            Err(_) => self.shared.counters.frames_malformed += 1,
        }
    }

    fn route_packet<M: HostMemory>(&mut self, now: Time, memory: &mut M, packet: &Packet<'_>, frame: &[u8]) {
        if packet.bth.service == ServiceClass::CongestionNotification {
            self.route_notification(now, memory, packet);
        } else if let Some(deth) = packet.service_header.deth() {
            if self.take_general_services(now, memory, packet, frame) {
                return;
            }
            self.route_datagram(now, memory, packet, deth, frame);
        } else {
            self.route_connected(now, memory, packet, frame);
        }
    }

    /// Passes a CNP to the queue pair whose packets were marked.
    fn route_notification<M: HostMemory>(&mut self, now: Time, memory: &mut M, packet: &Packet<'_>) {
        let mut parts = self.parts(now, memory);
        let ours = is_notification(packet)
            && parts.bus.shared.port.is_addressed(&packet.route.network, packet.route.vlan);
        let qp = parts.queue_pairs.get_mut(packet.bth.destination.value());
        match qp.filter(|qp| ours && qp.accepts_notification(packet)) {
            Some(qp) => {
                let effects = qp.on_notification(&mut parts.bus);
                parts.schedule.apply(qp, effects);
            }
            None => parts.bus.shared.congestion.ignored += 1,
        }
    }

    /// Handles a packet of a connection: its queue pair must exist, receive, and be connected to the sender.
    fn route_connected<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        packet: &Packet<'_>,
        frame: &[u8],
    ) {
        let DeviceParts { queue_pairs, schedule, mut bus, .. } = self.parts(now, memory);
        if !bus.shared.port.is_addressed(&packet.route.network, packet.route.vlan) {
            bus.shared.counters.frames_unknown_gid += 1;
            return;
        }
        let qp = queue_pairs.get_mut(packet.bth.destination.value());
        let Some(qp) = qp.filter(|qp| qp.accepts(packet)) else {
            bus.shared.counters.frames_unknown_qp += 1;
            return;
        };
        if !bus.check_partition(packet.bth.partition_key, qp.partition_key()) {
            let ends = [qp.context.remote_qpn(), packet.bth.destination];
            let key = packet.bth.partition_key.into();
            let violation = KeyViolation::new(PortTrap::PartitionKey, key, &packet.route.network, ends);
            if let Some(violation) = violation {
                bus.shared.port.note_violation(now, &violation);
            }
            return;
        }
        if bus.shared.optional.observer.is_some() {
            observe_received(&mut bus, packet);
        }
        let effects = qp.on_packet(&mut bus, packet);
        if effects.rpc_delivered {
            self.take_replies(now);
            self.with_queue_pair(now, memory, packet.bth.destination, |_, _| effects);
        } else {
            schedule.apply(qp, effects);
        }
        self.count_received(frame);
    }
}

/// Reports a packet that reached its queue pair to the observer.
#[cold]
#[inline(never)]
fn observe_received<M>(bus: &mut Bus<'_, M>, packet: &Packet<'_>) {
    let bth = &packet.bth;
    bus.observe(|| DeviceEvent::PacketReceived { qpn: bth.destination, opcode: bth.opcode, psn: bth.psn });
}

//! Management datagrams of an InfiniBand port: which ones its agents answer, and which ones its host receives
//! (IBTA v1.4 §13.5, §14.2.2).
//!
//! The subnet management agent answers requests on the management lane, whether they come over the link or
//! from the port's own host, addressed to the port's own LID. Responses, SMInfo and traps are for the SM on
//! the host, at queue pair 0. The performance agent answers requests to queue pair 1; other classes belong to
//! the host.
//!
//! **What it may not do.** A performance agent answers for one device. If several devices share one port's
//! addresses, none of them answers, because a request must not get several responses.

use super::datagrams::datagram_queue_pair;
use crate::nic::port_traps::{KeyViolation, PortTrap};
use crate::nic::queue_pair::{Datagram, FinishedFrame};
use crate::nic::{HostMemory, Nic};
use crate::wire::infiniband::{self, PERMISSIVE_LID};
use crate::wire::management::{
    GENERAL_SERVICES, GENERAL_SERVICES_QKEY, GeneralPacket, Method, SubnetPacket, attribute, class,
};
use crate::wire::{Deth, FrameBuffer, Network, Packet, is_same_partition};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Time;

/// Queue pair of subnet management.
const SUBNET_MANAGEMENT: Qpn = Qpn::from_low_bits(0);
/// How many responses may wait for the wire.
const WAITING: usize = 256;

impl Nic {
    /// Handles a packet of the management lane.
    pub(super) fn handle_management<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        let Ok(packet) = infiniband::parse(frame) else {
            self.shared.counters.frames_malformed += 1;
            return;
        };
        let ours = self.shared.port.is_up() && self.is_management_address(&packet.route.network);
        let (Some(management), Some(deth)) =
            (SubnetPacket::of(&packet).filter(|_| ours), packet.service_header.deth())
        else {
            self.shared.counters.frames_foreign += 1;
            return;
        };
        if is_for_host(&management) {
            self.deliver_to_manager(now, memory, &packet, deth, frame);
            return;
        }
        self.count_received(frame);
        if management.method() == Method::TrapRepress {
            self.shared.port.repress_trap(management.transaction());
            return;
        }
        // This always matches: only a packet of an InfiniBand network has a management address.
        let Network::InfiniBand(local) = packet.route.network else { return };
        if let Some(response) = self.answer_management(memory, management) {
            let (bytes, icrc) = response.to_frame(self.shared.port.hca_vport.lid(), local.source);
            self.send_response(now, memory, bytes, icrc);
        }
    }

    /// Management packets are addressed to the LID of the port or to the node at the end of the link (IBTA
    /// v1.4 §14.2.1.1).
    fn is_management_address(&self, network: &Network) -> bool {
        match network {
            Network::InfiniBand(local) => {
                local.destination == PERMISSIVE_LID || self.shared.port.owns_lid(local.destination)
            }
            _ => false,
        }
    }

    /// Delivers to queue pair 0 of the host. P_Keys do not apply on the management lane (IBTA v1.4 §10.9.1).
    fn deliver_to_manager<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        packet: &Packet<'_>,
        deth: Deth,
        frame: &[u8],
    ) {
        let receiver = self.datagram_receiver(SUBNET_MANAGEMENT);
        let mut parts = self.parts(now, memory);
        let Some(qp) = datagram_queue_pair(parts.queue_pairs, receiver) else {
            parts.bus.shared.counters.frames_unknown_qp += 1;
            return;
        };
        let effects = qp.on_datagram(&mut parts.bus, &Datagram::received(packet, deth, &[]));
        parts.schedule.apply(qp, effects);
        self.count_received(frame);
    }

    /// Sends a packet of queue pair 0: to the agent of this port, or over a link that need not be active.
    pub(super) fn send_management<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: FinishedFrame) {
        if infiniband::destination_lid(&frame.bytes).is_some_and(|lid| self.shared.port.owns_lid(lid)) {
            self.handle_management(now, memory, &frame.bytes);
        } else if self.shared.port.is_linked() {
            self.outbox.push_back(frame);
        } else {
            self.shared.counters.frames_without_path += 1;
        }
    }

    /// Handles a datagram that the host sent to this port. Returns whether an agent of the port has handled
    /// it.
    pub(super) fn take_own_management<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        destination: Qpn,
        datagram: &Datagram<'_>,
    ) -> bool {
        if destination == SUBNET_MANAGEMENT {
            let Some(packet) = SubnetPacket::from_payload(datagram.payload()) else { return false };
            let lid = self.shared.port.hca_vport.lid();
            let (frame, _) = packet.to_frame(lid, lid);
            self.handle_management(now, memory, &frame);
            return true;
        }
        let request = datagram.to_general_services().filter(|_| destination == GENERAL_SERVICES);
        request.is_some_and(|request| self.answer_general_services(now, memory, datagram.qkey, request))
    }

    /// Handles a datagram for queue pair 1 that came over the link. Returns whether an agent of the port has
    /// handled it.
    pub(super) fn take_general_services<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        packet: &Packet<'_>,
        frame: &[u8],
    ) -> bool {
        let Some(deth) = packet.service_header.deth().filter(|_| self.shared.port.is_infiniband()) else {
            return false;
        };
        let ours = packet.bth.destination == GENERAL_SERVICES
            && self.shared.port.is_addressed(&packet.route.network, packet.route.vlan);
        let request = GeneralPacket::of(packet).filter(|_| ours);
        let taken =
            request.is_some_and(|request| self.answer_general_services(now, memory, deth.q_key, request));
        if taken {
            self.count_received(frame);
        }
        taken
    }

    /// Sends the traps that are due.
    #[cold]
    pub(super) fn send_traps<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        while let Some((trap, manager)) = self.shared.port.poll_trap(now) {
            let (bytes, icrc) = trap.to_frame(self.shared.port.hca_vport.lid(), manager);
            self.send_response(now, memory, bytes, icrc);
        }
    }

    /// Answers a request to the performance agent that is in a partition of the port and has the right Q_Key
    /// (IBTA v1.4 §9.2.4).
    fn answer_general_services<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        q_key: u32,
        request: GeneralPacket,
    ) -> bool {
        let header = request.header();
        let asked = header.class() == class::PERFORMANCE && Method::from_raw(header.method()).has_response();
        if !asked || self.shared.port.shares(GENERAL_SERVICES) {
            return false;
        }
        let refused = if q_key != GENERAL_SERVICES_QKEY {
            self.shared.counters.datagrams_bad_qkey += 1;
            Some((PortTrap::QueueKey, q_key))
        } else if !self.is_partition(request.partition_key()) {
            self.shared.counters.frames_bad_pkey += 1;
            Some((PortTrap::PartitionKey, request.partition_key().into()))
        } else {
            None
        };
        if let Some((trap, key)) = refused {
            let ends = [request.source(), GENERAL_SERVICES];
            if let Some(violation) = KeyViolation::new(trap, key, request.network(), ends) {
                self.shared.port.note_violation(now, &violation);
            }
            return true;
        }
        let mut response = *request.bytes();
        let answered = self.answer_performance(&mut response);
        if let Some((bytes, icrc)) = request.response_frame(&response).filter(|_| answered) {
            self.send_response(now, memory, bytes, icrc);
        }
        true
    }

    /// Queue pair 1 accepts every partition of the port (IBTA v1.4 §10.9.2).
    fn is_partition(&self, theirs: u16) -> bool {
        self.shared.port.partition_keys().iter().any(|own| is_same_partition(*own, theirs))
    }

    /// Sends a response to the link or back to the host. A response without room is dropped, as on the
    /// management lane of real ports.
    fn send_response<M: HostMemory>(&mut self, now: Time, memory: &mut M, bytes: FrameBuffer, icrc: u32) {
        if infiniband::destination_lid(&bytes).is_some_and(|lid| self.shared.port.owns_lid(lid)) {
            self.shared.mkeys.budget().add_frame();
            if infiniband::virtual_lane(&bytes) == Some(infiniband::MANAGEMENT_LANE) {
                self.handle_management(now, memory, &bytes);
            } else {
                self.accept_buffer(now, memory, &bytes);
            }
        } else if self.outbox.len() < WAITING {
            self.outbox.push_back(FinishedFrame { bytes, icrc, qpn: SUBNET_MANAGEMENT, origin: None });
        } else {
            self.shared.counters.management_dropped += 1;
        }
    }
}

/// Whether a packet is for a manager on the host rather than for the port's agent.
fn is_for_host(packet: &SubnetPacket) -> bool {
    packet.is_returning() || packet.method() == Method::Trap || packet.attribute().0 == attribute::SM_INFO
}

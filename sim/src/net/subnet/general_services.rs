//! Queue pair 1 of a switch's port 0: the performance agent, the SA if the switch hosts the master SM, and no other agent
//! (IBTA v1.4 §13.4.7).

use super::directory::{Directory, own_port};
use super::{Subnet, local_route};
use crate::wire::Packet;
use crate::wire::infiniband::{destination_lid, parse};
use crate::wire::management::{GENERAL_SERVICES_QKEY, GeneralPacket, Method, SIZE, class, status};
use bareverbs_prm::time::Time;

impl Subnet {
    /// Handles a packet that leads to no external port: one for queue pair 1 of port 0. False if it is not, or if its
    /// sender may not ask.
    #[cold]
    pub(in crate::net) fn handle_own(&mut self, now: Time, ingress: usize, frame: &[u8]) -> bool {
        let own = self.agent.lid();
        if own == 0 || destination_lid(frame) != Some(own) {
            return false;
        }
        self.has_packets = true;
        let packet = parse(frame).ok().filter(|packet| self.accepts(packet));
        let Some(request) = packet.as_ref().and_then(GeneralPacket::of) else { return false };
        match request.header().class() {
            class::PERFORMANCE => self.answer_performance(ingress, &request),
            // The SA knows who may ask. A standby SM answers no SA request.
            class if self.master().is_some() || class == class::ADMINISTRATION && self.has_manager() => {
                self.ask_administration(now, request)
            }
            _ => self.refuse_class(ingress, &request),
        }
    }

    fn answer_performance(&mut self, ingress: usize, request: &GeneralPacket) -> bool {
        let mut response = *request.bytes();
        let has_response = self.counters.answer(&mut response);
        if has_response {
            self.answer_general(ingress, request, &response);
        }
        has_response
    }

    /// Refuses a class that the switch has no agent for, such as baseboard and communication management.
    fn refuse_class(&mut self, ingress: usize, request: &GeneralPacket) -> bool {
        let has_response = Method::from_raw(request.header().method()).has_response();
        if has_response {
            self.answer_general(ingress, request, &request.refused(status::BAD_VERSION));
        }
        has_response
    }

    /// The response leaves through the ingress port, unless a port towards the requester is known.
    fn answer_general(&mut self, ingress: usize, request: &GeneralPacket, response: &[u8; SIZE]) {
        let exit = request.source_lid().and_then(|lid| self.tables.exit(lid)).unwrap_or(ingress);
        let Some((frame, icrc)) = request.response_frame(response) else { return };
        if !self.queue(exit, frame, icrc) {
            self.counters.has_no_room(exit);
        }
    }

    fn ask_administration(&mut self, now: Time, request: GeneralPacket) -> bool {
        let master = self.managing.as_deref_mut().filter(|managing| managing.mastership.is_master());
        let Some(managing) = master else { return false };
        let info = managing.state().info;
        let directory = Directory::new(&managing.manager, &self.agent).with(&managing.groups, info);
        let tables = &self.tables;
        managing.administration.handle_packet(now, request, &directory, |lid| !tables.has_group(lid));
        self.losses.add(managing.administration.take_losses());
        self.fill_groups(now);
        true
    }

    /// Whether port 0 accepts a packet: it must have the Q_Key of general services, a P_Key of the port, and the port's
    /// GID if it has any.
    fn accepts(&self, packet: &Packet<'_>) -> bool {
        let Some(local) = local_route(packet) else { return false };
        let q_key = packet.service_header.deth().map(|deth| deth.q_key);
        q_key == Some(GENERAL_SERVICES_QKEY)
            && own_port(&self.agent).accepts_key(packet.bth.partition_key)
            && local.global.is_none_or(|global| self.agent.owns_gid(global.destination.to_bits()))
    }
}

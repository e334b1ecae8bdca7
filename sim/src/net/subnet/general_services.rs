//! Queue pair 1 of a switch's port 0: the performance agent, the SA if the switch hosts the master SM, and no other agent
//! (IBTA v1.4 §13.4.7).

use super::directory::{Directory, own_port};
use super::{Subnet, WAITING, local_route};
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
        let Some(question) = packet.as_ref().and_then(GeneralPacket::of) else { return false };
        match question.header().class() {
            class::PERFORMANCE => self.answer_performance(ingress, &question),
            // The SA knows who may ask. A standby SM answers no SA request.
            class if self.master().is_some() || class == class::ADMINISTRATION && self.has_manager() => {
                self.ask_administration(now, question)
            }
            _ => self.refuse_class(ingress, &question),
        }
    }

    fn answer_performance(&mut self, ingress: usize, question: &GeneralPacket) -> bool {
        let mut answer = *question.bytes();
        let has_answer = self.tallies.answer(&mut answer);
        if has_answer {
            self.answer_general(ingress, question, &answer);
        }
        has_answer
    }

    /// Refuses a class that the switch has no agent for, such as baseboard and communication management.
    fn refuse_class(&mut self, ingress: usize, question: &GeneralPacket) -> bool {
        let has_answer = Method::from_raw(question.header().method()).has_answer();
        if has_answer {
            self.answer_general(ingress, question, &question.refused(status::BAD_VERSION));
        }
        has_answer
    }

    /// The response leaves through the ingress port, unless a port towards the requester is known.
    fn answer_general(&mut self, ingress: usize, question: &GeneralPacket, answer: &[u8; SIZE]) {
        let exit = question.source_lid().and_then(|lid| self.tables.exit(lid)).unwrap_or(ingress);
        if let Some((frame, icrc)) = question.answer_frame(answer).filter(|_| self.answers.len() < WAITING) {
            self.answers.push_back((exit, frame.into_bytes(), icrc));
        }
    }

    fn ask_administration(&mut self, now: Time, question: GeneralPacket) -> bool {
        let master = self.managing.as_deref_mut().filter(|managing| managing.mastership.is_master());
        let Some(managing) = master else { return false };
        let info = managing.state().info;
        let directory = Directory::new(&managing.manager, &self.agent).with(&managing.groups, info);
        let tables = &self.tables;
        managing.administration.handle_packet(now, question, &directory, |lid| !tables.has_group(lid));
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

//! Packets of the management lane of an InfiniBand link: the agent of the port answers them.

use crate::nic::port::source_lid;
use crate::nic::queue_pair::FinishedFrame;
use crate::nic::{HostMemory, Nic};
use crate::wire::infiniband;
use crate::wire::management::SubnetPacket;
use bareverbs_prm::ids::Qpn;

impl Nic {
    /// A packet of the management lane.
    pub(super) fn handle_management<M: HostMemory>(&mut self, memory: &mut M, frame: &[u8]) {
        let Ok(packet) = infiniband::parse(frame) else {
            self.counters.frames_malformed += 1;
            return;
        };
        let source = source_lid(&packet.route.network);
        let question = SubnetPacket::of(&packet).filter(|_| self.port.is_up());
        let Some(answer) = question.and_then(|question| self.answer_management(memory, question)) else {
            self.counters.frames_foreign += 1;
            return;
        };
        self.counters.frames_received += 1;
        let (bytes, icrc) = answer.to_frame(self.port.hca_vport.lid(), source);
        self.outbox.push_back(FinishedFrame { bytes, icrc, qpn: Qpn::from_low_bits(0) });
    }
}

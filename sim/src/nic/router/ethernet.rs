//! Ethernet packets between the link and the queues that software created for them.

use crate::nic::device::DeviceParts;
use crate::nic::ethernet::filter::is_multicast;
use crate::nic::ethernet::{IncomingPacket, is_roce};
use crate::nic::queue_pair::{Transmit, TransmitClass};
use crate::nic::{HostMemory, Nic};
use crate::wire::{FrameBuffer, MIN_FRAME};
use bareverbs_prm::ids::{MacAddress, Qpn, UarIndex};
use bareverbs_prm::time::Time;

impl Nic {
    /// Whether to accept a frame for another address than the port's: because the flow tables see all such
    /// packets, or because software added the address. The lists of the virtual port are meant for an
    /// e-switch, which this function lacks: a driver that wants all packets, such as DPDK's, only creates a
    /// rule for them.
    pub(super) fn accepts(&self, frame: &[u8]) -> bool {
        let Some(destination) = frame.first_chunk().map(|mac| MacAddress(*mac)) else { return false };
        self.ethernet.is_receiving()
            && self.shared.port.is_up()
            && (self.is_for_flow_tables(frame)
                || self.ethernet.lists.accept(&self.shared.port.vport, self.shared.port.mac(), destination))
    }

    /// Whether a frame goes to the flow tables: nearly everything but RoCE, if there are any flow tables.
    pub(super) fn is_for_flow_tables(&self, frame: &[u8]) -> bool {
        self.ethernet.is_receiving() && !(self.shared.port.vport.roce_en() && is_roce(frame))
    }

    /// Passes a packet from the wire or from this same port to the flow tables.
    pub(super) fn receive_ethernet<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &[u8],
        looped_back: bool,
    ) {
        let packet = IncomingPacket { frame, longest: usize::from(self.firmware.admin_mtu), looped_back };
        let DeviceParts { ethernet, counter_sets, mut bus, .. } = self.parts(now, memory);
        ethernet.receive(&mut bus, counter_sets, &packet);
    }

    /// Handles a doorbell of an Ethernet send queue.
    pub(super) fn ring_packet_queue<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        page: UarIndex,
        number: Qpn,
    ) {
        let DeviceParts { ethernet, mut bus, .. } = self.parts(now, memory);
        ethernet.on_doorbell(&mut bus, page, number);
    }

    /// Writes the next Ethernet packet to `frame`.
    pub(super) fn transmit_packet<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        while self.ethernet.has_transmit() && !self.has_yielded() {
            let DeviceParts { ethernet, mut bus, .. } = self.parts(now, memory);
            let packet = ethernet.poll_packet(&mut bus)?;
            if self.send_packet(now, memory, &packet) {
                frame.replace(&packet);
                frame.pad_to(MIN_FRAME);
                self.count_sent(frame);
                if let Some(observer) = &mut self.shared.optional.observer {
                    observer.set_packet();
                }
                return Some(Transmit { class: TransmitClass::Request, qpn: Qpn::from_low_bits(0), icrc: 0 });
            }
            self.shared.mkeys.budget().add_frame();
        }
        None
    }

    /// Counts a packet and loops it back if it is for this same port. Returns whether it goes to the wire.
    fn send_packet<M: HostMemory>(&mut self, now: Time, memory: &mut M, packet: &[u8]) -> bool {
        let Some(destination) = packet.first_chunk().map(|mac| MacAddress(*mac)) else {
            self.shared.counters.frames_malformed += 1;
            return false;
        };
        self.ethernet.traffic.sent.count(destination, packet.len());
        let group = is_multicast(destination);
        let own = destination == self.shared.port.mac() || self.ethernet.lists.unicast.contains(&destination);
        if own || group {
            self.receive_ethernet(now, memory, packet, true);
        }
        !own && self.shared.port.is_up()
    }
}

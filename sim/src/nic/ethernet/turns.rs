//! Transmission: send queues with work take turns, one WQE each.

use super::EthernetObjects;
use super::send::PacketSendQueue;
use crate::nic::bus::Bus;
use crate::nic::memory::HostMemory;
use bareverbs_prm::ids::{Qpn, UarIndex};
use std::collections::VecDeque;

/// How much of a turn a work request or a packet costs.
const PACKET: u32 = 4;

impl EthernetObjects {
    /// Handles a doorbell of a send queue.
    pub(in crate::nic) fn on_doorbell<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        page: UarIndex,
        number: Qpn,
    ) {
        let known = self.send_queues.get_mut(number.value());
        let Some(queue) = known.filter(|queue| queue.context.wq().uar_page() == page) else {
            bus.shared.counters.doorbells_ignored += 1;
            return;
        };
        bus.shared.counters.send_doorbells += 1;
        if queue.on_doorbell(bus) {
            wake(&mut self.ready, queue);
        }
    }

    /// The next packet for the port. Also `None` when the turn is over, because many work requests may
    /// produce no packet.
    pub(in crate::nic) fn poll_packet<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Option<Vec<u8>> {
        while !bus.shared.mkeys.budget().is_spent() {
            bus.shared.mkeys.budget().add(PACKET);
            if let Some(packet) = self.outgoing.next() {
                return Some(packet);
            }
            let number = self.ready.pop_front()?;
            let Some(queue) = self.send_queues.get_mut(number) else {
                bus.shared.counters.turns_of_destroyed += 1;
                continue;
            };
            if let Some(packets) = queue.poll_packets(bus) {
                self.outgoing = packets;
                wake(&mut self.ready, queue);
            }
        }
        None
    }
}

/// Puts a queue at the end of the list, unless it is already waiting.
fn wake(ready: &mut VecDeque<u32>, queue: &mut PacketSendQueue) {
    if !queue.queued {
        queue.queued = true;
        ready.push_back(queue.number.value());
    }
}

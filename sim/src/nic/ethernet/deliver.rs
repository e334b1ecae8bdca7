//! Reception: from a packet through flow tables and hashes to receive queues.

use super::EthernetObjects;
use super::filter::is_multicast;
use super::flow::Target;
use super::hash;
use super::headers::Headers;
use super::receive::{Arrival, Delivery, INDIRECT};
use crate::nic::bus::Bus;
use crate::nic::memory::HostMemory;
use crate::nic::queue_counters::CounterSets;
use bareverbs_prm::ids::Rqn;

/// `self_lb_block` of a TIR: which packets of its own port it does not receive.
const BLOCK_UNICAST: u8 = 1;
const BLOCK_MULTICAST: u8 = 2;
/// Bytes of the frame check sequence, which frames have on the wire but not here.
const CHECK_SEQUENCE: usize = 4;

/// A packet at the port.
#[derive(Debug, Clone, Copy)]
pub(in crate::nic) struct IncomingPacket<'a> {
    pub(in crate::nic) frame: &'a [u8],
    /// Bytes of the longest packet that the port accepts, including the check sequence.
    pub(in crate::nic) longest: usize,
    /// Whether it was sent by this same port.
    pub(in crate::nic) looped_back: bool,
}

impl EthernetObjects {
    /// Passes a packet to every TIR that the flow tables steer it to.
    pub(in crate::nic) fn receive<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        counter_sets: &mut CounterSets,
        packet: &IncomingPacket<'_>,
    ) {
        let IncomingPacket { frame, longest, looped_back } = *packet;
        let Some(headers) = Headers::parse(frame) else {
            bus.shared.counters.frames_malformed += 1;
            return;
        };
        if frame.len() + CHECK_SEQUENCE > longest {
            self.traffic.oversize += 1;
            return;
        }
        if looped_back {
            self.traffic.looped_back.add(frame.len());
        } else {
            self.traffic.received.count(headers.destination, frame.len());
            self.traffic.count_received(&mut bus.shared.counters, frame);
        }
        let targets = self.steering.steer(&headers.flow_headers(frame), frame.len());
        if targets.is_empty() {
            self.traffic.not_steered += 1;
        }
        for target in targets {
            self.deliver(bus, counter_sets, packet, &headers, target);
        }
    }

    /// Delivers a packet to a TIR.
    fn deliver<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        counter_sets: &mut CounterSets,
        packet: &IncomingPacket<'_>,
        headers: &Headers,
        target: Target,
    ) {
        let Some(tir) = self.receive_interfaces.get(target.tir) else {
            bus.shared.counters.packets_without_queue += 1;
            return;
        };
        let block = if is_multicast(headers.destination) { BLOCK_MULTICAST } else { BLOCK_UNICAST };
        if packet.looped_back && tir.self_lb_block() & block != 0 {
            bus.shared.counters.packets_blocked_from_self += 1;
            return;
        }
        let hash = hash::compute(tir, packet.frame, headers);
        let chosen: Option<Rqn> = match tir.disp_type() {
            INDIRECT => self.queue_tables.get(tir.indirect_table().value()).and_then(|table| {
                let index = hash.value as usize % table.queues.len().max(1);
                table.queues.get(index).copied()
            }),
            _ => Some(tir.inline_rqn()),
        };
        let queue = chosen.and_then(|number| self.receive_queues.get_mut(number.value()));
        let Some(queue) = queue else {
            bus.shared.counters.packets_without_queue += 1;
            return;
        };
        let arrival = Arrival { frame: packet.frame, headers: *headers, hash, tag: target.tag };
        if let Delivery::OutOfBuffer = queue.on_packet(bus, &arrival) {
            self.traffic.out_of_buffer += 1;
            // A queue without a counter set names set 0, which does not exist.
            if let Some(counters) = counter_sets.get_mut(queue.context.counter_set_id().into()) {
                counters.count_lost_packet();
            }
        }
    }
}

//! Datagrams over Ethernet: RoCE frames, to one queue pair or to a multicast group (RoCEv2 A17.4.5).

use super::{Datagram, GRH};
use crate::nic::multicast::GROUP_QPN;
use crate::nic::port::ends;
use crate::nic::transmit::Ready;
use crate::nic::{HostMemory, Nic};
use crate::wire::{Network, Packet, network_header};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Time;

/// Kind of the network header in a completion: the two low bits of what is the service level on InfiniBand.
const IPV6: u8 = 1;
const IPV4: u8 = 2;

/// What a completion says of the network header.
pub(super) const fn header_kind(network: &Network) -> u8 {
    match network {
        Network::V4 { .. } => IPV4,
        Network::V6 { .. } => IPV6,
        Network::Version1(_) | Network::InfiniBand(_) => 0,
    }
}

/// Where the network header lies in the room before the payload: at its end.
pub(super) fn header_place(header: &[u8]) -> Option<u64> {
    GRH.checked_sub(header.len()).map(|at| at as u64)
}

impl Nic {
    /// Sends a frame to the wire, back to this device, or both: a multicast group may have members here.
    pub(super) fn send_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, ready: Ready) {
        let to_group = ready.bytes.first().is_some_and(|byte| byte & 1 != 0);
        let to_us = ready.bytes.get(..6) == Some(&self.port.mac().0);
        if to_group || to_us {
            self.counters.frames_looped_back += u64::from(to_us);
            self.counters.bytes_looped_back += if to_us { ready.bytes.len() as u64 } else { 0 };
            self.accept_looped(now, memory, &ready);
        }
        if to_us {
            return;
        }
        if self.port.reaches_others() {
            self.outbox.push_back(ready);
        } else {
            self.counters.frames_without_path += 1;
        }
    }

    fn accept_looped<M: HostMemory>(&mut self, now: Time, memory: &mut M, ready: &Ready) {
        self.looping = Some(ready.qpn);
        if ready.bytes.get(..6) == Some(&self.port.mac().0) || self.takes_group_frame(&ready.bytes) {
            self.accept_frame(now, memory, &ready.bytes);
        }
        self.looping = None;
    }

    /// A datagram from Ethernet: to its queue pair, or to every member of its group.
    pub(in crate::nic) fn accept_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        packet: &Packet<'_>,
        frame: &[u8],
    ) {
        let header = network_header(frame).unwrap_or_default();
        let (_, destination) = ends(&packet.route.network);
        if !destination.is_multicast() {
            let Some(qpn) = self.datagram_taker(packet) else { return };
            return self.hand_over(now, memory, (qpn, header), packet, frame);
        }
        if packet.bth.destination != GROUP_QPN {
            self.counters.frames_unknown_qp += 1;
            return;
        }
        for qpn in self.members_for(destination) {
            if self.datagram_fits(qpn, packet) {
                self.hand_over(now, memory, (qpn, header), packet, frame);
            }
        }
    }

    /// The members of a group that take a frame: one that blocks its own does not.
    fn members_for(&self, group: bareverbs_prm::ids::Gid) -> Vec<Qpn> {
        let members = self.groups.members(group).iter().copied();
        let blocks = |qpn: Qpn| {
            let blocking = |qp: &crate::nic::queue_pair::QueuePair| qp.context.block_lb_mc();
            self.looping == Some(qpn) && self.queue_pairs.get(qpn.value()).is_some_and(blocking)
        };
        members.filter(|qpn| !blocks(*qpn)).collect()
    }

    fn hand_over<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        (qpn, header): (Qpn, &[u8]),
        packet: &Packet<'_>,
        frame: &[u8],
    ) {
        self.count_received(frame);
        if let Some(datagram) = Datagram::received(packet, header) {
            self.receive_datagram(now, memory, qpn, &datagram);
        }
    }
}

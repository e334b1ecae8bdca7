//! Traffic counters of an Ethernet port, by kind of address.

use crate::nic::counters::Counters;
use bareverbs_prm::ids::MacAddress;

/// Packets and their bytes, by kind of destination address.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DirectionTraffic {
    pub(crate) unicast: Count,
    pub(crate) multicast: Count,
    pub(crate) broadcast: Count,
}

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Priorities of 802.1Q.
pub(crate) const PRIORITIES: usize = 8;

/// Priority of a frame: that of its 802.1Q tag, or 0.
#[inline]
pub(in crate::nic) fn priority_of(frame: &[u8]) -> usize {
    match frame.get(12..15) {
        Some(&[0x81, 0x00, control]) => usize::from(control >> 5),
        _ => 0,
    }
}

impl Count {
    #[inline]
    pub(crate) const fn add(&mut self, length: usize) {
        self.packets += 1;
        self.bytes += length as u64;
    }

    /// These counts minus some of them.
    pub(crate) const fn without(self, some: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(some.packets),
            bytes: self.bytes.saturating_sub(some.bytes),
        }
    }
}

impl DirectionTraffic {
    pub(crate) fn count(&mut self, destination: MacAddress, length: usize) {
        let count = match destination.0 {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => &mut self.broadcast,
            [first, ..] if first & 1 != 0 => &mut self.multicast,
            _ => &mut self.unicast,
        };
        count.add(length);
    }

    /// All kinds together.
    pub(crate) const fn total(&self) -> Count {
        Count {
            packets: self.unicast.packets + self.multicast.packets + self.broadcast.packets,
            bytes: self.unicast.bytes + self.multicast.bytes + self.broadcast.bytes,
        }
    }
}

impl PortTraffic {
    /// Counts a frame that leaves the port.
    #[inline]
    pub(in crate::nic) fn count_sent(&mut self, counters: &mut Counters, frame: &[u8]) {
        counters.frames_sent += 1;
        counters.bytes_sent += frame.len() as u64;
        self.sent_by_priority[priority_of(frame)].add(frame.len());
    }

    /// Counts a frame that was received by a queue of the port.
    #[inline]
    pub(in crate::nic) fn count_received(&mut self, counters: &mut Counters, frame: &[u8]) {
        counters.frames_received += 1;
        counters.bytes_received += frame.len() as u64;
        self.received_by_priority[priority_of(frame)].add(frame.len());
    }
}

/// Traffic of a port, without RDMA unless stated otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PortTraffic {
    pub(crate) received: DirectionTraffic,
    pub(crate) sent: DirectionTraffic,
    /// Everything received and sent, including RDMA, by priority.
    pub(crate) received_by_priority: [Count; PRIORITIES],
    pub(crate) sent_by_priority: [Count; PRIORITIES],
    /// RDMA datagrams to multicast groups, received and sent.
    pub(crate) received_groups: Count,
    pub(crate) sent_groups: Count,
    /// Packets that the port looped back to itself.
    pub(crate) looped_back: Count,
    /// Packets that no flow matched.
    pub(crate) not_steered: u64,
    /// Packets longer than the port accepts.
    pub(crate) oversize: u64,
    /// Packets that found no receive posted.
    pub(crate) out_of_buffer: u64,
}

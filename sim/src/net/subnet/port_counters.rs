//! Counters of a switch's external ports, and the performance management agent that reads them (IBTA v1.4 §16.1).

use crate::wire::infiniband::{VCRC, destination_lid, is_multicast_lid};
use crate::wire::management::SIZE;
use crate::wire::management::performance::{PerformanceAgent, PortCounts};

/// Counters of all ports; see the module. Ports are counted from 0, as in the switch.
#[derive(Debug, Default)]
pub(in crate::net) struct SwitchPortCounters {
    counters: Vec<PortCounts>,
    agent: PerformanceAgent,
}

impl SwitchPortCounters {
    /// Extends the counters to `ports` ports.
    pub(super) fn grow(&mut self, ports: usize) {
        self.counters.resize(ports.max(self.counters.len()), PortCounts::default());
    }

    #[inline]
    pub(in crate::net) fn received(&mut self, port: usize, frame: &[u8]) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.received.count(counted_bytes(frame), is_to_group(frame));
        }
    }

    #[inline]
    pub(in crate::net) fn sent(&mut self, port: usize, frame: &[u8]) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.sent.count(counted_bytes(frame), is_to_group(frame));
        }
    }

    /// Counts a packet that was dropped because the egress buffer was full.
    pub(in crate::net) fn discarded(&mut self, port: usize, frame: &[u8]) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.sent.take_back(counted_bytes(frame), is_to_group(frame));
            counts.discards += 1;
        }
    }

    /// Counts a packet whose SL has no lane at this port (IBTA v1.4 §16.1.3.5, under `PortXmitDiscards`).
    pub(super) fn has_no_lane(&mut self, port: usize) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.discards += 1;
        }
    }

    /// Counts a response of queue pair 1 that is dropped for lack of room. It would have left on a data lane, so it is
    /// no `VL15Dropped`.
    pub(super) fn has_no_room(&mut self, port: usize) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.discards += 1;
        }
    }

    /// Counts a packet on VL 15 that came in through a port and could be neither forwarded nor answered for lack of
    /// room (IBTA v1.4 §16.1.3.5, under `VL15Dropped`).
    pub(in crate::net) fn management_dropped(&mut self, port: usize) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.management_dropped += 1;
        }
    }

    /// Counts a packet that no other port leads to.
    pub(in crate::net) fn not_relayed(&mut self, port: usize) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.relay_errors += 1;
        }
    }

    /// Counts an inbound P_Key violation.
    pub(super) fn not_let_in(&mut self, port: usize) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.receive_constraint_errors += 1;
        }
    }

    /// Counts an outbound P_Key violation.
    pub(super) fn not_let_out(&mut self, port: usize) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.transmit_constraint_errors += 1;
        }
    }

    pub(super) fn link_downed(&mut self, port: usize) {
        if let Some(counts) = self.counters.get_mut(port) {
            counts.link_downed += 1;
        }
    }

    /// Answers a performance management datagram in place; false if there is no response.
    pub(super) fn answer(&mut self, mad: &mut [u8; SIZE]) -> bool {
        self.agent.answer(mad, &self.counters)
    }
}

const fn counted_bytes(frame: &[u8]) -> usize {
    frame.len().saturating_sub(VCRC)
}

fn is_to_group(frame: &[u8]) -> bool {
    destination_lid(frame).is_some_and(is_multicast_lid)
}

//! What has crossed the external ports of a switch, and the performance agent that shows it (IBTA v1.4 §16.1).

use crate::wire::infiniband::{VCRC, destination_lid, is_multicast_lid};
use crate::wire::management::SIZE;
use crate::wire::management::performance::{PerformanceAgent, PortTally};

/// See the module. Ports are counted from 0, as the switch counts them.
#[derive(Debug, Default)]
pub(in crate::net) struct PortTallies {
    tallies: Vec<PortTally>,
    agent: PerformanceAgent,
}

impl PortTallies {
    /// The switch has so many ports.
    pub(super) fn grow(&mut self, ports: usize) {
        self.tallies.resize(ports.max(self.tallies.len()), PortTally::default());
    }

    #[inline]
    pub(in crate::net) fn received(&mut self, port: usize, frame: &[u8]) {
        if let Some(tally) = self.tallies.get_mut(port) {
            tally.received.count(counted_bytes(frame), is_to_group(frame));
        }
    }

    #[inline]
    pub(in crate::net) fn sent(&mut self, port: usize, frame: &[u8]) {
        if let Some(tally) = self.tallies.get_mut(port) {
            tally.sent.count(counted_bytes(frame), is_to_group(frame));
        }
    }

    /// A packet that was about to leave found no room.
    pub(in crate::net) fn discarded(&mut self, port: usize, frame: &[u8]) {
        if let Some(tally) = self.tallies.get_mut(port) {
            tally.sent.take_back(counted_bytes(frame), is_to_group(frame));
            tally.discards += 1;
        }
    }

    /// A packet's service level has no lane there (IBTA v1.4 §16.1.3.5, of `PortXmitDiscards`).
    pub(super) fn has_no_lane(&mut self, port: usize) {
        if let Some(tally) = self.tallies.get_mut(port) {
            tally.discards += 1;
        }
    }

    /// No other port leads to where a packet goes.
    pub(in crate::net) fn not_relayed(&mut self, port: usize) {
        if let Some(tally) = self.tallies.get_mut(port) {
            tally.relay_errors += 1;
        }
    }

    /// A packet was not let in for its P_Key.
    pub(super) fn not_let_in(&mut self, port: usize) {
        if let Some(tally) = self.tallies.get_mut(port) {
            tally.receive_constraint_errors += 1;
        }
    }

    /// A packet was not let out for its P_Key.
    pub(super) fn not_let_out(&mut self, port: usize) {
        if let Some(tally) = self.tallies.get_mut(port) {
            tally.transmit_constraint_errors += 1;
        }
    }

    pub(super) fn link_downed(&mut self, port: usize) {
        if let Some(tally) = self.tallies.get_mut(port) {
            tally.link_downed += 1;
        }
    }

    /// Answers a datagram of performance management in place; false if it has no answer.
    pub(super) fn answer(&mut self, mad: &mut [u8; SIZE]) -> bool {
        self.agent.answer(mad, &self.tallies)
    }
}

const fn counted_bytes(frame: &[u8]) -> usize {
    frame.len().saturating_sub(VCRC)
}

fn is_to_group(frame: &[u8]) -> bool {
    destination_lid(frame).is_some_and(is_multicast_lid)
}

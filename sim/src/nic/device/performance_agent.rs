//! The counters of an InfiniBand port, as its performance agent reports them.
//!
//! **What it may not do.** It does not count errors that cannot happen in this model; values that software
//! set for them are still reported.

use super::Nic;
use crate::wire::infiniband::VCRC;
use crate::wire::management::SIZE;
use crate::wire::management::performance::{Crossed, PortCounts};

impl Nic {
    /// Answers a performance management datagram in place; returns `false` if there is no response.
    pub(in crate::nic) fn answer_performance(&mut self, mad: &mut [u8; SIZE]) -> bool {
        let counts = self.port_counts();
        self.performance.answer(mad, &[counts])
    }

    fn port_counts(&self) -> PortCounts {
        let (counters, traffic) = (&self.shared.counters, &self.ethernet.traffic);
        let crossed = |packets: u64, multicast: u64, bytes: u64| Crossed {
            packets,
            multicast,
            bytes: bytes.saturating_sub(packets * VCRC as u64),
        };
        let sent = counters.frames_sent + counters.frames_looped_back;
        let sent_bytes = counters.bytes_sent + counters.bytes_looped_back;
        PortCounts {
            sent: crossed(sent, traffic.sent_groups.packets, sent_bytes),
            received: crossed(
                counters.frames_received,
                traffic.received_groups.packets,
                counters.bytes_received,
            ),
            link_downed: self.times_down,
            receive_errors: counters.frames_malformed + counters.frames_bad_icrc,
            discards: counters.frames_without_path,
            management_dropped: counters.management_dropped,
            ..PortCounts::default()
        }
    }
}

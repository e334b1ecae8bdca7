//! Counting for the counter set of a queue pair: what its transport counts, and what the queue pair itself
//! counts.

use super::QueuePair;
use super::tally::Tally;
use bareverbs_prm::numbering::{CqeOpcode, CqeSyndrome};

impl QueuePair {
    /// The current counters of the transport.
    fn transport_tally(&self) -> Tally {
        let mut tally = Tally::default();
        if let Some(counters) = self.requester.as_ref().map(|requester| requester.counters()) {
            tally.rnr_nak_retry_err = counters.rnr_naks as u32;
            tally.packet_seq_err = counters.sequence_naks as u32;
            tally.implied_nak_seq_err = counters.implied_naks as u32;
            tally.local_ack_timeout_err = counters.timeouts as u32;
        }
        if let Some(counters) = self.responder.as_ref().map(|responder| responder.counters()) {
            tally.rx_write_requests = counters.writes as u32;
            tally.rx_read_requests = counters.reads as u32;
            tally.rx_atomic_requests = counters.atomics as u32;
            tally.out_of_buffer = counters.rnr_naks as u32;
            tally.out_of_sequence = counters.out_of_sequence as u32;
            tally.duplicate_request = counters.duplicates as u32;
            tally.resp_remote_invalid_request = counters.invalid_requests as u32;
            tally.resp_remote_access_errors = counters.access_errors as u32;
        }
        tally
    }

    /// Everything counted so far for the current counter set.
    pub(crate) fn tally(&self) -> Tally {
        let kept = self.tally.as_deref().copied().unwrap_or_default();
        kept.counted.plus(self.transport_tally()).minus(kept.elsewhere)
    }

    /// The counters that the queue pair itself keeps; the transport keeps the rest.
    pub(super) fn counted(&mut self) -> &mut Tally {
        &mut self.tally.get_or_insert_default().counted
    }

    /// Saves the counters of the transport before the transport is dropped.
    pub(super) fn keep_transport_tally(&mut self) {
        let transport = self.transport_tally();
        if transport != Tally::default() {
            let counted = self.counted();
            *counted = counted.plus(transport);
        }
    }

    /// Switches to another counter set and returns what was counted for the old one.
    pub(crate) fn leave_tally(&mut self) -> Tally {
        let tally = self.tally();
        if tally != Tally::default() {
            let kept = self.tally.get_or_insert_default();
            kept.elsewhere = kept.elsewhere.plus(tally);
        }
        tally
    }

    /// Counts a completion with error that this queue pair wrote.
    pub(crate) fn count_failure(&mut self, opcode: CqeOpcode, syndrome: CqeSyndrome) {
        self.counted().count_failure(opcode, syndrome);
    }

    /// Counts a datagram that was dropped because no receive was posted.
    pub(super) fn count_out_of_buffer(&mut self) {
        let counted = self.counted();
        counted.out_of_buffer = counted.out_of_buffer.wrapping_add(1);
    }
}

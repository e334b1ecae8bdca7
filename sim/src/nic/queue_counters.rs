//! Counter sets: what the queue pairs counted that name one, under the names of the PRM (QUERY_Q_COUNTER).
//!
//! Queue pairs count for themselves; a set is the sum of its queue pairs and of what those left behind that are gone. What the
//! model has not, it counts not: dynamically connected targets (`rx_dct_connect`), adaptive retransmission
//! (`roce_adp_retrans`, `roce_adp_retrans_to`) and slow restart (`roce_slow_restart`, `_cnps`, `_trans`) stay zero.

use super::Nic;
use super::contexts::Slab;
use super::queue_pair::QueuePair;
use bareverbs_prm::command::queue_counter::QueryQueueCounterOut;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{CqeOpcode, CqeSyndrome};

/// First number of a counter set; queue pairs with number 0 count nowhere.
pub(crate) const FIRST_SET: u32 = 1;
/// Bits of such a number.
const SET_BITS: u32 = 8;

macro_rules! tally {
    ($($counter:ident / $set:ident;)*) => {
        /// Counters of one queue pair, or of one set. They wrap, as registers of 32 bits do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub(crate) struct Tally {
            $(pub(crate) $counter: u32,)*
        }

        impl Tally {
            fn combine(self, other: Self, operation: fn(u32, u32) -> u32) -> Self {
                Self { $($counter: operation(self.$counter, other.$counter),)* }
            }

            /// Writes all counters into the output of QUERY_Q_COUNTER.
            pub(crate) fn write(&self, output: &mut QueryQueueCounterOut) {
                $(output.$set(self.$counter);)*
            }
        }
    };
}

tally! {
    rx_write_requests / set_rx_write_requests;
    rx_read_requests / set_rx_read_requests;
    rx_atomic_requests / set_rx_atomic_requests;
    out_of_buffer / set_out_of_buffer;
    out_of_sequence / set_out_of_sequence;
    duplicate_request / set_duplicate_request;
    rnr_nak_retry_err / set_rnr_nak_retry_err;
    packet_seq_err / set_packet_seq_err;
    implied_nak_seq_err / set_implied_nak_seq_err;
    local_ack_timeout_err / set_local_ack_timeout_err;
    req_rnr_retries_exceeded / set_req_rnr_retries_exceeded;
    resp_local_length_error / set_resp_local_length_error;
    req_local_length_error / set_req_local_length_error;
    resp_local_qp_error / set_resp_local_qp_error;
    local_operation_error / set_local_operation_error;
    resp_local_protection / set_resp_local_protection;
    req_local_protection / set_req_local_protection;
    resp_cqe_error / set_resp_cqe_error;
    req_cqe_error / set_req_cqe_error;
    req_mw_binding / set_req_mw_binding;
    req_bad_response / set_req_bad_response;
    req_remote_invalid_request / set_req_remote_invalid_request;
    resp_remote_invalid_request / set_resp_remote_invalid_request;
    req_remote_access_errors / set_req_remote_access_errors;
    resp_remote_access_errors / set_resp_remote_access_errors;
    req_remote_operation_errors / set_req_remote_operation_errors;
    req_transport_retries_exceeded / set_req_transport_retries_exceeded;
    cq_overflow / set_cq_overflow;
    resp_cqe_flush_error / set_resp_cqe_flush_error;
    req_cqe_flush_error / set_req_cqe_flush_error;
}

impl Tally {
    fn plus(self, other: Self) -> Self {
        self.combine(other, u32::wrapping_add)
    }

    fn minus(self, other: Self) -> Self {
        self.combine(other, u32::wrapping_sub)
    }

    /// Counts a completion with error.
    fn count_failure(&mut self, opcode: CqeOpcode, syndrome: CqeSyndrome) {
        if opcode == CqeOpcode::RequesterError {
            self.req_cqe_error = self.req_cqe_error.wrapping_add(1);
            self.count_requester(syndrome);
        } else {
            self.resp_cqe_error = self.resp_cqe_error.wrapping_add(1);
            self.count_responder(syndrome);
        }
    }

    fn count_requester(&mut self, syndrome: CqeSyndrome) {
        let counter = match syndrome {
            CqeSyndrome::LocalLength => &mut self.req_local_length_error,
            CqeSyndrome::LocalQpOperation => &mut self.local_operation_error,
            CqeSyndrome::LocalProtection => &mut self.req_local_protection,
            CqeSyndrome::WorkRequestFlushed => &mut self.req_cqe_flush_error,
            CqeSyndrome::MemoryWindowBind => &mut self.req_mw_binding,
            CqeSyndrome::BadResponse => &mut self.req_bad_response,
            CqeSyndrome::RemoteInvalidRequest => &mut self.req_remote_invalid_request,
            CqeSyndrome::RemoteAccess => &mut self.req_remote_access_errors,
            CqeSyndrome::RemoteOperation => &mut self.req_remote_operation_errors,
            CqeSyndrome::TransportRetryExceeded => &mut self.req_transport_retries_exceeded,
            CqeSyndrome::RnrRetryExceeded => &mut self.req_rnr_retries_exceeded,
            _ => return,
        };
        *counter = counter.wrapping_add(1);
    }

    fn count_responder(&mut self, syndrome: CqeSyndrome) {
        let counter = match syndrome {
            CqeSyndrome::LocalLength => &mut self.resp_local_length_error,
            CqeSyndrome::LocalQpOperation => &mut self.resp_local_qp_error,
            CqeSyndrome::LocalProtection => &mut self.resp_local_protection,
            CqeSyndrome::WorkRequestFlushed => &mut self.resp_cqe_flush_error,
            _ => return,
        };
        *counter = counter.wrapping_add(1);
    }
}

/// What one queue pair counted besides its transport, and what it counted in another life or for another set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueuePairTally {
    pub(crate) counted: Tally,
    /// What belongs to another set.
    elsewhere: Tally,
}

impl QueuePair {
    /// What the transport counts at present.
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

    /// What it counted for the set that it names now.
    fn tally(&self) -> Tally {
        self.tally.counted.plus(self.transport_tally()).minus(self.tally.elsewhere)
    }

    /// Keeps what the transport counted, which is about to be forgotten.
    pub(crate) fn keep_transport_tally(&mut self) {
        self.tally.counted = self.tally.counted.plus(self.transport_tally());
    }
}

/// A counter set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CounterSet {
    /// What queue pairs counted that are gone or count elsewhere now.
    past: Tally,
    /// What was there when it was last cleared.
    cleared: Tally,
}

impl CounterSet {
    /// A packet found no receive in an Ethernet queue that counts here.
    pub(crate) fn count_lost_packet(&mut self) {
        self.past.out_of_buffer = self.past.out_of_buffer.wrapping_add(1);
    }
}

/// All counter sets of a device.
pub(crate) type CounterSets = Slab<CounterSet>;

/// No sets.
pub(crate) const fn counter_sets() -> CounterSets {
    Slab::new(FIRST_SET, SET_BITS)
}

impl Nic {
    /// The queue pair goes away, or counts elsewhere from now on: what it counted stays with its set.
    pub(crate) fn leave_counter_set(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let tally = qp.tally();
        qp.tally.elsewhere = qp.tally.elsewhere.plus(tally);
        if let Some(set) = self.counter_sets.get_mut(qp.context.counter_set_id().into()) {
            set.past = set.past.plus(tally);
        }
    }

    /// What a set has counted since it was made or cleared; `None` if there is no such set.
    pub(crate) fn counter_set(&mut self, number: u8, clear: bool) -> Option<Tally> {
        let members = self.queue_pairs.iter().filter(|(_, qp)| qp.context.counter_set_id() == number);
        let live = members.fold(Tally::default(), |sum, (_, qp)| sum.plus(qp.tally()));
        let set = self.counter_sets.get_mut(number.into())?;
        let total = set.past.plus(live);
        let shown = total.minus(set.cleared);
        if clear {
            set.cleared = total;
        }
        Some(shown)
    }

    /// Whether queue pairs or Ethernet receive queues name the set.
    pub(crate) fn uses_counter_set(&self, number: u8) -> bool {
        self.queue_pairs.iter().any(|(_, qp)| qp.context.counter_set_id() == number)
            || self.ethernet.receive_queues.iter().any(|(_, rq)| rq.context.counter_set_id() == number)
    }

    /// A datagram found no receive.
    pub(crate) fn count_out_of_buffer(&mut self, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn.value()) {
            qp.tally.counted.out_of_buffer = qp.tally.counted.out_of_buffer.wrapping_add(1);
        }
    }

    /// Counts the completions with error that were written since the last call.
    pub(crate) fn count_failures(&mut self) {
        while let Some((qpn, opcode, syndrome)) = self.completions.failures.pop() {
            if let Some(qp) = self.queue_pairs.get_mut(qpn.value()) {
                qp.tally.counted.count_failure(opcode, syndrome);
            }
        }
    }
}

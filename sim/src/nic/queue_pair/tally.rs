//! What a queue pair counts for its counter set, named as in the PRM (QUERY_Q_COUNTER).

use bareverbs_prm::command::queue_counter::QueryQueueCounterOut;
use bareverbs_prm::numbering::{CqeOpcode, CqeSyndrome};

macro_rules! tally {
    ($($counter:ident / $set:ident;)*) => {
        /// Counters of one queue pair or of one set. They wrap like the 32-bit registers they model.
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
    pub(crate) fn plus(self, other: Self) -> Self {
        self.combine(other, u32::wrapping_add)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.combine(other, u32::wrapping_sub)
    }

    /// Counts a completion with error.
    pub(super) fn count_failure(&mut self, opcode: CqeOpcode, syndrome: CqeSyndrome) {
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

/// What one queue pair counted besides its transport, including what it counted before a reset or for another
/// set.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueuePairTally {
    pub(super) counted: Tally,
    /// The part that belongs to another set.
    pub(super) elsewhere: Tally,
}

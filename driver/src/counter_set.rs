//! Counter sets for queue pairs. The counters have their names in the PRM and in Linux.

use crate::command::{CommandError, Request};
use crate::device::{DestroyCommand, Device, DeviceRef};
use crate::hal::Hal;
use bareverbs_prm::command::congestion::{QueryCongStatisticsIn, QueryCongStatisticsOut};
use bareverbs_prm::command::queue_counter::{
    AllocQueueCounterIn, AllocQueueCounterOut, QueryQueueCounterIn, QueryQueueCounterOut,
};
use bareverbs_prm::numbering::CommandOpcode;
use core::fmt;

/// A counter set. Queue pairs created with [`counter_set`](crate::QueuePairBuilder::counter_set) count in it. The
/// counts survive the queue pairs.
///
/// ```
/// use bareverbs_core::command::CommandError;
/// use bareverbs_core::{CounterSet, DeviceRef};
///
/// /// Packets that did not come in order since the last look.
/// fn out_of_order<D: DeviceRef>(counters: &CounterSet<D>) -> Result<u32, CommandError> {
///     Ok(counters.read_and_clear()?.out_of_sequence)
/// }
/// ```
pub struct CounterSet<D: DeviceRef> {
    device: D,
    id: u8,
}

macro_rules! queue_counters {
    ($($(#[$doc:meta])* $counter:ident;)*) => {
        /// Counts of all queue pairs of a set. Each counter wraps at 2^32. Counters of features that the device lacks,
        /// or that are switched off, stay zero.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[doc(alias = "hw_counters")]
        pub struct QueueCounters {
            $($(#[$doc])* pub $counter: u32,)*
        }

        impl QueueCounters {
            fn read(output: &QueryQueueCounterOut) -> Self {
                Self { $($counter: output.$counter(),)* }
            }

            /// The counters with their names, in PRM order.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u32)> {
                [$((stringify!($counter), self.$counter),)*].into_iter()
            }
        }
    };
}

queue_counters! {
    /// WRITE requests received.
    rx_write_requests;
    /// READ requests received.
    rx_read_requests;
    /// Atomic requests received.
    rx_atomic_requests;
    /// Connections to dynamically connected targets.
    rx_dct_connect;
    /// Messages that arrived when no receive was posted.
    out_of_buffer;
    /// Packets received while an earlier one was missing.
    out_of_sequence;
    /// Packets received a second time.
    duplicate_request;
    /// NAKs "receiver not ready" received, after which the request was repeated.
    rnr_nak_retry_err;
    /// NAKs "PSN sequence error" received, after which the request was repeated.
    packet_seq_err;
    /// Responses received out of order: an earlier one is missing.
    implied_nak_seq_err;
    /// ACK timeouts.
    local_ack_timeout_err;
    /// Sends given up because the receiver was never ready.
    req_rnr_retries_exceeded;
    /// Receives whose buffers were too short.
    resp_local_length_error;
    /// Sends that were longer than the device sends.
    req_local_length_error;
    /// Receives that were malformed.
    resp_local_qp_error;
    /// Sends that were malformed.
    local_operation_error;
    /// Receives whose local key does not cover the memory.
    resp_local_protection;
    /// Sends whose local key does not cover the memory.
    req_local_protection;
    /// Receives that failed, flushed ones included.
    resp_cqe_error;
    /// Sends that failed, flushed ones included.
    req_cqe_error;
    /// Memory windows that could not be bound.
    req_mw_binding;
    /// Sends that got a malformed or unexpected response.
    req_bad_response;
    /// Sends that the peer refused as invalid.
    req_remote_invalid_request;
    /// Requests of the peer that were refused as invalid.
    resp_remote_invalid_request;
    /// Sends that the peer refused because of access rights.
    req_remote_access_errors;
    /// Requests of the peer that were refused because of access rights.
    resp_remote_access_errors;
    /// Sends that the peer failed to carry out.
    req_remote_operation_errors;
    /// Sends given up because the peer never answered.
    req_transport_retries_exceeded;
    /// Completion queues that overran.
    cq_overflow;
    /// Receives that were flushed.
    resp_cqe_flush_error;
    /// Sends that were flushed.
    req_cqe_flush_error;
    /// Adaptive retransmissions.
    roce_adp_retrans;
    /// Timeouts of adaptive retransmission.
    roce_adp_retrans_to;
    /// Slow restarts.
    roce_slow_restart;
    /// Congestion notifications sent by slow restart.
    roce_slow_restart_cnps;
    /// Changes of the slow restart state.
    roce_slow_restart_trans;
}

impl<D: DeviceRef> CounterSet<D> {
    /// Allocates a set whose counters are all zero.
    #[doc(alias = "ALLOC_Q_COUNTER")]
    pub fn create(device: D) -> Result<Self, CommandError> {
        let mut input = AllocQueueCounterIn::new();
        input.set_opcode(CommandOpcode::AllocQCounter);
        let output: AllocQueueCounterOut = device.device().call(&Request::new(&input))?;
        Ok(Self { device, id: output.counter_set_id() })
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Number of the counter set.
    pub fn number(&self) -> u8 {
        self.id
    }

    /// The counts since the set was allocated or cleared.
    #[doc(alias = "QUERY_Q_COUNTER")]
    pub fn read(&self) -> Result<QueueCounters, CommandError> {
        self.query(false)
    }

    /// Like [`Self::read`], then sets the counters to zero. No count is lost in between.
    pub fn read_and_clear(&self) -> Result<QueueCounters, CommandError> {
        self.query(true)
    }

    fn query(&self, clear: bool) -> Result<QueueCounters, CommandError> {
        let mut input = QueryQueueCounterIn::new();
        input.set_opcode(CommandOpcode::QueryQCounter).set_clear(clear).set_counter_set_id(self.id);
        let output: QueryQueueCounterOut = self.device.device().call(&Request::new(&input))?;
        Ok(QueueCounters::read(&output))
    }
}

/// Congestion counters of a device: as receiver of marked packets (notification point, `np_`) and as their sender
/// (reaction point, `rp_`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CongestionCounters {
    /// Packets received with a congestion mark.
    pub np_ecn_marked_roce_packets: u64,
    /// Congestion notification packets (CNPs) sent in response.
    pub np_cnp_sent: u64,
    /// CNPs received for an existing queue pair.
    pub rp_cnp_handled: u64,
    /// CNPs received for no existing queue pair.
    pub rp_cnp_ignored: u64,
}

impl<H: Hal> Device<H> {
    /// Reads the congestion counters. `clear` sets them to zero.
    #[doc(alias = "QUERY_CONG_STATISTICS")]
    pub fn congestion_counters(&self, clear: bool) -> Result<CongestionCounters, CommandError> {
        let mut input = QueryCongStatisticsIn::new();
        input.set_opcode(CommandOpcode::QueryCongStatistics).set_clear(clear);
        let output: QueryCongStatisticsOut = self.call(&Request::new(&input))?;
        let joined = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        Ok(CongestionCounters {
            np_ecn_marked_roce_packets: joined(
                output.np_ecn_marked_roce_packets_high(),
                output.np_ecn_marked_roce_packets_low(),
            ),
            np_cnp_sent: joined(output.np_cnp_sent_high(), output.np_cnp_sent_low()),
            rp_cnp_handled: joined(output.rp_cnp_handled_high(), output.rp_cnp_handled_low()),
            rp_cnp_ignored: joined(output.rp_cnp_ignored_high(), output.rp_cnp_ignored_low()),
        })
    }
}

impl<D: DeviceRef> fmt::Debug for CounterSet<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterSet").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for CounterSet<D> {
    /// A set that is dropped before its queue pairs is deallocated after them.
    #[doc(alias = "DEALLOC_Q_COUNTER")]
    fn drop(&mut self) {
        let command = DestroyCommand::new(CommandOpcode::DeallocQCounter, self.id.into());
        self.device.device().destroy(command, None);
    }
}

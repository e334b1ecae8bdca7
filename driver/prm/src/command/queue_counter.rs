//! Sets of counters of queues.

use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of ALLOC_Q_COUNTER.
    pub struct AllocQueueCounterIn, "alloc_q_counter_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
}

layout! {
    /// Output of ALLOC_Q_COUNTER.
    pub struct AllocQueueCounterOut, "alloc_q_counter_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits counter_set_id / set_counter_set_id: u8 = 2[7:0], "counter_set_id";
}

layout! {
    /// Input of DEALLOC_Q_COUNTER.
    pub struct DeallocQueueCounterIn, "dealloc_q_counter_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits counter_set_id / set_counter_set_id: u8 = 2[7:0], "counter_set_id";
}

layout! {
    /// Output of DEALLOC_Q_COUNTER.
    pub struct DeallocQueueCounterOut, "dealloc_q_counter_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_Q_COUNTER.
    pub struct QueryQueueCounterIn, "query_q_counter_in", 8;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits other_vport / set_other_vport: bool = 2[31:31], "other_vport";
    bits vport_number / set_vport_number: u16 = 2[15:0], "vport_number";
    bits clear / set_clear: bool = 6[31:31], "clear";
    bits aggregate / set_aggregate: bool = 6[30:30], "aggregate";
    bits counter_set_id / set_counter_set_id: u8 = 7[7:0], "counter_set_id";
}

layout! {
    /// Output of QUERY_Q_COUNTER.
    pub struct QueryQueueCounterOut, "query_q_counter_out", 64;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits rx_write_requests / set_rx_write_requests: u32 = 4[31:0], "rx_write_requests";
    bits rx_read_requests / set_rx_read_requests: u32 = 6[31:0], "rx_read_requests";
    bits rx_atomic_requests / set_rx_atomic_requests: u32 = 8[31:0], "rx_atomic_requests";
    bits rx_dct_connect / set_rx_dct_connect: u32 = 10[31:0], "rx_dct_connect";
    bits out_of_buffer / set_out_of_buffer: u32 = 12[31:0], "out_of_buffer";
    bits out_of_sequence / set_out_of_sequence: u32 = 14[31:0], "out_of_sequence";
    bits duplicate_request / set_duplicate_request: u32 = 16[31:0], "duplicate_request";
    bits rnr_nak_retry_err / set_rnr_nak_retry_err: u32 = 18[31:0], "rnr_nak_retry_err";
    bits packet_seq_err / set_packet_seq_err: u32 = 20[31:0], "packet_seq_err";
    bits implied_nak_seq_err / set_implied_nak_seq_err: u32 = 22[31:0], "implied_nak_seq_err";
    bits local_ack_timeout_err / set_local_ack_timeout_err: u32 = 24[31:0], "local_ack_timeout_err";
    bits req_rnr_retries_exceeded / set_req_rnr_retries_exceeded: u32 = 28[31:0], "req_rnr_retries_exceeded";
    bits resp_local_length_error / set_resp_local_length_error: u32 = 30[31:0], "resp_local_length_error";
    bits req_local_length_error / set_req_local_length_error: u32 = 31[31:0], "req_local_length_error";
    bits resp_local_qp_error / set_resp_local_qp_error: u32 = 32[31:0], "resp_local_qp_error";
    bits local_operation_error / set_local_operation_error: u32 = 33[31:0], "local_operation_error";
    bits resp_local_protection / set_resp_local_protection: u32 = 34[31:0], "resp_local_protection";
    bits req_local_protection / set_req_local_protection: u32 = 35[31:0], "req_local_protection";
    bits resp_cqe_error / set_resp_cqe_error: u32 = 36[31:0], "resp_cqe_error";
    bits req_cqe_error / set_req_cqe_error: u32 = 37[31:0], "req_cqe_error";
    bits req_mw_binding / set_req_mw_binding: u32 = 38[31:0], "req_mw_binding";
    bits req_bad_response / set_req_bad_response: u32 = 39[31:0], "req_bad_response";
    bits req_remote_invalid_request / set_req_remote_invalid_request: u32 = 40[31:0], "req_remote_invalid_request";
    bits resp_remote_invalid_request / set_resp_remote_invalid_request: u32 = 41[31:0], "resp_remote_invalid_request";
    bits req_remote_access_errors / set_req_remote_access_errors: u32 = 42[31:0], "req_remote_access_errors";
    bits resp_remote_access_errors / set_resp_remote_access_errors: u32 = 43[31:0], "resp_remote_access_errors";
    bits req_remote_operation_errors / set_req_remote_operation_errors: u32 = 44[31:0], "req_remote_operation_errors";
    bits req_transport_retries_exceeded / set_req_transport_retries_exceeded: u32 = 45[31:0], "req_transport_retries_exceeded";
    bits cq_overflow / set_cq_overflow: u32 = 46[31:0], "cq_overflow";
    bits resp_cqe_flush_error / set_resp_cqe_flush_error: u32 = 47[31:0], "resp_cqe_flush_error";
    bits req_cqe_flush_error / set_req_cqe_flush_error: u32 = 48[31:0], "req_cqe_flush_error";
    bits roce_adp_retrans / set_roce_adp_retrans: u32 = 50[31:0], "roce_adp_retrans";
    bits roce_adp_retrans_to / set_roce_adp_retrans_to: u32 = 51[31:0], "roce_adp_retrans_to";
    bits roce_slow_restart / set_roce_slow_restart: u32 = 52[31:0], "roce_slow_restart";
    bits roce_slow_restart_cnps / set_roce_slow_restart_cnps: u32 = 53[31:0], "roce_slow_restart_cnps";
    bits roce_slow_restart_trans / set_roce_slow_restart_trans: u32 = 54[31:0], "roce_slow_restart_trans";
}

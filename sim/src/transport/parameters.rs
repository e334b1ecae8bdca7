//! The parameters of a reliable connection, and the two timer tables of the IBTA specification.

use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Duration;

/// The parameters of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// First PSN to send.
    pub send_psn: Psn,
    /// First PSN to expect.
    pub receive_psn: Psn,
    /// Local ACK timeout exponent: 4.096 µs × 2^n; 0 disables the timer. IBTA v1.4 §9.7.6.1.3.
    pub ack_timeout: u8,
    /// How many of these timeouts the timer runs, 1 to 4: the specification allows up to four times the
    /// timeout.
    pub ack_timeout_factor: u8,
    /// Retries after a timeout or a sequence error, 0 to 7.
    pub retry_count: u8,
    /// Retries after an RNR NAK; 7 means no limit.
    pub rnr_retry: u8,
    /// RNR timer code sent in RNR NAKs, 5 bits. IBTA v1.4 table 45.
    pub min_rnr_timer: u8,
    /// READs and atomics that may be outstanding as requester.
    pub max_outstanding_reads: u8,
    /// READs and atomics that the responder remembers.
    pub max_remembered_reads: u8,
}

/// Local ACK timeout of exponent `n`; `None` means no timeout.
pub const fn ack_timeout(exponent: u8) -> Option<Duration> {
    if exponent == 0 { None } else { Some(Duration::from_picos(4_096_000 << (exponent & 31))) }
}

/// RNR timer of a five-bit code, in units of 10 µs. IBTA v1.4 table 45.
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// How long a requester waits after an RNR NAK with timer code `code`. Only the low five bits count.
pub const fn rnr_timer(code: u8) -> Duration {
    Duration::from_micros(RNR_TIMER[(code & 31) as usize] as u64 * 10)
}

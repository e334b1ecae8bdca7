//! How long requests took until they were acknowledged: all of them, and by kind.

use bareverbs_sim::wire::OperationKind;
use hdrhistogram::Histogram;

/// Longest latency in a histogram: an hour.
const LONGEST: u64 = 3_600_000_000_000;
/// Significant digits.
const DIGITS: u8 = 3;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Send,
    Write,
    Read,
    Atomic,
    Kernel,
    Other,
}

impl RequestKind {
    const ALL: [Self; 6] = [Self::Send, Self::Write, Self::Read, Self::Atomic, Self::Kernel, Self::Other];

    pub(super) const fn of(operation: OperationKind) -> Self {
        match operation {
            OperationKind::Send => Self::Send,
            OperationKind::Write => Self::Write,
            OperationKind::ReadRequest => Self::Read,
            OperationKind::CompareSwap | OperationKind::FetchAdd => Self::Atomic,
            OperationKind::RpcParams | OperationKind::RpcWrite => Self::Kernel,
            _ => Self::Other,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "RDMA WRITE",
            Self::Read => "RDMA READ",
            Self::Atomic => "atomics",
            Self::Kernel => "calls of kernels",
            Self::Other => "other requests",
        }
    }
}

/// A histogram of all requests, and one of each kind.
#[derive(Debug)]
pub(super) struct Latencies {
    pub(super) all: Histogram<u64>,
    kinds: [Histogram<u64>; RequestKind::ALL.len()],
}

impl Latencies {
    pub(super) fn new() -> anyhow::Result<Self> {
        let empty = Histogram::new_with_bounds(1, LONGEST, DIGITS)?;
        Ok(Self { kinds: core::array::from_fn(|_| empty.clone()), all: empty })
    }

    pub(super) fn record(&mut self, kind: RequestKind, nanos: u64) {
        let nanos = nanos.max(1);
        self.all.saturating_record(nanos);
        self.kinds[kind as usize].saturating_record(nanos);
    }

    /// Kinds that occur.
    pub(super) fn by_kind(&self) -> impl Iterator<Item = (RequestKind, &Histogram<u64>)> {
        RequestKind::ALL.into_iter().zip(&self.kinds).filter(|(_, histogram)| !histogram.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_sim::wire::BthOpcode;

    #[test]
    fn a_kind_has_a_histogram_of_its_own() {
        let mut latencies = Latencies::new().expect("histograms");
        let opcodes =
            [BthOpcode::SendOnly, BthOpcode::ReadRequest, BthOpcode::FetchAdd, BthOpcode::CompareSwap];
        for (at, opcode) in opcodes.into_iter().enumerate() {
            latencies.record(RequestKind::of(opcode.kind()), at as u64 * 1000);
        }
        let counts: Vec<_> = latencies.by_kind().map(|(kind, found)| (kind.name(), found.len())).collect();
        assert_eq!(counts, [("SEND", 1), ("RDMA READ", 1), ("atomics", 2)]);
        assert_eq!((latencies.all.len(), latencies.all.min()), (4, 1), "no time counts as a nanosecond");
    }
}

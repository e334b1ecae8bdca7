//! What is measured and how: the options of a run after they were checked against each other.

use super::run_options::RunControl;
use crate::seat::{GidSelection, Seat};
use anyhow::{Result, ensure};
use bareverbs_prm::numbering::PathMtu;
use bareverbs_prm::time::Duration;
use serde::Serialize;

/// Bytes over which small messages are spread. perftest uses the larger one of both ends; ours has the usual
/// value.
pub(crate) const CYCLE_BUFFER: u32 = bareverbs_perftest::exchange::CYCLE_BUFFER;
/// Distance between small messages.
pub(crate) const CACHE_LINE: u32 = bareverbs_perftest::exchange::CACHE_LINE;

/// The operation under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    Write,
    Read,
    Send,
    FetchAdd,
    CompareSwap,
}

impl Operation {
    pub(crate) const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Whether the client waits for data from the server's memory, so that a round trip is one operation.
    pub(crate) const fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::FetchAdd | Self::CompareSwap)
    }
}

/// What is measured about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    Bandwidth,
    Latency,
}

/// Services of queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Transport {
    Rc,
    Uc,
    Ud,
    Xrc,
}

/// How long a size is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amount {
    /// This many messages on each queue pair.
    Iterations(u64),
    /// This long; the margins at the beginning and at the end do not count.
    Time { total: Duration, margin: Duration },
}

/// A rate limit, with bursts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateLimit {
    pub(crate) rate: f64,
    pub(crate) unit: RateUnit,
    /// Messages per burst.
    pub(crate) burst: u32,
}

/// Units of `--rate_limit`, as perftest writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RateUnit {
    /// MiB/s.
    #[value(name = "M")]
    Mebibytes,
    /// 10^9 bit/s.
    #[value(name = "g")]
    Gigabits,
    /// Messages/s.
    #[value(name = "p")]
    Messages,
}

/// The checked options.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TestPlan {
    pub(crate) operation: Operation,
    pub(crate) measure: Measure,
    pub(crate) transport: Transport,
    /// Bytes of a message; more than one with `-a`.
    pub(crate) sizes: Vec<u32>,
    /// `-a`: both ends synchronise between sizes.
    pub(crate) all_sizes: bool,
    pub(crate) amount: Amount,
    pub(crate) queue_pairs: u32,
    pub(crate) post_list: u32,
    pub(crate) tx_depth: u32,
    pub(crate) rx_depth: u32,
    /// Number of sends per completion.
    pub(crate) cq_moderation: u32,
    pub(crate) bidirectional: bool,
    pub(crate) events: bool,
    pub(crate) inline: u32,
    pub(crate) mtu: Option<PathMtu>,
    pub(crate) outstanding: u8,
    /// The requested entry of this end's GID table.
    pub(crate) gid_selection: GidSelection,
    /// The peer's LID, if it is not the one that the peer announces.
    pub(crate) peer_lid: Option<u16>,
    pub(crate) pkey_index: u16,
    pub(crate) ack_timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) service_level: u8,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) rate_limit: Option<RateLimit>,
    /// `-R`: both ends meet by RDMA CM.
    pub(crate) rdma_cm: bool,
    /// `--use-srq`: all queue pairs of an end receive from one shared receive queue.
    pub(crate) shared_receives: bool,
    /// Whether messages carry immediate data. An RDMA WRITE then consumes a receive of the peer.
    pub(crate) immediate: bool,
    /// Whether every latency is kept, to be listed.
    pub(crate) keeps_samples: bool,
    pub(crate) peak: bool,
    pub(crate) gigabits: bool,
    /// Longest time without any activity.
    pub(crate) timeout: std::time::Duration,
    /// `--run_infinitely`: the time in `amount` is that of one row, and rows continue until somebody
    /// interrupts.
    pub(crate) endless: bool,
    /// Cycles per microsecond, if latencies are shown in cycles.
    pub(crate) cycles: Option<f64>,
    pub(crate) run: RunControl,
}

/// How long an end may wait for the other to be interrupted. If the other one leaves before, the wait ends.
const ENDLESS: std::time::Duration = std::time::Duration::from_secs(30 * 86_400);

impl TestPlan {
    pub(crate) fn largest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Whether each connection has two queue pairs at an end: with XRC one sends and another answers, and
    /// this end does both.
    pub(crate) fn has_separate_ends(&self) -> bool {
        self.transport == Transport::Xrc && (self.bidirectional || self.measure == Measure::Latency)
    }

    /// Size of the slot that one queue pair sends from, or receives into.
    pub(crate) fn room(&self) -> usize {
        self.largest().max(CYCLE_BUFFER) as usize
    }

    /// The offset of message number `index` of a size in that slot: small messages cycle through its
    /// beginning in steps of cache lines. Latency is measured at its beginning.
    pub(crate) fn slot(&self, size: u32, index: u64) -> usize {
        let slots = self.slots(size);
        let step = step_of(size);
        ((index % u64::from(slots)) * u64::from(step)) as usize
    }

    /// How many messages of a size lie side by side. With a shared receive queue, nobody knows beforehand
    /// which message takes which receive; so they all lie at the beginning, and a byte has the same offset
    /// whatever message brought it.
    pub(crate) fn slots(&self, size: u32) -> u32 {
        if self.measure == Measure::Latency || self.shared_receives || size > CYCLE_BUFFER / 2 {
            return 1;
        }
        CYCLE_BUFFER / step_of(size)
    }

    /// Whether this end sends: the client always does, and the server unless the test is one-sided and
    /// one-way.
    pub(crate) fn sends(&self, is_client: bool) -> bool {
        let both = self.measure == Measure::Latency && !self.operation.fetches();
        is_client || self.bidirectional || both
    }

    /// Whether a message consumes a receive of the peer.
    pub(crate) fn takes_receives(&self) -> bool {
        self.operation == Operation::Send || self.immediate
    }

    /// Whether this end posts receives for the peer's messages.
    pub(crate) fn receives(&self, is_client: bool) -> bool {
        let both = self.bidirectional || self.measure == Measure::Latency;
        self.takes_receives() && (both || !is_client)
    }

    /// Receives posted for each queue pair before the first message.
    pub(crate) fn receives_each(&self) -> u32 {
        if self.shared_receives { self.rx_depth / self.queue_pairs } else { self.rx_depth }
    }

    /// How long an idle end may wait.
    pub(crate) fn idle_timeout(&self) -> std::time::Duration {
        match self.amount {
            _ if self.endless => ENDLESS,
            Amount::Time { total, .. } => {
                self.timeout + std::time::Duration::from_nanos(total.as_picos() / 1000)
            }
            Amount::Iterations(_) => self.timeout,
        }
    }

    /// The index of this end's GID. Refuses one that the port does not have.
    pub(crate) fn gid_index(&self, seat: &Seat) -> Result<u8> {
        ensure!(self.peer_lid.is_none() || seat.gids.is_empty(), "--dlid: an Ethernet port has no LIDs");
        seat.gid_index(&self.gid_selection)
    }

    /// Whether an end is the client of the traffic: the one that connects, unless the test is reversed.
    pub(crate) const fn is_client(&self, connects: bool) -> bool {
        connects != self.run.reversed
    }

    /// The uncounted messages before the counted ones, as with perftest: a list, or a full send queue.
    pub(crate) fn of_warm_up(&self) -> Option<Self> {
        let messages = if self.post_list > 1 { self.post_list } else { self.tx_depth };
        let (amount, rate_limit) = (Amount::Iterations(messages.into()), None);
        self.run.warms_up.then(|| Self { amount, rate_limit, ..self.clone() })
    }

    /// Whether the last byte of a message is its number, because nothing else announces it to the peer.
    pub(crate) fn numbers_messages(&self) -> bool {
        self.operation == Operation::Write && self.measure == Measure::Latency && !self.immediate
    }
}

/// Bytes from the beginning of a message to that of the next.
pub(super) fn step_of(size: u32) -> u32 {
    size.max(1).next_multiple_of(CACHE_LINE)
}

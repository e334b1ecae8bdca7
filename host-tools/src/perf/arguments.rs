//! The command line: perftest's options under perftest's names, with consistency checks.

use super::foreign::ForeignArguments;
use super::lane::MOST_INLINE;
use super::output_arguments::{MOST_LISTED, OutputArguments, parse_rate};
use super::placement::PlacementArguments;
use super::plan::{Amount, Measure, Operation, RateLimit, RateUnit, TestPlan, Transport};
use super::processors::cycles_per_microsecond;
use super::run_control::RunControlArguments;
use crate::seat::{GidSelection, SeatArguments};
use anyhow::{Result, bail, ensure};
use bareverbs_prm::numbering::PathMtu;
use bareverbs_prm::time::Duration;
use clap::{Args, ValueEnum};
use std::net::IpAddr;

/// Largest message of `-a`, 2^23 bytes.
const LOG_LARGEST: u32 = 23;
/// Most bytes of a message.
const LARGEST: u32 = 1 << 30;
/// From this size on every send of a bandwidth test is signalled, unless -Q says otherwise.
const MODERATED_BELOW: u32 = 8192;
/// perftest's defaults.
const TX_DEPTH: u32 = 128;
const RX_DEPTH: u32 = 512;
const CQ_MODERATION: u32 = 100;
const ITERATIONS: u64 = 1000;
const WRITE_BANDWIDTH_ITERATIONS: u64 = 5000;
const OUTSTANDING_READS: u8 = 16;
/// Seconds of the shortest and of the longest test.
const SHORTEST: f64 = 0.001;
const LONGEST: f64 = 86_400.0;

/// What is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verb {
    /// RDMA WRITE, as ib_write_bw and ib_write_lat.
    Write,
    /// RDMA READ, as ib_read_bw and ib_read_lat.
    Read,
    /// SEND, as ib_send_bw and ib_send_lat.
    Send,
    /// 8-byte atomics, as ib_atomic_bw and ib_atomic_lat.
    Atomic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FigureKind {
    /// How much.
    Bw,
    /// How long.
    Lat,
}

/// Reads the seconds of `--duration`, which may have a fraction.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text} is not a number of seconds"))?;
    if !(SHORTEST..=LONGEST).contains(&seconds) {
        return Err(format!("{text} is not in {SHORTEST} to {LONGEST} seconds"));
    }
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// Connection types. Dynamic connections are refused with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ConnectionType {
    #[value(name = "RC", alias = "rc")]
    Rc,
    #[value(name = "UC", alias = "uc")]
    Uc,
    #[value(name = "UD", alias = "ud")]
    Ud,
    #[value(name = "XRC", alias = "xrc")]
    Xrc,
    #[value(name = "DC", alias = "dc")]
    Dc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AtomicType {
    #[value(name = "FETCH_AND_ADD")]
    FetchAndAdd,
    #[value(name = "CMP_AND_SWAP")]
    CompareAndSwap,
}

/// Arguments of `bareverbs perf`.
#[derive(Debug, Clone, Args)]
pub struct PerfArguments {
    /// Operation to test.
    verb: Verb,
    /// Bandwidth or latency.
    kind: FigureKind,
    /// Where the peer listens: an `ib_*` program or `bareverbs perf`. Without it this end listens, with --host, vfio-user or a PCI
    /// function; on `sim` alone both ends are in this process.
    pub(crate) peer: Option<String>,
    #[command(flatten)]
    pub(crate) seat: SeatArguments,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    run: RunControlArguments,
    #[command(flatten)]
    pub(crate) placement: PlacementArguments,
    #[command(flatten)]
    path: PathArguments,
    #[command(flatten)]
    pub(crate) report: OutputArguments,
    #[command(flatten)]
    foreign: ForeignArguments,
}

/// How much of what is sent.
#[derive(Debug, Clone, Args)]
struct LoadArguments {
    /// All sizes from 2 to 2^23 bytes, or up to the path MTU for datagrams.
    #[arg(short, long, conflicts_with = "size")]
    all: bool,
    /// Message size in bytes. [default: 65536 for bw, 2 for lat, 8 for atomics]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=i64::from(LARGEST)))]
    size: Option<u32>,
    /// Messages per queue pair and size. [default: 1000, write bw 5000]
    #[arg(short = 'n', long = "iters", value_parser = clap::value_parser!(u64).range(5..=100_000_000), conflicts_with = "duration")]
    iterations: Option<u64>,
    /// Duration in seconds, such as 10 or 0.2, instead of a number of messages.
    #[arg(short = 'D', long, value_parser = parse_duration, conflicts_with = "all")]
    duration: Option<Duration>,
    /// Repeat the test, with a row for each --duration, until this end gets SIGINT (Ctrl-C).
    #[arg(
        long = "run_infinitely",
        alias = "run-infinitely",
        requires = "duration",
        conflicts_with = "margin"
    )]
    endless: bool,
    /// Seconds to ignore at the beginning and end of --duration. [default: a quarter of it, in whole seconds]
    #[arg(short = 'f', long, requires = "duration")]
    margin: Option<u64>,
    /// Test both directions.
    #[arg(short, long)]
    bidirectional: bool,
    /// Number of queue pairs.
    #[arg(short = 'q', long = "qp", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    queue_pairs: u32,
    /// Messages posted per doorbell.
    #[arg(short = 'l', long = "post_list", alias = "post-list", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8192))]
    post_list: u32,
    /// Most outstanding sends. [default: 128 for bw, 1 for lat]
    #[arg(short = 't', long = "tx-depth", alias = "tx_depth", value_parser = clap::value_parser!(u32).range(1..=15_000))]
    tx_depth: Option<u32>,
    /// Receives to keep posted.
    #[arg(short = 'r', long = "rx-depth", alias = "rx_depth", default_value_t = RX_DEPTH, value_parser = clap::value_parser!(u32).range(1..=15_000))]
    rx_depth: u32,
    /// Sends per completion. [default: 100; 1 from 8 KiB on; the length of --post_list]
    #[arg(short = 'Q', long = "cq-mod", alias = "cq_mod", value_parser = clap::value_parser!(u32).range(1..=1024))]
    cq_moderation: Option<u32>,
    /// Wait for an event before polling for completions.
    #[arg(short, long, conflicts_with = "duration")]
    events: bool,
    /// Largest inline message. [default: 0 for bw; for lat write 220, send 236, UD 188]
    #[arg(short = 'I', long = "inline_size", alias = "inline-size", value_parser = clap::value_parser!(u32).range(0..=MOST_INLINE as i64))]
    inline: Option<u32>,
    /// Outstanding RDMA READs and atomics.
    #[arg(short = 'o', long = "outs", default_value_t = OUTSTANDING_READS, value_parser = clap::value_parser!(u8).range(1..=16))]
    outstanding: u8,
    /// Rate limit, in --rate_units.
    #[arg(long = "rate_limit", alias = "rate-limit", value_parser = parse_rate)]
    rate_limit: Option<f64>,
    /// Unit of --rate_limit: g (10^9 bit/s), M (MiB/s) or p (messages/s).
    #[arg(long = "rate_units", alias = "rate-units", default_value = "M", requires = "rate_limit")]
    rate_units: RateUnit,
    /// Messages per burst under --rate_limit.
    #[arg(long = "burst_size", alias = "burst-size", default_value_t = 1, requires = "rate_limit", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    burst: u32,
    /// Use one shared receive queue for all queue pairs of an end: `send` over RC. XRC always uses shared ones.
    #[arg(long = "use-srq", alias = "use_srq")]
    shared_receives: bool,
    /// Send immediate data with every RDMA WRITE, which thus consumes a receive of the peer, as with ib_write_* of
    /// perftest 25.01.
    #[arg(long = "write_with_imm", alias = "write-with-imm")]
    write_immediate: bool,
    /// Send immediate data with every SEND.
    #[arg(long = "send_with_imm", alias = "send-with-imm")]
    send_immediate: bool,
    /// Atomic operation.
    #[arg(short = 'A', long = "atomic_type", alias = "atomic-type", default_value = "FETCH_AND_ADD")]
    atomic_type: AtomicType,
}

/// How the ends reach each other.
#[derive(Debug, Clone, Args)]
struct PathArguments {
    /// Connection type: RC, UC, UD or XRC.
    #[arg(short, long, default_value = "RC")]
    connection: ConnectionType,
    /// Port where the ends meet: of TCP, or with -R of RDMA CM.
    #[arg(short, long, default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Path MTU in bytes. [default: that of the port]
    #[arg(short, long, value_parser = parse_mtu)]
    mtu: Option<PathMtu>,
    /// GID index. [default: the first RoCEv2 entry, IPv4 before IPv6; on InfiniBand none]
    #[arg(short = 'x', long = "gid-index", alias = "gid_index")]
    gid_index: Option<u8>,
    /// Use the first IPv6 GID.
    #[arg(long, conflicts_with = "gid_index")]
    ipv6: bool,
    /// Use the GID with this address.
    #[arg(long = "bind_source_ip", alias = "bind-source-ip", value_name = "ADDRESS", conflicts_with_all = ["gid_index", "ipv6"])]
    source: Option<IpAddr>,
    /// Meet over IPv6 instead of IPv4.
    #[arg(long = "ipv6-addr", alias = "ipv6_addr", conflicts_with = "rdma_cm")]
    meets_by_ipv6: bool,
    /// P_Key index.
    #[arg(long = "pkey_index", alias = "pkey-index", default_value_t = 0, conflicts_with = "rdma_cm")]
    pkey_index: u16,
    /// Reach the peer by this LID instead of the one it announces.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..0xc000), conflicts_with = "rdma_cm")]
    dlid: Option<u16>,
    /// Local ACK timeout: 4.096 µs times 2 to this power.
    #[arg(short = 'u', long = "qp-timeout", alias = "qp_timeout", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31))]
    ack_timeout: u8,
    /// Retries after an ACK timeout.
    #[arg(long = "retry_count", alias = "retry-count", default_value_t = 7, value_parser = clap::value_parser!(u8).range(0..=7))]
    retry_count: u8,
    /// Service level.
    #[arg(short = 'S', long = "sl", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    service_level: u8,
    /// Traffic class: differentiated services and congestion bits.
    #[arg(short = 'T', long = "tclass", alias = "tos", default_value_t = 0)]
    traffic_class: u8,
    /// Flow label.
    #[arg(long = "flow_label", alias = "flow-label", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..1 << 20))]
    flow_label: u32,
    /// Hop limit.
    #[arg(short = 'L', long = "hop_limit", alias = "hop-limit", default_value_t = 64)]
    hop_limit: u8,
    /// Meet and connect with RDMA CM: RC or UD. Name the peer by its RDMA address.
    #[arg(short = 'R', long = "rdma_cm", alias = "rdma-cm")]
    rdma_cm: bool,
    /// Longest inactivity in seconds: no connection, no answer of the peer, no message.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl PathArguments {
    fn gid_selection(&self) -> GidSelection {
        match (self.gid_index, self.source) {
            (Some(index), _) => GidSelection::Index(index),
            (None, Some(address)) => GidSelection::Address(address),
            (None, None) if self.ipv6 => GidSelection::IPv6,
            (None, None) => GidSelection::Any,
        }
    }
}

fn parse_mtu(text: &str) -> Result<PathMtu, String> {
    Ok(match text {
        "256" => PathMtu::Mtu256,
        "512" => PathMtu::Mtu512,
        "1024" => PathMtu::Mtu1024,
        "2048" => PathMtu::Mtu2048,
        "4096" => PathMtu::Mtu4096,
        _ => return Err(format!("{text:?} is not a path MTU; use 256, 512, 1024, 2048 or 4096")),
    })
}

impl PerfArguments {
    /// Port on which the ends meet: of TCP, or with -R of RDMA CM.
    pub(crate) const fn port(&self) -> u16 {
        self.path.port
    }

    /// Whether the ends meet over IPv6.
    pub(crate) const fn meets_by_ipv6(&self) -> bool {
        self.path.meets_by_ipv6
    }

    /// The options, checked.
    pub(crate) fn plan(&self) -> Result<TestPlan> {
        let plan = self.planned()?;
        plan.run.check(&plan)?;
        Ok(plan)
    }

    fn planned(&self) -> Result<TestPlan> {
        let (load, path) = (&self.load, &self.path);
        self.foreign.check()?;
        let measure = if self.kind == FigureKind::Bw { Measure::Bandwidth } else { Measure::Latency };
        let operation = self.operation();
        let transport = self.transport(operation)?;
        self.check_measure(measure)?;
        self.report.check(measure)?;
        self.check_receives(operation, transport)?;
        let immediate = load.write_immediate || load.send_immediate;
        ensure!(
            !(load.events && operation == Operation::Write && measure == Measure::Latency && !immediate),
            "-e: the receiver of an RDMA WRITE gets no completion, so no event reports it; it polls its memory"
        );
        let amount = self.amount(operation, measure)?;
        let count = match amount {
            Amount::Iterations(count) => u32::try_from(count).unwrap_or(u32::MAX),
            Amount::Time { .. } => u32::MAX,
        };
        let default_depth = if measure == Measure::Bandwidth { TX_DEPTH } else { 1 };
        let tx_depth = load.tx_depth.unwrap_or(default_depth).min(count).max(load.post_list);
        let sizes = self.sizes(operation, measure)?;
        Ok(TestPlan {
            operation,
            measure,
            transport,
            all_sizes: load.all && !operation.is_atomic(),
            cq_moderation: self.cq_moderation(&sizes, transport)?.min(tx_depth),
            inline: self.inline(operation, measure, transport)?,
            sizes,
            amount,
            queue_pairs: load.queue_pairs,
            post_list: load.post_list,
            tx_depth,
            rx_depth: match (operation == Operation::Send || immediate, load.shared_receives) {
                (true, true) => load.rx_depth.min(count.saturating_mul(load.queue_pairs)),
                (true, false) => load.rx_depth.min(count),
                (false, _) => 1,
            },
            shared_receives: load.shared_receives && transport == Transport::Rc,
            immediate,
            keeps_samples: self.report.lists(),
            bidirectional: load.bidirectional,
            events: load.events,
            mtu: path.mtu,
            outstanding: load.outstanding,
            gid_selection: path.gid_selection(),
            peer_lid: path.dlid,
            pkey_index: path.pkey_index,
            ack_timeout: path.ack_timeout,
            retry_count: path.retry_count,
            service_level: path.service_level,
            traffic_class: path.traffic_class,
            flow_label: path.flow_label,
            hop_limit: path.hop_limit,
            rate_limit: load.rate_limit.map(|rate| RateLimit {
                rate,
                unit: load.rate_units,
                burst: load.burst,
            }),
            rdma_cm: path.rdma_cm,
            peak: !self.report.no_peak && matches!(amount, Amount::Iterations(_)),
            gigabits: self.report.gigabits,
            timeout: std::time::Duration::from_secs(path.timeout),
            endless: load.endless,
            cycles: self.report.cycles.then(cycles_per_microsecond).transpose()?,
            run: self.run.control()?,
        })
    }

    const fn operation(&self) -> Operation {
        match (self.verb, self.load.atomic_type) {
            (Verb::Write, _) => Operation::Write,
            (Verb::Read, _) => Operation::Read,
            (Verb::Send, _) => Operation::Send,
            (Verb::Atomic, AtomicType::FetchAndAdd) => Operation::FetchAdd,
            (Verb::Atomic, AtomicType::CompareAndSwap) => Operation::CompareSwap,
        }
    }

    fn transport(&self, operation: Operation) -> Result<Transport> {
        let transport = match self.path.connection {
            ConnectionType::Rc => Transport::Rc,
            ConnectionType::Uc => Transport::Uc,
            ConnectionType::Ud => Transport::Ud,
            ConnectionType::Xrc => Transport::Xrc,
            ConnectionType::Dc => {
                bail!("-c DC: the driver has no dynamically connected transport; use RC, XRC, UC or UD")
            }
        };
        ensure!(
            !self.path.rdma_cm || matches!(transport, Transport::Rc | Transport::Ud),
            "-R connects RC and UD queue pairs only, as in perftest: leave out -c or -R at both ends"
        );
        match (operation, transport) {
            (Operation::Send, _)
            | (_, Transport::Rc | Transport::Xrc)
            | (Operation::Write, Transport::Uc) => Ok(transport),
            (_, Transport::Uc) => {
                bail!("-c UC: an unreliable connection has no RDMA READ and no atomics; use RC")
            }
            (_, Transport::Ud) => bail!("-c UD: a datagram is a SEND; use `perf send`, or RC"),
        }
    }

    /// Options of what receives are.
    fn check_receives(&self, operation: Operation, transport: Transport) -> Result<()> {
        let load = &self.load;
        ensure!(
            !load.write_immediate || operation == Operation::Write,
            "--write_with_imm is for `perf write`, --send_with_imm for `perf send`"
        );
        ensure!(
            !load.send_immediate || operation == Operation::Send,
            "--send_with_imm is for `perf send`, --write_with_imm for `perf write`"
        );
        let takes_receives = operation == Operation::Send || load.write_immediate;
        ensure!(
            !load.endless || !load.bidirectional || !takes_receives,
            "--run_infinitely: where messages take receives, only one end can send, as with perftest; leave out -b"
        );
        if !load.shared_receives {
            return Ok(());
        }
        ensure!(
            operation == Operation::Send,
            "--use-srq is for `perf send`, as with perftest: it is about where messages are received"
        );
        ensure!(
            matches!(transport, Transport::Rc | Transport::Xrc),
            "--use-srq is for -c RC: with UC and UD a message that finds no receive is lost, and nothing would tell whose was missing"
        );
        ensure!(
            load.queue_pairs <= load.rx_depth,
            "--use-srq: -q {} queue pairs share -r {} receives, so that some would have none",
            load.queue_pairs,
            load.rx_depth
        );
        Ok(())
    }

    /// Options that only tests of bandwidth have, as with perftest.
    fn check_measure(&self, measure: Measure) -> Result<()> {
        let load = &self.load;
        let only_bandwidth = [
            (load.endless, "--run_infinitely"),
            (load.bidirectional, "-b"),
            (load.queue_pairs > 1, "-q"),
            (load.post_list > 1, "-l"),
            (load.rate_limit.is_some(), "--rate_limit"),
            (self.report.limit_bandwidth.is_some(), "-w"),
            (self.report.limit_message_rate.is_some(), "-y"),
        ];
        for (given, option) in only_bandwidth {
            ensure!(
                !given || measure == Measure::Bandwidth,
                "{option} is for bandwidth tests: a latency test has one message under way at a time"
            );
        }
        Ok(())
    }

    fn amount(&self, operation: Operation, measure: Measure) -> Result<Amount> {
        let load = &self.load;
        if let Some(total) = load.duration {
            let quarter = total.as_nanos() / 4_000_000_000;
            let margin = Duration::from_secs(if load.endless { 0 } else { load.margin.unwrap_or(quarter) });
            ensure!(
                total > margin.saturating_mul(2),
                "--duration {total} is not longer than both margins of {margin}; nothing would count"
            );
            return Ok(Amount::Time { total, margin });
        }
        let default = match (operation, measure) {
            (Operation::Write, Measure::Bandwidth) => WRITE_BANDWIDTH_ITERATIONS,
            _ => ITERATIONS,
        };
        let count = load.iterations.unwrap_or(default);
        ensure!(
            !self.report.lists() || count <= MOST_LISTED,
            "-H and -U list at most {MOST_LISTED} latencies of a size, and -n is {count}; --json has percentiles of any number"
        );
        ensure!(
            count.is_multiple_of(load.post_list.into()),
            "-n {count} is not a multiple of -l {}: the last list would be shorter",
            load.post_list
        );
        Ok(Amount::Iterations(count))
    }

    fn sizes(&self, operation: Operation, measure: Measure) -> Result<Vec<u32>> {
        let load = &self.load;
        if operation.is_atomic() {
            ensure!(load.size.is_none_or(|size| size == 8), "-s: atomics have 8 bytes");
            return Ok(vec![8]);
        }
        if load.all {
            return Ok((1..=LOG_LARGEST).map(|log| 1 << log).collect());
        }
        let default = if measure == Measure::Bandwidth { 65_536 } else { 2 };
        Ok(vec![load.size.unwrap_or(default)])
    }

    fn cq_moderation(&self, sizes: &[u32], transport: Transport) -> Result<u32> {
        let load = &self.load;
        if let Some(asked) = load.cq_moderation {
            ensure!(
                load.post_list == 1 || load.post_list.is_multiple_of(asked),
                "-l {} is not a multiple of -Q {asked}: no completion would report the end of a list",
                load.post_list
            );
            return Ok(asked);
        }
        let is_large = sizes.len() == 1 && sizes.iter().any(|size| *size > MODERATED_BELOW);
        Ok(match load.post_list {
            1 if is_large && transport != Transport::Ud && !load.events => 1,
            1 => CQ_MODERATION,
            list => list,
        })
    }

    fn inline(&self, operation: Operation, measure: Measure, transport: Transport) -> Result<u32> {
        let can = matches!(operation, Operation::Write | Operation::Send);
        ensure!(can || self.load.inline.is_none_or(|size| size == 0), "-I: a READ has no inline data");
        let default = match (operation, measure, transport) {
            (_, Measure::Bandwidth, _) => 0,
            (Operation::Write, ..) => 220,
            (Operation::Send, _, Transport::Ud) => 188,
            (Operation::Send, ..) => 236,
            _ => 0,
        };
        Ok(self.load.inline.unwrap_or(default))
    }
}

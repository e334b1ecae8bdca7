//! How a test runs apart from its load: pauses, warm-up, direction, memory and events.

use super::payload::read_payload;
use super::plan::{Amount, Measure, TestPlan, Transport};
use super::run_options::RunControl;
use anyhow::{Result, ensure};
use bareverbs_prm::time::Duration;
use clap::Args;
use std::path::PathBuf;

/// Options of a run.
#[derive(Debug, Clone, Args)]
pub(super) struct RunControlArguments {
    /// Microseconds to pause before each message of a latency test. The figures exclude this end's pauses but not the
    /// peer's.
    #[arg(long = "latency_gap", alias = "latency-gap", value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    latency_gap: u64,
    /// Swap roles: the listening end sends, reads and measures. Pass this at both ends.
    #[arg(long)]
    reversed: bool,
    /// Use one memory region per queue pair instead of one for all.
    #[arg(long = "mr_per_qp", alias = "mr-per-qp")]
    region_each: bool,
    /// Warm up with a queue full of uncounted messages before each size: bandwidth tests of WRITE, READ and atomics.
    #[arg(long = "perform_warm_up", alias = "perform-warm-up")]
    warms_up: bool,
    /// Seconds to keep the queue pairs after the test.
    #[arg(long = "wait_destroy", alias = "wait-destroy", value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    keep: u64,
    /// Receives posted per doorbell.
    #[arg(long = "recv_post_list", alias = "recv-post-list", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8192))]
    receive_list: u32,
    /// Interrupt vector of events.
    #[arg(short = 'X', long, requires = "events", default_value_t = 0)]
    vector: u16,
    /// With -D, an additional column: utilization of the machine's processors.
    #[arg(long = "cpu_util", alias = "cpu-util", requires = "duration", conflicts_with = "endless")]
    processor_use: bool,
    /// Data to send and expect: 32-bit words in a text file, such as "0x01234567, 0x89abcdef", repeated. Pass the same
    /// at both ends.
    #[arg(long = "payload_file_path", alias = "payload-file-path", value_name = "FILE")]
    payload: Option<PathBuf>,
}

impl RunControlArguments {
    /// The options, with the file that they name.
    pub(super) fn control(&self) -> Result<RunControl> {
        Ok(RunControl {
            gap: Duration::from_micros(self.latency_gap),
            reversed: self.reversed,
            region_each: self.region_each,
            warms_up: self.warms_up,
            keep: std::time::Duration::from_secs(self.keep),
            receive_list: self.receive_list,
            vector: self.vector,
            processor_use: self.processor_use,
            payload: self.payload.as_deref().map(read_payload).transpose()?,
        })
    }
}

impl RunControl {
    /// Whether these options fit the rest of the plan.
    pub(super) fn check(&self, plan: &TestPlan) -> Result<()> {
        let is_latency = plan.measure == Measure::Latency;
        ensure!(
            is_latency || self.gap == Duration::ZERO,
            "--latency_gap is for latency tests; in bandwidth tests --rate_limit spaces the messages"
        );
        let gap = std::time::Duration::from_nanos(self.gap.as_nanos());
        ensure!(
            gap < plan.timeout,
            "--latency_gap must be shorter than --timeout, the longest time without progress"
        );
        ensure!(
            !self.reversed || !plan.rdma_cm,
            "--reversed: with -R the end that asks for the connection sends; leave out one of them"
        );
        ensure!(
            !self.warms_up || !is_latency && !plan.takes_receives(),
            "--perform_warm_up is for bandwidth tests whose messages take no receives, as with perftest"
        );
        ensure!(
            self.payload.is_none() || !plan.operation.is_atomic(),
            "--payload_file_path: atomics work on numbers, not on bytes of a file"
        );
        self.check_receives(plan)
    }

    fn check_receives(&self, plan: &TestPlan) -> Result<()> {
        let list = self.receive_list;
        if list == 1 {
            return Ok(());
        }
        ensure!(
            plan.takes_receives() && plan.measure == Measure::Bandwidth,
            "--recv_post_list is for bandwidth tests whose messages take receives: `send bw`, or --write_with_imm"
        );
        ensure!(
            !plan.shared_receives && plan.transport != Transport::Xrc,
            "--recv_post_list: receives of a shared queue are posted one by one; leave out --use-srq or -c XRC"
        );
        ensure!(
            plan.rx_depth.is_multiple_of(list),
            "--recv_post_list {list}: {} receives (-r, at most -n) are not a multiple of that",
            plan.rx_depth
        );
        if let Amount::Iterations(count) = plan.amount {
            ensure!(
                count.is_multiple_of(list.into()),
                "-n {count} is not a multiple of --recv_post_list {list}: the last list would be shorter"
            );
        }
        Ok(())
    }
}

//! The timing of probes: when the next one leaves, and how long to wait for its answer.

use super::tally::{ProbeTally, Reply};
use crate::output::print;
use anyhow::Result;
use bareverbs_core::hal::Hal;
use bareverbs_prm::time::{Duration, Time};

/// Bytes of a probe over the test's own queue pair.
pub(super) const SIZE: u32 = 64;
/// Probes and answers that are posted at a time.
pub(super) const DEPTH: u32 = 64;

/// Number and times of probes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeSchedule {
    pub(super) count: u64,
    /// Time between two probes.
    pub(super) interval: Duration,
    /// Time that an answer may take.
    pub(super) timeout: Duration,
}

/// A path to the peer and back.
pub(super) trait Probe {
    /// Whether another probe can be posted now.
    fn may_send(&self) -> bool;
    /// Sends probe `number`.
    fn send(&mut self, number: u64) -> Result<()>;
    /// The numbers that have come back since the last call.
    fn take(&mut self) -> Result<Vec<u64>>;
}

/// Sends probes and counts answers.
pub(super) struct Prober<'a, H> {
    pub(super) hal: &'a H,
    pub(super) schedule: ProbeSchedule,
    /// Longest sleep between two polls.
    pub(super) rest: Duration,
    /// The peer's address in the fabric.
    pub(super) peer: &'a str,
    /// Whether to hide single answers.
    pub(super) quiet: bool,
}

/// The results of all probes, and how long they took.
pub(super) struct Probed {
    pub(super) tally: ProbeTally,
    pub(super) elapsed: Duration,
    /// Why not all probes could be sent.
    pub(super) failure: Option<anyhow::Error>,
}

impl<H: Hal> Prober<'_, H> {
    /// Sends all probes and takes the answers, until all are answered or the time of the last is over. A
    /// broken path ends the test, and unanswered probes are lost.
    pub(super) fn probe(&self, way: &mut dyn Probe) -> Result<Probed> {
        let mut tally = ProbeTally::new(self.schedule.timeout)?;
        let begin = self.hal.now();
        let failure = self.probe_all(way, &mut tally).err();
        Ok(Probed { tally, elapsed: self.hal.now().since(begin), failure })
    }

    fn probe_all(&self, way: &mut dyn Probe, tally: &mut ProbeTally) -> Result<()> {
        let ProbeSchedule { count, interval, timeout } = self.schedule;
        let mut next = self.hal.now();
        let mut deadline = next + timeout;
        loop {
            let now = self.hal.now();
            if tally.sent() < count && now >= next && way.may_send() {
                way.send(tally.send(now))?;
                next = now + interval;
                deadline = now + timeout;
            }
            for number in way.take()? {
                self.tell(number, tally.answer(self.hal.now(), number));
            }
            if tally.sent() == count && (tally.lost() == 0 || now >= deadline) {
                return Ok(());
            }
            // Without this check, a send queue that stays full would mean an endless wait.
            anyhow::ensure!(
                tally.sent() == count || now < next + timeout,
                "the send queue accepted no probe for {timeout}"
            );
            let wakeup: Time = if tally.sent() < count { next } else { deadline };
            self.hal.relax(wakeup.min(now + self.rest).max(now));
        }
    }

    fn tell(&self, number: u64, reply: Reply) {
        if self.quiet {
            return;
        }
        let peer = self.peer;
        let millis = |picos: u64| picos as f64 / 1e9;
        let line = match reply {
            Reply::First { picos } => format!("Pong from {peer}: seq {number} time {:.3} ms", millis(picos)),
            Reply::Late { picos } => {
                format!(
                    "Pong from {peer}: seq {number} time {:.3} ms, too late: counted as lost",
                    millis(picos)
                )
            }
            Reply::Duplicate => format!("Pong from {peer}: seq {number} DUPLICATE"),
            Reply::Stray => format!("Pong from {peer}: seq {number} was never sent"),
        };
        // If nobody reads it, the exit status still has the result.
        let _ = print(&line);
    }
}

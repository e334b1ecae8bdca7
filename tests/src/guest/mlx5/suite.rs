//! rdma-core's own tests (`tests/` of rdma-core, over pyverbs), unmodified, as Debian's package `rdma-core`
//! installs them for the version of its libraries.
//!
//! Every test runs in a process of its own (`suite.py`), and its output is reported verbatim. A test that the
//! suite skips because it sees no device or no active port was not skipped for lack of a capability: that is
//! a failure.

use super::super::machine::Machine;
use super::super::table::{Entry, Verdict};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The runner, and its name beside the guest's sockets.
pub const RUNNER: (&str, &str) = ("suite.py", include_str!("suite.py"));
/// File of the results, in the guest.
const RESULTS: &str = "/tmp/suite.results";
/// Longest that one test may take; the slowest that pass need a third of it under emulation.
pub const TEST_LIMIT: Duration = Duration::from_secs(60);
/// How often results are fetched.
const FETCH_EVERY: Duration = Duration::from_secs(5);
/// Bytes that are fetched at once: less than the limit on the output of a guest's command.
const CHUNK: usize = 48 << 10;

/// Pages of 2 MiB that some tests want.
const HUGE_PAGES: u32 = 16;

/// Modules that every run asks on InfiniBand: the verbs that everybody uses.
pub const ON_INFINIBAND: &[&str] = &[
    "test_device",
    "test_pd",
    "test_mr",
    "test_cq",
    "test_cqex",
    "test_qp",
    "test_qpex",
    "test_srq",
    "test_atomic",
    "test_addr",
    "test_cq_events",
    "test_shared_pd",
    "test_parent_domain",
    "test_fork",
    "test_relaxed_ordering",
    "test_mlx5_cq",
    "test_mlx5_uar",
    "test_mlx5_query_port",
    "test_mlx5_raw_wqe",
];

/// Modules that every run includes on Ethernet: they need network devices, IP addresses and flows.
pub const ON_ETHERNET: &[&str] = &["test_flow", "test_rdmacm", "test_rss_traffic"];

/// Skips that say that the test saw no device rather than that a capability is missing.
const NO_SKIPS: &[&str] = &["No IB devices found", "No supported port is up", "Failed to"];
/// How a skip begins whose reason is what the device or its driver answered to a thing that it lacks.
const LACKS: &str = "Operation not supported (";

/// Tests for which no InfiniBand port has what they look for, and why.
const NOT_ON_INFINIBAND: &[(&str, &str)] = &[(
    "test_mlx5_udp_sport.UdpSportTestCase.test_rc_modify_udp_sport",
    "it looks for a port with a GID of RoCEv2, whose UDP port it sets; packets of InfiniBand have none",
)];

/// Runs the tests of `names` (all if there are none) and gives an entry a test, in the order of the suite.
pub fn run(machine: &mut Machine, names: &[&str], limit: Duration, mut add: impl FnMut(Entry)) -> Result<()> {
    let runner = Machine::path_inside(RUNNER.0);
    let command = format!(
        "echo {HUGE_PAGES} >/proc/sys/vm/nr_hugepages
         cp -r /usr/share/doc/rdma-core/tests /tmp/rdma-core-tests && gunzip -qr /tmp/rdma-core-tests &&
         python3 {runner} /tmp/rdma-core-tests {RESULTS} {} {}",
        TEST_LIMIT.as_secs(),
        names.join(" ")
    );
    let job = machine.control.start(&command, limit)?;
    let mut results = Results::default();
    let mut fetched = Instant::now();
    let outcome = loop {
        if let Some(outcome) = machine.control.poll(&job)? {
            break outcome;
        }
        if fetched.elapsed() > FETCH_EVERY {
            results.fetch(machine, &mut add)?;
            fetched = Instant::now();
        }
        super::super::interrupt::check()?;
        std::thread::sleep(super::super::process::TICK);
    };
    results.fetch(machine, &mut add)?;
    if results.is_empty() {
        bail!("the suite ran no test, status {}: {}", outcome.status, outcome.output.trim());
    }
    results.missing(outcome.status).for_each(add);
    Ok(())
}

/// What was fetched, and which planned tests have no result yet.
#[derive(Debug, Default)]
pub struct Results {
    bytes: usize,
    rest: String,
    planned: BTreeMap<String, usize>,
    done: usize,
}

impl Results {
    /// Takes all lines that were written since the last time.
    fn fetch(&mut self, machine: &mut Machine, add: &mut impl FnMut(Entry)) -> Result<()> {
        loop {
            let command =
                format!("[ ! -e {RESULTS} ] || tail -c +{} {RESULTS} | head -c {CHUNK}", self.bytes + 1);
            let chunk = machine.control.require(&command, Duration::from_secs(30))?;
            self.bytes += chunk.len();
            let last = chunk.len() < CHUNK;
            self.take(&chunk, add)?;
            if last {
                return Ok(());
            }
        }
    }

    /// Takes some bytes of the runner's results, and gives an entry for each test whose line is complete.
    pub fn take(&mut self, chunk: &str, add: &mut impl FnMut(Entry)) -> Result<()> {
        self.rest.push_str(chunk);
        while let Some(end) = self.rest.find('\n') {
            let line: String = self.rest.drain(..=end).collect();
            self.take_line(line.trim_end_matches('\n'), add)
                .with_context(|| format!("the suite says {line:?}"))?;
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str, add: &mut impl FnMut(Entry)) -> Option<()> {
        let mut words = line.splitn(4, '\t');
        let (kind, name) = (words.next()?, words.next()?.to_owned());
        let seconds: f64 = words.next()?.parse().ok()?;
        let reason = words.next()?.to_owned();
        if kind == "plan" {
            let number = self.planned.len();
            self.planned.insert(name, number);
            return Some(());
        }
        self.planned.remove(&name)?;
        self.done += 1;
        let elapsed = Duration::try_from_secs_f64(seconds).ok()?;
        let name = short(&name);
        let verdict = verdict(kind, &name, reason)?;
        add(Entry { columns: vec![name], verdict, elapsed });
        Some(())
    }

    /// Whether no test was planned.
    pub fn is_empty(&self) -> bool {
        self.planned.is_empty() && self.done == 0
    }

    /// Tests that were planned and have no result, in the order of the plan.
    pub fn missing(self, status: i32) -> impl Iterator<Item = Entry> {
        let mut left: Vec<(usize, String)> =
            self.planned.into_iter().map(|(name, number)| (number, name)).collect();
        left.sort();
        left.into_iter().map(move |(_, name)| {
            let verdict = Verdict::Fail(format!("the suite ended with status {status} before this test"));
            Entry { columns: vec![short(&name)], verdict, elapsed: Duration::ZERO }
        })
    }
}

fn verdict(kind: &str, name: &str, reason: String) -> Option<Verdict> {
    match kind {
        "passed" => Some(Verdict::Pass(reason)),
        "failed" => Some(Verdict::Fail(reason)),
        "skipped" => Some(skip(name, reason)),
        _ => None,
    }
}

fn skip(name: &str, reason: String) -> Verdict {
    let is_good = reason.starts_with(LACKS) || !NO_SKIPS.iter().any(|word| reason.contains(word));
    let unfit = NOT_ON_INFINIBAND.iter().find(|(unfit, _)| *unfit == name);
    match (is_good, unfit) {
        (true, _) => Verdict::Skip(reason),
        (false, Some((_, why))) => Verdict::Skip(format!("{why}; it says: {reason}")),
        (false, None) => Verdict::Fail(format!("skipped for no good reason: {reason}")),
    }
}

/// `tests.test_mr.MRTest.test_dereg_mr` without what all names have.
fn short(name: &str) -> String {
    name.strip_prefix("tests.").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str, status: i32) -> Vec<(String, Verdict)> {
        let (mut results, mut entries) = (Results::default(), Vec::new());
        for chunk in text.as_bytes().chunks(7) {
            let chunk = core::str::from_utf8(chunk).expect("ASCII");
            results.take(chunk, &mut |entry| entries.push(entry)).expect("lines of the runner");
        }
        entries.extend(results.missing(status));
        entries.into_iter().map(|mut entry| (entry.columns.remove(0), entry.verdict)).collect()
    }

    #[test]
    fn a_planned_test_without_result_has_failed() {
        let text = "plan\ttests.b.B.x\t0\t\nplan\ttests.a.A.y\t0\t\nplan\ttests.a.A.z\t0\t\n\
                    passed\ttests.b.B.x\t1.5\t\n";
        let seen = entries(text, 139);
        assert_eq!(seen[0], ("b.B.x".into(), Verdict::Pass(String::new())));
        assert_eq!((seen[1].0.as_str(), seen[2].0.as_str()), ("a.A.y", "a.A.z"));
        let early = Verdict::Fail("the suite ended with status 139 before this test".into());
        assert!(seen[1..].iter().all(|(_, verdict)| *verdict == early));
    }

    #[test]
    fn a_skip_for_want_of_a_device_is_a_failure() {
        let lacks = "Operation not supported (Failed to create DevX object. Errno: 93)";
        let text = format!(
            "plan\ttests.a.A.x\t0\t\nplan\ttests.a.A.y\t0\t\nplan\ttests.a.A.z\t0\t\n\
             skipped\ttests.a.A.x\t0.1\t{lacks}\n\
             skipped\ttests.a.A.y\t0.1\tNo supported port is up, can't run traffic\n\
             skipped\ttests.a.A.z\t0.1\tODP is not supported\n"
        );
        let seen = entries(&text, 0);
        assert_eq!(seen[0].1, Verdict::Skip(lacks.into()));
        assert!(matches!(seen[1].1, Verdict::Fail(_)));
        assert_eq!(seen[2].1, Verdict::Skip("ODP is not supported".into()));
    }

    #[test]
    fn a_test_that_finds_no_ethernet_port_is_no_failure() {
        let (unfit, why) = NOT_ON_INFINIBAND[0];
        let says = "No supported port is up, can't run traffic";
        let text = format!("plan\ttests.{unfit}\t0\t\nskipped\ttests.{unfit}\t0.1\t{says}\n");
        assert_eq!(entries(&text, 0), [(unfit.into(), Verdict::Skip(format!("{why}; it says: {says}")))]);
    }

    #[test]
    fn a_line_that_no_runner_writes_is_refused() {
        for line in ["", "passed\ttests.a.A.y\t0\t", "plan\ta", "sung\ta\t0\t", "plan\ta\tx\t"] {
            let mut results = Results::default();
            assert!(results.take_line(line, &mut |_| ()).is_none(), "{line:?}");
        }
    }
}

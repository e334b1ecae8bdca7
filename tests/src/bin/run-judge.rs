//! Runs programs of other projects under `bareverbs run`: each program of the checked-in list has to do what
//! the list says; the tests of rdma-core's suite, and every program of perftest against `bareverbs perf`, must
//! have the verdicts that their lists recorded.
//!
//! The judge runs the `bareverbs` and `libbareverbs_preload.so` that lie beside it, as an unprivileged user
//! if it may switch to one. A row whose programs are not installed says SKIPPED, which is a failure with
//! `BAREVERBS_REQUIRE_JUDGES=1`. Exit status 77 means that nothing could be run.

use anyhow::{Context, Result};
use bareverbs_tests::guest::floor::{Floor, Floors, Scope};
use bareverbs_tests::guest::table::{Entry, Report, Verdict};
use bareverbs_tests::hosted::at_once::CROWDS;
use bareverbs_tests::hosted::full_disk::SHORTAGES;
use bareverbs_tests::hosted::own_programs::{self, OwnCase};
use bareverbs_tests::hosted::payload::{self, PayloadCase};
use bareverbs_tests::hosted::suite::{self, Suite};
use bareverbs_tests::hosted::{
    cables, captures, devices, driven, entry, fields, listed, matrix, mpi, neighbours, objects, own_test,
    tap, trouble, wires,
};
use bareverbs_tests::installation::{Installation, is_installed};
use clap::Parser;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(about = "Programs of the distribution under `bareverbs run`")]
struct JudgeArguments {
    /// Only rows whose name contains this text; «perftest» is every program of perftest against `bareverbs perf`; «test_cq» and its like: only this module of rdma-core's suite; «test_»: all of it.
    #[arg(long, allow_hyphen_values = true)]
    only: Option<String>,
    /// Also what takes minutes: a hundred pairs at once, and every transport of perftest's programs.
    #[arg(long)]
    long: bool,
    /// Write the lists of what perftest's programs and the tests of rdma-core's suite say, `tests/judges`, instead of comparing with them.
    #[arg(long)]
    record: bool,
}

impl JudgeArguments {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
    }
}

/// A row that compares what two programs say.
type Comparing = fn(&Installation) -> Result<()>;

/// A row that gives a verdict.
type Judging = fn(&Installation) -> Result<Verdict>;

/// Rows with a function of their own.
const ROWS: [(&str, Judging); 10] = [
    ("a: mpirun -n 4, all to all", mpi::judge),
    ("a / b: captures under faults, to tshark and Python", captures::judge),
    ("a / b: a recording, to bareverbs report", captures::judge_recording),
    ("a / b: cut, partition, loss and pause while they run", trouble::judge),
    ("a / b: a list, and --link-down of one of two devices while they run", cables::judge),
    ("a / b: programs that poll drive their devices", driven::judge),
    ("a: rdma resource show, each kind and by number", objects::judge),
    ("a: a neighbour whom nobody knows, and another thread", neighbours::judge),
    ("a / b: the test of the documentation, word by word", own_test::judge),
    ("b: the kernel at the other end of --wire tap:", tap::judge),
];

/// The prefix that the names of all modules of rdma-core's suite share.
const EVERY_MODULE: &str = "test_";
/// Link layers on which the suite runs.
const LINKS: [&str; 2] = ["eth", "ib"];
/// Exit status when nothing could run here.
const SKIPPED: u8 = 77;

/// What was judged so far.
struct Judgement {
    passed: usize,
    failed: usize,
    skipped: usize,
    is_strict: bool,
}

impl Judgement {
    fn add(&mut self, row: &Entry) {
        match &row.verdict {
            Verdict::Pass(_) => self.passed += 1,
            Verdict::Skip(_) if !self.is_strict => self.skipped += 1,
            Verdict::Fail(_) | Verdict::Skip(_) => self.failed += 1,
        }
        println!("{}  {} ({:.1} s)", row.verdict, row.columns.join(" "), row.elapsed.as_secs_f64());
    }

    fn listed(&mut self, asked: &JudgeArguments, installation: &Installation) -> Result<()> {
        for case in listed::cases()? {
            let name = case.to_string();
            if let Some(reason) = case.is_for_another_system().filter(|_| asked.wants(&name)) {
                println!("not asked: {name}: {reason}");
            } else if asked.wants(&name) {
                self.add(&entry(name, || case.judge(installation)));
            }
        }
        let shown: [(&str, Comparing); 3] = [
            ("a: fields of ibv_devinfo -v", fields::judge),
            ("a: bareverbs devinfo, against ibv_devinfo -v", devices::judge_fields),
            ("a: bareverbs gids, against ibv_devinfo -v", devices::judge_gids),
        ];
        for (name, judge) in shown.into_iter().filter(|(name, _)| asked.wants(name)) {
            self.add(&entry(name.into(), || judge(installation).map(|()| Verdict::Pass(String::new()))));
        }
        for (name, judge) in ROWS.into_iter().filter(|(name, _)| asked.wants(name)) {
            self.add(&entry(name.into(), || judge(installation)));
        }
        self.add_each(asked, wires::PAIRS, |pair| pair.name(), |pair| pair.judge(installation));
        self.add_each(asked, payload::CASES, PayloadCase::to_string, |case| case.judge(installation));
        self.add_each(asked, own_programs::CASES, OwnCase::name, |case| case.judge(installation));
        self.add_each(asked, SHORTAGES, |row| row.name().to_owned(), |row| row.judge(installation));
        let crowds = CROWDS.iter().filter(|_| asked.long);
        self.add_each(asked, crowds, |crowd| crowd.name(), |crowd| crowd.judge(installation));
        Ok(())
    }

    /// Adds rows of the same kind, each under its name.
    fn add_each<T>(
        &mut self,
        asked: &JudgeArguments,
        rows: impl IntoIterator<Item = T>,
        name: impl Fn(&T) -> String,
        judge: impl Fn(&T) -> Result<Verdict>,
    ) {
        for row in rows.into_iter().filter(|row| asked.wants(&name(row))) {
            self.add(&entry(name(&row), || judge(&row)));
        }
    }

    /// Runs rdma-core's suite and compares its verdicts with the list for its version and link layer.
    fn suite(&mut self, asked: &JudgeArguments, installation: &Installation) -> Result<()> {
        let only = asked.only.as_deref().filter(|only| only.starts_with(EVERY_MODULE));
        if asked.only.is_some() && only.is_none() {
            return Ok(());
        }
        if let Some(reason) = suite::missing() {
            self.add(&entry("rdma-core's suite".into(), || Ok(Verdict::Skip(reason))));
            return Ok(());
        }
        let suite = Suite::unpack(installation)?;
        LINKS.iter().try_for_each(|link| self.suite_on(asked, &suite, only, link))
    }

    /// Runs the suite on a host whose port has this link layer.
    fn suite_on(
        &mut self,
        asked: &JudgeArguments,
        suite: &Suite<'_>,
        only: Option<&str>,
        link: &str,
    ) -> Result<()> {
        let mut report = Report::new(&["test"]);
        let options = ["--link", link].map(str::to_owned);
        suite.run(only.as_slice(), &options, |row| report.add(row))?;
        let name = format!("run-suite-{link}-{}", suite.version);
        let is_whole = asked.only.as_ref().is_none_or(|only| only == EVERY_MODULE);
        let is_good = self.compare(asked, is_whole, &name, &report)?;
        self.add_report(&format!("rdma-core's suite ({link})"), &report, is_good);
        Ok(())
    }

    /// Every program of perftest in every role; compares the verdicts with the list of its version.
    fn perftest(&mut self, asked: &JudgeArguments, installation: &Installation) -> Result<()> {
        let cases = matrix::cases();
        let wanted = cases.iter().map(|case| (matrix::name_of(case), case));
        let is_due = |name: &str| asked.long || asked.only.is_some() || matrix::is_in_short_form(name);
        let wanted: Vec<_> = wanted.filter(|(name, _)| asked.wants(name) && is_due(name)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        if !is_installed("ib_write_bw") {
            let reason = "ib_write_bw is not installed (Debian: apt-get install perftest)";
            self.add(&entry(matrix::NAME.into(), || Ok(Verdict::Skip(reason.into()))));
            return Ok(());
        }
        let mut report = Report::new(&["programs"]);
        for (name, case) in wanted {
            report.add(entry(name, || case.judge(installation)));
        }
        let is_whole = asked.only.as_ref().map_or(asked.long, |only| only == matrix::NAME);
        let is_good = self.compare(asked, is_whole, &matrix::list_name()?, &report)?;
        self.add_report(matrix::NAME, &report, is_good);
        Ok(())
    }

    fn add_report(&mut self, name: &str, report: &Report, is_good: bool) {
        let (passed, failed, skipped) = report.counts();
        println!("{name}: {passed} passed, {failed} failed, {skipped} skipped");
        self.passed += passed;
        self.skipped += skipped;
        self.failed += if is_good { failed } else { failed.max(1) };
    }

    /// Compares a report with its list, or records it if it covers every row. Returns whether the report is at
    /// least as good as the list.
    fn compare(&self, asked: &JudgeArguments, is_whole: bool, name: &str, report: &Report) -> Result<bool> {
        let floors = Floors::of_this_tree();
        let floor = floors.read(name)?;
        if asked.record && is_whole {
            let (list, failed) = Floor::record(report, floor.as_ref());
            floors.write(name, &list)?;
            println!(
                "{} is written; failed, and recorded as before: {failed:?}",
                floors.path(name).display()
            );
            return Ok(failed.is_empty());
        }
        let Some(floor) = floor else {
            println!("no list {name} was recorded: these rows are held to their own failures only");
            return Ok(true);
        };
        let check = floor.compare(report, Scope { whole: is_whole, excuses: &[] });
        println!("{name}: {check}");
        Ok(check.is_success())
    }
}

fn judge(asked: &JudgeArguments) -> Result<bool> {
    let installation = Installation::new()?;
    let is_strict = std::env::var("BAREVERBS_REQUIRE_JUDGES").is_ok_and(|value| value == "1");
    let mut judgement = Judgement { passed: 0, failed: 0, skipped: 0, is_strict };
    judgement.listed(asked, &installation)?;
    judgement.perftest(asked, &installation).context("perftest")?;
    judgement.suite(asked, &installation).context("rdma-core's suite")?;
    let Judgement { passed, failed, skipped, .. } = judgement;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0 && passed > 0)
}

fn main() -> ExitCode {
    let asked = JudgeArguments::parse();
    if !is_installed("ibv_devinfo") {
        println!(
            "SKIPPED: ibv_devinfo is not installed (Debian: apt-get install ibverbs-utils ibverbs-providers)"
        );
        return ExitCode::from(SKIPPED);
    }
    match judge(&asked) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAIL: {error:#}");
            ExitCode::FAILURE
        }
    }
}

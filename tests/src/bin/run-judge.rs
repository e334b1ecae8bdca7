//! Runs programs of other projects under `bareverbs run`: each program of the checked-in list has to do what
//! the list says; the tests of rdma-core's suite, and every program of perftest against `bareverbs perf`, must
//! have the verdicts that their lists recorded.
//!
//! The judge runs the `bareverbs` and `libbareverbs_preload.so` that lie beside it, as an unprivileged user
//! if it may switch to one. Several rows run side by side, each on networks of its own. A row whose programs are not installed says SKIPPED, which is a failure with
//! `BAREVERBS_REQUIRE_JUDGES=1`. Exit status 77 means that nothing could be run.

use anyhow::Result;
use bareverbs_tests::guest::floor::{Floor, Floors, Scope};
use bareverbs_tests::guest::table::{Entry, Report, Verdict};
use bareverbs_tests::hosted::at_once::{CROWDS, Crowd};
use bareverbs_tests::hosted::full_disk::SHORTAGES;
use bareverbs_tests::hosted::listed::{self, ListedCase};
use bareverbs_tests::hosted::own_programs::{self, OwnCase};
use bareverbs_tests::hosted::payload::{self, PayloadCase};
use bareverbs_tests::hosted::suite::{self, Suite};
use bareverbs_tests::hosted::workers::{self, Job};
use bareverbs_tests::hosted::{
    cables, captures, devices, driven, fields, kernel_devices, matrix, mpi, neighbours, objects, own_test,
    tap, trouble, wires,
};
use bareverbs_tests::installation::{Installation, is_installed};
use clap::Parser;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(about = "Programs of the distribution under `bareverbs run`")]
struct JudgeArguments {
    /// Only rows whose name contains this text. "perftest" selects every perftest program against `bareverbs perf`, "test_cq" one module of rdma-core's suite, "test_" all of it.
    #[arg(long, allow_hyphen_values = true)]
    only: Option<String>,
    /// Also run what takes minutes: a hundred pairs at once, and every transport of perftest's programs.
    #[arg(long)]
    long: bool,
    /// Record the verdicts of perftest's programs and of rdma-core's suite in the lists in `tests/judges` instead of comparing with them.
    #[arg(long)]
    record: bool,
    /// Number of rows to judge side by side. Default: one more than the machine has processors, at most four.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    workers: Option<u8>,
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
const ROWS: [(&str, Judging); 11] = [
    ("a: mpirun -n 4, all to all", mpi::judge),
    ("a / b: captures under faults, to tshark and Python", captures::judge),
    ("a / b: a recording, to bareverbs report", captures::judge_recording),
    ("a / b: cut, partition, loss and pause while they run", trouble::judge),
    ("a / b: a list, and --link-down of one of two devices while they run", cables::judge),
    ("a / b: programs that poll drive their devices", driven::judge),
    ("a: rdma resource show, each kind and by number", objects::judge),
    ("a / b: dpu serve, dpu get and kernel deploy at devices of the kernel", kernel_devices::judge),
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

/// What a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Rows that each have a verdict of their own.
    Single,
    /// Programs of perftest against `bareverbs perf`, compared with a list.
    Perftest,
    /// rdma-core's suite on a link layer, compared with a list.
    Suite(&'static str),
}

/// Rows that are to be judged.
type Jobs<'a> = Vec<Job<'a, Group>>;

/// The jobs for rows of the same kind, each under its name.
fn each<'a, T: Send + 'a>(
    asked: &JudgeArguments,
    rows: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> String,
    judge: impl Fn(&T, &Installation) -> Result<Verdict> + Copy + Send + 'a,
) -> Jobs<'a> {
    let rows = rows.into_iter().map(|row| (name(&row), row)).filter(|(name, _)| asked.wants(name));
    rows.map(|(name, row)| Job::row(Group::Single, name, move |place| judge(&row, place))).collect()
}

/// The rows of the checked-in list. Prints which of them are for another system.
fn listed_jobs(asked: &JudgeArguments) -> Result<Jobs<'static>> {
    let mut cases = listed::cases()?;
    cases.retain(|case| {
        let name = case.to_string();
        let reason = case.is_for_another_system().filter(|_| asked.wants(&name));
        if let Some(reason) = reason {
            println!("not asked: {name}: {reason}");
        }
        reason.is_none()
    });
    Ok(each(asked, cases, ToString::to_string, ListedCase::judge))
}

/// Rows that each have a verdict of their own.
fn single_jobs(asked: &JudgeArguments) -> Result<Jobs<'static>> {
    let shown: [(&str, Comparing); 3] = [
        ("a: fields of ibv_devinfo -v", fields::judge),
        ("a: bareverbs devinfo, against ibv_devinfo -v", devices::judge_fields),
        ("a: bareverbs gids, against ibv_devinfo -v", devices::judge_gids),
    ];
    let mut jobs = each(asked, ROWS, |(name, _)| (*name).into(), |(_, judge), place| judge(place));
    let compare = |(_, judge): &(&str, Comparing), place: &Installation| {
        judge(place).map(|()| Verdict::Pass(String::new()))
    };
    jobs.extend(each(asked, shown, |(name, _)| (*name).into(), compare));
    jobs.extend(each(asked, wires::PAIRS, |pair| pair.name(), |pair, place| pair.judge(place)));
    jobs.extend(each(asked, payload::CASES, PayloadCase::to_string, PayloadCase::judge));
    jobs.extend(each(asked, own_programs::CASES, OwnCase::name, OwnCase::judge));
    jobs.extend(each(asked, SHORTAGES, |row| row.name().to_owned(), |row, place| row.judge(place)));
    jobs.extend(listed_jobs(asked)?);
    Ok(jobs)
}

/// Every program of perftest in every role.
fn perftest_jobs(asked: &JudgeArguments) -> Jobs<'static> {
    let is_due = |name: &str| asked.long || asked.only.is_some() || matrix::is_in_short_form(name);
    let cases = matrix::cases().into_iter().map(|case| (matrix::name_of(&case), case));
    let wanted: Vec<_> = cases.filter(|(name, _)| asked.wants(name) && is_due(name)).collect();
    if !wanted.is_empty() && !is_installed("ib_write_bw") {
        let reason = "ib_write_bw is not installed (Debian: apt-get install perftest)";
        let skip = move |_: &Installation| Ok(Verdict::Skip(reason.into()));
        return vec![Job::row(Group::Single, matrix::NAME.into(), skip)];
    }
    let job =
        |(name, case): (String, ListedCase)| Job::row(Group::Perftest, name, move |place| case.judge(place));
    wanted.into_iter().map(job).collect()
}

/// rdma-core's suite on each link layer.
fn suite_jobs(asked: &JudgeArguments) -> Jobs<'static> {
    let only = asked.only.clone().filter(|only| only.starts_with(EVERY_MODULE));
    if asked.only.is_some() && only.is_none() {
        return Vec::new();
    }
    if let Some(reason) = suite::missing() {
        let skip = move |_: &Installation| Ok(Verdict::Skip(reason));
        return vec![Job::row(Group::Single, "rdma-core's suite".into(), skip)];
    }
    let job = |link: &'static str| {
        let only = only.clone();
        Job::rows(Group::Suite(link), format!("rdma-core's suite ({link})"), move |place, add| {
            Suite::unpack(place, link)?.run(only.as_deref().as_slice(), add)
        })
    };
    LINKS.map(job).into()
}

/// What was judged so far.
#[derive(Default)]
struct Judgement {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// A row that was skipped has failed.
    is_strict: bool,
    /// Groups whose verdicts are compared with a list.
    reports: Vec<(Group, Report)>,
}

impl Judgement {
    fn add(&mut self, group: Group, row: Entry) {
        match self.reports.iter_mut().find(|(of, _)| *of == group) {
            Some((_, report)) => report.add(row),
            None => self.add_single(&row),
        }
    }

    fn add_single(&mut self, row: &Entry) {
        match &row.verdict {
            Verdict::Pass(_) => self.passed += 1,
            Verdict::Skip(_) if !self.is_strict => self.skipped += 1,
            Verdict::Fail(_) | Verdict::Skip(_) => self.failed += 1,
        }
        println!("{}  {} ({:.1} s)", row.verdict, row.columns.join(" "), row.elapsed.as_secs_f64());
    }

    /// Compares the reports of groups with their lists.
    fn compare(&mut self, asked: &JudgeArguments) -> Result<()> {
        for (group, report) in std::mem::take(&mut self.reports) {
            let is_whole = |every: &str| asked.only.as_ref().is_none_or(|only| only == every);
            let (name, list, is_whole) = match group {
                Group::Single => continue,
                Group::Perftest => {
                    let is_whole = is_whole(matrix::NAME) && (asked.long || asked.only.is_some());
                    (matrix::NAME.to_owned(), matrix::list_name()?, is_whole)
                }
                Group::Suite(link) => {
                    let name = format!("rdma-core's suite ({link})");
                    (name, suite::list_name(link)?, is_whole(EVERY_MODULE))
                }
            };
            let is_good = compare(asked, is_whole, &list, &report)?;
            self.add_report(&name, &report, is_good);
        }
        Ok(())
    }

    fn add_report(&mut self, name: &str, report: &Report, is_good: bool) {
        let (passed, failed, skipped) = report.counts();
        println!("{name}: {passed} passed, {failed} failed, {skipped} skipped");
        self.passed += passed;
        self.skipped += skipped;
        self.failed += if is_good { failed } else { failed.max(1) };
    }
}

/// Compares a report with its list, or records it if it covers every row. Returns whether the report is at
/// least as good as the list.
fn compare(asked: &JudgeArguments, is_whole: bool, name: &str, report: &Report) -> Result<bool> {
    let floors = Floors::of_this_tree();
    let floor = floors.read(name)?;
    if asked.record && is_whole {
        let (list, failed) = Floor::record(report, floor.as_ref());
        floors.write(name, &list)?;
        println!("{} is written; failed, and recorded as before: {failed:?}", floors.path(name).display());
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

/// The groups among these jobs that are compared with a list, each with an empty report.
fn reports_of(jobs: &Jobs<'_>) -> Vec<(Group, Report)> {
    let groups = [(Group::Perftest, "programs"), (Group::Suite("eth"), "test"), (Group::Suite("ib"), "test")];
    let is_asked = |group: Group| jobs.iter().any(|job| job.group() == group);
    let asked = groups.into_iter().filter(|(group, _)| is_asked(*group));
    asked.map(|(group, heading)| (group, Report::new(&[heading]))).collect()
}

fn judge(asked: &JudgeArguments) -> Result<bool> {
    // The longest come first, so that no worker is left with one of them at the end.
    let mut jobs = suite_jobs(asked);
    jobs.extend(perftest_jobs(asked));
    jobs.extend(single_jobs(asked)?);
    let is_strict = std::env::var("BAREVERBS_REQUIRE_JUDGES").is_ok_and(|value| value == "1");
    let mut judgement = Judgement { is_strict, reports: reports_of(&jobs), ..Judgement::default() };
    let workers = asked.workers.map_or_else(workers::default_count, usize::from);
    workers::run(jobs, workers, |group, row| judgement.add(group, row))?;
    // A crowd has the machine for itself.
    let crowds = each(asked, CROWDS.into_iter().filter(|_| asked.long), Crowd::name, Crowd::judge);
    workers::run(crowds, 1, |group, row| judgement.add(group, row))?;
    judgement.compare(asked)?;
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

//! The judge of the device model: Linux's own `mlx5_core` and `mlx5_ib`, and rdma-core's programs on top of them.
//!
//! **What this is.** The simulated NIC is served over vfio-user by this process; a guest binds its drivers to it. Every
//! [`cases::Case`] is a shell command in the guest and what must be seen of it. **What it may not do.** A verdict is not
//! asked for twice, and what the guest's programs print is not mended. **Where to read first.** [`cases::all`].

pub mod cases;
mod nic;
pub mod suite;

use super::machine::{Configuration, Machine};
use super::root::Root;
use super::table::{Entry, Report, Verdict};
use anyhow::Result;
use cases::Case;
use nic::ServedNics;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// NICs of the guest, at one switch.
const NICS: usize = 2;

/// What to run, and where to leave what was seen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only cases whose name contains this; the set-up is always run.
    pub only: Option<String>,
    /// More of everything that is repeated.
    pub long: bool,
    /// Directory for the console and the log of commands.
    pub output: PathBuf,
}

/// Boots the guest and asks every question.
pub fn run(options: &Options) -> Result<Report> {
    let root = Root::prepare()?;
    std::fs::create_dir_all(&options.output)?;
    let mut nics = ServedNics::start(NICS, &options.output)?;
    let configuration = Configuration {
        vfio_user: nics.sockets(),
        files: vec![(suite::RUNNER.0.to_owned(), suite::RUNNER.1.into())],
        ..Configuration::default()
    };
    let mut machine = Machine::boot(&root, &configuration, &options.output.join("mlx5-console.log"))?;
    let mut report = Report::new(&["case"]);
    for case in cases::all(options.long) {
        let wanted = options.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()));
        if case.set_up || wanted {
            report.add(ask(&mut machine, &case)?);
        }
    }
    for (program, reason) in cases::LACKING {
        let verdict = Verdict::Skip((*reason).to_owned());
        report.add(Entry { columns: vec![(*program).to_owned()], verdict, elapsed: Duration::ZERO });
    }
    report.add(nics.entry("commands of the drivers"));
    if let Some(names) = suite_names(options) {
        let limit = Duration::from_secs(if options.long { 3600 } else { 600 });
        suite::run(&mut machine, &names, limit, |entry| report.add(entry))?;
        report.add(nics.refusals("commands of the suite"));
    }
    Ok(report)
}

/// What is to be run of rdma-core's suite. `--only` chooses modules whose name contains it; a longer name, as in
/// «test_mr.MRTest.test_dereg_mr», chooses a class or a test. `--long` looks among all modules.
fn suite_names(options: &Options) -> Option<Vec<&str>> {
    let Some(only) = options.only.as_deref() else {
        return Some(if options.long { Vec::new() } else { suite::CHOSEN.to_vec() });
    };
    let chosen: Vec<&str> = suite::CHOSEN.iter().copied().filter(|module| module.contains(only)).collect();
    if options.long || chosen.is_empty() {
        return only.starts_with("test_").then(|| vec![only]);
    }
    Some(chosen)
}

fn ask(machine: &mut Machine, case: &Case) -> Result<Entry> {
    let start = Instant::now();
    let outcome = machine.control.run(&case.command, case.limit)?;
    let verdict = match (outcome.is_success(), case.seen(&outcome.output)) {
        (true, Ok(seen)) => Verdict::Pass(seen),
        (true, Err(missing)) => Verdict::Fail(missing),
        (false, _) => Verdict::Fail(format!("status {}: {}", outcome.status, outcome.output.trim())),
    };
    Ok(Entry { columns: vec![case.name.clone()], verdict, elapsed: start.elapsed() })
}

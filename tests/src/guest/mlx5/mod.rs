//! The judge of the device model: Linux's own `mlx5_core` and `mlx5_ib`, and rdma-core's programs on top of them.
//!
//! **What this is.** The simulated NIC is served over vfio-user by this process; a guest binds its drivers to it. Every
//! [`cases::Case`] is a shell command in the guest and what must be seen of it. **What it may not do.** A verdict is not
//! asked for twice, and what the guest's programs print is not mended. **Where to read first.** [`cases::all`].

pub mod cases;
mod ethernet;
mod nic;
pub mod suite;
mod two_guests;

use super::machine::{Configuration, Machine};
use super::root::Root;
use super::table::{Entry, Report, Verdict};
use anyhow::Result;
use bareverbs_sim::nic::LinkLayer;
use cases::Case;
use nic::ServedNics;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// NICs of the guest, at one switch.
const NICS: usize = 2;
const REBOOT: &str = "reboot of the guest";

/// What to run, and where to leave what was seen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only cases whose name contains this; the set-up is always run.
    pub only: Option<String>,
    /// Link layer of the port.
    pub link: LinkLayer,
    /// More of everything that is repeated.
    pub long: bool,
    /// Directory for the console and the log of commands.
    pub output: PathBuf,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

/// Boots the guest and asks every question.
pub fn run(options: &Options) -> Result<Report> {
    let root = Root::prepare()?;
    std::fs::create_dir_all(&options.output)?;
    let count = NICS + 1;
    let mut nics = ServedNics::start(options.link, count, &options.output)?;
    let mut report = Report::new(&["case"]);
    let console = options.output.join("mlx5-console.log");
    let mut machine = Machine::boot(&root, &configuration(&nics, options.link), &console)?;
    if options.link == LinkLayer::Ethernet {
        nics.join(machine.wire_sockets(0))?;
        ask_all(&mut machine, ethernet::all(options.long), options, &mut report)?;
        report.add(nics.entry("commands of the drivers"));
        return Ok(report);
    }
    ask_all(&mut machine, cases::all(options.long), options, &mut report)?;
    let place = (&root, options.output.as_path());
    two_guests::run(place, &mut machine, nics.socket(NICS), &|name| options.wants(name), &mut report)?;
    if options.long && options.wants(REBOOT) {
        report.add(reboot(&mut machine)?);
        ask_all(&mut machine, cases::after_reboot(), options, &mut report)?;
    }
    report.add(nics.entry("commands of the drivers"));
    if let Some(names) = suite_names(options) {
        let limit = Duration::from_secs(if options.long { 3600 } else { 600 });
        suite::run(&mut machine, &names, limit, |entry| report.add(entry))?;
        report.add(nics.refusals("commands of the suite"));
    }
    Ok(report)
}

/// On InfiniBand the third NIC is that of the second guest; on Ethernet it is joined with another card.
fn configuration(nics: &ServedNics, link: LinkLayer) -> Configuration {
    let ethernet = link == LinkLayer::Ethernet;
    let count = if ethernet { NICS + 1 } else { NICS };
    Configuration {
        vfio_user: (0..count).map(|index| nics.socket(index)).collect(),
        wires: if ethernet { vec![ethernet::SOFT_ROCE_MAC] } else { Vec::new() },
        files: vec![(suite::RUNNER.0.to_owned(), suite::RUNNER.1.into())],
        reboots: !ethernet,
        ..Configuration::default()
    }
}

fn ask_all(machine: &mut Machine, cases: Vec<Case>, options: &Options, report: &mut Report) -> Result<()> {
    for case in cases {
        if case.set_up || options.wants(&case.name) {
            report.add(ask(machine, &case)?);
        }
    }
    Ok(())
}

fn reboot(machine: &mut Machine) -> Result<Entry> {
    let start = Instant::now();
    let verdict = match machine.reboot() {
        Ok(kernel) => Verdict::Pass(format!("Linux {kernel} is up again")),
        Err(error) => Verdict::Fail(format!("{error:#}")),
    };
    Ok(Entry { columns: vec![REBOOT.to_owned()], verdict, elapsed: start.elapsed() })
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

//! Snabb's own driver of ConnectX cards, which has run on real cards for years. Its selftest sends a million
//! packets from each of two ports and checks their counters. Snabb is built by hand (docs/judges.md), and the
//! kernel's driver never gets the ports.

use super::{FAR, FUNCTIONS, MEMORY, NEAR, case};
use crate::guest::machine::{Configuration, Machine};
use crate::guest::mlx5::cases::Mlx5Case;
use crate::guest::mlx5::nic::ServedNics;
use crate::guest::mlx5::options::ask;
use crate::guest::ports::PORTS;
use crate::guest::root::Root;
use crate::guest::table::Report;
use anyhow::{Context, Result};
use bareverbs_sim::nic::LinkLayer;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Snabb's program, as the guest sees it.
const PROGRAM: &str = "snabb";
const LIMIT: Duration = Duration::from_secs(300);

/// Boots a guest and runs the selftest of the program at `path`; the console and the log of commands go to
/// `output`.
///
/// # Errors
/// The program does not exist, or the guest does not boot.
pub fn run(path: &Path, output: &Path) -> Result<Report> {
    let program = fs::read(path).with_context(|| path.display().to_string())?;
    let root = Root::prepare()?;
    fs::create_dir_all(output)?;
    // Dropped in this order: the guest before what serves it.
    let mut nics = ServedNics::start(LinkLayer::Ethernet, &[NEAR, FAR], output)?;
    let texts = [PORTS, FUNCTIONS].map(|(name, text)| (name.to_owned(), text.into()));
    let configuration = Configuration {
        memory: MEMORY,
        vfio_user: [NEAR, FAR].map(|index| nics.socket(index)).to_vec(),
        files: texts.into_iter().chain([(PROGRAM.to_owned(), program)]).collect(),
        ..Configuration::default()
    };
    let mut machine = Machine::boot(&root, &configuration, &output.join("snabb-console.log"))?;
    let command = format!("snabb_selftest {}", Machine::path_inside(PROGRAM));
    let selftest = case("Snabb's selftest of its driver", "selftest: ok", &command);
    let mut report = Report::new(&["case"]);
    report.add(ask(&mut machine, &Mlx5Case { limit: LIMIT, ..selftest })?);
    drop(machine);
    report.add(nics.entry("commands of the driver"));
    Ok(report)
}

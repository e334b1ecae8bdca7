//! The options of this judge, and how it runs one case.

use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::table::{Entry, Verdict};
use super::cases::Mlx5Case;
use anyhow::Result;
use bareverbs_sim::nic::LinkLayer;
use std::path::PathBuf;
use std::time::Instant;

/// What to run, and where to put consoles and logs.
#[derive(Debug, Clone)]
pub struct Mlx5Options {
    /// Only cases whose name contains this; the set-up is always run.
    pub only: Option<String>,
    /// Link layer of the port.
    pub link: LinkLayer,
    /// Repeat everything more often.
    pub long: bool,
    /// Only what differs from kernel to kernel: the drivers, their log, and one program of each kind.
    pub quick: bool,
    /// The guest's kernel.
    pub kernel: Kernel,
    /// Directory for the console and the log of commands.
    pub output: PathBuf,
}

impl Mlx5Options {
    pub(super) fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

/// Runs the command of a case in the guest and looks at what it printed.
pub(in super::super) fn ask(machine: &mut Machine, case: &Mlx5Case) -> Result<Entry> {
    let start = Instant::now();
    let outcome = machine.control.run(&case.command, case.limit)?;
    let verdict = match (outcome.is_success(), case.seen(&outcome.output)) {
        (true, Ok(seen)) => Verdict::Pass(seen),
        (true, Err(missing)) => Verdict::Fail(missing),
        (false, _) => Verdict::Fail(format!("status {}: {}", outcome.status, outcome.output.trim())),
    };
    Ok(Entry { columns: vec![case.name.clone()], verdict, elapsed: start.elapsed() })
}

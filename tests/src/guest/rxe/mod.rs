//! The judge of the wire: Linux's Soft-RoCE in the guest, driven by Debian's own programs.
//!
//! **What this is.** For each of [`cases::all`] one program in the guest and its counterpart here, on the driver, over a
//! simulated NIC in real time. **What it may not do.** A verdict is not asked for twice. **Where to read first.**
//! [`cases`].

pub mod cases;
pub mod guest_side;
pub mod rig;

use super::machine::{Configuration, Machine};
use super::root::Root;
use super::table::Report;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// What to run, and where to leave what was seen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only cases whose columns, joined by spaces, contain this.
    pub only: Option<String>,
    /// Directory for console and captures.
    pub output: PathBuf,
}

/// TCP port of the programs in the guest.
const PORT: u16 = 18515;

/// Boots the guest and asks every question.
pub fn run(options: &Options) -> Result<Report> {
    let root = Root::prepare()?;
    let mut machine = boot(&root, &options.output)?;
    let guest = guest_side::SoftRoce::set_up(&mut machine)?;
    let mut report = Report::new(&cases::HEADINGS);
    for entry in rig::check(&mut machine, &guest)? {
        report.add(entry);
    }
    Ok(report)
}

fn boot(root: &Root, output: &Path) -> Result<Machine> {
    let configuration = Configuration {
        wires: vec![guest_side::GUEST_MAC],
        tcp_ports: vec![PORT],
        ..Configuration::default()
    };
    Machine::boot(root, &configuration, &output.join("console.log"))
}

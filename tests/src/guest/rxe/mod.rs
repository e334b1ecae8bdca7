//! The judge of the wire: Linux's Soft-RoCE in the guest, driven by Debian's own programs.
//!
//! For each of [`cases::all`], one program runs in the guest and its counterpart here, on the driver, over a
//! simulated NIC in real time: a [`bout`]. A failed case is not run again. Start reading at [`cases`].

pub mod bout;
pub mod cases;
pub mod counterpart;
pub mod guest_side;
mod link;
pub mod our_side;
pub mod pattern;
pub mod rig;
mod stall;

use super::interrupt;
use super::machine::{Configuration, Machine};
use super::root::Root;
use super::table::{Entry, Report, Verdict};
use anyhow::Result;
use bareverbs_serve::real_time::UnixDatagramIo;
use bout::Bout;
use cases::Case;
use guest_side::GuestDevice;
use our_side::Nic;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to run, and where to put consoles and captures.
#[derive(Debug, Clone)]
pub struct RxeOptions {
    /// [`cases::quick`] instead of all.
    pub quick: bool,
    /// Only cases whose columns, joined by spaces, contain this.
    pub only: Option<String>,
    /// Directory for console and captures.
    pub output: PathBuf,
    /// Cases that have not begun by then have failed, because nobody knows their result.
    pub limit: Duration,
}

impl RxeOptions {
    fn cases(&self) -> impl Iterator<Item = Case> {
        let cases = if self.quick { cases::quick() } else { cases::all() };
        cases.into_iter().filter(|case| self.wants(case))
    }

    fn wants(&self, case: &Case) -> bool {
        self.only.as_ref().is_none_or(|only| case.columns().join(" ").contains(only.as_str()))
    }
}

/// Prefixes of the reasons that say that Soft-RoCE or chance left nothing to judge.
pub const EXCUSES: &[&str] = &[stall::EXCUSE, bout::NO_FAULT];

/// Seed of everything random, above all of the faults.
const SEED: u64 = 7;

/// Boots the guest and runs every case.
pub fn run(options: &RxeOptions) -> Result<Report> {
    let root = Root::prepare()?;
    let started = Instant::now();
    let mut machine = boot(&root, &options.output)?;
    let guest = GuestDevice::soft_roce(&mut machine)?;
    let mut report = Report::new(&cases::HEADINGS);
    for entry in rig::check(&mut machine, &guest)? {
        report.add(entry);
    }
    let (own, peer) = machine.wire_sockets(0);
    let nic = Nic::ethernet(UnixDatagramIo::bind(&own, &peer)?, SEED, guest_side::GUEST_MAC)?;
    for case in options.cases() {
        interrupt::check()?;
        let bout = Bout { machine: &mut machine, nic: &nic, guest: &guest, output: &options.output };
        report.add(if started.elapsed() < options.limit { bout.ask(&case) } else { too_late(&case) });
    }
    Ok(report)
}

fn too_late(case: &Case) -> Entry {
    let verdict = Verdict::Fail("not asked: the time for all cases is over; see --minutes".into());
    Entry { columns: case.columns(), verdict, elapsed: Duration::ZERO }
}

fn boot(root: &Root, output: &Path) -> Result<Machine> {
    let configuration = Configuration {
        wires: vec![guest_side::GUEST_MAC],
        tcp_ports: vec![bout::PORT],
        files: vec![bout::payload()],
        ..Configuration::default()
    };
    Machine::boot(root, &configuration, &output.join("console.log"))
}

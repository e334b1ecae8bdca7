//! The judge of the wire: Linux's Soft-RoCE in the guest, driven by Debian's own programs.
//!
//! **What this is.** For each of [`cases::all`] one program in the guest and its counterpart here, on the driver, over a
//! simulated NIC in real time. **What it may not do.** A verdict is not asked for twice. **Where to read first.**
//! [`cases`].

pub mod cases;
pub mod counterpart;
pub mod guest_side;
mod link;
pub mod our_side;
pub mod pattern;
pub mod rig;

use super::control::{Job, Outcome};
use super::exchange::Role;
use super::exchange::line::Listener;
use super::interrupt;
use super::machine::{Configuration, HOST_FROM_GUEST, Machine};
use super::root::Root;
use super::table::{Entry, Report, Verdict};
use anyhow::{Context, Result};
use bareverbs_sim::run::real_time::UnixDatagramIo;
use cases::{Case, Program, Wire};
use counterpart::{Meeting, Played};
use guest_side::{DEVICE, SoftRoce};
use our_side::{Connection, Nic};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to run, and where to leave what was seen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only cases whose columns, joined by spaces, contain this.
    pub only: Option<String>,
    /// Directory for console and captures.
    pub output: PathBuf,
    /// Cases that have not begun by then are skipped.
    pub limit: Duration,
}

impl Options {
    fn wants(&self, case: &Case) -> bool {
        self.only.as_ref().is_none_or(|only| case.columns().join(" ").contains(only.as_str()))
    }
}

/// TCP port of the programs in the guest.
const PORT: u16 = 18515;
/// What chance there is, faults above all, comes from this.
const SEED: u64 = 7;
/// Name of perftest's payload file.
const PAYLOAD: &str = "payload";
/// How long a program may take to listen.
const SERVER_LIMIT: Duration = Duration::from_secs(20);
/// How long a program may run.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

/// Boots the guest and asks every question.
pub fn run(options: &Options) -> Result<Report> {
    let root = Root::prepare()?;
    let started = Instant::now();
    let mut machine = boot(&root, &options.output)?;
    let guest = SoftRoce::set_up(&mut machine)?;
    let mut report = Report::new(&cases::HEADINGS);
    for entry in rig::check(&mut machine, &guest)? {
        report.add(entry);
    }
    let (own, peer) = machine.wire_sockets(0);
    let nic = Nic::open(UnixDatagramIo::bind(&own, &peer)?, SEED)?;
    let mut judge = Judge { machine, guest, nic, output: options.output.clone() };
    for case in cases::all().into_iter().filter(|case| options.wants(case)) {
        interrupt::check()?;
        let entry = if started.elapsed() < options.limit { judge.ask(&case) } else { too_late(&case) };
        report.add(entry);
    }
    Ok(report)
}

fn too_late(case: &Case) -> Entry {
    let verdict = Verdict::Skip("the time for all cases is over; see --minutes".into());
    Entry { columns: case.columns(), verdict, elapsed: Duration::ZERO }
}

fn boot(root: &Root, output: &Path) -> Result<Machine> {
    let configuration = Configuration {
        wires: vec![guest_side::GUEST_MAC],
        tcp_ports: vec![PORT],
        files: vec![(PAYLOAD.into(), pattern::payload_file().into_bytes())],
        ..Configuration::default()
    };
    Machine::boot(root, &configuration, &output.join("console.log"))
}

struct Judge {
    machine: Machine,
    guest: SoftRoce,
    nic: Nic,
    output: PathBuf,
}

impl Judge {
    /// Asks once. The capture of a case that failed is kept under its name.
    fn ask(&mut self, case: &Case) -> Entry {
        let start = Instant::now();
        let name = case.columns().join(" ").replace(' ', "-");
        let capture = self.output.join(format!("{name}.pcapng"));
        let result = self.try_on_wire(case, &name, &capture);
        let verdict = match result {
            Ok(verdict) => verdict,
            Err(error) => Verdict::Fail(format!("{error:#}; frames in {}", capture.display())),
        };
        if !matches!(verdict, Verdict::Fail(_)) {
            // A capture that cannot be removed is in nobody's way.
            let _ = std::fs::remove_file(&capture);
        }
        Entry { columns: case.columns(), verdict, elapsed: start.elapsed() }
    }

    fn try_on_wire(&mut self, case: &Case, name: &str, capture: &Path) -> Result<Verdict> {
        self.nic.begin_capture(capture)?;
        self.nic.set_wire(case.wire, name);
        let before = self.nic.faults();
        let seen = self.try_case(case);
        let faults = self.nic.faults() - before;
        self.nic.set_wire(Wire::Clean, name);
        self.nic.end_capture()?;
        let seen = seen?;
        Ok(match (case.wire, faults) {
            (Wire::Clean, _) => Verdict::Pass(seen),
            (Wire::Faulty, 0) => Verdict::Skip("no fault hit a frame".into()),
            (Wire::Faulty, faults) => Verdict::Pass(format!("{seen}, {faults} frames hit")),
        })
    }

    fn try_case(&mut self, case: &Case) -> Result<String> {
        let listener = Listener::bind()?;
        let command = self.command(case, listener.port()?);
        let job = self.machine.control.start(&command, PROGRAM_LIMIT)?;
        let meeting = match case.role {
            Role::Server => Meeting::Connect(self.wait_for_server()?),
            Role::Client => Meeting::Accept(&listener),
        };
        let Played { mut connection, seen } = counterpart::play(&self.nic, case, meeting)?;
        let outcome = self.end(&job, &mut connection, seen.is_ok())?;
        let seen = seen.map_err(|error| error.context(said(&outcome)))?;
        anyhow::ensure!(outcome.is_success(), "{}", said(&outcome));
        Ok(seen)
    }

    /// Waits until the program listens. A connection that comes too early would be refused, and QEMU would try it again
    /// only after seconds.
    fn wait_for_server(&mut self) -> Result<SocketAddrV4> {
        let entry = format!(":{PORT:04X} [0-9A-F:]* 0A ");
        let command = format!("until grep -q '{entry}' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done");
        self.machine.control.require(&command, SERVER_LIMIT)?;
        self.machine.forward(PORT).context("no way to the guest")
    }

    /// The end of a program, which our queue pair answers until then; one whose counterpart failed is not waited for.
    fn end(&mut self, job: &Job, connection: &mut Connection, played: bool) -> Result<Outcome> {
        if !played {
            return self.machine.control.cancel(job);
        }
        loop {
            interrupt::check()?;
            if let Some(outcome) = self.machine.control.poll(job)? {
                return Ok(outcome);
            }
            connection.step()?;
        }
    }

    fn command(&self, case: &Case, host_port: u16) -> String {
        let Case { program, role, size, mtu, family, iterations, .. } = *case;
        let index = self.guest.gid_index(family);
        let place = match role {
            Role::Server => format!("-p {PORT}"),
            Role::Client => format!("-p {host_port} {HOST_FROM_GUEST}"),
        };
        let common = format!("{program} -d {DEVICE} -n {iterations} -m {mtu}");
        let payload = Machine::path_inside(PAYLOAD);
        match program {
            // It sends what fits the port's MTU and takes none.
            Program::UdPingpong => {
                format!("{program} -d {DEVICE} -n {iterations} -s {size} -g {index} {place}")
            }
            _ if program.is_pingpong() => format!("{common} -s {size} -g {index} {place}"),
            _ if program.is_atomic() => {
                format!("{common} -x {index} -F --payload_file_path={payload} {place}")
            }
            _ => format!("{common} -s {size} -x {index} -F --payload_file_path={payload} {place}"),
        }
    }
}

/// What a program said, on one line.
fn said(outcome: &Outcome) -> String {
    let lines: Vec<_> = outcome.output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("the program ended with {}: {}", outcome.status, lines.join(" | "))
}

//! One program in the guest against its counterpart here, whatever device of the guest it runs on.

use super::super::control::{CommandOutcome, GuestJob};
use super::super::interrupt;
use super::super::machine::{HOST_FROM_GUEST, Machine};
use super::super::table::{Entry, Verdict};
use super::cases::{Case, Program, Wire};
use super::counterpart::{self, Meeting, Played};
use super::guest_side::GuestDevice;
use super::our_side::{Connection, Nic};
use super::pattern;
use super::stall::StallDetector;
use anyhow::{Context, Result};
use bareverbs_perftest::Role;
use bareverbs_perftest::line::Listener;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// TCP port of the programs in the guest.
pub const PORT: u16 = 18515;
/// Name of perftest's payload file.
const PAYLOAD: &str = "payload";
/// Why a case over a wire with faults was not judged.
pub(super) const NO_FAULT: &str = "no fault hit a frame";
/// How long a program may take to listen.
const SERVER_LIMIT: Duration = Duration::from_secs(20);
/// How long a program may run.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

/// A file that the guest must have, for [`Configuration::files`](super::super::machine::Configuration::files).
pub fn payload() -> (String, Vec<u8>) {
    (PAYLOAD.to_owned(), pattern::payload_file().into_bytes())
}

/// Both sides.
#[derive(Debug)]
pub struct Bout<'a> {
    /// The guest, which has [`PORT`] forwarded and the file of [`payload`].
    pub machine: &'a mut Machine,
    /// Our NIC.
    pub nic: &'a Nic,
    /// The guest's device.
    pub guest: &'a GuestDevice,
    /// Directory for captures.
    pub output: &'a Path,
}

impl Bout<'_> {
    /// Runs a case once. If it fails, its capture is kept under its name.
    pub fn ask(self, case: &Case) -> Entry {
        let start = Instant::now();
        let name = case.columns().join(" ").replace(' ', "-");
        let capture = self.output.join(format!("{name}.pcapng"));
        let verdict = match self.try_on_wire(case, &name, &capture) {
            Ok(verdict) => verdict,
            Err(error) => Verdict::Fail(format!("{error:#}; frames in {}", capture.display())),
        };
        if !matches!(verdict, Verdict::Fail(_)) {
            // A leftover capture does no harm.
            let _ = std::fs::remove_file(&capture);
        }
        Entry { columns: case.columns(), verdict, elapsed: start.elapsed() }
    }

    fn try_on_wire(mut self, case: &Case, name: &str, capture: &Path) -> Result<Verdict> {
        let nic = self.nic;
        let detector = StallDetector::call(self.machine, nic, self.guest, case)?;
        nic.begin_capture(capture)?;
        nic.set_wire(case.wire, name);
        let before = nic.faults();
        let seen = self.play(case);
        let faults = nic.faults() - before;
        nic.set_wire(Wire::Clean, name);
        nic.end_capture()?;
        let seen = match (seen, detector) {
            (Err(error), Some(detector)) => match detector.explain(self.machine, nic, &error)? {
                Some(reason) => return Ok(Verdict::Skip(reason)),
                None => return Err(error),
            },
            (seen, _) => seen?,
        };
        Ok(match (case.wire, faults) {
            (Wire::Clean, _) => Verdict::Pass(seen),
            (Wire::Faulty, 0) => Verdict::Skip(NO_FAULT.into()),
            (Wire::Faulty, faults) => Verdict::Pass(format!("{seen}, {faults} frames hit")),
        })
    }

    /// Plays a case until both sides have ended and returns what was compared.
    fn play(&mut self, case: &Case) -> Result<String> {
        let listener = Listener::bind()?;
        let command = self.command(case, listener.port()?);
        let job = self.machine.control.start(&command, PROGRAM_LIMIT)?;
        let meeting = match case.role {
            Role::Server => Meeting::Connect(wait_for_server(self.machine)?),
            Role::Client => Meeting::Accept(&listener),
        };
        let Played { mut connection, seen } = counterpart::play(self.nic, case, meeting)?;
        let outcome = self.end(&job, &mut connection, seen.is_ok())?;
        let seen = seen.map_err(|error| error.context(said(&outcome)))?;
        anyhow::ensure!(outcome.is_success(), "{}", said(&outcome));
        Ok(seen)
    }

    /// Waits for the end of a program. Our queue pair answers until then. A program whose counterpart failed
    /// is ended instead.
    fn end(&mut self, job: &GuestJob, connection: &mut Connection, played: bool) -> Result<CommandOutcome> {
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
        let option = if program.is_pingpong() { "-g" } else { "-x" };
        let address = self.guest.gid_index(family).map_or(String::new(), |index| format!("{option} {index}"));
        let place = match role {
            Role::Server => format!("-p {PORT}"),
            Role::Client => format!("-p {host_port} {HOST_FROM_GUEST}"),
        };
        let common = format!("{program} -d {} -n {iterations} {address} {place}", self.guest.name);
        let payload = Machine::path_inside(PAYLOAD);
        match program {
            // It sends messages that fit the port's MTU and has no option for it.
            Program::UdPingpong => format!("{common} -s {size}"),
            _ if program.is_pingpong() => format!("{common} -m {mtu} -s {size}"),
            _ if program.is_atomic() => format!("{common} -m {mtu} -F --payload_file_path={payload}"),
            _ => format!("{common} -m {mtu} -s {size} -F --payload_file_path={payload}"),
        }
    }
}

/// Waits until a program of the guest listens at [`PORT`], and returns the address that leads to it. The
/// guest refuses a connection that comes too early, and QEMU tries it again only after seconds.
pub fn wait_for_server(machine: &mut Machine) -> Result<SocketAddr> {
    let entry = format!(":{PORT:04X} [0-9A-F:]* 0A ");
    let command = format!("until grep -q '{entry}' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done");
    machine.control.require(&command, SERVER_LIMIT)?;
    Ok(machine.forward(PORT).context("no way to the guest")?.into())
}

/// The output of a program, on one line.
fn said(outcome: &CommandOutcome) -> String {
    let lines: Vec<_> = outcome.output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("the program ended with {}: {}", outcome.status, lines.join(" | "))
}

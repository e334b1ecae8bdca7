//! The checked-in list: programs on one or two virtual hosts, and what they have to do.

use super::ucx;
use crate::guest::table::Verdict;
use crate::installation::{
    HostedProgram, Installation, ProgramEnd, free_port, is_installed, needs_library, path_of,
};
use crate::perftest_rows::{agree, clock_note, has_all_sizes, has_rows};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

const LIST: &str = include_str!("../../judges/run-programs.csv");
/// RDMA CM port of those rdma-core examples that take no other.
const EXAMPLES_PORT: u16 = 7174;
/// A program whose receiver listens nowhere. Its sender sleeps for three seconds after it has joined the
/// group.
const JOINING: &str = "mckey";
/// What rping of rdma-core 44 and 56 prints before it exits with 255 if it closes its event channel just
/// before its own thread asks the channel for the next event. It does not wait for the thread, as later
/// versions do. By then everything has been exchanged.
pub(super) const CLOSED_CHANNEL: &str = "rdma_get_cm_event: Bad file descriptor";
/// A host must have sent this many frames before its peer is killed, so that data flows by then.
const FRAMES_BEFORE_KILL: u64 = 1000;
/// Rows that an endless test prints before it is interrupted.
const ROWS_BEFORE_INTERRUPT: usize = 2;
/// An option that perftest 4.5 does not have.
const LATER_OPTION: &str = "--write_with_imm";
/// Local ACK timeout codes that perftest and RDMA CM set, and the number of tries of a requester with 7
/// retries.
const ACK_TIMEOUT: u32 = 14;
const CONNECTION_ACK_TIMEOUT: u32 = 17;
const TRIES: u32 = 8;
/// How long a program may take to end after it was told to, on a machine that does other things as well.
const ENDING: Duration = Duration::from_secs(8);
/// Prefixes of program names, and the Debian packages that have the programs.
const PACKAGES: [(&str, &str); 12] = [
    ("ibv_", "ibverbs-utils ibverbs-providers"),
    ("ib_", "perftest"),
    ("rdma_", "rdmacm-utils"),
    ("rdma", "iproute2"),
    ("rping", "rdmacm-utils"),
    ("ucmatose", "rdmacm-utils"),
    ("udaddy", "rdmacm-utils"),
    ("mckey", "rdmacm-utils"),
    ("ucx_", "ucx-utils"),
    ("mpirun", "openmpi-bin"),
    ("fi_", "libfabric-bin"),
    ("qperf", "qperf"),
];

/// A row of the list.
#[derive(Debug)]
pub struct ListedCase {
    program: HostedProgram,
    /// A second program, which is started once the first listens.
    peer: Option<HostedProgram>,
    /// Options of `bareverbs run`, for both.
    options: Vec<String>,
    demand: Demand,
    /// Words that the output of one program or the other must contain.
    output: Vec<String>,
}

/// What a program has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    Succeeds,
    /// It must report what is wrong and end.
    Fails,
    /// Both succeed, and what they measured agrees.
    Agrees,
    /// The first program is killed while data flows; the second must notice that, report it and end.
    SeesKill,
    /// The second program is interrupted after it has printed some rows; then both must succeed.
    Interrupted,
}

/// All rows.
pub fn cases() -> Result<Vec<ListedCase>> {
    let mut reader = csv::Reader::from_reader(LIST.as_bytes());
    reader.records().map(|row| case(&row?)).collect()
}

fn case(row: &csv::StringRecord) -> Result<ListedCase> {
    let words = |at: usize| -> Vec<String> { row[at].split_whitespace().map(str::to_owned).collect() };
    let peer = HostedProgram { host: row[2].to_owned(), command: words(3) };
    Ok(ListedCase {
        program: HostedProgram { host: row[0].to_owned(), command: words(1) },
        peer: Some(peer).filter(|peer| !peer.command.is_empty()),
        options: words(4),
        demand: match &row[5] {
            "succeeds" => Demand::Succeeds,
            "fails" => Demand::Fails,
            "agrees" => Demand::Agrees,
            "sees kill" => Demand::SeesKill,
            "interrupted" => Demand::Interrupted,
            other => bail!("{other:?} is no verdict"),
        },
        output: words(6),
    })
}

impl fmt::Display for ListedCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.program.host, self.program.command.join(" "))?;
        if let Some(peer) = &self.peer {
            write!(f, " / {}: {}", peer.host, peer.command.join(" "))?;
        }
        if !self.options.is_empty() {
            write!(f, " ({})", self.options.join(" "))?;
        }
        match self.demand {
            Demand::SeesKill => f.write_str(", the first is killed"),
            Demand::Interrupted => f.write_str(", the second is interrupted"),
            _ => Ok(()),
        }
    }
}

impl ListedCase {
    /// A server and a client that must both succeed, with figures that agree.
    pub(super) const fn agreeing(program: HostedProgram, peer: HostedProgram, options: Vec<String>) -> Self {
        Self { program, peer: Some(peer), options, demand: Demand::Agrees, output: Vec::new() }
    }

    /// Runs the programs and compares.
    pub fn judge(&self, installation: &Installation) -> Result<Verdict> {
        let programs = [Some(&self.program), self.peer.as_ref()].into_iter().flatten();
        if let Some(reason) = programs.filter_map(|program| missing(&program.command)).next() {
            return Ok(Verdict::Skip(reason));
        }
        self.check(installation).map(|()| Verdict::Pass(String::new()))
    }

    /// Why this row is for another system than this one. Debian 13 builds UCX with MPI: its `ucx_perftest`
    /// has to be started by mpirun, and that of Debian 12 must not be.
    pub fn is_for_another_system(&self) -> Option<&'static str> {
        let has = |name: &str| self.program.command.iter().any(|word| word == name);
        let commands = [Some(&self.program), self.peer.as_ref()].into_iter().flatten();
        let of_perftest =
            commands.filter_map(|program| program.command.first()).find(|name| name.starts_with("ib_"));
        if let Some(program) = of_perftest.filter(|_| has(LATER_OPTION))
            && is_installed(program)
            && !knows_option(program, LATER_OPTION)
        {
            return Some("the perftest here has no --write_with_imm");
        }
        let path = path_of("ucx_perftest").filter(|_| has("ucx_perftest"))?;
        match (has("mpirun"), needs_library(&path, "libmpi.so")) {
            (false, true) => Some("ucx_perftest is built for mpirun here"),
            (true, false) => Some("ucx_perftest is not built for mpirun here"),
            _ => None,
        }
    }

    fn check(&self, installation: &Installation) -> Result<()> {
        let Some(peer) = &self.peer else {
            let ended = installation.run(&self.program, &self.options)?;
            self.check_end(&ended)?;
            return self.check_output(&ended.said);
        };
        let names_port = self.program.command.iter().any(|word| word.contains("{port}"));
        let port = if names_port { free_port()? } else { EXAMPLES_PORT };
        let (program, peer) = (self.program.with_port(port), peer.with_port(port));
        let mut first = installation.start(&program, &self.options)?;
        if self.program.command.first().is_none_or(|program| program != JOINING) {
            first.wait_for_port(installation, port)?;
        }
        let mut second = installation.start(&peer, &self.options)?;
        if self.demand == Demand::Interrupted {
            second.wait_until_said(|said| has_rows(said, ROWS_BEFORE_INTERRUPT))?;
            second.interrupt()?;
        }
        if self.demand == Demand::SeesKill {
            installation.wait_for_frames(&peer.host, FRAMES_BEFORE_KILL)?;
            drop(first);
            let killed = Instant::now();
            let second = second.finish()?;
            self.check_time(killed.elapsed())?;
            ensure!(!second.status.success(), "the second has not noticed, and said:\n{}", second.said);
            return self.check_output(&second.said);
        }
        let (first, second) = (first.finish(), second.finish());
        let (first, second) = (first?, second?);
        self.check_end(&first)?;
        self.check_end(&second)?;
        if self.demand == Demand::Agrees {
            let said = || format!("what they said:\n{}\nand\n{}", first.said, second.said);
            agree(&first.said, &second.said).with_context(said)?;
            let note = clock_note(&said());
            if !note.is_empty() {
                eprintln!("{}{note}", self.program.command.join(" "));
            }
            let has = |word: &str| peer.command.iter().any(|given| given == word);
            if has("-a") {
                has_all_sizes(&second.said, has("UD")).with_context(said)?;
            }
        }
        self.check_output(&(first.said + &second.said))
    }

    /// A requester reports that a peer is gone when all tries have timed out. Each takes at least the local
    /// ACK timeout and at most four times that (IBTA v1.4 §9.7.6.1.3). With `-R`, perftest 4.5 leaves the
    /// timeout to RDMA CM; 25.01 sets its own there too.
    fn check_time(&self, elapsed: Duration) -> Result<()> {
        let uses_connection_management = self.program.command.iter().any(|word| word == "-R");
        let longest = if uses_connection_management { CONNECTION_ACK_TIMEOUT } else { ACK_TIMEOUT };
        let tries = |code: u32| Duration::from_nanos(4096 << code) * TRIES;
        let least = tries(ACK_TIMEOUT);
        ensure!(
            elapsed >= least,
            "the second has noticed after {elapsed:?}; its tries take {least:?} at least"
        );
        let most = tries(longest) * 4 + ENDING;
        ensure!(elapsed <= most, "the second has noticed after {elapsed:?}, and should have after {most:?}");
        Ok(())
    }

    fn check_end(&self, ProgramEnd { status, said }: &ProgramEnd) -> Result<()> {
        let is_rping = self.program.command.iter().any(|word| word == "rping");
        if is_rping && self.demand == Demand::Succeeds && said.contains(CLOSED_CHANNEL) {
            return Ok(());
        }
        ensure!(status.success() == (self.demand != Demand::Fails), "{status}, and said:\n{said}");
        ensure!(status.code().is_some(), "ended by a signal: {status}, and said:\n{said}");
        Ok(())
    }

    fn check_output(&self, said: &str) -> Result<()> {
        for word in &self.output {
            ensure!(said.contains(word.as_str()), "{word} is not in what was said:\n{said}");
        }
        Ok(())
    }
}

/// Whether the help text of a program names an option.
fn knows_option(program: &str, option: &str) -> bool {
    let help = Command::new(program).arg("--help").output();
    help.is_ok_and(|help| String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).contains(option))
}

/// Why a command cannot run here: its program is not installed, or UCX was built without RDMA.
fn missing(command: &[String]) -> Option<String> {
    // `env NAME=VALUE PROGRAM`
    let program = command.iter().find(|word| *word != "env" && !word.contains('='))?;
    let (_, package) = PACKAGES.iter().find(|(beginning, _)| program.starts_with(beginning))?;
    if is_installed(program) {
        return ucx::missing(command);
    }
    Some(format!("{program} is not installed (Debian: apt-get install {package})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_list_can_be_read() {
        assert!(cases().unwrap().len() > 60);
    }

    #[test]
    fn a_program_that_is_not_installed_is_named_with_its_package() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let reason = missing(&words("env UCX_TLS=rc ucx_no_such_program -v")).unwrap();
        assert_eq!(reason, "ucx_no_such_program is not installed (Debian: apt-get install ucx-utils)");
        assert_eq!(missing(&words("no-such-program")), None, "rows of the list use this name on purpose");
    }
}

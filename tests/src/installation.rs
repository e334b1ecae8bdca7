//! An installation of `bareverbs run` that everybody can read, and programs that it starts.

use crate::kill_on_drop::KillOnDrop;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The files under test, which lie beside the judge.
const FILES: [&str; 2] = ["bareverbs", "libbareverbs_preload.so"];
/// The unprivileged user (`nobody`) to switch to when this runs as root.
const NOBODY: u32 = 65534;
/// An RDMA CM port is visible from outside once it is bound. Programs listen right after that, but a request
/// that arrives in between is rejected.
const FROM_BIND_TO_LISTEN: Duration = Duration::from_millis(500);
/// How long a program may take on a machine that does other things as well.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// How much of a running program's output is examined.
const BEGINNING: usize = 1 << 16;

/// A program on a virtual host.
#[derive(Debug, Clone)]
pub struct HostedProgram {
    /// Name of the host.
    pub host: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

impl HostedProgram {
    /// The same command with the number of a TCP port in place of `{port}`.
    pub fn with_port(&self, port: u16) -> Self {
        let command = self.command.iter().map(|word| word.replace("{port}", &port.to_string())).collect();
        Self { host: self.host.clone(), command }
    }
}

/// The programs under test in a directory that everybody can read.
#[derive(Debug)]
pub struct Installation {
    directory: tempfile::TempDir,
    as_nobody: bool,
}

impl Installation {
    /// Copies the files that lie beside this program.
    pub fn new() -> Result<Self> {
        let own = std::env::current_exe().context("where am I")?;
        let built = own.parent().context("a program is in a directory")?;
        let directory = tempfile::Builder::new().prefix("run-judge").tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        for name in FILES {
            let copied = fs::copy(built.join(name), directory.path().join(name));
            copied.with_context(|| format!("{name}: cargo build --release makes it"))?;
        }
        let installation = Self { directory, as_nobody: rustix::process::geteuid().is_root() };
        installation.own_directory("runtime")?;
        Ok(installation)
    }

    /// The path of a file with this name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Creates a directory that the programs may write to.
    pub fn own_directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir(&path)?;
        if self.as_nobody {
            chown(&path, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(path)
    }

    /// Starts a program of a virtual host.
    pub fn start(&self, program: &HostedProgram, options: &[String]) -> Result<StartedProgram> {
        self.start_by(Command::new(self.path("bareverbs")), program, options)
    }

    /// Starts a program through a shell script that has the command as its arguments.
    pub fn start_by_script(
        &self,
        script: &[&str],
        program: &HostedProgram,
        options: &[String],
    ) -> Result<StartedProgram> {
        let (first, rest) = script.split_first().context("a script is words")?;
        let mut command = Command::new(first);
        command.args(rest).arg("sh").arg(self.path("bareverbs"));
        self.start_by(command, program, options)
    }

    /// Starts a program with a command that is, or becomes, `bareverbs`.
    fn start_by(
        &self,
        mut command: Command,
        program: &HostedProgram,
        options: &[String],
    ) -> Result<StartedProgram> {
        match program.command.split_first() {
            // Our own tools are hosts by themselves.
            Some((tool, rest)) if tool == "bareverbs" => {
                command.args(rest).args(["--host", &program.host]).args(options);
            }
            _ => {
                command.args(["run", "--host", &program.host]).args(options);
                command.arg("--").args(&program.command);
            }
        }
        self.spawn(command, program.command.join(" "))
    }

    /// Runs one of our commands that starts no program and is no host, such as `run --list`, to its end.
    pub fn run_tool(&self, arguments: &[&str]) -> Result<ProgramEnd> {
        self.start_tool(arguments)?.finish()
    }

    /// Starts one of our commands that starts no program and is no host.
    pub fn start_tool(&self, arguments: &[&str]) -> Result<StartedProgram> {
        let mut command = Command::new(self.path("bareverbs"));
        command.args(arguments);
        self.spawn(command, arguments.join(" "))
    }

    /// Runs a shell script that has `bareverbs` on its path and stops at the first command that fails.
    pub fn run_shell(&self, script: &str) -> Result<ProgramEnd> {
        let mut command = Command::new("sh");
        let directories = std::env::var_os("PATH").unwrap_or_default();
        let own = [self.directory.path().to_owned()];
        let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&directories)))?;
        command.args(["-ec", script]).env("PATH", path);
        self.spawn(command, "a script".into())?.finish()
    }

    /// The directory of a network.
    pub fn network_path(&self, name: &str) -> PathBuf {
        self.path("runtime/bareverbs/networks").join(name)
    }

    fn spawn(&self, mut command: Command, name: String) -> Result<StartedProgram> {
        command.env("XDG_RUNTIME_DIR", self.path("runtime")).current_dir(self.directory.path());
        let mut command = self.unprivileged(&command);
        let said = tempfile::tempfile_in(self.directory.path())?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
        let child = KillOnDrop(command.spawn().context("cannot start setpriv (of util-linux)")?);
        Ok(StartedProgram { child, said, name, start: Instant::now(), limit: LIMIT })
    }

    /// The same command as `nobody`, if this runs as root. The kernel kills the program when this process ends in whatever way: a server
    /// of perftest whose judge was killed would spin for ever.
    fn unprivileged(&self, command: &Command) -> Command {
        let mut by_setpriv = Command::new("setpriv");
        by_setpriv.args(["--pdeathsig", "SIGKILL"]);
        if self.as_nobody {
            let nobody = NOBODY.to_string();
            by_setpriv.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
        }
        by_setpriv.arg("--").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => by_setpriv.env(name, value),
                None => by_setpriv.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            by_setpriv.current_dir(directory);
        }
        by_setpriv
    }

    /// Waits until a process of a host has sent `wanted` frames.
    pub fn wait_for_frames(&self, host: &str, wanted: u64) -> Result<()> {
        self.wait_for(host, |process| process.sent >= wanted, &format!("{wanted} frames sent"))
    }

    /// Waits until threads of a program have run their device for `wanted` rounds.
    pub fn wait_for_driven_rounds(&self, host: &str, wanted: u64) -> Result<()> {
        self.wait_for(host, |process| process.driven >= wanted, &format!("{wanted} driven rounds"))
    }

    /// The processes that `bareverbs run --list` shows.
    pub fn list(&self) -> Result<Vec<ListedProcess>> {
        let said = self.run_tool(&["run", "--list"])?.said;
        let mut rows = said.lines();
        let heading: Vec<&str> = rows.next().unwrap_or_default().split_whitespace().collect();
        Ok(rows.filter_map(|row| ListedProcess::parse(&heading, row)).collect())
    }

    /// Waits until `bareverbs run --list` shows a process of a host that satisfies `is_so`.
    fn wait_for(&self, host: &str, is_so: impl Fn(&ListedProcess) -> bool, what: &str) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if self.list()?.iter().any(|process| process.host == host && is_so(process)) {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        bail!("no process of host {host} has {what} in `run --list` after {} s", LIMIT.as_secs())
    }

    /// Whether a program of a virtual host has bound an RDMA CM port:
    /// `NETWORK/hosts/HOST/ports/PROCESS/SPACE-PORT`.
    fn has_connection_port(&self, port: u16) -> bool {
        let networks = self.path("runtime/bareverbs/networks");
        let below = |paths: Vec<PathBuf>| -> Vec<PathBuf> {
            let entries = paths.iter().filter_map(|path| fs::read_dir(path).ok());
            entries.flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
        };
        let hosts = below(vec![networks]).iter().map(|network| network.join("hosts")).collect();
        let ports = below(hosts).iter().map(|host| host.join("ports")).collect();
        let wanted = format!("-{port}");
        below(below(ports)).iter().any(|path| path.to_string_lossy().ends_with(&wanted))
    }

    /// Runs a program to its end.
    pub fn run(&self, program: &HostedProgram, options: &[String]) -> Result<ProgramEnd> {
        self.start(program, options)?.finish()
    }
}

/// A process as `bareverbs run --list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedProcess {
    /// Name of the host at one of its devices.
    pub host: String,
    /// Number of the process.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Number of its queue pairs.
    pub queue_pairs: u64,
    /// Frames that it has sent.
    pub sent: u64,
    /// Frames that it has received.
    pub received: u64,
    /// Rounds for which its threads have run the device.
    pub driven: u64,
}

impl ListedProcess {
    /// Parses a row below a heading; `None` if it shows no process.
    fn parse(heading: &[&str], row: &str) -> Option<Self> {
        // The state of the cable follows the address.
        let cells: Vec<&str> = row.split_whitespace().filter(|cell| *cell != "(down)").collect();
        let cell = |name| cells.get(heading.iter().position(|heading| *heading == name)?).copied();
        // Our own tools have no object counts.
        let count = |name| Some(cell(name)?.parse().unwrap_or(0));
        Some(Self {
            host: cell("host")?.to_owned(),
            pid: cell("pid")?.parse().ok()?,
            program: cell("program")?.to_owned(),
            queue_pairs: count("queue-pairs")?,
            sent: count("sent")?,
            received: count("received")?,
            driven: count("driven")?,
        })
    }
}

/// A program that was started. Dropping this ends it.
#[derive(Debug)]
pub struct StartedProgram {
    child: KillOnDrop,
    said: File,
    name: String,
    start: Instant,
    limit: Duration,
}

/// A program that has ended, and its output.
#[derive(Debug, Clone)]
pub struct ProgramEnd {
    /// How it ended.
    pub status: ExitStatus,
    /// Both of its outputs.
    pub said: String,
}

impl StartedProgram {
    /// Sets a time limit other than the default.
    #[must_use]
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Number of its process: `bareverbs run` becomes the program.
    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Waits for the end of the program, within the limit.
    pub fn finish(mut self) -> Result<ProgramEnd> {
        loop {
            if let Some(status) = self.child.0.try_wait()? {
                return Ok(ProgramEnd { status, said: self.said()? });
            }
            if self.start.elapsed() > self.limit {
                bail!(
                    "{} has not ended after {} s, and said:\n{}",
                    self.name,
                    self.limit.as_secs(),
                    self.said()?
                );
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until the program has created a file.
    pub fn wait_for_file(mut self, path: &Path) -> Result<Self> {
        while !path.exists() {
            let has_ended = self.child.0.try_wait()?.is_some();
            ensure!(
                !has_ended && self.start.elapsed() < self.limit,
                "{} does not make {}; it said:\n{}",
                self.name,
                path.display(),
                self.said()?
            );
            std::thread::sleep(PAUSE);
        }
        Ok(self)
    }

    /// Waits until its output satisfies `is_wanted`.
    pub fn wait_until_said(&mut self, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
        let mut beginning = vec![0; BEGINNING];
        loop {
            // The program writes at the file's offset, so reading must not move it.
            let length = self.said.read_at(&mut beginning, 0)?;
            if is_wanted(&String::from_utf8_lossy(&beginning[..length])) {
                return Ok(());
            }
            let has_ended = self.child.0.try_wait()?.is_some();
            ensure!(
                !has_ended && self.start.elapsed() < self.limit,
                "{} does not say what is waited for, but:\n{}",
                self.name,
                self.said()?
            );
            std::thread::sleep(PAUSE);
        }
    }

    /// Sends it SIGINT, as Ctrl-C does.
    pub fn interrupt(&self) -> Result<()> {
        kill_process(Pid::from_child(&self.child.0), Signal::INT).context("cannot interrupt a program")
    }

    fn said(&self) -> Result<String> {
        let mut bytes = Vec::new();
        let mut said = &self.said;
        said.rewind()?;
        said.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until somebody listens on a TCP or RDMA CM port, or this program has ended.
    pub fn wait_for_port(&mut self, installation: &Installation, port: u16) -> Result<()> {
        while !is_listening(port)? && self.child.0.try_wait()?.is_none() {
            if installation.has_connection_port(port) {
                std::thread::sleep(FROM_BIND_TO_LISTEN);
                break;
            }
            ensure!(
                self.start.elapsed() < self.limit,
                "{} does not listen; it said:\n{}",
                self.name,
                self.said()?
            );
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Whether somebody on this machine listens on a TCP port: local address and state `0A` in the kernel's tables.
fn is_listening(port: u16) -> Result<bool> {
    let wanted = format!(":{port:04X}");
    let listens = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1).is_some_and(|local| local.ends_with(&wanted)) && words.get(3) == Some(&"0A")
    };
    let tables =
        fs::read_to_string("/proc/net/tcp")? + &fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    Ok(tables.lines().any(listens))
}

/// A TCP port that nobody uses.
///
/// # Errors
/// All of them are in use.
pub fn free_port() -> Result<u16> {
    crate::free_port::free_port().context("every TCP port is in use")
}

/// Whether a program is in a directory of PATH.
pub fn is_installed(program: &str) -> bool {
    path_of(program).is_some()
}

/// The location of a program on the path.
pub fn path_of(program: &str) -> Option<PathBuf> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths::<OsStr>(&directories).map(|directory| directory.join(program));
    paths.find(|path| path.is_file())
}

/// Whether a program links a library whose file name begins with `library`.
pub fn needs_library(program: &Path, library: &str) -> bool {
    let named = |bytes: Vec<u8>| bytes.windows(library.len()).any(|window| window == library.as_bytes());
    fs::read(program).is_ok_and(named)
}

/// Parses lines of the form `name: value`; ignores other lines.
pub fn printed_fields(text: &str) -> BTreeMap<String, String> {
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: std::collections::BTreeSet<u16> = (0..500).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 500);
    }

    #[test]
    fn a_listed_process_is_read_also_where_its_cable_is_out() {
        let heading = [
            "host",
            "address",
            "number",
            "pid",
            "program",
            "queue-pairs",
            "completion-queues",
            "memory-regions",
        ];
        let heading = [&heading[..], &["sent", "received", "lost", "driven"]].concat();
        let process =
            ListedProcess::parse(&heading, "a-mlx5_1 198.18.0.2 (down) 3 77 ib_send_lat 1 2 3 10 20 0 5");
        let process = process.expect("a process");
        assert_eq!((process.pid, process.queue_pairs, process.sent, process.driven), (77, 1, 10, 5));
        assert_eq!(ListedProcess::parse(&heading, "b 198.18.0.3 -"), None, "a host without processes");
    }
}

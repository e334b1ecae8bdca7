//! Programs that nobody here wrote, under `bareverbs run`: each of the checked-in list has to do what the list says.
//!
//! Runs what is in the directory of this program (`bareverbs`, `libbareverbs_preload.so`), as an unprivileged user where it may
//! choose. Exit status 77: the programs are not installed.

use anyhow::{Context, Result, bail, ensure};
use bareverbs_sim::nic::NicConfig;
use bareverbs_uverbs::VirtualHost;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const LIST: &str = include_str!("../../judges/run-programs.csv");
const FILES: [&str; 2] = ["bareverbs", "libbareverbs_preload.so"];
/// Port of connection management of those of rdma-core's examples that cannot be given another.
const EXAMPLES_PORT: u16 = 7174;
/// User that has no rights (`nobody`), for when this runs as root.
const NOBODY: u32 = 65534;
/// How long a program may take on a machine that does other things as well.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// How long a program runs before it is killed.
const BEFORE_KILL: Duration = Duration::from_secs(2);
const SKIPPED: u8 = 77;

/// A program on a virtual host.
struct HostedProgram {
    host: String,
    command: Vec<String>,
}

/// A row of the list.
struct ListedCase {
    program: HostedProgram,
    /// A second program, which is started when the first listens.
    peer: Option<HostedProgram>,
    /// Options of `bareverbs run`, for both.
    options: Vec<String>,
    verdict: Demand,
    /// Words that the output holds, of one program or the other.
    output: Vec<String>,
}

/// What a program has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    Succeeds,
    /// It says what is wrong and ends.
    Fails,
    /// The first program is killed while data flows; the second has to see that, say so and end.
    SeesKill,
}

/// The programs under test in a directory that everybody can read.
struct Installation {
    directory: tempfile::TempDir,
    as_nobody: bool,
}

impl Installation {
    fn new() -> Result<Self> {
        let own = std::env::current_exe().context("where am I")?;
        let built = own.parent().context("a program is in a directory")?;
        let directory = tempfile::Builder::new().prefix("run-judge").tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        for name in FILES {
            let copied = fs::copy(built.join(name), directory.path().join(name));
            copied.with_context(|| format!("{name}: cargo build --release makes it"))?;
        }
        let as_nobody = rustix::process::geteuid().is_root();
        let runtime = directory.path().join("runtime");
        fs::create_dir(&runtime)?;
        if as_nobody {
            chown(&runtime, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(Self { directory, as_nobody })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a program of a virtual host.
    fn start(&self, program: &HostedProgram, options: &[String]) -> Result<StartedProgram> {
        let mut command = Command::new(self.path("bareverbs"));
        command.args(["run", "--host", &program.host]).args(options).arg("--").args(&program.command);
        command.env("XDG_RUNTIME_DIR", self.path("runtime")).current_dir(self.directory.path());
        let said = tempfile::tempfile_in(self.directory.path())?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
        if self.as_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        let child = command.spawn().context("cannot start bareverbs run")?;
        Ok(StartedProgram { child, said, name: program.command.join(" "), start: Instant::now() })
    }

    /// Whether a program of a virtual host has a port of connection management: `hosts/HOST/ports/PROCESS/SPACE-PORT`.
    fn has_connection_port(&self, port: u16) -> bool {
        let hosts = self.path("runtime/bareverbs/networks/default/hosts");
        let below = |paths: Vec<PathBuf>| -> Vec<PathBuf> {
            let entries = paths.iter().filter_map(|path| fs::read_dir(path).ok());
            entries.flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
        };
        let ports = below(vec![hosts]).iter().map(|host| host.join("ports")).collect();
        let wanted = format!("-{port}");
        below(below(ports)).iter().any(|path| path.to_string_lossy().ends_with(&wanted))
    }

    /// Runs a program to its end.
    fn run(&self, program: &HostedProgram, options: &[String]) -> Result<ProgramEnd> {
        self.start(program, options)?.finish()
    }
}

/// A program that was started. It does not outlive this.
struct StartedProgram {
    child: Child,
    said: File,
    name: String,
    start: Instant,
}

/// A program that has ended, and what it said.
struct ProgramEnd {
    status: ExitStatus,
    said: String,
}

impl StartedProgram {
    /// Waits for the end, which has to come before the limit.
    fn finish(mut self) -> Result<ProgramEnd> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(ProgramEnd { status, said: self.said()? });
            }
            if self.start.elapsed() > LIMIT {
                bail!("{} has not ended after {} s, and said:\n{}", self.name, LIMIT.as_secs(), self.said()?);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn said(&self) -> Result<String> {
        let mut bytes = Vec::new();
        let mut said = &self.said;
        said.rewind()?;
        said.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until somebody listens on a port, of TCP or of connection management, or this program has ended.
    fn wait_for_port(&mut self, installation: &Installation, port: u16) -> Result<()> {
        while !is_listening(port)?
            && !installation.has_connection_port(port)
            && self.child.try_wait()?.is_none()
        {
            ensure!(
                self.start.elapsed() < LIMIT,
                "{} does not listen; it said:\n{}",
                self.name,
                self.said()?
            );
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// A TCP port that nobody has.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn cases() -> Result<Vec<ListedCase>> {
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
        verdict: match &row[5] {
            "succeeds" => Demand::Succeeds,
            "fails" => Demand::Fails,
            "sees kill" => Demand::SeesKill,
            other => bail!("{other:?} is no verdict"),
        },
        output: words(6),
    })
}

impl HostedProgram {
    /// With the number of a TCP port in place of `{port}`.
    fn with_port(&self, port: u16) -> Self {
        let command = self.command.iter().map(|word| word.replace("{port}", &port.to_string())).collect();
        Self { host: self.host.clone(), command }
    }
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
        if self.verdict == Demand::SeesKill { f.write_str(", the first is killed") } else { Ok(()) }
    }
}

impl ListedCase {
    fn judge(&self, installation: &Installation) -> Result<()> {
        let Some(peer) = &self.peer else {
            let ended = installation.run(&self.program, &self.options)?;
            self.check_end(&ended)?;
            return self.check_output(&ended.said);
        };
        let names_port = self.program.command.iter().any(|word| word.contains("{port}"));
        let port = if names_port { free_port()? } else { EXAMPLES_PORT };
        let (program, peer) = (self.program.with_port(port), peer.with_port(port));
        let mut first = installation.start(&program, &self.options)?;
        first.wait_for_port(installation, port)?;
        let second = installation.start(&peer, &self.options)?;
        if self.verdict == Demand::SeesKill {
            std::thread::sleep(BEFORE_KILL);
            drop(first);
            let second = second.finish()?;
            ensure!(!second.status.success(), "the second has not noticed, and said:\n{}", second.said);
            return self.check_output(&second.said);
        }
        let (first, second) = (first.finish(), second.finish());
        let (first, second) = (first?, second?);
        self.check_end(&first)?;
        self.check_end(&second)?;
        self.check_output(&(first.said + &second.said))
    }

    fn check_end(&self, ProgramEnd { status, said }: &ProgramEnd) -> Result<()> {
        ensure!(status.success() == (self.verdict == Demand::Succeeds), "{status}, and said:\n{said}");
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

/// Compares what `ibv_devinfo -v` prints with what the device was made like.
fn judge_fields(installation: &Installation) -> Result<()> {
    let host = VirtualHost::new("a").context("a name")?;
    let command = vec!["ibv_devinfo".into(), "-v".into()];
    let ended = installation.run(&HostedProgram { host: host.name().into(), command }, &[])?;
    let printed = fields(&ended.said);
    for (name, value) in expected(&host) {
        let got = printed.get(name).map(String::as_str).unwrap_or("nothing");
        ensure!(got == value, "{name} is {got}, and should be {value}");
    }
    Ok(())
}

/// `name: value` of every line.
fn fields(text: &str) -> BTreeMap<String, String> {
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(field).collect()
}

fn expected(host: &VirtualHost) -> Vec<(&'static str, String)> {
    let NicConfig { limits, firmware_revision: [major, minor, subminor], device_id, .. } = host.nic_config(0);
    let [a, b, c, d] = host.ipv4();
    vec![
        ("hca_id", "mlx5_0".into()),
        ("transport", "InfiniBand (0)".into()),
        ("fw_ver", format!("{major}.{minor}.{subminor}")),
        ("vendor_id", "0x02c9".into()),
        ("vendor_part_id", device_id.to_string()),
        ("phys_port_cnt", "1".into()),
        ("max_qp", (1_u32 << limits.log_max_qp).to_string()),
        ("max_qp_wr", (1_u32 << limits.log_max_qp_size).to_string()),
        ("max_cq", (1_u32 << limits.log_max_cq).to_string()),
        ("max_cqe", ((1_u32 << limits.log_max_cq_size) - 1).to_string()),
        ("max_mr", (1_u32 << limits.log_max_mkey).to_string()),
        ("max_pd", (1_u32 << limits.log_max_pd).to_string()),
        ("max_qp_rd_atom", (1_u32 << limits.log_max_initiator_depth).to_string()),
        ("max_qp_init_rd_atom", (1_u32 << limits.log_max_responder_resources).to_string()),
        ("atomic_cap", "ATOMIC_HCA (1)".into()),
        ("hca_core_clock", "1000000kHZ".into()),
        ("port", "1".into()),
        ("state", "PORT_ACTIVE (4)".into()),
        ("max_mtu", "4096 (5)".into()),
        ("active_mtu", "4096 (5)".into()),
        ("link_layer", "Ethernet".into()),
        ("max_msg_sz", format!("{:#x}", 1_u64 << limits.log_max_message)),
        ("gid_tbl_len", limits.roce_addresses.to_string()),
        ("active_width", "4X (2)".into()),
        ("active_speed", "25.0 Gbps (32)".into()),
        ("phys_state", "LINK_UP (5)".into()),
        ("GID[  0]", format!("::ffff:{a}.{b}.{c}.{d}, RoCE v2")),
    ]
}

/// Programs of the list that are not installed.
fn missing() -> Vec<&'static str> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&str| {
        std::env::split_paths(&directories).any(|directory| Path::new(&directory).join(program).is_file())
    };
    ["ibv_devinfo", "ib_write_bw", "rdma"].into_iter().filter(|program| !is_there(program)).collect()
}

fn judge() -> Result<bool> {
    let installation = Installation::new()?;
    let mut failed = 0;
    let mut tell = |name: &str, verdict: Result<()>| match verdict {
        Ok(()) => println!("pass  {name}"),
        Err(error) => {
            failed += 1;
            println!("FAIL  {name}: {error:#}");
        }
    };
    for case in cases()? {
        tell(&case.to_string(), case.judge(&installation));
    }
    tell("a: fields of ibv_devinfo -v", judge_fields(&installation));
    Ok(failed == 0)
}

fn main() -> ExitCode {
    let missing = missing();
    if !missing.is_empty() {
        println!(
            "SKIPPED: {} not installed (Debian: apt-get install ibverbs-utils ibverbs-providers iproute2 perftest)",
            missing.join(", ")
        );
        return ExitCode::from(SKIPPED);
    }
    match judge() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAIL  {error:#}");
            ExitCode::FAILURE
        }
    }
}

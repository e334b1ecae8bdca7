//! Programs that nobody here wrote, under `bareverbs run`: each of the checked-in list has to do what the list says.
//!
//! Runs what is in the directory of this program (`bareverbs`, `libbareverbs_preload.so`), as an unprivileged user where it may
//! choose. Exit status 77: the programs are not installed.

use anyhow::{Context, Result, bail, ensure};
use bareverbs_sim::nic::NicConfig;
use bareverbs_uverbs::VirtualHost;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

const LIST: &str = include_str!("../../judges/run-programs.csv");
const FILES: [&str; 2] = ["bareverbs", "libbareverbs_preload.so"];
/// User that has no rights (`nobody`), for when this runs as root.
const NOBODY: u32 = 65534;
/// How long a program may take on a machine that does other things as well.
const LIMIT: Duration = Duration::from_secs(60);
const SKIPPED: u8 = 77;

/// A row of the list.
struct Case {
    host: String,
    command: Vec<String>,
    /// Whether the program has to succeed. If not, it has to say so and end.
    succeeds: bool,
    /// Words that its output holds.
    output: Vec<String>,
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

    /// Runs a program of a virtual host to its end.
    fn run(&self, host: &str, program: &[String]) -> Result<Output> {
        let mut command = Command::new(self.path("bareverbs"));
        command.args(["run", "--host", host, "--"]).args(program);
        command.env("XDG_RUNTIME_DIR", self.path("runtime")).current_dir(self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.as_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        finish(command, program)
    }
}

/// Waits for the end of a program, which has to come before the limit.
fn finish(mut command: Command, program: &[String]) -> Result<Output> {
    let mut child = command.spawn().context("cannot start bareverbs run")?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            bail!("{} has not ended after {} s", program.join(" "), LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.stdout.take().context("piped")?.read_to_end(&mut stdout)?;
    child.stderr.take().context("piped")?.read_to_end(&mut stderr)?;
    Ok(Output { status, stdout, stderr })
}

fn cases() -> Result<Vec<Case>> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let mut reader = csv::Reader::from_reader(LIST.as_bytes());
    reader
        .records()
        .map(|row| {
            let row = row?;
            Ok(Case {
                host: row[0].to_owned(),
                command: words(&row[1]),
                succeeds: &row[2] == "succeeds",
                output: words(&row[3]),
            })
        })
        .collect()
}

impl Case {
    fn judge(&self, installation: &Installation) -> Result<()> {
        let output = installation.run(&self.host, &self.command)?;
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success() == self.succeeds, "{}, and said:\n{said}", output.status);
        ensure!(self.succeeds || output.status.code().is_some(), "ended by a signal: {}", output.status);
        for word in &self.output {
            ensure!(said.contains(word.as_str()), "{word} is not in what it said:\n{said}");
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compares what `ibv_devinfo -v` prints with what the device was made like.
fn judge_fields(installation: &Installation) -> Result<()> {
    let host = VirtualHost::new("a").context("a name")?;
    let output = installation.run(host.name(), &["ibv_devinfo".into(), "-v".into()])?;
    let printed = fields(&text(&output.stdout));
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
    let NicConfig { limits, firmware_revision: [major, minor, subminor], device_id, .. } = host.nic_config();
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

fn is_installed(program: &str) -> bool {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories).any(|directory| Path::new(&directory).join(program).is_file())
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
        let name = format!("{}: {}", case.host, case.command.join(" "));
        tell(&name, case.judge(&installation));
    }
    tell("a: fields of ibv_devinfo -v", judge_fields(&installation));
    Ok(failed == 0)
}

fn main() -> ExitCode {
    if !is_installed("ibv_devinfo") {
        println!(
            "SKIPPED: ibv_devinfo is not installed (Debian: apt-get install ibverbs-utils ibverbs-providers)"
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

//! The command `bareverbs` with a NIC of its own at the guest's InfiniBand switch: `ping -c MAD` and the guest's `ibping`, `perf` and
//! the programs of the guest's perftest. Neither end knows that the other is another program.

use super::super::control::{CommandOutcome, Job};
use super::super::interrupt;
use super::super::machine::{HOST_FROM_GUEST, Machine};
use super::super::process::{KillOnDrop, TICK};
use super::super::rxe::bout;
use super::super::table::{Entry, Report, Verdict};
use crate::perftest_rows::agree;
use anyhow::{Context, Result, bail, ensure};
use bareverbs_perftest::Role;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may run, on either side.
const LIMIT: Duration = Duration::from_secs(60);
/// Probes of a row.
const PROBES: u32 = 20;
/// Counters of mlx5_ib, and the requests of a run of `bareverbs perf` that each has to count: no more, no less. With an ACK timeout of
/// 4.3 s (`-u 20`) a busy machine is no reason to repeat one.
const COUNTED: &[(&str, &str, &str, u64)] = &[
    ("rx_write_requests", "write bw", "-u 20 -s 5000 -n 100 -q 2", 200),
    ("rx_read_requests", "read bw", "-u 20 -s 5000 -n 100", 100),
    ("rx_atomic_requests", "atomic lat", "-u 20 -n 50", 50),
];
/// Counters that stand still on a wire that loses nothing.
const QUIET: &[&str] =
    &["out_of_sequence", "packet_seq_err", "duplicate_request", "out_of_buffer", "rnr_nak_retry_err"];
/// The guest's program, the words of `bareverbs perf`, options of both, and the role of the guest's program.
const PERFTEST: &[(&str, &str, &str, Role)] = &[
    ("ib_write_bw", "write bw", "-s 65536 -n 100", Role::Server),
    ("ib_write_bw", "write bw", "-s 64 -n 200 -q 2 -l 10", Role::Client),
    ("ib_write_lat", "write lat", "-n 50", Role::Client),
    ("ib_read_bw", "read bw", "-s 5000 -n 100", Role::Client),
    ("ib_read_lat", "read lat", "-n 50", Role::Server),
    ("ib_send_bw", "send bw", "-c UD -s 1024 -n 100", Role::Server),
    ("ib_send_bw", "send bw", "-c XRC -b -s 4096 -n 100", Role::Client),
    ("ib_send_lat", "send lat", "-n 50", Role::Server),
    ("ib_atomic_bw", "atomic bw", "-n 100", Role::Client),
    ("ib_atomic_lat", "atomic lat", "-c XRC -n 50", Role::Server),
];

/// Both sides.
pub struct ToolSides<'a> {
    /// The guest, which has [`bout::PORT`] forwarded and two devices, of which the first answers.
    pub machine: &'a mut Machine,
    /// The command.
    pub bareverbs: PathBuf,
    /// Where its NIC is served.
    pub socket: PathBuf,
    /// Directory for what it says.
    pub output: &'a Path,
}

/// A run of the command.
struct ToolRun {
    child: KillOnDrop,
    said: PathBuf,
}

/// A row: its name, and what is done.
type ToolRow<'a> = (String, Box<dyn Fn(&mut ToolSides<'_>) -> Result<String> + 'a>);

fn rows<'a>() -> Vec<ToolRow<'a>> {
    let mut rows: Vec<ToolRow<'_>> = vec![
        ("bareverbs ping -c MAD and the guest's ibping -S".to_owned(), Box::new(|sides| sides.ping_guest())),
        (
            "the guest's ibping and bareverbs ping -c MAD --server".to_owned(),
            Box::new(|sides| sides.answer_guest()),
        ),
        (
            "the guest's hw_counters count what bareverbs perf asked for".to_owned(),
            Box::new(|sides| sides.compare_counters()),
        ),
    ];
    for (program, words, options, role) in PERFTEST {
        let name = format!("bareverbs perf and the guest's {program} {options} as {role}");
        rows.push((name, Box::new(move |sides| sides.measure(program, words, options, *role))));
    }
    rows
}

impl ToolSides<'_> {
    /// Plays the rows that are wanted.
    pub fn play(&mut self, wanted: &dyn Fn(&str) -> bool, report: &mut Report) -> Result<()> {
        for (name, row) in rows().into_iter().filter(|(name, _)| wanted(name)) {
            interrupt::check()?;
            let start = Instant::now();
            let verdict = match row(self) {
                Ok(seen) => Verdict::Pass(seen),
                Err(error) => Verdict::Fail(format!("{error:#}")),
            };
            report.add(Entry { columns: vec![name], verdict, elapsed: start.elapsed() });
        }
        Ok(())
    }

    fn start(&self, words: &str) -> Result<ToolRun> {
        let said = self.output.join("mlx5-tool.log");
        let file = File::create(&said).with_context(|| format!("cannot write {}", said.display()))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.bareverbs).args(words.split_whitespace());
        command.arg("--device").arg(format!("vfio-user:{}", self.socket.display()));
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(ToolRun { child: KillOnDrop(command.spawn().context("cannot run bareverbs")?), said })
    }

    /// `ibping -S` says nothing. It is there when a ping of the guest's other device is answered.
    fn ping_guest(&mut self) -> Result<String> {
        let control = &mut self.machine.control;
        let lid =
            control.require("modprobe ib_umad && cat /sys/class/infiniband/mlx5_0/ports/1/lid", LIMIT)?;
        let lid = lid.trim().to_owned();
        let server = control.start("exec ibping -C mlx5_0 -P 1 -S", LIMIT)?;
        let ready =
            format!("until ibping -C mlx5_1 -P 1 -c 1 $(({lid})) | grep -q ^Pong; do sleep 0.1; done");
        control.require(&ready, LIMIT)?;
        let said = self.start(&format!("ping -c MAD -n {PROBES} -i 10 -W 5000 {lid}"))?.finish();
        self.machine.control.cancel(&server)?;
        let said = said?;
        let wanted = format!("{PROBES} packets transmitted, {PROBES} received, 0% packet loss");
        ensure!(said.contains(&wanted), "not «{wanted}», but:\n{said}");
        Ok(said.lines().find(|line| line.starts_with("---")).unwrap_or_default().to_owned())
    }

    fn answer_guest(&mut self) -> Result<String> {
        let answerer = self.start(&format!("ping -c MAD --server --peer-timeout {}", LIMIT.as_secs()))?;
        let lid = answerer.wait_for("answering ibping at LID ")?;
        // -f: the next one at once.
        let command = format!("modprobe ib_umad && ibping -C mlx5_0 -P 1 -f -c {PROBES} {lid}");
        let said = self.machine.control.require(&command, LIMIT)?;
        let wanted = format!("{PROBES} packets transmitted, {PROBES} received, 0% packet loss");
        ensure!(said.contains(&wanted), "not «{wanted}», but:\n{said}");
        Ok(wanted)
    }

    fn measure(&mut self, program: &str, words: &str, options: &str, role: Role) -> Result<String> {
        let theirs = format!("{program} -d mlx5_0 -F {options}");
        let ours = format!("perf {words} {options} --timeout {}", LIMIT.as_secs());
        let (server, client) = match role {
            Role::Server => {
                let job = self.machine.control.start(&format!("{theirs} -p {}", bout::PORT), LIMIT)?;
                let way = bout::wait_for_server(self.machine)?;
                let client = self.start(&format!("{ours} -p {} {}", way.port(), way.ip()))?.finish();
                (self.end(&job, client.is_ok())?, client?)
            }
            Role::Client => {
                let port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port();
                let server = self.start(&format!("{ours} -p {port}"))?;
                server.wait_for("waiting for the client at TCP port ")?;
                let job =
                    self.machine.control.start(&format!("{theirs} -p {port} {HOST_FROM_GUEST}"), LIMIT)?;
                let server = server.finish();
                let client = self.end(&job, server.is_ok())?;
                (server?, client)
            }
        };
        agree(&server, &client).with_context(|| format!("what they said:\n{server}\nand\n{client}"))?;
        let version = [server, client].iter().find_map(|said| {
            said.lines().find_map(|line| {
                Some(line.split_once("the peer speaks ")?.1.trim_end_matches(')').to_owned())
            })
        });
        version.context("bareverbs does not say what its peer speaks")
    }

    /// What the kernel's counters of the guest's device have risen by is what the other end has sent.
    fn compare_counters(&mut self) -> Result<String> {
        let mut seen = Vec::new();
        for (counter, words, options, asked) in COUNTED {
            let before = self.counters(counter)?;
            let program = format!("ib_{}", words.replace(' ', "_"));
            self.measure(&program, words, options, Role::Server)?;
            let after = self.counters(counter)?;
            let risen = after[0] - before[0];
            ensure!(risen == *asked, "{counter} has risen by {risen}, and {asked} requests were sent");
            ensure!(after[1..] == before[1..], "of {QUIET:?}: {before:?} before and {after:?} after");
            seen.push(format!("{counter} {risen}"));
        }
        Ok(seen.join(", "))
    }

    /// A counter of the guest's device, and behind it those of [`QUIET`].
    fn counters(&mut self, counter: &str) -> Result<Vec<u64>> {
        let names = format!("{counter} {}", QUIET.join(" "));
        let command = format!("cd /sys/class/infiniband/mlx5_0/ports/1/hw_counters && cat {names}");
        let said = self.machine.control.require(&command, LIMIT)?;
        said.split_whitespace()
            .map(|word| word.parse().with_context(|| format!("{word:?} is no number")))
            .collect()
    }

    /// The end of the guest's program. One whose counterpart failed is not waited for.
    fn end(&mut self, job: &Job, played: bool) -> Result<String> {
        let control = &mut self.machine.control;
        let CommandOutcome { status, output } =
            if played { control.wait(job)? } else { control.cancel(job)? };
        ensure!(status == 0 || !played, "the guest's program ended with {status}: {output}");
        Ok(output)
    }
}

impl ToolRun {
    fn said(&self) -> Result<String> {
        std::fs::read_to_string(&self.said).with_context(|| format!("cannot read {}", self.said.display()))
    }

    /// Waits for a line that begins so, and gives its rest.
    fn wait_for(&self, beginning: &str) -> Result<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let said = self.said()?;
            // The last line may have come in part.
            let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
            if let Some(rest) = whole.lines().find_map(|line| line.strip_prefix(beginning)) {
                return Ok(rest.to_owned());
            }
            interrupt::check()?;
            ensure!(Instant::now() < deadline, "bareverbs does not say «{beginning}», but:\n{said}");
            std::thread::sleep(TICK);
        }
    }

    /// Waits for the end; it has to be a good one.
    fn finish(mut self) -> Result<String> {
        let deadline = Instant::now() + 2 * LIMIT;
        let status = loop {
            if let Some(status) = self.child.0.try_wait()? {
                break status;
            }
            interrupt::check()?;
            if Instant::now() > deadline {
                bail!("bareverbs has not ended; it said:\n{}", self.said()?);
            }
            std::thread::sleep(TICK);
        };
        let said = self.said()?;
        ensure!(status.success(), "bareverbs ended with {status}:\n{said}");
        Ok(said)
    }
}

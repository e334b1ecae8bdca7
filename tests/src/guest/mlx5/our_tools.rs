//! The command `bareverbs` with a NIC of its own at the guest's switch: on InfiniBand `ping -c MAD` against
//! the guest's `ibping`, and on both link layers `perf` against the guest's perftest. Neither end knows that
//! the other is a different program.

use super::super::control::{CommandOutcome, GuestJob};
use super::super::interrupt;
use super::super::machine::{HOST_FROM_GUEST, Machine};
use super::super::process::{KillOnDrop, TICK};
use super::super::rxe::bout;
use super::super::rxe::guest_side::wait_for_gid;
use super::super::table::{Entry, Report, Verdict};
use crate::perftest_rows::{agree, clock_note};
use anyhow::{Context, Result, bail, ensure};
use bareverbs_perftest::Role;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_sim::nic::LinkLayer;
use serde_json::Value;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may run, on either side.
const LIMIT: Duration = Duration::from_secs(60);
/// Number of pings in a row.
const PROBES: u32 = 20;
/// Counters of mlx5_ib, and the number of requests of a `bareverbs perf` run that each must count exactly.
/// The ACK timeout of 4.3 s (`-u 20`) keeps a busy machine from causing retries.
const COUNTED: &[(&str, &str, &str, u64)] = &[
    ("rx_write_requests", "write bw", "-u 20 -s 5000 -n 100 -q 2", 200),
    ("rx_read_requests", "read bw", "-u 20 -s 5000 -n 100", 100),
    ("rx_atomic_requests", "atomic lat", "-u 20 -n 50", 50),
];
/// Counters that stay at zero on a wire that loses nothing.
const QUIET: &[&str] =
    &["out_of_sequence", "packet_seq_err", "duplicate_request", "out_of_buffer", "rnr_nak_retry_err"];
/// The guest's program, the arguments of `bareverbs perf`, options for both, and the role of the guest's
/// program.
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
    ("ib_write_bw", "write bw", "-a -n 20", Role::Client),
];
/// The same on Ethernet.
const PERFTEST_ETHERNET: &[(&str, &str, &str, Role)] = &[
    ("ib_write_bw", "write bw", "-a -n 20", Role::Server),
    ("ib_read_bw", "read bw", "-s 5000 -n 100 -q 2", Role::Client),
    ("ib_send_bw", "send bw", "-c UD -s 1024 -n 100", Role::Client),
    ("ib_atomic_lat", "atomic lat", "-c XRC -n 50", Role::Server),
];
/// The network of our end and the guest's on Ethernet.
const NETWORK: [u8; 3] = [10, 10, 7];

/// Both sides.
pub struct ToolSides<'a> {
    /// The guest, which has [`bout::PORT`] forwarded and two devices. The first one is the peer.
    pub machine: &'a mut Machine,
    /// The command.
    pub bareverbs: PathBuf,
    /// Where its NIC is served.
    pub socket: PathBuf,
    /// Directory for its output.
    pub output: &'a Path,
    /// The guest's device.
    pub peer: GuestPort,
}

/// The device of the guest's programs, and the options that let the two ends reach each other.
pub struct GuestPort {
    link: LinkLayer,
    device: String,
    theirs: String,
    ours: String,
}

impl GuestPort {
    /// The guest's first device, by LID.
    pub fn infiniband() -> Self {
        Self {
            link: LinkLayer::InfiniBand,
            device: "mlx5_0".to_owned(),
            theirs: String::new(),
            ours: String::new(),
        }
    }

    /// A device with this network device. Each side gets the other's MAC address as a static neighbour, so
    /// nobody resolves addresses.
    pub fn ethernet(
        machine: &mut Machine,
        device: &str,
        netdev: &str,
        [guest, ours]: [MacAddress; 2],
    ) -> Result<Self> {
        let [a, b, c] = NETWORK;
        let address = |node: u8| Ipv4Addr::new(a, b, c, node);
        let command = format!(
            "ip addr replace {}/24 dev {netdev} && ip neigh replace {} lladdr {ours} dev {netdev} nud permanent",
            address(2),
            address(1)
        );
        machine.control.require(&command, LIMIT)?;
        let index = wait_for_gid(machine, device, Gid::from_ipv4(address(2).octets()))?;
        Ok(Self {
            link: LinkLayer::Ethernet,
            device: device.to_owned(),
            theirs: format!("-x {index} "),
            ours: format!("--address {}/24 --peer-mac {guest} ", address(1)),
        })
    }
}

/// A run of the command.
pub(in super::super) struct ToolRun {
    child: KillOnDrop,
    said: PathBuf,
}

/// A row: its name and its function.
type ToolRow<'a> = (String, Box<dyn Fn(&mut ToolSides<'_>) -> Result<String> + 'a>);

fn rows<'a>(link: LinkLayer) -> Vec<ToolRow<'a>> {
    let mut rows: Vec<ToolRow<'_>> = Vec::new();
    if link == LinkLayer::InfiniBand {
        let name = "bareverbs ping -c MAD and the guest's ibping -S";
        rows.push((name.to_owned(), Box::new(|sides| sides.ping_guest())));
        let name = "the guest's ibping and bareverbs ping -c MAD --server";
        rows.push((name.to_owned(), Box::new(|sides| sides.answer_guest())));
    }
    let name = "the guest's hw_counters and the counters of bareverbs perf count the same";
    rows.push((name.to_owned(), Box::new(|sides| sides.compare_counters())));
    let programs = if link == LinkLayer::InfiniBand { PERFTEST } else { PERFTEST_ETHERNET };
    for (program, words, options, role) in programs {
        let name = format!("bareverbs perf and the guest's {program} {options} as {role}");
        rows.push((name, Box::new(move |sides| sides.measure(program, words, options, *role))));
    }
    rows
}

impl ToolSides<'_> {
    /// Runs the rows that are wanted.
    pub fn play(&mut self, wanted: &dyn Fn(&str) -> bool, report: &mut Report) -> Result<()> {
        for (name, row) in rows(self.peer.link).into_iter().filter(|(name, _)| wanted(name)) {
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
        ToolRun::start(&self.bareverbs, &self.socket, self.output.join("mlx5-tool.log"), words)
    }

    /// `ibping -S` prints nothing. It is ready when it answers a ping of the guest's other device.
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
        ensure!(said.contains(&wanted), "not '{wanted}', but:\n{said}");
        Ok(said.lines().find(|line| line.starts_with("---")).unwrap_or_default().to_owned())
    }

    fn answer_guest(&mut self) -> Result<String> {
        let answerer = self.start(&format!("ping -c MAD --server --peer-timeout {}", LIMIT.as_secs()))?;
        let lid = answerer.wait_for("answering ibping at LID ")?;
        // -f sends the next ping at once.
        let command = format!("modprobe ib_umad && ibping -C mlx5_0 -P 1 -f -c {PROBES} {lid}");
        let said = self.machine.control.require(&command, LIMIT)?;
        let wanted = format!("{PROBES} packets transmitted, {PROBES} received, 0% packet loss");
        ensure!(said.contains(&wanted), "not '{wanted}', but:\n{said}");
        Ok(wanted)
    }

    fn measure(&mut self, program: &str, words: &str, options: &str, role: Role) -> Result<String> {
        let (theirs, ours) = self.both(program, words, options, role)?;
        let (server, client) = if role == Role::Server { (&theirs, &ours) } else { (&ours, &theirs) };
        agree(server, client).with_context(|| format!("what they said:\n{server}\nand\n{client}"))?;
        let version =
            ours.lines().find_map(|line| Some(line.split_once("the peer speaks ")?.1.trim_end_matches(')')));
        let version = version.context("bareverbs does not say what its peer speaks")?;
        Ok(format!("{version}{}", clock_note(&theirs)))
    }

    /// Runs the guest's program in `role`, and ours. Words that only ours understands come after its first
    /// ones.
    fn both(&mut self, program: &str, words: &str, options: &str, role: Role) -> Result<(String, String)> {
        let GuestPort { device, theirs, ours, .. } = &self.peer;
        let theirs = format!("{program} -d {device} {theirs}-F {options}");
        let ours = format!("perf {words} {ours}{options} --timeout {}", LIMIT.as_secs());
        match role {
            Role::Server => {
                let job = self.machine.control.start(&format!("{theirs} -p {}", bout::PORT), LIMIT)?;
                let way = bout::wait_for_server(self.machine)?;
                let ours = self.start(&format!("{ours} -p {} {}", way.port(), way.ip()))?.finish();
                Ok((self.end(&job, ours.is_ok())?, ours?))
            }
            Role::Client => {
                let port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port();
                let server = self.start(&format!("{ours} -p {port}"))?;
                server.wait_for("waiting for the client at TCP port ")?;
                let job =
                    self.machine.control.start(&format!("{theirs} -p {port} {HOST_FROM_GUEST}"), LIMIT)?;
                let ours = server.finish();
                Ok((self.end(&job, ours.is_ok())?, ours?))
            }
        }
    }

    /// The responder counts the other end's requests, and the requester counts none. For the guest's device
    /// the kernel's counters say so, for ours the counter set of its queue pairs. The same test runs once in
    /// each role.
    fn compare_counters(&mut self) -> Result<String> {
        let mut seen = Vec::new();
        for (counter, words, options, asked) in COUNTED {
            for role in [Role::Server, Role::Client] {
                let before = self.counters(counter)?;
                let program = format!("ib_{}", words.replace(' ', "_"));
                let (_, said) = self.both(&program, &format!("{words} --json"), options, role)?;
                let after = self.counters(counter)?;
                let (kernel, ours) = (after[0] - before[0], own_counters(&said, counter)?);
                let wanted = if role == Role::Server { [*asked, 0] } else { [0, *asked] };
                ensure!(
                    [kernel, ours[0]] == wanted,
                    "{counter} of the guest has risen by {kernel} and ours by {}, and not by {wanted:?}",
                    ours[0]
                );
                ensure!(after[1..] == before[1..], "of {QUIET:?}: {before:?} before and {after:?} after");
                ensure!(ours[1..].iter().all(|count| *count == 0), "of {QUIET:?}, ours: {ours:?}");
                seen.push(format!("{counter} {kernel}/{}", ours[0]));
            }
        }
        Ok(seen.join(", "))
    }

    /// A counter of the guest's device, followed by those of [`QUIET`].
    fn counters(&mut self, counter: &str) -> Result<Vec<u64>> {
        let names = format!("{counter} {}", QUIET.join(" "));
        let device = &self.peer.device;
        let command = format!("cd /sys/class/infiniband/{device}/ports/1/hw_counters && cat {names}");
        let said = self.machine.control.require(&command, LIMIT)?;
        said.split_whitespace()
            .map(|word| word.parse().with_context(|| format!("{word:?} is no number")))
            .collect()
    }

    /// Waits for the end of the guest's program. If its counterpart failed, it is ended instead.
    fn end(&mut self, job: &GuestJob, played: bool) -> Result<String> {
        let control = &mut self.machine.control;
        let CommandOutcome { status, output } =
            if played { control.wait(job)? } else { control.cancel(job)? };
        ensure!(status == 0 || !played, "the guest's program ended with {status}: {output}");
        Ok(output)
    }
}

/// A counter from the output of `bareverbs perf --json`, followed by those of [`QUIET`].
fn own_counters(said: &str, counter: &str) -> Result<Vec<u64>> {
    let object = said.find('{').zip(said.rfind('}')).map(|(begin, end)| &said[begin..=end]);
    let object: Value =
        serde_json::from_str(object.context("no object")?).with_context(|| said.to_owned())?;
    let counters = &object["perf"]["counters"];
    let count = |name: &&str| counters[*name].as_u64().with_context(|| format!("{name} in {counters}"));
    [counter].iter().chain(QUIET).map(count).collect()
}

impl ToolRun {
    /// Starts the command with the device behind a socket; its output goes to a file.
    pub(in super::super) fn start(
        bareverbs: &Path,
        socket: &Path,
        said: PathBuf,
        words: &str,
    ) -> Result<Self> {
        let file = File::create(&said).with_context(|| format!("cannot write {}", said.display()))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(bareverbs).args(words.split_whitespace());
        command.arg("--device").arg(format!("vfio-user:{}", socket.display()));
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self { child: KillOnDrop(command.spawn().context("cannot run bareverbs")?), said })
    }

    fn said(&self) -> Result<String> {
        std::fs::read_to_string(&self.said).with_context(|| format!("cannot read {}", self.said.display()))
    }

    /// Waits for a line with this beginning and returns the rest of it.
    pub(in super::super) fn wait_for(&self, beginning: &str) -> Result<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let said = self.said()?;
            // The last line may be incomplete.
            let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
            if let Some(rest) = whole.lines().find_map(|line| line.strip_prefix(beginning)) {
                return Ok(rest.to_owned());
            }
            interrupt::check()?;
            ensure!(Instant::now() < deadline, "bareverbs does not say '{beginning}', but:\n{said}");
            std::thread::sleep(TICK);
        }
    }

    /// Waits for the command to end; it must succeed.
    pub(in super::super) fn finish(mut self) -> Result<String> {
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

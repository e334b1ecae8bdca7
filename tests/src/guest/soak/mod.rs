//! The soak: one `bareverbs serve` with four cards and two guests, for as long as one likes, while frames are
//! lost, duplicated and reordered and the guests reset, rebind, reboot and leave.
//!
//! Each guest has an InfiniBand card and an Ethernet card at the switches of one process. In every round,
//! bytes go both ways over every link and are compared. Then something happens to a guest, and then the
//! process is measured from outside: its memory, descriptors and threads. A failed round is not run again,
//! and no failure is held back until later. Start reading at `Soak::round`, then `soak.sh`.

mod health;

use super::command;
use super::control::{CommandOutcome, GuestJob};
use super::interrupt;
use super::machine::{Configuration, Machine};
use super::ports::PORTS;
use super::process::{KillOnDrop, TICK};
use super::root::Root;
use super::table::{Entry, Report, Verdict};
use anyhow::{Context, Result, ensure};
use health::Health;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Faults on the frames of every card, in both directions. A message whose only frame is lost costs the
/// timeout that the RDMA core chooses, 9 s on InfiniBand: with more losses, the soak would do nothing but
/// wait.
const FAULTS: &str = "loss=0.002,duplicate=0.01,reorder=0.01";
/// Link layers of the cards of a guest.
const LINKS: [&str; 2] = ["ib", "eth"];
/// By link: the address without the number of the guest, and the name of the row.
const NETWORKS: [(&str, &str); 2] = [("10.6.0", "InfiniBand"), ("10.7.0", "Ethernet")];
/// The most bytes that `rping` accepts.
const LARGEST_PING: u64 = 65_535;
/// Bytes of a stream over TCP.
const STREAM: u32 = 1 << 20;
/// Time limit of a command in a guest, which may wait for several timeouts.
const LIMIT: Duration = Duration::from_secs(240);
/// After how many failed rounds the soak stops.
const FAILED_ROUNDS: u32 = 3;
/// Shell functions and programs of the guests.
const FILES: [(&str, &str); 3] =
    [PORTS, ("soak.sh", include_str!("soak.sh")), ("stream.py", include_str!("stream.py"))];

/// What to run, and where to put logs and samples.
#[derive(Debug, Clone)]
pub struct SoakOptions {
    /// No round begins after this time.
    pub limit: Duration,
    /// Directory for consoles, the log of the server and the samples.
    pub output: PathBuf,
}

/// Boots both guests and repeats rounds until the time is up.
pub fn run(options: &SoakOptions) -> Result<Report> {
    let root = Root::prepare()?;
    std::fs::create_dir_all(&options.output)?;
    let mut soak = Soak::start(&root, &options.output)?;
    let start = Instant::now();
    while start.elapsed() < options.limit && soak.failed_rounds < FAILED_ROUNDS {
        interrupt::check()?;
        soak.round()?;
    }
    soak.report()
}

/// What happens to a guest at the end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Rebind,
    Reset,
    ResetUnderTraffic,
    Reboot,
    /// Its machine is killed, and another takes its place.
    Leave,
}

impl Trouble {
    /// Every kind takes its turn, the quick ones more often.
    const TURNS: [Self; 6] =
        [Self::Rebind, Self::ResetUnderTraffic, Self::Reset, Self::Reboot, Self::Rebind, Self::Leave];

    fn of_round(round: u32) -> Self {
        Self::TURNS.into_iter().cycle().nth(round as usize % Self::TURNS.len()).unwrap_or(Self::Rebind)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rebind => "a guest binds its drivers anew",
            Self::Reset => "a guest resets its functions",
            Self::ResetUnderTraffic => "a guest resets its functions under traffic",
            Self::Reboot => "a guest reboots",
            Self::Leave => "a guest ends, another begins",
        }
    }
}

/// How often one kind of work was done, and what failed.
#[derive(Debug, Default)]
struct SoakTally {
    done: u64,
    faults: Vec<String>,
    elapsed: Duration,
}

struct Soak<'a> {
    // Dropped in this order: guests before what serves them.
    guests: [Machine; 2],
    server: KillOnDrop,
    directory: TempDir,
    root: &'a Root,
    output: &'a Path,
    rounds: u32,
    failed_rounds: u32,
    tallies: BTreeMap<String, SoakTally>,
    health: Health,
}

impl<'a> Soak<'a> {
    fn start(root: &'a Root, output: &'a Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("bareverbs-soak-").tempdir()?;
        let server = serve(directory.path(), output)?;
        let guests = [boot(root, directory.path(), output, 0)?, boot(root, directory.path(), output, 1)?];
        let health = Health::watch(server.0.id(), &output.join("soak.csv"))?;
        let (tallies, rounds) = (BTreeMap::new(), 0);
        Ok(Self { guests, server, directory, root, output, rounds, failed_rounds: 0, tallies, health })
    }

    fn round(&mut self) -> Result<()> {
        let round = self.rounds;
        self.rounds += 1;
        let client = round as usize % 2;
        let mut good = true;
        for (network, link) in NETWORKS {
            good &= self.tally(&format!("{link}: RDMA, bytes compared"), |soak| soak.pings(client, network));
            good &=
                self.tally(&format!("{link}: TCP, digests compared"), |soak| soak.stream(client, network));
        }
        let trouble = Trouble::of_round(round);
        // The next time round, the same trouble meets the other guest.
        let victim = (round as usize / Trouble::TURNS.len()) % 2;
        good &= self.tally(trouble.name(), |soak| soak.make(trouble, victim));
        self.failed_rounds += u32::from(!good);
        ensure!(self.server.0.try_wait()?.is_none(), "bareverbs serve has ended in round {round}");
        let sample = self.health.look()?;
        eprintln!("soak: round {round}, {}: {sample}", trouble.name());
        Ok(())
    }

    /// Counts what was done. A failure is recorded, and nothing is repeated.
    fn tally(&mut self, name: &str, done: impl FnOnce(&mut Self) -> Result<u64>) -> bool {
        let start = Instant::now();
        let outcome = done(self);
        let tally = self.tallies.entry(name.to_owned()).or_default();
        tally.elapsed += start.elapsed();
        match outcome {
            Ok(count) => tally.done += count,
            Err(error) => {
                eprintln!("soak: round {}, {name}: {error:#}", self.rounds);
                tally.faults.push(format!("round {}: {error:#}", self.rounds));
                return false;
            }
        }
        true
    }

    /// `rping`: the server reads the client's bytes and writes them back, and the client compares. Returns
    /// the bytes compared.
    fn pings(&mut self, client: usize, network: &str) -> Result<u64> {
        let mut bytes = 0;
        for (size, count) in [(LARGEST_PING, 20), (1_000, 100)] {
            let (server, job) = self.rping(client, network, size, count)?;
            let asked = self.guests[client].control.wait(&job)?;
            let answered = self.end(client ^ 1, &server, asked.is_success())?;
            both(&asked, &answered)?;
            bytes += size * count;
        }
        Ok(bytes)
    }

    /// Starts both ends of `rping`.
    fn rping(&mut self, client: usize, network: &str, size: u64, count: u64) -> Result<(GuestJob, GuestJob)> {
        let address = format!("{network}.{}", (client ^ 1) + 1);
        self.run(client, &format!("meet {address}"))?;
        let options = format!("-a {address} -S {size} -C {count} -V");
        let server = self.command(client ^ 1, &format!("rping -s {options}"))?;
        self.run(client ^ 1, "within 'rdma resource show cm_id | grep -q LISTEN'")?;
        let job = self.command(client, &format!("rping -c {options}"))?;
        Ok((server, job))
    }

    /// Random bytes over TCP; both ends report their digest.
    fn stream(&mut self, client: usize, network: &str) -> Result<u64> {
        let address = format!("{network}.{}", (client ^ 1) + 1);
        let program = format!("python3 {}", Machine::path_inside("stream.py"));
        self.run(client, &format!("meet {address}"))?;
        let server = self.command(client ^ 1, &format!("{program} server {address} {STREAM}"))?;
        self.run(client ^ 1, "within \"ss -ltn | grep -q ':18515 '\"")?;
        let sent = self.command(client, &format!("{program} client {address} {STREAM}"))?;
        let sent = self.guests[client].control.wait(&sent)?;
        let received = self.end(client ^ 1, &server, sent.is_success())?;
        both(&sent, &received)?;
        ensure!(sent.output == received.output, "sent {}, received {}", sent.output, received.output);
        Ok(STREAM.into())
    }

    /// Does something to guest `victim`. Afterwards the guest is up and has its addresses.
    fn make(&mut self, trouble: Trouble, victim: usize) -> Result<u64> {
        match trouble {
            Trouble::Rebind => self.run(victim, &format!("rebind {}", victim + 1))?,
            Trouble::Reset => self.run(victim, &format!("reset {}", victim + 1))?,
            Trouble::ResetUnderTraffic => self.reset_under_traffic(victim)?,
            Trouble::Reboot => {
                self.guests[victim].reboot()?;
                self.load(victim)?;
            }
            Trouble::Leave => {
                self.guests[victim].kill()?;
                self.guests[victim] = boot(self.root, self.directory.path(), self.output, victim)?;
                return Ok(1);
            }
        }
        Ok(1)
    }

    /// Cuts off both ends of an endless conversation, whatever they report about it.
    fn reset_under_traffic(&mut self, victim: usize) -> Result<()> {
        for (network, _) in NETWORKS {
            let (server, client) = self.rping(victim, network, LARGEST_PING, 1 << 30)?;
            self.run(victim, "sleep 2")?;
            self.run(victim, &format!("reset {}", victim + 1))?;
            self.guests[victim].control.cancel(&client)?;
            self.guests[victim ^ 1].control.cancel(&server)?;
        }
        Ok(())
    }

    fn load(&mut self, guest: usize) -> Result<()> {
        load(&mut self.guests[guest], guest)
    }

    fn run(&mut self, guest: usize, command: &str) -> Result<()> {
        self.guests[guest].control.require(&with_functions(command), LIMIT).map(drop)
    }

    fn command(&mut self, guest: usize, command: &str) -> Result<GuestJob> {
        self.guests[guest].control.start(command, LIMIT)
    }

    /// Waits for the end of a server. If its client failed, the server is ended instead.
    fn end(&mut self, guest: usize, server: &GuestJob, good: bool) -> Result<CommandOutcome> {
        let control = &mut self.guests[guest].control;
        if good { control.wait(server) } else { control.cancel(server) }
    }

    fn report(self) -> Result<Report> {
        let mut report = Report::new(&["what"]);
        for (name, SoakTally { done, faults, elapsed }) in self.tallies {
            let verdict = match faults.first() {
                None => Verdict::Pass(done.to_string()),
                Some(first) => Verdict::Fail(format!("{} times, first in {first}", faults.len())),
            };
            report.add(Entry { columns: vec![name], verdict, elapsed });
        }
        for (name, verdict) in self.health.verdicts() {
            report.add(Entry { columns: vec![name.to_owned()], verdict, elapsed: Duration::ZERO });
        }
        Ok(report)
    }
}

/// A server of four cards, two for each guest.
fn serve(directory: &Path, output: &Path) -> Result<KillOnDrop> {
    let sockets: Vec<PathBuf> = (0..2).flat_map(|guest| sockets(directory, guest)).collect();
    let mut arguments = vec!["--faults", FAULTS];
    arguments.extend([LINKS, LINKS].concat().iter().flat_map(|link| ["--link", link]));
    for socket in sockets.iter().skip(1) {
        arguments.extend(["--socket", socket.to_str().context("a socket's path is no text")?]);
    }
    let first = sockets.first().context("no sockets")?;
    let log = output.join("soak-serve.log");
    let server = command::serve(&command::build()?, first, &arguments, &log)?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !sockets.iter().all(|socket| socket.exists()) {
        ensure!(Instant::now() < deadline, "bareverbs serve does not listen; see {}", log.display());
        std::thread::sleep(TICK);
    }
    Ok(server)
}

/// The sockets of one guest's cards, in the order of [`LINKS`].
fn sockets(directory: &Path, guest: usize) -> [PathBuf; 2] {
    LINKS.map(|link| directory.join(format!("{link}{guest}")))
}

/// Boots a guest and sets up its drivers and addresses.
fn boot(root: &Root, directory: &Path, output: &Path, guest: usize) -> Result<Machine> {
    let configuration = Configuration {
        memory: 512,
        processors: 1,
        vfio_user: sockets(directory, guest).to_vec(),
        files: FILES.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect(),
        reboots: true,
        ..Configuration::default()
    };
    let console = output.join(format!("soak-console{guest}.log"));
    let mut machine = Machine::boot(root, &configuration, &console)?;
    load(&mut machine, guest)?;
    Ok(machine)
}

fn load(machine: &mut Machine, guest: usize) -> Result<()> {
    machine.control.require(&with_functions(&format!("load {}", guest + 1)), LIMIT).map(drop)
}

fn with_functions(command: &str) -> String {
    let [ports, functions] = [PORTS.0, "soak.sh"].map(Machine::path_inside);
    format!(". {ports}; . {functions}\n{command}")
}

fn both(client: &CommandOutcome, server: &CommandOutcome) -> Result<()> {
    ensure!(
        client.is_success() && server.is_success(),
        "client {}: {}; server {}: {}",
        client.status,
        client.output.trim(),
        server.status,
        server.output.trim()
    );
    Ok(())
}

//! Simulated NICs behind sockets. Threads of this process serve them and log their commands, or `bareverbs
//! serve` does. All InfiniBand ports are at one switch. A wire joins the first two Ethernet ports; all others
//! are at one switch.

use super::super::command;
use super::super::process::KillOnDrop;
use super::super::table::{Entry, Verdict};
use anyhow::{Context, Result};
use bareverbs_prm::ids::{MacAddress, VhcaId};
use bareverbs_serve::fabric::Fabric;
use bareverbs_serve::real_time::{Card, Outside, Recorder};
use bareverbs_serve::vfio_user::{Attachment, Server, ServerConfig};
use bareverbs_sim::net::topology::SubnetTopology;
use bareverbs_sim::net::{LinkType, SubnetConfig};
use bareverbs_sim::nic::{CardFunction, LinkLayer, NicConfig, Refusal, SubnetMembership};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tracing_subscriber::filter::LevelFilter;

/// Commands that Linux tries and that the model lacks on purpose: none.
const REFUSALS_EXPECTED: &[&str] = &[];

/// Number of Ethernet ports that a wire joins.
const WIRED: usize = 2;

/// Servers in threads, which run as long as this process, and servers in processes, which end when this is
/// dropped.
#[derive(Debug)]
pub struct ServedNics {
    directory: TempDir,
    link: LinkLayer,
    log: PathBuf,
    fabric: Fabric,
    capture: Recorder,
    read: usize,
    processes: Vec<KillOnDrop>,
    /// The card that the NICs are functions of. Such functions have user contexts, so that mlx5_ib offers DEVX.
    card: Option<Card>,
}

impl ServedNics {
    /// Powers on the NICs with these numbers. Every command of their drivers is logged in `mlx5-commands.log`
    /// in `output`, and every frame at the switch in `mlx5.pcapng`.
    pub fn start(link: LinkLayer, numbers: &[usize], output: &Path) -> Result<Self> {
        Self::start_as(link, numbers, output, None)
    }

    /// The same as functions of one card with user contexts: mlx5_ib offers DEVX.
    pub fn start_card_with_user_contexts(link: LinkLayer, numbers: &[usize], output: &Path) -> Result<Self> {
        Self::start_as(link, numbers, output, Some(Card::default()))
    }

    fn start_as(link: LinkLayer, numbers: &[usize], output: &Path, card: Option<Card>) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("bareverbs-nic-").tempdir()?;
        let log = output.join("mlx5-commands.log");
        log_to(&log)?;
        let fabric = Fabric::new(SubnetConfig::default())?;
        let capture = Recorder::create(&output.join("mlx5.pcapng"))?;
        let nics = Self { directory, link, log, fabric, capture, read: 0, processes: Vec::new(), card };
        for &index in numbers {
            nics.serve_at(index, &nics.fabric)?;
        }
        Ok(nics)
    }

    /// Powers on one more NIC at the switch of this network.
    pub fn serve_at(&self, index: usize, fabric: &Fabric) -> Result<()> {
        self.serve(index, self.config(index, fabric))
    }

    /// The topology of the InfiniBand subnet, as its manager has discovered it.
    pub fn topology(&self) -> Option<SubnetTopology> {
        self.fabric.topology()
    }

    /// Powers on one more NIC at the switch. The command `bareverbs serve --wire` serves it, with these
    /// faults.
    pub fn serve_by_command(&mut self, index: usize, faults: Option<&str>, output: &Path) -> Result<()> {
        let (own, switch) = self.wire(&format!("command{index}"))?;
        let (own, switch) = (own.to_string_lossy(), switch.to_string_lossy());
        let link = if self.link == LinkLayer::Ethernet { "eth" } else { "ib" };
        let seed = (index + 1).to_string();
        let mut arguments = vec!["--link", link, "--wire", &own, "--wire-to", &switch, "--seed", &seed];
        arguments.extend(faults.into_iter().flat_map(|faults| ["--faults", faults]));
        let log = output.join(format!("mlx5-serve{index}.log"));
        let process = command::serve(&command::build()?, &self.socket(index), &arguments, &log)?;
        self.processes.push(process);
        Ok(())
    }

    fn config(&self, index: usize, fabric: &Fabric) -> ServerConfig {
        let mac = mac(index);
        let (nic, kind) = match self.link {
            LinkLayer::InfiniBand => (
                NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(mac) },
                LinkType::InfiniBand,
            ),
            LinkLayer::Ethernet => (NicConfig::new(mac), LinkType::Ethernet),
        };
        let function = CardFunction::bluefield3(VhcaId::from_low_bits(index as u32 + 1));
        let (user_contexts, card) = (self.card.is_some(), self.card.as_ref().map(|_| function));
        let nic = NicConfig { user_contexts, card, ..nic };
        let nic = nic.with_longest_ack_timeout().without_write_combining();
        let card = self.card.clone();
        let config = ServerConfig { trace_commands: true, card, ..ServerConfig::new(nic) };
        if self.link == LinkLayer::Ethernet && index < WIRED {
            return ServerConfig {
                attachment: Attachment::Wire(Outside::datagram(self.end(index), self.end(index ^ 1))),
                ..config
            };
        }
        let capture = Some(self.capture.interface(&format!("nic{index}"), kind));
        ServerConfig { attachment: Attachment::Fabric(fabric.clone()), capture, ..config }
    }

    fn serve(&self, index: usize, config: ServerConfig) -> Result<()> {
        let mut server = Server::bind(&self.socket(index), config)?;
        std::thread::Builder::new().name(format!("nic{index}")).spawn(move || {
            while let Ok(farewell) = server.serve() {
                tracing::info!("client of nic{index}: {farewell:?}");
            }
        })?;
        Ok(())
    }

    /// The socket of one end of a wire: even and odd ends are joined.
    fn end(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("wire{index}"))
    }

    /// Joins a network card of a guest; `ours` and `card` are the sockets of the two ends.
    pub fn join(&self, ours: PathBuf, card: PathBuf) -> Result<()> {
        self.fabric.plug_wire(self.link, &Outside::datagram(ours, card))?;
        Ok(())
    }

    /// Joins this machine's network through a TAP interface with that name.
    pub fn join_this_machine(&self, name: &str) -> Result<()> {
        Ok(self.fabric.plug_wire(self.link, &Outside::Tap(name.to_owned()))?)
    }

    /// Plugs a wire into the switch and returns the sockets of its far end: the one to listen at, and the
    /// switch's to send to.
    pub fn wire(&self, name: &str) -> Result<(PathBuf, PathBuf)> {
        let path = |end| self.directory.path().join(format!("{name}.{end}"));
        let (switch, other) = (path("switch"), path("other"));
        self.plug(&switch, &other)?;
        Ok((other, switch))
    }

    /// Reports whether the switch had room for all frames.
    pub fn losses(&self) -> Entry {
        let verdict = match self.fabric.lost() {
            0 => Verdict::Pass("none".into()),
            lost => Verdict::Fail(format!("{lost} flooded frames found a port full")),
        };
        Entry { columns: vec!["frames lost at the switch".into()], verdict, elapsed: Duration::ZERO }
    }

    /// Plugs a wire between two sockets into the switch. The first socket is the switch's.
    pub fn plug(&self, switch: &Path, other: &Path) -> Result<()> {
        Ok(self.fabric.plug_wire(self.link, &Outside::datagram(switch, other))?)
    }

    /// The vfio-user socket of a NIC, for the guest's machine.
    pub fn socket(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("socket{index}"))
    }

    /// Lines that the log has got since the last call.
    fn new_lines(&mut self) -> Vec<String> {
        let lines = std::fs::read_to_string(&self.log).unwrap_or_default();
        let new: Vec<String> = lines.lines().skip(self.read).map(str::to_owned).collect();
        self.read += new.len();
        new
    }

    /// Reports whether the model has refused a command of Linux's drivers since the last call.
    pub fn entry(&mut self, name: &str) -> Entry {
        let lines = self.new_lines();
        let commands = lines.iter().filter(|line| is_command(line)).count();
        let refused: Vec<&String> = lines.iter().filter(|line| is_refusal(line)).collect();
        let verdict = match refused.first() {
            None => Verdict::Pass(format!("{commands} commands, none refused")),
            Some(first) => {
                Verdict::Fail(format!("{} of {commands} commands refused, first {first}", refused.len()))
            }
        };
        Entry { columns: vec![name.into()], verdict, elapsed: Duration::ZERO }
    }

    /// Reports the commands that were refused since the last call, by name and reason, with counts. The suite
    /// asks for impossible things on purpose, so a refusal is no failure. A command that the model does not
    /// have is one.
    pub fn refusals(&mut self, name: &str) -> Entry {
        let lines = self.new_lines();
        let commands = lines.iter().filter(|line| is_command(line)).count();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for line in lines.iter().filter(|line| is_refusal(line)) {
            *counts.entry(name_of_refusal(line)).or_default() += 1;
        }
        let list: Vec<String> = counts.iter().map(|(what, times)| format!("{times} × {what}")).collect();
        let summary = format!("{commands} commands; refused: {}", list.join("; "));
        let unknown = counts.keys().any(|what| what.contains("no such command"));
        let verdict = if unknown { Verdict::Fail(summary) } else { Verdict::Pass(summary) };
        Entry { columns: vec![name.into()], verdict, elapsed: Duration::ZERO }
    }
}

fn is_command(line: &str) -> bool {
    line.contains(" in ") && line.contains(" out ")
}

fn is_refusal(line: &str) -> bool {
    line.contains("syndrome") && !REFUSALS_EXPECTED.iter().any(|known| line.contains(known))
}

/// The command and why it was refused, without the parts that vary: "WARN DestroyCq 0x401/0x0 0x…".
fn name_of_refusal(line: &str) -> String {
    let command = line.split_whitespace().skip_while(|word| *word != "WARN").nth(1).unwrap_or("a command");
    let syndrome = line.rsplit("0x").next().and_then(|digits| u32::from_str_radix(digits.trim(), 16).ok());
    let reason = syndrome.and_then(Refusal::by_syndrome).map_or("no such command", |refusal| refusal.reason);
    format!("{command}: {reason}")
}

/// MAC address of the NIC with this number.
pub fn mac(index: usize) -> MacAddress {
    MacAddress([0x02, 0x02, 0xc9, 0x04, 0x00, 1 + index as u8])
}

fn log_to(path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_ansi(false)
        .with_target(false)
        .with_writer(Arc::new(file))
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot log to {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{is_command, is_refusal, name_of_refusal};

    #[test]
    fn a_refusal_is_named_by_command_and_reason() {
        let line = "2026-01-01T00:00:00Z  WARN DeallocPd 0x801/0x0 0x00000007 in 16 out 16: BadResourceState, syndrome 0xb00021";
        assert!(is_command(line) && is_refusal(line));
        assert!(name_of_refusal(line).starts_with("DeallocPd: memory keys or queue pairs"));
        let unknown = line.replace("0xb00021", "0xdead0801");
        assert_eq!(name_of_refusal(&unknown), "DeallocPd: no such command");
    }
}

//! Simulated NICs behind sockets, served by threads of this process, with their commands in a log: InfiniBand ports at one
//! switch, Ethernet ports at wires.

use super::super::table::{Entry, Verdict};
use anyhow::{Context, Result};
use bareverbs_prm::ids::MacAddress;
use bareverbs_sim::net::{LinkType, SubnetConfig};
use bareverbs_sim::nic::{LinkLayer, NicConfig, Refusal, Subnet};
use bareverbs_sim::run::fabric::Fabric;
use bareverbs_sim::run::real_time::Recorder;
use bareverbs_sim::run::vfio_user::{Attachment, Server, ServerConfig};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tracing_subscriber::filter::LevelFilter;

/// Commands that Linux tries and that the model rightly lacks: none.
const REFUSALS_EXPECTED: &[&str] = &[];

/// What QEMU can send at most.
const LONGEST_FRAME: usize = 68 << 10;

/// Servers that run as long as this process.
#[derive(Debug)]
pub struct ServedNics {
    directory: TempDir,
    count: usize,
    log: PathBuf,
    fabric: Fabric,
    read: usize,
}

impl ServedNics {
    /// Powers `count` NICs on. InfiniBand ports are at one switch; of Ethernet ports the first two have a wire between
    /// them, and the last is for [`Self::join`]. Every command that their drivers give is written to `mlx5-commands.log` in
    /// `output`, every frame of InfiniBand to `mlx5.pcapng`.
    pub fn start(link: LinkLayer, count: usize, output: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("bareverbs-nic-").tempdir()?;
        let log = output.join("mlx5-commands.log");
        log_to(&log)?;
        let fabric = Fabric::new(SubnetConfig::default())?;
        let nics = Self { directory, count, log, fabric, read: 0 };
        let capture = Recorder::create(&output.join("mlx5.pcapng"))?;
        for index in 0..count {
            nics.serve(index, nics.config(link, index, &capture))?;
        }
        Ok(nics)
    }

    fn config(&self, link: LinkLayer, index: usize, capture: &Recorder) -> ServerConfig {
        let mac = MacAddress([0x02, 0x02, 0xc9, 0x04, 0x00, 1 + index as u8]);
        let config = match link {
            LinkLayer::InfiniBand => ServerConfig {
                attachment: Attachment::Fabric(self.fabric.clone()),
                capture: Some(capture.interface(&format!("nic{index}"), LinkType::InfiniBand)),
                ..ServerConfig::new(NicConfig { subnet: Subnet::Managed, ..NicConfig::infiniband(mac) })
            },
            LinkLayer::Ethernet => ServerConfig {
                attachment: Attachment::Wire(self.end(index), self.end(index ^ 1)),
                ..ServerConfig::new(NicConfig { translation_updates: false, ..NicConfig::new(mac) })
            },
        };
        ServerConfig { trace_commands: true, ..config }
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

    /// Joins the last NIC with a network card of the guest, whose sockets these are: ours, and the card's.
    pub fn join(&self, (ours, card): (PathBuf, PathBuf)) -> Result<()> {
        let last = self.count - 1;
        let from_nic = UnixDatagram::bind(self.end(last ^ 1))?;
        let from_card = UnixDatagram::bind(ours)?;
        let (to_card, to_nic) = (from_card.try_clone()?, from_nic.try_clone()?);
        let nic = self.end(last);
        std::thread::Builder::new()
            .name("to card".into())
            .spawn(move || carry(&from_nic, &to_card, &card))?;
        std::thread::Builder::new().name("to nic".into()).spawn(move || carry(&from_card, &to_nic, &nic))?;
        Ok(())
    }

    /// Where the guest's machine finds one.
    pub fn socket(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("socket{index}"))
    }

    /// Lines of the log since the last time.
    fn new_lines(&mut self) -> Vec<String> {
        let lines = std::fs::read_to_string(&self.log).unwrap_or_default();
        let new: Vec<String> = lines.lines().skip(self.read).map(str::to_owned).collect();
        self.read += new.len();
        new
    }

    /// Whether the model refused anything that Linux's drivers asked for since the last time.
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

    /// Commands that were refused since the last time, by name and reason, with how often: the suite asks for what cannot
    /// be on purpose. A command that the model does not have is a failure.
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

/// The command and why it was refused, without what differs from one time to the next: «WARN DestroyCq 0x401/0x0 0x…».
fn name_of_refusal(line: &str) -> String {
    let command = line.split_whitespace().skip_while(|word| *word != "WARN").nth(1).unwrap_or("a command");
    let syndrome = line.rsplit("0x").next().and_then(|digits| u32::from_str_radix(digits.trim(), 16).ok());
    let reason = syndrome.and_then(Refusal::by_syndrome).map_or("no such command", |refusal| refusal.reason);
    format!("{command}: {reason}")
}

/// Carries frames until the process ends. A frame that nobody takes is lost.
fn carry(from: &UnixDatagram, by: &UnixDatagram, to: &Path) {
    let mut frame = vec![0; LONGEST_FRAME];
    while let Ok(length) = from.recv(&mut frame) {
        let _ = by.send_to(&frame[..length], to);
    }
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

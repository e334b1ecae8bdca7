//! Simulated NICs behind sockets, served by threads of this process, with their commands in a log.

use super::super::table::{Entry, Verdict};
use anyhow::{Context, Result};
use bareverbs_prm::ids::MacAddress;
use bareverbs_sim::nic::{LinkLayer, NicConfig};
use bareverbs_sim::run::vfio_user::{Server, ServerConfig};
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
}

impl ServedNics {
    /// Powers on one NIC with an InfiniBand port, or three with Ethernet ports: two with a wire between them, and one for
    /// [`Self::join`]. Every command that their driver gives is written to `log`.
    pub fn start(link: LinkLayer, log: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("bareverbs-nic-").tempdir()?;
        log_to(log)?;
        let count = match link {
            LinkLayer::InfiniBand => 1,
            LinkLayer::Ethernet => 3,
        };
        let nics = Self { directory, count, log: log.to_owned() };
        for index in 0..count {
            nics.serve(link, index)?;
        }
        Ok(nics)
    }

    fn serve(&self, link: LinkLayer, index: usize) -> Result<()> {
        let mac = MacAddress([0x02, 0x02, 0xc9, 0x04, 0x00, index as u8 + 1]);
        let (nic, wire) = match link {
            LinkLayer::InfiniBand => (NicConfig::infiniband(mac), None),
            LinkLayer::Ethernet => (
                NicConfig { translation_updates: false, ..NicConfig::new(mac) },
                Some((self.end(index), self.end(index ^ 1))),
            ),
        };
        let config = ServerConfig { nic, wire, capture: None, trace_commands: true };
        let mut server = Server::bind(&self.socket(index), config)?;
        std::thread::Builder::new().name("vfio-user".into()).spawn(move || {
            while let Ok(farewell) = server.serve() {
                tracing::info!("client: {farewell:?}");
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

    fn socket(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("socket{index}"))
    }

    /// Where the guest's machine finds them.
    pub fn sockets(&self) -> Vec<PathBuf> {
        (0..self.count).map(|index| self.socket(index)).collect()
    }

    /// Whether the model refused anything that Linux asked for.
    pub fn entry(&self) -> Entry {
        let lines = std::fs::read_to_string(&self.log).unwrap_or_default();
        let commands = lines.lines().filter(|line| line.contains(" in ") && line.contains(" out ")).count();
        let refused: Vec<&str> = lines
            .lines()
            .filter(|line| {
                line.contains("syndrome") && !REFUSALS_EXPECTED.iter().any(|known| line.contains(known))
            })
            .collect();
        let verdict = match refused.first() {
            None => Verdict::Pass(format!("{commands} commands, none refused")),
            Some(first) => {
                Verdict::Fail(format!("{} of {commands} commands refused, first {first}", refused.len()))
            }
        };
        Entry { columns: vec!["commands of the drivers".into()], verdict, elapsed: Duration::ZERO }
    }
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

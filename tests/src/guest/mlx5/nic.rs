//! Simulated NICs behind sockets, served by threads of this process, with their commands in a log.

use super::super::table::{Entry, Verdict};
use anyhow::{Context, Result};
use bareverbs_prm::ids::MacAddress;
use bareverbs_sim::nic::{LinkLayer, NicConfig};
use bareverbs_sim::run::vfio_user::{Server, ServerConfig};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tracing_subscriber::filter::LevelFilter;

/// Commands that Linux tries and that the model rightly lacks: none.
const REFUSALS_EXPECTED: &[&str] = &[];

/// Servers that run as long as this process.
#[derive(Debug)]
pub struct ServedNics {
    directory: TempDir,
    count: usize,
    log: PathBuf,
}

impl ServedNics {
    /// Powers on one NIC with an InfiniBand port, or two with Ethernet ports and a wire between them. Every command that
    /// their driver gives is written to `log`.
    pub fn start(link: LinkLayer, log: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("bareverbs-nic-").tempdir()?;
        log_to(log)?;
        let count = match link {
            LinkLayer::InfiniBand => 1,
            LinkLayer::Ethernet => 2,
        };
        let nics = Self { directory, count, log: log.to_owned() };
        for index in 0..count {
            nics.serve(link, index)?;
        }
        Ok(nics)
    }

    fn serve(&self, link: LinkLayer, index: usize) -> Result<()> {
        let mac = MacAddress([0x02, 0x02, 0xc9, 0x04, 0x00, index as u8 + 1]);
        let end = |index: usize| self.directory.path().join(format!("wire{index}"));
        let (nic, wire) = match link {
            LinkLayer::InfiniBand => (NicConfig::infiniband(mac), None),
            LinkLayer::Ethernet => (NicConfig::new(mac), Some((end(index), end(1 - index)))),
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

//! The simulated NIC behind a socket, served by a thread of this process, with its commands in a log.

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

const MAC: MacAddress = MacAddress([0x02, 0x02, 0xc9, 0x04, 0x00, 0x01]);
/// Commands that Linux tries and that the model rightly lacks: none.
const REFUSALS_EXPECTED: &[&str] = &[];

/// A server that runs as long as this process.
#[derive(Debug)]
pub struct ServedNic {
    directory: TempDir,
    log: PathBuf,
}

impl ServedNic {
    /// Powers a NIC on. Every command that its driver gives is written to `log`.
    pub fn start(link: LinkLayer, log: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("bareverbs-nic-").tempdir()?;
        log_to(log)?;
        let nic = match link {
            LinkLayer::InfiniBand => NicConfig::infiniband(MAC),
            LinkLayer::Ethernet => NicConfig::new(MAC),
        };
        let config = ServerConfig { nic, wire: None, capture: None, trace_commands: true };
        let mut server = Server::bind(&directory.path().join("socket"), config)?;
        std::thread::Builder::new().name("vfio-user".into()).spawn(move || {
            while let Ok(farewell) = server.serve() {
                tracing::info!("client: {farewell:?}");
            }
        })?;
        Ok(Self { directory, log: log.to_owned() })
    }

    /// Where the guest's machine finds it.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
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

//! Settings from `bareverbs run`, read from environment variables.

use bareverbs_network::virtual_ports;
use bareverbs_serve::network::{NetworkDirectory, environment};
use bareverbs_serve::real_time::{FaultScript, Recorder};
use bareverbs_sim::net::LinkType;
use bareverbs_sim::nic::{LinkLayer, NicConfig, PortSpeed};
use bareverbs_sim::run::Seed;
use bareverbs_uverbs::VirtualHost;
use std::env;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Most captures per command. Further processes with a device go without.
const MOST_CAPTURES: u32 = 1000;

/// The settings of this process.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The host at each of its devices.
    pub(crate) ports: Vec<VirtualHost>,
    pub(crate) network: NetworkDirectory,
    pub(crate) faults: Option<FaultScript>,
    pub(crate) seed: u64,
    capture: Option<PathBuf>,
    /// Whether the capture includes the device's actions.
    records: bool,
    speed: PortSpeed,
    /// Whether the devices have user contexts.
    devx: bool,
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

impl Settings {
    /// Reads the environment; the error is a sentence.
    pub(crate) fn read() -> Result<Self, String> {
        let name = variable(environment::HOST).unwrap_or_default();
        let path = env::var_os(environment::NETWORK).ok_or(format!("{} is not set", environment::NETWORK))?;
        let network = NetworkDirectory::open(Path::new(&path)).map_err(|error| error.to_string())?;
        let ports = virtual_ports(&network, &name).ok_or(format!(
            "{} does not name a host of the network at {}: {name:?}",
            environment::HOST,
            network.path().display()
        ))?;
        let faults = variable(environment::FAULTS).map(|text| text.parse()).transpose()?;
        let seed = variable(environment::SEED).map_or(Ok(1), |text| text.parse());
        let seed = seed.map_err(|error| format!("{}: {error}", environment::SEED))?;
        let speed = variable(environment::RATE).map(|text| text.parse().ok().and_then(PortSpeed::from_gbps));
        let speed = speed
            .unwrap_or(Some(PortSpeed::Gbps100))
            .ok_or(format!("{} is not a rate of a port", environment::RATE))?;
        let capture = env::var_os(environment::CAPTURE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let records = variable(environment::RECORDS).is_some();
        let devx = variable(environment::DEVX).is_some();
        Ok(Self { ports, network, faults, seed, capture, records, speed, devx })
    }

    /// Configuration of a device for one of the host's processes.
    pub(crate) fn nic_config(&self, port: &VirtualHost, process: u8) -> NicConfig {
        NicConfig { speed: self.speed, user_contexts: self.devx, ..port.nic_config(process) }
    }

    /// Seed of the faults of a device: different for every host, process and port.
    pub(crate) fn seed_of(&self, port: &VirtualHost, number: u8) -> Seed {
        Seed(self.seed ^ u64::from(port.mac().low()) ^ u64::from(number) << 32)
    }

    /// The capture interface for the frames of a port and, if requested, its device's actions.
    pub(crate) fn interface(&self, capture: &Recorder, port: &VirtualHost) -> Recorder {
        let link = match port.link() {
            LinkLayer::Ethernet => LinkType::Ethernet,
            LinkLayer::InfiniBand => LinkType::InfiniBand,
        };
        let with = if self.records { Recorder::recording } else { Recorder::interface };
        with(capture, &format!("{} {}", port.name(), std::process::id()), link)
    }

    /// Starts the capture of this process: in the requested file or, if another process has that, in one with a number
    /// before its extension. It has no interface yet; see [`interface`].
    pub(crate) fn capture(&self) -> Result<Option<Recorder>, String> {
        let Some(wanted) = &self.capture else { return Ok(None) };
        for number in 1..=MOST_CAPTURES {
            let path = numbered(wanted, number);
            match File::create_new(&path) {
                Ok(file) => return Ok(Some(Recorder::of_file(file, Recorder::DEFAULT_LIMIT))),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(format!("cannot write the capture {}: {error}", path.display()));
                }
            }
        }
        Err(format!("{} and {MOST_CAPTURES} files beside it are already captures", wanted.display()))
    }
}

/// `x.pcapng`, `x.2.pcapng`, `x.3.pcapng`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

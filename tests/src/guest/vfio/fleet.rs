//! The devices of the guest: simulated NICs that this process serves, each behind a root port of its own.

use anyhow::{Context, Result};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::Duration;
use bareverbs_serve::real_time::Outside;
use bareverbs_serve::vfio_user::{Attachment, Cable, Server, ServerConfig};
use bareverbs_sim::nic::NicConfig;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

use super::super::command;
use super::super::machine::Machine;
use super::super::process::KillOnDrop;

/// Names of the devices in the cases, in the order of their PCI addresses.
pub const NAMES: [&str; 7] = ["a", "b", "ib", "old", "slow", "mortal", "victim"];
/// The device that shares its IOMMU group with a device that a kernel driver owns. Its address is the last.
pub const CROWDED: &str = "crowded";
/// PCI device number of the first root port. Buses are numbered in the order of the ports.
const FIRST_PORT: usize = 0x10;

/// The servers, which run until this is dropped.
#[derive(Debug)]
pub struct Fleet {
    directory: TempDir,
    cables: BTreeMap<&'static str, Cable>,
    /// Serves `mortal`. It is the only server in a process of its own, because it has to die.
    mortal: KillOnDrop,
}

impl Fleet {
    /// Powers all devices on. `bareverbs` is the path of the command; the output of its server goes to `log`.
    pub fn start(bareverbs: &Path, log: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("bareverbs-fleet-").tempdir()?;
        let path = |name: &str| directory.path().join(name);
        let mut cables = BTreeMap::new();
        for name in NAMES.into_iter().chain([CROWDED]) {
            let wire = match name {
                "a" => Some((path("wire.a"), path("wire.b"))),
                "b" => Some((path("wire.b"), path("wire.a"))),
                "mortal" => continue,
                _ => None,
            };
            cables.insert(name, serve(&path(name), config(name), wire)?);
        }
        let mortal = command::serve(bareverbs, &path("mortal"), &["--link", "eth"], log)?;
        Ok(Self { directory, cables, mortal })
    }

    /// Sockets, by their names in the guest's directory.
    pub fn sockets(&self) -> Vec<(String, PathBuf)> {
        let all = NAMES.iter().chain([&CROWDED]);
        all.map(|name| (format!("{name}.nic"), self.directory.path().join(name))).collect()
    }

    /// The cable of a device that this process serves.
    pub fn cable(&self, name: &str) -> Result<Cable> {
        self.cables.get(name).cloned().with_context(|| format!("{name} is no device of this process"))
    }

    /// Kills the server of `mortal`, like a loss of power.
    pub fn kill_mortal(&mut self) -> Result<()> {
        self.mortal.0.kill().context("cannot end the server")?;
        self.mortal.0.wait().map(drop).context("the server did not end")
    }
}

/// Configuration of the device with this name.
pub fn config(name: &str) -> NicConfig {
    let number = NAMES.iter().position(|known| *known == name).unwrap_or(NAMES.len()) as u8;
    let mac = MacAddress([0x02, 0x02, 0xc9, 0x05, 0, number]);
    match name {
        // rdma-core's tests bring the port up themselves, and one of them waits for the event.
        "ib" => NicConfig { starts_down: true, ..NicConfig::infiniband(mac) },
        "old" => NicConfig { device_id: 0x1003, ..NicConfig::new(mac) },
        "slow" => NicConfig { firmware_ready_after: Duration::from_secs(1 << 20), ..NicConfig::new(mac) },
        _ => NicConfig::new(mac),
    }
}

fn serve(socket: &Path, nic: NicConfig, wire: Option<(PathBuf, PathBuf)>) -> Result<Cable> {
    let attachment =
        wire.map_or(Attachment::Nothing, |(own, peer)| Attachment::Wire(Outside::datagram(own, peer)));
    let mut server = Server::bind(socket, ServerConfig { attachment, ..ServerConfig::new(nic) })?;
    let cable = server.cable();
    let name = socket.file_name().unwrap_or_default().to_string_lossy().into_owned();
    std::thread::Builder::new().name(name).spawn(move || while server.serve().is_ok() {})?;
    Ok(cable)
}

/// Arguments for QEMU: an IOMMU, the devices behind their ports, and one that shares a conventional bridge
/// with another device.
pub fn qemu_arguments() -> Vec<String> {
    let mut list: Vec<String> = vec!["-device".into(), "intel-iommu,intremap=on,caching-mode=on".into()];
    let mut device = |text: String| list.extend(["-device".to_owned(), text]);
    for (number, name) in NAMES.iter().enumerate() {
        device(port(&format!("{name}.port"), number));
        device(vfio_user(name, &format!("{name}.port"), ""));
    }
    device(port("bridge.port", NAMES.len()));
    device("pcie-pci-bridge,id=bridge,bus=bridge.port".into());
    device("virtio-rng-pci,bus=bridge,addr=1".into());
    device(vfio_user(CROWDED, "bridge", r#","addr":"2""#));
    list
}

fn port(id: &str, number: usize) -> String {
    let chassis = number + 1;
    format!("pcie-root-port,id={id},chassis={chassis},slot={chassis},addr={:#x}", FIRST_PORT + number)
}

fn vfio_user(name: &str, bus: &str, more: &str) -> String {
    let socket = format!(r#"{{"type":"unix","path":"{}"}}"#, Machine::path_inside(&format!("{name}.nic")));
    format!(r#"{{"driver":"vfio-user-pci","id":"{name}","bus":"{bus}"{more},"socket":{socket}}}"#)
}

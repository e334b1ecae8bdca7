//! A vfio-user server: the device as a PCI function of a virtual machine, in real time.
//!
//! **What this is.** [`Server`] listens on a Unix socket; one client at a time (QEMU's `vfio-user-pci`) sees PCI
//! configuration space and BAR0, lends memory, and gets MSI-X vectors by event file descriptors. Two threads: one blocks
//! on the socket, one owns the device; what the client does reaches the device in order.
//!
//! **What it may not do.** A client that goes away, resets or sends garbage leaves the server alive and the device in
//! reset state. The protocol is spoken by the crate `vfio_user`. Where that falls short: it panics on some malformed
//! messages, so each connection has a thread whose panic ends the connection and nothing else; it reports errors of the
//! back end with the error number 0; it knows neither DMA_READ and DMA_WRITE (memory without a file descriptor cannot be
//! reached) nor DEVICE_GET_REGION_IO_FDS.
//!
//! **Where to read first.** [`Server::serve`].

mod door;
mod engine;
mod memory;
mod vectors;
mod view;
mod wire;

pub use memory::ClientMemory;

use crate::fabric::{Fabric, Waker};
use crate::real_time::{Outside, RealTime, Recorder, Tally};
use bareverbs_sim::net::fault::{FaultId, Faults, RandomFaults, ScriptedFault};
use bareverbs_sim::nic::{LinkLayer, Nic, NicConfig};
use bareverbs_sim::run::Seed;
use core::fmt;
use door::Door;
use engine::{Engine, Link, QUEUE, Request};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, sync_channel};
use std::thread::JoinHandle;
use vectors::Vectors;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
    vfio_region_info,
};
use vfio_user::{IrqInfo, ServerRegion};
use wire::{Frames, Wire};

/// Bytes of PCI configuration space.
const CONFIG_SIZE: u64 = 4096;

/// What is to be served.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The device.
    pub nic: NicConfig,
    /// What its port is joined to.
    pub attachment: Attachment,
    /// Where to write all frames of the port.
    pub capture: Option<Recorder>,
    /// Faults on what it receives and sends.
    pub faults: Option<WireFaults>,
    /// Whether to log every command with its outcome.
    pub trace_commands: bool,
}

impl ServerConfig {
    /// A device that is joined to nothing.
    pub const fn new(nic: NicConfig) -> Self {
        Self { nic, attachment: Attachment::Nothing, capture: None, faults: None, trace_commands: false }
    }
}

/// What a port is joined to.
#[derive(Debug, Clone)]
pub enum Attachment {
    /// Nothing: frames that leave the device are lost.
    Nothing,
    /// Somebody outside of this process.
    Wire(Outside),
    /// A switch of this process.
    Fabric(Fabric),
}

/// Faults of a wire: by chance, and by a script for each direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireFaults {
    /// From what chances are drawn.
    pub seed: Seed,
    /// Faults by chance, in both directions.
    pub random: RandomFaults,
    /// Script for what the device receives.
    pub inbound: Vec<ScriptedFault>,
    /// Script for what it sends.
    pub outbound: Vec<ScriptedFault>,
}

impl WireFaults {
    /// The faults of one direction of a wire.
    fn of(&self, name: &str, layer: LinkLayer, script: &[ScriptedFault]) -> Faults {
        let mut faults = Faults::new(self.seed.stream(&format!("faults of {name}")));
        if layer == LinkLayer::InfiniBand {
            faults = faults.of_infiniband();
        }
        faults.set_random(self.random);
        for (id, fault) in (0..).zip(script) {
            faults.arm(FaultId(id), *fault);
        }
        faults
    }
}

/// Why nothing is served.
#[derive(Debug)]
pub enum ServeError {
    /// The socket cannot be made.
    Socket(PathBuf, vfio_user::Error),
    /// There is something at the path that is no socket, or a server that answers.
    InUse(PathBuf),
    /// The end of the wire cannot be taken, or the device has no thread.
    Wire(io::Error),
    /// The device's thread ended: the model panicked.
    DeviceEnded,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path, cause) => write!(f, "cannot listen at {}: {cause}", path.display()),
            Self::InUse(path) => {
                write!(f, "{} is in use; end the other server or choose another path", path.display())
            }
            Self::Wire(cause) => write!(f, "cannot take the end of the wire: {cause}"),
            Self::DeviceEnded => write!(f, "the device model has ended; its last words are above"),
        }
    }
}

impl core::error::Error for ServeError {}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// The client closed it.
    Closed,
    /// The client sent what no client should.
    Garbage,
}

/// A device that waits for clients.
pub struct Server {
    protocol: vfio_user::Server,
    link: Link,
    bar_size: u64,
    device: JoinHandle<()>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("bar_size", &self.bar_size)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Listens at `path` and powers the device on. A socket that a dead server left behind is removed.
    pub fn bind(path: &Path, config: ServerConfig) -> Result<Self, ServeError> {
        clear_path(path)?;
        let bar_size = Nic::new(config.nic).bar_size();
        let (irqs, regions) = (irqs(config.nic.vectors), regions(bar_size));
        let protocol = vfio_user::Server::new(path, true, irqs, regions)
            .map_err(|cause| ServeError::Socket(path.to_owned(), cause))?;
        let (link, device) = start(config)?;
        Ok(Self { protocol, link, bar_size, device })
    }

    /// Serves one client to its end; the device then is in reset state and the next client may come.
    pub fn serve(&mut self) -> Result<Farewell, ServeError> {
        let farewell = self.converse();
        self.link.call(Request::Forget).map_err(|_| ServeError::DeviceEnded)?;
        if self.device.is_finished() {
            return Err(ServeError::DeviceEnded);
        }
        Ok(farewell)
    }

    /// The conversation has a thread of its own, since the protocol's crate panics on some garbage.
    fn converse(&mut self) -> Farewell {
        let (protocol, link, bar_size) = (&self.protocol, &mut self.link, self.bar_size);
        let conversation = std::thread::scope(|scope| {
            let thread =
                scope.spawn(move || protocol.run(&mut Door { link, bar_size, config_size: CONFIG_SIZE }));
            thread.join()
        });
        match conversation {
            Ok(Ok(())) => Farewell::Closed,
            Ok(Err(error)) => {
                tracing::warn!("the client is gone: {error}");
                Farewell::Closed
            }
            Err(_) => {
                tracing::warn!("the client sent a malformed message; the device is reset");
                Farewell::Garbage
            }
        }
    }
}

/// Removes a socket at which nobody listens.
fn clear_path(path: &Path) -> Result<(), ServeError> {
    let Ok(about) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let dead = about.file_type().is_socket()
        && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if !dead || std::fs::remove_file(path).is_err() {
        return Err(ServeError::InUse(path.to_owned()));
    }
    Ok(())
}

/// Starts the device's thread.
fn start(config: ServerConfig) -> Result<(Link, JoinHandle<()>), ServeError> {
    let (attachment, layer) = (config.attachment.clone(), config.nic.link_layer);
    let (wire, waker) = Wire::new(|waker| join(&attachment, layer, waker)).map_err(ServeError::Wire)?;
    let ((requests, incoming), (outgoing, answers)) = (sync_channel(QUEUE), channel());
    let device = std::thread::Builder::new().name("device".into()).spawn(move || {
        let runner = runner(&config, wire);
        let vectors = Vectors::new(config.nic.vectors);
        Engine { runner, vectors, requests: incoming, answers: outgoing, troubles: Tally::default() }.run();
    });
    let device = device.map_err(ServeError::Wire)?;
    Ok((Link { requests, answers, waker }, device))
}

fn join(attachment: &Attachment, layer: LinkLayer, waker: Waker) -> io::Result<Frames> {
    Ok(match attachment {
        Attachment::Nothing => Frames::Nowhere,
        Attachment::Wire(outside) => Frames::Outside(outside.open(layer)?),
        Attachment::Fabric(fabric) => Frames::Fabric(fabric.plug(layer, waker)),
    })
}

/// The device with everything around it.
fn runner(config: &ServerConfig, wire: Wire) -> RealTime<ClientMemory, Nic, Wire> {
    let mut nic = Nic::new(config.nic);
    nic.trace_commands(config.trace_commands);
    let mut runner = RealTime::new(nic, ClientMemory::default(), wire);
    if let Some(capture) = &config.capture {
        runner.set_capture(capture.clone());
    }
    if let Some(faults) = &config.faults {
        let layer = config.nic.link_layer;
        let inbound = faults.of("inbound", layer, &faults.inbound);
        runner.set_faults(Some(inbound), Some(faults.of("outbound", layer, &faults.outbound)));
    }
    runner
}

/// Interrupts by index: only MSI-X has vectors. They can be added one by one, also while MSI-X is on.
fn irqs(vectors: u16) -> Vec<IrqInfo> {
    let info = |index| {
        let msix = index == VFIO_PCI_MSIX_IRQ_INDEX;
        IrqInfo {
            index,
            flags: if msix { VFIO_IRQ_INFO_EVENTFD } else { 0 },
            count: if msix { vectors.into() } else { 0 },
        }
    };
    (0..VFIO_PCI_NUM_IRQS).map(info).collect()
}

fn regions(bar_size: u64) -> Vec<ServerRegion> {
    let region = |index| {
        let size = match index {
            VFIO_PCI_BAR0_REGION_INDEX => bar_size,
            VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_SIZE,
            _ => 0,
        };
        let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        let region_info = vfio_region_info {
            argsz: size_of::<vfio_region_info>() as u32,
            flags: if size > 0 { access } else { 0 },
            index,
            size,
            ..Default::default()
        };
        ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

#[cfg(test)]
mod tests;

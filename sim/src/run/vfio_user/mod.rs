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
mod wire;

pub use memory::ClientMemory;

use super::real_time::{RealTime, UnixDatagramIo};
use crate::net::capture::Capture;
use crate::nic::{Nic, NicConfig};
use core::fmt;
use door::Door;
use engine::{Engine, Link, Request};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use vectors::Vectors;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
    vfio_region_info,
};
use vfio_user::{IrqInfo, ServerRegion};
use wire::Wire;

/// Bytes of PCI configuration space.
const CONFIG_SIZE: u64 = 4096;

/// What is to be served.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The device.
    pub nic: NicConfig,
    /// Sockets of the wire: our own, and the other side's. Without, frames that leave the device are lost.
    pub wire: Option<(PathBuf, PathBuf)>,
    /// Where to write all frames of the wire, as pcapng.
    pub capture: Option<PathBuf>,
    /// Whether to log every command with its outcome.
    pub trace_commands: bool,
}

/// Why nothing is served.
#[derive(Debug)]
pub enum ServeError {
    /// The socket cannot be made.
    Socket(PathBuf, vfio_user::Error),
    /// There is something at the path that is no socket, or a server that answers.
    InUse(PathBuf),
    /// The wire's socket cannot be made.
    Wire(io::Error),
    /// The capture cannot be written.
    Capture(PathBuf, io::Error),
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
            Self::Wire(cause) => write!(f, "cannot make the socket of the wire: {cause}"),
            Self::Capture(path, cause) => write!(f, "cannot write the capture {}: {cause}", path.display()),
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
    let frames = config.wire.as_ref().map(|(own, peer)| UnixDatagramIo::bind(own, peer)).transpose();
    let (wire, bell) = frames.and_then(Wire::new).map_err(ServeError::Wire)?;
    let capture = config
        .capture
        .as_ref()
        .map(|path| File::create(path).map_err(|cause| ServeError::Capture(path.clone(), cause)));
    let capture = capture.transpose()?;
    let ((requests, incoming), (outgoing, answers)) = (channel(), channel());
    let device = std::thread::Builder::new().name("device".into()).spawn(move || {
        let mut nic = Nic::new(config.nic);
        nic.trace_commands(config.trace_commands);
        let mut runner = RealTime::new(nic, ClientMemory::default(), wire);
        if let Some(file) = capture {
            runner.set_capture(Capture::new(Box::new(BufWriter::new(file))));
        }
        Engine { runner, vectors: Vectors::new(config.nic.vectors), requests: incoming, answers: outgoing }
            .run();
    });
    let device = device.map_err(ServeError::Wire)?;
    Ok((Link { requests, answers, bell }, device))
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

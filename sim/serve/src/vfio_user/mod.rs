//! A vfio-user server: the device as a PCI function of a virtual machine, in real time.
//!
//! **What this is.** [`Server`] listens on a Unix socket. One client at a time (QEMU's `vfio-user-pci`) accesses PCI
//! configuration space and BAR0, shares its memory, and receives MSI-X interrupts through event file descriptors. One
//! thread blocks on the socket, another owns the device; the client's actions reach the device in order.
//!
//! **What it may not do.** A client that disconnects, resets or sends garbage must not bring down the server; it leaves
//! the device in reset state. Everything that a client can fill has a limit: messages, the request queue, mappings,
//! files, waiting time. The server never sends DMA_READ or DMA_WRITE, so it cannot access memory without a file
//! descriptor; DEVICE_GET_REGION_IO_FDS is refused.
//!
//! **Where to read first.** [`Server::serve`]; `message` for what is on the socket, `command_handler` for what it means.

mod cable;
mod command_handler;
mod connection;
mod engine;
mod error;
mod memory;
mod message;
mod socket;
mod vectors;
mod view;
mod wire;

pub use cable::Cable;
pub use error::ServeError;
pub use memory::ClientMemory;
pub use socket::listen_at;

use crate::fabric::{Fabric, HostPlace, Waker};
use crate::real_time::{Card, CardPort, FaultScript, Outside, RealTime, Recorder, Tally};
use bareverbs_sim::net::Direction;
use bareverbs_sim::net::fault::Faults;
use bareverbs_sim::nic::{LinkLayer, Nic, NicConfig};
use bareverbs_sim::run::Seed;
use cable::CableEnd;
use command_handler::CommandHandler;
use connection::Connection;
use engine::{Engine, Link, QUEUE};
use message::{Command, Message};
use socket::{clear_path, listen};
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use vectors::Vectors;
use wire::{Frames, WakeSocket, Wire};

/// Time limit for a client to send a message and to take a reply.
const LIMIT: Duration = Duration::from_secs(10);
/// Pause after a failure to accept, because the process may be out of file descriptors.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// What to serve.
///
/// ```
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_serve::real_time::Outside;
/// use bareverbs_serve::vfio_user::{Attachment, ServerConfig};
/// use bareverbs_sim::nic::NicConfig;
///
/// let nic = NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1]));
/// let wire = Outside::datagram("/run/nic0.wire", "/run/nic1.wire");
/// let config = ServerConfig { attachment: Attachment::Wire(wire), trace_commands: true, ..ServerConfig::new(nic) };
/// assert!(config.capture.is_none() && config.faults.is_none());
/// ```
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The device.
    pub nic: NicConfig,
    /// What its port is connected to.
    pub attachment: Attachment,
    /// The card of which it is a function, if it is one of several ([`NicConfig::card`]).
    pub card: Option<Card>,
    /// Captures all frames of the port.
    pub capture: Option<Recorder>,
    /// Faults on received and sent frames.
    pub faults: Option<WireFaults>,
    /// Whether to log every command with its outcome.
    pub trace_commands: bool,
}

impl ServerConfig {
    /// A device without a connection.
    pub const fn new(nic: NicConfig) -> Self {
        Self {
            nic,
            attachment: Attachment::Nothing,
            card: None,
            capture: None,
            faults: None,
            trace_commands: false,
        }
    }
}

/// What a port is connected to.
#[derive(Debug, Clone)]
pub enum Attachment {
    /// Nothing: outgoing frames are lost.
    Nothing,
    /// Something outside this process.
    Wire(Outside),
    /// A switch in this process.
    Fabric(Fabric),
    /// The place of a host in a site of this process.
    Place(Fabric, HostPlace),
}

/// Faults of a wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireFaults {
    /// Seed of the random faults.
    pub seed: Seed,
    /// The faults.
    pub script: FaultScript,
}

impl WireFaults {
    /// The faults for one direction of a wire.
    fn of(&self, direction: Direction, layer: LinkLayer) -> Faults {
        let faults = self.script.faults(direction, self.seed);
        if layer == LinkLayer::InfiniBand { faults.of_infiniband() } else { faults }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// The client closed it.
    Closed,
    /// The client violated the protocol.
    Garbage,
}

/// A device that waits for clients.
///
/// ```no_run
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_serve::vfio_user::{Server, ServerConfig};
/// use bareverbs_sim::nic::NicConfig;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nic = NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1]));
/// let mut server = Server::bind("/run/nic0.socket".as_ref(), ServerConfig::new(nic))?;
/// let farewell = server.serve()?;
/// println!("the first client has gone: {farewell:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    link: Link,
    cable: Cable,
    bar_size: u64,
    vectors: u16,
    device: JoinHandle<()>,
    /// Time limit for a client.
    limit: Duration,
    /// Number of refused requests.
    refusals: Tally,
    /// Number of conversations that ended other than by a close.
    ends: Tally,
}

impl Server {
    /// Powers the device on and listens at `path`. Removes a dead server's socket.
    pub fn bind(path: &Path, config: ServerConfig) -> Result<Self, ServeError> {
        clear_path(path)?;
        let (bar_size, vectors) = (Nic::new(config.nic).bar_size(), config.nic.vectors);
        let cable = CableEnd::default();
        let (link, device) = start(config, cable.clone())?;
        let cable = Cable::new(cable, link.waker.waker().map_err(ServeError::Wire)?);
        // Last, so that a server without its wire leaves no socket, and one with a socket has its wire.
        let listener = listen(path)?;
        let (path, limit) = (path.to_owned(), LIMIT);
        let (refusals, ends) = (Tally::default(), Tally::default());
        Ok(Self { listener, path, link, cable, bar_size, vectors, device, limit, refusals, ends })
    }

    /// A handle to the device's cable, for a thread other than the one that serves.
    pub fn cable(&self) -> Cable {
        self.cable.clone()
    }

    /// Serves one client until it leaves. Afterwards the device is in reset state, ready for the next client.
    pub fn serve(&mut self) -> Result<Farewell, ServeError> {
        let stream = self.accept();
        let farewell = match self.welcome(stream) {
            Ok(Some(connection)) => {
                let farewell = self.converse(connection);
                self.link.forget().map_err(|_| ServeError::DeviceEnded)?;
                farewell
            }
            // The device never saw this client, so it costs the next one nothing.
            Ok(None) => Farewell::Closed,
            Err(error) => self.end(&error),
        };
        if self.device.is_finished() {
            return Err(ServeError::DeviceEnded);
        }
        Ok(farewell)
    }

    /// Waits for a client. On a failure to accept, retries later.
    fn accept(&self) -> UnixStream {
        let mut failures = Tally::default();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return stream,
                Err(error) => {
                    if let Some(times) = failures.add() {
                        tracing::warn!(
                            "{}: cannot accept a client: {error} ({times} times)",
                            self.path.display()
                        );
                    }
                    std::thread::sleep(AFTER_REFUSAL);
                }
            }
        }
    }

    /// Starts a conversation; `None` if the client leaves without sending anything.
    fn welcome(&mut self, stream: UnixStream) -> io::Result<Option<Connection>> {
        let mut connection = Connection::new(stream, self.limit)?;
        Ok(self.agree_on_version(&mut connection)?.then_some(connection))
    }

    /// Answers a client until it leaves or violates the protocol.
    fn converse(&mut self, mut connection: Connection) -> Farewell {
        loop {
            let message = match connection.receive(false) {
                Ok(Some(message)) => message,
                Ok(None) => return Farewell::Closed,
                Err(error) => return self.end(&error),
            };
            if let Err(error) = self.answer(&mut connection, message) {
                return self.end(&error);
            }
        }
    }

    /// How a conversation ended, given the error.
    fn end(&mut self, error: &io::Error) -> Farewell {
        let is_garbage = error.kind() == ErrorKind::InvalidData;
        if let Some(times) = self.ends.add() {
            let what = if is_garbage { "the client sent an invalid message" } else { "the client is gone" };
            tracing::warn!("{what}: {error} ({times} clients so far)");
        }
        if is_garbage { Farewell::Garbage } else { Farewell::Closed }
    }

    /// Handles the first message, which must be the version. Returns whether there was one.
    fn agree_on_version(&mut self, connection: &mut Connection) -> io::Result<bool> {
        let Some(message) = connection.receive(true)? else { return Ok(false) };
        if !matches!(Command::decode(message.header, &message.body), Ok(Command::Version { major: 0 })) {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "its first message is not a version that begins with 0",
            ));
        }
        self.answer(connection, message)?;
        Ok(true)
    }

    fn answer(&mut self, connection: &mut Connection, message: Message) -> io::Result<()> {
        let Message { header, body, files } = message;
        let mut handler =
            CommandHandler { link: &mut self.link, bar_size: self.bar_size, vectors: self.vectors };
        let outcome = Command::decode(header, &body).and_then(|command| handler.handle(command, files));
        if let Err(error) = &outcome
            && let Some(times) = self.refusals.add()
        {
            tracing::warn!("refused to the client: {error} ({times} so far); {header:?}");
        }
        if header.wants_reply() { connection.send(&header.reply(&outcome)) } else { Ok(()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Starts the device's thread.
fn start(config: ServerConfig, cable: CableEnd) -> Result<(Link, JoinHandle<()>), ServeError> {
    let (wire, waker) =
        Wire::new(|waker| join(&config.attachment, &config.nic, waker)).map_err(ServeError::Wire)?;
    let port = config.card.as_ref().map(|card| join_card(card, &config.nic, &waker)).transpose()?;
    let ((requests, incoming), (outgoing, responses)) = (sync_channel(QUEUE), channel());
    let is_leaving = Arc::new(AtomicBool::new(false));
    let link = Link { requests, responses, waker, is_leaving: is_leaving.clone() };
    let device = std::thread::Builder::new().name("device".into()).spawn(move || {
        let mut runner = runner(&config, wire);
        if let Some(port) = port {
            runner.set_card(port);
        }
        let (vectors, troubles) = (Vectors::new(config.nic.vectors), Tally::default());
        Engine { runner, vectors, requests: incoming, responses: outgoing, is_leaving, cable, troubles }
            .run();
    });
    Ok((link, device.map_err(ServeError::Wire)?))
}

fn join_card(card: &Card, nic: &NicConfig, waker: &WakeSocket) -> Result<CardPort, ServeError> {
    let id = nic.card.map(|function| function.vhca_id).ok_or(ServeError::Card(None))?;
    card.join(id, waker.waker().map_err(ServeError::Wire)?).ok_or(ServeError::Card(Some(id)))
}

fn join(attachment: &Attachment, nic: &NicConfig, waker: Waker) -> io::Result<Frames> {
    Ok(match attachment {
        Attachment::Nothing => Frames::Nowhere,
        Attachment::Wire(outside) => Frames::Outside(outside.open(nic.link_layer)?),
        Attachment::Fabric(fabric) => {
            let port = fabric.plug(nic.link_layer, waker)?;
            port.announce(nic.mac);
            Frames::Fabric(port)
        }
        Attachment::Place(fabric, place) => Frames::Fabric(fabric.plug_at(*place, waker)),
    })
}

/// The runner for the device.
fn runner(config: &ServerConfig, wire: Wire) -> RealTime<ClientMemory, Nic, Wire> {
    let mut nic = Nic::new(config.nic);
    nic.trace_commands(config.trace_commands);
    let mut runner = RealTime::new(nic, ClientMemory::default(), wire);
    if let Some(capture) = &config.capture {
        runner.set_capture(capture.clone());
    }
    if let Some(faults) = &config.faults {
        let layer = config.nic.link_layer;
        let inbound = faults.of(Direction::Inbound, layer);
        runner.set_faults(Some(inbound), Some(faults.of(Direction::Outbound, layer)));
    }
    runner
}

#[cfg(test)]
mod tests;

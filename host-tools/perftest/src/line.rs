//! The carrier of an exchange's messages, and one implementation: a TCP connection that never blocks the NIC
//! beside it. Every wait lets the caller do a bit of work.

use anyhow::{Context, Result, anyhow, bail};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What to do while waiting: step the NIC, then sleep for a moment. Its error ends the wait.
pub type WaitHook<'a> = dyn FnMut() -> Result<()> + 'a;

/// How a handshake encodes queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationForm {
    /// A line of hexadecimal text, as over TCP.
    Text,
    /// A record of numbers, as over a connection of RDMA CM.
    Record,
}

/// Carries messages to the peer and back, each in one piece.
pub trait Carrier {
    /// Sends a message.
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&mut self, message: &[u8], meanwhile: &mut WaitHook<'_>) -> Result<()>;

    /// Receives a message of exactly this length.
    ///
    /// # Errors
    /// The connection is broken, the peer is silent for too long, or a message has another length.
    fn receive(&mut self, message: &mut [u8], meanwhile: &mut WaitHook<'_>) -> Result<()>;

    /// How handshakes encode queue pairs.
    fn form(&self) -> DestinationForm;

    /// How long every later wait for the peer may take.
    fn set_limit(&mut self, limit: Duration);
}

impl Carrier for Line {
    fn send(&mut self, message: &[u8], _: &mut WaitHook<'_>) -> Result<()> {
        Self::send(self, message)
    }

    fn receive(&mut self, message: &mut [u8], meanwhile: &mut WaitHook<'_>) -> Result<()> {
        self.fill(message, meanwhile)
    }

    fn form(&self) -> DestinationForm {
        DestinationForm::Text
    }

    fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }
}

/// One connection with a time limit for every wait for the peer.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
    limit: Duration,
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    tell: fn(&Stranger),
}

/// A program that connected to a listening end and does not speak perftest's exchange. The listening end refuses it and keeps waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// Address of the stranger, unless it has disconnected already.
    pub address: Option<SocketAddr>,
    /// What it did instead.
    pub deed: String,
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "refused the connection of {address}: {}", self.deed)?,
            None => write!(f, "refused a connection: {}", self.deed)?,
        }
        f.write_str("; still waiting for the peer")
    }
}

impl Listener {
    /// Listens on an unused loopback port.
    pub fn bind() -> Result<Self> {
        Self::bind_to((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Listens at an address of this machine.
    pub fn bind_to(address: SocketAddr) -> Result<Self> {
        let socket =
            TcpListener::bind(address).with_context(|| format!("cannot listen at {address} (TCP)"))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, tell: |_| () })
    }

    /// Calls `tell` for each refused stranger, up to a maximum number.
    #[must_use]
    pub fn telling(self, tell: fn(&Stranger)) -> Self {
        Self { tell, ..self }
    }

    /// Reports a stranger.
    pub(crate) fn tell(&self, stranger: &Stranger) {
        (self.tell)(stranger);
    }

    /// The port.
    pub fn port(&self) -> Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Waits for the peer to connect. `limit` is for this wait and for each later one.
    pub fn accept(&self, limit: Duration, meanwhile: &mut WaitHook<'_>) -> Result<Line> {
        let deadline = Instant::now() + limit;
        loop {
            match self.socket.accept() {
                Ok((stream, _)) => return Line::new(stream, limit),
                // The caller disconnected before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
                Err(_) => wait(deadline, NOBODY_CONNECTS, meanwhile)?,
            }
        }
    }
}

impl Line {
    fn new(stream: TcpStream, limit: Duration) -> Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, limit })
    }

    /// Address of the other end, unless it has disconnected already.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    /// Connects and sends `first`, and repeats that while the peer does not listen yet: QEMU accepts the
    /// connection at once and closes it when the guest refuses. The line is ready when the first byte of an
    /// answer has arrived. `limit` is for this wait and for each later one.
    pub fn connect(
        address: SocketAddr,
        first: &[u8],
        limit: Duration,
        meanwhile: &mut WaitHook<'_>,
    ) -> Result<Self> {
        let deadline = Instant::now() + limit;
        let nobody_listens = format!("nobody listens at {address} (TCP)");
        loop {
            let attempt = match TcpStream::connect_timeout(&address, limit) {
                Ok(stream) => Self::new(stream, limit)?.introduce(first, deadline, meanwhile)?,
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => None,
                Err(error) => return Err(error).with_context(|| format!("cannot connect to {address}")),
            };
            match attempt {
                Some(line) => return Ok(line),
                None => wait(deadline, Silence { what: &nobody_listens, advice: START_FIRST }, meanwhile)?,
            }
        }
    }

    /// Sends the first message and waits for an answer; `None` if the peer hung up.
    fn introduce(
        mut self,
        first: &[u8],
        deadline: Instant,
        meanwhile: &mut WaitHook<'_>,
    ) -> Result<Option<Self>> {
        if self.stream.write(first).ok() != Some(first.len()) {
            return Ok(None);
        }
        loop {
            match self.stream.peek(&mut [0]) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(self)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Ok(None),
            }
            wait(deadline, NO_ANSWER, meanwhile)?;
        }
    }

    /// Sends a message in one piece, because the programs read it with a single call.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        let sent = match self.stream.write(message) {
            Err(error) if is_gone(error.kind()) => {
                bail!("the peer hung up before a message of {} bytes; its own output says why", message.len())
            }
            sent => sent.context("cannot send to the peer over TCP")?,
        };
        if sent != message.len() {
            bail!("sent {sent} of {} bytes to the peer over TCP", message.len());
        }
        Ok(())
    }

    /// Receives a message of exactly `N` bytes.
    pub fn receive<const N: usize>(&mut self, meanwhile: &mut WaitHook<'_>) -> Result<[u8; N]> {
        let mut message = [0; N];
        self.fill(&mut message, meanwhile)?;
        Ok(message)
    }

    fn fill(&mut self, message: &mut [u8], meanwhile: &mut WaitHook<'_>) -> Result<()> {
        let deadline = Instant::now() + self.limit;
        let length = message.len();
        let mut filled = 0;
        while let Some(rest) = message.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.stream.read(rest) {
                Ok(0) => return Err(hung_up(filled, length)),
                Err(error) if is_gone(error.kind()) => return Err(hung_up(filled, length)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(deadline, NOTHING_SAID, meanwhile)?;
                }
                Err(error) => return Err(error).context("the TCP connection to the peer"),
            }
        }
        Ok(())
    }
}

/// A peer that ends with unread bytes of ours resets the connection instead of closing it.
const fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe)
}

fn hung_up(filled: usize, length: usize) -> anyhow::Error {
    anyhow!("the peer hung up after {filled} of {length} bytes of a message; its own output says why")
}

/// What a wait that timed out was for, and what to try.
struct Silence<'a> {
    what: &'a str,
    advice: &'a str,
}

/// What to try when nobody listens.
pub const START_FIRST: &str = "; start the end that listens first, or name its port with -p";
/// What to try when nobody connects.
pub const START_OTHER_END: &str = "; start the other end with the name of this machine and the same port (-p), and look for a firewall between them";
const NOBODY_CONNECTS: Silence<'_> = Silence { what: "nobody connected", advice: START_OTHER_END };
const NO_ANSWER: Silence<'_> = Silence {
    what: "the peer did not answer over TCP",
    advice: "; something else may have that port, or the peer is busy with another client",
};
const NOTHING_SAID: Silence<'_> = Silence { what: "the peer sent nothing over TCP", advice: "" };

fn wait(deadline: Instant, silence: Silence<'_>, meanwhile: &mut WaitHook<'_>) -> Result<()> {
    if Instant::now() > deadline {
        bail!("{}, and the time limit has passed{}", silence.what, silence.advice);
    }
    meanwhile()
}

//! A TCP connection that never blocks the NIC beside it: every wait lets the caller do a bit of work.

use super::super::interrupt;
use anyhow::{Context, Result, bail};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What to do while waiting: step the NIC, then rest a moment. Its error ends the wait.
pub type Meanwhile<'a> = dyn FnMut() -> Result<()> + 'a;

/// One connection with a deadline for all that is said over it.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
    deadline: Instant,
}

/// A listening socket on a loopback port that nobody else has.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
}

impl Listener {
    /// Listens on loopback.
    pub fn bind() -> Result<Self> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no loopback port to listen on")?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// The port.
    pub fn port(&self) -> Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Waits for the peer to connect.
    pub fn accept(&self, limit: Duration, meanwhile: &mut Meanwhile<'_>) -> Result<Line> {
        let deadline = Instant::now() + limit;
        loop {
            match self.socket.accept() {
                Ok((stream, _)) => return Line::new(stream, deadline),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
                Err(_) => wait(deadline, "the program in the guest does not connect", meanwhile)?,
            }
        }
    }
}

impl Line {
    fn new(stream: TcpStream, deadline: Instant) -> Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, deadline })
    }

    /// Connects and sends `first`, and does so again while the peer does not listen yet: QEMU takes the connection at
    /// once and closes it when the guest refuses. The line is ready when the first byte of an answer is there.
    pub fn connect(
        address: SocketAddrV4,
        first: &[u8],
        limit: Duration,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<Self> {
        let deadline = Instant::now() + limit;
        loop {
            let attempt = Self::new(TcpStream::connect(address)?, deadline);
            if let Some(line) = attempt?.introduce(first, meanwhile)? {
                return Ok(line);
            }
            wait(deadline, "the program in the guest does not listen", meanwhile)?;
        }
    }

    /// Sends the first message and waits for an answer; `None` if the peer hung up.
    fn introduce(mut self, first: &[u8], meanwhile: &mut Meanwhile<'_>) -> Result<Option<Self>> {
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
            wait(self.deadline, "the program in the guest does not answer", meanwhile)?;
        }
    }

    /// Sends one message in one piece: the programs read it with one call.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        let sent = self.stream.write(message).context("cannot send to the program in the guest")?;
        if sent != message.len() {
            bail!("sent {sent} of {} bytes to the program in the guest", message.len());
        }
        Ok(())
    }

    /// Receives a message of exactly `N` bytes.
    pub fn receive<const N: usize>(&mut self, meanwhile: &mut Meanwhile<'_>) -> Result<[u8; N]> {
        let mut message = [0; N];
        let mut filled = 0;
        while let Some(rest) = message.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.stream.read(rest) {
                Ok(0) => bail!("the program in the guest hung up after {filled} of {N} bytes"),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(self.deadline, "the program in the guest says nothing", meanwhile)?;
                }
                Err(error) => return Err(error).context("from the program in the guest"),
            }
        }
        Ok(message)
    }
}

fn wait(deadline: Instant, complaint: &str, meanwhile: &mut Meanwhile<'_>) -> Result<()> {
    interrupt::check()?;
    if Instant::now() > deadline {
        bail!("{complaint}");
    }
    meanwhile()
}

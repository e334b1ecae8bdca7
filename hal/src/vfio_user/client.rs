//! The client side of the vfio-user protocol: one message at a time, with a time limit on every wait.
//!
//! The crate `vfio_user` has a client as well, but it ignores the error in a reply, waits forever, waits for a reply to
//! every register write, and panics if a reply has an unexpected size. A driver needs better, so this is our own.

mod command;
mod error;

pub(super) use command::Command;
pub use error::{ClientError, CommandSubject};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a message header.
const HEADER: usize = 16;
/// Longest accepted reply in bytes.
const LONGEST: usize = 1 << 20;
/// Most file descriptors in a message.
const FILES: usize = 8;
/// Most requests of the server to refuse while waiting for a reply.
const QUESTIONS: u64 = 1024;
/// Flags of a header: the message type in the low bits, no reply, error.
const REPLY: u32 = 1;
const KIND: u32 = 0xf;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

impl Command {
    fn garbage(self, what: &'static str) -> ClientError {
        ClientError::Garbage { command: self.name(), what }
    }

    const fn refused(self, errno: u32) -> ClientError {
        ClientError::Refused { command: self.name(), subject: CommandSubject::Device, errno }
    }

    fn broken(self, error: impl Into<io::Error>) -> ClientError {
        ClientError::Broken { command: self.name(), subject: CommandSubject::Device, error: error.into() }
    }
}

/// A reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<File>,
}

impl Reply {
    /// The 32-bit number at byte `at` of the body.
    pub(super) fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.body.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// The 64-bit number at byte `at` of the body.
    pub(super) fn long(&self, at: usize) -> Option<u64> {
        let bytes = self.body.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

struct Header {
    id: u16,
    command: u16,
    size: u32,
    flags: u32,
    errno: u32,
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    next: u16,
    /// Posted writes that the server refused.
    pub(super) refused_writes: u64,
    /// Writes sent without requesting a reply.
    posted: u64,
    /// Time limit for the server's reply.
    limit: Duration,
}

impl Client {
    /// Connects and negotiates the protocol version. No wait is longer than `limit`.
    pub(super) fn connect(path: &Path, limit: Duration) -> Result<Self, ClientError> {
        let refused = |error| ClientError::Connect { path: path.to_owned(), error };
        let stream = UnixStream::connect(path).map_err(refused)?;
        Self::over(stream, limit)
    }

    pub(super) fn over(stream: UnixStream, limit: Duration) -> Result<Self, ClientError> {
        let limits = stream.set_read_timeout(Some(limit)).and(stream.set_write_timeout(Some(limit)));
        limits.map_err(|error| Command::Version.broken(error))?;
        let mut client = Self { stream, next: 0, refused_writes: 0, posted: 0, limit };
        client.negotiate()?;
        Ok(client)
    }

    fn negotiate(&mut self) -> Result<(), ClientError> {
        let ours = serde_json::json!({"capabilities": {"max_msg_fds": FILES, "max_data_xfer_size": LONGEST}});
        let mut body = [0u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat();
        body.extend(ours.to_string().bytes());
        body.push(0);
        let reply = self.call(Command::Version, &body, &[])?;
        match reply.body.first_chunk::<2>().map(|major| u16::from_ne_bytes(*major)) {
            Some(0) => Ok(()),
            Some(_) => Err(Command::Version.garbage("another major version than 0")),
            None => Err(Command::Version.garbage("it is too short")),
        }
    }

    /// Sends a message and waits for its reply.
    pub(super) fn call(
        &mut self,
        command: Command,
        body: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Result<Reply, ClientError> {
        self.exchange(command, body, files).map_err(|error| error.about(CommandSubject::of(command, body)))
    }

    fn exchange(
        &mut self,
        command: Command,
        body: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Result<Reply, ClientError> {
        let id = self.send(command, 0, body, files)?;
        // Refused writes and requests of the server may arrive first, but only a limited number of each.
        for _ in 0..=self.posted.saturating_sub(self.refused_writes).saturating_add(QUESTIONS) {
            let (header, reply) = self.receive(command)?;
            if header.id == id && header.flags & KIND == REPLY && header.command == command as u16 {
                return match header.flags & ERROR {
                    0 => Ok(reply),
                    _ => Err(command.refused(header.errno)),
                };
            }
            self.handle_stray(command, &header)?;
        }
        Err(command.garbage("the server sends requests instead of the reply"))
    }

    /// Sends a message without requesting a reply.
    pub(super) fn post(&mut self, command: Command, body: &[u8]) -> Result<(), ClientError> {
        let sent = self.send(command, NO_REPLY, body, &[]);
        sent.map_err(|error| error.about(CommandSubject::of(command, body)))?;
        self.posted += 1;
        Ok(())
    }

    /// Handles a message that is not the reply: the refusal of a posted write, or a request of the server.
    fn handle_stray(&mut self, during: Command, header: &Header) -> Result<(), ClientError> {
        if header.flags & KIND == REPLY {
            if header.flags & ERROR == 0 || header.command != Command::RegionWrite as u16 {
                return Err(during.garbage("it is the reply to another message"));
            }
            if self.refused_writes >= self.posted {
                return Err(during.garbage("it refuses a write that was never sent"));
            }
            self.refused_writes += 1;
            return Ok(());
        }
        // DMA_READ or DMA_WRITE: the server can map all memory, so it does not need them.
        let answer = encode(header.id, header.command, HEADER, REPLY | ERROR, libc::ENOTSUP as u32);
        self.stream.write_all(&answer).map_err(|error| during.broken(error))
    }

    fn send(
        &mut self,
        command: Command,
        flags: u32,
        body: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Result<u16, ClientError> {
        self.next = self.next.wrapping_add(1);
        let mut message = encode(self.next, command as u16, HEADER + body.len(), flags, 0).to_vec();
        message.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(command.garbage("too many file descriptors for a message"));
        }
        let parts = [IoSlice::new(&message)];
        let sent =
            restarted(self.limit, || sendmsg(&self.stream, &parts, &mut ancillary, SendFlags::NOSIGNAL));
        let sent = sent.map_err(|error| command.broken(error))?;
        let rest = message.get(sent..).unwrap_or_default();
        self.stream.write_all(rest).map_err(|error| command.broken(error))?;
        Ok(self.next)
    }

    fn receive(&mut self, command: Command) -> Result<(Header, Reply), ClientError> {
        let mut bytes = [0; HEADER];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        let got = restarted(self.limit, || {
            recvmsg(&self.stream, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        });
        let got = got.map_err(|error| command.broken(error))?.bytes;
        if got == 0 {
            return Err(command.broken(ErrorKind::UnexpectedEof));
        }
        let files: Vec<File> =
            ancillary
                .drain()
                .filter_map(|message| {
                    if let RecvAncillaryMessage::ScmRights(files) = message { Some(files) } else { None }
                })
                .flatten()
                .map(File::from)
                .collect();
        self.stream.read_exact(&mut bytes[got..]).map_err(|error| command.broken(error))?;
        let header = decode(&bytes);
        let length = (header.size as usize).checked_sub(HEADER).filter(|length| *length <= LONGEST);
        let mut body = vec![0; length.ok_or(command.garbage("its length is impossible"))?];
        self.stream.read_exact(&mut body).map_err(|error| command.broken(error))?;
        Ok((header, Reply { body, files }))
    }
}

/// Retries a call that a signal interrupted. The kernel does not restart it on a socket with a timeout, whatever flags
/// the handler has.
fn restarted<T>(limit: Duration, mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let deadline = Instant::now() + limit;
    loop {
        match call() {
            Err(Errno::INTR) if Instant::now() < deadline => {}
            Err(Errno::INTR) => return Err(Errno::AGAIN),
            done => return done,
        }
    }
}

fn encode(id: u16, command: u16, size: usize, flags: u32, errno: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..2].copy_from_slice(&id.to_ne_bytes());
    bytes[2..4].copy_from_slice(&command.to_ne_bytes());
    bytes[4..8].copy_from_slice(&(size as u32).to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..].copy_from_slice(&errno.to_ne_bytes());
    bytes
}

fn decode(bytes: &[u8; HEADER]) -> Header {
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    Header { id: half(0), command: half(2), size: word(4), flags: word(8), errno: word(12) }
}

#[cfg(test)]
mod tests;

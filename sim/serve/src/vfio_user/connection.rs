//! A client's socket: receives whole messages with their file descriptors, sends replies.
//!
//! After the version exchange a client may be silent for any time between messages. But it may not pause before that or
//! inside a message, nor leave replies unread, because others wait for the card.

use super::message::{FILES, Header, Message};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// One client.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// Time limit for a message from first to last byte, and for the client to take a reply.
    limit: Duration,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, limit: Duration) -> io::Result<Self> {
        stream.set_write_timeout(Some(limit))?;
        Ok(Self { stream, limit })
    }

    /// Receives the next message; `None` if the client closed the connection between two messages. With `at_once` the
    /// message must start within the limit.
    pub(super) fn receive(&mut self, at_once: bool) -> io::Result<Option<Message>> {
        self.stream.set_read_timeout(at_once.then_some(self.limit))?;
        let mut bytes = [0; Header::SIZE];
        let (got, files) = self.begin(&mut bytes)?;
        if got == 0 {
            return Ok(None);
        }
        let deadline = Instant::now() + self.limit;
        self.fill(&mut bytes[got..], deadline)?;
        let header = Header::read_from_bytes(&bytes).map_err(|_| ErrorKind::InvalidData)?;
        let Some(length) = header.body_length() else {
            return Err(io::Error::new(ErrorKind::InvalidData, "a message of impossible length"));
        };
        let mut body = vec![0; length];
        self.fill(&mut body, deadline)?;
        Ok(Some(Message { header, body, files }))
    }

    /// The first bytes of a message, with its file descriptors.
    fn begin(&self, bytes: &mut [u8]) -> io::Result<(usize, Vec<File>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(bytes)];
        let got = loop {
            match recvmsg(&self.stream, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Err(self.too_slow("says nothing")),
                other => break other?,
            }
        };
        let rights = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files = rights.flatten().map(File::from).collect();
        if got.flags.contains(ReturnFlags::CTRUNC) {
            let message =
                "more file descriptors in a message than the server accepts, or than this process may open";
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        Ok((got.bytes, files))
    }

    /// Fills `bytes` before the deadline.
    fn fill(&mut self, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut bytes[done..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) if Instant::now() < deadline => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Ok(_) | Err(_) => return Err(self.too_slow("does not end its message")),
            }
        }
        Ok(())
    }

    /// Sends a reply.
    pub(super) fn send(&mut self, reply: &[u8]) -> io::Result<()> {
        match self.stream.write_all(reply) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(self.too_slow("takes no reply")),
            sent => sent,
        }
    }

    fn too_slow(&self, what: &str) -> io::Error {
        io::Error::new(ErrorKind::TimedOut, format!("it {what} for {:?}", self.limit))
    }
}

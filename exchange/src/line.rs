//! A TCP connection on which every wait has a deadline, and the messages on it.

use crate::error::{Awaited, ExchangeCause};
use crate::message::{HEAD, Head, HeadError, Kind, MAX_BODY, MAX_REFUSAL};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// How long a refused peer has to hang up.
const FAREWELL: Duration = Duration::from_millis(200);

/// The end of a wait and its total length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    begin: Instant,
    pub(crate) limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self { begin: Instant::now(), limit }
    }

    /// Time left, or `None` once the deadline has passed.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.limit.checked_sub(self.begin.elapsed()).filter(|left| !left.is_zero())
    }
}

/// A received message. Only introductions, refusals and the messages of a proof have a body.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Line(pub(crate) TcpStream);

impl Line {
    pub(crate) fn send(&mut self, kind: Kind, body: &[u8], deadline: Deadline) -> Result<(), ExchangeCause> {
        let mut message = Head { kind, body: body.len() }.encode().to_vec();
        message.extend(body);
        let awaited = Awaited::Room;
        let mut rest = &message[..];
        while !rest.is_empty() {
            let sent = wait(deadline, awaited, 0, |left| {
                self.0.set_write_timeout(Some(left))?;
                self.0.write(rest)
            })?;
            if sent == 0 {
                return Err(ExchangeCause::Closed { awaited, received: 0 });
            }
            rest = rest.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    /// Receives the next message. A refusal in its place is an error.
    pub(crate) fn receive(&mut self, awaited: Awaited, deadline: Deadline) -> Result<Message, ExchangeCause> {
        let mut head = [0; HEAD];
        self.fill(&mut head, 0, awaited, deadline)?;
        let Head { kind, body: length } = Head::decode(head).map_err(|error| match error {
            HeadError::Mark(found) => ExchangeCause::OtherProtocol { found },
            HeadError::Version(theirs) => ExchangeCause::OtherVersion { theirs },
            HeadError::TooLong(found) => ExchangeCause::too_long(found),
        })?;
        let mut body = vec![0; length];
        self.fill(&mut body, HEAD, awaited, deadline)?;
        if kind == Kind::Refusal {
            body.truncate(MAX_REFUSAL);
            return Err(ExchangeCause::Refused { reason: String::from_utf8_lossy(&body).into_owned() });
        }
        Ok(Message { kind, body })
    }

    /// Reads until `to` is full. `before` counts the bytes of the message that arrived earlier.
    fn fill(
        &mut self,
        to: &mut [u8],
        before: usize,
        awaited: Awaited,
        deadline: Deadline,
    ) -> Result<(), ExchangeCause> {
        let mut filled = 0;
        while let Some(rest) = to.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let received = before + filled;
            let read = wait(deadline, awaited, received, |left| {
                self.0.set_read_timeout(Some(left))?;
                self.0.read(rest)
            })?;
            if read == 0 {
                return Err(ExchangeCause::Closed { awaited, received });
            }
            filled += read;
        }
        Ok(())
    }

    /// Tells the peer why we hang up. Best effort: the peer may be gone already.
    pub(crate) fn refuse(&mut self, reason: &str, deadline: Deadline) {
        let reason = reason.as_bytes();
        let reason = reason.get(..MAX_REFUSAL).unwrap_or(reason);
        // A peer that does not read the reason has hung up, or simply does not learn it.
        if self.send(Kind::Refusal, reason, deadline).is_ok() && self.0.shutdown(Shutdown::Write).is_ok() {
            self.drain();
        }
    }

    /// Discards what the peer still sends. The kernel resets a connection that is closed with unread data, and the
    /// reset may overtake the refusal.
    fn drain(&mut self) {
        let (deadline, mut waste, mut drained) = (Deadline::after(FAREWELL), [0; 4096], 0);
        while drained < MAX_BODY {
            let read = wait(deadline, Awaited::Room, drained, |left| {
                self.0.set_read_timeout(Some(left))?;
                self.0.read(&mut waste)
            });
            match read {
                Ok(bytes @ 1..) => drained += bytes,
                _ => return,
            }
        }
    }
}

/// Retries an operation until it succeeds, fails, or the deadline passes.
fn wait(
    deadline: Deadline,
    awaited: Awaited,
    received: usize,
    mut operation: impl FnMut(Duration) -> io::Result<usize>,
) -> Result<usize, ExchangeCause> {
    loop {
        let Some(left) = deadline.left() else {
            return Err(ExchangeCause::TimedOut { awaited, limit: deadline.limit, received });
        };
        match operation(left) {
            Ok(bytes) => return Ok(bytes),
            Err(error) if is_early(&error) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return Err(ExchangeCause::Closed { awaited, received });
            }
            Err(error) => return Err(ExchangeCause::Connection { awaited, error }),
        }
    }
}

/// Whether an operation returned without doing anything. The caller's loop checks the deadline and retries.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

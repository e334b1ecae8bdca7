//! A TCP connection whose every wait has a deadline, and messages on it.

use crate::error::{Awaited, ExchangeCause};
use crate::message::{HEAD, Head, HeadError, Kind, MAX_BODY, MAX_REFUSAL};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// How long a peer that was refused has to hang up.
const FAREWELL: Duration = Duration::from_millis(200);

/// The end of a wait, and how long it was to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    begin: Instant,
    pub(crate) limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self { begin: Instant::now(), limit }
    }

    /// What is left, if anything is.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.limit.checked_sub(self.begin.elapsed()).filter(|left| !left.is_zero())
    }
}

/// A message as it came: introductions and refusals have a body.
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

    /// The next message. What the peer says instead of it, if it refuses, is an error.
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

    /// Reads until `to` is full; `before` bytes of the message came earlier.
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

    /// Tells the peer why we hang up. It may have gone already, so nothing depends on it.
    pub(crate) fn refuse(&mut self, reason: &str, deadline: Deadline) {
        let reason = reason.as_bytes();
        let reason = reason.get(..MAX_REFUSAL).unwrap_or(reason);
        // A peer that does not take it has hung up, or gets no reason for our hanging up.
        if self.send(Kind::Refusal, reason, deadline).is_ok() && self.0.shutdown(Shutdown::Write).is_ok() {
            self.drain();
        }
    }

    /// Throws away what the peer still sends. A connection that is closed before all of it is read is reset, and a reset may overtake the
    /// refusal.
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

/// Tries an operation until it is done, fails, or the deadline passes.
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

/// Whether an operation came back with nothing done: the loop looks at the deadline and tries again.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

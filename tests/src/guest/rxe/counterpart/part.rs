//! Our part of one case: its connection, its buffer and its deadline.

use super::super::super::interrupt;
use super::super::cases::{Case, Wire};
use super::super::our_side::{Connection, FailedWork, Span};
use anyhow::{Context, Result, bail};
use bareverbs_perftest::line::Listener;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Where to meet the program in the guest.
#[derive(Debug, Clone, Copy)]
pub enum Meeting<'a> {
    /// It listens here.
    Connect(SocketAddr),
    /// It will connect here.
    Accept(&'a Listener),
}

/// How long a program may take to begin the conversation, and the traffic of a case to end.
pub(super) const LIMIT: Duration = Duration::from_secs(40);
/// Token of the first receive. Tokens of sends count from 0.
pub(super) const RECEIVES: u64 = 1 << 16;

/// Work that did not complete in time, although nothing failed before.
#[derive(Debug)]
pub struct NoCompletion(pub Vec<u64>);

impl core::fmt::Display for NoCompletion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "no completion of {:?}", self.0)
    }
}

impl core::error::Error for NoCompletion {}

/// One run. The buffer has two halves: peers access the first; we send from the second and read into it.
pub(super) struct Part<'a> {
    pub(super) connection: Connection,
    pub(super) case: &'a Case,
    pub(super) half: usize,
    pub(super) deadline: Instant,
}

impl Part<'_> {
    pub(super) fn size(&self) -> usize {
        self.case.size as usize
    }

    /// A message at `offset` of the first half.
    pub(super) fn near(&self, offset: usize) -> Span {
        Span { offset, length: self.size() }
    }

    /// A message at `offset` of the second half.
    pub(super) fn far(&self, offset: usize) -> Span {
        Span { offset: self.half + offset, length: self.size() }
    }

    /// Waits until each of these has completed. Any other completion is an error.
    pub(super) fn wait_for(&mut self, tokens: &[u64]) -> Result<()> {
        self.wait(tokens, None)
    }

    /// Like [`Self::wait_for`], where `last` is our last message. The program ends as soon as it has that
    /// message, and then nobody repeats an acknowledgement that the wire lost. On such a wire, a last message
    /// without an acknowledgement is therefore no fault; the program's exit status says whether it has the
    /// message.
    pub(super) fn wait_for_last(&mut self, tokens: &[u64], last: u64) -> Result<()> {
        self.wait(tokens, (self.case.wire == Wire::Faulty).then_some(last))
    }

    fn wait(&mut self, tokens: &[u64], last: Option<u64>) -> Result<()> {
        let mut waiting = tokens.to_vec();
        let is_end = |waiting: &[u64], error: &anyhow::Error| {
            let failed = error.downcast_ref::<FailedWork>();
            last.is_some_and(|last| {
                waiting == [last] && failed.is_some_and(|failed| failed.is_unacknowledged(last))
            })
        };
        while !waiting.is_empty() {
            interrupt::check()?;
            loop {
                let completion = match self.connection.poll() {
                    Ok(Some(completion)) => completion,
                    Ok(None) => break,
                    Err(error) if is_end(&waiting, &error) => return Ok(()),
                    Err(error) => return Err(error),
                };
                let position = waiting.iter().position(|token| *token == completion.token);
                let position =
                    position.with_context(|| format!("{completion:?} while waiting for {waiting:?}"))?;
                waiting.remove(position);
                if completion.received.is_some_and(|length| length != self.case.size) {
                    bail!("{completion:?} instead of {} bytes", self.size());
                }
            }
            if Instant::now() > self.deadline {
                return Err(NoCompletion(waiting).into());
            }
            self.connection.step()?;
        }
        Ok(())
    }
}

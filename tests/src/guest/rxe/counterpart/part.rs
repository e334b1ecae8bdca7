//! Our part of one case: its connection, its buffer and its deadline.

use super::super::super::interrupt;
use super::super::cases::Case;
use super::super::our_side::{Connection, Span};
use anyhow::{Context, Result, bail};
use bareverbs_perftest::line::Listener;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Where the program in the guest is to be met.
#[derive(Debug, Clone, Copy)]
pub enum Meeting<'a> {
    /// It listens here.
    Connect(SocketAddr),
    /// It will come here.
    Accept(&'a Listener),
}

/// How long a program may take to begin the conversation, and the traffic of a case to end.
pub(super) const LIMIT: Duration = Duration::from_secs(40);
/// Token of the first receive; sends count from 0.
pub(super) const RECEIVES: u64 = 1 << 16;

/// Work that did not complete in time; nothing else was wrong until then.
#[derive(Debug)]
pub struct NoCompletion(pub Vec<u64>);

impl core::fmt::Display for NoCompletion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "no completion of {:?}", self.0)
    }
}

impl core::error::Error for NoCompletion {}

/// One run. The buffer has two halves: the first is what peers reach, the second what we send from and read into.
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

    /// Waits until each of these has completed. Everything else that completes is an error.
    pub(super) fn wait_for(&mut self, tokens: &[u64]) -> Result<()> {
        let mut waiting = tokens.to_vec();
        while !waiting.is_empty() {
            interrupt::check()?;
            while let Some(completion) = self.connection.poll()? {
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

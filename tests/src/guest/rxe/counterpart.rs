//! Our end of each program: the same conversation over TCP, the same traffic, and every byte compared that can be seen.

mod datagrams;
mod perftest;
mod pingpong;

use super::super::exchange::line::Listener;
use super::super::exchange::perftest::CYCLE_BUFFER;
use super::super::interrupt;
use super::cases::{Case, Program, Wire};
use super::our_side::{Connection, Nic, Span};
use anyhow::{Context, Result, bail};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Where the program in the guest is to be met.
#[derive(Debug, Clone, Copy)]
pub enum Meeting<'a> {
    /// It listens here.
    Connect(SocketAddrV4),
    /// It will come here.
    Accept(&'a Listener),
}

/// How long a program may take to begin the conversation, and the traffic of a case to end.
const LIMIT: Duration = Duration::from_secs(40);
/// Token of the first receive; sends count from 0.
const RECEIVES: u64 = 1 << 16;

/// Work that did not complete in time; nothing else was wrong until then.
#[derive(Debug)]
pub struct NoCompletion(pub Vec<u64>);

impl core::fmt::Display for NoCompletion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "no completion of {:?}", self.0)
    }
}

impl core::error::Error for NoCompletion {}

/// What was compared, and the connection, which has to answer until the program in the guest has ended.
#[derive(Debug)]
pub struct Played {
    /// Our queue pair.
    pub connection: Connection,
    /// What was seen.
    pub seen: Result<String>,
}

/// Plays our part of a case.
pub fn play(nic: &Nic, case: &Case, meeting: Meeting<'_>) -> Result<Played> {
    let half = datagrams::room(case).max(CYCLE_BUFFER as usize);
    let connection = nic.connection(case.program.service(), 2 * half, case.family)?;
    let mut part = Part { connection, case, half, deadline: Instant::now() + LIMIT };
    let seen = match case.program {
        program if program.is_pingpong() => part.pingpong(meeting),
        Program::WriteBandwidth | Program::UcWriteBandwidth => part.write_bandwidth(meeting),
        Program::WriteImmediate => part.write_immediate(meeting),
        Program::UcSendLatency | Program::UdSendLatency => part.send_latency(meeting),
        Program::UcWriteLatency => part.write_latency(meeting),
        Program::UdSendBandwidth if case.wire == Wire::Faulty => part.faulty_datagrams(meeting),
        Program::SendBandwidth | Program::UcSendBandwidth | Program::UdSendBandwidth => {
            part.send_bandwidth(meeting)
        }
        Program::ReadLatency => part.read_latency(meeting),
        Program::ReadBandwidth => part.read_bandwidth(meeting),
        _ => part.atomic_latency(meeting),
    };
    let seen = seen.map_err(|error| error.context(part.connection.counters()));
    Ok(Played { connection: part.connection, seen })
}

/// One run. The buffer has two halves: the first is what peers reach, the second what we send from and read into.
struct Part<'a> {
    connection: Connection,
    case: &'a Case,
    half: usize,
    deadline: Instant,
}

impl Part<'_> {
    fn size(&self) -> usize {
        self.case.size as usize
    }

    /// A message at `offset` of the first half.
    fn near(&self, offset: usize) -> Span {
        Span { offset, length: self.size() }
    }

    /// A message at `offset` of the second half.
    fn far(&self, offset: usize) -> Span {
        Span { offset: self.half + offset, length: self.size() }
    }

    /// Waits until each of these has completed. Everything else that completes is an error.
    fn wait_for(&mut self, tokens: &[u64]) -> Result<()> {
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

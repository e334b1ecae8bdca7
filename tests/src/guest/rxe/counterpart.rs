//! Our end of each program: the same conversation over TCP, the same traffic, and a comparison of every byte
//! that can be seen.

mod datagrams;
mod part;
mod perftest;
mod pingpong;

pub use part::{Meeting, NoCompletion};

use super::cases::{Case, Program, Wire};
use super::our_side::{Connection, Nic};
use anyhow::Result;
use bareverbs_perftest::exchange::CYCLE_BUFFER;
use part::{LIMIT, Part};
use std::time::Instant;

/// The result of the comparison, and the connection, which has to answer until the program in the guest has
/// ended.
#[derive(Debug)]
pub struct Played {
    /// Our queue pair.
    pub connection: Connection,
    /// What was compared.
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

//! What a monitor costs the data path. valgrind counts the instructions of work requests and completions twice: while a monitor reads the
//! counters after every chunk, and without a monitor. `rig` describes the workload. Exit status 1 if the counts differ by a single instruction.
//!
//! ```text
//! cargo run --profile bench -p bareverbs-core --example monitor_cost
//! ```
//!
//! `monitor_cost ROW CHUNKS alone|watched` is what callgrind runs. A sample is what `bareverbs monitor` takes of an Ethernet port, and a
//! counter set: commands to the firmware, whose answers the fake device makes.

#[path = "../../tests/benches/rig/mod.rs"]
mod rig;

use bareverbs_core::CounterSet;
use bareverbs_prm::numbering::CommandOpcode;
use rig::support::Misbehaviour;
use rig::support::objects::{Handle, Rig};
use rig::{Bench, CHUNK, Row};
use std::process::{Command, ExitCode};

/// Number of chunks of a run, and of samples if it is monitored.
const CHUNKS: u64 = 200;
/// Priorities of an Ethernet port, each with counters of its own.
const PRIORITIES: u8 = 8;
/// Counters that the fake firmware returns every time. None that the monitor reads is zero.
const ANSWER: [u8; 4] = [0, 0, 1, 7];
/// One row for each function of the data path that an application calls, with the function that callgrind counts.
const ROWS: [(Row, &str, &str); 6] = [
    (Row::Write8, "post_send write 8 B inline x1", "timed_send"),
    (Row::Write4KBatch, "post_send write 4 KiB x32", "timed_batch_of_sends"),
    (Row::Receive, "post_receive x1", "timed_receive"),
    (Row::Poll, "poll requester x1", "timed_poll"),
    (Row::PollReceiveBatch, "poll responder x32", "timed_batch_of_polls"),
    (Row::SharedReceive, "SRQ receive, post x1", "timed_shared_receive"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [row, chunks, kind @ ("alone" | "watched")] => run(row, chunks, *kind == "watched"),
        [] => measure(),
        _ => ExitCode::FAILURE,
    }
}

/// What callgrind runs.
fn run(row: &str, chunks: &str, is_watched: bool) -> ExitCode {
    let found = ROWS.iter().find(|(candidate, ..)| format!("{candidate:?}") == row);
    let (Some(&(row, ..)), Ok(chunks)) = (found, chunks.parse::<u64>()) else { return ExitCode::FAILURE };
    let mut bench = Bench::new();
    let set = is_watched.then(|| counter_set(&bench.rig));
    for _ in 0..chunks {
        bench.prepare(row);
        bench.run(row, |work| work());
        bench.retire(row);
        set.iter().for_each(|set| sample(&bench.rig, set));
    }
    ExitCode::SUCCESS
}

/// The firmware answers the next command of this opcode with counters.
fn expect(rig: &Rig, opcode: CommandOpcode) {
    rig.hal.firmware().misbehave(opcode, Misbehaviour::Garbage(ANSWER.to_vec()));
}

fn counter_set(rig: &Rig) -> CounterSet<Handle> {
    expect(rig, CommandOpcode::AllocQCounter);
    CounterSet::create(rig.device.clone()).expect("a counter set")
}

/// A sample of `bareverbs monitor`.
fn sample(rig: &Rig, set: &CounterSet<Handle>) {
    expect(rig, CommandOpcode::AccessReg);
    let port = rig.device.ethernet_counters(false).expect("the counters of the port");
    let mut seen = port.a_frames_received_ok;
    for priority in 0..PRIORITIES {
        expect(rig, CommandOpcode::AccessReg);
        seen &= rig.device.priority_counters(priority, false).expect("those of a priority").rx_frames;
    }
    expect(rig, CommandOpcode::QueryCongStatistics);
    seen &= rig.device.congestion_counters(false).expect("those of congestion").np_cnp_sent;
    expect(rig, CommandOpcode::QueryQCounter);
    seen &= u64::from(set.read().expect("those of the set").out_of_sequence);
    assert_ne!(seen, 0, "every counter was read");
}

fn measure() -> ExitCode {
    let mut differ = false;
    for (row, name, function) in ROWS {
        let (Some(alone), Some(watched)) = (count(row, function, "alone"), count(row, function, "watched"))
        else {
            println!("SKIPPED: valgrind with callgrind is not installed or failed");
            return ExitCode::FAILURE;
        };
        let each = |count: i64| count as f64 / (CHUNKS * CHUNK as u64) as f64;
        println!("{name}: {:.4}", each(watched - alone));
        eprintln!("{name}: {alone} instructions alone, {watched} beside {CHUNKS} samples");
        differ |= alone != watched;
    }
    if differ { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Instructions inside the measured function of `row`.
fn count(row: Row, function: &str, kind: &str) -> Option<i64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect=*{function}"))
        .arg(std::env::current_exe().ok()?)
        .args([format!("{row:?}"), CHUNKS.to_string(), kind.to_owned()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    output.status.success().then(|| line.rsplit(' ').next()?.parse().ok())?
}

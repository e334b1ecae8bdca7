//! Instructions a work request and a completion, counted by valgrind. The workload is described in `rig`.
//!
//! Run without arguments it starts itself under callgrind, twice a row with different numbers of chunks, and divides the
//! difference: what is not in the loop cancels out. `data_path_instructions ROW CHUNKS` is what callgrind runs.
//!
//! ```text
//! cargo run --profile bench -p bareverbs-core --example data_path_instructions
//! ```

#[path = "../../tests/benches/rig/mod.rs"]
mod rig;

use rig::{Bench, CHUNK, Row};
use std::process::{Command, ExitCode};

/// Numbers of chunks of the two runs.
const FEW: u64 = 64;
const MANY: u64 = 320;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.as_slice() {
        [_, row, chunks] => run(row, chunks),
        _ => measure(),
    }
}

/// What callgrind runs.
fn run(row: &str, chunks: &str) -> ExitCode {
    let found = Row::ALL.iter().find(|(candidate, ..)| format!("{candidate:?}") == row);
    let (Some(&(row, ..)), Ok(chunks)) = (found, chunks.parse::<u64>()) else { return ExitCode::FAILURE };
    let mut bench = Bench::new();
    for _ in 0..chunks {
        bench.prepare(row);
        bench.run(row, |work| work());
        bench.retire(row);
    }
    ExitCode::SUCCESS
}

fn measure() -> ExitCode {
    println!("{:<34} {:>8} {:>8} {:>7}", "row", "libmlx5", "here", "ratio");
    for (row, name, peer) in Row::ALL {
        let (few, many) = (count(row, FEW), count(row, MANY));
        let (Some(few), Some(many)) = (few, many) else {
            println!("SKIPPED: valgrind with callgrind is not installed or failed");
            return ExitCode::FAILURE;
        };
        let each = (many - few) as f64 / ((MANY - FEW) * CHUNK as u64) as f64;
        match peer {
            Some(peer) => println!("{name:<34} {peer:>8} {each:>8.1} {:>7.2}", each / f64::from(peer)),
            None => println!("{name:<34} {:>8} {each:>8.1} {:>7}", "-", "-"),
        }
    }
    ExitCode::SUCCESS
}

/// Instructions inside the measured function of `row`.
fn count(row: Row, chunks: u64) -> Option<u64> {
    let itself = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect=*{}", function(row)))
        .arg(itself)
        .args([format!("{row:?}"), chunks.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn function(row: Row) -> &'static str {
    match row {
        Row::Write8 | Row::Write4K | Row::Send64 | Row::Read4K | Row::FetchAdd => "timed_send",
        Row::Write8Batch | Row::Write4KBatch | Row::Send64Batch | Row::Read4KBatch | Row::FetchAddBatch => {
            "timed_batch_of_sends"
        }
        Row::MakeWrite8 => "timed_making_of_writes",
        Row::MakeSend64 => "timed_making_of_sends",
        Row::Receive => "timed_receive",
        Row::ReceiveBatch => "timed_batch_of_receives",
        Row::Poll | Row::PollTurns | Row::PollReceive | Row::SharedPoll => "timed_poll",
        Row::PollBatch
        | Row::PollTurnsBatch
        | Row::PollReceiveBatch
        | Row::PollCompressed
        | Row::SharedPollBatch => "timed_batch_of_polls",
        Row::SharedReceive => "timed_shared_receive",
        Row::SharedReceiveBatch => "timed_batch_of_shared_receives",
        Row::PollEmpty => "timed_empty_poll",
    }
}

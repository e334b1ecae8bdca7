//! What a lookup, a program and a step of a kernel cost one core, without a device and without memory latency.
//!
//! ```text
//! cargo run --release -p bareverbs-offload-native --example kernel_speed             nanoseconds, the fastest of 3,000 rounds
//! cargo run --profile bench -q -p bareverbs-offload-native --example kernel_speed -- --count     instructions, by callgrind
//! ```
//! `--count` starts the example itself under callgrind, twice per row with different numbers of units, and
//! divides the difference, so that everything outside the loop cancels out. callgrind runs
//! `kernel_speed ROW TIMES`.

mod rows;
mod server;

use rows::{ROWS, Row};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Rounds of a row; the fastest one was disturbed least.
const ROUNDS: u32 = 3_000;
/// Calls in the shorter of the two runs that are counted.
const FEW: u32 = 20;
const MANY: u32 = 120;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => time_all(),
        [count] if count == "--count" => return count_all(),
        [row, times] => {
            let found = ROWS.iter().find(|candidate| candidate.name == row);
            let (Some(row), Ok(times)) = (found, times.parse()) else { return ExitCode::FAILURE };
            let mut call = (row.make)();
            (0..times).for_each(|_: u32| call());
        }
        _ => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn timed(mut run: impl FnMut()) -> Duration {
    let begin = Instant::now();
    run();
    begin.elapsed()
}

fn time_all() {
    println!("{:<36} {:>9} {:>8}", "row", "ns", "goal");
    for Row { name, units, goal, make } in ROWS {
        let mut call = make();
        // Short enough to fit between two context switches, and long against the two looks at the clock.
        let calls = 1024_u32.div_ceil(*units);
        let best = (0..ROUNDS).map(|_| timed(|| (0..calls).for_each(|_| call()))).min().unwrap_or_default();
        let each = best.as_nanos() as f64 / f64::from(calls * units);
        println!("{name:<36} {each:>9.2} {goal:>8}");
    }
}

fn count_all() -> ExitCode {
    for Row { name, units, .. } in ROWS {
        let (Some(few), Some(many)) = (count(name, FEW), count(name, MANY)) else {
            println!("SKIPPED: valgrind with callgrind is not installed or failed");
            return ExitCode::FAILURE;
        };
        println!("{name}: {:.2}", (many - few) as f64 / f64::from((MANY - FEW) * units));
    }
    ExitCode::SUCCESS
}

/// Instructions of a run.
fn count(row: &str, times: u32) -> Option<u64> {
    let mut callgrind = Command::new("valgrind");
    callgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    let output =
        callgrind.arg(std::env::current_exe().ok()?).args([row, &times.to_string()]).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = said.lines().find(|line| line.contains("Collected"))?;
    line.split_whitespace().last()?.parse().ok()
}

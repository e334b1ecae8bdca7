//! Speed of the simulator on this machine: one thread, two drivers, two NICs, the wire, ICRC on.
//!
//! `cargo run --release -p bareverbs-hal-sim --example throughput [seconds [small|large]]`
//!
//! First 64-byte RDMA WRITEs, in batches of 32 with one doorbell, the last one signalled, 512 in flight. Every message
//! has its own bytes, and the receiver compares all of them before a slot is reused. Then RDMA WRITEs of 1 MiB, also
//! compared in full; the figure is given with and without the time for comparing.
//!
//! Time is processor time of this process (`/proc/self/schedstat`), so other work on the machine does not count. Where
//! that file is missing, it is wall-clock time.
//!
//! `… --example throughput -- --only small|large MESSAGES` sends and verifies that many messages and does nothing else. Run it
//! twice under `valgrind --tool=callgrind`: the difference is what the messages cost in instructions.

#[path = "../tests/integration/support/mod.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod support;

use bareverbs_core::hal::Hal;
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::WorkRequest;
use bareverbs_prm::time::Time;
use std::time::{Duration, Instant};
use support::{Pair, PairConfig, wait};

const MESSAGE: usize = 64;
const BATCH: u64 = 32;
const WINDOW: u64 = 512;

const LARGE: usize = 1 << 20;
const LARGE_WINDOW: u64 = 2;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["--only", "small", messages] => _ = burst(&mut small_pair(), 0, number(messages)),
        ["--only", "large", messages] => {
            let mut large = Large::new();
            large.run(|posted| posted < number(messages));
        }
        [] => measure(3.0, &["small", "large"]),
        [seconds] => measure(number(seconds), &["small", "large"]),
        [seconds, what, ..] => measure(number(seconds), &[what]),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}

fn measure(seconds: f64, rows: &[&str]) {
    let budget = Duration::from_secs_f64(seconds);
    if rows.contains(&"small") {
        small(budget);
    }
    if rows.contains(&"large") {
        large(budget);
    }
}

/// Processor time of this process: it stands still while other processes run.
struct Clock(Instant);

impl Clock {
    fn elapsed(&self) -> Duration {
        let own = std::fs::read_to_string("/proc/self/schedstat").ok();
        let nanos = own.and_then(|text| text.split_whitespace().next()?.parse().ok());
        nanos.map_or_else(|| self.0.elapsed(), Duration::from_nanos)
    }
}

/// The bytes of message `number`.
fn message(number: u64) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        let word = (number.wrapping_mul(8) + index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn slot(number: u64) -> usize {
    (number % WINDOW) as usize * MESSAGE
}

fn small_pair() -> Pair {
    Pair::new(PairConfig { sends: WINDOW as u32, strict: false, ..PairConfig::default() })
}

fn small(budget: Duration) {
    let mut pair = small_pair();
    let clock = Clock(Instant::now());
    let (wall, start, virtual_start) = (Instant::now(), clock.elapsed(), pair.world.now());
    let mut verified = 0;
    while wall.elapsed() < budget {
        verified = burst(&mut pair, verified, verified + 64 * WINDOW);
    }
    let elapsed = (clock.elapsed() - start).as_secs_f64();
    println!(
        "{MESSAGE} B WRITE: {verified} verified, {:.3} million/s, {:.0} ns each; {} of simulated time",
        verified as f64 / elapsed / 1e6,
        elapsed * 1e9 / verified as f64,
        pair.world.now() - virtual_start,
    );
}

/// Posts and verifies messages `first..end`, with [`WINDOW`] of them in flight.
fn burst(pair: &mut Pair, first: u64, end: u64) -> u64 {
    let mut completions = [WorkCompletion::EMPTY; 16];
    let (mut posted, mut verified) = (first, first);
    while verified < end {
        while posted < end && posted + BATCH <= verified + WINDOW {
            post_batch(pair, posted);
            posted += BATCH;
        }
        let count = pair.a.cq.poll(&mut completions).expect("a completion");
        for completion in &completions[..count] {
            assert!(completion.is_success(), "{}", completion.status);
            verify(pair, verified, completion.wr_id);
            verified = completion.wr_id + 1;
        }
        if count == 0 {
            pair.a.device.hal().relax(Time::MAX);
        }
    }
    verified
}

fn post_batch(pair: &mut Pair, first: u64) {
    for number in first..first + BATCH {
        pair.a.region.copy_in(slot(number), &message(number)).expect("inside the region");
    }
    let mut batch = pair.a.qp.send_batch();
    for number in first..first + BATCH {
        let from = [pair.a.region.slice(slot(number), MESSAGE).expect("inside the region")];
        let request = WorkRequest::write(number, &from, pair.b.region.remote(slot(number) as u64));
        batch.post(&request.signalled(number == first + BATCH - 1)).expect("room in the queue");
    }
    batch.ring();
}

fn verify(pair: &Pair, first: u64, last: u64) {
    let mut bytes = [0; MESSAGE];
    for number in first..=last {
        pair.b.region.copy_out(slot(number), &mut bytes).expect("inside the region");
        assert!(bytes == message(number), "message {number} is not what was sent");
    }
}

fn large(budget: Duration) {
    let mut large = Large::new();
    let clock = Clock(Instant::now());
    let (wall, start, virtual_start) = (Instant::now(), clock.elapsed(), large.pair.world.now());
    large.run(|_| wall.elapsed() < budget);
    let elapsed = clock.elapsed() - start;
    let rate = |time: Duration| (large.verified as usize * LARGE) as f64 / time.as_secs_f64() / 1e9;
    println!(
        "1 MiB WRITE: {} verified, {:.2} GB/s, {:.2} GB/s without comparing; {} of simulated time",
        large.verified,
        rate(elapsed),
        rate(elapsed - large.comparing),
        large.pair.world.now() - virtual_start,
    );
}

/// Messages of 1 MiB, with [`LARGE_WINDOW`] of them in flight.
struct Large {
    pair: Pair,
    noise: Vec<u8>,
    found: Vec<u8>,
    posted: u64,
    verified: u64,
    /// Time spent comparing.
    comparing: Duration,
}

impl Large {
    fn new() -> Self {
        let region = LARGE * LARGE_WINDOW as usize;
        let pair = Pair::new(PairConfig { region, strict: false, ..PairConfig::default() });
        let noise: Vec<u8> = (0..region / MESSAGE).flat_map(|number| message(number as u64)).collect();
        pair.a.region.copy_in(0, &noise).expect("inside the region");
        Self { pair, noise, found: vec![0; LARGE], posted: 0, verified: 0, comparing: Duration::ZERO }
    }

    /// Posts and verifies messages while `wanted` accepts the number of the next one.
    fn run(&mut self, wanted: impl Fn(u64) -> bool) {
        let clock = Clock(Instant::now());
        while self.verified < self.posted || wanted(self.posted) {
            while self.posted < self.verified + LARGE_WINDOW && wanted(self.posted) {
                self.post();
            }
            let completion = wait(&self.pair.world, &mut self.pair.a);
            assert!(completion.is_success(), "{}", completion.status);
            let before = clock.elapsed();
            self.verify(completion.wr_id);
            self.comparing += clock.elapsed() - before;
        }
    }

    /// The first 8 bytes of each message are its number, so that a stale message cannot pass for a new one.
    fn post(&mut self) {
        let (pair, number) = (&mut self.pair, self.posted);
        let offset = (number % LARGE_WINDOW) as usize * LARGE;
        pair.a.region.copy_in(offset, &number.to_le_bytes()).expect("inside the region");
        let from = [pair.a.region.slice(offset, LARGE).expect("inside the region")];
        let request = WorkRequest::write(number, &from, pair.b.region.remote(offset as u64));
        pair.a.qp.post_send(&request).expect("room in the queue");
        self.posted += 1;
    }

    fn verify(&mut self, number: u64) {
        let offset = (number % LARGE_WINDOW) as usize * LARGE;
        self.pair.b.region.copy_out(offset, &mut self.found).expect("inside the region");
        assert_eq!(self.found[..8], number.to_le_bytes(), "an old message");
        let expected = &self.noise[offset + 8..offset + LARGE];
        assert!(self.found[8..] == *expected, "message {number} is not what was sent");
        self.verified += 1;
    }
}

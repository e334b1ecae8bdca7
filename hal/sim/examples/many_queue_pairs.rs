//! The cost of one operation on a NIC with many queue pairs: two drivers, two NICs, the wire, one thread.
//!
//! `cargo run --release -p bareverbs-hal-sim --example many_queue_pairs [COUNT…]` measures with COUNT connected queue
//! pairs (by default 1, 1,000 and 100,000). An operation is one signalled 64-byte RDMA WRITE with its own doorbell,
//! from posting to the polled completion. Operations visit the queue pairs in turn: either all of them, or sixteen that
//! are spread widely while the others stay idle. One operation is in flight at a time, so the frames are the same for
//! any number of queue pairs. Rounds for the different counts alternate. The output has the medians, the resident
//! memory per queue pair, and what a load costs that has to wait for memory.
//!
//! `… --example many_queue_pairs -- --only COUNT OPERATIONS` creates COUNT queue pairs, does OPERATIONS operations and
//! nothing else. Run it twice under `valgrind --tool=cachegrind --cache-sim=no`: the difference is the instruction
//! count of the operations.

use bareverbs_core::completion_queue::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::gid::GidEntry;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder};
use bareverbs_core::work_request::WorkRequest;
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{Nic, NicConfig};
use bareverbs_sim::run::{NodeId, Preset};
use std::rc::Rc;
use std::time::{Duration, Instant};

const MESSAGE: usize = 64;
/// Operations per round: enough to hide a clock that advances in ticks.
const ROUND: usize = 200_000;
const ROUNDS: usize = 15;
/// Connections to destroy and create again.
const RENEWALS: usize = 500;
/// Queue pairs in use in the mostly idle case.
const BUSY: usize = 16;
/// Most words of posted work that a send queue of this program needs.
const LEDGER_WORDS: u32 = 64;

type Handle = Rc<Device<SimHal>>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments.iter().filter_map(|text| text.parse().ok()).collect();
    match (arguments.first().map(String::as_str), numbers.as_slice()) {
        (Some("--only"), &[count, operations]) => Bench::new(count).run(operations),
        (_, []) => compare(&[1, 1_000, 100_000]),
        (_, counts) => compare(counts),
    }
    // Exit without destroying 200,000 queue pairs by commands: that is not what we measure.
    std::process::exit(0);
}

/// Measures each count in turn and prints one line per count.
fn compare(counts: &[usize]) {
    let mut benches: Vec<Bench> = counts.iter().map(|&count| Bench::measured(count)).collect();
    for busy in [BUSY, usize::MAX] {
        let mut times = vec![Vec::new(); counts.len()];
        for _ in 0..ROUNDS {
            for (bench, times) in benches.iter_mut().zip(&mut times) {
                times.push(bench.round(busy));
            }
        }
        print(&benches, busy, times);
    }
    println!("a load from memory in no cache, after the load that gave its address: {:.0} ns", latency());
    for bench in &mut benches {
        let count = bench.count();
        println!(
            "{count:>7} queue pairs: {:.1} us to destroy a connection and make another one",
            bench.renewal()
        );
    }
}

/// Prints one line per count, for `busy` queue pairs in use.
fn print(benches: &[Bench], busy: usize, times: Vec<Vec<f64>>) {
    let medians: Vec<f64> = times.into_iter().map(median).collect();
    for (bench, &nanos) in benches.iter().zip(&medians) {
        let (frames, accesses) = bench.work_of_one();
        println!(
            "{:>7} queue pairs, {:>6} in turn: {nanos:.0} ns each, {:.2} of the first; {frames:.2} frames, {accesses:.2} accesses \
             to memory",
            bench.count(),
            bench.count().min(busy),
            nanos / medians[0]
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Cache lines that a measurement of latency visits: 256 MiB of them.
const LINES: usize = 1 << 22;

/// Nanoseconds of a load that cannot begin before the load that gives its address has ended, from lines that are in no
/// cache. An operation on a queue pair that was idle for long has to wait for several of these, one after the other.
fn latency() -> f64 {
    // Each line holds the number of the next one. Sattolo's shuffle makes one cycle of all.
    let mut lines: Vec<[usize; 8]> = (0..LINES).map(|line| [line; 8]).collect();
    let mut random = 1_u64;
    for last in (1..LINES).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        lines.swap(last, (random >> 33) as usize % last);
    }
    let clock = Clock(Instant::now());
    let start = clock.elapsed();
    let last = (0..LINES).fold(0, |line, _| lines[line][0]);
    assert_eq!(last, 0, "the cycle ends where it began");
    (clock.elapsed() - start).as_nanos() as f64 / LINES as f64
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

/// Resident bytes of this process; 0 if the system does not report them.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|text| text.split_whitespace().nth(1)?.parse().ok()).map_or(0, |pages: u64| pages * 4096)
}

/// One host, without its queue pairs.
struct Host {
    cq: CompletionQueue<Handle>,
    region: MemoryRegion<Handle>,
    domain: ProtectionDomain<Handle>,
    device: Handle,
}

impl Host {
    fn open(world: &SimWorld, node: NodeId, number: u8, count: u32) -> Self {
        let config = DeviceConfig {
            queue_pairs: count,
            ledger_words: LEDGER_WORDS.saturating_mul(count),
            ..DeviceConfig::default()
        };
        let device = Rc::new(Device::open(world.hal(node), config).expect("a device"));
        let (gid, mac) = address(number);
        device.set_gid(0, GidEntry::roce_v2(gid, mac)).expect("an address");
        let domain = ProtectionDomain::allocate(device.clone()).expect("a domain");
        let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let region = MemoryRegion::allocate(&domain, 4096, rights).expect("a region");
        let cq = CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 64 });
        Self { cq: cq.expect("a completion queue"), region, domain, device }
    }

    fn queue_pair(&self) -> PreparedQueuePair<Handle> {
        let small = QueuePairBuilder::new(&self.domain, &self.cq, &self.cq).send_queue(1).receive_queue(0);
        small.build().expect("a queue pair")
    }

    /// Bytes of host memory that the driver allocated.
    fn memory(&self) -> u64 {
        self.device.hal().memory().counters().bytes
    }
}

fn address(number: u8) -> (Gid, MacAddress) {
    (Gid::from_ipv4([10, 0, 0, number]), MacAddress([2, 0, 0, 0, 0, number]))
}

/// Two hosts and the queue pairs between them.
struct Bench {
    queue_pairs: Vec<(QueuePair<Handle>, QueuePair<Handle>)>,
    a: Host,
    b: Host,
    world: SimWorld,
    nodes: [NodeId; 2],
    next: usize,
    /// Distance between two queue pairs that are used one after the other.
    stride: usize,
    done: u64,
    /// Frames and DMA accesses before the first operation.
    before: [u64; 2],
}

impl Bench {
    fn new(count: usize) -> Self {
        let mut bench = Self::unconnected(count.try_into().expect("a number that the device can have"));
        (0..count).for_each(|_| bench.connect());
        bench.before = bench.work();
        bench
    }

    fn connect(&mut self) {
        let (a, b) = (self.a.queue_pair(), self.b.queue_pair());
        let (to_a, to_b) = (a.endpoint(0).expect("an address"), b.endpoint(0).expect("an address"));
        let a = a.connect(&to_b, ConnectOptions::default()).expect("a connection");
        self.queue_pairs.push((a, b.connect(&to_a, ConnectOptions::default()).expect("a connection")));
    }

    /// Processor time in microseconds to destroy one connection and create another.
    fn renewal(&mut self) -> f64 {
        let clock = Clock(Instant::now());
        let start = clock.elapsed();
        for round in 0..RENEWALS {
            drop(self.queue_pairs.swap_remove(round * self.count() / RENEWALS));
            self.connect();
        }
        (clock.elapsed() - start).as_nanos() as f64 / RENEWALS as f64 / 1000.0
    }

    fn unconnected(count: u32) -> Self {
        let world = SimWorld::new(1);
        let nodes = [("a", 1), ("b", 2)].map(|(name, number)| {
            let nic = Nic::new(NicConfig::new(address(number).1));
            world.add_node(name, nic, Preset::STROM_100G.node, MemoryConfig::default())
        });
        world.connect(nodes[0], nodes[1], Preset::STROM_100G.link).expect("a cable");
        let (a, b) = (Host::open(&world, nodes[0], 1, count), Host::open(&world, nodes[1], 2, count));
        Self { queue_pairs: Vec::new(), a, b, world, nodes, next: 0, stride: 1, done: 0, before: [0; 2] }
    }

    /// Like [`Self::new`], then uses every queue pair once and prints the memory they occupy.
    fn measured(count: usize) -> Self {
        let (start, before) = (Instant::now(), resident());
        let mut bench = Self::new(count);
        let connected = start.elapsed();
        bench.run(count);
        let (ends, resident) = (2 * count as u64, resident().saturating_sub(before));
        println!(
            "{count:>7} queue pairs on each NIC, connected in {:.1} s; resident for each: {} B, of which asked for by the driver \
             as memory for the device: {} B",
            connected.as_secs_f64(),
            resident / ends,
            (bench.a.memory() + bench.b.memory()) / ends,
        );
        bench
    }

    fn count(&self) -> usize {
        self.queue_pairs.len()
    }

    /// Processor time per operation in nanoseconds, cycling through at most `busy` queue pairs.
    fn round(&mut self, busy: usize) -> f64 {
        self.stride = self.count().div_ceil(busy.min(self.count()));
        if self.stride > 1 {
            // Their state has left the caches: one warm-up turn brings it back.
            self.run(self.count() / self.stride);
        }
        let clock = Clock(Instant::now());
        let start = clock.elapsed();
        self.run(ROUND);
        (clock.elapsed() - start).as_nanos() as f64 / ROUND as f64
    }

    fn run(&mut self, operations: usize) {
        for _ in 0..operations {
            self.write();
        }
    }

    /// One RDMA WRITE over the next queue pair, verified.
    fn write(&mut self) {
        self.done += 1;
        let bytes = self.done.to_le_bytes();
        self.a.region.copy_in(0, &bytes).expect("inside the region");
        let from = [self.a.region.slice(0, MESSAGE).expect("inside the region")];
        let request = WorkRequest::write(self.done, &from, self.b.region.remote(0)).signalled(true);
        self.queue_pairs[self.next].0.post_send(&request).expect("room in the queue");
        let next = self.next + self.stride;
        self.next = if next < self.queue_pairs.len() { next } else { 0 };
        let completion = loop {
            match self.a.cq.poll_one().expect("a completion") {
                Some(completion) => break completion,
                None => self.a.device.hal().relax(Time::MAX),
            }
        };
        assert!(completion.is_success() && completion.wr_id == self.done, "{}", completion.status);
        let mut found = [0; 8];
        self.b.region.copy_out(0, &mut found).expect("inside the region");
        assert_eq!(found, bytes, "the bytes of another message");
    }

    /// Frames sent by both NICs, and their DMA accesses.
    fn work(&self) -> [u64; 2] {
        let sent = |node| self.world.with(|world| world.device(node).counters().frames_sent);
        let accesses = |host: &Host| {
            let counters = host.device.hal().memory().counters();
            counters.device_reads + counters.device_writes
        };
        [self.nodes.into_iter().map(sent).sum(), accesses(&self.a) + accesses(&self.b)]
    }

    /// Frames and DMA accesses per operation.
    fn work_of_one(&self) -> (f64, f64) {
        let [frames, accesses] = self.work();
        let each = |now, before| (now - before) as f64 / self.done as f64;
        (each(frames, self.before[0]), each(accesses, self.before[1]))
    }
}

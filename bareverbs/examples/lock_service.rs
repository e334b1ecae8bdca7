//! A lock with leases on a simulated cluster: two words in a server's memory that clients change with atomics. Once the
//! server has announced the address of the words, its CPU does nothing.
//!
//! `cargo run -p bareverbs --features cluster --example lock_service`

use bareverbs::cluster::{
    Exploration, FaultKind, Handle, Host, SimCluster, Station, TaskResult, TestResult, Trial, explore,
};
use bareverbs::futures::{Buffer, QueuePair};
use bareverbs::prelude::*;
use bareverbs::prm::time::Duration;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;

/// How a client makes sure that it still holds the lock when its write arrives.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "the program runs only the fixed version, its tests run both")]
pub enum Version {
    /// Trusts its own lease: the version with the bug.
    First,
    /// Lets the protected word decide: the fixed version.
    Fixed,
}

/// A client reconnects after the server has been silent for this long.
const TIMEOUT: Duration = Duration::from_micros(800);
/// How long a client may hold the lock, in microseconds of its own clock, and the largest difference between two hosts'
/// clocks.
const LEASE: u64 = 60;
const GRACE: u64 = 5;
/// Offsets of the two words. The lock: token in the upper half, end of the lease in the lower half. The record that it
/// protects: token of the last holder in the upper half, a count in the lower half.
const LOCK: u64 = 0;
const RECORD: u64 = 8;

/// What the test checks from outside: the server's words, and how many increments the clients believe they made.
#[derive(Default)]
struct Outside {
    words: RefCell<Option<Buffer<Handle>>>,
    confirmed: Cell<u64>,
}

/// Tells every client that connects where the words are.
async fn serve(host: Host, outside: Rc<Outside>) -> TaskResult {
    let station = Rc::new(Station::open(&host, 64, 64)?);
    let words = station.pool.take().await;
    (1..host.peers()).for_each(|client| host.spawn(admit(station.clone(), client, words.remote())));
    *outside.words.borrow_mut() = Some(words);
    std::future::pending().await
}

/// Keeps the connection to one client until that client reconnects.
async fn admit(station: Rc<Station>, client: usize, words: RemoteSlice) -> TaskResult {
    let (mut calls, mut kept) = (0, None);
    loop {
        let peer = station.accept(&format!("lock/{client}"), &mut calls).await?;
        let telling = station.host.timeout(TIMEOUT, station.tell(&peer, &words.to_bytes())).await;
        // A client that missed this message calls again.
        drop((telling, kept.replace(peer)));
    }
}

/// A client's access to the server's words.
struct Words<'a> {
    station: &'a Station,
    peer: QueuePair<Handle>,
    memory: RemoteSlice,
}

impl<'a> Words<'a> {
    async fn connect(station: &'a Station) -> Result<Self, Box<dyn Error>> {
        let peer = station.dial(&format!("lock/{}", station.host.index()), TIMEOUT).await?;
        let memory = RemoteSlice::from_bytes(&station.hear(&peer, TIMEOUT).await?)?;
        Ok(Self { station, peer, memory })
    }

    /// Replaces the word at `at` by `new` if it equals `old`. Returns the previous value.
    async fn swap(&self, at: u64, old: u64, new: u64) -> Result<u64, Box<dyn Error>> {
        let buffer = self.station.pool.take().await;
        let work = self.peer.compare_swap(buffer, self.memory.part(at, 8)?, old, new);
        Ok(self
            .station
            .host
            .timeout(TIMEOUT, work)
            .await
            .ok_or("the server does not answer")??
            .buffer
            .load_u64(0)?)
    }

    async fn write(&self, at: u64, value: u64) -> TaskResult {
        let mut buffer = self.station.pool.take().await;
        buffer.fill_from(&value.to_ne_bytes())?;
        let work = self.peer.write(buffer, self.memory.part(at, 8)?);
        self.station.host.timeout(TIMEOUT, work).await.ok_or("the server does not answer")??;
        Ok(())
    }

    /// Takes the lock once it is free or its lease has expired. Returns the new word.
    async fn acquire(&self) -> Result<u64, Box<dyn Error>> {
        let mut held = self.swap(LOCK, 0, 0).await?;
        loop {
            let now = self.station.host.now().as_picos() / 1_000_000;
            let mine = ((held >> 32) + 1) << 32 | (now + LEASE);
            let is_over = now > (held & 0xffff_ffff) + GRACE;
            let found = self.swap(LOCK, held, if is_over { mine } else { held }).await?;
            if is_over && found == held {
                return Ok(mine);
            }
            held = found;
            self.station.host.sleep(Duration::from_micros(10)).await;
        }
    }

    /// Adds one to the count while holding the lock. Returns whether the increment took effect.
    async fn increment(&self, version: Version) -> Result<bool, Box<dyn Error>> {
        let lock = self.acquire().await?;
        let record = self.swap(RECORD, 0, 0).await?;
        let (fence, count) = (lock >> 32 << 32, record & 0xffff_ffff);
        // The critical section takes some time.
        self.station.host.sleep(Duration::from_micros(10)).await;
        // ANCHOR: fence
        let is_added = match version {
            // The previous holder may still write: its lease has expired, but its write is still in flight.
            Version::First => self.write(RECORD, fence | (count + 1)).await.map(|()| true)?,
            // Store our token first. Then the swap of an earlier holder no longer finds the value it compares with.
            Version::Fixed => {
                self.swap(RECORD, record, fence | count).await? == record
                    && self.swap(RECORD, fence | count, fence | (count + 1)).await? == fence | count
            }
        };
        // ANCHOR_END: fence
        self.swap(LOCK, lock, fence).await?;
        Ok(is_added)
    }
}

/// Makes `operations` increments, reconnecting as often as needed.
async fn work(host: Host, operations: u32, version: Version, outside: Rc<Outside>) -> TaskResult {
    let (station, mut done) = (Station::open(&host, 16, 64)?, 0);
    while done < operations {
        let session = async {
            let words = Words::connect(&station).await?;
            while done < operations {
                if words.increment(version).await? {
                    done += 1;
                    outside.confirmed.set(outside.confirmed.get() + 1);
                }
            }
            Ok(())
        };
        let _broken: TaskResult = session.await;
        host.sleep(Duration::from_micros(20)).await;
    }
    Ok(())
}

/// The range that trials are drawn from.
pub const LIMITS: Exploration = Exploration {
    faults: 6,
    span: Duration::from_micros(500),
    kinds: &[
        FaultKind::Crash,
        FaultKind::Pause,
        FaultKind::Cut,
        FaultKind::Partition { with: 0 },
        FaultKind::Loss { per_mille: 0 },
        FaultKind::Skew { ppm: 500 },
    ],
    ..Exploration::DEFAULT
};

/// Runs one trial. At no moment may an increment be lost that a client believes it made.
pub fn trial(trial: &Trial, version: Version) -> TestResult {
    let (cluster, operations, outside) =
        (SimCluster::new(trial.seed, trial.hosts), trial.operations, Rc::<Outside>::default());
    let seen = outside.clone();
    cluster.serve(0, move |host| serve(host, seen.clone()));
    for client in 1..trial.hosts {
        let outside = outside.clone();
        cluster.boot(client, move |host| work(host, operations, version, outside.clone()));
    }
    cluster.always("no increment is lost", move |_| {
        let words = outside.words.borrow();
        let record = words.as_ref().map_or(Ok(0), |words| words.load_u64(RECORD as usize));
        let (count, confirmed) =
            (record.map_err(|error| error.to_string())? & 0xffff_ffff, outside.confirmed.get());
        match count >= confirmed {
            true => Ok(()),
            false => Err(format!("clients have made {confirmed} increments, and the count is {count}")),
        }
    });
    // Words in memory do not survive a crash of their server. Replication is the subject of another example.
    let faults = trial.faults.iter().filter(|fault| fault.host != 0 || fault.kind != FaultKind::Crash);
    cluster.inject(&faults.copied().collect::<Vec<_>>());
    Ok(cluster.run(Duration::from_secs(1))?)
}

#[allow(dead_code, reason = "tests include this file")]
fn main() {
    explore("lock_service", &LIMITS, |drawn| trial(drawn, Version::Fixed));
    println!("100 seeds of crashes, pauses and loss, and no increment was lost");
}

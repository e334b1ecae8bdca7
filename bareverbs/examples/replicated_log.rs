//! A replicated log on a simulated cluster: a leader, followers with disks, and faults.
//!
//! `cargo run -p bareverbs --features cluster --example replicated_log`

use bareverbs::cluster::{Exploration, Host, SimCluster, Station, TaskResult, TestResult, Trial, explore};
use bareverbs::prm::time::Duration;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What the leader counts before it calls an entry safe.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "the program runs only the fixed version, its tests run both")]
pub enum Version {
    /// Counts reports. The bug: a follower that reconnects reports the same entry again and counts twice.
    First,
    /// Counts followers: the fixed version.
    Fixed,
}

/// A host reconnects after its peer has been silent for this long.
const TIMEOUT: Duration = Duration::from_micros(120);

/// Stores what the leader sends and reports how many entries it has.
async fn follow(host: Host, topic: String) -> TaskResult {
    let (station, disk) = (Station::open(&host, 64, 16)?, host.disk());
    let following = station.serve(&topic, async |leader| {
        station.tell_number(leader, disk.len("log") as u64 / 8).await?;
        disk.append("log", &station.hear(leader, TIMEOUT).await?);
        Ok(())
    });
    following.await
}

/// The leader's progress: entries written, who reported what as stored, and how many entries are safe.
#[derive(Default)]
struct Progress {
    written: Cell<u64>,
    stored: RefCell<BTreeMap<usize, u64>>,
    safe: Cell<u64>,
}

impl Progress {
    /// Records that a follower has `count` entries. An entry is safe on a majority of disks; the leader's disk counts
    /// as one.
    fn vote(&self, version: Version, follower: usize, count: u64, hosts: usize) {
        let mut stored = self.stored.borrow_mut();
        let report = if version == Version::First { stored.len() } else { follower };
        stored.insert(report, count);
        let disks = 1 + stored.values().filter(|stored| **stored >= count).count();
        if disks > hosts / 2 {
            self.safe.set(self.safe.get().max(count));
        }
    }
}

/// Keeps one follower up to date and reconnects to it after a long silence.
async fn replicate(station: Rc<Station>, follower: usize, version: Version, log: Rc<Progress>) -> TaskResult {
    let (host, topic) = (&station.host, format!("log/{follower}"));
    let replicating = station.keep(&topic, TIMEOUT, async |peer| {
        let stored = station.hear_number(peer, TIMEOUT).await?;
        log.vote(version, follower, stored, host.peers());
        host.until(TIMEOUT, || log.written.get() > stored).await?;
        station.tell_number(peer, stored).await
    });
    replicating.await
}

/// Appends entries one by one, each after the previous one is safe.
async fn lead(host: Host, operations: u32, version: Version, log: Rc<Progress>) -> TaskResult {
    let (station, disk) = (Rc::new(Station::open(&host, 64, 16)?), host.disk());
    for follower in 1..host.peers() {
        host.spawn(replicate(station.clone(), follower, version, log.clone()));
    }
    for entry in 0..u64::from(operations) {
        disk.write_at("log", entry as usize * 8, &entry.to_be_bytes());
        log.written.set(entry + 1);
        host.until(Duration::from_secs(1), || log.safe.get() > entry).await?;
    }
    Ok(())
}

/// The range that trials are drawn from: many concurrent faults while the log still has entries to store.
pub const LIMITS: Exploration = Exploration {
    operations: (10, 40),
    faults: 10,
    span: Duration::from_micros(600),
    ..Exploration::DEFAULT
};

/// Runs one trial. At every moment, each entry that the leader calls safe must be on a majority of disks.
pub fn trial(trial: &Trial, version: Version) -> TestResult {
    let (cluster, operations, log) = (SimCluster::of(trial), trial.operations, Rc::<Progress>::default());
    let leader = log.clone();
    cluster.boot(0, move |host| lead(host, operations, version, leader.clone()));
    (1..trial.hosts).for_each(|host| cluster.serve(host, move |own| follow(own, format!("log/{host}"))));
    cluster.always("what is safe is on a majority of disks", move |cluster| {
        let (safe, hosts) = (log.safe.get(), cluster.hosts());
        let copies = (0..hosts).filter(|host| cluster.disk(*host).len("log") as u64 / 8 >= safe).count();
        let lost = || format!("{safe} entries are called safe, {copies} of {hosts} disks have them");
        if copies > hosts / 2 { Ok(()) } else { Err(lost()) }
    });
    Ok(cluster.run(Duration::from_secs(1))?)
}

#[allow(dead_code, reason = "tests include this file")]
fn main() {
    explore("replicated_log", &LIMITS, |drawn| trial(drawn, Version::Fixed));
    println!("100 seeds of faults, and nothing that was called safe was lost");
}

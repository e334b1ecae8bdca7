//! A replicated log on a cluster under test: a leader, followers with disks, and whatever goes wrong.
//!
//! `cargo run -p bareverbs --features cluster --example replicated_log`

use bareverbs::cluster::{Exploration, Host, SimCluster, Station, TaskResult, TestResult, Trial, explore};
use bareverbs::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What the leader counts to know that entry N is safe: how often it was reported as stored, or how many followers have it.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "the program runs the mended one, its tests both")]
pub enum Version {
    /// With the fault: a follower that is called anew reports the same entry again, and counts twice.
    First,
    /// Without it.
    Mended,
}

/// Longest silence of a peer before the connection is made anew.
const TIMEOUT: Duration = Duration::from_micros(120);

/// Stores what the leader sends, and says how much it has. It starts anew whenever the connection breaks.
async fn follow(host: Host, topic: String) -> TaskResult {
    let (station, disk, mut calls) = (Station::open(&host, 64, 16)?, host.disk(), 0);
    loop {
        let leader = station.accept(&topic, &mut calls).await?;
        let session = async {
            loop {
                let mut log = disk.read("log").unwrap_or_default();
                station.tell(&leader, &(log.len() as u64 / 8).to_be_bytes()).await?;
                log.extend(station.hear(&leader, TIMEOUT).await?);
                disk.write("log", &log);
            }
        };
        let _broken: TaskResult = session.await;
    }
}

/// How far the leader is: entries that it has, what followers reported, and how many entries are safe.
#[derive(Default)]
struct Progress {
    written: Cell<u64>,
    reports: RefCell<BTreeMap<u64, usize>>,
    stored: RefCell<BTreeMap<usize, u64>>,
    safe: Cell<u64>,
}

impl Progress {
    /// A follower says that it has `count` entries. They are safe on a majority of disks, of which the leader's is one.
    fn vote(&self, version: Version, follower: usize, count: u64, hosts: usize) {
        *self.reports.borrow_mut().entry(count).or_default() += 1;
        self.stored.borrow_mut().insert(follower, count);
        let disks = match version {
            Version::First => self.reports.borrow()[&count],
            Version::Mended => self.stored.borrow().values().filter(|stored| **stored >= count).count(),
        };
        if disks + 1 > hosts / 2 {
            self.safe.set(self.safe.get().max(count));
        }
    }
}

/// Keeps one follower up to date. One that was silent too long is called anew.
async fn replicate(station: Rc<Station>, follower: usize, version: Version, log: Rc<Progress>) -> TaskResult {
    let host = &station.host;
    loop {
        let session = async {
            let peer = station.dial(&format!("log/{follower}"), TIMEOUT).await?;
            loop {
                let heard = station.hear(&peer, TIMEOUT).await?;
                let stored = u64::from_be_bytes(heard.try_into().map_err(|_| "a message of another length")?);
                log.vote(version, follower, stored, host.peers());
                let idle_since = host.now();
                while log.written.get() <= stored && host.now().since(idle_since) < TIMEOUT {
                    host.sleep(Duration::from_micros(2)).await;
                }
                (log.written.get() > stored).then_some(()).ok_or("nothing to send for too long")?;
                station.tell(&peer, &stored.to_be_bytes()).await?;
            }
        };
        let _broken: TaskResult = session.await;
        host.sleep(Duration::from_micros(20)).await;
    }
}

/// Appends entry after entry, each when the one before is safe.
async fn lead(host: Host, operations: u32, version: Version, log: Rc<Progress>) -> TaskResult {
    let (station, disk) = (Rc::new(Station::open(&host, 64, 16)?), host.disk());
    for follower in 1..host.peers() {
        host.spawn(replicate(station.clone(), follower, version, log.clone()));
    }
    for entry in 0..u64::from(operations) {
        let mut bytes = disk.read("log").unwrap_or_default();
        if bytes.len() as u64 / 8 <= entry {
            bytes.extend(entry.to_be_bytes());
            disk.write("log", &bytes);
        }
        log.written.set(entry + 1);
        while log.safe.get() <= entry {
            host.sleep(Duration::from_micros(2)).await;
        }
    }
    Ok(())
}

/// From what trials are drawn: much goes wrong at the same time, while there is something to store.
pub const LIMITS: Exploration = Exploration {
    operations: (10, 40),
    faults: 10,
    span: Duration::from_micros(600),
    ..Exploration::DEFAULT
};

/// One run: every entry that the leader calls safe is on a majority of disks, at every moment.
pub fn trial(trial: &Trial, version: Version) -> TestResult {
    let (cluster, operations, log) =
        (SimCluster::new(trial.seed, trial.hosts), trial.operations, Rc::<Progress>::default());
    let leader = log.clone();
    cluster.boot(0, move |host| lead(host, operations, version, leader.clone()));
    (1..trial.hosts).for_each(|host| cluster.serve(host, move |own| follow(own, format!("log/{host}"))));
    cluster.always("what is safe is on a majority of disks", move |cluster| {
        let (safe, hosts) = (log.safe.get(), cluster.hosts());
        let logs = (0..hosts).map(|host| cluster.disk(host).read("log").unwrap_or_default());
        let copies = logs.filter(|log| log.len() as u64 / 8 >= safe).count();
        let lost = || format!("{safe} entries are called safe, {copies} of {hosts} disks have them");
        if copies > hosts / 2 { Ok(()) } else { Err(lost()) }
    });
    cluster.inject(&trial.faults);
    Ok(cluster.run(Duration::from_secs(1))?)
}

#[allow(dead_code, reason = "tests include this file")]
fn main() {
    explore("replicated_log", &LIMITS, |drawn| trial(drawn, Version::Mended));
    println!("100 seeds of faults, and nothing that was called safe was lost");
}

//! A ring all-reduce on a simulated cluster: every host ends with the sums over all hosts.
//!
//! `cargo run -p bareverbs --features cluster --example ring_all_reduce`

use bareverbs::cluster::{
    Exploration, FaultKind, Host, SimCluster, Station, TaskResult, TestResult, Trial, explore,
};
use bareverbs::prelude::*;
use bareverbs::prm::time::Duration;

/// Whether a host waits until its neighbour has consumed one number before it overwrites it with the next.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "the program runs only the fixed version, its tests run both")]
pub enum Version {
    /// Does not wait: the version with the bug.
    First,
    /// Waits: the fixed version.
    Fixed,
}

const TIMEOUT: Duration = Duration::from_millis(20);

/// The contribution of host `host` to place `place`.
fn share(host: usize, place: usize, round: u32) -> u64 {
    (host as u64 + 1) * 1000 + place as u64 * 10 + u64::from(round)
}

async fn reduce(host: Host, rounds: u32, version: Version) -> TaskResult {
    let (own, hosts) = (host.index(), host.peers());
    let station = Station::open(&host, 32, 64)?;
    let (from, to) = (format!("ring/{own}"), format!("ring/{}", (own + 1) % hosts));
    // Somebody has to begin: host 0 calls first, the others accept a call before they make their own.
    let (left, right) = if own == 0 {
        let right = station.dial(&to, TIMEOUT).await?;
        (station.accept(&from, &mut 0).await?, right)
    } else {
        (station.accept(&from, &mut 0).await?, station.dial(&to, TIMEOUT).await?)
    };
    let inbox = station.pool.take().await;
    station.tell(&left, &inbox.remote().to_bytes()).await?;
    let outbox = RemoteSlice::from_bytes(&station.hear(&right, TIMEOUT).await?)?;

    for round in 0..rounds {
        let mut sums: Vec<u64> = (0..hosts).map(|place| share(own, place, round)).collect();
        // Each sum first accumulates on its way around the ring, then travels around it once more.
        for step in 0..2 * (hosts - 1) {
            let place = (own + 2 * hosts - step) % hosts;
            let mut buffer = station.pool.take().await;
            buffer.fill_from(&sums[place].to_ne_bytes())?;
            right.write_with_immediate(buffer, outbox, place as u32).await?;

            // ANCHOR: step
            let arrived =
                host.timeout(TIMEOUT, left.receive()).await.ok_or("the left neighbour does not answer")??;
            let place = arrived.completion.immediate.ok_or("a message instead of a number")? as usize;
            let number = inbox.load_u64(0)?;
            left.post_receive(arrived.buffer)?;
            sums[place] = if step < hosts - 1 { sums[place] + number } else { number };
            if version == Version::Fixed {
                station.tell(&left, b"taken").await?;
                station.hear(&right, TIMEOUT).await?;
            }
            // ANCHOR_END: step
        }
        for (place, sum) in sums.iter().enumerate() {
            let expected: u64 = (0..hosts).map(|host| share(host, place, round)).sum();
            if *sum != expected {
                return Err(
                    format!("round {round}: the sum of place {place} is {sum} and not {expected}").into()
                );
            }
        }
    }
    Ok(())
}

/// The range that trials are drawn from. A crash would abort an all-reduce, so no host crashes.
pub const LIMITS: Exploration = Exploration {
    hosts: (3, 6),
    kinds: &[FaultKind::Pause, FaultKind::Loss { per_mille: 0 }, FaultKind::Skew { ppm: 500 }],
    ..Exploration::DEFAULT
};

/// Runs one trial. Every host must have the right sums in every round.
pub fn trial(trial: &Trial, version: Version) -> TestResult {
    let (cluster, rounds) = (SimCluster::of(trial), trial.operations);
    (0..trial.hosts).for_each(|host| cluster.boot(host, move |own| reduce(own, rounds, version)));
    Ok(cluster.run(Duration::from_secs(1))?)
}

#[allow(dead_code, reason = "tests include this file")]
fn main() {
    explore("ring_all_reduce", &LIMITS, |drawn| trial(drawn, Version::Fixed));
    println!("100 seeds of pauses and loss, and every sum is right");
}

//! Clusters under test: what can be done to hosts, what a run reports, and the examples over many seeds, each
//! with the bug of its first version.

use bareverbs::cluster::{
    Failure, FailureCause, Fault, FaultKind, SimCluster, Station, TaskResult, TestResult, Trial, explore,
    find_failure,
};
use bareverbs::prm::time::Duration;
use bareverbs::sim::LinkConfig;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[path = "../../../bareverbs/examples/hello.rs"]
mod hello;
#[path = "../../../bareverbs/examples/lock_service.rs"]
pub mod lock_service;
#[path = "../../../bareverbs/examples/replicated_log.rs"]
pub mod replicated_log;
#[path = "../../../bareverbs/examples/ring_all_reduce.rs"]
pub mod ring_all_reduce;

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_millis(2);

/// Two hosts: the first sends requests and the second answers. Returns how long each round took.
fn ask(cluster: &SimCluster, rounds: u32) -> Rc<RefCell<Vec<Duration>>> {
    let times = Rc::<RefCell<Vec<Duration>>>::default();
    let seen = times.clone();
    cluster.boot(0, move |host| {
        let seen = seen.clone();
        async move {
            let station = Station::open(&host, 32, 64)?;
            let peer = station.dial("ask", SECOND).await?;
            for round in 0..rounds {
                let start = host.now();
                station.tell(&peer, &round.to_be_bytes()).await?;
                assert_eq!(station.hear(&peer, TIMEOUT).await?, round.to_be_bytes());
                seen.borrow_mut().push(host.now().since(start));
            }
            Ok(())
        }
    });
    cluster.serve(1, |host| async move {
        let (station, mut calls) = (Station::open(&host, 32, 64)?, 0);
        loop {
            let peer = station.accept("ask", &mut calls).await?;
            let session = async {
                loop {
                    let question = station.hear(&peer, SECOND).await?;
                    station.tell(&peer, &question).await?;
                }
            };
            let _broken: TaskResult = session.await;
        }
    });
    times
}

/// A failed round is repeated, so its error does not fail the run. A run that fails because of it reports the
/// error.
#[test]
fn the_error_of_a_round_is_reported_when_the_run_fails() {
    let cluster = SimCluster::new(1, 2);
    cluster.boot(0, |host| async move {
        let station = Station::open(&host, 32, 64)?;
        station.keep("question", TIMEOUT, async |peer| station.tell(peer, b"and?").await).await
    });
    cluster.serve(1, |host| async move {
        let station = Station::open(&host, 32, 64)?;
        let round =
            async |peer: &_| Err(format!("no answer to {:?}", station.hear(peer, TIMEOUT).await?).into());
        station.serve("question", round).await
    });
    let failure = cluster.run(Duration::from_millis(20)).expect_err("nobody ends");
    let round = failure.rounds.iter().find(|round| round.host == 1).expect("a round of host 1");
    assert_eq!((round.topic.as_str(), round.error.as_str()), ("question", "no answer to [97, 110, 100, 63]"));
    assert!(failure.to_string().contains("host 1: its last round of 'question' ended at "), "{failure}");
}

#[test]
fn hosts_talk_and_the_same_seed_does_the_same_again() {
    let run = |seed| {
        let cluster = SimCluster::new(seed, 2);
        let times = ask(&cluster, 20);
        let report = cluster.run(SECOND).unwrap_or_else(|failure| panic!("{failure}"));
        let times = times.borrow();
        assert!(times.len() == 20 && times.iter().all(|time| *time < Duration::from_micros(20)), "{times:?}");
        report
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).digest, run(4).digest);
}

#[test]
fn a_slower_link_a_pause_and_a_lossy_link_take_their_time() {
    let slowest = |change: fn(&SimCluster)| {
        let cluster = SimCluster::new(5, 2);
        let times = ask(&cluster, 200);
        cluster.schedule(Duration::from_micros(300), change);
        cluster.run(SECOND).unwrap_or_else(|failure| panic!("{failure}"));
        let slowest = times.borrow().iter().copied().max();
        slowest.unwrap()
    };
    let normal = slowest(|_| {});
    assert!(normal < Duration::from_micros(20), "{normal}");
    let far = slowest(|cluster| {
        cluster.set_link(1, 0, LinkConfig::gigabits(10).with_propagation(Duration::from_micros(50)));
    });
    assert!((Duration::from_micros(100)..Duration::from_micros(300)).contains(&far), "{far}");
    let paused = slowest(|cluster| {
        cluster.pause(1);
        cluster.schedule(Duration::from_millis(1), |cluster| cluster.resume(1));
    });
    assert!((Duration::from_micros(990)..Duration::from_micros(1100)).contains(&paused), "{paused}");
    let parted = slowest(|cluster| {
        cluster.partition(0, 1);
        cluster.schedule(Duration::from_micros(400), |cluster| cluster.heal(1, 0));
    });
    assert!((Duration::from_micros(300)..Duration::from_millis(2)).contains(&parted), "{parted}");
}

/// A partition separates two hosts; a third host reaches both. Captures say what was lost, and why.
#[test]
fn a_partition_separates_exactly_two_hosts() {
    let cluster = SimCluster::new(6, 3);
    let capture = cluster.capture();
    let reached = Rc::new(Cell::new([None; 2]));
    let outcome = reached.clone();
    cluster.boot(2, move |host| {
        let outcome = outcome.clone();
        async move {
            let station = Station::open(&host, 32, 64)?;
            let mut reached = [None; 2];
            for (peer, reached) in reached.iter_mut().enumerate() {
                let connection = station.dial(&format!("to/{peer}"), SECOND).await?;
                *reached = Some(station.tell(&connection, b"are you there?").await.is_ok());
            }
            outcome.set(reached);
            Ok(())
        }
    });
    for peer in 0..2 {
        cluster.serve(peer, move |host| async move {
            let (station, mut calls) = (Station::open(&host, 32, 64)?, 0);
            let connection = station.accept(&format!("to/{peer}"), &mut calls).await?;
            let _silence = station.hear(&connection, SECOND).await;
            Ok(())
        });
    }
    cluster.partition(2, 1);
    cluster.run(SECOND).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(reached.get(), [Some(true), Some(false)]);
    cluster.world().with(|world| world.finish_capture()).unwrap();
    let bytes = capture.bytes();
    assert!(bytes.windows(18).any(|text| text == b"dropped: partition"), "{} bytes", bytes.len());
}

/// Only the disk survives a crash. Nobody waits for the driver of a host without power.
#[test]
fn a_host_that_crashes_starts_anew_with_its_disk() {
    let cluster = SimCluster::new(7, 2);
    let boots = Rc::<RefCell<Vec<(u32, Option<Vec<u8>>)>>>::default();
    let seen = boots.clone();
    cluster.boot(1, move |host| {
        let seen = seen.clone();
        async move {
            let station = Station::open(&host, 32, 64)?;
            seen.borrow_mut().push((host.boot(), host.disk().read("file")));
            host.disk().write("file", &[host.boot() as u8]);
            while host.boot() < 2 {
                host.sleep(Duration::from_micros(10)).await;
            }
            drop(station);
            Ok(())
        }
    });
    for (crash, restart) in [(100, 150), (200, 300)] {
        cluster.schedule(Duration::from_micros(crash), |cluster| {
            let before = cluster.now();
            cluster.crash(1);
            assert!(!cluster.is_up(1) && cluster.now() == before, "a crash takes no time");
        });
        cluster.schedule(Duration::from_micros(restart), |cluster| cluster.restart(1));
    }
    let report = cluster.run(SECOND).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(*boots.borrow(), [(0, None), (1, Some(vec![0])), (2, Some(vec![1]))]);
    assert!(report.at.as_nanos() < 400_000, "{report:?}");
}

/// A NIC is reset under its driver: every operation of its host ends at once.
#[test]
fn a_nic_reset_ends_every_operation_of_its_host() {
    let cluster = SimCluster::new(8, 2);
    ask(&cluster, 10_000);
    cluster.schedule(Duration::from_micros(500), |cluster| cluster.reset_nic(0, 0));
    let failure = *cluster.run(SECOND).unwrap_err();
    let Failure { cause: FailureCause::Task { host: 0, error }, at, .. } = failure else {
        panic!("{failure}")
    };
    assert!(error.contains("was reset from outside"), "{error}");
    assert!(at.as_nanos() < 501_000, "{at}");
}

#[test]
fn endless_programs_and_broken_invariants_are_reports() {
    let cluster = SimCluster::new(9, 1);
    cluster.boot(0, |host| async move {
        host.lookup("what nobody writes").await;
        Ok(())
    });
    let text = cluster.run(Duration::from_millis(3)).unwrap_err().to_string();
    assert!(text.contains("tasks of hosts [0] have not ended") && text.contains("seed 9"), "{text}");
    cluster.always("nothing", |_| Err("because".to_owned()));
    let text = cluster.run(Duration::from_millis(3)).unwrap_err().to_string();
    assert!(text.contains("the invariant 'nothing' does not hold: because"), "{text}");
}

#[test]
fn a_trial_is_read_as_it_was_written() {
    let kinds = [
        FaultKind::Crash,
        FaultKind::Pause,
        FaultKind::Cut,
        FaultKind::Partition { with: 2 },
        FaultKind::Loss { per_mille: 3 },
        FaultKind::Skew { ppm: -7 },
    ];
    let fault =
        |kind| Fault { kind, host: 1, after: Duration::from_micros(5), lasts: Duration::from_nanos(17) };
    let trial = Trial { seed: 6, hosts: 3, operations: 4, faults: kinds.map(fault).to_vec() };
    assert_eq!(trial.to_string().parse(), Ok(trial));
    for (line, word) in [("seed=1 hosts=2", "operations=N"), ("seed=1 crush:1@2ns+3ns", "crush:1@2ns+3ns")] {
        assert_eq!(line.parse::<Trial>().unwrap_err().word, word);
    }
}

#[bareverbs::test(seeds = 12, hosts = (2, 4), operations = (1, 5))]
fn the_attribute_draws_trials(trial: &Trial) -> TestResult {
    assert!((2..=4).contains(&trial.hosts) && (1..=5).contains(&trial.operations) && trial.faults.len() <= 4);
    let cluster = SimCluster::new(trial.seed, trial.hosts);
    for host in 0..trial.hosts {
        cluster.boot(host, |host| async move { host.open(0).map(drop) });
    }
    cluster.inject(&trial.faults);
    Ok(cluster.run(SECOND)?)
}

#[test]
fn the_replicated_log_loses_nothing() {
    let version = replicated_log::Version::Fixed;
    explore("the_replicated_log_loses_nothing", &replicated_log::LIMITS, |drawn| {
        replicated_log::trial(drawn, version)
    });
}

/// The bug of the first version: it counts reports, not followers. A restarted follower reports again
/// although too few disks have the entry.
#[test]
fn the_seeds_find_the_bug_of_the_first_log() {
    let version = replicated_log::Version::First;
    let found = find_failure("log", &replicated_log::LIMITS, |drawn| replicated_log::trial(drawn, version));
    let message = found.expect_err("the fault was not found");
    assert!(message.contains("are called safe") && message.contains("smallest of"), "{message}");
}

#[test]
fn hello_verifies_every_operation() {
    hello::main().unwrap();
}

#[test]
fn the_lock_loses_no_increment() {
    let version = lock_service::Version::Fixed;
    explore("the_lock_loses_no_increment", &lock_service::LIMITS, |drawn| {
        lock_service::trial(drawn, version)
    });
}

/// The bug of the first version: it trusts its lease. A holder whose processes are paused writes after
/// somebody else has the lock.
#[test]
fn the_seeds_find_the_bug_of_the_first_lock() {
    let version = lock_service::Version::First;
    let found = find_failure("lock", &lock_service::LIMITS, |drawn| lock_service::trial(drawn, version));
    let message = found.expect_err("the fault was not found");
    assert!(message.contains("no increment is lost") && message.contains("smallest of"), "{message}");
}

#[test]
fn the_ring_sums_rightly() {
    let version = ring_all_reduce::Version::Fixed;
    explore("the_ring_sums_rightly", &ring_all_reduce::LIMITS, |drawn| {
        ring_all_reduce::trial(drawn, version)
    });
}

/// The bug of the first version: it overwrites a number that its paused neighbour has not taken yet.
#[test]
fn the_seeds_find_the_bug_of_the_first_ring() {
    let version = ring_all_reduce::Version::First;
    let found =
        find_failure("ring", &ring_all_reduce::LIMITS, |drawn| ring_all_reduce::trial(drawn, version));
    let message = found.expect_err("the fault was not found");
    assert!(message.contains("the sum of place") && message.contains("smallest of"), "{message}");
}

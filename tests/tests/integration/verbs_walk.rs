//! Two drivers, two NICs, one faulty cable, and queue pairs of every service: whatever a seed posts and
//! however it moves queue pairs between states, every request ends as it must.
//!
//! * `BAREVERBS_WALK=seed:loss:requests` walks once under these conditions.
//! * `BAREVERBS_SEEDS=N` walks over N seeds in place of fifty; the long run is `BAREVERBS_SEEDS=1000 cargo
//!   test --release -p bareverbs-tests --test integration verbs_walk:: -- --nocapture`.

use bareverbs_tests::walk::Conditions;
use bareverbs_tests::walk::verbs::{WalkCounts, walk_verbs};

const SEEDS: u64 = 50;
const REQUESTS: usize = 300;

fn walk(conditions: &Conditions) -> WalkCounts {
    walk_verbs(conditions, "verbs_walk")
}

fn walk_over_seeds(loss: u32) {
    if let Some(conditions) = Conditions::asked() {
        println!("{:?} of {conditions}", walk(&conditions));
        return;
    }
    let (seeds, mut sum) = (Conditions::seeds(SEEDS), WalkCounts::default());
    for seed in 0..seeds {
        sum += walk(&Conditions::of(seed, loss, REQUESTS));
    }
    println!("verbs walk, {loss} % loss: {seeds} seeds, {sum}");
    assert_eq!(sum.frames_lost > 0, loss > 0, "frames are lost only if loss is on");
    for count in [sum.opened, sum.drained, sum.changed, sum.recovered, sum.killed, sum.reset, sum.delivered] {
        assert!(count >= seeds / 10, "the walk took some kind of step too rarely: {sum}");
    }
}

/// Requirement: IBTA v1.4 §10.3.1: whatever happens, every request completes once and as its service promises.
#[test]
fn without_loss() {
    walk_over_seeds(0);
}

#[test]
fn with_one_percent_loss() {
    walk_over_seeds(1);
}

#[test]
fn with_five_percent_loss() {
    walk_over_seeds(5);
}

#[test]
fn the_same_seed_has_the_same_digest_and_another_seed_another() {
    let run = |seed| walk(&Conditions::of(seed, 5, REQUESTS));
    assert_eq!(run(77), run(77));
    assert_ne!(run(77).digest, run(78).digest);
}

//! Random walks over shared receive queues and extended reliable connections.
//!
//! `BAREVERBS_SEEDS=N` walks over N seeds in place of thirty.

use bareverbs_tests::walk::Conditions;
use bareverbs_tests::walk::shared::{SharedOutcome, walk_shared};

const SEEDS: u64 = 30;
const MESSAGES: usize = 300;

fn walk_aloud(seed: u64, loss: u32) -> SharedOutcome {
    match std::panic::catch_unwind(|| walk_shared(seed, loss, MESSAGES)) {
        Ok(outcome) => outcome,
        Err(cause) => {
            println!("the walk failed: seed {seed}, {loss} % loss");
            std::panic::resume_unwind(cause)
        }
    }
}

fn walk_over_seeds(loss: u32) {
    let seeds = Conditions::seeds(SEEDS);
    let (mut arrived, mut mended, mut limits) = (0, 0, 0);
    for seed in 0..seeds {
        let outcome = walk_aloud(seed, loss);
        arrived += outcome.arrived;
        mended += outcome.mended;
        limits += outcome.limits;
    }
    println!(
        "shared walk: {seeds} seeds, {arrived} messages, {mended} queue pairs made again, {limits} limit events"
    );
    assert!(arrived > seeds * MESSAGES as u64 / 2 && mended > 0 && limits > 0);
}

#[test]
fn without_loss() {
    walk_over_seeds(0);
}

#[test]
fn with_three_percent_loss() {
    walk_over_seeds(3);
}

#[test]
fn the_same_seed_has_the_same_outcome() {
    assert_eq!(walk_aloud(5, 3), walk_aloud(5, 3));
}

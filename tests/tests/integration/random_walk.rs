//! Two drivers, two NICs, one faulty cable: whatever a seed posts completes exactly once, with the right bytes.
//!
//! * `BAREVERBS_WALK=seed:loss:requests` walks once under these conditions.
//! * `BAREVERBS_SEEDS=N` walks over N seeds in place of thirty.

use bareverbs_tests::walk::{Conditions, Outcome, walk};

const SEEDS: u64 = 30;
const REQUESTS: usize = 400;

/// Walks; if the walk fails, prints how to repeat it.
fn walk_aloud(conditions: Conditions) -> Outcome {
    match std::panic::catch_unwind(|| walk(&conditions)) {
        Ok(outcome) => outcome,
        Err(cause) => {
            println!("the walk failed; {}", conditions.replay("random_walk"));
            std::panic::resume_unwind(cause)
        }
    }
}

fn walk_over_seeds(loss: u32) {
    if let Some(conditions) = Conditions::asked() {
        println!("{:?} of {conditions}", walk_aloud(conditions));
        return;
    }
    let (seeds, mut completed, mut lost) = (Conditions::seeds(SEEDS), 0, 0);
    for seed in 0..seeds {
        let outcome = walk_aloud(Conditions::of(seed, loss, REQUESTS));
        completed += outcome.completed;
        lost += outcome.lost;
    }
    println!("random walk: {seeds} seeds, {completed} requests completed once each, {lost} frames lost");
    assert!(completed >= seeds * REQUESTS as u64);
    assert_eq!(lost > 0, loss > 0, "frames are lost only if loss is on");
}

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
    let run = |seed| walk_aloud(Conditions::of(seed, 5, REQUESTS));
    assert_eq!(run(77), run(77));
    assert_ne!(run(77).digest, run(78).digest);
}

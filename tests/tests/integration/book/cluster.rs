//! What seeds find in the first versions of the examples, and that the lines in the book replay it.

use crate::book::output;
use crate::cluster::{lock_service, replicated_log, ring_all_reduce};
use bareverbs::cluster::{Exploration, TestResult, Trial, find_failure};

/// The message of the first version. Its smallest trial must fail again, and the fixed version must pass it.
fn shows(
    name: &str,
    limits: &Exploration,
    first: impl Fn(&Trial) -> TestResult,
    fixed: impl Fn(&Trial) -> TestResult,
) {
    let message = find_failure(name, limits, &first).expect_err("the fault was not found");
    let (_, rest) = message.split_once("BAREVERBS_TRIAL='").expect("a line that replays it");
    let trial: Trial = rest.split('\'').next().unwrap().parse().unwrap();
    assert!(first(&trial).is_err() && fixed(&trial).is_ok(), "{trial}");
    output::is(name, &message);
}

#[test]
fn the_first_log_fails_as_the_book_shows() {
    use replicated_log::{LIMITS, Version, trial};
    shows(
        "replicated_log",
        &LIMITS,
        |drawn| trial(drawn, Version::First),
        |drawn| trial(drawn, Version::Fixed),
    );
}

#[test]
fn the_first_lock_fails_as_the_book_shows() {
    use lock_service::{LIMITS, Version, trial};
    shows(
        "lock_service",
        &LIMITS,
        |drawn| trial(drawn, Version::First),
        |drawn| trial(drawn, Version::Fixed),
    );
}

#[test]
fn the_first_ring_fails_as_the_book_shows() {
    use ring_all_reduce::{LIMITS, Version, trial};
    shows(
        "ring_all_reduce",
        &LIMITS,
        |drawn| trial(drawn, Version::First),
        |drawn| trial(drawn, Version::Fixed),
    );
}

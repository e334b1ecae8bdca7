//! Runs a test over many seeds, shrinks a failing trial, and prints how to replay it.

use crate::failure::Report;
use crate::limits::Exploration;
use crate::trial::Trial;
use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of one trial.
pub type TestResult = Result<Report, Box<dyn Error>>;

/// Most smaller trials to try for one failure.
const MOST_SHRINKS: usize = 300;

/// A failing trial, its failure, and the number of smaller trials tried.
struct Found {
    trial: Trial,
    error: String,
    tried: usize,
}

/// Runs `test` on the trial of every seed, or only on the trial in the environment variable `BAREVERBS_TRIAL` if it is
/// set.
///
/// ```
/// use bareverbs_cluster::{Exploration, SimCluster, explore};
/// use bareverbs_prm::time::Duration;
///
/// let limits = Exploration { seeds: 3, faults: 0, ..Exploration::default() };
/// explore("every_host_opens_its_device", &limits, |trial| {
///     let cluster = SimCluster::new(trial.seed, trial.hosts);
///     for host in 0..trial.hosts {
///         cluster.boot(host, |host| async move { host.open(0).map(drop) });
///     }
///     cluster.inject(&trial.faults);
///     Ok(cluster.run(Duration::from_secs(1))?)
/// });
/// ```
///
/// # Panics
/// A trial fails: the message contains the smallest failing trial found and the line that replays it. Or two runs of
/// the same trial differ, because the test depends on something outside its trial.
pub fn explore(name: &str, limits: &Exploration, test: impl Fn(&Trial) -> TestResult) {
    if let Ok(line) = std::env::var("BAREVERBS_TRIAL") {
        let trial: Trial = line.parse().unwrap_or_else(|error| panic!("BAREVERBS_TRIAL: {error}"));
        match attempt(&test, &trial) {
            Ok(report) => return println!("{name}: {trial} passes: {report:?}"),
            Err(error) => panic!("{name}: {trial} fails: {error}"),
        }
    }
    if let Err(message) = find_failure(name, limits, test) {
        panic!("{message}");
    }
}

/// Like [`explore`], but returns the message instead of panicking: for tests which show that a known bug is found.
///
/// # Errors
/// The message with the smallest failing trial.
pub fn find_failure(
    name: &str,
    limits: &Exploration,
    test: impl Fn(&Trial) -> TestResult,
) -> Result<(), String> {
    let seeds = std::env::var("BAREVERBS_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..seeds.unwrap_or(limits.seeds) {
        let trial = Trial::of_seed(seed, limits);
        let outcome = attempt(&test, &trial);
        match outcome {
            Ok(report) if seed % 16 == 0 => check_again(name, &test, &trial, report)?,
            Ok(_) => {}
            Err(error) => {
                let smallest = shrink(&test, limits, Found { trial: trial.clone(), error, tried: 0 });
                return Err(describe(name, &trial, &smallest));
            }
        }
    }
    Ok(())
}

/// Checks that a second run of the trial has the same outcome, as it must if the test depends on its trial alone.
fn check_again(
    name: &str,
    test: &impl Fn(&Trial) -> TestResult,
    trial: &Trial,
    first: Report,
) -> Result<(), String> {
    match attempt(test, trial) {
        Ok(second) if second == first => Ok(()),
        second => Err(format!(
            "{name}: two runs of {trial} differ, {first:?} and {second:?}: does the test use a clock, a \
             HashMap, or randomness that does not come from its trial?"
        )),
    }
}

fn describe(name: &str, first: &Trial, found: &Found) -> String {
    let Found { trial, error, tried } = found;
    format!(
        "{name}: {error}\n  first seen with {first}\n  smallest of {tried} tried: {trial}\n  replay: BAREVERBS_TRIAL='{trial}' \
         cargo test {name}"
    )
}

/// Shrinks a failing trial. Any failure of a smaller trial counts, not only the original one.
fn shrink(test: &impl Fn(&Trial) -> TestResult, limits: &Exploration, mut found: Found) -> Found {
    'smaller: loop {
        for trial in found.trial.smaller(limits) {
            if found.tried >= MOST_SHRINKS {
                return found;
            }
            found.tried += 1;
            if let Err(error) = attempt(test, &trial) {
                found = Found { trial, error, ..found };
                continue 'smaller;
            }
        }
        return found;
    }
}

/// Runs one trial and converts a panic into a failure.
fn attempt(test: &impl Fn(&Trial) -> TestResult, trial: &Trial) -> Result<Report, String> {
    match catch_unwind(AssertUnwindSafe(|| test(trial))) {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(panic) => Err(format!("panicked: {}", words_of(&*panic))),
    }
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
}

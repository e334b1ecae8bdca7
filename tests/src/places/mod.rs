//! One list of conversations for every place that a driver can live in: in process, behind vfio-user, on real
//! VFIO.
//!
//! A [`Place`] opens the two ends of a wire. [`run`] brings drivers up on them, lets them talk, and takes
//! them down again, with the same source everywhere. Every byte that an operation should have moved is
//! checked. The list knows backends only through the trait, and never repeats a conversation that failed.
//! Start reading at [`run`].

mod backends;
mod ends;
mod mix;
mod operations;
mod place;

pub use backends::{InProcess, OverVfio, OverVfioUser};
pub use ends::{Ends, PlaceDevice, PlaceEnd};
pub use place::Place;

use anyhow::Result;
use core::fmt;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Operations of the mix.
    pub operations: u64,
    /// Seed of the mix.
    pub seed: u64,
    /// How often everything is brought up and taken down.
    pub rounds: u32,
}

impl Default for Workload {
    fn default() -> Self {
        Self { operations: 2000, seed: 1, rounds: 2 }
    }
}

/// The result of one conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationOutcome {
    /// It passed; what was seen.
    Pass(String),
    /// It failed; why.
    Fail(String),
    /// It is not available here, and why.
    Skip(String),
}

/// A conversation and its outcome. Written as one line, `pass NAME: SEEN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationLine {
    /// Which conversation.
    pub name: String,
    /// How it went.
    pub outcome: ConversationOutcome,
}

impl fmt::Display for ConversationLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, seen) = match &self.outcome {
            ConversationOutcome::Pass(seen) => ("pass", seen),
            ConversationOutcome::Fail(seen) => ("FAIL", seen),
            ConversationOutcome::Skip(seen) => ("skip", seen),
        };
        write!(f, "{word} {}: {}", self.name, seen.replace('\n', " | "))
    }
}

impl ConversationLine {
    /// Reads what [`fmt::Display`] wrote.
    pub fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        let (name, seen) = rest.split_once(": ")?;
        let make = match word {
            "pass" => ConversationOutcome::Pass,
            "FAIL" => ConversationOutcome::Fail,
            "skip" => ConversationOutcome::Skip,
            _ => return None,
        };
        Some(Self { name: name.to_owned(), outcome: make(seen.to_owned()) })
    }
}

/// Runs the whole list and passes each line to `told` as soon as it is known. Returns true if nothing failed.
pub fn run<P: Place>(place: &mut P, workload: &Workload, mut told: impl FnMut(&ConversationLine)) -> bool {
    let mut good = true;
    for round in 1..=workload.rounds {
        let mut tell = |name: &str, outcome: Result<ConversationOutcome>| {
            let outcome = outcome.unwrap_or_else(|error| ConversationOutcome::Fail(format!("{error:#}")));
            let failed = matches!(outcome, ConversationOutcome::Fail(_));
            good &= !failed;
            told(&ConversationLine { name: format!("round {round}, {name}"), outcome });
            !failed
        };
        if !one_round(place, workload, round, &mut tell) {
            break;
        }
    }
    good
}

/// One bring-up, the conversations, one teardown. Returns false if it could not even begin.
fn one_round<P: Place>(
    place: &mut P,
    workload: &Workload,
    round: u32,
    tell: &mut impl FnMut(&str, Result<ConversationOutcome>) -> bool,
) -> bool {
    let mut ends = match Ends::open(place) {
        Ok(ends) => ends,
        Err(error) => return tell("bring-up", Err(error)),
    };
    let seen = [&ends.a, &ends.b].map(|side| P::describe(side.device.hal()));
    tell("bring-up", Ok(ConversationOutcome::Pass(seen.join(" and "))));
    for (name, check) in operations::all::<P::Hal>() {
        tell(name, check(&mut ends).map(ConversationOutcome::Pass));
    }
    let user = match place.no_user_memory() {
        Some(why) => Ok(ConversationOutcome::Skip(why.to_owned())),
        None => operations::user_memory(&mut ends).map(ConversationOutcome::Pass),
    };
    tell("memory of the application", user);
    let seed = workload.seed.wrapping_add(round.into());
    tell(
        "mix of all operations",
        mix::run(&mut ends, workload.operations, seed).map(ConversationOutcome::Pass),
    );
    tell("interrupts", operations::interrupts::<P>(&mut ends).map(ConversationOutcome::Pass));
    tell("teardown", ends.close::<P>().map(ConversationOutcome::Pass))
}

//! The plan: faults in the notation of simulated cluster trials, applied to named hosts.

use anyhow::{Context, Result, bail};
use bareverbs_cluster::{Fault, FaultKind, Trial};
use std::fmt;
use std::time::Duration;

/// An act on hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// Kills the programs of a host. This command does not restart them.
    Kill { host: String },
    /// Stops the programs of a host, or resumes them.
    Stop { host: String, begins: bool },
    /// Pulls the cable of a host, or plugs it in again.
    Cut { host: String, begins: bool },
    /// Separates two hosts, or reconnects them.
    Part { host: String, other: String, begins: bool },
    /// Loses this many in a thousand of a host's frames, and delays as many; 0 ends it.
    Lose { host: String, per_mille: u16 },
}

/// The printed form.
impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill { host } => write!(f, "{host} crashes"),
            Self::Stop { host, begins: true } => write!(f, "{host} is paused"),
            Self::Stop { host, begins: false } => write!(f, "{host} resumes"),
            Self::Cut { host, begins: true } => write!(f, "the cable of {host} is unplugged"),
            Self::Cut { host, begins: false } => write!(f, "the cable of {host} is plugged in again"),
            Self::Part { host, other, begins: true } => {
                write!(f, "{host} and {other} cannot reach each other")
            }
            Self::Part { host, other, begins: false } => {
                write!(f, "{host} and {other} reach each other again")
            }
            Self::Lose { host, per_mille: 0 } => write!(f, "{host} no longer loses frames"),
            Self::Lose { host, per_mille } => write!(f, "{host} loses {per_mille} frames in 1,000"),
        }
    }
}

/// An act with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedAct {
    /// Time since the start of the command.
    pub(super) at: Duration,
    pub(super) act: Act,
}

/// Parses faults: each as a word of its own, or all as the replay line of a trial. A host is named by its
/// name, or by its number in `hosts`.
pub(super) fn parse(words: &[String], hosts: &[String]) -> Result<Vec<Fault>> {
    let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
    if words.iter().any(|word| word.contains('=')) {
        let trial: Trial = words.join(" ").parse()?;
        return Ok(trial.faults);
    }
    words.iter().map(|word| parse_one(word, hosts)).collect()
}

fn parse_one(word: &str, hosts: &[String]) -> Result<Fault> {
    let numbered = |name: &str| match hosts.iter().position(|host| host == name) {
        Some(number) => number.to_string(),
        None => name.to_owned(),
    };
    let (what, when) = word.split_once('@').unwrap_or((word, ""));
    let mut parts: Vec<String> = what.split(':').map(str::to_owned).collect();
    let names = if parts.first().is_some_and(|kind| kind == "partition") { 2 } else { 1 };
    parts.iter_mut().skip(1).take(names).for_each(|part| *part = numbered(part));
    let fault = format!("{}@{when}", parts.join(":")).parse();
    fault.ok().with_context(|| {
        format!(
            "'{word}' is not a fault of the hosts {}; faults look like cut:a@500ms+2s, partition:a:b@1s+1s, loss:a:10@0s+5s (10 frames in 1,000), \
             pause:a@1s+200ms and crash:a@3s+0s",
            hosts.join(", ")
        )
    })
}

/// The steps of faults in the order of their times, all stretched by `stretch`.
pub(super) fn steps(faults: &[Fault], hosts: &[String], stretch: u32) -> Result<Vec<PlannedAct>> {
    let mut steps = Vec::new();
    for fault in faults {
        let real = |span: bareverbs_prm::time::Duration| Duration::from_nanos(span.as_nanos()) * stretch;
        let (after, lasts) = (real(fault.after), real(fault.lasts));
        let (begin, end) = acts(fault, hosts)?;
        steps.push(PlannedAct { at: after, act: begin });
        steps.extend(end.map(|act| PlannedAct { at: after + lasts, act }));
    }
    steps.sort_by_key(|step| step.at);
    Ok(steps)
}

/// What a fault does at its beginning and at its end.
fn acts(fault: &Fault, hosts: &[String]) -> Result<(Act, Option<Act>)> {
    let name = |number: usize| {
        let missing = || {
            format!(
                "'{fault}': there is no host number {number} among {}; --hosts names them",
                hosts.join(", ")
            )
        };
        hosts.get(number).cloned().with_context(missing)
    };
    let host = name(fault.host)?;
    let lasting = |act: &dyn Fn(bool) -> Act| (act(true), Some(act(false)));
    Ok(match fault.kind {
        FaultKind::Crash => (Act::Kill { host }, None),
        FaultKind::Pause => lasting(&|begins| Act::Stop { host: host.clone(), begins }),
        FaultKind::Cut => lasting(&|begins| Act::Cut { host: host.clone(), begins }),
        FaultKind::Partition { with } => {
            let other = name(with)?;
            lasting(&|begins| Act::Part { host: host.clone(), other: other.clone(), begins })
        }
        FaultKind::Loss { per_mille } => {
            lasting(&|begins| Act::Lose { host: host.clone(), per_mille: if begins { per_mille } else { 0 } })
        }
        _ => bail!(
            "'{fault}': programs of `bareverbs run` use the clock of this machine, so only a simulated cluster can do this"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Vec<String> {
        ["a", "b", "7"].map(str::to_owned).to_vec()
    }

    fn planned(words: &[&str], stretch: u32) -> Result<Vec<String>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let steps = steps(&parse(&words, &hosts())?, &hosts(), stretch)?;
        Ok(steps.iter().map(|step| format!("{:?} {}", step.at, step.act)).collect())
    }

    #[test]
    fn faults_are_done_in_the_order_of_time() {
        let planned =
            planned(&["cut:b@2s+500ms", "partition:a:7@1s+5s", "loss:0:10@0s+1ms", "crash:a@9s+1s"], 1)
                .unwrap();
        let expected = [
            "0ns a loses 10 frames in 1,000",
            "1ms a no longer loses frames",
            "1s a and 7 cannot reach each other",
            "2s the cable of b is unplugged",
            "2.5s the cable of b is plugged in again",
            "6s a and 7 reach each other again",
            "9s a crashes",
        ];
        assert_eq!(planned, expected);
    }

    #[test]
    fn the_line_of_a_trial_is_done_to_hosts_in_their_order() {
        let line = "seed=6 hosts=3 operations=4 pause:1@120000ns+2000000ns";
        assert_eq!(planned(&[line], 1000).unwrap(), ["120ms b is paused", "2.12s b resumes"]);
        // As several words, as a shell may pass them.
        assert_eq!(planned(&line.split(' ').collect::<Vec<_>>(), 1000).unwrap().len(), 2);
    }

    #[test]
    fn malformed_faults_are_refused_with_an_explanation() {
        for (word, said) in [
            ("cut:c@1s+1s", "'cut:c@1s+1s' is not a fault of the hosts a, b, 7"),
            ("cut:a", "faults look like"),
            ("cut:a@1+1", "faults look like"),
            ("cut:3@1s+1s", "there is no host number 3"),
            ("partition:a:9@1s+1s", "there is no host number 9"),
            ("skew:a:10@1s+1s", "the clock of this machine"),
            ("seed=1 hosts=1 operations=1 cut:x@1s+1s", "'cut:x@1s+1s' is not understood"),
        ] {
            let refusal = format!("{:#}", planned(&[word], 1).unwrap_err());
            assert!(refusal.contains(said), "{word}: {refusal}");
        }
    }
}

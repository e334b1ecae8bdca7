//! `bareverbs explain`: the meaning of a status, a syndrome, a counter, a `doctor` finding or an error name,
//! the values to compare, and what to try.
//!
//! The tables: `table` and `more` have messages of devices and libraries, `outcomes` results of commands and
//! lookups, `programs` errors of programs near data, `doctor` its findings, `counters` the counters. `query`
//! parses the various printed forms. This command asks no device: everything here is known beforehand. What a
//! queue pair itself can report is `QueuePair::diagnose` of the driver.

mod more;
mod outcomes;
mod programs;
mod query;
mod table;

use crate::Failure;
use crate::counters::{KNOWN, Known};
use crate::doctor::{RULES, Rule};
use crate::output::{json_object, print};
use bareverbs_prm::numbering::{CommandStatus, CqErrorSyndrome, CqeSyndrome, DeliveryStatus, HealthSyndrome};
use bareverbs_sim::nic::Refusal;
use bareverbs_sim::nic::syndrome::ALL;
use clap::Args;
use query::Query;
use serde::Serialize;
use std::fmt::Write as _;
use table::{ENTRIES, Entry};

/// A name at least this similar may have been meant (Jaro-Winkler, 1 is equal).
const NEAR: f64 = 0.85;
/// How many names are offered for an unknown one.
const OFFERED: usize = 3;

/// Arguments of `bareverbs explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// What to explain, as in "12", "0x81", "IBV_WC_RETRY_EXC_ERR", "REMOTE_ACCESS_ERR(0x13)", "EINVAL", "PORT_DOWN",
    /// "out_of_sequence", "gid.vlan", or a line that a program printed. Default: list everything.
    pub what: Vec<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// One explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Stable ID: kind and name, or the ID of a finding.
    pub id: String,
    /// Kind of number or name.
    pub kind: &'static str,
    /// Its name in the manual or the header.
    pub name: &'static str,
    /// Its number, if it has one.
    pub number: Option<u32>,
    /// What happened.
    pub cause: &'static str,
    /// Values to compare at both ends.
    pub compare: &'static str,
    /// What to try.
    pub attempt: &'static str,
}

/// Prints explanations. Returns whether there are any.
///
/// # Errors
/// [`Failure::Input`] if nothing is known; suggests similar names.
pub fn run(arguments: &ExplainArguments) -> Result<bool, Failure> {
    let what = arguments.what.join(" ");
    let found = if arguments.what.is_empty() { everything().collect() } else { explain(&what) };
    if found.is_empty() {
        return Err(Failure::Input(anyhow::anyhow!("{}", unknown(&what))));
    }
    if arguments.json {
        let value = serde_json::to_value(&found).map_err(anyhow::Error::from)?;
        print(&json_object("explain", value)?)?;
    } else {
        print(found.iter().map(text).collect::<Vec<_>>().join("\n").trim_end())?;
    }
    Ok(true)
}

fn unknown(what: &str) -> String {
    let mut text = format!("nothing is known of '{what}'");
    match near(what).as_slice() {
        [] => text.push_str(
            ": give a completion status, a syndrome, a command status, an error name, a counter or the id of a finding",
        ),
        names => {
            let _ = write!(text, "; did you mean {}?", names.join(", "));
        }
    }
    text
}

/// Names similar to the request, the most similar first.
fn near(what: &str) -> Vec<&'static str> {
    let what = what.trim().to_ascii_lowercase();
    let mut rated: Vec<(f64, &'static str)> = names()
        .map(|name| (strsim::jaro_winkler(&what, &name.to_ascii_lowercase()), name))
        .filter(|(nearness, _)| *nearness >= NEAR)
        .collect();
    rated.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    rated.dedup_by_key(|(_, name)| *name);
    rated.into_iter().take(OFFERED).map(|(_, name)| name).collect()
}

/// Every name that leads to an explanation.
fn names() -> impl Iterator<Item = &'static str> {
    let entries = entries().flat_map(|entry| entry.names.iter().copied());
    entries.chain(RULES.iter().map(|rule| rule.id)).chain(KNOWN.iter().map(|known| known.name))
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    let lookups = outcomes::LOOKUPS.iter().map(|(_, entry)| entry);
    let programs = programs::PROGRAMS.iter().map(|program| &program.entry);
    ENTRIES.iter().chain(more::ENTRIES).chain(outcomes::ENTRIES).chain(lookups).chain(programs)
}

/// All explanations, in the order of the tables.
fn everything() -> impl Iterator<Item = Explanation> {
    entries().map(of_entry).chain(RULES.iter().map(of_rule)).chain(KNOWN.iter().map(of_counter))
}

/// All possible meanings of a number, a name or a line. An ID has exactly one.
pub fn explain(what: &str) -> Vec<Explanation> {
    let mut all = everything().chain(ALL.iter().map(of_refusal));
    if let Some(named) = all.find(|explanation| explanation.id == what.trim()) {
        return vec![named];
    }
    // Lines about programs contain unrelated numbers: offsets, op-codes.
    let programs: Vec<Explanation> = programs::program_in(what).map(of_entry).collect();
    if !programs.is_empty() {
        return programs;
    }
    let query = Query::new(what);
    let named = entries().filter(|entry| query.matches(entry)).map(of_entry);
    let rules = RULES.iter().filter(|rule| query.names(rule.id)).map(of_rule);
    let counters = KNOWN.iter().filter(|known| query.names_counter(known)).map(of_counter);
    let refused = ALL.iter().filter(|refusal| query.has_number(refusal.syndrome)).map(of_refusal);
    let lookups = outcomes::lookup_in(what).map(of_entry);
    named.chain(rules).chain(counters).chain(refused).chain(lookups).collect()
}

fn of_entry(entry: &Entry) -> Explanation {
    let Entry { kind, names, number, cause, compare, attempt } = *entry;
    let name = names.first().copied().unwrap_or("");
    let id = format!("{}/{name}", kind.id());
    Explanation { id, kind: kind.name(), name, number, cause, compare, attempt }
}

fn of_rule(rule: &Rule) -> Explanation {
    Explanation {
        id: rule.id.to_owned(),
        kind: "finding of doctor",
        name: rule.id,
        number: None,
        cause: rule.means,
        compare: rule.compare,
        attempt: rule.attempt,
    }
}

fn of_refusal(refusal: &Refusal) -> Explanation {
    Explanation {
        id: format!("simulator/{:#x}", refusal.syndrome),
        kind: "command syndrome of the simulated NIC",
        name: refusal.status.name(),
        number: Some(refusal.syndrome),
        cause: refusal.reason,
        compare: "the field that the cause names, as the command carried it",
        attempt: "fix that field; a real device has its own syndromes",
    }
}

fn of_counter(known: &Known) -> Explanation {
    let says = known.abnormal.as_ref();
    Explanation {
        id: format!("counter/{}", known.name),
        kind: "counter",
        name: known.name,
        number: None,
        cause: says.map_or(known.help, |abnormal| abnormal.says),
        compare: says.map_or("nothing: a rise does not mean that anything is wrong", |_| {
            "how fast it rises (bareverbs monitor), against the packets of the port; the same counter at the other end"
        }),
        attempt: says.map_or("nothing", |abnormal| abnormal.fix),
    }
}

fn text(explanation: &Explanation) -> String {
    let Explanation { id, kind, name, number, cause, compare, attempt } = explanation;
    let number = number.map_or(String::new(), |number| format!(" {number:#x}"));
    format!(
        "{name} ({kind}{number}) [{id}]\n  cause    {cause}\n  compare  {compare}\n  try      {attempt}\n"
    )
}

/// Numbers in the device's tables without an explanation, for the test of the tables.
pub fn unexplained() -> Vec<&'static str> {
    let explained = |name: &str| entries().any(|entry| entry.names.contains(&name));
    let tables = [
        CqeSyndrome::INFO.rows,
        CommandStatus::INFO.rows,
        DeliveryStatus::INFO.rows,
        HealthSyndrome::INFO.rows,
        CqErrorSyndrome::INFO.rows,
    ];
    let rows = tables.into_iter().flatten();
    rows.map(|row| row.name).filter(|name| !explained(name)).collect()
}

#[cfg(test)]
mod tests;

//! `bareverbs explain`: what a status, a syndrome or an error name means, which values to compare, and what to try.
//!
//! **What this is.** A table and its look-up. **What it may not do.** Ask a device: everything here is known beforehand;
//! what a queue pair itself has to say is `QueuePair::diagnose` of the driver.

mod table;

use crate::Failure;
use bareverbs_prm::numbering::{CommandStatus, CqeSyndrome};
use bareverbs_sim::nic::syndrome::ALL;
use clap::Args;
use serde::Serialize;
use table::{ENTRIES, Entry};

/// Explain a completion status, a syndrome, a command status or the name of an error.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// As in «12», «0x81», «IBV_WC_RETRY_EXC_ERR», «BAD_QP_STATE_ERR», «EINVAL»; without it, everything that is known.
    pub what: Option<String>,
    /// One JSON array in place of text.
    #[arg(long)]
    pub json: bool,
}

/// One explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What kind of number or name it is.
    pub kind: &'static str,
    /// Its name in the manual or the header.
    pub name: &'static str,
    /// Its number, where it has one.
    pub number: Option<u32>,
    /// What has happened.
    pub cause: &'static str,
    /// Values to look at, at both ends.
    pub compare: &'static str,
    /// What to do.
    pub attempt: &'static str,
}

/// Prints what is known; says whether anything is.
pub fn run(arguments: &ExplainArguments) -> Result<bool, Failure> {
    let found = match &arguments.what {
        Some(what) => explain(what),
        None => ENTRIES.iter().map(explanation).collect(),
    };
    if found.is_empty() {
        let what = arguments.what.as_deref().unwrap_or_default();
        return Err(Failure::Input(anyhow::anyhow!(
            "nothing is known of «{what}»: give a completion status, a syndrome, a command status or an error name"
        )));
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&found).map_err(anyhow::Error::from)?);
    } else {
        found.iter().for_each(print);
    }
    Ok(true)
}

/// Everything that a number or a name may mean, in the order of the table.
pub fn explain(what: &str) -> Vec<Explanation> {
    let (name, number) = (what.trim().to_ascii_uppercase(), number(what.trim()));
    let matches = |entry: &&Entry| {
        number.is_some_and(|number| entry.number == Some(number))
            || entry.names.iter().any(|known| *known == name)
    };
    let known = ENTRIES.iter().filter(matches).map(explanation);
    let refused = ALL.iter().filter(|refusal| number == Some(refusal.syndrome)).map(|refusal| Explanation {
        kind: "command syndrome of the simulated NIC",
        name: refusal.status.name(),
        number: Some(refusal.syndrome),
        cause: refusal.reason,
        compare: "the field that the cause names, as the command carried it",
        attempt: "mend that field; a real device has syndromes of its own",
    });
    known.chain(refused).collect()
}

fn explanation(entry: &Entry) -> Explanation {
    let Entry { kind, names, number, cause, compare, attempt } = *entry;
    Explanation {
        kind: kind.name(),
        name: names.first().copied().unwrap_or(""),
        number,
        cause,
        compare,
        attempt,
    }
}

/// Decimal, or hexadecimal with 0x.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn print(explanation: &Explanation) {
    let Explanation { kind, name, number, cause, compare, attempt } = explanation;
    match number {
        Some(number) => println!("{name} ({kind} {number:#x})"),
        None => println!("{name} ({kind})"),
    }
    println!("  cause    {cause}");
    println!("  compare  {compare}");
    println!("  try      {attempt}\n");
}

/// Whether every number of the device's two tables is explained; for the test of the table.
pub fn unexplained() -> Vec<&'static str> {
    let explained = |name: &str| ENTRIES.iter().any(|entry| entry.names.contains(&name));
    let rows = CqeSyndrome::INFO.rows.iter().chain(CommandStatus::INFO.rows);
    rows.map(|row| row.name).filter(|name| *name != "OK" && !explained(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_device_is_explained() {
        assert_eq!(unexplained(), [""; 0]);
    }

    #[test]
    fn numbers_and_names_lead_to_the_same_row() {
        let by_name = explain("ibv_wc_retry_exc_err");
        assert_eq!(by_name.len(), 1);
        for what in ["12", "0x15", "TRANSPORT_RETRY_EXC_ERR"] {
            assert!(explain(what).iter().any(|row| row.cause == by_name[0].cause), "{what}");
        }
        assert!(explain("0x81").iter().any(|row| row.kind == "vendor syndrome"));
        assert!(explain("no such thing").is_empty());
    }

    #[test]
    fn a_syndrome_of_the_simulated_firmware_is_known() {
        let rows = explain("0xb00070");
        assert_eq!((rows.len(), rows[0].name), (1, "BAD_QP_STATE_ERR"));
    }

    #[test]
    fn every_row_says_something() {
        for row in ENTRIES.iter().map(explanation) {
            for text in [row.name, row.cause, row.compare, row.attempt] {
                assert!(!text.is_empty(), "{row:?}");
            }
        }
    }
}

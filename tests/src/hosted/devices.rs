//! Whether `bareverbs devinfo` and `bareverbs gids` show the same of a host's device as programs see through
//! the kernel's interface.
//!
//! Both look at the same simulated device: `ibv_devinfo -v` through libibverbs, our tools through our driver.
//! The checked-in list says which fields are compared, and how each is written.

use crate::installation::{HostedProgram, Installation, printed_fields};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::net::Ipv6Addr;

const LIST: &str = include_str!("../../judges/run-devinfo.csv");
const HOST: &str = "a";
/// Link layers of the host's port.
const LINKS: [&str; 2] = ["eth", "ib"];

/// A field that both show.
#[derive(Debug)]
struct SharedField {
    /// Its name in `ibv_devinfo`.
    field: String,
    /// Where `devinfo --json` has it.
    section: String,
    name: String,
    reading: Reading,
}

/// How `ibv_devinfo` writes the value.
#[derive(Debug, Clone, Copy)]
enum Reading {
    Text,
    /// Decimal, or hexadecimal with 0x.
    Number,
    /// The number before the parentheses, as in `1 (1)`; `None` for `invalid value (0)`.
    NumberOrNone,
    /// Only the leading digits count: `4096 (5)`, `4X (2)`.
    FirstNumber,
    /// The number in parentheses: `PORT_ACTIVE (4)`.
    InParentheses,
    /// `25.0 Gbps (32)`, per lane; the tool shows Mbit/s.
    Gigabits,
}

impl SharedField {
    fn parse(row: &csv::StringRecord) -> Result<Self> {
        let reading = match &row[3] {
            "text" => Reading::Text,
            "number" => Reading::Number,
            "number or none" => Reading::NumberOrNone,
            "first number" => Reading::FirstNumber,
            "in parentheses" => Reading::InParentheses,
            "gigabits" => Reading::Gigabits,
            other => bail!("{other:?} is no way to read a value"),
        };
        Ok(Self { field: row[0].to_owned(), section: row[1].to_owned(), name: row[2].to_owned(), reading })
    }
}

impl Reading {
    fn read(self, text: &str) -> Result<Value> {
        let number = |digits: &str| -> Result<Value> {
            let parsed = match digits.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => digits.parse(),
            };
            Ok(parsed.with_context(|| format!("{text:?} holds no number"))?.into())
        };
        match self {
            Self::Text => Ok(text.into()),
            Self::Number => number(text),
            Self::NumberOrNone if text.starts_with("invalid value") => Ok(Value::Null),
            Self::NumberOrNone | Self::FirstNumber => {
                number(&text[..text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len())])
            }
            Self::InParentheses => {
                let inside = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
                number(inside.context("no parentheses")?.0)
            }
            Self::Gigabits => {
                let rate: f64 = text.split(' ').next().unwrap_or_default().parse()?;
                Ok(((rate * 1000.0).round() as u64).into())
            }
        }
    }
}

/// Compares every field of the list, on a port of each link layer.
pub fn judge_fields(installation: &Installation) -> Result<()> {
    LINKS.iter().try_for_each(|link| judge_fields_on(installation, link))
}

fn judge_fields_on(installation: &Installation, link: &str) -> Result<()> {
    let printed = printed_fields(&said(installation, "ibv_devinfo -v", link)?);
    let own = object(installation, "devinfo", link)?;
    let mut reader = csv::Reader::from_reader(LIST.as_bytes());
    let mut compared = 0;
    for row in reader.records() {
        let SharedField { field, section, name, reading } = SharedField::parse(&row?)?;
        let text = printed.get(&field).with_context(|| format!("ibv_devinfo -v has no {field}"))?;
        let theirs = reading.read(text).with_context(|| field.clone())?;
        let ours = &own[&section][&name];
        ensure!(
            *ours == theirs,
            "--link {link}: {field} is {theirs} through libibverbs, and devinfo shows {section}.{name} {ours}"
        );
        compared += 1;
    }
    ensure!(compared > 0, "the list is empty");
    Ok(())
}

/// Compares both GID tables entry by entry: index, GID, version. Runs on a port of each link layer.
pub fn judge_gids(installation: &Installation) -> Result<()> {
    LINKS.iter().try_for_each(|link| judge_gids_on(installation, link))
}

fn judge_gids_on(installation: &Installation, link: &str) -> Result<()> {
    let theirs = kernel_table(&said(installation, "ibv_devinfo -v", link)?)?;
    let own = object(installation, "gids", link)?;
    let ours = own["entries"].as_array().context("a table")?;
    let ours: Vec<GidRow> = ours.iter().map(own_row).collect::<Result<_>>()?;
    ensure!(!theirs.is_empty() && theirs == ours, "libibverbs has {theirs:?}, and gids shows {ours:?}");
    Ok(())
}

/// Index, GID and RoCE version of an entry; an InfiniBand port has no version.
type GidRow = (u64, Ipv6Addr, Option<String>);

/// Parses lines like `GID[  0]: ::ffff:10.0.0.1, RoCE v2`; InfiniBand has no comma and version. The kernel's
/// table has no lines for empty entries.
fn kernel_table(text: &str) -> Result<Vec<GidRow>> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("GID["));
    lines
        .map(|line| {
            let (index, rest) = line.split_once("]:").context("GID[ without ]:")?;
            let (gid, version) = match rest.trim().split_once(", ") {
                Some((gid, kind)) => {
                    let version =
                        kind.strip_prefix("RoCE ").with_context(|| format!("the version {kind}"))?;
                    (gid, Some(version.to_owned()))
                }
                None => (rest.trim(), None),
            };
            Ok((index.trim().parse()?, gid.parse()?, version))
        })
        .collect()
}

fn own_row(entry: &Value) -> Result<GidRow> {
    let gid: Ipv6Addr = entry["gid"].as_str().context("a GID")?.parse()?;
    let version = entry["version"].as_str().map(str::to_owned);
    Ok((entry["index"].as_u64().context("an index")?, gid, version))
}

fn said(installation: &Installation, command: &str, link: &str) -> Result<String> {
    let command = command.split(' ').map(str::to_owned).collect();
    let options = ["--link".to_owned(), link.to_owned()];
    let ended = installation.run(&HostedProgram { host: HOST.into(), command }, &options)?;
    if !ended.status.success() {
        bail!("{}: {}", ended.status, ended.said);
    }
    Ok(ended.said)
}

fn object(installation: &Installation, tool: &str, link: &str) -> Result<Value> {
    let said = said(installation, &format!("bareverbs {tool} --json"), link)?;
    let mut object: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
    Ok(object[tool].take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_ibv_devinfo_writes_them() {
        for (reading, text, value) in [
            (Reading::Text, "Ethernet", Value::from("Ethernet")),
            (Reading::Number, "0x40000000", 1_073_741_824_u64.into()),
            (Reading::Number, "0x00", 0.into()),
            (Reading::FirstNumber, "4096 (5)", 4096.into()),
            (Reading::FirstNumber, "4X (2)", 4.into()),
            (Reading::NumberOrNone, "15 (5)", 15.into()),
            (Reading::NumberOrNone, "invalid value (0)", Value::Null),
            (Reading::InParentheses, "PORT_ACTIVE (4)", 4.into()),
            (Reading::Gigabits, "25.0 Gbps (32)", 25_000.into()),
        ] {
            assert_eq!(reading.read(text).unwrap(), value, "{text}");
        }
        assert!(Reading::Number.read("none").is_err() && Reading::InParentheses.read("4").is_err());
    }

    #[test]
    fn the_table_is_read_with_its_indices() {
        let text = "\t\t\tGID[  0]:\t\t::ffff:10.0.0.1, RoCE v2\n\t\t\tGID[  2]:\t\tfe80::1, RoCE v1\n\t\t\tGID[  3]:\t\tfe80::2\n";
        let rows = kernel_table(text).unwrap();
        assert_eq!(rows[0], (0, "::ffff:10.0.0.1".parse().unwrap(), Some("v2".into())));
        assert_eq!(rows[1], (2, "fe80::1".parse().unwrap(), Some("v1".into())));
        assert_eq!(rows[2], (3, "fe80::2".parse().unwrap(), None));
        let entry = serde_json::json!({"index": 2, "gid": "fe80:0000:0000:0000:0000:0000:0000:0001", "version": "v1"});
        assert_eq!(own_row(&entry).unwrap(), rows[1]);
    }
}

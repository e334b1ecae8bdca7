//! Whether `bareverbs devinfo` and `bareverbs gids` show the same of a device as `ibv_devinfo -v`.
//!
//! Checked-in lists name every field that `ibv_devinfo -v` prints:
//!
//! * `run-devinfo.csv`: which fields are compared, and how each is written
//! * `run-devinfo-differs.csv`: which of these differ under `bareverbs run` on a link layer, or with Linux, with both values and the reason
//! * `run-devinfo-others.csv`: which fields are not compared, with the reason
//!
//! A printed field that no list names is a failure.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

const LIST: &str = include_str!("../judges/run-devinfo.csv");
const DIFFERS: &str = include_str!("../judges/run-devinfo-differs.csv");
const OTHERS: &str = include_str!("../judges/run-devinfo-others.csv");
/// The kernel of `bareverbs run` in the list of differences: the link layers of its port.
pub const LINKS: [&str; 2] = ["eth", "ib"];
/// Linux in the list of differences.
pub const LINUX: &str = "linux";

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
    /// `0x1321C26`; the tool writes it as text, in small letters.
    Hexadecimal,
    /// `LINK_UP (5)`; the tool shows the word that `ibstat` has for the number.
    PhysicalState,
    /// Names of flags for on-demand paging; the tool shows their bits.
    Paging,
}

/// Names of flags for on-demand paging, and their bits (`enum ibv_odp_general_caps`, `enum ibv_odp_transport_cap_bits`).
const PAGING: [(&str, u64); 8] = [
    ("ODP_SUPPORT", 1 << 0),
    ("ODP_SUPPORT_IMPLICIT", 1 << 1),
    ("SUPPORT_SEND", 1 << 0),
    ("SUPPORT_RECV", 1 << 1),
    ("SUPPORT_WRITE", 1 << 2),
    ("SUPPORT_READ", 1 << 3),
    ("SUPPORT_ATOMIC", 1 << 4),
    ("SUPPORT_SRQ", 1 << 5),
];

/// Words of `ibstat` for the physical states 1 to 7 (IBTA v1.4 §14.2.5.6).
const PHYSICAL_STATES: [&str; 7] =
    ["Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "PhyTest"];

/// A field that differs on purpose on one link layer.
#[derive(Debug)]
struct KnownDifference {
    field: String,
    link: String,
    /// As `ibv_devinfo` prints it.
    theirs: String,
    /// What `devinfo` shows, written as `ibv_devinfo` would print it.
    ours: String,
}

fn rows(list: &str) -> Result<Vec<csv::StringRecord>> {
    Ok(csv::Reader::from_reader(list.as_bytes()).records().collect::<Result<_, _>>()?)
}

fn known_differences() -> Result<Vec<KnownDifference>> {
    let parse = |row: &csv::StringRecord| {
        ensure!(!row[4].is_empty(), "{} has no reason", &row[0]);
        let [field, link, theirs, ours] = [0, 1, 2, 3].map(|column| row[column].to_owned());
        Ok(KnownDifference { field, link, theirs, ours })
    };
    rows(DIFFERS)?.iter().map(parse).collect()
}

/// Names of the fields that are not compared.
fn others() -> Result<BTreeSet<String>> {
    let parse = |row: &csv::StringRecord| {
        ensure!(!row[1].is_empty(), "{} has no reason", &row[0]);
        Ok(row[0].to_owned())
    };
    rows(OTHERS)?.iter().map(parse).collect()
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
            "hexadecimal" => Reading::Hexadecimal,
            "physical state" => Reading::PhysicalState,
            "paging" => Reading::Paging,
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
            Self::Hexadecimal => {
                let value = number(text)?.as_u64().context("no number")?;
                Ok(format!("{value:#x}").into())
            }
            Self::PhysicalState => {
                let state = Self::InParentheses.read(text)?.as_u64().context("no number")?;
                let word = (state as usize).checked_sub(1).and_then(|index| PHYSICAL_STATES.get(index));
                Ok((*word.with_context(|| format!("{text:?} is no physical state"))?).into())
            }
            Self::Paging => paging(text),
        }
    }
}

/// The bits of names; none are `NO SUPPORT` or nothing.
fn paging(text: &str) -> Result<Value> {
    let bit = |name: &str| {
        let found = PAGING.iter().find(|(known, _)| *known == name);
        found.map(|(_, bit)| *bit).with_context(|| format!("{name:?} is no flag of on-demand paging"))
    };
    let names = text.split(", ").filter(|name| !["", "NO SUPPORT"].contains(name));
    Ok(names.map(bit).try_fold(0, |flags, bit| anyhow::Ok(flags | bit?))?.into())
}

/// The fields that `ibv_devinfo -v` prints, without GIDs. A heading whose flags stand in the following lines has their names,
/// separated by commas.
fn field_values(text: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let mut heading: Option<String> = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("GID[")) {
        if let Some((name, value)) = line.split_once(':') {
            heading = value.trim().is_empty().then(|| name.to_owned());
            fields.insert(name.to_owned(), value.trim().to_owned());
        } else if let Some(value) = heading.as_ref().and_then(|name| fields.get_mut(name)) {
            let comma = if value.is_empty() { "" } else { ", " };
            *value += &format!("{comma}{line}");
        }
    }
    fields
}

/// Compares every field of the list. `text` is what `ibv_devinfo -v` prints, `own` the object of `devinfo --json`. Some fields differ, depending on
/// whose kernel it is: [`LINUX`], or that of `bareverbs run` with a port of one of [`LINKS`].
pub fn compare_fields(text: &str, own: &Value, kernel: &str) -> Result<()> {
    let printed = field_values(text);
    let known = known_differences()?;
    let mut faults = Vec::new();
    let mut named = others()?;
    for row in rows(LIST)? {
        let shared = SharedField::parse(&row)?;
        let known = known.iter().find(|known| known.field == shared.field && known.link == kernel);
        faults.extend(compare_field(&shared, &printed, own, known)?);
        named.insert(shared.field);
    }
    faults.extend(unnamed(&printed, &named));
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(())
}

/// What is wrong with a field. One that is known to differ has to have both known values.
fn compare_field(
    shared: &SharedField,
    printed: &BTreeMap<String, String>,
    own: &Value,
    known: Option<&KnownDifference>,
) -> Result<Option<String>> {
    let SharedField { field, section, name, reading } = shared;
    let text = printed.get(field).with_context(|| format!("ibv_devinfo -v has no {field}"))?;
    let read = |text: &str| reading.read(text).with_context(|| field.clone());
    let (theirs, ours) = (read(text)?, &own[section][name]);
    let (wanted_theirs, wanted_ours) = match known {
        Some(known) => (read(&known.theirs)?, read(&known.ours)?),
        None => (theirs.clone(), theirs.clone()),
    };
    let right = theirs == wanted_theirs && *ours == wanted_ours;
    Ok((!right).then(|| {
        format!(
            "{field} is {theirs} through libibverbs, and devinfo shows {section}.{name} {ours}; \
             wanted {wanted_theirs} and {wanted_ours}"
        )
    }))
}

/// A line for each printed field that no list names.
fn unnamed(printed: &BTreeMap<String, String>, named: &BTreeSet<String>) -> Vec<String> {
    let unknown = printed.keys().filter(|field| !named.contains(*field));
    unknown.map(|field| format!("ibv_devinfo -v prints {field}, which no list names")).collect()
}

/// Compares both GID tables entry by entry: index, GID, version. `own` is the object of `gids --json`.
pub fn compare_gids(text: &str, own: &Value) -> Result<()> {
    let theirs = kernel_table(text)?;
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
            (Reading::FirstNumber, "1000000kHZ", 1_000_000.into()),
            (Reading::Hexadecimal, "0x1321C26", "0x1321c26".into()),
            (Reading::Hexadecimal, "0x0", "0x0".into()),
            (Reading::PhysicalState, "LINK_UP (5)", "LinkUp".into()),
            (Reading::PhysicalState, "DISABLED (3)", "Disabled".into()),
            (Reading::Paging, "", 0.into()),
            (Reading::Paging, "NO SUPPORT", 0.into()),
            (Reading::Paging, "SUPPORT_SEND, SUPPORT_SRQ", 33.into()),
        ] {
            assert_eq!(reading.read(text).unwrap(), value, "{text}");
        }
        assert!(Reading::Number.read("none").is_err() && Reading::InParentheses.read("4").is_err());
        assert!(Reading::PhysicalState.read("odd (9)").is_err() && Reading::Paging.read("FLY").is_err());
    }

    #[test]
    fn flags_below_a_heading_belong_to_it() {
        let text = "\tdevice_cap_flags:\t\t0x6\n\t\t\tBAD_PKEY_CNTR\n\tgeneral_odp_caps:\n\trc_odp_caps:\n\t\t\tSUPPORT_SEND\n\t\t\tSUPPORT_RECV\n\ttso_caps:\n\tmax_tso:\t0\n\t\tGID[  0]:\t\tfe80::1\n";
        let fields = field_values(text);
        assert_eq!(fields["device_cap_flags"], "0x6");
        assert_eq!(
            (&*fields["general_odp_caps"], &*fields["rc_odp_caps"]),
            ("", "SUPPORT_SEND, SUPPORT_RECV")
        );
        assert_eq!((&*fields["tso_caps"], fields.len()), ("", 5));
    }

    #[test]
    fn each_field_is_in_exactly_one_list_and_known_differences_are_compared() {
        let compared: Vec<String> =
            rows(LIST).unwrap().iter().map(|row| SharedField::parse(row).unwrap().field).collect();
        let unique: BTreeSet<String> = compared.iter().cloned().collect();
        assert_eq!(compared.len(), unique.len(), "a field is compared twice");
        assert_eq!(unique.intersection(&others().unwrap()).count(), 0);
        for known in known_differences().unwrap() {
            assert!(
                unique.contains(&known.field) && (LINKS.contains(&&*known.link) || known.link == LINUX),
                "{known:?}"
            );
        }
    }

    #[test]
    fn a_field_that_no_list_names_is_a_fault() {
        let printed = field_values("max_qp: 4\nmax_flux_capacitors: 2\n");
        let faults = unnamed(&printed, &BTreeSet::from(["max_qp".to_owned()]));
        assert_eq!(faults, ["ibv_devinfo -v prints max_flux_capacitors, which no list names"]);
    }

    #[test]
    fn a_known_difference_needs_both_of_its_values() {
        let shared = SharedField {
            field: "max_tso".into(),
            section: "limits".into(),
            name: "max_tso".into(),
            reading: Reading::Number,
        };
        let known = KnownDifference {
            field: "max_tso".into(),
            link: "eth".into(),
            theirs: "0".into(),
            ours: "8".into(),
        };
        let fault = |theirs: &str, ours: u64, known: Option<&KnownDifference>| {
            let printed = field_values(&format!("max_tso: {theirs}"));
            compare_field(&shared, &printed, &serde_json::json!({"limits": {"max_tso": ours}}), known)
                .unwrap()
        };
        assert_eq!(fault("0", 8, Some(&known)), None);
        assert_eq!(fault("8", 8, None), None);
        for (theirs, ours, known) in [("8", 8, Some(&known)), ("0", 0, Some(&known)), ("0", 8, None)] {
            assert!(fault(theirs, ours, known).is_some(), "{theirs} {ours} {known:?}");
        }
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

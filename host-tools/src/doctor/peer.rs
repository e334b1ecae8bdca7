//! The other end as the command line names it: by its address, or by the output of `bareverbs doctor` there.

use super::facts::{EndFacts, GidFact, gid_of};
use crate::Failure;
use crate::input_file::{read_text_at_most, take_at_most, text_of};
use anyhow::{Context as _, anyhow};
use serde_json::Value;
use std::convert::Infallible;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Largest report that is read, in bytes.
pub(super) const LARGEST_FILE: u64 = 16 << 20;

/// How the other end is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PeerArgument {
    Address(IpAddr),
    Report(PathBuf),
}

impl FromStr for PeerArgument {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::Report(text.into()), Self::Address))
    }
}

impl PeerArgument {
    /// The facts about the other end.
    ///
    /// # Errors
    /// [`Failure::Input`] if the report cannot be read or is none.
    pub(super) fn read(&self, version: u8, vlan: Option<u16>) -> Result<EndFacts, Failure> {
        match self {
            Self::Address(ip) => Ok(EndFacts {
                port: None,
                gids: vec![GidFact { index: 0, gid: gid_of(*ip), version, vlan, prefix: Some(128) }],
                partition_keys: Vec::new(),
            }),
            Self::Report(path) => {
                let text = read_text(path).map_err(Failure::Input)?;
                end_of(&text)
                    .with_context(|| {
                        format!("{} is not a report of `bareverbs doctor --json`", path.display())
                    })
                    .map_err(Failure::Input)
            }
        }
    }
}

/// A whole file, or standard input for `-`.
pub(super) fn read_text(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let read = take_at_most(std::io::stdin().lock(), LARGEST_FILE).and_then(text_of);
        return read.context("cannot read standard input");
    }
    read_text_at_most(path, LARGEST_FILE).with_context(|| format!("cannot read {}", path.display()))
}

/// The end in a report.
fn end_of(text: &str) -> anyhow::Result<EndFacts> {
    let mut object: Value = serde_json::from_str(text).context("it is not JSON")?;
    match object.get("schema").and_then(Value::as_str) {
        Some("bareverbs.doctor.v1") => {}
        Some(other) => return Err(anyhow!("its schema is {other:?}, and not \"bareverbs.doctor.v1\"")),
        None => return Err(anyhow!("it has no \"schema\"")),
    }
    match object.pointer_mut("/doctor/end").map(Value::take) {
        None | Some(Value::Null) => {
            Err(anyhow!("the device was not open at that end: see the findings there first"))
        }
        Some(end) => serde_json::from_value(end).context("its \"end\" has another shape"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_no_file() {
        assert_eq!("10.0.0.1".parse(), Ok(PeerArgument::Address(IpAddr::from([10, 0, 0, 1]))));
        assert!(matches!("other.json".parse(), Ok(PeerArgument::Report(_))));
    }

    #[test]
    fn a_report_that_is_none_says_why() {
        for (text, why) in [
            ("", "it is not JSON"),
            ("[]", "it has no \"schema\""),
            (r#"{"schema": "bareverbs.gids.v1"}"#, "its schema is \"bareverbs.gids.v1\""),
            (r#"{"schema": "bareverbs.doctor.v1", "doctor": {"end": null}}"#, "not open at that end"),
            (r#"{"schema": "bareverbs.doctor.v1", "doctor": {"end": 7}}"#, "another shape"),
        ] {
            let error = end_of(text).expect_err(text);
            assert!(format!("{error:#}").contains(why), "{text}: {error:#}");
        }
    }
}

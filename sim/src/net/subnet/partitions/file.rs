//! Parser for partition files in OpenSM's format: `name=number, flags : members ;`, over any number of lines.

use super::model::{DEFAULT_PARTITION, Members, PARTITION_KEYS, Partition, PartitionMembership, Partitions};
use crate::wire::MEMBERSHIP_BIT;

/// Largest file in bytes.
const LIMIT: usize = 1 << 20;

/// An error in a partition file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionFileError {
    /// Line number, counted from 1.
    pub line: usize,
    /// The problem, and what would be valid.
    pub problem: String,
}

impl core::fmt::Display for PartitionFileError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl core::error::Error for PartitionFileError {}

impl Partitions {
    /// Parses a partition file in the format of OpenSM's `partitions.conf`. With such partitions, switch ports with an
    /// attached adapter enforce P_Keys where they can.
    ///
    /// The SM's port is always a full member of the default partition, and a port that no rule names is a limited
    /// member of it. A partition without a number gets a free one.
    ///
    /// # Errors
    ///
    /// [`PartitionFileError`] with the line and the problem. Multicast groups defined in the file (`mgid=`) are
    /// refused.
    pub fn parse(text: &str) -> Result<Self, PartitionFileError> {
        Ok(Self { partitions: read(text)?, is_enforced: true })
    }
}

/// A definition: the text before a semicolon, and the line it starts on.
struct Definition {
    line: usize,
    text: String,
}

/// The part of a definition before the colon.
struct Heading {
    number: Option<u16>,
    is_default: bool,
    has_ip: bool,
    usual: PartitionMembership,
}

/// Parses all partitions, the default partition first.
fn read(text: &str) -> Result<Vec<Partition>, PartitionFileError> {
    if text.len() > LIMIT {
        return Err(at(1, format!("the partition file has {} bytes; the limit is {LIMIT}", text.len())));
    }
    let mut partitions = vec![default_partition()];
    for definition in definitions(text)? {
        let (heading, members) = read_definition(&definition)?;
        add(&mut partitions, &heading, members).map_err(|problem| at(definition.line, problem))?;
        let keys: usize = partitions.iter().map(entries).sum();
        if keys > PARTITION_KEYS {
            let problem = format!(
                "a port's P_Key table has {PARTITION_KEYS} entries; with this partition it would need {keys}"
            );
            return Err(at(definition.line, problem));
        }
    }
    let default = &mut partitions[0];
    if default.members.len() == 1 {
        default.members.push((Members::All, PartitionMembership::Limited));
    }
    Ok(partitions)
}

/// The default partition. The SM's port is always a full member.
fn default_partition() -> Partition {
    Partition {
        number: DEFAULT_PARTITION,
        has_ip: false,
        members: vec![(Members::Manager, PartitionMembership::Full)],
    }
}

/// Maximum number of P_Key table entries that a partition takes.
fn entries(partition: &Partition) -> usize {
    1 + usize::from(partition.members.iter().any(|(_, membership)| *membership == PartitionMembership::Both))
}

/// Splits the text at semicolons and strips `#` comments.
fn definitions(text: &str) -> Result<Vec<Definition>, PartitionFileError> {
    let mut all = Vec::new();
    let mut open = Definition { line: 1, text: String::new() };
    for (line, content) in (1..).zip(text.lines()) {
        let mut rest = content.split('#').next().unwrap_or_default();
        while let Some((before, behind)) = rest.split_once(';') {
            open.add(line, before);
            all.push(core::mem::replace(&mut open, Definition { line, text: String::new() }));
            rest = behind;
        }
        open.add(line, rest);
    }
    all.retain(|definition| !definition.text.trim().is_empty());
    match open.text.trim() {
        "" => Ok(all),
        _ => Err(at(open.line, "a semicolon is missing at the end of the definition".to_owned())),
    }
}

impl Definition {
    fn add(&mut self, line: usize, text: &str) {
        if self.text.trim().is_empty() {
            self.line = line;
        }
        self.text.push_str(text);
        self.text.push(' ');
    }
}

fn read_definition(
    definition: &Definition,
) -> Result<(Heading, Vec<(Members, PartitionMembership)>), PartitionFileError> {
    let problem = |problem| at(definition.line, problem);
    let Some((heading, members)) = definition.text.split_once(':') else {
        return Err(problem("a colon is missing between the partition and its members".to_owned()));
    };
    let heading = read_heading(heading).map_err(problem)?;
    let words = members.split(',').map(str::trim).filter(|word| !word.is_empty());
    let members: Result<Vec<_>, String> = words.map(|word| read_member(word, heading.usual)).collect();
    Ok((heading, members.map_err(problem)?))
}

/// Parses `name=number, flag, flag=value …`.
fn read_heading(text: &str) -> Result<Heading, String> {
    let mut words = text.split(',').map(str::trim);
    let (name, number) = split_value(words.next().unwrap_or_default());
    let is_default = name == "Default";
    let number = number.map(read_partition_number).transpose()?;
    if is_default && number.is_some_and(|number| number != DEFAULT_PARTITION) {
        return Err("the number of the partition Default is always 0x7fff; leave the number out".to_owned());
    }
    let mut heading = Heading { number, is_default, has_ip: false, usual: PartitionMembership::Limited };
    for word in words.filter(|word| !word.is_empty()) {
        match split_value(word) {
            ("ipoib", None) => heading.has_ip = true,
            ("defmember", Some(value)) => heading.usual = read_membership(value)?,
            // These concern the broadcast group, whose attributes IPoIB determines here, and the index in a table,
            // which follows the file's order.
            ("mtu" | "rate" | "sl" | "scope" | "Q_Key" | "TClass" | "FlowLabel", Some(_))
            | ("indx0", None) => {}
            ("mgid", _) => {
                return Err(
                    "mgid= is not supported: a multicast group is created when a port joins it".to_owned()
                );
            }
            (other, _) => {
                return Err(format!(
                    "'{other}' is not a partition flag; the flags are ipoib, defmember=full|limited|both, indx0, mtu=, rate=, sl=, scope=, Q_Key=, TClass=, FlowLabel="
                ));
            }
        }
    }
    Ok(heading)
}

/// Parses a GUID or a named set of ports, with its membership.
fn read_member(word: &str, usual: PartitionMembership) -> Result<(Members, PartitionMembership), String> {
    let (name, membership) = split_value(word);
    let membership = membership.map_or(Ok(usual), read_membership)?;
    let members = match name {
        "ALL" => Members::All,
        "ALL_CAS" => Members::Adapters,
        "ALL_SWITCHES" => Members::Switches,
        "ALL_ROUTERS" => Members::Routers,
        "SELF" => Members::Manager,
        guid => Members::Guid(read_number(guid).filter(|guid| *guid != 0).ok_or_else(|| {
            format!(
                "'{guid}' is not a member; use a port's GUID (0x…), ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS or SELF"
            )
        })?),
    };
    Ok((members, membership))
}

/// OpenSM accepts any prefix of these words.
fn read_membership(word: &str) -> Result<PartitionMembership, String> {
    let begins = |whole: &str| !word.is_empty() && whole.starts_with(word);
    match () {
        () if begins("full") => Ok(PartitionMembership::Full),
        () if begins("limited") => Ok(PartitionMembership::Limited),
        () if begins("both") => Ok(PartitionMembership::Both),
        () => Err(format!("'{word}' is not a membership; use full, limited or both")),
    }
}

fn read_partition_number(word: &str) -> Result<u16, String> {
    let number = read_number(word)
        .and_then(|number| u16::try_from(number).ok())
        .map(|number| number & !MEMBERSHIP_BIT);
    number.filter(|number| *number != 0).ok_or_else(|| {
        format!(
            "'{word}' is not a partition number; use 0x1 to 0x7fff, with or without the membership bit 0x8000"
        )
    })
}

/// Parses a number as in C: hexadecimal with `0x`, otherwise decimal.
fn read_number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn split_value(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (word.trim(), None),
    }
}

/// Adds a partition. A repeated definition adds members.
fn add(
    partitions: &mut Vec<Partition>,
    heading: &Heading,
    members: Vec<(Members, PartitionMembership)>,
) -> Result<(), String> {
    let number = match (heading.is_default, heading.number) {
        (true, _) => DEFAULT_PARTITION,
        (false, Some(number)) => number,
        (false, None) => free_number(partitions).ok_or("all partition numbers are in use")?,
    };
    match partitions.iter_mut().find(|partition| partition.number == number) {
        Some(known) => {
            known.has_ip |= heading.has_ip;
            known.members.extend(members);
        }
        None => partitions.push(Partition { number, has_ip: heading.has_ip, members }),
    }
    Ok(())
}

fn free_number(partitions: &[Partition]) -> Option<u16> {
    (1..DEFAULT_PARTITION).find(|number| partitions.iter().all(|partition| partition.number != *number))
}

const fn at(line: usize, problem: String) -> PartitionFileError {
    PartitionFileError { line, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_is_read_as_opensm_reads_it() {
        let text = "\
# of a site
Default=0x7fff, ipoib, mtu=5 : ALL=full,
    SELF=full ;
storage=0x8010,defmember=full : 0x0002c90300000021, 33=limi ; unnumbered : SELF;
storage=0x10 : ALL_CAS;";
        let partitions = read(text).expect("a file");
        let numbers: Vec<_> =
            partitions.iter().map(|partition| (partition.number, partition.has_ip)).collect();
        assert_eq!(numbers, [(0x7fff, true), (0x10, false), (1, false)]);
        let storage = [
            (Members::Guid(0x0002_c903_0000_0021), PartitionMembership::Full),
            (Members::Guid(33), PartitionMembership::Limited),
            (Members::Adapters, PartitionMembership::Limited),
        ];
        assert_eq!(partitions[1].members, storage);
    }

    #[test]
    fn errors_have_line_and_cause() {
        let wrong = [
            ("\nA=0x1 ALL;", 2, "colon"),
            ("A=0x1 : ALL", 1, "semicolon"),
            ("A=0x8000 : ALL;", 1, "not a partition number"),
            ("A=0x10000 : ALL;", 1, "not a partition number"),
            ("Default=5 : ALL;", 1, "0x7fff"),
            ("\n\nA=1,colour=red : ALL;", 3, "'colour' is not a partition flag"),
            ("A=1 : ALL=most;", 1, "'most' is not a membership"),
            ("A=1 : EVERYBODY;", 1, "'EVERYBODY' is not a member"),
            ("A=1 : 0;", 1, "not a member"),
            ("A=1, mgid=ff12:401b::1 : ALL;", 1, "mgid= is not supported"),
        ];
        for (text, line, problem) in wrong {
            let error = read(text).expect_err(text);
            assert!(error.line == line && error.to_string().contains(problem), "{text}: {error}");
        }
        let many: String = (1..40).map(|number| format!("P{number}={number} : ALL;\n")).collect();
        assert_eq!(read(&many).expect_err("too many").line, 32);
    }

    proptest! {
        /// Any text is either parsed or refused.
        #[test]
        fn any_text_is_read_or_refused(text in "[A-Za-z0-9=,:;# \n]{0,200}") {
            let _ = read(&text);
        }
    }
}

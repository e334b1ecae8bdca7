//! One case of the judge: a command in the guest, and what it must print.

use super::super::machine::Machine;
use super::super::table::{Entry, Verdict};
use super::built::{BuiltPort, BuiltSubnet};
use anyhow::Result;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

/// Time limit of a command. `ibroute` reads 768 blocks.
const LIMIT: Duration = Duration::from_secs(120);

/// The IPv4 broadcast group of the default partition, and its LID.
pub(super) const BROADCAST: &str = "ff12:401b:ffff::ffff:ffff";

/// What a command must print.
#[derive(Debug, Clone)]
pub(super) enum Wanted {
    /// Texts, each of which must be within one line; see [`has`]. The report shows the line of the first
    /// text.
    Texts(Vec<String>),
    /// The subnet that was built, as `ibnetdiscover` prints it.
    Topology,
}

/// A case; see the module's comment.
#[derive(Debug, Clone)]
pub(super) struct DiagnosticRow {
    pub(super) name: &'static str,
    pub(super) command: String,
    pub(super) wanted: Wanted,
    /// Whether other rows depend on it.
    pub(super) is_needed: bool,
}

pub(super) fn row<const COUNT: usize>(
    name: &'static str,
    command: String,
    wanted: [String; COUNT],
) -> DiagnosticRow {
    DiagnosticRow::new(name, command, wanted)
}

pub(super) fn gid(port: &BuiltPort) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xfe80_u128 << 112 | u128::from(port.guid))
}

impl DiagnosticRow {
    pub(super) fn new<const COUNT: usize>(
        name: &'static str,
        command: impl Into<String>,
        wanted: [String; COUNT],
    ) -> Self {
        Self { name, command: command.into(), wanted: Wanted::Texts(wanted.into()), is_needed: false }
    }

    /// Runs the command with the shell functions of the file `functions`.
    pub(super) fn ask(
        &self,
        machine: &mut Machine,
        functions: &str,
        built: Option<&BuiltSubnet>,
    ) -> Result<Entry> {
        let start = Instant::now();
        let outcome =
            machine.control.run(&format!("functions={functions}\n. {functions}\n{}", self.command), LIMIT)?;
        let verdict = match (outcome.is_success(), self.see(&outcome.output, built)) {
            (true, Ok(seen)) => Verdict::Pass(seen),
            (true, Err(wrong)) => Verdict::Fail(wrong),
            (false, _) => Verdict::Fail(format!("status {}: {}", outcome.status, outcome.output.trim())),
        };
        Ok(Entry { columns: vec![self.name.to_owned()], verdict, elapsed: start.elapsed() })
    }

    /// What is right in an output, or an error with what is not.
    fn see(&self, output: &str, built: Option<&BuiltSubnet>) -> Result<String, String> {
        match (&self.wanted, built) {
            (Wanted::Texts(texts), _) => {
                if let Some(missing) = texts.iter().find(|text| find(output, text).is_none()) {
                    return Err(format!("'{missing}' is not in: {}", output.trim()));
                }
                Ok(texts.first().and_then(|text| find(output, text)).unwrap_or_default())
            }
            (Wanted::Topology, Some(built)) => built.compare(output),
            (Wanted::Topology, None) => Err("nobody knows what was built".to_owned()),
        }
    }
}

/// The line, in plain form, that has this text as whole words.
fn find(output: &str, text: &str) -> Option<String> {
    output.lines().map(plain).find(|line| has(line, text))
}

/// A line with single spaces. The dots that some programs put between a name and its value become a space
/// too.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    let mut letters = line.trim().chars().peekable();
    while let Some(letter) = letters.next() {
        let is_gap = letter.is_whitespace() || letter == '.' && letters.peek() == Some(&'.');
        match is_gap {
            true => {
                while letters.next_if(|next| next.is_whitespace() || *next == '.').is_some() {}
                plain.push(' ');
            }
            false => plain.push(letter),
        }
    }
    plain
}

/// Whether a line contains a text as whole words.
fn has(line: &str, text: &str) -> bool {
    let is_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    line.match_indices(text).any(|(at, _)| {
        let (before, behind) = (&line[..at], &line[at + text.len()..]);
        let opens = is_word(before.chars().next_back()) && is_word(text.chars().next());
        let closes = is_word(behind.chars().next()) && is_word(text.chars().next_back());
        !opens && !closes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_dots_and_tabs_count_as_one_space() {
        assert_eq!(plain("Lid:.............................12"), "Lid: 12");
        assert_eq!(plain("\t\tlid.....................1"), "lid 1");
        assert_eq!(plain("Switch\t: 0x2  ports 8 \"a.b\" lid 1-1"), "Switch : 0x2 ports 8 \"a.b\" lid 1-1");
    }

    #[test]
    fn words_are_whole() {
        assert!(has("lid 1", "lid 1") && has("Lid: 12 port", "12"));
        assert!(!has("lid 12", "lid 1") && !has("12 2", "2 2"));
        assert!(has("0x0001 001 : (Channel Adapter portguid", "0x0001 001 : ("));
    }

    #[test]
    fn a_row_passes_only_with_all_its_texts() {
        let row = DiagnosticRow::new("x", "", ["lid 1".to_owned(), "port 2".to_owned()]);
        assert_eq!(row.see("lid....1\nport....2", None), Ok("lid 1".to_owned()));
        assert!(row.see("lid....1\nport....3", None).is_err_and(|wrong| wrong.starts_with("'port 2'")));
    }
}

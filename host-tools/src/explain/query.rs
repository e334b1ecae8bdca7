//! The user's query in its printed form: a number, a name, a name with its number, or a whole line.

use super::table::Entry;
use crate::counters::Known;
use bareverbs_prm::numbering::CqeSyndrome;

/// A parsed query.
pub(super) struct Query {
    /// In capitals.
    names: Vec<String>,
    numbers: Vec<u32>,
}

impl Query {
    /// A single number or name is taken literally. In a longer text every word with a letter counts as a
    /// name, and so does every hexadecimal number that no name explains.
    pub(super) fn new(what: &str) -> Self {
        let what = what.trim();
        if let Some(number) = number(what) {
            return Self { names: Vec::new(), numbers: vec![number] };
        }
        if let Some(named) = named_number(what).or_else(|| exit_status(what)) {
            return named;
        }
        let words = what.split(|at: char| !at.is_ascii_alphanumeric() && !matches!(at, '_' | '.' | '-'));
        let (mut names, mut numbers) = (Vec::new(), Vec::new());
        for word in words.map(|word| word.trim_matches(['.', '-'])).filter(|word| !word.is_empty()) {
            match number(word) {
                Some(number) if word.starts_with("0x") => numbers.push(number),
                Some(_) => {}
                None => names.push(word.to_ascii_uppercase()),
            }
        }
        // A word of a sentence must look like a name: "SIGNAT_ERR" does, "at" and "success" do not.
        if names.len() > 1 {
            names.retain(|name| name.contains(['_', '.']) || is_errno(name));
        }
        if !names.is_empty() {
            numbers.clear();
        }
        Self { names, numbers }
    }

    pub(super) fn matches(&self, entry: &Entry) -> bool {
        entry.names.iter().any(|name| self.names(name))
            || entry.number.is_some_and(|number| self.has_number(number))
    }

    /// Whether the query contains a name.
    pub(super) fn names(&self, name: &str) -> bool {
        self.names.iter().any(|asked| asked.eq_ignore_ascii_case(name))
    }

    /// Like [`Self::names`], for a counter that has one name for all priorities.
    pub(super) fn names_counter(&self, counter: &Known) -> bool {
        let found = |asked: &String| crate::counters::known(&asked.to_ascii_lowercase()) == Some(counter);
        self.names(counter.name) || self.names.iter().any(found)
    }

    pub(super) fn has_number(&self, number: u32) -> bool {
        self.numbers.contains(&number)
    }
}

/// `REMOTE_ACCESS_ERR(0x13)`: the name says which table the number is from. For a number without a name,
/// `UNKNOWN(0x17)`, the number is all there is.
fn named_number(what: &str) -> Option<Query> {
    let (name, rest) = what.split_once('(')?;
    let inside = number(rest.strip_suffix(')')?)?;
    let name = name.trim();
    if name.contains(char::is_whitespace) {
        return None;
    }
    let unknown = name.eq_ignore_ascii_case(CqeSyndrome::Unknown(0).name());
    let (names, numbers) =
        if unknown { (Vec::new(), vec![inside]) } else { (vec![name.to_ascii_uppercase()], Vec::new()) };
    Some(Query { names, numbers })
}

/// `exit status 2`, `exit code 2`, `exit 2`.
fn exit_status(what: &str) -> Option<Query> {
    let words: Vec<&str> = what.split_whitespace().collect();
    let ([exit, number] | [exit, "status" | "code", number]) = words[..] else { return None };
    let number: u8 = number.parse().ok()?;
    let names = vec![format!("EXIT_{number}")];
    exit.eq_ignore_ascii_case("exit").then_some(Query { names, numbers: Vec::new() })
}

/// E followed by capitals and digits: `EINVAL`, `E2BIG`.
fn is_errno(name: &str) -> bool {
    name.len() >= 4
        && name.starts_with('E')
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// Decimal, or hexadecimal with 0x.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

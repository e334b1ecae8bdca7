//! Finds proofs in source text. It reads lines and not syntax trees, because a Rust parser sees tests inside
//! `proptest!` as mere tokens.

use super::annotation::Requirement;
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

/// The crates that have tests.
const MEMBERS: [&str; 7] = ["driver", "exchange", "hal", "sim", "offload", "host-tools", "tests"];

/// One requirement and the test that proves it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proof {
    /// What is proved.
    pub requirement: Requirement,
    /// File of the test, from the root of the workspace.
    pub file: String,
    /// The test function.
    pub function: String,
}

/// An annotation that is malformed or belongs to no test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// File, from the root of the workspace.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Every valid annotation of the workspace at `root`, in the order of the table, and the faults of the
/// others.
pub fn scan_workspace(root: &Path) -> Result<(Vec<Proof>, Vec<Fault>)> {
    let mut files = Vec::new();
    for member in MEMBERS {
        collect(&root.join(member), &mut files)?;
    }
    let (mut proofs, mut faults) = (Vec::new(), Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let (found, wrong) = scan_text(&name, &text);
        proofs.extend(found);
        faults.extend(wrong);
    }
    proofs.sort();
    Ok((proofs, faults))
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("{}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// The proofs and the faults of one file. Both carry the name `file`.
pub fn scan_text(file: &str, text: &str) -> (Vec<Proof>, Vec<Fault>) {
    let mut reader = Reader { file, ..Reader::default() };
    for (index, line) in text.lines().enumerate() {
        reader.line(index + 1, line.trim());
    }
    reader.abandon("nothing follows it");
    (reader.proofs, reader.faults)
}

#[derive(Default)]
struct Reader<'a> {
    file: &'a str,
    waiting: Vec<(usize, Requirement)>,
    is_test: bool,
    open_brackets: i64,
    /// Whether a line of a doc comment belongs to the annotation before it.
    goes_on: bool,
    proofs: Vec<Proof>,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn line(&mut self, number: usize, line: &str) {
        if let Some(text) = annotation(line) {
            self.annotation(number, line, text);
        } else if self.open_brackets > 0 || line.starts_with("#[") {
            self.attribute(line);
        } else if line.starts_with("//") {
            self.comment(line);
        } else if let Some(name) = function_name(line) {
            self.function(name);
        } else {
            self.abandon("what follows it is not a function");
        }
    }

    fn annotation(&mut self, number: usize, line: &str, text: &str) {
        match Requirement::parse(text) {
            _ if !line.starts_with("/// ") => self.fault(number, "it stands outside of a doc comment".into()),
            Ok(requirement) => {
                self.waiting.push((number, requirement));
                self.goes_on = true;
            }
            Err(reason) => self.fault(number, reason),
        }
    }

    /// An annotation continues on the lines below it until an empty line or the end of the doc comment.
    fn comment(&mut self, line: &str) {
        let words = line.strip_prefix("/// ").map(str::trim).filter(|words| !words.is_empty());
        match (words, self.waiting.last_mut()) {
            (Some(words), Some((_, requirement))) if self.goes_on => requirement.go_on(words),
            _ => self.goes_on = false,
        }
    }

    fn attribute(&mut self, line: &str) {
        let count = |character| line.matches(character).count() as i64;
        self.open_brackets += count('[') - count(']');
        self.is_test |= line == "#[test]";
    }

    fn function(&mut self, name: &str) {
        if !self.is_test {
            return self.abandon("the function after it is not a test");
        }
        for (_, requirement) in self.waiting.drain(..) {
            let (file, function) = (self.file.to_string(), name.to_string());
            self.proofs.push(Proof { requirement: requirement.finish(), file, function });
        }
        self.is_test = false;
    }

    fn abandon(&mut self, reason: &str) {
        self.is_test = false;
        for (line, _) in core::mem::take(&mut self.waiting) {
            self.fault(line, reason.into());
        }
    }

    fn fault(&mut self, line: usize, reason: String) {
        self.faults.push(Fault { file: self.file.to_string(), line, reason });
    }
}

/// What follows `Requirement:` in a comment that begins with that word.
fn annotation(line: &str) -> Option<&str> {
    let comment = line.strip_prefix("//")?;
    comment.trim_start_matches(['/', '!']).trim_start().strip_prefix("Requirement:")
}

fn function_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    rest.split(|character: char| !character.is_alphanumeric() && character != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(lines: &[&str]) -> (Vec<String>, Vec<usize>) {
        let (proofs, faults) = scan_text("a.rs", &lines.join("\n"));
        let tests = proofs.into_iter().map(|proof| proof.requirement.section + " " + &proof.function);
        (tests.collect(), faults.into_iter().map(|fault| fault.line).collect())
    }

    #[test]
    fn annotations_belong_to_the_test_below_them() {
        let (tests, faults) = scan(&[
            "/// Requirement: IBTA v1.4 §9.1: one",
            "/// More words.",
            "/// Requirement: IBTA v1.4 §9.2: two",
            "#[test]",
            "#[cfg_attr(",
            "    any(), allow(unused)",
            ")]",
            "fn first() {}",
            "proptest! {",
            "    /// Requirement: RoCEv2 A17.3: three",
            "    #[test]",
            "    fn second(",
        ]);
        assert_eq!(tests, ["§9.1 first", "§9.2 first", "A17.3 second"]);
        assert_eq!(faults, [0usize; 0]);
    }

    #[test]
    fn an_annotation_goes_on_to_a_full_stop_or_an_empty_line() {
        let lines = [
            "/// Requirement: IBTA v1.4 §9.1: one and",
            "/// two",
            "/// three.",
            "/// Not four.",
            "/// Requirement: IBTA v1.4 §9.2: five",
            "///",
            "/// Not six.",
            "#[test]",
            "fn test() {}",
        ];
        let (proofs, _) = scan_text("a.rs", &lines.join("\n"));
        let words: Vec<&str> = proofs.iter().map(|proof| proof.requirement.words.as_str()).collect();
        assert_eq!(words, ["one and two three", "five"]);
    }

    #[test]
    fn annotations_elsewhere_are_faults() {
        for lines in [
            &["/// Requirement: IBTA v1.4 §9.1: one", "fn helper() {}"][..],
            &["/// Requirement: IBTA v1.4 §9.1: one", "", "#[test]", "fn test() {}"],
            &["/// Requirement: IBTA v1.4 §9.1: one", "struct Thing;"],
            &["/// Requirement: IBTA v1.4 §9.1: one"],
            &["/// Requirement: §9.1", "#[test]", "fn test() {}"],
            &["// Requirement: IBTA v1.4 §9.1: one", "#[test]", "fn test() {}"],
        ] {
            assert_eq!(scan(lines), (vec![], vec![1]), "{lines:?}");
        }
    }
}

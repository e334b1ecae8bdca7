//! Renders the proofs as a Markdown document.

use super::scan::Proof;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const HEAD: &str = "# Conformance

Requirements of the specifications and the tests that prove them. Made by `cargo run -p bareverbs-tests --bin conformance` from the
lines `Requirement: …` in the doc comments of the tests; `.ci/run conformance` fails when it is out of date.
";

/// The document. `proofs` must be in the table's order.
pub fn render(proofs: &[Proof]) -> String {
    let tests: BTreeSet<_> = proofs.iter().map(|proof| (&proof.file, &proof.function)).collect();
    let requirements: BTreeSet<_> = proofs.iter().map(|proof| &proof.requirement).collect();
    let mut text = format!("{HEAD}\n{} requirements, {} tests.\n", requirements.len(), tests.len());
    for chapter in proofs.chunk_by(|a, b| a.requirement.document() == b.requirement.document()) {
        let _ = write!(text, "\n## {}\n\n", chapter[0].requirement.document());
        text.push_str("| section | requirement | test |\n|---|---|---|\n");
        for row in chapter.chunk_by(|a, b| a.requirement == b.requirement) {
            text.push_str(&line(row));
        }
    }
    text
}

/// One requirement and all of its tests.
fn line(row: &[Proof]) -> String {
    let test = |proof: &Proof| format!("`{}` {}", proof.file, proof.function);
    let tests: Vec<String> = row.iter().map(test).collect();
    let words = row[0].requirement.words.replace('|', "\\|");
    format!("| {} | {words} | {} |\n", row[0].requirement.section, tests.join("<br>"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Requirement;

    #[test]
    fn one_row_for_each_requirement() {
        let proof = |text, function: &str| {
            let requirement = Requirement::parse(text).unwrap();
            Proof { requirement, file: "a.rs".into(), function: function.into() }
        };
        let (one, other) = ("IBTA v1.4 §9.1: a | b", "RoCEv2 A17.3: c");
        let text = render(&[proof(one, "f"), proof(one, "g"), proof(other, "f")]);
        assert!(text.contains("2 requirements, 2 tests."), "{text}");
        assert!(text.contains("| §9.1 | a \\| b | `a.rs` f<br>`a.rs` g |\n"), "{text}");
        assert!(text.contains("\n## RoCEv2\n"), "{text}");
    }
}

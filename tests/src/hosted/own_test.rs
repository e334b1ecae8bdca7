//! The test that `docs/testing-rdma-programs.md` walks its reader through: its program and its commands are
//! taken from the page and run verbatim.

use crate::guest::table::Verdict;
use crate::installation::{Installation, is_installed};
use anyhow::{Context, Result, ensure};
use std::fs;

const PAGE: &str = include_str!("../../../docs/testing-rdma-programs.md");
/// Where the test begins.
const HEADING: &str = "## Your own test";
const HEADER: &str = "/usr/include/rdma/rdma_verbs.h";
/// What its client prints.
const GOOD: &str = "all letters are right";
/// What `bareverbs report` prints after the number of lost frames.
const LOST: &str = " lost";

/// Writes the files of the page and runs its commands.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if !is_installed("cc") || fs::metadata(HEADER).is_err() {
        return Ok(Verdict::Skip(
            "cc or rdma_verbs.h is not installed (Debian: apt-get install gcc libc6-dev libibverbs-dev librdmacm-dev)".into(),
        ));
    }
    let section = PAGE.split(HEADING).nth(1).context("the page has no such section")?;
    let directory = installation.own_directory("own-test")?;
    fs::write(directory.join("letters.c"), block(section, "c")?)?;
    let script = format!("cd '{}'\n{}", directory.display(), block(section, "sh")?);
    let ended = installation.run_shell(&script)?;
    ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    ensure!(ended.said.contains(GOOD), "{GOOD:?} is not in what was said:\n{}", ended.said);
    let lost = ended.said.split_once(LOST).and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
    let lost: u32 = lost.with_context(|| ended.said.clone())?;
    ensure!(lost > 0, "no frame was lost, so that nothing was tested:\n{}", ended.said);
    Ok(Verdict::Pass(format!("{lost} frames lost")))
}

/// The first code block in a language.
fn block<'a>(section: &'a str, language: &str) -> Result<&'a str> {
    let begin = format!("\n```{language}\n");
    let found = section.split_once(&begin).and_then(|(_, rest)| rest.split_once("\n```"));
    found.map(|(code, _)| code).with_context(|| format!("the section has no block of {language}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_program_and_commands() {
        let section = PAGE.split(HEADING).nth(1).expect("the section");
        assert!(block(section, "c").expect("a program").contains("main"));
        let commands = block(section, "sh").expect("commands");
        assert!(commands.contains("cc ") && commands.contains("--loss 0.01"), "{commands}");
        assert!(block("no code", "c").is_err());
    }
}

//! rdma-core's own tests (its package `rdma-core`, over `python3-pyverbs`) on a virtual host, unmodified.
//! Each runs in a process of its own, started by the runner that the guest uses too.

use crate::guest::mlx5::suite::{RUNNER, Results, TEST_LIMIT};
use crate::guest::table::{Entry, Verdict};
use crate::installation::{HostedProgram, Installation};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where Debian installs the suite, and the interpreter that its packages are for.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
const PYTHON: &str = "/usr/bin/python3";
/// How a test fails that needs more than the kernel side of a virtual host offers, and why it then counts as
/// skipped.
const BEYOND: [(&str, &str); 2] = [
    (
        "Command '['devlink', 'dev', 'param', 'show', 'pci/",
        "devlink of this machine's kernel knows no device of bareverbs run",
    ),
    (
        "Failed to Resolve AddrInfo",
        "services are resolved by a command of rdma_cm that bareverbs run does not have, nor older kernels",
    ),
];
/// Virtual host on which the tests run.
const HOST: &str = "a";
/// Time limit for all tests.
const LIMIT: Duration = Duration::from_secs(240);

/// The suite of the installed version, for hosts whose ports have one link layer.
#[derive(Debug)]
pub struct Suite<'a> {
    installation: &'a Installation,
    link: &'static str,
}

/// Turns the failure of a test that needs something unavailable into a skip.
fn within_reach(entry: Entry) -> Entry {
    let beyond = |reason: &str| BEYOND.iter().find(|(said, _)| reason.contains(said));
    let verdict = match entry.verdict {
        Verdict::Fail(reason) => match beyond(&reason) {
            Some((_, why)) => Verdict::Skip((*why).into()),
            None => Verdict::Fail(reason),
        },
        verdict => verdict,
    };
    Entry { verdict, ..entry }
}

/// Why the suite cannot run here, if it cannot.
pub fn missing() -> Option<String> {
    let pyverbs = Command::new(PYTHON).args(["-c", "import pyverbs.device"]).output();
    let has_pyverbs = pyverbs.is_ok_and(|output| output.status.success());
    if has_pyverbs && Path::new(SUITE).is_dir() {
        return None;
    }
    Some("rdma-core's tests are not installed (Debian: apt-get install rdma-core python3-pyverbs)".into())
}

/// Name of the list of verdicts on a link layer for the installed major version of the suite.
///
/// # Errors
/// Debian's package manager does not know the version.
pub fn list_name(link: &str) -> Result<String> {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "rdma-core"]).output();
    let query = query.context("dpkg-query")?;
    let version = String::from_utf8(query.stdout)?;
    let version: String = version.chars().take_while(char::is_ascii_digit).collect();
    ensure!(!version.is_empty(), "dpkg-query does not know the version of rdma-core");
    Ok(format!("run-suite-{link}-{version}"))
}

/// Where the suite for a link layer lies in an installation.
fn directory_of(link: &str) -> String {
    format!("suite-{link}")
}

impl<'a> Suite<'a> {
    /// Unpacks the suite.
    pub fn unpack(installation: &'a Installation, link: &'static str) -> Result<Self> {
        let directory = installation.own_directory(&directory_of(link))?;
        let tests = directory.join("tests"); // the tests import each other by this name
        let copied = Command::new("cp").arg("-r").arg(SUITE).arg(&tests).status()?;
        ensure!(copied.success(), "cp: {copied}");
        let unpacked = Command::new("gunzip").arg("-qr").arg(&tests).status()?;
        ensure!(unpacked.success(), "gunzip: {unpacked}");
        let runner = installation.path(RUNNER.0);
        fs::write(&runner, RUNNER.1)?;
        fs::set_permissions(&runner, fs::Permissions::from_mode(0o644))?;
        Ok(Self { installation, link })
    }

    /// Runs the tests of some modules, or of all.
    pub fn run(&self, names: &[&str], mut add: impl FnMut(Entry)) -> Result<()> {
        let directory = self.installation.path(&directory_of(self.link));
        let words = |path: &Path| path.to_string_lossy().into_owned();
        let results = directory.join("results");
        let mut command = vec!["env".to_owned(), format!("BAREVERBS_SUITE_HOST={HOST}")];
        command.extend([PYTHON.to_owned(), words(&self.installation.path(RUNNER.0))]);
        command.extend([words(&directory.join("tests")), words(&results)]);
        command.push(TEST_LIMIT.as_secs().to_string());
        command.extend(names.iter().map(|&name| name.to_owned()));
        let program = HostedProgram { host: HOST.into(), command };
        let options = ["--link", self.link].map(str::to_owned);
        let ended = self.installation.start(&program, &options)?.limit(LIMIT).finish()?;
        let text = fs::read_to_string(&results).unwrap_or_default();
        let mut seen = Results::default();
        seen.take(&text, &mut |entry| add(within_reach(entry)))?;
        ensure!(!seen.is_empty(), "the suite ran no test, {}, and said:\n{}", ended.status, ended.said);
        seen.missing(ended.status.code().unwrap_or(-1)).for_each(add);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::floor::{Expected, Floors};
    use std::collections::BTreeMap;

    /// Why a test that passes in a guest may be skipped here: nobody is root, and a virtual host has the
    /// machine's huge pages, if any.
    const NEED_NOT: [&str; 2] = ["Must be run by root", "There are no huge pages"];

    #[test]
    fn tests_that_pass_in_a_guest_pass_without_one() {
        let floors = Floors::of_this_tree();
        let read = |name: String| floors.read(&name).unwrap().expect("it is recorded");
        for link in ["eth", "ib"] {
            let (guest, here) = (read(format!("mlx5-{link}")), read(format!("run-suite-{link}-56")));
            let here: BTreeMap<&str, &Expected> = here.expected().collect();
            let passes = |(name, expected): &(&str, &Expected)| {
                name.starts_with("test_") && **expected == Expected::Pass
            };
            let mut compared = 0;
            for (name, _) in guest.expected().filter(passes) {
                match here.get(name) {
                    Some(Expected::Pass) => compared += 1,
                    Some(Expected::Skip(reason)) if NEED_NOT.iter().any(|why| reason.contains(why)) => {}
                    other => panic!("{link}: {name} passes in a guest, and here: {other:?}"),
                }
            }
            assert!(compared >= 10, "{link}: only {compared} tests pass in both");
        }
    }

    #[test]
    fn a_test_that_asked_for_what_is_not_there_is_skipped_and_one_that_failed_otherwise_has_failed() {
        let entry = |reason: &str| Entry {
            columns: vec!["test_x.X.test".into()],
            verdict: Verdict::Fail(reason.into()),
            elapsed: Duration::ZERO,
        };
        let devlink = "subprocess.CalledProcessError: Command '['devlink', 'dev', 'param', 'show', 'pci/0000:e1:00.0']' failed";
        assert!(matches!(within_reach(entry(devlink)).verdict, Verdict::Skip(_)));
        let other = "subprocess.CalledProcessError: Command '['rdma', 'dev']' failed";
        assert!(matches!(within_reach(entry(other)).verdict, Verdict::Fail(_)));
    }
}
